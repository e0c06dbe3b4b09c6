// What breaks between processes that gloo connects. Those that are killed are forked, before this one has threads.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/src/comm/gloo/gloo_connections.h"
#include "test/comm/gloo_ranks.h"
#include "test/comm/two_ranks.h"

namespace infini_train::comm {
namespace {

constexpr int64_t kMuch = 64 << 20;  // float32 of more than all buffers between two processes hold

MessageSpec Spec(int microbatch, int64_t num_elements) {
    return {.tag = {.stage = 1, .microbatch = microbatch}, .shape = {num_elements}, .dtype = DataType::kFloat32};
}

/// Links both ways between ranks 0 and 1.
LinkEnds OpenBothWays(const Mesh& mesh) {
    return mesh.world->OpenLinks({{.from = 0, .to = 1, .direction = Direction::kForward},
                                  {.from = 1, .to = 0, .direction = Direction::kForward}});
}

void RunProcess(int index, int port, const std::function<void(const Mesh&)>& rank_main) {
    RunRanks({.shape = {.pipeline = 2}, .process = Place(index, 2, port), .timeout_s = kTimeoutS}, rank_main);
}

constexpr int kWrong = 42;  // a child's exit code: what it saw was not what it should

void Require(bool holds, const std::string& seen) {
    if (!holds) {
        std::fprintf(stderr, "child: '%s'\n", seen.c_str());
        std::_Exit(kWrong);
    }
}

bool SaysThatProcess1Ended(const std::string& error) {
    return error.starts_with("rank 0: process 1 (") && error.find(") ended") != std::string::npos;
}

TEST(GlooFault, AMessageWhoseSenderDiesInItNeverArrivesAndAWriteToItIsNoSignal) {
    const int port = FreePort();
    Child sender([&] {
        RunProcess(1, port, [](const Mesh& mesh) {
            LinkEnds ends = OpenBothWays(mesh);
            // Then the large receive is posted.
            ends.receivers.at({0, Direction::kForward})->Post(Spec(0, 1))->Wait();
            ends.senders.at({0, Direction::kForward})
                ->Send(Tensor::Zeros({kMuch}, DataType::kFloat32, mesh.device), Spec(1, kMuch).tag);
            std::raise(SIGKILL);
        });
    });
    Child receiver([&] {
        RunProcess(0, port, [](const Mesh& mesh) {
            LinkEnds ends = OpenBothWays(mesh);
            const auto large = ends.receivers.at({1, Direction::kForward})->Post(Spec(1, kMuch));
            std::string error;
            for (int m = 0; error.empty(); ++m) {
                error = ErrorOf([&] {
                    ends.senders.at({1, Direction::kForward})
                        ->Send(Tensor::Zeros({1}, DataType::kFloat32, mesh.device), Spec(m, 1).tag);
                });
            }
            Require(SaysThatProcess1Ended(error), error);
            error = ErrorOf([&] { large->Wait(); });
            Require(SaysThatProcess1Ended(error), error);
        });
    });
    EXPECT_EQ(sender.Wait(), 128 + SIGKILL);
    // The run has failed, though its rank took the error.
    EXPECT_EQ(receiver.Wait(), 1);
}

/// Ends the connections of this process, but those of the control plane.
void BreakConnections(int control_port) {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        const int fd = std::stoi(entry.path().filename());
        sockaddr_in own = {};
        sockaddr_in peer = {};
        socklen_t own_size = sizeof(own);
        socklen_t peer_size = sizeof(peer);
        if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
            getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 && own.sin_family == AF_INET &&
            ntohs(own.sin_port) != control_port && ntohs(peer.sin_port) != control_port) {
            shutdown(fd, SHUT_RDWR);
        }
    }
}

TEST(GlooFault, AConnectionThatBreaksAloneIsNamed) {
    const int port = FreePort();
    const std::vector<std::string> errors = Together(2, [&](int index) {
        RunProcess(index, port, [&](const Mesh& mesh) {
            LinkEnds ends = OpenBothWays(mesh);
            if (mesh.rank == 0) {
                const auto receive = ends.receivers.at({1, Direction::kForward})->Post(Spec(0, 1));
                mesh.world->Barrier();
                BreakConnections(port);
                receive->Wait();
            } else {
                mesh.world->Barrier();
                mesh.world->Barrier();
            }
        });
    });
    for (const std::string& error : errors) {
        ExpectContains(error, "the connection to process ");
        ExpectContains(error, ") broke while this one waited for ");
    }
}

/// Text to and from a process that was forked.
void WriteText(int fd, const std::string& text) {
    const auto size = static_cast<uint32_t>(text.size());
    EXPECT_EQ(write(fd, &size, sizeof(size)), static_cast<ssize_t>(sizeof(size)));
    EXPECT_EQ(write(fd, text.data(), size), static_cast<ssize_t>(size));
}

std::string ReadText(int fd) {
    uint32_t size = 0;
    EXPECT_EQ(recv(fd, &size, sizeof(size), MSG_WAITALL), static_cast<ssize_t>(sizeof(size)));
    std::string text(size, '\0');
    EXPECT_EQ(recv(fd, text.data(), size, MSG_WAITALL), static_cast<ssize_t>(size));
    return text;
}

/// Of two processes, which tell each other their texts through a socket.
GlooWorldOptions TwoProcesses(int index, int socket) {
    return {.place = Place(index, 2, /*port=*/1),
            .num_ranks = 2,
            .timeout_s = 0.5,
            .process_names = {"process 0", "process 1"},
            .exchange_text = [=](const std::string& text) {
                WriteText(socket, text);
                const std::string other = ReadText(socket);
                return index == 0 ? std::vector<std::string>{text, other} : std::vector<std::string>{other, text};
            }};
}

/// Process 0 connects to process 1, which stands still, and fails at once; then process 1 goes on. False when process 0
/// waits for process 1 to connect: their ports decide that.
bool FailsBeforeTheOtherHasTakenTheConnection() {
    int sockets[2] = {};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    const Descriptor ours(sockets[0]);
    const Descriptor theirs(sockets[1]);
    Child other([&] {
        WaitBoard board(kTimeoutS);
        GlooConnections connections(TwoProcesses(1, theirs.fd()), &board);
        std::raise(SIGSTOP);
        const std::string error = ErrorOf([&] { connections.Connect(1); });
        connections.Close();
    });
    WaitBoard board(kTimeoutS);
    GlooConnections connections(TwoProcesses(0, ours.fd()), &board);
    other.WaitForStop();
    const std::string error = ErrorOf([&] { connections.Connect(0); });
    connections.Fail("on purpose");
    connections.Close();
    if (error.empty()) {
        other.Signal(SIGCONT);
        EXPECT_EQ(other.Wait(), 0);
    }
    return error.empty();
}

TEST(GlooFault, AProcessThatFailsWhileOthersConnectEndsNoneOfThem) {
    int num_tries = 0;
    while (!FailsBeforeTheOtherHasTakenTheConnection()) {
        ASSERT_LT(++num_tries, 30);
    }
}

}  // namespace
}  // namespace infini_train::comm
