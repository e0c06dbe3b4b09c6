#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include <benchmark/benchmark.h>

#include "infini_train/include/data/tokenizer.h"

// Bytes of text a second on one thread. INFINI_REFERENCE_DIR names a folder with tokenizer/gpt2 and
// tokenizer/cl100k_base.tiktoken; without it only the byte tokenizer is measured.

namespace infini_train::data {
namespace {

constexpr size_t kTextBytes = 1000000;
constexpr const char* kProse =
    "The pipeline has eight stages, and while the last one waits for its first micro-batch, the first one has seven of "
    "them in flight; that's the price of keeping everybody busy. We'd measured 1,234.5 tokens/s before, and 2,345 "
    "afterwards (see figure 7).\n\n";
constexpr const char* kRussian = "Конвейер состоит из восьми этапов, и каждый этап ждёт предыдущего. ";
constexpr const char* kChinese = "流水线有八个阶段，每个阶段都在等待前一个阶段的结果。";
constexpr const char* kCode = "    for (int m = 0; m < num_microbatches; ++m) {\n        plan.push_back(m);\n    }\n";

std::unique_ptr<Tokenizer> Make(const std::string& name) {
    if (name == "byte") {
        return MakeTokenizer(name);
    }
    const char* const folder = std::getenv("INFINI_REFERENCE_DIR");
    return folder == nullptr ? nullptr : MakeTokenizer(std::string(folder) + "/tokenizer/" + name);
}

void BenchmarkEncode(benchmark::State& state, const char* name, const char* piece) {
    const std::unique_ptr<Tokenizer> tokenizer = Make(name);
    if (tokenizer == nullptr) {
        state.SkipWithError("needs INFINI_REFERENCE_DIR");
        return;
    }
    std::string text;
    while (text.size() < kTextBytes) {
        text += piece;
    }
    for (auto _ : state) {
        benchmark::DoNotOptimize(tokenizer->Encode(text).data());
    }
    state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}

void BenchmarkLoad(benchmark::State& state, const char* name) {
    if (Make(name) == nullptr) {
        state.SkipWithError("needs INFINI_REFERENCE_DIR");
        return;
    }
    for (auto _ : state) {
        benchmark::DoNotOptimize(Make(name));
    }
}

#define INFINI_TOKENIZER_BENCHMARKS(id, name)                                  \
    BENCHMARK_CAPTURE(BenchmarkLoad, id, name)->Unit(benchmark::kMillisecond); \
    BENCHMARK_CAPTURE(BenchmarkEncode, id##_prose, name, kProse);              \
    BENCHMARK_CAPTURE(BenchmarkEncode, id##_code, name, kCode);                \
    BENCHMARK_CAPTURE(BenchmarkEncode, id##_russian, name, kRussian);          \
    BENCHMARK_CAPTURE(BenchmarkEncode, id##_chinese, name, kChinese);          \
    BENCHMARK_CAPTURE(BenchmarkEncode, id##_one_letter, name, "a");            \
    BENCHMARK_CAPTURE(BenchmarkEncode, id##_blanks, name, " ")

INFINI_TOKENIZER_BENCHMARKS(byte, "byte");
INFINI_TOKENIZER_BENCHMARKS(gpt2, "gpt2");
INFINI_TOKENIZER_BENCHMARKS(cl100k, "cl100k_base.tiktoken");

}  // namespace
}  // namespace infini_train::data

BENCHMARK_MAIN();
