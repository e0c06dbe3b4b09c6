#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nccl.h"

#include "infini_train/include/comm/channel.h"
#include "infini_train/include/core/stream.h"
#include "infini_train/src/comm/nccl/nccl_failure.h"
#include "infini_train/src/comm/slow_wait.h"
#include "infini_train/src/core/cuda/cuda_stream.h"

namespace infini_train::comm {

/// A communicator of NCCL as one rank of it sees it. The rank's thread enqueues through it; the watchdog looks at it
/// and ends it. NCCL takes one call at a time on a communicator, so all go through here, under a lock that is never
/// held while anybody waits: the communicators do not block (ncclConfig_t::blocking = 0).
class NcclCommunicator {
 public:
    using Clock = SlowWait::Clock;

    /// What is under way, for messages: a message of a link, or a collective by its name.
    struct Operation {
        const char* name = "";
        std::optional<MessageTag> tag = std::nullopt;
    };

    struct Options {
        int rank = 0;  // of the world
        int gpu_index = 0;
        std::string with = {};         // who else takes part: "of ranks 0, 1", "from rank 0"
        std::vector<int> others = {};  // the same, without this rank
        std::shared_ptr<const NcclFailure> failure = nullptr;
        double timeout_s = 0.0;
    };
    /// Without a handle until Init or Split.
    explicit NcclCommunicator(Options options) : options_(std::move(options)) {}
    NcclCommunicator(const NcclCommunicator&) = delete;
    NcclCommunicator& operator=(const NcclCommunicator&) = delete;

    // --- the rank's thread. Each throws Error after a failure, when NCCL reports one, and when others do not come
    // within the time-out.
    /// The communicator of all ranks; collective. On the thread's current GPU.
    void Init(int num_ranks, const ncclUniqueId& id, int place);
    /// Ranks of this communicator with the same color get one, in the order of their keys; collective. A null child:
    /// this rank gets none. max_blocks: thread blocks of its kernels at most; 0: as NCCL likes.
    void Split(int color, int key, int max_blocks, NcclCommunicator* child);
    /// Calls NCCL and returns when what it enqueued is in its stream, so that an event recorded then comes after it.
    void Call(const Operation& operation, const std::function<ncclResult_t(ncclComm_t)>& call);
    /// The operation has to be done, and the event with it, in time. Operations end in the order of these calls. begun:
    /// from then on the rank's GPU has nothing to do before it but wait for the others, which is what counts: the host
    /// may be a whole step ahead. Null until WaitFrom.
    void Watch(const Operation& operation, std::shared_ptr<const Event> done, std::shared_ptr<const Event> begun);
    /// The rank waits for the operation of that event, which Watch was given.
    void WaitFrom(const std::shared_ptr<const Event>& done, const std::shared_ptr<const Event>& begun);
    void ThrowIfFailed() const { options_.failure->ThrowIfSet(options_.rank); }

    /// A stream for this communicator alone. It lives as long as the communicator, which the watchdog holds: the end of
    /// a stream waits for its work, and that of a rank which throws must not, before the others know.
    void MakeStream() { stream_ = std::make_unique<cuda::CudaStream>(options_.gpu_index); }
    cuda::CudaStream& stream() { return *stream_; }

    // --- the watchdog
    struct Finding {
        std::string text;
        bool is_certain;  // false: it may follow from what another rank did
    };
    /// What is wrong, if anything is.
    std::optional<Finding> Inspect(Clock::time_point now);
    /// That this rank waits for the others, and the line to say so once that has lasted.
    struct Outstanding {
        Waiter waiter;
        std::string due_text = {};  // empty until the next time that it is to be told; then given once
    };
    /// Nothing without an operation that is not done.
    std::optional<Outstanding> FindOutstanding(Clock::time_point now);
    /// Ends the kernels that run, and what waits for them. Then every call throws.
    void Abort();
    /// The end after all work: on every rank Finalize of all its communicators, IsIdle until all are, Destroy of all.
    void Finalize();
    bool IsIdle();
    void Destroy();

 private:
    struct Pending {
        Operation operation = {};
        std::shared_ptr<const Event> done = nullptr;
        std::shared_ptr<const Event> begun = nullptr;
        std::optional<SlowWait> slow = std::nullopt;  // since it is the one that is waited for
    };

    std::string Describe(const Operation& operation) const;
    /// With the lock held.
    void ThrowIfEnded() const;
    ncclResult_t State() const;
    /// Polls until NCCL has done what it was called for.
    void Await(const Operation& operation);
    /// Makes the handle that a split made this one's.
    void Adopt(ncclComm_t comm);
    ncclComm_t TakeHandle();

    Options options_;
    std::unique_ptr<cuda::CudaStream> stream_;
    ncclComm_t split_ = nullptr;  // NCCL writes it from a thread of its own, so it may be no local variable

    std::mutex mutex_;  // of all below, and of calls of NCCL
    ncclComm_t comm_ = nullptr;
    bool is_ended_ = false;
    std::optional<Pending> call_;  // that the rank's thread waits in; no event
    std::deque<Pending> pending_;
};

}  // namespace infini_train::comm
