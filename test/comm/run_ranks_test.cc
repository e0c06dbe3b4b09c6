#include "infini_train/include/comm/run_ranks.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "test/comm/two_ranks.h"
#include "test/support/random_tensor.h"

namespace infini_train::comm {
namespace {

constexpr double kTimeoutS = 60.0;  // longer than a test may take: nobody is saved by it

RanksOptions Ranks(int num_ranks) {
    return {.shape = {.pipeline = num_ranks}, .timeout_s = kTimeoutS};
}

void ThrowBadInput() {
    throw Error({.where = "file", .what = "is bad"});
}

TEST(RunRanks, GivesEachRankAPlaceAndADevice) {
    for (const int num_ranks : {1, 2, 3, 4}) {
        std::mutex mutex;
        std::set<int> ranks;
        std::set<std::shared_ptr<Allocator>> allocators;
        RunRanks(Ranks(num_ranks), [&](const Mesh& mesh) {
            EXPECT_EQ(mesh.position.pipeline, mesh.rank);
            EXPECT_EQ(mesh.world->size(), num_ranks);
            const std::lock_guard lock(mutex);
            ranks.insert(mesh.rank);
            allocators.insert(mesh.device.allocator);
        });
        EXPECT_EQ(ranks.size(), static_cast<size_t>(num_ranks));
        EXPECT_EQ(allocators.size(), static_cast<size_t>(num_ranks));
    }
}

TEST(RunRanks, NamesItsThreads) {
    RunRanks(Ranks(2), [](const Mesh& mesh) {
        std::array<char, 16> name = {};
        pthread_getname_np(pthread_self(), name.data(), name.size());
        EXPECT_EQ(std::string(name.data()), "rank " + std::to_string(mesh.rank));
    });
}

TEST(RunRanks, RunsASingleRankOnTheCallingThread) {
    const std::thread::id caller = std::this_thread::get_id();
    const test::NumThreadsGuard two(2);
    RanksOptions options = Ranks(1);
    options.threads_per_rank = 3;
    RunRanks(options, [&](const Mesh&) {
        EXPECT_EQ(std::this_thread::get_id(), caller);
        EXPECT_EQ(omp_get_max_threads(), 3);
    });
    EXPECT_EQ(omp_get_max_threads(), 2);
    EXPECT_EQ(ErrorOf([&] { RunRanks(options, [](const Mesh&) { ThrowBadInput(); }); }), "file: is bad");
    EXPECT_EQ(omp_get_max_threads(), 2);
}

TEST(RunRanks, SharesTheCores) {
    cpu_set_t cores;
    ASSERT_EQ(sched_getaffinity(0, sizeof(cores), &cores), 0);
    const test::NumThreadsGuard all(CPU_COUNT(&cores));
    for (const int num_ranks : {1, 2, 3, 4}) {
        std::vector<int> num_threads(static_cast<size_t>(num_ranks));
        RunRanks(Ranks(num_ranks),
                 [&](const Mesh& mesh) { num_threads[static_cast<size_t>(mesh.rank)] = omp_get_max_threads(); });
        int sum = 0;
        for (const int count : num_threads) {
            sum += count;
        }
        EXPECT_EQ(sum, std::max(num_ranks, CPU_COUNT(&cores))) << num_ranks;
        EXPECT_TRUE(std::is_sorted(num_threads.rbegin(), num_threads.rend())) << "the first get what is left";
        EXPECT_LE(num_threads.front() - num_threads.back(), 1);
    }
}

TEST(RunRanks, TakesNoMoreThreadsThanTheCallerHas) {
    const test::NumThreadsGuard one(1);
    RunRanks(Ranks(1), [](const Mesh&) { EXPECT_EQ(omp_get_max_threads(), 1); });
    RunRanks(Ranks(2), [](const Mesh&) { EXPECT_EQ(omp_get_max_threads(), 1); });
    RanksOptions options = Ranks(2);
    options.threads_per_rank = 2;
    RunRanks(options, [](const Mesh&) { EXPECT_EQ(omp_get_max_threads(), 2); });
}

TEST(RunRanks, KeepsTextAndExitCodeOfTheFirstError) {
    try {
        RunRanks(Ranks(4), [](const Mesh& mesh) {
            if (mesh.rank == 2) {
                ThrowBadInput();
            }
            // Ends with the failure of rank 2; what comes of that is not shown.
            mesh.world->Barrier();
        });
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()), "[rank 2] file: is bad");
        EXPECT_EQ(error.exit_code(), 2);
    }
}

TEST(RunRanks, MakesAnErrorOfAnyException) {
    for (const int num_ranks : {1, 3}) {
        try {
            RunRanks(Ranks(num_ranks), [&](const Mesh& mesh) {
                if (mesh.rank == num_ranks - 1) {
                    throw std::bad_alloc();
                }
            });
            FAIL();
        } catch (const Error& error) {
            const std::string what = "there is no more memory (std::bad_alloc)";
            EXPECT_EQ(std::string(error.what()), num_ranks == 1 ? what : "[rank 2] " + what);
            EXPECT_EQ(error.exit_code(), 1);
        }
    }
}

/// A way to wait for rank 1, and what the Error says of it.
struct Wait {
    std::function<void(const Mesh&)> wait;
    std::string waited_for;
};

