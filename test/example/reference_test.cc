// The programs against PyTorch: every run of every reference.json, with its micro-batch whole and cut in four, and the
// greedy texts. On a CPU, or on the device that INFINI_TEST_DEVICE names.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "infini_train/include/common/env.h"
#include "test/support/cuda_compare.h"
#include "test/support/run_program.h"

namespace infini_train::test {
namespace {

using nlohmann::json;

// docs/numerics.md: float32 against float32, summed in another order.
constexpr double kFirstLossTolerance = 1e-5;
constexpr double kTolerance = 1e-4;
constexpr double kBfloat16Tolerance = 2e-2;

std::string TestDevice() {
    return ReadEnv("INFINI_TEST_DEVICE").value_or("cpu");
}

class Reference : public testing::Test {
 protected:
    void SetUp() override {
        if (TestDevice() == "cuda") {
            INFINI_SKIP_WITHOUT_CUDA();
        }
    }
};

struct ReferenceRun {
    std::string folder;
    std::string name;
    json reference;
};

std::vector<ReferenceRun> Runs() {
    std::vector<ReferenceRun> runs;
    for (const std::string& folder : ReferenceFolders()) {
        const json file = json::parse(ReadTextFile(folder + "/reference.json"));
        for (const auto& [name, reference] : file.at("runs").items()) {
            // The programs read scaled frequencies from a file that says so; net_test covers the numbers.
            if (!reference.at("config").contains("rope_scaling")) {
                runs.push_back({.folder = folder, .name = name, .reference = reference});
            }
        }
    }
    return runs;
}

bool IsGpt2(const std::string& name) {
    return name.rfind("gpt2", 0) == 0;
}

std::string WeightsOf(const ReferenceRun& run) {
    const std::string fallback = IsGpt2(run.name) ? "gpt2_tiny.bin" : "llama_shakespeare.bin";
    return run.folder + "/" + run.reference.value("weights", fallback);
}

std::string TokensOf(const ReferenceRun& run) {
    const std::string fallback = IsGpt2(run.name) ? "shakespeare_bytes.bin" : "shakespeare_val_bytes_u32.bin";
    return run.folder + "/" + run.reference.value("tokens", fallback);
}

std::vector<std::string> FlagsOf(const ReferenceRun& run, int num_microbatches, const std::string& metrics_path) {
    const json& reference = run.reference;
    const json& optimizer = reference.at("optimizer");
    const int batch_size = reference.at("B").get<int>();
    const int sequence_length = reference.at("T").get<int>();
    const auto number = [](const json& value) { return value.dump(); };
    std::vector<std::string> flags = {
        "--device",           TestDevice(),
        "--llmc_filepath",    WeightsOf(run),
        "--input_bin",        TokensOf(run),
        "--batch_size",       std::to_string(batch_size / num_microbatches),
        "--sequence_length",  std::to_string(sequence_length),
        "--total_batch_size", std::to_string(batch_size * sequence_length),
        "--num_iteration",    number(reference.at("steps")),
        "--optimizer",        optimizer.at("name").get<std::string>(),
        "--learning_rate",    number(optimizer.at("lr")),
        "--metrics_file",     metrics_path,
    };
    const auto add = [&](const char* key, const char* flag) {
        if (optimizer.contains(key)) {
            flags.push_back(flag);
            flags.push_back(number(optimizer.at(key)));
        }
    };
    add("eps", "--eps");
    add("weight_decay", "--weight_decay");
    add("clip", "--grad_clip");
    add("warmup", "--warmup_iterations");
    add("final_lr_fraction", "--final_lr_fraction");
    if (optimizer.contains("betas")) {
        flags.insert(flags.end(),
                     {"--beta1", number(optimizer.at("betas")[0]), "--beta2", number(optimizer.at("betas")[1])});
    }
    return flags;
}

double RelativeDifference(double got, double wanted) {
    return std::abs(got - wanted) / std::abs(wanted);
}

void CompareWithReference(const ReferenceRun& run, int num_microbatches) {
    SCOPED_TRACE(run.folder + " " + run.name + ", micro-batches: " + std::to_string(num_microbatches));
    const TemporaryFolder folder;
    const std::string metrics_path = folder.File("metrics.jsonl");
    const ProgramResult result =
        RunProgram(IsGpt2(run.name) ? "gpt2" : "llama3", FlagsOf(run, num_microbatches, metrics_path));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    std::istringstream lines(ReadTextFile(metrics_path));
    std::string line;
    size_t num_steps = 0;
    double first = 0.0;
    double largest_loss = 0.0;
    double largest_norm = 0.0;
    for (; std::getline(lines, line); ++num_steps) {
        const json metrics = json::parse(line);
        ASSERT_EQ(metrics.at("step").get<size_t>(), num_steps + 1);
        const double loss = RelativeDifference(metrics.at("loss"), run.reference.at("loss").at(num_steps));
        const double norm = RelativeDifference(metrics.at("grad_norm"), run.reference.at("grad_norm").at(num_steps));
        first = num_steps == 0 ? loss : first;
        largest_loss = std::max(largest_loss, loss);
        largest_norm = std::max(largest_norm, norm);
        EXPECT_LT(RelativeDifference(metrics.at("lr"), run.reference.at("lr").at(num_steps)), 1e-6) << line;
    }
    EXPECT_EQ(num_steps, run.reference.at("steps").get<size_t>());
    EXPECT_LE(first, kFirstLossTolerance);
    EXPECT_LE(largest_loss, kTolerance);
    EXPECT_LE(largest_norm, kTolerance);
    std::printf("| %-34s | %d | %.1e | %.1e | %.1e |\n", run.name.c_str(), num_microbatches, first, largest_loss,
                largest_norm);
}

TEST_F(Reference, EveryRunHasPyTorchsLossesAndNorms) {
    std::printf("| run | micro-batches | first loss | largest loss | largest norm |\n");
    for (const ReferenceRun& run : Runs()) {
        for (const int num_microbatches : {1, 4}) {
            CompareWithReference(run, num_microbatches);
        }
    }
}

TEST_F(Reference, EveryRunInBfloat16HasNearlyThoseLosses) {
    for (const ReferenceRun& run : Runs()) {
        SCOPED_TRACE(run.folder + " " + run.name);
        const TemporaryFolder folder;
        const std::string metrics_path = folder.File("metrics.jsonl");
        std::vector<std::string> flags = FlagsOf(run, 2, metrics_path);
        flags.insert(flags.end(), {"--dtype", "bfloat16"});
        const ProgramResult result = RunProgram(IsGpt2(run.name) ? "gpt2" : "llama3", flags);
        ASSERT_EQ(result.exit_code, 0) << result.err;
        std::istringstream lines(ReadTextFile(metrics_path));
        std::string line;
        size_t num_steps = 0;
        double largest = 0.0;
        for (; std::getline(lines, line); ++num_steps) {
            const double loss =
                RelativeDifference(json::parse(line).at("loss"), run.reference.at("loss").at(num_steps));
            largest = std::max(largest, loss);
        }
        EXPECT_EQ(num_steps, run.reference.at("steps").get<size_t>());
        EXPECT_LE(largest, kBfloat16Tolerance);
        EXPECT_GT(largest, 1e-6) << "this ran in float32";
        std::printf("| %-34s | bfloat16 | %.1e |\n", run.name.c_str(), largest);
    }
}

TEST_F(Reference, GreedyTextsAreThoseOfPyTorch) {
    size_t num_texts = 0;
    for (const std::string& folder : ReferenceFolders()) {
        const json file = json::parse(ReadTextFile(folder + "/reference.json"));
        for (const auto& [name, text] : file.items()) {
            const size_t end = name.find("_greedy");
            if (end == std::string::npos) {
                continue;
            }
            const std::string prompt = text.at("prompt");
            const size_t num_new = text.at("tokens").size() - prompt.size();
            const ProgramResult result =
                RunProgram(IsGpt2(name) ? "gpt2" : "llama3",
                           {"--device", TestDevice(), "--llmc_filepath", folder + "/" + name.substr(0, end) + ".bin",
                            "--num_iteration", "0", "--prompt", prompt, "--text_length", std::to_string(num_new),
                            "--temperature", "0"});
            ASSERT_EQ(result.exit_code, 0) << result.err;
            std::string wanted;
            for (const json& token : text.at("tokens")) {
                wanted += static_cast<char>(token.get<int>());
            }
            EXPECT_NE(result.out.find("\n" + wanted + "\n"), std::string::npos) << name << "\n" << result.out;
            ++num_texts;
        }
    }
    EXPECT_GE(num_texts, 2u);
}

}  // namespace
}  // namespace infini_train::test
