#pragma once

#include <csignal>

namespace infini_train::comm {

/// Threads that are started meanwhile get no signals: those are for the program's own.
class BlockSignals {
 public:
    BlockSignals() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    BlockSignals(const BlockSignals&) = delete;
    BlockSignals& operator=(const BlockSignals&) = delete;

 private:
    sigset_t before_ = {};
};

/// A write of this thread to a connection whose other end is gone is an error meanwhile, and not the end of the
/// process.
class BlockBrokenPipe {
 public:
    BlockBrokenPipe() {
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    ~BlockBrokenPipe() {
        // Taken back before it can be delivered; one that came before this object is the caller's.
        if (sigismember(&before_, SIGPIPE) == 0) {
            const timespec at_once = {};
            while (sigtimedwait(&pipe_, nullptr, &at_once) == SIGPIPE) {
            }
        }
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    BlockBrokenPipe(const BlockBrokenPipe&) = delete;
    BlockBrokenPipe& operator=(const BlockBrokenPipe&) = delete;

 private:
    sigset_t pipe_ = {};
    sigset_t before_ = {};
};

}  // namespace infini_train::comm
