#include "infini_train/include/comm/run_ranks.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "glog/logging.h"

#include "infini_train/include/comm/wait_error.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/control_plane.h"
#include "infini_train/src/comm/gloo_backend.h"
#include "infini_train/src/comm/local/local_ranks.h"
#include "infini_train/src/comm/nccl_backend.h"
#include "infini_train/src/comm/outcome.h"
#include "infini_train/src/comm/world.h"

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

int NumThreads(const RanksOptions& options, int rank, int num_cores) {
    const int num_ranks = options.num_ranks_of_process();
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

std::string What(const std::exception& exception) {
    const bool is_memory = dynamic_cast<const std::bad_alloc*>(&exception) != nullptr;
    return is_memory ? "there is no more memory (std::bad_alloc)" : exception.what();
}

/// One call of RunRanks.
class Run {
 public:
    Run(const RanksOptions& options, const std::function<void(const Mesh&)>& rank_main)
        : options_(options),
          rank_main_(rank_main),
          num_cores_(NumCoresToShare()),
          outcome_(options.num_ranks_of_process()) {
        const Transport transport = ChooseTransport(options).transport;
        control_ = ControlPlane::Connect(options.process, {.timeout_s = options.timeout_s,
                                                           .fingerprint = options.fingerprint,
                                                           .on_failure = [this](const std::string& why) {
                                                               outcome_.RunFailed(why);
                                                               FailWorld(why);
                                                           }});
        std::shared_ptr<World> world;
        if (transport == Transport::kNccl) {
            world = MakeNcclWorld();
        } else if (transport == Transport::kGloo) {
            world = MakeGlooWorld();
        } else {
            world = std::make_shared<LocalRanks>(options.shape.num_ranks(), options.timeout_s);
        }
        const std::lock_guard lock(mutex_);
        world_ = std::move(world);
        if (!early_failure_.empty()) {
            world_->Fail(early_failure_);
        }
    }

    void OnTheCallingThread() {
        const KeepNumThreads keep_num_threads;
        try {
            RunRank(0);
        } catch (const Error&) {
            throw;
        } catch (const std::exception& exception) {
            throw Error({.what = What(exception), .kind = Error::Kind::kRuntime});
        }
    }

    void OnAThreadARank() {
        std::vector<std::thread> threads;
        for (int thread = 0; thread < options_.num_ranks_of_process(); ++thread) {
            try {
                threads.emplace_back([this, thread] { RunThread(thread); });
            } catch (const std::system_error& exception) {
                // The machine gives no more threads.
                Fail(options_.first_rank() + thread, exception);
                outcome_.RankEnded();
            }
        }
        outcome_.WaitForAll(options_.grace_s);
        for (std::thread& thread : threads) {
            thread.join();
        }
        if (outcome_.first_error().has_value()) {
            throw WithItsWait(*outcome_.first_error());
        }
        control_->Leave();
        // Its watchdog must not tell a connection to the other processes that has ended.
        std::shared_ptr<World> world;
        const std::lock_guard lock(mutex_);
        std::swap(world, world_);
    }

 private:
    std::shared_ptr<World> MakeNcclWorld() {
        const std::string id = options_.process.index == 0 ? nccl_backend.make_unique_id() : "";
        return nccl_backend.make_world({.num_ranks = options_.shape.num_ranks(),
                                        .unique_id = control_->ExchangeText(id).front(),
                                        .timeout_s = options_.timeout_s,
                                        .on_failure = [this](const std::string& why) {
                                            if (outcome_.RunFailed(why)) {
                                                control_->Fail(why);
                                            }
                                        }});
    }

    std::shared_ptr<World> MakeGlooWorld() {
        std::vector<std::string> names;
        for (int process = 0; process < options_.process.num_processes; ++process) {
            names.push_back(control_->Name(process));
        }
        return gloo_backend.make_world(
            {.place = options_.process,
             .num_ranks = options_.shape.num_ranks(),
             .timeout_s = options_.timeout_s,
             .process_names = std::move(names),
             .exchange_text = [this](const std::string& text) { return control_->ExchangeText(text); }});
    }

    void RunThread(int thread) {
        const int rank = options_.first_rank() + thread;
        pthread_setname_np(pthread_self(), StrCat("rank ", rank).c_str());
        try {
            RunRank(thread);
        } catch (const std::exception& exception) {
            Fail(rank, exception);
        }
        outcome_.RankEnded();
    }

    void RunRank(int thread) {
        omp_set_num_threads(NumThreads(options_, thread, num_cores_));
        const int place = options_.process.local_index * options_.num_ranks_of_process() + thread;
        const Device device = options_.device == DeviceType::kCUDA
                                  ? MakeCudaDevice(place % std::max(1, NumCudaDevices()))
                                  : MakeCpuDevice();
        rank_main_(MakeMesh(world_->Join(options_.first_rank() + thread, device), options_.shape, device));
    }

    /// Somebody waited for the process that was lost.
    void TellWait(const WaitError::Wait& wait) {
        const std::optional<int> lost = control_->lost_process();
        if (lost.has_value() && wait.waited_for.find(control_->Name(*lost)) != std::string::npos) {
            control_->TellWait(StrCat("rank ", wait.rank, " waited for ", wait.waited_for));
        }
    }

    /// The loss of a process with what was waited for from it.
    Error WithItsWait(const Error& error) {
        const std::optional<int> lost = control_->lost_process();
        if (!lost.has_value() || !std::string_view(error.what()).starts_with(control_->Name(*lost))) {
            return error;
        }
        const std::string wait = control_->FirstWait();
        return wait.empty() ? error
                            : Error({.what = StrCat(error.what(), " while ", wait), .kind = Error::Kind::kRuntime});
    }

    void Fail(int rank, const std::exception& exception) {
        if (const auto* wait_error = dynamic_cast<const WaitError*>(&exception); wait_error != nullptr) {
            TellWait(wait_error->wait());
        }
        const auto* error = dynamic_cast<const Error*>(&exception);
        const bool is_bad_input = error != nullptr && error->exit_code() == 2;
        const std::string what = What(exception);
        const bool is_first =
            outcome_.RankFailed(rank, what, is_bad_input ? Error::Kind::kBadInput : Error::Kind::kRuntime);
        // The ranks of this process first, whose errors then name the rank alone: Fail calls on_failure here, too.
        FailWorld(StrCat("rank ", rank, " failed"));
        if (is_first) {
            control_->Fail(RankErrorText(rank, what));
        }
    }

    /// The connection to the other processes is there before the world is.
    void FailWorld(const std::string& why) {
        std::shared_ptr<World> world;
        {
            const std::lock_guard lock(mutex_);
            world = world_;
            early_failure_ = world == nullptr && early_failure_.empty() ? why : early_failure_;
        }
        if (world != nullptr) {
            world->Fail(why);
        }
    }

    const RanksOptions& options_;
    const std::function<void(const Mesh&)>& rank_main_;
    int num_cores_;
    Outcome outcome_;
    std::mutex mutex_;  // over what follows
    std::shared_ptr<World> world_;
    std::string early_failure_;              // before there was a world
    std::unique_ptr<ControlPlane> control_;  // last, so that its thread ends before what it calls
};

}  // namespace

void RunRanks(const RanksOptions& options, const std::function<void(const Mesh&)>& rank_main) {
    const MeshShape& shape = options.shape;
    CHECK(shape.tensor > 0 && shape.data > 0 && shape.pipeline > 0)
        << shape.tensor << " x " << shape.data << " x " << shape.pipeline << " ranks";
    CHECK_GE(options.threads_per_rank, 0);
    Run run(options, rank_main);
    if (shape.num_ranks() == 1) {
        run.OnTheCallingThread();
    } else {
        run.OnAThreadARank();
    }
}

}  // namespace infini_train::comm
