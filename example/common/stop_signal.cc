#include "example/common/stop_signal.h"

#include <unistd.h>

#include <cstring>

#include "glog/logging.h"

#include "infini_train/include/common/str_cat.h"

namespace infini_train {
namespace {

std::atomic<int> stop_signal{0};  // of the process, as signals are

sigset_t Signals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
        sigaddset(&signals, signal);
    }
    return signals;
}

}  // namespace

// A thread waits for the signals, and no handler runs on those that compute: oneDNN's matrix products use the stack
// pointer for a buffer on the heap, and what the kernel would put below it for a handler destroys what lies there.
StopSignals::StopSignals() {
    stop_signal = 0;
    const sigset_t signals = Signals();
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, &signals, &former_mask_), 0);  // threads inherit it
    listener_ = std::thread([this, signals] {
        for (int signal = 0; sigwait(&signals, &signal) == 0 && !has_ended_;) {
            if (stop_signal != 0) {
                _exit(128 + signal);  // as a shell reports it
            }
            stop_signal = signal;
        }
    });
}

StopSignals::~StopSignals() {
    has_ended_ = true;
    pthread_kill(listener_.native_handle(), SIGTERM);
    listener_.join();
    pthread_sigmask(SIG_SETMASK, &former_mask_, nullptr);
}

int StopSignal() {
    return stop_signal;
}

std::string SignalName(int signal) {
    const char* name = sigabbrev_np(signal);
    return name == nullptr ? StrCat("signal ", signal) : StrCat("SIG", name);
}

}  // namespace infini_train
