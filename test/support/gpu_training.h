#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "test/support/run_program.h"
#include "test/support/training_run.h"

// Trainings of the tiny models on GPUs.

namespace infini_train::test {

inline constexpr unsigned kGpuLimitS = 110;  // eight processes start NCCL on one GPU

/// A text of so many bytes, in which neighbours have something to do with each other.
inline std::string WriteText(const TemporaryFolder& folder, size_t num_bytes) {
    std::string text(num_bytes, ' ');
    uint32_t state = 1;
    for (size_t i = 0; i < num_bytes; ++i) {
        state = state * 1664525u + 1013904223u;
        text[i] = static_cast<char>('a' + (i % 7 + (state >> 24) % 4));
    }
    WriteTextFile(folder.File("text.txt"), text);
    return folder.File("text.txt");
}

inline std::vector<std::string> GpuTrainingFlags(const TemporaryFolder& folder, const std::string& dtype) {
    // A message is 64 x 160 x 128 elements: over 4 MiB in float32, which NCCL does not hide in a buffer.
    return {"--model",
            "tiny",
            "--input_bin",
            WriteText(folder, 210000),
            "--device",
            "cuda",
            "--dtype",
            dtype,
            "--batch_size",
            "64",
            "--sequence_length",
            "160",
            "--total_batch_size",
            "40960",
            "--num_iteration",
            "5",
            "--grad_clip",
            "0.5",
            "--metrics_file",
            folder.File("metrics.jsonl")};
}

/// The numbers of all steps and validations, as printed; "" for a run that failed. launcher: the words in front of the
/// program; none: it is started by itself.
inline std::string TrainOnGpus(const std::string& program, std::vector<std::string> launcher, const std::string& dtype,
                               const std::vector<std::string>& more) {
    const TemporaryFolder folder;
    std::vector<std::string> words = Join(GpuTrainingFlags(folder, dtype), more);
    std::string started = program;
    if (!launcher.empty()) {
        started = launcher.front();
        launcher.erase(launcher.begin());
        launcher.push_back(std::string(INFINI_BINARY_DIR) + "/" + program);
        words = Join(launcher, words);
    }
    const ProgramResult result = RunProgram(started, words, kGpuLimitS);
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    return result.exit_code == 0 ? NumbersOf(folder.File("metrics.jsonl")) : "";
}

/// The launcher that starts processes of this machine.
inline std::vector<std::string> RunLocal(int num_processes) {
    return {std::string(INFINI_SOURCE_DIR) + "/scripts/run_local.sh", "-n", std::to_string(num_processes), "--"};
}

inline int64_t NumLines(const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
}

}  // namespace infini_train::test
