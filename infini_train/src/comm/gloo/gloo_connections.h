#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gloo/transport/context.h"
#include "gloo/transport/device.h"
#include "gloo/transport/unbound_buffer.h"

#include "infini_train/src/comm/gloo_backend.h"
#include "infini_train/src/comm/slow_wait.h"

namespace infini_train::comm {

/// A message under way. Its memory must stay until it has ended, or until this is destroyed, which cuts it.
struct GlooTransfer {
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer = nullptr;  // null: no bytes, so nothing is under way
    int process = 0;                                                   // the other end's
    bool is_send = false;
};

/// Where messages of one kind go: they arrive at a process in the order in which they were sent. Its id is given out by
/// the process that receives.
struct GlooChannel {
    int process = 0;  // the other end's
    uint32_t id = 0;
};

/// This process's connections to the others of the run: one context of gloo, which all rank threads share. Thread-safe.
/// A send and the receive that it meets have the same channel and size: gloo moves the bytes when both are there, and
/// only into memory that waits for them.
///
/// After a failure all waits end, and so do the connections. A process that is lost is seen by the control plane; a
/// connection that breaks is reported as the failure that it then tells.
class GlooConnections {
 public:
    using Clock = std::chrono::steady_clock;

    /// Collective over the processes. The board is told of the waits of ranks, and outlives this. Throws Error.
    GlooConnections(const GlooWorldOptions& options, WaitBoard* board);
    ~GlooConnections();
    GlooConnections(const GlooConnections&) = delete;
    GlooConnections& operator=(const GlooConnections&) = delete;

    /// Connects to all processes; called by each rank thread of this process, the first of which does it. Throws Error,
    /// and fails then.
    void Connect(int rank);

    /// Another id for each call.
    uint32_t NewChannelId();
    int process() const { return options_.place.index; }
    int ProcessOf(int rank) const { return rank / num_ranks_of_process_; }
    const std::string& ProcessName(int process) const { return options_.process_names[static_cast<size_t>(process)]; }
    /// "rank 2 of process 1 (host)"
    std::string RankName(int rank) const;

    /// Both return at once; they throw WaitError after a failure and when the connection is broken. awaited: of what
    /// is sent or received, for messages.
    GlooTransfer Send(const GlooChannel& channel, const void* data, size_t size_bytes, int rank,
                      const std::function<Awaited()>& awaited);
    GlooTransfer Receive(const GlooChannel& channel, void* data, size_t size_bytes, int rank,
                         const std::function<Awaited()>& awaited);

    Clock::time_point Deadline() const;
    /// Waits for the end of a transfer; rank waits. Throws WaitError after a failure and at the deadline.
    void Wait(const GlooTransfer& transfer, int rank, Clock::time_point deadline,
              const std::function<Awaited()>& awaited);
    /// The same without an end and for nobody in particular. False when a failure or Close cut it.
    bool WaitQuietly(const GlooTransfer& transfer);

    /// Holds what transfers under way need until the connections end.
    void Keep(std::shared_ptr<void> memory);

    /// Ends all waits and the connections; the first reason counts.
    void Fail(const std::string& why);
    void ThrowIfFailed(int rank);
    /// The end, after the last wait of a rank: cuts what WaitQuietly waits for. Once.
    void Close();

 private:
    enum class Outcome { kDone, kCut, kTimedOut, kBroken };

    /// A wait of a thread, on its stack.
    struct Waiting {
        gloo::transport::UnboundBuffer* buffer;
        bool is_send;
        Clock::time_point deadline;
        const std::function<Awaited()>* awaited;  // null: nobody is to be told
        WaitBoard::Wait* on_board;
        bool is_timed_out = false;
    };

    Outcome WaitUntil(Waiting* waiting);
    /// Ends it at once, also if it has not begun.
    static void Abort(const Waiting& waiting);
    std::string Failure();
    /// After the connection to a process broke: the failure that the control plane tells of, or else that.
    std::string WhyItBroke(int process);
    GlooTransfer Start(GlooTransfer transfer, const GlooChannel& channel, size_t size_bytes, int rank,
                       const std::function<Awaited()>& awaited);
    /// The connections to all processes, so that whoever still connects goes on, and so that no byte comes from or goes
    /// to memory after its owner has given it up: gloo's thread is in none of them any more when this returns.
    void CloseAll();
    void Watch();

    GlooWorldOptions options_;
    WaitBoard* board_;
    int num_ranks_of_process_;
    std::shared_ptr<gloo::transport::Device> device_;
    std::shared_ptr<gloo::transport::Context> context_;
    std::vector<std::vector<char>> addresses_;  // by process, where this one connects to
    std::atomic<uint32_t> next_channel_id_ = 1;

    std::mutex connect_mutex_;
    bool is_connected_ = false;

    std::mutex mutex_;  // of all below
    std::condition_variable failed_;
    std::condition_variable watched_;
    std::string failure_;  // empty: none
    bool is_closing_ = false;
    std::list<Waiting*> waits_;
    std::vector<std::shared_ptr<void>> kept_;
    std::thread watch_;
};

}  // namespace infini_train::comm
