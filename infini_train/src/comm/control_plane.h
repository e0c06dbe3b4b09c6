#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "infini_train/include/comm/process_place.h"
#include "infini_train/src/comm/framed_connection.h"

namespace infini_train::comm {

/// What the processes of a run tell each other beside the tensors: they meet, agree on texts, hear of a fault of any of
/// them, and leave together. A star of TCP connections with process 0 in the middle, looked after by a thread of each
/// process. Threads may call at the same time. With one process there is neither.
///
/// The first failure ends the run on all processes: a process that calls Fail, ends without a goodbye ("process 2
/// (host) ended"), is silent for too long, or goes while others need it. Every process then gets the same text. Ranks
/// that waited then can say what for, and process 0 hears of it.
class ControlPlane {
 public:
    struct Options {
        double timeout_s = 60.0;       // for all to come, to exchange, to leave
        std::string fingerprint = {};  // lines "name=value", equal on all processes
        std::function<void(const std::string& why)> on_failure =
            {};  // once, on the plane's thread; may end the process
        // Equal on all processes.
        double heartbeat_s = 1.0;
        // Of a process that is stopped, or whose host is gone, until it counts as lost. At most half of timeout_s
        // (and 2 s at the least): it is named before those who wait for it name each other.
        double silence_s = 10.0;
    };

    /// Returns when all processes have come. Throws Error as Rendezvous does.
    static std::unique_ptr<ControlPlane> Connect(const ProcessPlace& place, const Options& options);
    /// Without Leave before it the others see this process as lost. Not from on_failure.
    ~ControlPlane();
    ControlPlane(const ControlPlane&) = delete;
    ControlPlane& operator=(const ControlPlane&) = delete;

    /// Collective: the text of each process, in order. At most 64 MiB each. Throws Error after a failure, and when a
    /// process does not come to it within timeout_s of the first.
    std::vector<std::string> ExchangeText(const std::string& text);

    /// Ends the run of all with this reason, unless it has failed before. Returns when it is on its way to the others.
    /// on_failure is called here as well.
    void Fail(const std::string& why);

    /// After a failure: the process that was lost; nothing where the failure is another.
    std::optional<int> lost_process() const;
    /// A wait that the failure ends, or that is the failure. Returns when it is on its way.
    struct RankWait {
        int rank = 0;
        bool is_timeout = false;
        std::string waited_for = {};
    };
    void TellWait(const RankWait& wait);
    /// Those of this process, on process 0 those of all, the first first. There it gives the others a moment, until
    /// they are enough.
    using AreEnough = std::function<bool(const std::vector<RankWait>& waits)>;
    std::vector<RankWait> Waits(const AreEnough& are_enough);

    /// Collective, the last call: returns when all have called it; then nobody's end is a loss. Throws Error after a
    /// failure, and when a process does not come to it within timeout_s of the first.
    void Leave();

    /// "process 2 (host)"
    std::string Name(int process) const;

 private:
    using Clock = std::chrono::steady_clock;

    struct Peer {
        int process;
        std::unique_ptr<FramedConnection> connection;
        Clock::time_point last_heard;
        bool is_end_heard = false;

        bool is_open() const { return connection->state() == FramedConnection::State::kOpen; }
    };

    ControlPlane(const ProcessPlace& place, const Options& options);

    bool is_root() const { return place_.index == 0; }
    void ThrowIfFailed() const;
    void Wake() const;

    // --- the plane's thread
    void Run();
    void Poll(double wait_s) const;
    double NextWait() const;
    void Hear(Peer* peer);
    void HandleAtRoot(int process, const Frame& frame);
    void HandleWait(int process, const std::string& body);
    void HandleFromRoot(const Frame& frame);
    void HandleOfProcess(const Frame& frame);  // one that says of which process it is
    void CheckAlive();
    void AdvanceExchange();
    void AdvanceLeave();
    bool FlushAll();
    void TellAll(FrameKind kind, const std::string& body);

    // --- with the lock held
    void SetFailure(const std::string& why, std::optional<int> lost_process = {});
    void SetText(int process, const std::string& text);
    std::vector<int> Processes(const std::function<bool(size_t)>& condition) const;
    std::string Names(const std::vector<int>& processes) const;

    ProcessPlace place_;
    Options options_;
    std::vector<std::string> hosts_;
    Descriptor wake_;  // an event
    std::thread thread_;
    std::mutex exchange_mutex_;  // one exchange at a time

    mutable std::mutex mutex_;  // of all below
    std::condition_variable changed_;
    std::vector<Peer> peers_;  // process 0: all others; the others: process 0
    Clock::time_point next_heartbeat_;
    Clock::time_point last_check_;
    bool stop_ = false;

    std::optional<std::string> failure_;
    Clock::time_point failed_at_;
    bool is_failure_told_ = false;  // it is on its way to the others
    std::optional<int> lost_process_;
    std::vector<RankWait> waits_;

    std::vector<std::optional<std::string>> texts_;  // of the exchange that goes on, by process
    std::optional<Clock::time_point> exchange_since_;
    std::optional<std::vector<std::string>> exchanged_;

    std::vector<bool> left_;  // by process; not at process 0: the own place only
    std::optional<Clock::time_point> leave_since_;
    std::optional<Clock::time_point> all_left_at_;
    bool is_left_ = false;  // and all know
};

}  // namespace infini_train::comm
