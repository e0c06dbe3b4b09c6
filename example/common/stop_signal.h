#pragma once

#include <string>

namespace infini_train {

/// While one of these lives, SIGTERM, SIGINT and SIGUSR1 only ask the run to stop after the step; a second one ends the
/// process at once. One a process; what the signals did before comes back at its end.
class StopSignals {
 public:
    StopSignals();
    StopSignals(const StopSignals&) = delete;
    StopSignals& operator=(const StopSignals&) = delete;
    ~StopSignals();
};

/// The signal that asked this process to stop; 0: none.
int StopSignal();
/// "SIGTERM"
std::string SignalName(int signal);

}  // namespace infini_train
