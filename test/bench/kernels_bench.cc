#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/attention.h"
#include "infini_train/include/kernels/cross_entropy.h"
#include "infini_train/include/kernels/gelu.h"
#include "infini_train/include/kernels/layer_norm.h"
#include "infini_train/include/kernels/swiglu.h"

// The operations of GPT-2 124M beside its matrix products, at a micro-batch of 4 rows. OMP_NUM_THREADS sets the
// threads.

namespace infini_train::kernels {
namespace {

constexpr int64_t kBatchSize = 4;
constexpr int64_t kNumTokens = 256;
constexpr int kNumHeads = 12;
constexpr int64_t kHeadDim = 64;
constexpr int64_t kChannels = kNumHeads * kHeadDim;
constexpr int64_t kVocabSize = 50257;
constexpr int64_t kPaddedVocabSize = 50304;
constexpr DeviceType kCpu = DeviceType::kCPU;

/// Values in [-1, 1): speed depends on them only through denormals and saturation.
std::shared_ptr<Tensor> Values(const Shape& shape, DataType dtype, const Device& device) {
    std::vector<float> values(static_cast<size_t>(NumElements(shape)));
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(i * 7919 % 2048) / 1024.0f - 1.0f;
    }
    if (dtype == DataType::kFloat32) {
        return Tensor::FromVector(values, shape, device);
    }
    return Tensor::FromVector(std::vector<BFloat16>(values.begin(), values.end()), shape, device);
}

void SetRates(benchmark::State& state, double flops, double num_bytes) {
    const auto rate = [](double count) {
        return benchmark::Counter(count, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
    };
    if (flops > 0.0) {
        state.counters["flop/s"] = rate(flops);
    }
    if (num_bytes > 0.0) {
        state.counters["byte/s"] = rate(num_bytes);
    }
}

/// Multiplications and additions of `num_products` products over the pairs that the causal mask leaves.
double AttentionFlops(int64_t length, int num_products) {
    const auto pairs = static_cast<double>(kBatchSize * kNumHeads * length * (length + 1) / 2);
    return 2.0 * num_products * pairs * static_cast<double>(kHeadDim);
}

void BenchmarkAttentionForward(benchmark::State& state, DataType dtype) {
    const int64_t length = state.range(0);
    const auto qkv = Values({kBatchSize, length, 3 * kChannels}, dtype, MakeCpuDevice());
    for (auto _ : state) {
        benchmark::DoNotOptimize(attention_forward(kCpu, *qkv, {kNumHeads, kNumHeads}));
    }
    SetRates(state, AttentionFlops(length, 2), 0.0);
}

void BenchmarkAttentionBackward(benchmark::State& state, DataType dtype) {
    const int64_t length = state.range(0);
    const Device device = MakeCpuDevice();
    const AttentionHeads heads{kNumHeads, kNumHeads};
    const auto qkv = Values({kBatchSize, length, 3 * kChannels}, dtype, device);
    const auto dout = Values({kBatchSize, length, kChannels}, dtype, device);
    const AttentionOutput output = attention_forward(kCpu, *qkv, heads);
    for (auto _ : state) {
        benchmark::DoNotOptimize(attention_backward(kCpu, *dout, *qkv, *output.out, *output.lse, heads, true));
    }
    SetRates(state, AttentionFlops(length, 5), 0.0);
}

/// What cross entropy reads and writes besides.
struct LossInput {
    explicit LossInput(DataType dtype)
        : logits(Values({kNumTokens, kPaddedVocabSize}, dtype, device)),
          targets(Tensor::FromVector(std::vector<int32_t>(kNumTokens, 1), {kNumTokens}, device)) {}

    Device device = MakeCpuDevice();
    std::shared_ptr<Tensor> logits;
    std::shared_ptr<Tensor> targets;
    CrossEntropyOptions options{.vocab_size = kVocabSize};
};

void BenchmarkCrossEntropyForward(benchmark::State& state, DataType dtype) {
    const LossInput input(dtype);
    for (auto _ : state) {
        benchmark::DoNotOptimize(cross_entropy_forward(kCpu, *input.logits, *input.targets, input.options));
    }
    SetRates(state, 0.0, static_cast<double>(input.logits->size_bytes()));
}

void BenchmarkCrossEntropyBackward(benchmark::State& state, DataType dtype) {
    const LossInput input(dtype);
    const auto output = cross_entropy_forward(kCpu, *input.logits, *input.targets, input.options);
    const auto dlogits = Tensor::Empty(input.logits->shape(), dtype, input.device);
    const auto dloss = Tensor::FromVector(std::vector<float>{1.0f}, {1}, input.device);
    for (auto _ : state) {
        cross_entropy_backward(kCpu, *dloss, *input.logits, *input.targets, *output.lse, input.options, *dlogits);
        benchmark::ClobberMemory();
    }
    SetRates(state, 0.0, 2.0 * static_cast<double>(input.logits->size_bytes()));
}

void BenchmarkGeluForward(benchmark::State& state, DataType dtype) {
    const auto x = Values({kNumTokens, 4 * kChannels}, dtype, MakeCpuDevice());
    for (auto _ : state) {
        benchmark::DoNotOptimize(gelu_forward(kCpu, *x));
    }
    SetRates(state, 0.0, 2.0 * static_cast<double>(x->size_bytes()));
}

void BenchmarkGeluBackward(benchmark::State& state, DataType dtype) {
    const Device device = MakeCpuDevice();
    const auto x = Values({kNumTokens, 4 * kChannels}, dtype, device);
    const auto dy = Values({kNumTokens, 4 * kChannels}, dtype, device);
    for (auto _ : state) {
        benchmark::DoNotOptimize(gelu_backward(kCpu, *dy, *x));
    }
    SetRates(state, 0.0, 3.0 * static_cast<double>(x->size_bytes()));
}

void BenchmarkSwigluBackward(benchmark::State& state, DataType dtype) {
    const Device device = MakeCpuDevice();
    const auto gate = Values({kNumTokens, 4 * kChannels}, dtype, device);
    const auto dy = Values({kNumTokens, 4 * kChannels}, dtype, device);
    for (auto _ : state) {
        benchmark::DoNotOptimize(swiglu_backward(kCpu, *dy, *gate, *gate));
    }
    SetRates(state, 0.0, 5.0 * static_cast<double>(gate->size_bytes()));
}

/// Operands of a layer norm.
struct NormInput {
    explicit NormInput(DataType dtype)
        : x(Values({kNumTokens, kChannels}, dtype, device)),
          weight(Values({kChannels}, dtype, device)),
          bias(Values({kChannels}, dtype, device)) {}

    static constexpr float kEps = 1e-5f;
    Device device = MakeCpuDevice();
    std::shared_ptr<Tensor> x, weight, bias;
};

void BenchmarkLayerNormForward(benchmark::State& state, DataType dtype) {
    const NormInput input(dtype);
    for (auto _ : state) {
        benchmark::DoNotOptimize(
            layer_norm_forward(kCpu, *input.x, nullptr, *input.weight, *input.bias, NormInput::kEps));
    }
    SetRates(state, 0.0, 2.0 * static_cast<double>(input.x->size_bytes()));
}

void BenchmarkLayerNormBackward(benchmark::State& state, DataType dtype) {
    const NormInput input(dtype);
    const auto output = layer_norm_forward(kCpu, *input.x, nullptr, *input.weight, *input.bias, NormInput::kEps);
    for (auto _ : state) {
        benchmark::DoNotOptimize(
            layer_norm_backward(kCpu, *output.y, nullptr, *input.x, *input.weight, *output.mean, *output.rstd));
    }
    SetRates(state, 0.0, 3.0 * static_cast<double>(input.x->size_bytes()));
}

void RegisterAll() {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        const auto add = [dtype](const std::string& name, void (*run)(benchmark::State&, DataType)) {
            return benchmark::RegisterBenchmark((name + "/" + std::string(Name(dtype))).c_str(), run, dtype)
                ->UseRealTime()
                ->Unit(benchmark::kMicrosecond);
        };
        add("attention_forward", BenchmarkAttentionForward)->Arg(64)->Arg(1024);
        add("attention_backward", BenchmarkAttentionBackward)->Arg(64)->Arg(1024);
        add("cross_entropy_forward", BenchmarkCrossEntropyForward);
        add("cross_entropy_backward", BenchmarkCrossEntropyBackward);
        add("gelu_forward", BenchmarkGeluForward);
        add("gelu_backward", BenchmarkGeluBackward);
        add("swiglu_backward", BenchmarkSwigluBackward);
        add("layer_norm_forward", BenchmarkLayerNormForward);
        add("layer_norm_backward", BenchmarkLayerNormBackward);
    }
}

}  // namespace
}  // namespace infini_train::kernels

int main(int argc, char** argv) {
    infini_train::kernels::RegisterAll();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
        return 1;
    }
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}
