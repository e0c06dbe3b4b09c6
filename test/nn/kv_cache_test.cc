#include "infini_train/include/nn/modules/kv_cache.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/autograd/grad_mode.h"
#include "infini_train/include/nn/modules/attention.h"
#include "test/support/random_tensor.h"

namespace infini_train::nn {
namespace {

using test::RandomTensor;
using test::SameBits;
using test::ToDoubles;

constexpr int64_t kDim = 24;
constexpr int64_t kLength = 9;

/// A layer as a slice of a model.
class OneLayer : public CachedModule {
 public:
    explicit OneLayer(const Device& device)
        : attention_(std::make_shared<CausalSelfAttention>(
              CausalSelfAttention::Options{
                  .dim = kDim,
                  .num_heads = 4,
                  .num_kv_heads = 2,
                  .rotary_angles = MakeRotaryAngles({.head_dim = 6, .max_positions = kLength}, device),
                  .kv_cache = kv_cache(),
                  .init_stddev = 0.5f},
              device)) {
        RegisterModule("attention", attention_);
    }
    TensorList Forward(const TensorList& inputs) override {
        TensorList outputs = attention_->Forward(inputs);
        if (kv_cache()->Serves(*inputs[0])) {
            kv_cache()->Advance(inputs[0]->dim(1));
        }
        return outputs;
    }

 private:
    std::shared_ptr<CausalSelfAttention> attention_;
};

std::shared_ptr<OneLayer> MakeLayer(const Device& device, DataType dtype = DataType::kFloat32) {
    auto layer = std::make_shared<OneLayer>(device);
    layer->Initialize(3);
    layer->To(dtype);
    return layer;
}

/// Positions [begin, end) of x [1, T, C].
std::shared_ptr<Tensor> Piece(const Tensor& x, int64_t begin, int64_t end) {
    return x.View({x.dim(1), x.dim(2)})->Slice(begin, end)->View({1, end - begin, x.dim(2)});
}

TEST(KvCache, GivesAnAttentionTheSameByPieces) {
    const autograd::NoGradGuard no_grad;
    const Device device = MakeCpuDevice();
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        const std::shared_ptr<OneLayer> layer = MakeLayer(device, dtype);
        const auto x = RandomTensor({1, kLength, kDim}, dtype, device, 1);
        const std::vector<double> wanted = ToDoubles(*layer->Forward({x})[0]);
        const KvCacheScope scope({layer}, kLength, device);
        std::vector<double> got;
        for (int64_t begin = 0; begin < kLength;) {
            const int64_t end = begin == 0 ? 4 : begin + 1;
            const std::vector<double> piece = ToDoubles(*layer->Forward({Piece(*x, begin, end)})[0]);
            got.insert(got.end(), piece.begin(), piece.end());
            begin = end;
            EXPECT_EQ(layer->kv_cache()->length(), begin);
        }
        ASSERT_EQ(got.size(), wanted.size());
        for (size_t i = 0; i < got.size(); ++i) {
            // bfloat16: some unit in the last place of an attention's result, seen through a projection.
            ASSERT_NEAR(got[i], wanted[i], dtype == DataType::kFloat32 ? 1e-5 : 0.03) << "element " << i;
        }
    }
}

TEST(KvCache, HoldsMemoryInItsScopeAlone) {
    const autograd::NoGradGuard no_grad;
    const Device device = MakeCpuDevice();
    const std::shared_ptr<OneLayer> layer = MakeLayer(device);
    const auto x = RandomTensor({2, 3, kDim}, DataType::kFloat32, device, 1);
    const std::shared_ptr<Tensor> without = layer->Forward({x})[0];
    const int64_t before = device.allocator->stats().live_bytes;
    for (int round = 0; round < 2; ++round) {
        {
            const KvCacheScope scope({layer}, 5, device);
            EXPECT_TRUE(SameBits(*layer->Forward({x})[0], *without)) << "what begins a sequence";
            // Keys and values of 2 samples, 5 positions and 2 heads of 6.
            EXPECT_GE(device.allocator->stats().live_bytes, before + 2 * 2 * 5 * 2 * 6 * 4);
            EXPECT_EQ(layer->kv_cache()->length(), 3);
        }
        EXPECT_FALSE(layer->kv_cache()->Serves(*x));
        EXPECT_TRUE(SameBits(*layer->Forward({x})[0], *without));
        EXPECT_EQ(device.allocator->stats().live_bytes, before);
    }
}

TEST(KvCache, DoesNotServeAnImaginedInput) {
    const autograd::NoGradGuard no_grad;
    const Device device = MakeCpuDevice();
    const std::shared_ptr<OneLayer> layer = MakeLayer(device);
    const KvCacheScope scope({layer}, 5, device);
    const auto x = Tensor::Empty({1, 3, kDim}, DataType::kFloat32, MakeMetaDevice());
    EXPECT_EQ(layer->Forward({x})[0]->shape(), x->shape());
    EXPECT_EQ(layer->kv_cache()->length(), 0);
}

TEST(KvCacheDeathTest, RefusesWhatItCannotDo) {
    const Device device = MakeCpuDevice();
    const std::shared_ptr<OneLayer> layer = MakeLayer(device);
    const auto x = RandomTensor({1, 3, kDim}, DataType::kFloat32, device, 1);
    EXPECT_DEATH(
        {
            const KvCacheScope scope({layer}, 5, device);
            layer->Forward({x});
        },
        "has no backward");
    EXPECT_DEATH(
        {
            const autograd::NoGradGuard no_grad;
            const KvCacheScope scope({layer}, 5, device);
            layer->Forward({x});
            layer->Forward({x});
        },
        "3 positions after 3 in a cache of 5");
    EXPECT_DEATH(KvCacheScope({std::make_shared<Linear>(Linear::Options{.in_features = 1, .out_features = 1}, device)},
                              5, device),
                 "a chunk without a cache");
    EXPECT_DEATH(layer->kv_cache()->Begin(0, device), "a cache of no positions");
}

TEST(LastPositions, AreThoseOfEachRow) {
    const Device device = MakeCpuDevice();
    const auto x = Tensor::FromVector<float>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {2, 3, 2}, device);
    const std::shared_ptr<Tensor> last = LastPositions(*x);
    EXPECT_EQ(last->shape(), (Shape{2, 1, 2}));
    EXPECT_EQ(last->ToVector<float>(), (std::vector<float>{5, 6, 11, 12}));
}

}  // namespace
}  // namespace infini_train::nn
