#include "infini_train/include/comm/local_ranks.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/local/local_process_group.h"
#include "infini_train/src/comm/local/local_world.h"

namespace infini_train::comm {
namespace {

/// The cores that this process may use, and no more than the calling thread's OpenMP would.
int NumCoresToShare() {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    // More cores than the set has bits: OpenMP counted them.
    const int num_cores = sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : omp_get_num_procs();
    return std::min(num_cores, omp_get_max_threads());
}

int NumThreads(const LocalRanksOptions& options, int rank, int num_cores) {
    const int num_ranks = options.shape.num_ranks();
    const int share = num_cores / num_ranks + (rank < num_cores % num_ranks ? 1 : 0);
    return options.threads_per_rank > 0 ? options.threads_per_rank : std::max(1, share);
}

/// The calling thread has as many OpenMP threads afterwards as it had before.
class KeepNumThreads {
 public:
    KeepNumThreads() : before_(omp_get_max_threads()) {}
    ~KeepNumThreads() { omp_set_num_threads(before_); }
    KeepNumThreads(const KeepNumThreads&) = delete;
    KeepNumThreads& operator=(const KeepNumThreads&) = delete;

 private:
    int before_;
};

/// The first error of all ranks, and how many have ended.
class Outcome {
 public:
    explicit Outcome(int num_ranks) : num_ranks_(num_ranks) {}

    void RankFailed(int rank, std::string_view what, Error::Kind kind) {
        const std::lock_guard lock(mutex_);
        if (!first_error_.has_value()) {
            // What waits for other ranks names its own already.
            const std::string own = StrCat("rank ", rank, ": ");
            what.remove_prefix(what.starts_with(own) ? own.size() : 0);
            first_error_ = Error({.what = StrCat("[rank ", rank, "] ", what), .kind = kind});
            changed_.notify_all();
        }
    }

    void RankEnded() {
        const std::lock_guard lock(mutex_);
        ++num_ended_;
        changed_.notify_all();
    }

    /// Waits for all ranks to end, for no more than grace_s from the first error on; then ends the process.
    void WaitForAll(double grace_s) {
        const auto ended = [&] { return num_ended_ == num_ranks_; };
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return ended() || first_error_.has_value(); });
        if (!changed_.wait_for(lock, std::chrono::duration<double>(grace_s), ended)) {
            std::fprintf(stderr, "%s\n", first_error_->what());
            // Not exit: it would destroy what the rank still uses.
            _exit(first_error_->exit_code());
        }
    }

    /// After WaitForAll.
    const std::optional<Error>& first_error() const { return first_error_; }

 private:
    int num_ranks_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::optional<Error> first_error_;
    int num_ended_ = 0;
};

/// One call of RunLocalRanks.
class LocalRun {
 public:
    LocalRun(const LocalRanksOptions& options, const std::function<void(const Mesh&)>& rank_main)
        : options_(options),
          rank_main_(rank_main),
          num_cores_(NumCoresToShare()),
          world_(std::make_shared<LocalWorld>(options.shape.num_ranks(), options.timeout_s)),
          outcome_(options.shape.num_ranks()) {
        std::vector<int> world_ranks(static_cast<size_t>(options.shape.num_ranks()));
        std::iota(world_ranks.begin(), world_ranks.end(), 0);
        all_ranks_ = std::make_shared<LocalGroup>(world_, std::move(world_ranks));
    }

    void OnTheCallingThread() {
        const KeepNumThreads keep_num_threads;
        try {
            RunRank(0);
        } catch (const Error&) {
            throw;
        } catch (const std::exception& exception) {
            throw Error({.what = exception.what(), .kind = Error::Kind::kRuntime});
        }
    }

    void OnAThreadARank() {
        std::vector<std::thread> threads;
        for (int rank = 0; rank < options_.shape.num_ranks(); ++rank) {
            try {
                threads.emplace_back([this, rank] { RunThread(rank); });
            } catch (const std::system_error& exception) {
                // The machine gives no more threads.
                Fail(rank, exception);
                outcome_.RankEnded();
            }
        }
        outcome_.WaitForAll(options_.grace_s);
        for (std::thread& thread : threads) {
            thread.join();
        }
        if (outcome_.first_error().has_value()) {
            throw *outcome_.first_error();
        }
    }

 private:
    void RunThread(int rank) {
        pthread_setname_np(pthread_self(), StrCat("rank ", rank).c_str());
        try {
            RunRank(rank);
        } catch (const std::exception& exception) {
            Fail(rank, exception);
        }
        outcome_.RankEnded();
    }

    void RunRank(int rank) {
        omp_set_num_threads(NumThreads(options_, rank, num_cores_));
        const Device device = MakeCpuDevice();
        rank_main_(MakeMesh(std::make_shared<LocalProcessGroup>(all_ranks_, rank, device), options_.shape, device));
    }

    void Fail(int rank, const std::exception& exception) {
        const auto* error = dynamic_cast<const Error*>(&exception);
        const bool is_bad_input = error != nullptr && error->exit_code() == 2;
        outcome_.RankFailed(rank, exception.what(), is_bad_input ? Error::Kind::kBadInput : Error::Kind::kRuntime);
        world_->Fail(rank);
    }

    const LocalRanksOptions& options_;
    const std::function<void(const Mesh&)>& rank_main_;
    int num_cores_;
    std::shared_ptr<LocalWorld> world_;
    std::shared_ptr<LocalGroup> all_ranks_;
    Outcome outcome_;
};

}  // namespace

void RunLocalRanks(const LocalRanksOptions& options, const std::function<void(const Mesh&)>& rank_main) {
    const MeshShape& shape = options.shape;
    CHECK(shape.tensor > 0 && shape.data > 0 && shape.pipeline > 0)
        << shape.tensor << " x " << shape.data << " x " << shape.pipeline << " ranks";
    CHECK_GE(options.threads_per_rank, 0);
    LocalRun run(options, rank_main);
    if (shape.num_ranks() == 1) {
        run.OnTheCallingThread();
    } else {
        run.OnAThreadARank();
    }
}

}  // namespace infini_train::comm
