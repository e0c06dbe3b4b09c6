#include "infini_train/include/comm/run_ranks.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "glog/logging.h"

#include "infini_train/include/comm/wait_error.h"
#include "infini_train/include/common/env.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/error_text.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/control_plane.h"
#include "infini_train/src/comm/gloo_backend.h"
#include "infini_train/src/comm/local/local_ranks.h"
#include "infini_train/src/comm/nccl_backend.h"
#include "infini_train/src/comm/outcome.h"
#include "infini_train/src/comm/world.h"

namespace infini_train::comm {
namespace {

/// The cores that this process may use, and no more than the calling thread's OpenMP would. Of a host's cores, which
/// no launcher has given to one process, its share.
int NumCoresToShare(const ProcessPlace& process) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    // More cores than the set has bits: OpenMP counted them.
    const int num_cores = sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : omp_get_num_procs();
    const bool is_shared = num_cores == sysconf(_SC_NPROCESSORS_ONLN) && !ReadEnv("OMP_NUM_THREADS").has_value();
    const int num_own = is_shared ? std::max(1, num_cores / process.num_local) : num_cores;
    return std::min(num_own, omp_get_max_threads());
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

using RankWaits = std::vector<ControlPlane::RankWait>;

/// One call of RunRanks.
class Run {
 public:
    Run(const RanksOptions& options, const std::function<void(const Mesh&)>& rank_main)
        : options_(options),
          rank_main_(rank_main),
          num_cores_(NumCoresToShare(options.process)),
          outcome_(options.num_ranks_of_process()) {
        const Transport transport = ChooseTransport(options).transport;
        control_ = ControlPlane::Connect(options.process, {.timeout_s = options.timeout_s,
                                                           .fingerprint = options.fingerprint,
                                                           .on_failure = [this](const std::string& why) {
                                                               outcome_.RunFailed(why);
                                                               FailWorld(why);
                                                           }});
        std::shared_ptr<World> world;
        try {
            world = MakeWorld(transport);
        } catch (const Error& error) {
            control_->Fail(error.what());  // so that the others do not only see this process end
            throw;
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
            throw Error({.what = ErrorText(exception), .kind = Error::Kind::kRuntime});
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
        if (!outcome_.WaitForAll(options_.grace_s)) {
            const Error error = WithWaits(*outcome_.FirstError());
            std::fprintf(stderr, "%s\n", error.what());
            // Not exit: it would destroy what the rank still uses.
            _exit(error.exit_code());
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
        // Another process may fail after the ranks of this one have ended.
        if (const std::optional<Error> first_error = outcome_.FirstError(); first_error.has_value()) {
            throw WithWaits(*first_error);
        }
        control_->Leave();
        // Its watchdog must not tell a connection to the other processes that has ended.
        std::shared_ptr<World> world;
        const std::lock_guard lock(mutex_);
        std::swap(world, world_);
    }

 private:
    std::shared_ptr<World> MakeWorld(Transport transport) {
        if (transport == Transport::kNccl) {
            return MakeNcclWorld();
        }
        if (transport == Transport::kGloo) {
            return MakeGlooWorld();
        }
        return std::make_shared<LocalRanks>(options_.shape.num_ranks(), options_.timeout_s);
    }

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

    /// The loss of a process with what was waited for from it; a time-out with the ranks that it began with.
    Error WithWaits(const Error& error) {
        const std::string_view text = error.what();
        const std::optional<int> lost = control_->lost_process();
        std::string more;
        if (lost.has_value() && text.starts_with(control_->Name(*lost))) {
            more = WaitForLost(control_->Name(*lost));
        } else if (const RankWaits waits = control_->Waits([](const RankWaits&) { return true; });
                   std::any_of(waits.begin(), waits.end(), [&](const ControlPlane::RankWait& wait) {
                       return wait.is_timeout && text.starts_with(StrCat("[rank ", wait.rank, "] waited "));
                   })) {
            more = RanksThatDidNotWait();
        }
        return more.empty() ? error : Error({.what = StrCat(text, more), .kind = Error::Kind::kRuntime});
    }

    /// " while rank 1 waited for WHAT from rank 2 of process 2 (host)": where nobody did, what somebody else waited
    /// for.
    std::string WaitForLost(const std::string& lost) {
        const auto is_for_lost = [&](const ControlPlane::RankWait& wait) {
            return wait.waited_for.find(lost) != std::string::npos;
        };
        const RankWaits waits = control_->Waits(
            [&](const RankWaits& so_far) { return std::any_of(so_far.begin(), so_far.end(), is_for_lost); });
        if (waits.empty()) {
            return "";
        }
        const auto found = std::find_if(waits.begin(), waits.end(), is_for_lost);
        const ControlPlane::RankWait& wait = found == waits.end() ? waits.front() : *found;
        return StrCat(" while rank ", wait.rank, " waited for ", wait.waited_for);
    }

    /// "; rank 2 of process 2 (host) waited for nobody": of the run, where this is process 0. Among threads alone the
    /// warning before the time-out has named that rank.
    std::string RanksThatDidNotWait() {
        if (options_.process.index != 0 || options_.process.num_processes == 1) {
            return "";
        }
        std::vector<bool> waited(static_cast<size_t>(options_.shape.num_ranks()));
        const RankWaits waits =
            control_->Waits([&](const RankWaits& so_far) { return so_far.size() >= waited.size(); });
        for (const ControlPlane::RankWait& wait : waits) {
            if (const auto rank = static_cast<size_t>(wait.rank); rank < waited.size()) {  // it came from outside
                waited[rank] = true;
            }
        }
        std::string text;
        for (size_t rank = 0; rank < waited.size(); ++rank) {
            const int process = static_cast<int>(rank) / options_.num_ranks_of_process();
            text += waited[rank] ? "" : StrCat("; rank ", rank, " of ", control_->Name(process), " waited for nobody");
        }
        return text;
    }

    void Fail(int rank, const std::exception& exception) {
        if (const auto* wait_error = dynamic_cast<const WaitError*>(&exception); wait_error != nullptr) {
            const WaitError::Wait& wait = wait_error->wait();
            control_->TellWait({.rank = rank, .is_timeout = wait.failure.empty(), .waited_for = wait.waited_for});
        }
        const auto* error = dynamic_cast<const Error*>(&exception);
        const bool is_bad_input = error != nullptr && error->exit_code() == 2;
        const std::string what = ErrorText(exception);
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
