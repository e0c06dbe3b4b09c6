// A few of the faults of faults_slow_test, for every build; and what is slow, but no fault.
#include <string>

#include "gtest/gtest.h"

#include "infini_train/src/comm/socket.h"
#include "test/fault/fault_cases.h"
#include "test/fault/fault_run.h"
#include "test/support/training_run.h"

namespace infini_train::test {
namespace {

class Fault : public testing::TestWithParam<FaultCase> {};

TEST_P(Fault, EndsAllProcessesAndIsNamed) {
    ExpectThatAllEnd(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Some, Fault,
                         testing::Values(FaultCase{"rendezvous", "kill", 2}, FaultCase{"build", "memory", 3},
                                         FaultCase{"quarter_1", "kill", 0}, FaultCase{"quarter_2", "throw", 0},
                                         FaultCase{"quarter_3", "stop", 1}, FaultCase{"evaluation", "exit", 3},
                                         FaultCase{"save", "kill", 2}, FaultCase{"exit", "kill", 1}),
                         [](const testing::TestParamInfo<FaultCase>& info) { return NameOf(info.param); });

void ExpectThatAllEndWell(const FaultRun& run) {
    for (const FaultRun::Process& process : run.processes()) {
        EXPECT_EQ(process.exit_code, 0) << run.Errors();
    }
    EXPECT_EQ(run.LeftBehind(), "");
}

TEST(SlowRank, IsNamedInAWarningBeforeTheTimeOutAndTheRunGoesOn) {
    FaultRun run({.phase = "quarter_2", .kind = "sleep", .rank = 2});
    run.Wait(60.0, /*without_the_faulty_one=*/false);
    ExpectThatAllEndWell(run);
    EXPECT_TRUE(Contains(run.Errors(), "[rank 1] has waited ")) << run.Errors();
    EXPECT_TRUE(Contains(run.Errors(), "rank 2 of process 2 (" + comm::HostName() + ")")) << run.Errors();
}

TEST(SlowRank, IsNobodyWhereAllTakeTheirTime) {
    // Longer than the wait that is told; before the first step, and in a save.
    for (const char* phase : {"build", "save"}) {
        FaultRun run({.phase = phase, .kind = "sleep", .rank = -1});
        run.Wait(60.0, /*without_the_faulty_one=*/false);
        ASSERT_TRUE(run.has_happened()) << run.Errors();
        ExpectThatAllEndWell(run);
        EXPECT_FALSE(Contains(run.Errors(), "has waited")) << run.Errors();
    }
}

TEST(KilledRun, GoesOnFromItsLastCheckpointAsIfItHadNotBeenKilled) {
    const WholeRun whole;
    const TemporaryFolder folder;
    const std::string metrics = folder.File("metrics.jsonl");
    const std::string save = folder.File("save");
    {
        FaultRun killed({.num_processes = 2,
                         .phase = "quarter_3",
                         .kind = "kill",
                         .rank = 1,
                         .words = {"--metrics_file", metrics, "--save", save}});
        ASSERT_TRUE(killed.has_happened()) << killed.Errors();
        killed.Wait(20.0, /*without_the_faulty_one=*/false);
    }
    FaultRun resumed({.num_processes = 2, .load = save, .words = {"--metrics_file", metrics, "--num_iteration", "4"}});
    ExpectThatAllEndWell(resumed);
    EXPECT_EQ(NumbersOf(metrics), NumbersOf(whole.metrics()));
}

}  // namespace
}  // namespace infini_train::test
