#pragma once

// Trainings of the programs as processes over gloo, and what they learned.

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/str_cat.h"
#include "test/support/run_program.h"
#include "test/support/training_run.h"

namespace infini_train::test {

struct TrainingLayout {
    int num_processes = 1;
    int num_threads = 1;
    int pipeline = 1;

    int num_replicas() const { return num_processes * num_threads / pipeline; }
};

inline std::string ToString(const TrainingLayout& layout) {
    return StrCat(layout.num_processes, " processes of ", layout.num_threads, ", PP=", layout.pipeline,
                  ", DP=", layout.num_replicas());
}

struct Training {
    std::string program = "gpt2";
    std::string dtype = "float32";
    std::string schedule = "gpipe";
    TrainingLayout layout = {};
    std::vector<std::string> words = {};  // further ones
};

struct Learned {
    std::string numbers;   // NumbersOf its metrics
    std::string manifest;  // sizes and hashes of all files of the last checkpoint
};

inline std::string TextFile(const std::string& program) {
    return StrCat(INFINI_SOURCE_DIR, "/test/reference/", program == "gpt2" ? "text_u16.bin" : "text_u32.bin");
}

/// Four steps of a tiny model, with clipping that changes them; checkpoints in the folder.
inline Learned Train(const Training& training, const TemporaryFolder& folder) {
    std::vector<std::string> words = {"-n",
                                      StrCat(training.layout.num_processes),
                                      "--",
                                      StrCat(INFINI_BINARY_DIR, "/", training.program),
                                      "--input_bin=" + TextFile(training.program),
                                      "--device=cpu",
                                      "--dtype=" + training.dtype,
                                      "--batch_size=2",
                                      "--sequence_length=16",
                                      "--total_batch_size=256",
                                      "--num_iteration=4",
                                      "--grad_clip=1",
                                      "--timeout_s=30",
                                      StrCat("--nthread_per_process=", training.layout.num_threads),
                                      StrCat("--pipeline_parallel=", training.layout.pipeline),
                                      "--pipeline_schedule=" + training.schedule,
                                      "--metrics_file=" + folder.File("metrics.json"),
                                      "--save=" + folder.File("saved")};
    words.insert(words.end(), training.words.begin(), training.words.end());
    const ProgramResult result = RunProgram(StrCat(INFINI_SOURCE_DIR, "/scripts/run_local.sh"), words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return {.numbers = NumbersOf(folder.File("metrics.json")),
            .manifest = ReadTextFile(folder.File("saved/step_00000004/manifest.json"))};
}

inline Learned TrainFresh(Training training) {
    training.words.push_back("--model=tiny");
    return Train(training, TemporaryFolder());
}

inline void ExpectSame(const Learned& learned, const Learned& reference, const TrainingLayout& layout) {
    EXPECT_NE(reference.numbers.find("\n4 loss "), std::string::npos) << reference.numbers;
    EXPECT_EQ(learned.numbers, reference.numbers) << ToString(layout);
    EXPECT_EQ(learned.manifest, reference.manifest) << ToString(layout);
}

}  // namespace infini_train::test
