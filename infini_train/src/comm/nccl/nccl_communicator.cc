#include "infini_train/src/comm/nccl/nccl_communicator.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "glog/logging.h"

#include "infini_train/include/comm/wait_error.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/nccl/nccl_check.h"
#include "infini_train/src/core/cuda/cuda_check.h"

namespace infini_train::comm {
namespace {

// A rank that ends shows here as a lost connection, and the others learn at the same time which one it was.
constexpr double kBetterReasonS = 2.0;
// Launching takes less than this, connecting more.
constexpr std::chrono::milliseconds kBusyWait(2);
constexpr std::chrono::microseconds kPollInterval(200);

double Seconds(NcclCommunicator::Clock::duration duration) {
    return std::chrono::duration<double>(duration).count();
}

ncclConfig_t Config(int max_blocks) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (max_blocks > 0) {
        config.maxCTAs = max_blocks;
    }
    return config;
}

}  // namespace

std::string NcclCommunicator::Describe(const Operation& operation) const {
    return StrCat(operation.tag.has_value() ? ToString(*operation.tag) : operation.name, " ", options_.with);
}

void NcclCommunicator::ThrowIfEnded() const {
    ThrowIfFailed();
    CHECK(!is_ended_) << "NCCL is used after the end of its world";
}

ncclResult_t NcclCommunicator::State() const {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = ncclCommGetAsyncError(comm_, &state);
    return result == ncclSuccess ? state : result;
}

void NcclCommunicator::Await(const Operation& operation) {
    const Clock::time_point start = Clock::now();
    while (true) {
        ncclResult_t state = ncclSuccess;
        {
            const std::lock_guard lock(mutex_);
            ThrowIfEnded();
            state = State();
            if (state != ncclInProgress) {
                call_.reset();
            } else if (!call_.has_value()) {
                call_ = Pending{.operation = operation, .slow = SlowWait(options_.timeout_s, start)};
            }
        }
        if (state == ncclSuccess) {
            return;
        }
        if (state != ncclInProgress) {
            const std::string problem = NcclErrorText(state);
            options_.failure->WaitFor(kBetterReasonS);
            ThrowIfFailed();
            throw Error({.where = StrCat("rank ", options_.rank),
                         .what = StrCat("NCCL: ", problem, " in ", Describe(operation)),
                         .kind = Error::Kind::kRuntime});
        }
        const Clock::duration waited = Clock::now() - start;
        if (Seconds(waited) > options_.timeout_s) {
            throw WaitError(
                {.rank = options_.rank, .waited_for = Describe(operation), .timeout_s = options_.timeout_s});
        }
        if (waited < kBusyWait) {
            std::this_thread::yield();
        } else {
            std::this_thread::sleep_for(kPollInterval);
        }
    }
}

void NcclCommunicator::Call(const Operation& operation, const std::function<ncclResult_t(ncclComm_t)>& call) {
    ncclResult_t result = ncclSuccess;
    std::string problem;
    {
        const std::lock_guard lock(mutex_);
        ThrowIfEnded();
        result = call(comm_);
        // Its last message is that of the last call, on any communicator.
        problem = result == ncclSuccess || result == ncclInProgress ? "" : NcclErrorText(result);
    }
    if (!problem.empty()) {
        throw Error({.where = StrCat("rank ", options_.rank),
                     .what = StrCat("NCCL: ", problem, " in ", Describe(operation)),
                     .kind = Error::Kind::kRuntime});
    }
    // Also after ncclSuccess: only the state says that the work is in its stream.
    Await(operation);
}

void NcclCommunicator::Init(int num_ranks, const ncclUniqueId& id, int place) {
    ncclConfig_t config = Config(0);
    Call({.name = "start"}, [&](ncclComm_t) { return ncclCommInitRankConfig(&comm_, num_ranks, id, place, &config); });
}

void NcclCommunicator::Split(int color, int key, int max_blocks, NcclCommunicator* child) {
    ncclConfig_t config = Config(max_blocks);
    Call({.name = "split"}, [&](ncclComm_t comm) {
        return ncclCommSplit(comm, child == nullptr ? NCCL_SPLIT_NOCOLOR : color, key, &split_, &config);
    });
    if (child != nullptr) {
        child->Adopt(std::exchange(split_, nullptr));
    }
}

void NcclCommunicator::Adopt(ncclComm_t comm) {
    CHECK_NOTNULL(comm);
    {
        // After a failure the handle is left as it is: the process ends.
        const std::lock_guard lock(mutex_);
        ThrowIfEnded();
        comm_ = comm;
    }
    Await({.name = "start"});
}

