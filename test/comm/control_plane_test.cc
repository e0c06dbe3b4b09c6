#include "infini_train/src/comm/control_plane.h"

#include <dirent.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"
#include "infini_train/src/comm/framed_connection.h"
#include "infini_train/src/comm/hello.h"
#include "infini_train/src/comm/socket.h"
#include "infini_train/src/comm/wire.h"
#include "test/comm/processes.h"

namespace infini_train::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Options = ControlPlane::Options;
using Plane = std::unique_ptr<ControlPlane>;

double SecondsSince(Clock::time_point time) {
    return std::chrono::duration<double>(Clock::now() - time).count();
}

int NumOpenFiles() {
    int count = 0;
    DIR* folder = opendir("/proc/self/fd");
    while (readdir(folder) != nullptr) {
        ++count;
    }
    closedir(folder);
    return count;
}

TEST(ControlPlane, ExchangesTheTextsOfAllProcessesInOrder) {
    const int files_before = NumOpenFiles();
    for (const int num_processes : {1, 2, 3, 4}) {
        const int port = FreePort();
        const auto errors = Together(num_processes, [&](int index) {
            const Plane plane = ControlPlane::Connect(Place(index, num_processes, port),
                                                      {.timeout_s = kTimeoutS, .fingerprint = "a=1"});
            for (int round = 0; round < 50; ++round) {
                const auto text = [&](int process) {
                    return std::string(static_cast<size_t>(round * process), 'x') + std::to_string(round);
                };
                const std::vector<std::string> texts = plane->ExchangeText(text(index));
                ASSERT_EQ(texts.size(), static_cast<size_t>(num_processes));
                for (int process = 0; process < num_processes; ++process) {
                    EXPECT_EQ(texts[static_cast<size_t>(process)], text(process));
                }
            }
            EXPECT_EQ(plane->Name(index), "process " + std::to_string(index) + " (" + HostName() + ")");
            plane->Leave();
        });
        EXPECT_EQ(errors, std::vector<std::string>(static_cast<size_t>(num_processes)));
    }
    EXPECT_EQ(NumOpenFiles(), files_before);
}

TEST(ControlPlane, ExchangesTextsThatAreLongerThanSocketsHold) {
    const int port = FreePort();
    constexpr size_t kSize = size_t{20} << 20;
    const auto errors = Together(3, [&](int index) {
        const Plane plane = ControlPlane::Connect(Place(index, 3, port), {.timeout_s = kTimeoutS});
        const auto texts = plane->ExchangeText(std::string(kSize, static_cast<char>('a' + index)));
        for (size_t process = 0; process < 3; ++process) {
            EXPECT_TRUE(texts[process] == std::string(kSize, static_cast<char>('a' + process)));
        }
        plane->Leave();
    });
    EXPECT_EQ(errors, std::vector<std::string>(3));
}

TEST(ControlPlane, RefusesATextOfMoreThan64MiB) {
    const Plane plane = ControlPlane::Connect({}, {});
    EXPECT_THROW(plane->ExchangeText(std::string((size_t{64} << 20) + 1, 'x')), Error);
}

TEST(ControlPlane, TellsAllThatAProcessFailed) {
    for (const int failing : {0, 1, 2}) {
        const int port = FreePort();
        std::vector<Failure> failures(3);
        const auto errors = Together(3, [&](int index) {
            Failure& failure = failures[static_cast<size_t>(index)];
            const Plane plane = ControlPlane::Connect(Place(index, 3, port), failure.MakeOptions());
            if (index == failing) {
                plane->Fail("[rank 5] out of memory");
                plane->Fail("a second error");
            }
            EXPECT_EQ(failure.Wait(), "[rank 5] out of memory");
            plane->ExchangeText("");
        });
        EXPECT_EQ(errors, std::vector<std::string>(3, "[rank 5] out of memory"));
    }
}

