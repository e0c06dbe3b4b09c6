#pragma once

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "test/comm/processes.h"
#include "test/support/background_program.h"
#include "test/support/gpu_training.h"

namespace infini_train::test {

/// Two processes train over NCCL, which nobody ends for each other; one gets the signal in the middle of it. The other
/// one must end within 10 s, and name it. shares_gpu: both are on one GPU.
inline void ExpectThatTheOtherProcessEnds(int signal, bool shares_gpu) {
    const TemporaryFolder folder;
    const std::vector<std::string> words =
        Join(GpuTrainingFlags(folder, "float32"),
             {"--pipeline_parallel", "2", "--num_iteration", "100000", "--timeout_s", "16"});
    setenv("WORLD_SIZE", "2", /*overwrite=*/1);
    setenv("LOCAL_WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", std::to_string(comm::FreePort()).c_str(), 1);
    std::vector<std::unique_ptr<BackgroundProgram>> processes;
    for (const std::string rank : {"0", "1"}) {
        setenv("RANK", rank.c_str(), 1);
        setenv("LOCAL_RANK", rank.c_str(), 1);
        if (shares_gpu) {
            setenv("NCCL_HOSTID", ("host-" + rank).c_str(), 1);
        }
        processes.push_back(std::make_unique<BackgroundProgram>(std::string(INFINI_BINARY_DIR) + "/gpt2", words,
                                                                folder.File("out" + rank)));
    }
    for (const char* name :
         {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "NCCL_HOSTID"}) {
        unsetenv(name);
    }
    processes[0]->WaitForFile(folder.File("metrics.jsonl"), 500);
    const auto begin = std::chrono::steady_clock::now();
    processes[1]->Signal(signal);
    EXPECT_EQ(processes[0]->Wait(), 1);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(elapsed.count(), 10.0);  // a process that is silent for half the time-out counts as lost
    const std::string text = ReadTextFile(folder.File("out0"));
    EXPECT_TRUE(Contains(text, "process 1 (")) << text;
}

}  // namespace infini_train::test
