#include "infini_train/include/nn/modules/kv_cache.h"

#include "glog/logging.h"

#include "infini_train/include/autograd/grad_mode.h"
#include "infini_train/include/kernels/attention_cached.h"
#include "infini_train/include/kernels/embedding.h"

namespace infini_train::nn {

int KvCache::AddLayer() {
    layers_.emplace_back();
    return static_cast<int>(layers_.size()) - 1;
}

void KvCache::Begin(int64_t max_positions, const Device& device) {
    CHECK_GT(max_positions, 0) << "a cache of no positions";
    End();
    max_positions_ = max_positions;
    device_ = device;
}

void KvCache::End() {
    for (Layer& layer : layers_) {
        layer = {};
    }
    max_positions_ = 0;
    length_ = 0;
    device_ = {};
}

bool KvCache::Serves(const Tensor& x) const {
    return max_positions_ > 0 && x.device() == device_;
}

std::shared_ptr<Tensor> KvCache::Attend(int layer, const Tensor& qkv, const kernels::AttentionHeads& heads) {
    CHECK(!autograd::GradMode::is_enabled()) << "attention over a cache has no backward";
    Layer& kept = layers_.at(static_cast<size_t>(layer));
    if (kept.keys == nullptr) {
        const Shape shape = {qkv.dim(0), max_positions_, heads.num_kv_heads, kernels::HeadDim(qkv, heads)};
        kept.keys = Tensor::Empty(shape, qkv.dtype(), qkv.device());
        kept.values = Tensor::Empty(shape, qkv.dtype(), qkv.device());
    }
    return kernels::attention_cached(qkv.device().type, qkv, heads, length_, *kept.keys, *kept.values);
}

std::shared_ptr<Tensor> LastPositions(const Tensor& x) {
    CHECK(x.num_dims() == 3 && x.dim(1) > 0) << "positions of " << ToString(x.shape());
    std::vector<int32_t> rows;
    for (int64_t b = 1; b <= x.dim(0); ++b) {
        rows.push_back(static_cast<int32_t>(b * x.dim(1) - 1));
    }
    const std::shared_ptr<Tensor> ids = Tensor::FromVector(rows, {x.dim(0), 1}, x.device());
    return kernels::embedding_forward(x.device().type, *ids, *x.View({x.dim(0) * x.dim(1), x.dim(2)}));
}

KvCacheScope::KvCacheScope(const std::vector<std::shared_ptr<Module>>& chunks, int64_t max_positions,
                           const Device& device) {
    for (const std::shared_ptr<Module>& chunk : chunks) {
        const auto* module = dynamic_cast<const CachedModule*>(chunk.get());
        CHECK(module != nullptr) << "a chunk without a cache";
        caches_.push_back(module->kv_cache());
    }
    for (const std::shared_ptr<KvCache>& cache : caches_) {
        cache->Begin(max_positions, device);
    }
}

KvCacheScope::~KvCacheScope() {
    for (const std::shared_ptr<KvCache>& cache : caches_) {
        cache->End();
    }
}

}  // namespace infini_train::nn