TEST(ControlPlane, EndsAnExchangeWhenAProcessFails) {
    const int port = FreePort();
    const auto errors = Together(3, [&](int index) {
        const Plane plane = ControlPlane::Connect(Place(index, 3, port), {.timeout_s = kTimeoutS});
        if (index == 1) {
            plane->Fail("why");
        }
        plane->ExchangeText("");
    });
    EXPECT_EQ(errors, std::vector<std::string>(3, "why"));
}

TEST(ControlPlane, TellsOneProcessOfItsOwnFailure) {
    Failure failure;
    const Plane plane = ControlPlane::Connect({}, failure.MakeOptions());
    plane->Fail("why");
    EXPECT_EQ(failure.Wait(), "why");
    EXPECT_THROW(plane->Leave(), Error);
}

TEST(ControlPlane, NamesAProcessThatEndsWithoutAGoodbye) {
    for (const int ending : {0, 1, 2}) {
        const int port = FreePort();
        std::vector<Failure> failures(3);
        Together(3, [&](int index) {
            Failure& failure = failures[static_cast<size_t>(index)];
            const Plane plane = ControlPlane::Connect(Place(index, 3, port), failure.MakeOptions());
            if (index != ending) {
                EXPECT_EQ(failure.Wait(), "process " + std::to_string(ending) + " (" + HostName() + ") ended");
            }
        });
    }
}

TEST(ControlPlane, TellsProcess0OfTheWaitsOfAllButTheOthersOfTheirOwn) {
    const int port = FreePort();
    std::vector<Failure> failures(3);
    Together(3, [&](int index) {
        Failure& failure = failures[static_cast<size_t>(index)];
        const Plane plane = ControlPlane::Connect(Place(index, 3, port), failure.MakeOptions());
        if (index == 2) {
            return;
        }
        failure.Wait();
        EXPECT_EQ(plane->lost_process(), 2);
        plane->TellWait({.rank = index, .is_timeout = index == 1, .waited_for = "rank 2"});
        const auto waits = plane->Waits([](const auto& so_far) { return so_far.size() == 2; });
        ASSERT_EQ(waits.size(), index == 0 ? 2u : 1u);
        for (const ControlPlane::RankWait& wait : waits) {
            EXPECT_EQ(wait.is_timeout, wait.rank == 1);
            EXPECT_EQ(wait.waited_for, "rank 2");
        }
    });
}

TEST(ControlPlane, WaitsNoLongerForWaitsThanThereAreProcesses) {
    const int port = FreePort();
    std::vector<Failure> failures(2);
    Together(2, [&](int index) {
        Failure& failure = failures[static_cast<size_t>(index)];
        const Plane plane = ControlPlane::Connect(Place(index, 2, port), failure.MakeOptions());
        if (index == 0) {
            failure.Wait();
            const auto begin = Clock::now();
            EXPECT_TRUE(plane->Waits([](const auto&) { return false; }).empty());
            EXPECT_LT(SecondsSince(begin), 0.9);  // it gives them 1 s
        }
    });
}

TEST(ControlPlane, LosesNoProcessByAFailureThatIsTold) {
    const int port = FreePort();
    Together(2, [&](int index) {
        const Plane plane = ControlPlane::Connect(Place(index, 2, port), {.timeout_s = kTimeoutS});
        if (index == 1) {
            plane->Fail("why");
        }
        EXPECT_THROW(plane->ExchangeText(""), Error);
        EXPECT_EQ(plane->lost_process(), std::nullopt);
    });
}

