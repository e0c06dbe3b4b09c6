#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "glog/logging.h"

#include "test/support/run_program.h"

namespace infini_train::test {

/// A program of the build folder that runs beside the test, which sends it signals. It ends with the test.
class BackgroundProgram {
 public:
    /// Its output, of both kinds, goes to a file.
    BackgroundProgram(const std::string& path, std::vector<std::string> words, const std::string& out_path) {
        words.insert(words.begin(), path);
        std::vector<char*> argv;
        for (std::string& word : words) {
            argv.push_back(word.data());
        }
        argv.push_back(nullptr);
        child_ = fork();
        PCHECK(child_ >= 0) << "fork";
        if (child_ == 0) {
            alarm(60);
            if (std::freopen(out_path.c_str(), "w", stdout) != nullptr) {
                dup2(STDOUT_FILENO, STDERR_FILENO);
                execv(argv[0], argv.data());
            }
            _exit(127);
        }
    }
    BackgroundProgram(const BackgroundProgram&) = delete;
    BackgroundProgram& operator=(const BackgroundProgram&) = delete;
    ~BackgroundProgram() {
        if (child_ > 0) {
            Signal(SIGKILL);
            Wait();
        }
    }

    void Signal(int signal) const { PCHECK(kill(child_, signal) == 0); }
    /// The exit code; 128 + signal for a program that a signal ended.
    int Wait() {
        int status = 0;
        PCHECK(waitpid(child_, &status, 0) == child_);
        child_ = -1;
        return CodeOf(status);
    }
    /// Sends a signal again and again until the program has ended.
    int SignalUntilItEnds(int signal) {
        int status = 0;
        while (waitpid(child_, &status, WNOHANG) == 0) {
            Signal(signal);
            Rest();
        }
        child_ = -1;
        return CodeOf(status);
    }
    /// Until the file is there, with so many bytes at least, or the program has ended.
    void WaitForFile(const std::string& path, uintmax_t num_bytes) const {
        std::error_code none;
        while (!HasEnded() &&
               !(std::filesystem::exists(path, none) && std::filesystem::file_size(path, none) >= num_bytes)) {
            Rest();
        }
    }

 private:
    static int CodeOf(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }
    static void Rest() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }
    /// It can still be waited for.
    bool HasEnded() const {
        siginfo_t info = {};
        waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOHANG | WNOWAIT);
        return info.si_pid == child_;
    }

    pid_t child_ = -1;
};

}  // namespace infini_train::test
