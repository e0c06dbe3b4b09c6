#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "gtest/gtest.h"

#include "test/support/run_program.h"

namespace infini_train {
namespace {

using test::ProgramResult;
using test::ReadTextFile;
using test::TemporaryFolder;
using test::WriteTextFile;
using Clock = std::chrono::steady_clock;

/// scripts/run_local.sh with options, and a program for bash to run in each process. `before` goes before it in the
/// shell: variables.
class RunLocal {
 public:
    RunLocal(const std::string& options, const std::string& program, const std::string& before = "") {
        WriteTextFile(folder_.File("program.sh"), program);
        const std::string script = std::string(INFINI_SOURCE_DIR) + "/scripts/run_local.sh";
        const std::string line = "unset MASTER_PORT OMP_NUM_THREADS NCCL_HOSTID INFINI_JOB_ID CUDA_VISIBLE_DEVICES\n" +
                                 before + "\nexec '" + script + "' " + options + " -- bash '" +
                                 folder_.File("program.sh") + "' >'" + folder_.File("out") + "' 2>'" +
                                 folder_.File("err") + "'";
        child_ = fork();
        if (child_ == 0) {
            alarm(60);  // seconds; ends a script that hangs
            setenv("FOLDER", folder_.File("").c_str(), 1);
            execl("/bin/bash", "bash", "-c", line.c_str(), nullptr);
            _exit(127);
        }
    }
    ~RunLocal() { Wait(); }

    const TemporaryFolder& folder() const { return folder_; }
    void Signal(int signal) const { kill(child_, signal); }

