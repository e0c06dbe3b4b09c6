// The program as several processes of one run, which nobody ends for each other.
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/socket.h"
#include "test/comm/processes.h"
#include "test/fault/fault_run.h"
#include "test/support/background_program.h"
#include "test/support/training_run.h"

namespace infini_train::test {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point time) {
    return std::chrono::duration<double>(Clock::now() - time).count();
}

const std::string kGpt2 = std::string(INFINI_BINARY_DIR) + "/gpt2";

class Processes : public TrainingRun {
 protected:
    Words OneStep() const { return Join(Start(), {"--num_iteration", "1", "--threads_per_rank", "1"}); }

    /// Words that start a process of one of these numbers.
    Words Process(int index, int num_processes, int port) const {
        return {"-C",
                folder_.File("here"),
                "-u",
                "OMP_NUM_THREADS",
                StrCat("RANK=", index),
                StrCat("WORLD_SIZE=", num_processes),
                StrCat("LOCAL_RANK=", index),
                StrCat("LOCAL_WORLD_SIZE=", num_processes),
                "MASTER_ADDR=127.0.0.1",
                StrCat("MASTER_PORT=", port),
                StrCat("INFINI_JOB_ID=processes-", port),
                kGpt2};
    }

    /// Each process with its words.
    std::vector<ProgramResult> Run(const std::vector<Words>& words, unsigned limit_s = 60) const {
        std::filesystem::create_directories(File("here"));
        const int num_processes = static_cast<int>(words.size());
        const int port = comm::FreePort();
        std::vector<std::future<ProgramResult>> running;
        for (int index = 0; index < num_processes; ++index) {
            const Words all = Join(Process(index, num_processes, port), words[static_cast<size_t>(index)]);
            running.push_back(std::async(std::launch::async, RunProgram, "/usr/bin/env", all, limit_s));
        }
        std::vector<ProgramResult> results;
        for (std::future<ProgramResult>& result : running) {
            results.push_back(result.get());
        }
        return results;
    }
    std::vector<ProgramResult> RunAlike(int num_processes, const Words& words, unsigned limit_s = 60) const {
        return Run(std::vector<Words>(static_cast<size_t>(num_processes), words), limit_s);
    }

    /// All processes say this one line, and that the user is to change something.
    void ExpectRefusal(const std::vector<Words>& words, const std::string& line) const {
        for (const ProgramResult& result : Run(words)) {
            EXPECT_EQ(result.exit_code, 2) << result.out;
            EXPECT_EQ(result.err, line + "\n");
        }
    }
    /// Of two processes that differ in these words.
    void ExpectDifference(const Words& of_0, const Words& of_1, const std::string& difference) const {
        SCOPED_TRACE(difference);
        const std::string host = " (" + comm::HostName() + ")";
        ExpectRefusal({Join(OneStep(), of_0), Join(OneStep(), of_1)},
                      "process 1" + host + " was started otherwise than process 0" + host + ": " + difference);
    }
};

TEST_F(Processes, HoldRanksThatAreThreadsAndComputeTheBitsOfOneProcess) {
    const Words words = Join(Rich(), Steps(2));
    Train("gpt2", Join(words, Files("one")));
    for (const auto& [num_processes, num_threads] : {std::pair{4, 1}, {2, 2}}) {
        const std::string name = StrCat(num_processes, "x", num_threads);
        SCOPED_TRACE(name);
        const Words layout = {"--pipeline_parallel", "4", "--nthread_per_process", StrCat(num_threads)};
        const auto results = RunAlike(num_processes, Join(Join(words, layout), Files(name)));
        for (const ProgramResult& result : results) {
            EXPECT_EQ(result.exit_code, 0) << result.err;
        }
        EXPECT_EQ(Numbers(name), Numbers("one"));
        EXPECT_TRUE(Contains(results[0].out, "4 ranks of ")) << results[0].out;
        EXPECT_EQ(results[1].out, "");
        EXPECT_EQ(NamesIn(File("here")), Words()) << "files in the working directory";
    }
}

TEST_F(Processes, AreReplicasWhereTheyAreMoreThanThePipelineHasStages) {
    Train("gpt2", Join(Join(Start(), Steps(2)), Files("one")));
    const auto results = RunAlike(2, Join(Join(Start(), {"--nthread_per_process", "2", "--pipeline_parallel", "2"}),
                                          Join(Steps(2), Files("two"))));
    EXPECT_TRUE(Contains(results[0].out, "DP=2, TP=1, PP=2")) << results[0].out << results[0].err;
    const std::vector<double> losses = LossesOf(File("two.jsonl"));
    for (size_t step = 0; const double loss : LossesOf(File("one.jsonl"))) {
        EXPECT_NEAR(losses.at(step++), loss, 1e-5 * loss);  // docs/numerics.md: replicas add in another order
    }
}

