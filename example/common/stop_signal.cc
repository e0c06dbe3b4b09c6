#include "example/common/stop_signal.h"

#include <unistd.h>

#include <cstring>

#include "glog/logging.h"

#include "infini_train/include/common/str_cat.h"

namespace infini_train {
namespace {

// Of the process, as signals are.
std::atomic<int> stop_signal{0};
std::atomic<bool> have_steps_begun{false};

// In which a run that fails at this moment can say why: the launcher sends a signal to the others then.
constexpr timespec kLastWords = {.tv_sec = 1, .tv_nsec = 0};

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
    have_steps_begun = false;
    const sigset_t signals = Signals();
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, &signals, &former_mask_), 0);  // threads inherit it
    listener_ = std::thread([this, signals] {
        for (int signal = 0; sigwait(&signals, &signal) == 0 && !has_ended_;) {
            if (stop_signal != 0) {
                _exit(128 + signal);  // as a shell reports it
            }
            stop_signal = signal;
            if (have_steps_begun) {
                continue;
            }
            const int next = sigtimedwait(&signals, nullptr, &kLastWords);
            if (has_ended_) {
                return;
            }
            if (next > 0 || !have_steps_begun) {
                _exit(128 + (next > 0 ? next : signal));
            }
        }
    });
}

StopSignals::~StopSignals() {
    has_ended_ = true;
    pthread_kill(listener_.native_handle(), SIGTERM);
    listener_.join();
    pthread_sigmask(SIG_SETMASK, &former_mask_, nullptr);
}

void StepsBegin() {
    have_steps_begun = true;
}

int StopSignal() {
    return stop_signal;
}

std::string SignalName(int signal) {
    const char* name = sigabbrev_np(signal);
    return name == nullptr ? StrCat("signal ", signal) : StrCat("SIG", name);
}

}  // namespace infini_train
