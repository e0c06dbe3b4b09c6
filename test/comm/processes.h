#pragma once

// Processes of a run for tests: as threads, or forked.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/comm/process_place.h"
#include "infini_train/include/common/error.h"
#include "infini_train/src/comm/control_plane.h"
#include "infini_train/src/comm/socket.h"

namespace infini_train::comm {

// Longer than a test may wait for anything that comes: nobody is saved by it.
inline constexpr double kTimeoutS = 30.0;

inline sockaddr_in Loopback(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

/// A port that nobody listened at a moment ago.
inline int FreePort() {
    const Descriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(socket.fd(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    return ntohs(address.sin_port);
}

inline ProcessPlace Place(int index, int num_processes, int port) {
    return {.index = index,
            .num_processes = num_processes,
            .local_index = index,
            .num_local = num_processes,
            .master_address = "127.0.0.1",
            .master_port = port,
            .job_id = "test"};
}

/// Of a failure, as on_failure got it.
class Failure {
 public:
    ControlPlane::Options MakeOptions() {
        return {.timeout_s = kTimeoutS, .on_failure = [this](const std::string& why) { why_.set_value(why); }};
    }
    std::string Wait() {
        auto why = why_.get_future();
        return why.wait_for(std::chrono::seconds(20)) == std::future_status::ready ? why.get() : "no failure";
    }

 private:
    std::promise<std::string> why_;  // throws when it is set twice
};

/// Runs one on a thread for each process; their errors, "" for none.
inline std::vector<std::string> Together(int num_processes, const std::function<void(int)>& run) {
    std::vector<std::string> errors(static_cast<size_t>(num_processes));
    std::vector<std::thread> threads;
    for (int index = 0; index < num_processes; ++index) {
        threads.emplace_back([&, index] {
            try {
                run(index);
            } catch (const Error& error) {
                errors[static_cast<size_t>(index)] = error.what();
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    return errors;
}

/// A process of its own, forked before this one has threads or connections.
class Child {
 public:
    explicit Child(const std::function<void()>& run) : pid_(fork()) {
        if (pid_ == 0) {
            alarm(60);  // seconds; ends a child that hangs
            try {
                run();
            } catch (const std::exception& error) {
                std::fprintf(stderr, "child: %s\n", error.what());
                _exit(1);
            }
            _exit(0);
        }
    }
    ~Child() {
        kill(pid_, SIGKILL);
        Wait();
    }
    void Signal(int signal) const { kill(pid_, signal); }
    /// By SIGSTOP.
    void WaitForStop() const { waitpid(pid_, nullptr, WUNTRACED); }
    int Wait() {
        if (!is_ended_) {
            waitpid(pid_, &status_, 0);
            is_ended_ = true;
        }
        return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
    }

 private:
    pid_t pid_;
    int status_ = 0;
    bool is_ended_ = false;
};

inline void ExpectContains(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' without '" << part << "'";
}

inline void ExpectSame(const std::vector<std::string>& errors, const std::string& part) {
    for (const std::string& error : errors) {
        ExpectContains(error, part);
        EXPECT_EQ(error, errors[0]);
    }
}

}  // namespace infini_train::comm