// Each would otherwise take all of them.
TEST_F(Processes, ShareTheCoresOfTheirHost) {
    cpu_set_t cores;
    ASSERT_EQ(sched_getaffinity(0, sizeof(cores), &cores), 0);
    const long num_cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (CPU_COUNT(&cores) != num_cores || num_cores < 2) {
        GTEST_SKIP() << "needs two cores, and all of the host's";
    }
    const auto results = RunAlike(2, Join(Start(), Join(Steps(1), {"--pipeline_parallel", "2"})));
    const std::string threads = StrCat("2 ranks of ", num_cores / 2, num_cores / 2 == 1 ? " thread\n" : " threads\n");
    EXPECT_TRUE(Contains(results[0].out, threads)) << results[0].out << results[0].err;
}

// bugs.csv O86
TEST_F(Processes, NameTheFlagThatDiffers) {
    ExpectDifference({"--pipeline_parallel", "2"}, {"--pipeline_parallel", "1"},
                     "pipeline_parallel=1 there, pipeline_parallel=2 here (and 1 more line)");
    ExpectDifference({"--seed", "1"}, {"--seed", "2"}, "seed=2 there, seed=1 here");
    ExpectDifference({}, {"--report", File("r.html")}, "report=a file there, report= here");
}

// bugs.csv O86
TEST_F(Processes, NameTheFileWhoseContentDiffers) {
    const std::string reference = std::string(INFINI_SOURCE_DIR) + "/test/reference/";
    const auto start = [&](const std::string& weights, const std::string& tokens) -> Words {
        return {"--llmc_filepath",   reference + weights,
                "--input_bin",       reference + tokens,
                "--num_iteration",   "1",
                "--batch_size",      "2",
                "--sequence_length", "16",
                "--timeout_s",       "60"};
    };
    const auto difference = [&](const Words& of_1) {
        const auto results = Run({start("gpt2_tiny.bin", "text_u16.bin"), of_1});
        for (const ProgramResult& result : results) {
            EXPECT_EQ(result.exit_code, 2);
            EXPECT_EQ(result.err, results[0].err);
        }
        return results[0].err.substr(results[0].err.rfind(": ") + 2);
    };
    EXPECT_EQ(difference(start("gpt2_tiny_bf16.bin", "text_u16.bin")).substr(0, 16), "weights=content ");
    WriteTextFile(File("other.txt"), std::string(2000, 'a'));
    Words other = start("gpt2_tiny.bin", "text_u16.bin");
    other[3] = File("other.txt");
    EXPECT_EQ(difference(other).substr(0, 38), "tokens=2000 tokens in 1 files, content");
}

TEST_F(Processes, MayWriteAndReadInOtherPlacesOnOtherHosts) {
    std::filesystem::create_directory(File("copy"));
    for (const std::string name : {"shard_a.txt", "shard_b.txt", "shard_c.txt"}) {
        std::filesystem::copy_file(File(name), File("copy/") + name);
    }
    const std::string missing = File("missing/folder/");
    const auto results =
        Run({Join(OneStep(), {"--metrics_file", File("m.jsonl"), "--report", File("r.html"), "--tensorboard",
                              File("tensorboard"), "--device", "cpu"}),
             Join(OneStep(), {"--metrics_file", missing + "m.jsonl", "--report", missing + "r.html", "--tensorboard",
                              missing, "--threads_per_rank", "2", "--input_bin", File("copy/shard_*.txt")})});
    for (const ProgramResult& result : results) {
        EXPECT_EQ(result.exit_code, 0) << result.err;
    }
    EXPECT_EQ(LossesOf(File("m.jsonl")).size(), 1u);
    EXPECT_FALSE(std::filesystem::exists(File("missing")));
}

// bugs.csv O86: every process sees for itself that there are too few.
TEST_F(Processes, AreRefusedWhereTheyMakeNoWholePipelines) {
    const auto begin = Clock::now();
    ExpectRefusal(std::vector<Words>(3, Join(OneStep(), {"--pipeline_parallel", "2"})),
                  "--pipeline_parallel 2: the ranks do not make whole pipelines (got 3 ranks: 3 processes x "
                  "--nthread_per_process 1, wanted a multiple of 2)");
    EXPECT_LT(SecondsSince(begin), 10.0);
}

// As hosts without a common file system.
TEST_F(Processes, AreRefusedWhereTheySaveInFoldersOfTheirOwn) {
    std::filesystem::create_directory(File("host0"));
    std::filesystem::create_directory(File("host1"));
    const std::string script = "cd " + File("host") + "$RANK && exec " + kGpt2 + " \"$@\"";
    const ProgramResult result =
        RunProgram(std::string(INFINI_SOURCE_DIR) + "/scripts/run_local.sh",
                   Join({"-n", "2", "--", "/bin/sh", "-c", script, "sh"},
                        Join(OneStep(), {"--pipeline_parallel", "2", "--save", "checkpoints"})));
    EXPECT_EQ(result.exit_code, 2) << result.out;
    EXPECT_TRUE(Contains(result.err, "checkpoints: rank 1 does not see this folder, which rank 0 has made"))
        << result.err;
    EXPECT_FALSE(Contains(result.out, "step    1")) << result.out;
}