    /// The content of a file that the program writes, once it has a line.
    std::string WaitForLine(const std::string& name) const {
        const std::string path = folder_.File(name);
        const auto deadline = Clock::now() + std::chrono::seconds(30);
        while (Clock::now() < deadline) {
            if (std::filesystem::exists(path) && ReadTextFile(path).ends_with('\n')) {
                return ReadTextFile(path);
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        ADD_FAILURE() << name << " was not written";
        return "";
    }

    ProgramResult Wait() {
        if (!result_.has_value()) {
            int status = 0;
            waitpid(child_, &status, 0);
            result_ = {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                       .out = ReadTextFile(folder_.File("out")),
                       .err = ReadTextFile(folder_.File("err"))};
        }
        return *result_;
    }

 private:
    TemporaryFolder folder_;
    pid_t child_ = -1;
    std::optional<ProgramResult> result_;
};

std::multiset<std::string> Lines(const std::string& text) {
    std::multiset<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
        lines.insert(line);
    }
    return lines;
}

using LineSet = std::multiset<std::string>;

/// Whether a process is gone within a few seconds; one that its parent has yet to collect is.
bool IsGone(const std::string& pid) {
    const std::string stat = "/proc/" + pid.substr(0, pid.find('\n')) + "/stat";
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    while (Clock::now() < deadline) {
        if (!std::filesystem::exists(stat)) {
            return true;
        }
        std::ifstream file(stat);
        std::string text;
        std::getline(file, text);
        if (text.empty() || text.find(") Z ") != std::string::npos) {
            return true;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
}

double SecondsSince(Clock::time_point time) {
    return std::chrono::duration<double>(Clock::now() - time).count();
}

// Each process writes its pid, and waits for what comes.
constexpr const char* kWaits =
    "echo $$ >\"$FOLDER/tmp$RANK\"; mv \"$FOLDER/tmp$RANK\" \"$FOLDER/pid$RANK\"; sleep 50 & wait";

TEST(RunLocalScript, GivesEachProcessItsPlace) {
    const ProgramResult result =
        RunLocal("-n 3", "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR").Wait();
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(Lines(result.out), (LineSet{"0/3 0/3 127.0.0.1", "[1] 1/3 1/3 127.0.0.1", "[2] 2/3 2/3 127.0.0.1"}));
    EXPECT_EQ(result.err, "");
}

TEST(RunLocalScript, GivesAllTheSamePortAndJobId) {
    const ProgramResult result = RunLocal("-n 2", "echo \"$MASTER_PORT $INFINI_JOB_ID\"").Wait();
    const LineSet lines = Lines(result.out);
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_TRUE(lines.contains("[1] " + *lines.begin())) << result.out;  // a digit comes before a bracket
    EXPECT_EQ(RunLocal("-n 1", "echo $MASTER_PORT", "export MASTER_PORT=1234").Wait().out, "1234\n");
}

TEST(RunLocalScript, MarksTheLinesOfAllButProcess0InBothStreams) {
    const ProgramResult result = RunLocal("-n 2", "echo a; echo b >&2; [ $RANK = 0 ] || printf 'no end'").Wait();
    EXPECT_EQ(Lines(result.out), (LineSet{"a", "[1] a", "[1] no end"}));
    EXPECT_EQ(Lines(result.err), (LineSet{"b", "[1] b"}));
}

TEST(RunLocalScript, SharesOutTheCores) {
    const std::string print = "echo $OMP_NUM_THREADS";
    EXPECT_EQ(Lines(RunLocal("-n 2 --threads 3", print).Wait().out), (LineSet{"3", "[1] 3"}));
    EXPECT_EQ(Lines(RunLocal("-n 2", print, "export OMP_NUM_THREADS=5").Wait().out), (LineSet{"5", "[1] 5"}));
    cpu_set_t cores;
    ASSERT_EQ(sched_getaffinity(0, sizeof(cores), &cores), 0);
    const int num_cores = CPU_COUNT(&cores);
    // The first gets what is left over; nobody gets none.
    EXPECT_EQ(Lines(RunLocal("-n 2", print).Wait().out),
              (LineSet{std::to_string((num_cores + 1) / 2), "[1] " + std::to_string(std::max(1, num_cores / 2))}));
}

/// A program named nvidia-smi that sees so many GPUs comes first in the path.
std::string WithGpus(int num_gpus) {
    return "mkdir \"$FOLDER/bin\"; printf '#!/bin/bash\\nfor ((i = 0; i < " + std::to_string(num_gpus) +
           "; ++i)); do echo \"GPU $i: H\"; done\\n' >\"$FOLDER/bin/nvidia-smi\"; chmod +x \"$FOLDER/bin/nvidia-smi\"; "
           "export PATH=$FOLDER/bin:$PATH";
}

TEST(RunLocalScript, MakesEachProcessAHostForNcclWhereTheyShareGpus) {
    const std::string print = "echo ${NCCL_HOSTID:-none} ${CUDA_VISIBLE_DEVICES:-none}";
    const auto lines = [&](const std::string& before) {
        return Lines(RunLocal("-n 2", print, before + "; export INFINI_JOB_ID=job").Wait().out);
    };
    EXPECT_EQ(lines(WithGpus(1)), (LineSet{"job-0 none", "[1] job-1 none"}));
    EXPECT_EQ(lines(WithGpus(2)), (LineSet{"none none", "[1] none none"}));
    EXPECT_EQ(lines(WithGpus(8) + "; export CUDA_VISIBLE_DEVICES=6"), (LineSet{"job-0 6", "[1] job-1 6"}));
    EXPECT_EQ(lines(WithGpus(8) + "; export CUDA_VISIBLE_DEVICES=6,7"), (LineSet{"none 6,7", "[1] none 6,7"}));
    EXPECT_EQ(lines(WithGpus(0)), (LineSet{"none none", "[1] none none"}));
    EXPECT_NE(RunLocal("-n 2", print, WithGpus(1)).Wait().err.find("2 processes share 1 GPU"), std::string::npos);
}

TEST(RunLocalScript, ReturnsTheCodeOfTheFirstThatFailedAndEndsTheOthers) {
    const auto begin = Clock::now();
    RunLocal run("-n 3", std::string("if [ $RANK = 1 ]; then until [ -s \"$FOLDER/pid0\" ] && [ -s \"$FOLDER/pid2\" ]; "
                                     "do sleep 0.01; done; exit 7; fi\n") +
                             kWaits);
    const std::string first = run.WaitForLine("pid0");
    const std::string last = run.WaitForLine("pid2");
    EXPECT_EQ(run.Wait().exit_code, 7);
    EXPECT_LT(SecondsSince(begin), 4.0);
    EXPECT_TRUE(IsGone(first));
    EXPECT_TRUE(IsGone(last));
}

TEST(RunLocalScript, ReportsAProcessThatWasKilled) {
    RunLocal run("-n 2", kWaits);
    const std::string other = run.WaitForLine("pid0");
    kill(std::stoi(run.WaitForLine("pid1")), SIGKILL);
    EXPECT_EQ(run.Wait().exit_code, 128 + SIGKILL);
    EXPECT_TRUE(IsGone(other));
}

TEST(RunLocalScript, KillsAfter5SecondsWhoDoesNotEnd) {
    const auto begin = Clock::now();
    RunLocal run("-n 2", std::string("[ $RANK = 0 ] || { until [ -s \"$FOLDER/child\" ]; do sleep 0.01; done; exit 3; "
                                     "}\ntrap '' TERM\nsleep 50 &\necho $! >\"$FOLDER/child\"\n") +
                             "for ((;;)); do sleep 1; done");
    const std::string child = run.WaitForLine("child");
    EXPECT_EQ(run.Wait().exit_code, 3);
    EXPECT_GT(SecondsSince(begin), 4.5);
    EXPECT_LT(SecondsSince(begin), 9.0);
    EXPECT_TRUE(IsGone(child));
}

TEST(RunLocalScript, LeavesNoProcessThatAProgramHasStarted) {
    RunLocal run("-n 1", "sleep 50 >/dev/null 2>&1 &\necho $! >\"$FOLDER/child\"");
    EXPECT_EQ(run.Wait().exit_code, 0);
    EXPECT_TRUE(IsGone(ReadTextFile(run.folder().File("child"))));
}

TEST(RunLocalScript, HandsSignalsOn) {
    for (const int signal : {SIGINT, SIGTERM}) {
        const std::string name = signal == SIGINT ? "INT" : "TERM";
        RunLocal run("-n 2", "trap 'echo " + name + "; exit 0' " + name + "\n" + kWaits);
        run.WaitForLine("pid0");
        run.WaitForLine("pid1");
        run.Signal(signal);
        EXPECT_EQ(run.Wait().exit_code, 128 + signal);
        EXPECT_EQ(Lines(run.Wait().out), (LineSet{name, "[1] " + name}));
    }
}

TEST(RunLocalScript, HandsSigusr1OnAndEndsAsTheProcessesDo) {
    RunLocal run("-n 2", std::string("trap 'echo USR1; exit 0' USR1\n") + kWaits);
    run.WaitForLine("pid0");
    run.WaitForLine("pid1");
    run.Signal(SIGUSR1);
    EXPECT_EQ(run.Wait().exit_code, 0);
    EXPECT_EQ(Lines(run.Wait().out), (LineSet{"USR1", "[1] USR1"}));
}

// A step may be longer than any limit, and is not saved before its end.
TEST(RunLocalScript, WaitsForAProcessThatEndsLongAfterASignal) {
    RunLocal run("-n 2", std::string("trap 'sleep 6; echo saved; exit 0' INT\n") + kWaits);
    run.WaitForLine("pid0");
    run.WaitForLine("pid1");
    run.Signal(SIGINT);
    EXPECT_EQ(run.Wait().exit_code, 128 + SIGINT);
    EXPECT_EQ(Lines(run.Wait().out), (LineSet{"saved", "[1] saved"}));
}

TEST(RunLocalScript, EndsProgramsThatDoNotCatchASignal) {
    for (const int signal : {SIGINT, SIGTERM}) {
        const auto begin = Clock::now();
        // bash itself would wait for its child.
        RunLocal run("-n 2", "echo $$ >\"$FOLDER/pid$RANK\"; exec sleep 50");
        const std::string first = run.WaitForLine("pid0");
        const std::string second = run.WaitForLine("pid1");
        run.Signal(signal);
        EXPECT_EQ(run.Wait().exit_code, 128 + signal);
        EXPECT_LT(SecondsSince(begin), 4.0);
        EXPECT_TRUE(IsGone(first));
        EXPECT_TRUE(IsGone(second));
    }
}

TEST(RunLocalScript, TakesItsProcessesWithItWhenItIsKilled) {
    RunLocal run("-n 2", "echo $$ >\"$FOLDER/pid$RANK\"; exec sleep 50");
    const std::string first = run.WaitForLine("pid0");
    const std::string second = run.WaitForLine("pid1");
    run.Signal(SIGKILL);
    EXPECT_EQ(run.Wait().exit_code, 128 + SIGKILL);
    EXPECT_TRUE(IsGone(first));
    EXPECT_TRUE(IsGone(second));
}

TEST(RunLocalScript, RefusesWhatItDoesNotUnderstand) {
    for (const char* options : {"", "-n", "-n 0", "-n x", "-n 2 --threads 0", "-n 2 --other"}) {
        const ProgramResult result = RunLocal(options, "true").Wait();
        EXPECT_EQ(result.exit_code, 2) << options;
        EXPECT_EQ(result.err.substr(0, 11), "run_local: ") << options;
    }
    const ProgramResult help = RunLocal("--help", "true").Wait();
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_NE(help.out.find("-n P"), std::string::npos);
}

}  // namespace
}  // namespace infini_train
