#include "infini_train/src/comm/rendezvous.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"
#include "infini_train/src/comm/control_plane.h"
#include "infini_train/src/comm/framed_connection.h"
#include "infini_train/src/comm/hello.h"
#include "infini_train/src/comm/socket.h"
#include "infini_train/src/comm/wire.h"
#include "test/comm/processes.h"
#include "test/comm/warnings.h"

namespace infini_train::comm {
namespace {

TEST(Rendezvous, MeetsAtNamesAndAtAddressesOfBothVersions) {
    for (const char* address : {"127.0.0.1", "localhost", "::1", "0.0.0.0"}) {
        SCOPED_TRACE(address);
        const int port = FreePort();
        if (std::string(address) == "::1" && Descriptor(socket(AF_INET6, SOCK_STREAM, 0)).fd() < 0) {
            continue;  // a host without version 6
        }
        const auto errors = Together(2, [&](int index) {
            ProcessPlace place = Place(index, 2, port);
            place.master_address = address;
            ControlPlane::Connect(place, {.timeout_s = kTimeoutS})->Leave();
        });
        EXPECT_EQ(errors, std::vector<std::string>(2));
    }
}

TEST(Rendezvous, WaitsForAProcess0ThatComesLast) {
    const int port = FreePort();
    const auto errors = Together(2, [&](int index) {
        std::this_thread::sleep_for(std::chrono::milliseconds(index == 0 ? 300 : 0));
        ControlPlane::Connect(Place(index, 2, port), {.timeout_s = kTimeoutS})->Leave();
    });
    EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST(Rendezvous, WaitsWithATimeoutThatNoClockHolds) {
    for (const double timeout_s : {1e10, 1e300, std::numeric_limits<double>::infinity()}) {
        const int port = FreePort();
        const auto errors = Together(2, [&](int index) {
            std::this_thread::sleep_for(std::chrono::milliseconds(index == 0 ? 100 : 0));
            ControlPlane::Connect(Place(index, 2, port), {.timeout_s = timeout_s})->Leave();
        });
        EXPECT_EQ(errors, std::vector<std::string>(2)) << timeout_s;
    }
}

TEST(Rendezvous, NamesTheLineThatDiffersOnAllProcesses) {
    const int port = FreePort();
    const auto errors = Together(3, [&](int index) {
        const std::string rate = index == 2 ? "0.2" : "0.1";
        ControlPlane::Connect(Place(index, 3, port),
                              {.timeout_s = kTimeoutS, .fingerprint = "version=1\nlearning_rate=" + rate + "\nseed=3"});
    });
    ExpectSame(errors, "process 2 (" + HostName() + ") was started otherwise than process 0 (" + HostName() +
                           "): learning_rate=0.2 there, learning_rate=0.1 here");
}

TEST(Rendezvous, NamesALineThatOneDoesNotHave) {
    const int port = FreePort();
    const auto errors = Together(2, [&](int index) {
        ControlPlane::Connect(Place(index, 2, port),
                              {.timeout_s = kTimeoutS, .fingerprint = index == 0 ? "a=1\nb=2\nc=3" : "a=1"});
    });
    ExpectSame(errors, "no b there, b=2 here (and 1 more line)");
}

TEST(Rendezvous, NamesAProcessThatComesTwice) {
    const int port = FreePort();
    const auto errors = Together(
        3, [&](int index) { ControlPlane::Connect(Place(index == 0 ? 0 : 1, 3, port), {.timeout_s = kTimeoutS}); });
    ExpectSame(errors, "process 1 (" + HostName() + ") came twice, the other is on " + HostName());
}

TEST(Rendezvous, NamesAProcessOfAnotherNumberOfProcesses) {
    const int port = FreePort();
    const auto errors =
        Together(2, [&](int index) { ControlPlane::Connect(Place(index, 2 + index, port), {.timeout_s = kTimeoutS}); });
    ExpectSame(errors, "process 1 (" + HostName() + ") was started as one of 3 processes, process 0 (" + HostName() +
                           ") as one of 2");
}

// bugs.csv O88
TEST(Rendezvous, NamesTheProcessesThatDoNotCome) {
    const int port = FreePort();
    const auto errors =
        Together(2, [&](int index) { ControlPlane::Connect(Place(index, 4, port), {.timeout_s = 0.5}); });
    ExpectSame(errors, "process 2 and 3 of 4 did not come to 127.0.0.1 port " + std::to_string(port) + " within 0.5 s");
}

// bugs.csv O97: before it gives up, it says what it waits for.
TEST(Rendezvous, WarnsOfTheProcessesThatHaveNotCome) {
    Warnings warnings;
    const int port = FreePort();
    Together(2, [&](int index) { ControlPlane::Connect(Place(index, 4, port), {.timeout_s = 1.4}); });
    ASSERT_FALSE(warnings.texts().empty());
    EXPECT_EQ(warnings.texts()[0], "process 0 (" + HostName() +
                                       ") has waited 1 s for process 2 and 3 of 4 to come to " + "127.0.0.1 port " +
                                       std::to_string(port));
}

TEST(Rendezvous, WarnsOfAProcess0ThatIsNotReached) {
    Warnings warnings;
    const int port = FreePort();
    Together(1, [&](int) { ControlPlane::Connect(Place(1, 2, port), {.timeout_s = 1.4}); });
    ASSERT_FALSE(warnings.texts().empty());
    EXPECT_EQ(warnings.texts()[0], "process 1 (" + HostName() + ") has tried for 1 s to reach process 0 at 127.0.0.1 " +
                                       "port " + std::to_string(port) + ": Connection refused");
}

// 192.0.2.0/24 is for examples alone, and .invalid is no domain.
TEST(Rendezvous, NamesAnAddressThatIsNotThatOfProcess0) {
    for (const char* address : {"192.0.2.77", "no-such-host.invalid"}) {
        SCOPED_TRACE(address);
        const auto errors = Together(1, [&](int) {
            ProcessPlace place = Place(0, 2, FreePort());
            place.master_address = address;
            ControlPlane::Connect(place, {.timeout_s = 0.3});
        });
        ExpectContains(errors[0], "process 1 of 2 did not come to " + std::string(address) + " port ");
        ExpectContains(errors[0],
                       std::string(address) + (address[0] == '1' ? " is no address of " + HostName() : ": "));
    }
}

TEST(Rendezvous, NamesTheAddressThatIsNotFound) {
    const auto errors = Together(1, [&](int) {
        ProcessPlace place = Place(1, 2, 29500);
        place.master_address = "no-such-host.invalid";
        ControlPlane::Connect(place, {.timeout_s = 0.3});
    });
    ExpectContains(errors[0], "process 0 at no-such-host.invalid port 29500 was not reached within 0.3 s: ");
}

TEST(Rendezvous, SaysThatProcess0WasNotReached) {
    const int port = FreePort();
    const auto begin = std::chrono::steady_clock::now();
    const auto errors = Together(1, [&](int) { ControlPlane::Connect(Place(1, 2, port), {.timeout_s = 0.3}); });
    ExpectContains(errors[0], "process 1: process 0 at 127.0.0.1 port " + std::to_string(port) +
                                  " was not reached within 0.3 s: Connection refused");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

// bugs.csv O84
TEST(Rendezvous, NamesAPortThatIsTaken) {
    const int port = FreePort();
    const Descriptor other = Listen("127.0.0.1", port);
    const auto begin = std::chrono::steady_clock::now();
    const auto errors = Together(2, [&](int index) {
        // Not process 0's error: to process 1 the other program does not answer.
        ControlPlane::Connect(Place(index, 2, port), {.timeout_s = 0.3});
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    ExpectContains(errors[0], HostName());
    ExpectContains(errors[0], "port " + std::to_string(port) + " is taken");
    ExpectContains(errors[1], "takes connections, but does not answer");
}

/// Comes to process 0 as the second of two, with this hello, and returns what it is told.
std::string RefusalOf(const Hello& hello, int port) {
    std::string problem;
    std::optional<Descriptor> socket;
    while (!(socket = TryConnect("127.0.0.1", port, 1.0, &problem)).has_value()) {
        std::this_thread::yield();
    }
    FramedConnection connection(*std::move(socket), 1 << 20);
    connection.Queue(FrameKind::kHello, EncodeHello(hello));
    while (connection.state() == FramedConnection::State::kOpen) {
        connection.Flush();
        connection.Receive();
        if (const std::optional<Frame> frame = connection.Next()) {
            WireReader reader(frame->body);
            return reader.Number().has_value() ? reader.Text().value_or("") : "";
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return "";
}

TEST(Rendezvous, NamesAProcessOfAnotherVersion) {
    const int port = FreePort();
    const auto begin = std::chrono::steady_clock::now();
    const auto errors = Together(2, [&](int index) {
        if (index == 0) {
            ControlPlane::Connect(Place(0, 2, port), {.timeout_s = kTimeoutS});
        }
        const std::string refusal = RefusalOf(
            {.version = kProtocolVersion + 1, .index = 1, .num_processes = 2, .job_id = "test", .host = "b"}, port);
        throw Error({.what = refusal});
    });
    ExpectSame(errors, "process 1 (b) runs another version of this program than process 0 (" + HostName() +
                           "): protocol " + std::to_string(kProtocolVersion + 1) + " there, " +
                           std::to_string(kProtocolVersion) + " here");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(Hello, OfAnotherVersionIsReadUpToTheHost) {
    const Hello hello = {.version = kProtocolVersion + 1, .index = 3, .num_processes = 7, .job_id = "j", .host = "h"};
    const std::string bytes = EncodeHello(hello);
    for (const std::string& end : {std::string("?"), std::string()}) {  // whatever that version has there
        const auto read = DecodeHello(bytes.substr(0, bytes.size() - sizeof(uint32_t)) + end);
        ASSERT_TRUE(read.has_value());
        EXPECT_EQ(read->version, kProtocolVersion + 1);
        EXPECT_EQ(read->index, 3);
        EXPECT_EQ(read->num_processes, 7);
        EXPECT_EQ(read->job_id, "j");
        EXPECT_EQ(read->host, "h");
        EXPECT_EQ(read->fingerprint, "");
    }
}

TEST(Hello, ThatEndsTooEarlyIsNone) {
    const std::string bytes =
        EncodeHello({.index = 3, .num_processes = 7, .job_id = "j", .host = "h", .fingerprint = "f"});
    ASSERT_TRUE(DecodeHello(bytes).has_value());
    for (size_t size = 0; size < bytes.size(); ++size) {
        EXPECT_FALSE(DecodeHello(bytes.substr(0, size)).has_value()) << size;
    }
}

TEST(Hello, WithANumberThatNoIntHoldsIsNone) {
    for (const Hello& hello : {Hello{.index = -1, .num_processes = 2}, Hello{.index = 1, .num_processes = INT32_MIN}}) {
        EXPECT_FALSE(DecodeHello(EncodeHello(hello)).has_value());
    }
}

TEST(Rendezvous, LetsStrangersComeWithoutHarm) {
    const int port = FreePort();
    std::vector<Descriptor> strangers;
    const auto errors = Together(2, [&](int index) {
        if (index == 1) {
            // One that says what is no mark of ours, one that ends in its middle, one that claims a long message, and
            // one that says nothing.
            for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\x01inf"),
                                             std::string("\x01infini\n\xff\xff\xff\xff\x01", 13),
                                             std::string("\x01infini\n\0\0\0\0\x01", 13), std::string()}) {
                std::string problem;
                std::optional<Descriptor> stranger;
                while (!(stranger = TryConnect("127.0.0.1", port, 1.0, &problem)).has_value()) {
                    std::this_thread::yield();
                }
                ASSERT_EQ(send(stranger->fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                          static_cast<ssize_t>(bytes.size()));
                strangers.push_back(*std::move(stranger));
            }
            strangers.erase(strangers.begin() + 1);
        }
        const auto plane = ControlPlane::Connect(Place(index, 2, port), {.timeout_s = kTimeoutS});
        EXPECT_EQ(plane->ExchangeText("x").size(), 2u);
        plane->Leave();
    });
    EXPECT_EQ(errors, std::vector<std::string>(2));
}

// Process 0 may open a few files more; there are more silent strangers than that.
TEST(Rendezvous, HasRoomForItsOwnProcessAmongManyStrangers) {
    const int port = FreePort();
    Child process_0([&] {
        const Descriptor next(dup(STDERR_FILENO));
        const rlimit limit = {.rlim_cur = static_cast<rlim_t>(next.fd()) + 8,
                              .rlim_max = static_cast<rlim_t>(next.fd()) + 8};
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
            _exit(2);
        }
        ControlPlane::Connect(Place(0, 2, port), {.timeout_s = 10.0})->Leave();
    });
    std::vector<Descriptor> strangers;
    while (strangers.size() < 30) {
        std::string problem;
        if (std::optional<Descriptor> stranger = TryConnect("127.0.0.1", port, 1.0, &problem)) {
            strangers.push_back(*std::move(stranger));
        }
    }
    const auto errors =
        Together(1, [&](int) { ControlPlane::Connect(Place(1, 2, port), {.timeout_s = 10.0})->Leave(); });
    EXPECT_EQ(errors, std::vector<std::string>(1));
    EXPECT_EQ(process_0.Wait(), 0);
}

TEST(Rendezvous, KeepsRunsApartByTheirJobId) {
    const int port = FreePort();
    const auto errors = Together(3, [&](int thread) {
        ProcessPlace place = Place(thread == 0 ? 0 : 1, 2, port);
        if (thread == 2) {
            place.job_id = "other";
        }
        // The process of the other run tries for half a second; the run itself waits for its own for a second.
        if (thread == 1) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1000));
        }
        ControlPlane::Connect(place, {.timeout_s = thread == 2 ? 0.5 : kTimeoutS})->Leave();
    });
    EXPECT_EQ(errors[0], "");
    EXPECT_EQ(errors[1], "");
    ExpectContains(errors[2], "belongs to another run (its job id is 'test', ours 'other')");
}

}  // namespace
}  // namespace infini_train::comm