// bugs.csv O84
TEST_F(Processes, EndWhereTheirPortIsTaken) {
    const int port = comm::FreePort();
    const comm::Descriptor other = comm::Listen("127.0.0.1", port);
    const auto begin = Clock::now();
    const ProgramResult result = RunProgram(
        "/usr/bin/env", Join({StrCat("MASTER_PORT=", port), std::string(INFINI_SOURCE_DIR) + "/scripts/run_local.sh",
                              "-n", "2", "--", kGpt2},
                             OneStep()));
    EXPECT_LT(SecondsSince(begin), 5.0);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_TRUE(Contains(result.err, StrCat("process 0 (", comm::HostName(), "): port ", port, " is taken")))
        << result.err;
}

// Two jobs that a user starts on one machine, each at a port of its own.
TEST_F(Processes, OfTwoRunsDoNotMeet) {
    const auto run = [&](const std::string& name, const std::string& seed) {
        return std::async(std::launch::async, RunProgram, std::string(INFINI_SOURCE_DIR) + "/scripts/run_local.sh",
                          Join({"-n", "2", "--", kGpt2},
                               Join(Join(OneStep(), Files(name)), {"--seed", seed, "--pipeline_parallel", "2"})),
                          60u);
    };
    auto one = run("one", "1");
    auto two = run("two", "2");
    EXPECT_EQ(one.get().exit_code, 0);
    EXPECT_EQ(two.get().exit_code, 0);
    for (const std::string name : {"one", "two"}) {
        const Words seed = {"--seed", name == "one" ? "1" : "2"};
        Train("gpt2", Join(Join(OneStep(), Files("alone_" + name)), seed));
        EXPECT_EQ(Numbers(name), Numbers("alone_" + name));
    }
}

// bugs.csv O97. Ranks of tensor parallelism there are none: the flag is unknown.
TEST_F(Processes, StartOrRefuseInEveryLayoutOfUpToEightRanks) {
    for (int pipeline = 1; pipeline <= 8; ++pipeline) {
        for (int data = 1; data * pipeline <= 8; ++data) {
            SCOPED_TRACE(StrCat("DP ", data, ", PP ", pipeline));
            const Words words = {"--model",         "tiny", "--input_bin",         File("shard_*.txt"),
                                 "--batch_size",    "1",    "--sequence_length",   "16",
                                 "--num_iteration", "1",    "--threads_per_rank",  "1",
                                 "--timeout_s",     "9",    "--pipeline_parallel", StrCat(pipeline)};
            const Words threads = {"--nthread_per_process", StrCat(data * pipeline)};
            EXPECT_EQ(RunProgram("gpt2", Join(words, threads), /*limit_s=*/10).exit_code, 0);
            for (const ProgramResult& result : RunAlike(data * pipeline, words, /*limit_s=*/10)) {
                EXPECT_EQ(result.exit_code, 0) << result.err;
            }
        }
    }
    const auto begin = Clock::now();
    for (const ProgramResult& result : RunAlike(2, Join(OneStep(), {"--tensor_parallel", "2"}))) {
        EXPECT_EQ(result.exit_code, 2);
        EXPECT_TRUE(Contains(result.err, "--tensor_parallel: unknown flag")) << result.err;
    }
    EXPECT_LT(SecondsSince(begin), 10.0);
}

// bugs.csv O85: mpirun and torchrun leave their processes behind when they are killed.
TEST_F(Processes, EndWhenTheirLauncherIsKilled) {
    std::filesystem::create_directories(File("here"));
    const int port = comm::FreePort();
    // In a run that goes on for ever, and one that waits for a process that does not come.
    for (const int num_processes : {2, 3}) {
        SCOPED_TRACE(num_processes);
        std::string command;
        for (int index = 0; index < 2; ++index) {
            command += "TORCHELASTIC_RUN_ID=run /usr/bin/env";
            const Words words = Join(
                Join(Process(index, num_processes, port), Start()),
                {"--total_batch_size", "192", "--num_iteration", "1000000", "--metrics_file", File("metrics.jsonl")});
            for (const std::string& word : words) {
                command += " '" + word + "'";
            }
            command += " & ";
        }
        const std::string out = File(StrCat("out", num_processes));
        BackgroundProgram launcher("/bin/sh", {"-c", command + "echo started; wait"}, out);
        if (num_processes == 2) {
            launcher.WaitForFile(File("metrics.jsonl"), 300);
        } else {
            launcher.WaitForFile(out, 8);
            std::this_thread::sleep_for(std::chrono::milliseconds(300));  // some way into the rendezvous
        }
        const std::string job_id = StrCat("processes-", port);
        EXPECT_EQ(ProcessesOfJob(job_id).size(), 2u);
        launcher.Signal(SIGKILL);
        launcher.Wait();
        const auto begin = Clock::now();
        while (!ProcessesOfJob(job_id).empty() && SecondsSince(begin) < 10.0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        EXPECT_EQ(ProcessesOfJob(job_id).size(), 0u);
        EXPECT_TRUE(Contains(ReadTextFile(out), "was left behind: torchrun has ended")) << ReadTextFile(out);
        for (const pid_t pid : ProcessesOfJob(job_id)) {
            kill(pid, SIGKILL);
        }
    }
}

}  // namespace
}  // namespace infini_train::test
