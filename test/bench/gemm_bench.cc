#include "infini_train/src/kernels/cpu/gemm.h"

#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "infini_train/include/core/dtype.h"

// The products of one linear layer of GPT-2 124M with 256 tokens: y = x w^T, dx = dy w, dw += dy^T x.
// OMP_NUM_THREADS sets the threads.

namespace infini_train::kernels::cpu {
namespace {

constexpr int64_t kNumTokens = 256;

enum class Form { kForward, kInputGrad, kWeightGrad };

struct Case {
    Form form;
    DataType dtype;
    int64_t in_features;
    int64_t out_features;
};

void BenchmarkGemm(benchmark::State& state, const Case& layer) {
    GemmShape shape;
    GemmOptions options{.input_dtype = layer.dtype, .output_dtype = layer.dtype};
    switch (layer.form) {
        case Form::kForward:
            shape = {.m = kNumTokens, .n = layer.out_features, .k = layer.in_features};
            options.transpose_b = true;
            break;
        case Form::kInputGrad:
            shape = {.m = kNumTokens, .n = layer.in_features, .k = layer.out_features};
            break;
        case Form::kWeightGrad:
            shape = {.m = layer.out_features, .n = layer.in_features, .k = kNumTokens};
            options.transpose_a = true;
            options.accumulate = true;
            options.output_dtype = DataType::kFloat32;
            break;
    }
    // Ones in bfloat16, and as float32 a pair of them: the speed does not depend on the values, but for denormals.
    const auto ones = [](int64_t count, DataType dtype) {
        return std::vector<BFloat16>(static_cast<size_t>(count) * SizeOf(dtype) / sizeof(BFloat16), BFloat16(1.0f));
    };
    const auto a = ones(shape.m * shape.k, options.input_dtype);
    const auto b = ones(shape.k * shape.n, options.input_dtype);
    auto c = ones(shape.m * shape.n, options.output_dtype);
    for (auto _ : state) {
        Gemm(shape, options, {.a = a.data(), .b = b.data(), .c = c.data()});
        benchmark::ClobberMemory();
    }
    const double flops = 2.0 * static_cast<double>(shape.m * shape.n * shape.k);
    state.counters["flop/s"] =
        benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}

void RegisterAll() {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        for (const auto& [form, name] : {std::pair{Form::kForward, "forward"}, std::pair{Form::kInputGrad, "dx"},
                                         std::pair{Form::kWeightGrad, "dw"}}) {
            for (const auto& [in_features, out_features] : {std::pair<int64_t, int64_t>{768, 2304},
                                                            {768, 768},
                                                            {768, 3072},
                                                            {3072, 768},
                                                            {768, 50304},
                                                            {64, 64}}) {
                const std::string title = std::string(name) + "/" + std::string(Name(dtype)) + "/" +
                                          std::to_string(in_features) + "x" + std::to_string(out_features);
                benchmark::RegisterBenchmark(
                    title.c_str(), BenchmarkGemm,
                    Case{.form = form, .dtype = dtype, .in_features = in_features, .out_features = out_features})
                    ->UseRealTime()
                    ->Unit(benchmark::kMicrosecond);
            }
        }
    }
}

}  // namespace
}  // namespace infini_train::kernels::cpu

int main(int argc, char** argv) {
    infini_train::kernels::cpu::RegisterAll();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
        return 1;
    }
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}
