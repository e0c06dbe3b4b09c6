// Processes on two hosts: network namespaces with names and addresses of their own, joined by a cable that can be cut.
// Needs root.
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/str_cat.h"
#include "test/fault/fault_run.h"
#include "test/support/training_run.h"

namespace infini_train::test {
namespace {

bool Does(const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

/// host-a (10.77.0.1) and host-b (10.77.0.2).
class TwoHosts : public testing::Test {
 protected:
    TwoHosts() : prefix_(StrCat("infini", getpid() % 100000)) {}

    void SetUp() override {
        if (geteuid() != 0 || !Does("command -v ip") || !Does("command -v unshare") || !Connect()) {
            GTEST_SKIP() << "needs root, ip and unshare, for network namespaces";
        }
    }
    /// Nobody is on the hosts any more, and they go with their cable.
    void TearDown() override {
        for (const char host : {'a', 'b'}) {
            EXPECT_FALSE(Does("ip netns pids " + Space(host) + " | grep -q .")) << "on host-" << host;
            Does("ip netns del " + Space(host));
        }
        EXPECT_FALSE(Does("ip netns list | grep -q " + prefix_));
        EXPECT_FALSE(Does("ip link show cable"));
    }

    std::string Space(char host) const { return prefix_ + host; }
    void CutCable() const { ASSERT_TRUE(Does(StrCat("ip -n ", Space('b'), " link set cable down"))); }

    /// The first half of the processes on host-a, the others on host-b.
    FaultRunOptions Options(int num_processes) const {
        FaultRunOptions options = {.num_processes = num_processes};
        options.master_address = "10.77.0.1";
        options.wrap = [this, num_processes](int process) {
            const char host = process < num_processes / 2 ? 'a' : 'b';
            return std::vector<std::string>{
                "ip",        "netns",   "exec",
                Space(host), "unshare", "--uts",
                "sh",        "-c",      StrCat("echo host-", host, " >/proc/sys/kernel/hostname && exec \"$@\""),
                "sh"};
        };
        return options;
    }

 private:
    bool Connect() const {
        const std::string a = Space('a');
        const std::string b = Space('b');
        return Does("ip netns add " + a) && Does("ip netns add " + b) &&
               Does("ip link add cable netns " + a + " type veth peer name cable netns " + b) &&
               Does("ip -n " + a + " addr add 10.77.0.1/24 dev cable") &&
               Does("ip -n " + b + " addr add 10.77.0.2/24 dev cable") && Does("ip -n " + a + " link set cable up") &&
               Does("ip -n " + b + " link set cable up") && Does("ip -n " + a + " link set lo up") &&
               Does("ip -n " + b + " link set lo up");
    }

    std::string prefix_;
};

TEST_F(TwoHosts, TrainWithTheBitsOfOneProcess) {
    const WholeRun whole;
    const TemporaryFolder folder;
    for (const int num_processes : {2, 4}) {
        FaultRunOptions options = Options(num_processes);
        const std::string metrics = folder.File(StrCat(num_processes));
        options.words = {"--metrics_file", metrics};
        const FaultRun run(options);
        for (const FaultRun::Process& process : run.processes()) {
            ASSERT_EQ(process.exit_code, 0) << run.Errors();
        }
        EXPECT_EQ(NumbersOf(metrics), NumbersOf(whole.metrics())) << num_processes << " processes";
    }
}

TEST_F(TwoHosts, EndWhenTheCableIsCut) {
    for (const int num_processes : {2, 4}) {
        FaultRunOptions options = Options(num_processes);
        options.phase = "quarter_2";
        options.kind = "tell";
        options.rank = 1;
        options.words = {"--num_iteration", "100000"};
        FaultRun run(options);
        ASSERT_TRUE(run.has_happened()) << run.Errors();
        CutCable();
        run.Wait(options.timeout_s + 10.0, /*without_the_faulty_one=*/false);
        for (size_t process = 0; process < run.processes().size(); ++process) {
            const FaultRun::Process& p = run.processes()[process];
            ASSERT_TRUE(p.has_ended) << "process " << process << " hangs\n" << run.Errors();
            EXPECT_LT(p.seconds, options.timeout_s + 5.0) << run.Errors();
            EXPECT_EQ(p.exit_code, 1) << run.Errors();
        }
        // Each side has lost the other, in the middle of a step.
        EXPECT_TRUE(Contains(run.processes()[0].err, "(host-b) has sent nothing for 3 s while rank ")) << run.Errors();
        EXPECT_TRUE(Contains(run.processes().back().err, "process 0 (host-a) has sent nothing for 3 s while rank "))
            << run.Errors();
        EXPECT_EQ(run.LeftBehind(), "");
        TearDown();
        SetUp();
    }
}

TEST_F(TwoHosts, NameTheHostOfAProcessThatIsKilled) {
    FaultRunOptions options = Options(4);
    options.phase = "quarter_3";
    options.kind = "kill";
    options.rank = 3;
    FaultRun run(options);
    run.Wait(20.0, /*without_the_faulty_one=*/false);
    for (const size_t process : {0, 1, 2}) {
        EXPECT_TRUE(Contains(run.processes()[process].err, "process 3 (host-b) ended")) << run.Errors();
        EXPECT_EQ(run.processes()[process].exit_code, 1) << run.Errors();
        EXPECT_LT(run.processes()[process].seconds, 10.0) << run.Errors();
    }
    EXPECT_EQ(run.LeftBehind(), "");
}

}  // namespace
}  // namespace infini_train::test