/// The other end of a connection: sends these frames, and listens until it is closed.
void SendAndListen(Descriptor socket, const std::vector<Frame>& frames) {
    FramedConnection connection(std::move(socket), size_t{1} << 20);
    for (const Frame& frame : frames) {
        connection.Queue(frame.kind, frame.body);
    }
    while (connection.state() == FramedConnection::State::kOpen) {
        connection.Flush();
        connection.Receive();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

TEST(ControlPlane, TakesNoProcessFromProcess0ThatThereIsNot) {
    for (const FrameKind kind : {FrameKind::kText, FrameKind::kLost}) {
        for (const std::string& body :
             {std::string(), WireWriter().Number(2).bytes(), WireWriter().Number(UINT32_MAX).bytes()}) {
            const int port = FreePort();
            const Descriptor listener = Listen("127.0.0.1", port);
            const auto errors = Together(2, [&](int index) {
                if (index == 1) {
                    const Plane plane = ControlPlane::Connect(Place(1, 2, port), {.timeout_s = kTimeoutS});
                    EXPECT_THROW(plane->ExchangeText(""), Error);
                    EXPECT_EQ(plane->lost_process(), std::nullopt);
                    plane->ExchangeText("");
                }
                std::optional<Descriptor> socket;
                while (index == 0 && !(socket = Accept(listener)).has_value()) {
                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
                }
                const std::string hosts = WireWriter().Text("a").Text("b").bytes();
                SendAndListen(*std::move(socket), {{FrameKind::kWelcome, hosts}, {kind, body}});
            });
            EXPECT_EQ(errors[1], "process 0 (a) sent what is no message of this protocol");
        }
    }
}

TEST(ControlPlane, RefusesAWaitThatEndsTooEarly) {
    const std::string whole = WireWriter().Number(1).Number(0).Text("rank 0").bytes();
    const int port = FreePort();
    const auto errors = Together(2, [&](int index) {
        if (index == 0) {
            ControlPlane::Connect(Place(0, 2, port), {.timeout_s = kTimeoutS})->ExchangeText("");
        }
        std::optional<Descriptor> socket;
        for (std::string problem; !(socket = TryConnect("127.0.0.1", port, 1.0, &problem)).has_value();) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        const std::string hello = EncodeHello({.index = 1, .num_processes = 2, .job_id = "test", .host = "b"});
        SendAndListen(*std::move(socket),
                      {{FrameKind::kHello, hello}, {FrameKind::kWait, whole.substr(0, whole.size() - 1)}});
    });
    EXPECT_EQ(errors[0], "process 1 (b) sent what is no message of this protocol");
}

TEST(ControlPlane, NamesAProcessThatDoesNotComeToAnExchange) {
    const int port = FreePort();
    const auto errors = Together(2, [&](int index) {
        const Plane plane = ControlPlane::Connect(Place(index, 2, port), {.timeout_s = 1.0});
        if (index == 1) {
            EXPECT_THROW(plane->ExchangeText(""), Error);
        } else {
            std::this_thread::sleep_for(std::chrono::milliseconds(1500));
            plane->ExchangeText("");
        }
    });
    EXPECT_EQ(errors[0], "process 0 (" + HostName() + ") did not come to exchange a text with process 1 (" +
                             HostName() + ") within 1 s");
}

TEST(ControlPlane, NamesAProcessThatLeavesWhileOthersGoOn) {
    for (const int leaving : {0, 1}) {
        const int port = FreePort();
        const auto errors = Together(2, [&](int index) {
            const Plane plane = ControlPlane::Connect(Place(index, 2, port), {.timeout_s = kTimeoutS});
            if (index == leaving) {
                plane->Leave();
            } else {
                plane->ExchangeText("");
            }
        });
        ExpectSame(errors, "process " + std::to_string(leaving) + " (" + HostName() + ") left while process " +
                               std::to_string(1 - leaving) + " (" + HostName() + ") went on");
    }
}

TEST(ControlPlane, NamesAProcessThatDoesNotLeave) {
    const int port = FreePort();
    const auto errors = Together(2, [&](int index) {
        Failure failure;
        Options options = failure.MakeOptions();
        options.timeout_s = 1.0;
        const Plane plane = ControlPlane::Connect(Place(index, 2, port), options);
        if (index == 0) {
            plane->Leave();
        } else {
            failure.Wait();
            plane->Leave();
        }
    });
    ExpectSame(errors, "process 0 (" + HostName() + ") left, but process 1 (" + HostName() + ") did not within 1 s");
}

TEST(ControlPlane, DoesNotTakeALateLeaveForALoss) {
    const int port = FreePort();
    const auto errors = Together(4, [&](int index) {
        Options options = {.timeout_s = kTimeoutS, .on_failure = [](const std::string& why) { ADD_FAILURE() << why; }};
        const Plane plane = ControlPlane::Connect(Place(index, 4, port), options);
        std::this_thread::sleep_for(std::chrono::milliseconds(100 * index));
        plane->Leave();
    });
    EXPECT_EQ(errors, std::vector<std::string>(4));
}

/// Processes 1 and 2 as children; what process 0 hears after it has done this to process 2.
void LoseProcess2(int signal, const std::string& wanted, double within_s, double timeout_s = kTimeoutS) {
    const int port = FreePort();
    const auto connect = [port, timeout_s](int index, Failure* failure) {
        Options options = failure->MakeOptions();
        options.timeout_s = timeout_s;
        return ControlPlane::Connect(Place(index, 3, port), options);
    };
    const auto survive = [&connect](int index) {
        Failure failure;
        const Plane plane = connect(index, &failure);
        plane->ExchangeText("");
        return failure.Wait();
    };
    const std::string text = "process 2 (" + HostName() + ") " + wanted;
    Child first([&] { _exit(survive(1) == text ? 0 : 1); });
    Child second([&] { survive(2); });
    Failure failure;
    const Plane plane = connect(0, &failure);
    plane->ExchangeText("");
    const auto begin = Clock::now();
    second.Signal(signal);
    EXPECT_EQ(failure.Wait(), text);
    EXPECT_LT(SecondsSince(begin), within_s);
    EXPECT_EQ(first.Wait(), 0);
}

TEST(ControlPlane, SeesAtOnceThatAProcessWasKilled) {
    LoseProcess2(SIGKILL, "ended", 2.0);
}

TEST(ControlPlane, SeesWithin12SecondsThatAProcessHasStopped) {
    LoseProcess2(SIGSTOP, "has sent nothing for 10 s", 12.0);
}

TEST(ControlPlane, SeesAStoppedProcessBeforeAWaitForItTimesOut) {
    LoseProcess2(SIGSTOP, "has sent nothing for 2.5 s", 4.0, /*timeout_s=*/5.0);
}

TEST(ControlPlane, SurvivesThatAllItsProcessesAreStoppedForAWhile) {
    const int port = FreePort();
    const auto run = [port](int index) {
        Options options = {.timeout_s = kTimeoutS, .heartbeat_s = 0.1, .silence_s = 1.0};
        const Plane plane = ControlPlane::Connect(Place(index, 2, port), options);
        plane->ExchangeText("");
        std::this_thread::sleep_for(std::chrono::milliseconds(500));  // stopped in here
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        plane->ExchangeText("");
        plane->Leave();
    };
    Child first([&] { run(0); });
    Child second([&] { run(1); });
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    first.Signal(SIGSTOP);
    second.Signal(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(2000));
    first.Signal(SIGCONT);
    second.Signal(SIGCONT);
    EXPECT_EQ(first.Wait(), 0);
    EXPECT_EQ(second.Wait(), 0);
}

TEST(ControlPlane, TellsTheOthersBeforeAProcessThatFailedEnds) {
    // Process 0 and another: each fails and is gone at once. The rest hears why, not just that it ended.
    for (const int failing : {0, 1}) {
        const int port = FreePort();
        const auto run = [port, failing](int index) {
            Failure failure;
            const Plane plane = ControlPlane::Connect(Place(index, 2, port), failure.MakeOptions());
            if (index == failing) {
                plane->Fail("why");
                _exit(0);
            }
            _exit(failure.Wait() == "why" ? 0 : 1);
        };
        Child first([&] { run(0); });
        Child second([&] { run(1); });
        EXPECT_EQ(first.Wait(), 0);
        EXPECT_EQ(second.Wait(), 0);
    }
}

}  // namespace
}  // namespace infini_train::comm
