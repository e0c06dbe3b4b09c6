#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "test/support/run_program.h"

namespace infini_train::test {

struct FaultRunOptions {
    int num_processes = 4;
    int num_threads = 1;  // ranks of each process
    std::string phase = "none";
    std::string kind = "none";
    int rank = -1;
    double timeout_s = 6.0;
    std::string load = {};                // a checkpoint to go on from, for two more steps; empty: a fresh start
    std::vector<std::string> words = {};  // more flags
    /// The words in front of the program, for a process that is started in another way.
    std::function<std::vector<std::string>(int process)> wrap = {};
    std::string master_address = "127.0.0.1";

    int faulty_process() const { return rank / num_threads; }
};

/// A training of the tiny GPT-2 by processes that nobody ends for each other, with a fault in one of them:
/// fault_worker.cc. Steps 1 to 4 of 4 micro-batches, each saved; validation and a text after step 2.
class FaultRun {
 public:
    using Clock = std::chrono::steady_clock;

    struct Process {
        pid_t pid = -1;
        bool has_ended = false;
        int exit_code = -1;    // 128 + the signal
        double seconds = 0.0;  // from the fault, or from the start where there was none, to its end
        std::string out = {};
        std::string err = {};
    };

    /// Starts the processes, and returns once the fault has happened, or all have ended.
    explicit FaultRun(const FaultRunOptions& options);
    /// Kills what is left.
    ~FaultRun();
    FaultRun(const FaultRun&) = delete;
    FaultRun& operator=(const FaultRun&) = delete;

    bool has_happened() const { return has_happened_; }
    /// Until all have ended, but for the faulty one where that is excepted; for no longer than limit_s from the fault
    /// on.
    void Wait(double limit_s, bool without_the_faulty_one);
    /// Ends the faulty process, which may be stopped.
    void KillFaulty();
    void Signal(int process, int signal) const;
    const std::vector<Process>& processes() const { return processes_; }
    /// All that the processes wrote to stderr, by process, for messages of tests.
    std::string Errors() const;

    /// What this run has left behind, a line each; empty for nothing: processes with its job id, and of what its
    /// processes had when the fault happened, sockets that listen and files in /dev/shm.
    std::string LeftBehind() const;
    /// Goes on from the last checkpoint of this run for a step or more, as one process without a fault.
    ProgramResult GoOn() const;
    const std::string& save_folder() const { return save_; }

 private:
    void Start(int process);
    bool Collect(Process* process, int options) const;
    void CollectAll();
    bool Happened();

    FaultRunOptions options_;
    TemporaryFolder folder_;
    std::string save_;
    std::string fault_file_;
    int port_;
    std::string job_id_;
    std::vector<Process> processes_;
    bool has_happened_ = false;
    Clock::time_point since_;
    std::set<std::string> listeners_;  // the processes' sockets, by inode
    std::set<std::string> shared_memory_;
};

/// The processes whose environment has this job id, apart from zombies.
std::vector<pid_t> ProcessesOfJob(const std::string& job_id);

/// A folder with tokens.txt and, by one process without a fault, save/step_00000004 and metrics.jsonl.
class WholeRun {
 public:
    WholeRun();
    std::string checkpoint() const { return folder_.File("save"); }
    std::string metrics() const { return folder_.File("metrics.jsonl"); }

 private:
    TemporaryFolder folder_;
};

}  // namespace infini_train::test
