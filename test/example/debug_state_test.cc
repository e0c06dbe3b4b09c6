// The models against debug states that PyTorch wrote: the logits and the gradient of every parameter of one step.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "example/common/load_weights.h"
#include "example/gpt2/net.h"
#include "example/llama3/net.h"
#include "infini_train/include/autograd/engine.h"
#include "infini_train/include/checkpoint/debug_state.h"
#include "infini_train/include/nn/modules/loss.h"
#include "test/support/run_program.h"

namespace infini_train::test {
namespace {

// docs/numerics.md: of the tensor's largest element.
constexpr float kTolerance = 1e-4f;

float LargestDifference(const std::vector<float>& got, const std::vector<float>& wanted) {
    EXPECT_EQ(got.size(), wanted.size());
    float difference = 0.0f;
    float largest = 0.0f;
    for (size_t i = 0; i < wanted.size(); ++i) {
        difference = std::max(difference, std::abs(got[i] - wanted[i]));
        largest = std::max(largest, std::abs(wanted[i]));
        EXPECT_FALSE(std::isnan(got[i])) << i;
    }
    return largest == 0.0f ? difference : difference / largest;
}

void ExpectDebugState(nn::Module& net, const checkpoint::WeightFile& weights, const checkpoint::DebugState& state,
                      int64_t vocab_size, const Device& device) {
    LoadWeights(weights, net);
    const Shape shape = {state.batch_size, state.sequence_length};
    const std::shared_ptr<Tensor> logits = net.Forward({Tensor::FromVector(state.inputs, shape, device)})[0];
    const std::vector<float> padded = logits->ToVector<float>();
    std::vector<float> real;
    for (int64_t row = 0; row < logits->num_rows(); ++row) {
        const auto begin = padded.begin() + row * logits->dim(-1);
        real.insert(real.end(), begin, begin + vocab_size);
    }
    EXPECT_LE(LargestDifference(real, state.logits), kTolerance) << "logits";

    const TensorList loss = nn::CrossEntropyLoss({.vocab_size = vocab_size})
                                .Forward({logits, Tensor::FromVector(state.targets, shape, device)});
    const auto count = static_cast<float>(loss[1]->ToVector<int64_t>()[0]);
    EXPECT_NEAR(loss[0]->ToVector<float>()[0] / count, state.loss, 1e-5f * state.loss);

    autograd::Backward({loss[0]}, {nullptr});
    nn::ReduceTiedGrads(net);
    for (const nn::NamedParameter& parameter : net.NamedParameters()) {
        std::vector<float> grad = parameter.tensor->grad()->ToVector<float>();
        for (float& element : grad) {
            element /= count;
        }
        std::vector<float> wanted(grad.size());
        state.gradients.Read(parameter.name, wanted.data());
        EXPECT_LE(LargestDifference(grad, wanted), kTolerance) << parameter.name;
    }
}

TEST(DebugState, OfGpt2IsReproduced) {
    for (const std::string& folder : ReferenceFolders()) {
        SCOPED_TRACE(folder);
        const checkpoint::LlmcGpt2File file = checkpoint::OpenLlmcGpt2(folder + "/gpt2_tiny.bin");
        const gpt2::Gpt2Config config = gpt2::ConfigOf(file.header);
        const Device device = MakeCpuDevice();
        gpt2::Gpt2 net(config, {.begin = 0, .end = config.num_layers, .num_layers = config.num_layers},
                       std::make_shared<nn::DropoutPosition>(), device);
        ExpectDebugState(net, file.weights,
                         checkpoint::ReadGpt2DebugState(folder + "/gpt2_tiny_debug_state.bin", file.header),
                         config.vocab_size, device);
    }
}

TEST(DebugState, OfLlamaIsReproduced) {
    const std::string folder = ReferenceFolders()[0];
    const checkpoint::LlmcLlama3File file = checkpoint::OpenLlmcLlama3(folder + "/llama_tiny.bin");
    const llama3::Llama3Config config = llama3::ConfigOf(file.header, 8.0f);
    const Device device = MakeCpuDevice();
    llama3::Llama3 net(config, {.begin = 0, .end = config.num_layers, .num_layers = config.num_layers},
                       std::make_shared<nn::DropoutPosition>(), device);
    ExpectDebugState(net, file.weights,
                     checkpoint::ReadLlama3DebugState(folder + "/llama_tiny_debug_state.bin", file.header),
                     config.vocab_size, device);
}

}  // namespace
}  // namespace infini_train::test
