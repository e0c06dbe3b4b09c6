#include "example/common/stop_signal.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>

#include "glog/logging.h"

#include "infini_train/include/common/str_cat.h"

namespace infini_train {
namespace {

constexpr std::array kSignals = {SIGTERM, SIGINT, SIGUSR1};

// A handler has nothing else that it could write to.
std::atomic<int> stop_signal{0};
std::array<struct sigaction, kSignals.size()> former_actions;
static_assert(std::atomic<int>::is_always_lock_free, "or a signal handler may not touch it");

void AskToStop(int signal) {
    int none = 0;
    if (!stop_signal.compare_exchange_strong(none, signal)) {
        _exit(128 + signal);  // as a shell reports it
    }
}

}  // namespace

StopSignals::StopSignals() {
    stop_signal = 0;
    struct sigaction action = {};
    action.sa_handler = AskToStop;
    action.sa_flags = SA_RESTART;  // a read or write under way goes on
    for (size_t i = 0; i < kSignals.size(); ++i) {
        PCHECK(sigaction(kSignals[i], &action, &former_actions[i]) == 0);
    }
}

StopSignals::~StopSignals() {
    for (size_t i = 0; i < kSignals.size(); ++i) {
        PCHECK(sigaction(kSignals[i], &former_actions[i], nullptr) == 0);
    }
}

int StopSignal() {
    return stop_signal;
}

std::string SignalName(int signal) {
    const char* name = sigabbrev_np(signal);
    return name == nullptr ? StrCat("signal ", signal) : StrCat("SIG", name);
}

}  // namespace infini_train
