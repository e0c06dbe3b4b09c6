// Processes that NCCL connects, on as many GPUs as there are: what they do is in nccl_worker.cc.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/nccl/link_rounds.h"
#include "test/comm/processes.h"
#include "test/support/cuda_compare.h"
#include "test/support/run_program.h"

namespace infini_train::comm {
namespace {

const std::string kWorker = std::string(INFINI_BINARY_DIR) + "/tests/nccl_worker";

TEST(LinkRounds, GiveEachRankOneLinkAtMostAndLeaveNoneOut) {
    constexpr int kSize = 8;
    std::vector<Link> links = {{.from = 3, .to = 3, .direction = Direction::kForward}};
    for (int rank = 0; rank < kSize; ++rank) {
        const int next = (rank + 1) % kSize;
        links.push_back({.from = rank, .to = next, .direction = Direction::kForward});
        links.push_back({.from = next, .to = rank, .direction = Direction::kBackward});
    }
    const std::vector<std::vector<size_t>> rounds = LinkRounds(links);
    std::set<size_t> places;
    for (const std::vector<size_t>& round : rounds) {
        std::set<int> ranks;
        for (const size_t place : round) {
            EXPECT_TRUE(places.insert(place).second) << place;
            EXPECT_TRUE(ranks.insert(links[place].from).second) << links[place].from;
            EXPECT_TRUE(ranks.insert(links[place].to).second) << links[place].to;
        }
    }
    EXPECT_EQ(places.size(), links.size() - 1);
    EXPECT_FALSE(places.contains(0)) << "a rank's link to itself";
    // Four links a rank: fewer rounds there cannot be.
    EXPECT_EQ(rounds.size(), 4u);
}

void ExpectGrid(int num_processes) {
    const test::ProgramResult result =
        test::RunProgram(std::string(INFINI_SOURCE_DIR) + "/scripts/run_local.sh",
                         {"-n", std::to_string(num_processes), "--", kWorker, "grid"}, /*limit_s=*/110);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, "OK\n") << result.err;
}

TEST(NcclProcessGroup, OneProcessHasAllOfItsOwnMessagesAndSums) {
    INFINI_SKIP_WITHOUT_CUDA();
    ExpectGrid(1);
}

TEST(NcclProcessGroup, TwoProcessesHaveAllMessagesAndSums) {
    INFINI_SKIP_WITHOUT_CUDA();
    ExpectGrid(2);
}

TEST(NcclProcessGroup, FourProcessesHaveAllMessagesAndSums) {
    INFINI_SKIP_WITHOUT_CUDA();
    ExpectGrid(4);
}

struct Ended {
    int exit_code = -1;  // 128 + the signal
    std::string text;    // both streams
};

/// The processes of a run with a fault of rank 1, with nobody who ends the others for it.
class FaultyRun {
 public:
    FaultyRun(int num_processes, const std::string& fault) {
        const std::string port = std::to_string(FreePort());
        for (int process = 0; process < num_processes; ++process) {
            children_.push_back(Start(process, num_processes, port, fault));
        }
    }

    /// By process. From the end of process 1 the others have no more than limit_s.
    std::vector<Ended> Wait(double limit_s) {
        std::vector<Ended> ended(children_.size());
        ended[1] = WaitFor(1);
        const auto start = std::chrono::steady_clock::now();
        for (size_t process = 0; process < children_.size(); ++process) {
            if (process != 1) {
                ended[process] = WaitFor(process);
            }
        }
        EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), limit_s);
        return ended;
    }

 private:
    std::string TextFile(size_t process) const { return folder_.File(std::to_string(process)); }

    pid_t Start(int process, int num_processes, const std::string& port, const std::string& fault) const {
        const std::vector<std::string> variables = {
            StrCat("RANK=", process),
            StrCat("WORLD_SIZE=", num_processes),
            StrCat("LOCAL_RANK=", process),
            StrCat("LOCAL_WORLD_SIZE=", num_processes),
            "MASTER_ADDR=127.0.0.1",
            "MASTER_PORT=" + port,
            StrCat("INFINI_JOB_ID=fault-", port),
            // NCCL takes processes that share a GPU for hosts of their own.
            StrCat("NCCL_HOSTID=fault-", port, "-", process),
        };
        const std::string path = TextFile(static_cast<size_t>(process));
        const pid_t child = fork();
        EXPECT_GE(child, 0);
        if (child == 0) {
            alarm(100);  // ends one that hangs
            for (const std::string& variable : variables) {
                putenv(const_cast<char*>(variable.c_str()));
            }
            const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
            dup2(file, STDOUT_FILENO);
            dup2(file, STDERR_FILENO);
            execl(kWorker.c_str(), kWorker.c_str(), fault.c_str(), nullptr);
            _exit(127);
        }
        return child;
    }

    Ended WaitFor(size_t process) const {
        int status = 0;
        EXPECT_EQ(waitpid(children_[process], &status, 0), children_[process]);
        return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                .text = test::ReadTextFile(TextFile(process))};
    }

    test::TemporaryFolder folder_;
    std::vector<pid_t> children_;
};

/// Each of them fails, with one line that says this.
void ExpectOneLine(const Ended& ended, const std::string& part) {
    EXPECT_EQ(ended.exit_code, 1) << ended.text;
    int num_lines = 0;
    std::istringstream lines(ended.text);
    for (std::string line; std::getline(lines, line);) {
        num_lines += line.find(part) != std::string::npos ? 1 : 0;
    }
    EXPECT_EQ(num_lines, 1) << "'" << ended.text << "' and '" << part << "'";
}

// What RunRanks gives its ranks to end, and a little.
constexpr double kGraceS = 12.0;

// bugs.csv O89: the communicators of those that are left are aborted without it.
TEST(NcclProcessGroup, AProcessThatIsKilledEndsTheOthersWhoNameIt) {
    INFINI_SKIP_WITHOUT_CUDA();
    const std::vector<Ended> ended = FaultyRun(4, "kill").Wait(kGraceS);
    EXPECT_EQ(ended[1].exit_code, 128 + SIGKILL) << ended[1].text;
    for (const size_t process : {0, 2, 3}) {
        ExpectOneLine(ended[process], "process 1");
    }
}

TEST(NcclProcessGroup, AProcessThatEndsEarlyEndsTheOthersWhoNameIt) {
    INFINI_SKIP_WITHOUT_CUDA();
    const std::vector<Ended> ended = FaultyRun(2, "exit").Wait(kGraceS);
    EXPECT_EQ(ended[1].exit_code, 3) << ended[1].text;
    ExpectOneLine(ended[0], "process 1");
}

TEST(NcclProcessGroup, TheErrorOfARankIsThatOfAll) {
    INFINI_SKIP_WITHOUT_CUDA();
    const std::vector<Ended> ended = FaultyRun(2, "throw").Wait(kGraceS);
    ExpectOneLine(ended[0], "[rank 1] thrown on purpose");
    ExpectOneLine(ended[1], "[rank 1] thrown on purpose");
}

TEST(NcclProcessGroup, AMessageThatDoesNotComeEndsAllAfterTheTimeOut) {
    INFINI_SKIP_WITHOUT_CUDA();
    const std::vector<Ended> ended = FaultyRun(2, "stall").Wait(kGraceS);
    ExpectOneLine(ended[0], "waited 15 s for ");
    ExpectOneLine(ended[1], "waited 15 s for ");
}

}  // namespace
}  // namespace infini_train::comm