std::vector<Wait> AllWaits() {
    const auto scalar = [](const Mesh& mesh) { return Tensor::Zeros({}, DataType::kFloat32, mesh.device); };
    return {
        {[](const Mesh& mesh) { OpenReceiver(*mesh.world, 1, Direction::kForward)->Post({})->Wait(); },
         "forward of micro-batch 0 for stage 0 [] float32 from rank 1"},
        {[=](const Mesh& mesh) { mesh.world->AllReduceSum({scalar(mesh)}); }, "rank 1 in all-reduce of ranks 0, 1"},
        {[=](const Mesh& mesh) {
             mesh.world->AllGather(*scalar(mesh), *Tensor::Zeros({2}, DataType::kFloat32, mesh.device));
         },
         "rank 1 in all-gather of ranks 0, 1"},
        {[=](const Mesh& mesh) { mesh.world->Broadcast(*scalar(mesh), 1); },
         "rank 1 in broadcast from rank 1 of ranks 0, 1"},
        {[](const Mesh& mesh) { mesh.world->Barrier(); }, "rank 1 in barrier of ranks 0, 1"},
        {[](const Mesh& mesh) { mesh.world->ExchangeText(""); }, "rank 1 in exchange of texts of ranks 0, 1"},
        {[](const Mesh& mesh) { mesh.world->Split(0); }, "rank 1 in split of ranks 0, 1"},
    };
}

TEST(RunRanks, EndsEveryKindOfWaitWhenARankFails) {
    for (const Wait& wait : AllWaits()) {
        for (const bool fails_late : {false, true}) {
            std::atomic<bool> waits = false;
            std::string text;
            const auto start = std::chrono::steady_clock::now();
            const std::string first = ErrorOf([&] {
                RunRanks(Ranks(2), [&](const Mesh& mesh) {
                    if (mesh.rank == 0) {
                        waits = true;
                        waits.notify_all();
                        text = ErrorOf([&] { wait.wait(mesh); });
                        return;
                    }
                    if (fails_late) {
                        waits.wait(false);
                        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // mostly, rank 0 sleeps by then
                    }
                    ThrowBadInput();
                });
            });
            EXPECT_EQ(first, "[rank 1] file: is bad");
            EXPECT_EQ(text, "rank 0: rank 1 failed while this one waited for " + wait.waited_for);
            EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
        }
    }
}

TEST(RunRanks, ShowsTheFirstErrorEvenWhenAnotherFollows) {
    EXPECT_EQ(ErrorOf([] {
                  RunRanks(Ranks(2), [](const Mesh& mesh) {
                      if (mesh.rank == 1) {
                          throw Error({.what = "first"});
                      }
                      EXPECT_EQ(ErrorOf([&] { mesh.world->Barrier(); }),
                                "rank 0: rank 1 failed while this one waited for rank 1 in barrier of ranks 0, 1");
                      throw Error({.what = "second"});
                  });
              }),
              "[rank 1] first");
}

TEST(RunRanks, LetsARankHaveWhatIsThereAfterAFailure) {
    ErrorOf([] {
        RunRanks(Ranks(2), [](const Mesh& mesh) {
            if (mesh.rank == 1) {
                ThrowBadInput();
            }
            EXPECT_NE(ErrorOf([&] { mesh.world->Barrier(); }), "");
            const LinkEnds ends = mesh.world->OpenLinks({{.from = 0, .to = 0, .direction = Direction::kForward}});
            ends.senders.at({0, Direction::kForward})->Send(Tensor::Zeros({5}, DataType::kInt32, mesh.device), {});
            const auto& receiver = ends.receivers.at({0, Direction::kForward});
            EXPECT_EQ(ErrorOf([&] { receiver->Post({.shape = {5}, .dtype = DataType::kInt32})->Wait(); }), "");
        });
    });
}

TEST(RunRanks, FreesTheMemoryOfRanksThatFailed) {
    std::mutex mutex;
    std::vector<std::weak_ptr<Allocator>> allocators;
    EXPECT_NE(ErrorOf([&] {
                  RunRanks(Ranks(3), [&](const Mesh& mesh) {
                      {
                          const std::lock_guard lock(mutex);
                          allocators.push_back(mesh.device.allocator);
                      }
                      const auto sender = OpenSender(*mesh.world, (mesh.rank + 1) % 3, Direction::kForward);
                      const auto receiver = OpenReceiver(*mesh.world, (mesh.rank + 2) % 3, Direction::kForward);
                      const auto first = receiver->Post({.shape = {5}});
                      const auto second = receiver->Post({.shape = {5}});
                      sender->Send(Tensor::Zeros({5}, DataType::kFloat32, mesh.device), {});
                      const auto kept = first->Wait();
                      mesh.world->Barrier();
                      if (mesh.rank == 0) {
                          ThrowBadInput();
                      }
                      second->Wait();
                  });
              }),
              "");
    ASSERT_EQ(allocators.size(), 3u);
    for (const std::weak_ptr<Allocator>& allocator : allocators) {
        EXPECT_TRUE(allocator.expired());
    }
}

// bugs.csv O89: whatever a rank does not come back from.
TEST(RunRanksDeathTest, EndsTheProcessWhenARankDoesNotEnd) {
    RanksOptions options = Ranks(3);
    options.grace_s = 0.2;
    const auto never_ends = [](const Mesh& mesh) {
        if (mesh.rank == 1) {
            ThrowBadInput();
        }
        while (mesh.rank == 2) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    };
    EXPECT_EXIT(RunRanks(options, never_ends), testing::ExitedWithCode(2), "^\\[rank 1\\] file: is bad\n");
}

TEST(RunRanksDeathTest, RefusesNoRanks) {
    EXPECT_DEATH(RunRanks({.shape = {.data = 0}}, [](const Mesh&) {}), "1 x 0 x 1 ranks");
    EXPECT_DEATH(RunRanks({.timeout_s = 0.0}, [](const Mesh&) {}), "timeout_s");
}

}  // namespace
}  // namespace infini_train::comm
