#pragma once

#include <signal.h>

#include <atomic>
#include <string>
#include <thread>

namespace infini_train {

/// While one of these lives, SIGTERM, SIGINT and SIGUSR1 only ask the run to stop after the step; a second one ends the
/// process at once, with exit code 128 + signal. Before the steps begin (StepsBegin) there is nothing to save, and a
/// process may wait long for the others of its run: the first one ends it, too, a second later. One a process, made by
/// its main thread before there are other threads: those that it finds are ended by the signals as usual, and the
/// process with them.
class StopSignals {
 public:
    StopSignals();
    StopSignals(const StopSignals&) = delete;
    StopSignals& operator=(const StopSignals&) = delete;
    ~StopSignals();

 private:
    sigset_t former_mask_ = {};
    std::atomic<bool> has_ended_ = false;
    std::thread listener_;
};

/// From here on a signal waits for the end of a step.
void StepsBegin();
/// The signal that asked this process to stop; 0: none.
int StopSignal();
/// "SIGTERM"
std::string SignalName(int signal);

}  // namespace infini_train
