// The connections between processes by themselves. The processes are threads here; what they tell each other goes
// through memory.
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "glog/logging.h"
#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/gloo/gloo_connections.h"
#include "infini_train/src/comm/gloo/own_address.h"
#include "infini_train/src/comm/wire.h"
#include "test/comm/processes.h"
#include "test/comm/two_ranks.h"

namespace infini_train::comm {
namespace {

using Clock = GlooConnections::Clock;

struct RunOptions {
    int num_processes = 2;
    int num_ranks_of_process = 1;
    double timeout_s = kTimeoutS;
    std::string master_address = "127.0.0.1";
    // What a process says to the others may be changed on its way.
    std::function<std::string(int process, const std::string& text)> change_text = {};
};

Awaited Something(int rank) {
    return {.ranks = {rank}, .text = StrCat("something from rank ", rank)};
}

/// Runs work as each process; the connections end when all have done theirs.
void RunConnections(const RunOptions& run, const std::function<void(GlooConnections&)>& work) {
    std::barrier all_here(run.num_processes);
    std::vector<std::string> texts(static_cast<size_t>(run.num_processes));
    std::vector<std::thread> threads;
    for (int index = 0; index < run.num_processes; ++index) {
        threads.emplace_back([&, index] {
            GlooWorldOptions options = {.place = Place(index, run.num_processes, /*port=*/1),
                                        .num_ranks = run.num_processes * run.num_ranks_of_process,
                                        .timeout_s = run.timeout_s};
            options.place.master_address = run.master_address;
            for (int process = 0; process < run.num_processes; ++process) {
                options.process_names.push_back(StrCat("process ", process));
            }
            options.exchange_text = [&](const std::string& text) {
                texts[static_cast<size_t>(index)] = run.change_text ? run.change_text(index, text) : text;
                all_here.arrive_and_wait();
                std::vector<std::string> copy = texts;
                all_here.arrive_and_wait();
                return copy;
            };
            WaitBoard board(run.timeout_s);
            GlooConnections connections(options, &board);
            work(connections);
            all_here.arrive_and_wait();
            connections.Close();
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

/// Each process sends the other two messages of each size, all on one channel, and the receives are posted in another
/// order of the sizes.
void ExpectMessages(GlooConnections& connections) {
    const int rank = connections.process();
    const GlooChannel channel = {.process = 1 - rank, .id = 7};
    const std::vector<size_t> sizes = {1, 1000, size_t{5} << 20};
    const auto awaited = [&] { return Something(1 - rank); };
    struct Message {
        std::vector<char> bytes;
        GlooTransfer transfer = {};
    };
    std::vector<Message> sent;
    std::vector<Message> received;
    for (int m = 0; m < 2; ++m) {
        for (const size_t size : sizes) {
            sent.push_back({.bytes = std::vector<char>(size, static_cast<char>(10 * rank + m))});
        }
        for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
            received.push_back({.bytes = std::vector<char>(*size)});
        }
    }
    connections.Connect(rank);
    for (Message& message : sent) {
        message.transfer = connections.Send(channel, message.bytes.data(), message.bytes.size(), rank, awaited);
    }
    for (Message& message : received) {
        message.transfer = connections.Receive(channel, message.bytes.data(), message.bytes.size(), rank, awaited);
    }
    for (size_t i = 0; i < received.size(); ++i) {
        connections.Wait(received[i].transfer, rank, connections.Deadline(), awaited);
        const auto value = static_cast<char>(10 * (1 - rank) + static_cast<int>(i / sizes.size()));
        EXPECT_TRUE(received[i].bytes == std::vector<char>(received[i].bytes.size(), value)) << i;
    }
    for (const Message& message : sent) {
        connections.Wait(message.transfer, rank, connections.Deadline(), awaited);
    }
}

TEST(GlooConnections, KeepTheOrderOfMessagesOfASize) {
    RunConnections({}, ExpectMessages);
}

TEST(GlooConnections, TakeAnAddressOfVersion6) {
    if (!ErrorOf([] { (void)AddressTowards("::1", 1); }).empty()) {
        GTEST_SKIP() << "this host has no IPv6";
    }
    RunConnections({.master_address = "::1"}, ExpectMessages);
}

// Of two one connects and one listens, which follows from their ports, and only who listens waits for the other.
TEST(GlooConnections, NameTheProcessThatDoesNotConnect) {
    std::string error;
    for (int run = 0; run < 20 && error.empty(); ++run) {
        std::latch has_waited(1);
        RunConnections({.timeout_s = 1.0}, [&](GlooConnections& connections) {
            if (connections.process() == 1) {
                has_waited.wait();
                return;
            }
            error = ErrorOf([&] { connections.Connect(0); });
            has_waited.count_down();
        });
    }
    ExpectContains(error, "rank 0: the connection to process 1 broke while this one waited for a connection");
}

TEST(GlooConnections, EndTheirMakingWhenTheRunFails) {
    std::latch has_failed(1);
    RunConnections({}, [&](GlooConnections& connections) {
        if (connections.process() == 1) {
            has_failed.wait();
            return;
        }
        std::thread fails([&] { connections.Fail("process 1 ended"); });
        const Clock::time_point start = Clock::now();
        const std::string error = ErrorOf([&] { connections.Connect(0); });
        fails.join();
        EXPECT_EQ(error, "rank 0: process 1 ended");
        EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
        has_failed.count_down();
    });
}

// A second attempt would connect again where there is a connection.
TEST(GlooConnections, AreTriedOnce) {
    const auto change_text = [](int process, const std::string& text) {
        // The second text has the addresses, one for each process: what process 2 says is none.
        return process == 2 && text.size() > 50 ? WireWriter().Text("").Text("").Text("").bytes() : text;
    };
    std::atomic<int> num_tried = 0;
    RunConnections({.num_processes = 3, .num_ranks_of_process = 2, .change_text = change_text},
                   [&](GlooConnections& connections) {
                       const int rank = 2 * connections.process();
                       if (connections.process() == 2) {
                           return;
                       }
                       std::thread second([&] {
                           const std::string error = ErrorOf([&] { connections.Connect(rank + 1); });
                           ExpectContains(error, "the connection to process 2 broke");
                           ++num_tried;
                       });
                       const std::string error = ErrorOf([&] { connections.Connect(rank); });
                       ExpectContains(error, "the connection to process 2 broke");
                       ++num_tried;
                       second.join();
                   });
    EXPECT_EQ(num_tried, 4);
}

/// A log that nobody reads for a while.
class StuckLog : public google::LogSink {
 public:
    StuckLog() { google::AddLogSink(this); }
    ~StuckLog() override { google::RemoveLogSink(this); }

    void send(google::LogSeverity /*severity*/, const char* /*path*/, const char* /*file*/, int /*line*/,
              const google::LogMessageTime& /*time*/, const char* /*message*/, size_t /*length*/) override {
        if (!is_stuck.test_and_set()) {
            is_stuck.notify_all();
            may_go_on.wait();
        }
    }

    std::atomic_flag is_stuck;
    std::latch may_go_on{1};
};

TEST(GlooConnections, EndAWaitWhileTheLogIsStuck) {
    StuckLog log;
    RunConnections({.timeout_s = 3.0}, [&](GlooConnections& connections) {
        const int rank = connections.process();
        connections.Connect(rank);
        char byte = 0;
        const auto awaited = [&] { return Something(1 - rank); };
        if (rank == 0) {
            const GlooTransfer transfer = connections.Receive({.process = 1, .id = 1}, &byte, 1, rank, awaited);
            // Longer than its warning takes.
            connections.Wait(transfer, rank, connections.Deadline(), awaited);
            log.may_go_on.count_down();
        } else {
            log.is_stuck.wait(false);
            const GlooTransfer transfer = connections.Send({.process = 0, .id = 1}, &byte, 1, rank, awaited);
            EXPECT_TRUE(connections.WaitQuietly(transfer));
        }
    });
}

// gloo's thread has read from what is sent; the rank that never waits for its end writes there after the failure.
// Whether it may is for the thread sanitizer to say.
TEST(GlooConnections, GiveBackTheMemoryOfAllMessagesWhenAWaitIsCut) {
    std::latch has_sent(1);
    std::latch has_received(1);
    RunConnections({}, [&](GlooConnections& connections) {
        const int rank = connections.process();
        const GlooChannel channel = {.process = 1 - rank, .id = 1};
        const auto awaited = [&] { return Something(1 - rank); };
        connections.Connect(rank);
        std::vector<char> bytes(1000, static_cast<char>(rank));
        if (rank == 1) {
            has_sent.wait();  // so that it is gloo's thread that sends
            const GlooTransfer transfer = connections.Receive(channel, bytes.data(), bytes.size(), rank, awaited);
            connections.Wait(transfer, rank, connections.Deadline(), awaited);
            EXPECT_EQ(bytes, std::vector<char>(bytes.size(), 0));
            has_received.count_down();
            return;
        }
        const GlooTransfer sent = connections.Send(channel, bytes.data(), bytes.size(), rank, awaited);
        char byte = 0;
        const GlooTransfer never = connections.Receive(channel, &byte, 1, rank, awaited);
        has_sent.count_down();
        std::thread fails([&] {
            has_received.wait();
            connections.Fail("process 1 ended");
        });
        const std::string error = ErrorOf([&] { connections.Wait(never, rank, connections.Deadline(), awaited); });
        ExpectContains(error, "rank 0: process 1 ended while this one waited for something from rank 1");
        bytes.assign(bytes.size(), 2);
        fails.join();
    });
}

TEST(GlooConnections, CutWhatIsUnderWayAtTheirEnd) {
    std::atomic<int> num_cut = 0;
    std::vector<std::thread> senders(2);
    std::latch have_begun(2);  // the end of one would break the connection of the other
    RunConnections({}, [&](GlooConnections& connections) {
        const int rank = connections.process();
        connections.Connect(rank);
        // Nobody receives it.
        senders[static_cast<size_t>(rank)] = std::thread([&, rank] {
            const char byte = 0;
            const GlooTransfer transfer =
                connections.Send({.process = 1 - rank, .id = 1}, &byte, 1, rank, [&] { return Something(1 - rank); });
            have_begun.count_down();
            num_cut += connections.WaitQuietly(transfer) ? 0 : 1;
        });
        have_begun.wait();
        connections.Fail("the end");
        senders[static_cast<size_t>(rank)].join();
    });
    EXPECT_EQ(num_cut, 2);
}

}  // namespace
}  // namespace infini_train::comm
