#include "infini_train/include/nn/module.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/autograd/engine.h"
#include "infini_train/include/nn/modules/container.h"
#include "infini_train/include/nn/modules/embedding.h"
#include "infini_train/include/nn/modules/linear.h"
#include "infini_train/include/nn/modules/mlp.h"
#include "infini_train/include/nn/state_dict.h"

namespace infini_train::nn {
namespace {

std::shared_ptr<Linear> MakeLinear(int64_t in, int64_t out, const Device& device, bool bias = true) {
    return std::make_shared<Linear>(Linear::Options{.in_features = in, .out_features = out, .bias = bias}, device);
}

std::vector<std::string> NamesOf(const Module& module) {
    std::vector<std::string> names;
    for (const NamedParameter& parameter : module.NamedParameters()) {
        names.push_back(parameter.name);
    }
    return names;
}

/// An embedding and a head of one table, as GPT-2 has them.
class TiedModel : public Module {
 public:
    explicit TiedModel(const Device& device)
        : table_(std::make_shared<Embedding>(Embedding::Options{.num_embeddings = 5, .num_used = 4, .dim = 3}, device)),
          head_(MakeLinear(3, 5, device, false)) {
        RegisterModule("table", table_);
        RegisterModule("head", head_);
        Tie(table_->weight_slot(), head_->weight_slot());
    }
    TensorList Forward(const TensorList& inputs) override { return head_->Forward(table_->Forward(inputs)); }

 private:
    std::shared_ptr<Embedding> table_;
    std::shared_ptr<Linear> head_;
};

TEST(Module, NamesParametersByTheirPath) {
    const Device device = MakeCpuDevice();
    const Sequential sequential({MakeLinear(2, 3, device), MakeLinear(3, 2, device, false)}, 7);
    EXPECT_EQ(NamesOf(sequential), (std::vector<std::string>{"7.weight", "7.bias", "8.weight"}));
}

TEST(Module, ListsAParameterOfAModuleThatIsUsedTwiceOnce) {
    const Device device = MakeCpuDevice();
    const auto linear = MakeLinear(2, 2, device);
    EXPECT_EQ(Sequential({linear, linear}).Parameters().size(), 2u);
}

TEST(Module, GivesTheSameInitialValuesByName) {
    const Device device = MakeCpuDevice();
    Sequential whole({MakeLinear(4, 4, device), MakeLinear(4, 4, device)});
    Sequential second({MakeLinear(4, 4, device)}, 1);
    whole.Initialize(3);
    second.Initialize(3);
    EXPECT_EQ(StateDict(whole).at("1.weight")->ToVector<float>(), StateDict(second).at("1.weight")->ToVector<float>());
    EXPECT_NE(StateDict(whole).at("0.weight")->ToVector<float>(), StateDict(second).at("1.weight")->ToVector<float>());
    Sequential other({MakeLinear(4, 4, device)}, 1);
    other.Initialize(4);
    EXPECT_NE(StateDict(other).at("1.weight")->ToVector<float>(), StateDict(second).at("1.weight")->ToVector<float>());
}

TEST(Module, StartsPaddingRowsOfAnEmbeddingAtZero) {
    const Device device = MakeCpuDevice();
    Embedding table({.num_embeddings = 3, .num_used = 2, .dim = 2}, device);
    table.Initialize(1);
    const std::vector<float> values = table.Parameters()[0]->ToVector<float>();
    EXPECT_NE(values[3], 0.0f);
    EXPECT_EQ(values[4], 0.0f);
    EXPECT_EQ(values[5], 0.0f);
}

TEST(Module, TiedParametersShareValuesAndSumTheirGradients) {
    const Device device = MakeCpuDevice();
    TiedModel model(device);
    EXPECT_EQ(NamesOf(model), (std::vector<std::string>{"table.weight"}));
    model.Initialize(1);
    const TiedParameters tie = model.Ties().at(0);
    EXPECT_EQ(tie.owner->raw_data(), tie.alias->raw_data());

    const auto ids = Tensor::FromVector(std::vector<int32_t>{2}, {1}, device);
    const TensorList y = model.Forward({ids});
    autograd::Backward(y, {Tensor::FromVector(std::vector<float>{0, 1, 0, 0, 0}, {1, 5}, device)});
    // y[1] = w[2] . w[1]: the gradient of row 2 is w[1], that of row 1 is w[2].
    const std::vector<float> weight = tie.owner->ToVector<float>();
    ReduceTiedGrads(model);
    const std::vector<float> grad = tie.owner->grad()->ToVector<float>();
    for (size_t c = 0; c < 3; ++c) {
        EXPECT_EQ(grad[3 + c], weight[6 + c]);
        EXPECT_EQ(grad[6 + c], weight[3 + c]);
        EXPECT_EQ(grad[c], 0.0f);
    }
}

TEST(Module, KeepsMastersAndTiesInBfloat16) {
    const Device device = MakeCpuDevice();
    TiedModel model(device);
    model.Initialize(1);
    const std::vector<float> before = StateDict(model).at("table.weight")->ToVector<float>();
    model.To(DataType::kBFloat16);
    const TiedParameters tie = model.Ties().at(0);
    EXPECT_EQ(tie.owner->dtype(), DataType::kBFloat16);
    EXPECT_EQ(tie.owner->raw_data(), tie.alias->raw_data());
    EXPECT_EQ(StateDict(model).at("table.weight")->ToVector<float>(), before);
    EXPECT_EQ(static_cast<float>(tie.owner->ToVector<BFloat16>()[0]), static_cast<float>(BFloat16(before[0])));
    model.To(DataType::kFloat32);
    EXPECT_EQ(model.Parameters()[0]->ToVector<float>(), before);
}

TEST(Module, AWriteToTheStateDictReachesTheModel) {
    const Device device = MakeCpuDevice();
    Sequential model({MakeLinear(1, 1, device, false)});
    model.To(DataType::kBFloat16);
    StateDict(model).at("0.weight")->data<float>()[0] = 2.0f;
    RefreshFromMaster(*model.Parameters()[0]);
    const auto x = Tensor::FromVector(std::vector<BFloat16>{BFloat16(3.0f)}, {1, 1}, device);
    EXPECT_EQ(static_cast<float>(model.Forward({x})[0]->ToVector<BFloat16>()[0]), 6.0f);
}

TEST(Mlp, NamesItsProjections) {
    const Device device = MakeCpuDevice();
    const Mlp gelu({.dim = 2, .hidden_dim = 8}, device);
    EXPECT_EQ(NamesOf(gelu), (std::vector<std::string>{"c_fc.weight", "c_fc.bias", "c_proj.weight", "c_proj.bias"}));
    const Mlp swiglu({.dim = 2, .hidden_dim = 6, .activation = Mlp::Activation::kSwiglu, .bias = false}, device);
    EXPECT_EQ(NamesOf(swiglu), (std::vector<std::string>{"c_fc.weight", "c_fc2.weight", "c_proj.weight"}));
}

TEST(Sequential, WithoutModulesReturnsItsInputs) {
    const Device device = MakeCpuDevice();
    const auto x = Tensor::FromVector(std::vector<float>{1.0f}, {1}, device);
    EXPECT_EQ(Sequential({}).Forward({x})[0], x);
}

}  // namespace
}  // namespace infini_train::nn