void NcclCommunicator::Watch(const Operation& operation, std::shared_ptr<const Event> done,
                             std::shared_ptr<const Event> begun) {
    const std::lock_guard lock(mutex_);
    pending_.push_back({.operation = operation, .done = std::move(done), .begun = std::move(begun)});
}

void NcclCommunicator::WaitFrom(const std::shared_ptr<const Event>& done, const std::shared_ptr<const Event>& begun) {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(pending_.begin(), pending_.end(), [&](const Pending& pending) { return pending.done == done; });
    if (found == pending_.end()) {
        return;  // it is done
    }
    // Those before it end before it: they are waited for as well.
    for (auto pending = pending_.begin(); pending <= found; ++pending) {
        pending->begun = pending->begun == nullptr ? begun : pending->begun;
    }
}

std::optional<NcclCommunicator::Finding> NcclCommunicator::Inspect(Clock::time_point now) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || comm_ == nullptr) {
        return std::nullopt;
    }
    const std::string own = StrCat("rank ", options_.rank);
    try {
        // Else the calling thread's first call would make a context on the first GPU.
        INFINI_CUDA_CHECK(cudaSetDevice(options_.gpu_index));
        while (!pending_.empty() && pending_.front().done->IsDone()) {
            pending_.pop_front();
        }
        if (!pending_.empty()) {
            Pending& first = pending_.front();
            if (!first.slow.has_value() && first.begun != nullptr && first.begun->IsDone()) {
                first.slow = SlowWait(options_.timeout_s, now);
            }
        }
    } catch (const Error& error) {
        return Finding{.text = StrCat(own, ": ", error.what()), .is_certain = false};
    }
    if (const ncclResult_t state = State(); state != ncclSuccess && state != ncclInProgress) {
        const std::string what = pending_.empty() ? options_.with : Describe(pending_.front().operation);
        return Finding{.text = StrCat(own, ": NCCL: ", NcclErrorText(state), " in ", what), .is_certain = false};
    }
    if (!pending_.empty() && pending_.front().slow.has_value() &&
        Seconds(now - pending_.front().slow->since()) > options_.timeout_s) {
        return Finding{
            .text = StrCat(own, ": waited ", options_.timeout_s, " s for ", Describe(pending_.front().operation)),
            .is_certain = true};
    }
    return std::nullopt;
}

std::optional<NcclCommunicator::Outstanding> NcclCommunicator::FindOutstanding(Clock::time_point now) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    Pending* first = nullptr;
    if (lock.owns_lock() && call_.has_value()) {
        first = &*call_;
    } else if (lock.owns_lock() && !pending_.empty()) {
        first = &pending_.front();
    }
    if (first == nullptr || !first->slow.has_value()) {
        return std::nullopt;
    }
    SlowWait& slow = *first->slow;
    Outstanding outstanding = {.waiter = {.rank = options_.rank, .since = slow.since(), .awaited = options_.others}};
    if (now >= slow.due()) {
        slow.Told(now);
        outstanding.due_text = SlowWaitText(options_.rank, now - slow.since(), Describe(first->operation));
    }
    return outstanding;
}

ncclComm_t NcclCommunicator::TakeHandle() {
    const std::lock_guard lock(mutex_);
    is_ended_ = true;
    pending_.clear();
    return std::exchange(comm_, nullptr);
}

void NcclCommunicator::Abort() {
    if (const ncclComm_t comm = TakeHandle(); comm != nullptr) {
        ncclCommAbort(comm);  // what it returns changes nothing any more
    }
}

void NcclCommunicator::Finalize() {
    const std::lock_guard lock(mutex_);
    if (comm_ != nullptr) {
        ncclCommFinalize(comm_);  // its result is the state
    }
}

bool NcclCommunicator::IsIdle() {
    const std::lock_guard lock(mutex_);
    return comm_ == nullptr || State() != ncclInProgress;
}

void NcclCommunicator::Destroy() {
    bool is_sound = false;
    {
        const std::lock_guard lock(mutex_);
        is_sound = comm_ != nullptr && State() == ncclSuccess;
    }
    if (!is_sound) {
        Abort();
        return;
    }
    if (const ncclResult_t result = ncclCommDestroy(TakeHandle()); result != ncclSuccess) {
        LOG(WARNING) << "rank " << options_.rank << ": NCCL: " << NcclErrorText(result)
                     << " at the end of the communicator " << options_.with;
    }
}

}  // namespace infini_train::comm
