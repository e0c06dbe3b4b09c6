#include "infini_train/src/comm/outcome.h"

#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace infini_train::comm {
namespace {

// The control plane's thread tells of another process when the ranks of this one have ended and somebody asks: under
// the thread sanitizer this is where a lock would be missed.
TEST(Outcome, TellsTheFirstErrorWhileAnotherThreadSetsIt) {
    Outcome outcome(/*num_ranks=*/1);
    outcome.RankEnded();
    EXPECT_TRUE(outcome.WaitForAll(/*grace_s=*/0.0));
    std::thread control([&] {
        EXPECT_TRUE(outcome.RunFailed("process 1 ended"));
        EXPECT_FALSE(outcome.RunFailed("process 2 ended"));
    });
    while (!outcome.FirstError().has_value()) {
        std::this_thread::yield();
    }
    EXPECT_EQ(std::string(outcome.FirstError()->what()), "process 1 ended");
    control.join();
}

}  // namespace
}  // namespace infini_train::comm
