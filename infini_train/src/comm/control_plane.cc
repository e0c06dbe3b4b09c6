#include "infini_train/src/comm/control_plane.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/process_names.h"
#include "infini_train/src/comm/rendezvous.h"
#include "infini_train/src/comm/thread_signals.h"
#include "infini_train/src/comm/wire.h"

namespace infini_train::comm {
namespace {

constexpr size_t kMaxTextBytes = size_t{64} << 20;
// Of the caller of Fail, until process 0 has answered.
constexpr double kFailS = 2.0;
// Of process 0, for the others to say what they waited for.
constexpr double kWaitsS = 1.0;
// A computer that is busy may keep a process from its heartbeat for as long.
constexpr double kLeastSilenceS = 2.0;

}  // namespace

std::unique_ptr<ControlPlane> ControlPlane::Connect(const ProcessPlace& place, const Options& options) {
    return std::unique_ptr<ControlPlane>(new ControlPlane(place, options));
}

ControlPlane::ControlPlane(const ProcessPlace& place, const Options& options)
    : place_(place),
      options_(options),
      wake_(-1),
      texts_(static_cast<size_t>(place.num_processes)),
      left_(static_cast<size_t>(place.num_processes)) {
    if (place.num_processes == 1) {
        hosts_ = {HostName()};
        return;
    }
    options_.silence_s = std::min(options.silence_s, std::max(kLeastSilenceS, options.timeout_s / 2));
    // What a process has not checked for half of silence_s it has slept through.
    options_.heartbeat_s = std::min(options.heartbeat_s, options_.silence_s / 4);
    Met met = Rendezvous(place, options.timeout_s, options.fingerprint);
    hosts_ = std::move(met.hosts);
    for (int process = 0; process < place.num_processes; ++process) {
        auto& connection = met.connections[static_cast<size_t>(process)];
        if (connection != nullptr) {
            connection->set_max_body_bytes(kMaxTextBytes + sizeof(uint32_t));
            peers_.push_back({.process = process, .connection = std::move(connection), .last_heard = Clock::now()});
        }
    }
    wake_ = Descriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    PCHECK(wake_.fd() >= 0) << "eventfd";
    next_heartbeat_ = Clock::now();
    last_check_ = Clock::now();
    const BlockSignals block_signals;
    thread_ = std::thread([this] { Run(); });
}

ControlPlane::~ControlPlane() {
    if (!thread_.joinable()) {
        return;
    }
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    Wake();
    thread_.join();
}

std::string ControlPlane::Name(int process) const {
    return ProcessName(process, hosts_[static_cast<size_t>(process)]);
}

void ControlPlane::ThrowIfFailed() const {
    if (failure_.has_value()) {
        throw Error({.what = *failure_, .kind = Error::Kind::kRuntime});
    }
}

void ControlPlane::Wake() const {
    const uint64_t one = 1;
    // Fails only when the event has been set more often than it can count.
    (void)!write(wake_.fd(), &one, sizeof(one));
}

std::vector<std::string> ControlPlane::ExchangeText(const std::string& text) {
    if (text.size() > kMaxTextBytes) {
        throw Error({.where = Name(place_.index),
                     .what = "a text to exchange is too long",
                     .got = StrCat(text.size(), " bytes"),
                     .wanted = StrCat("at most ", kMaxTextBytes),
                     .kind = Error::Kind::kRuntime});
    }
    const std::lock_guard turn(exchange_mutex_);
    std::unique_lock lock(mutex_);
    CHECK(!left_[static_cast<size_t>(place_.index)]) << "an exchange after Leave";
    ThrowIfFailed();
    if (place_.num_processes == 1) {
        return {text};
    }
    if (is_root()) {
        SetText(0, text);
    } else {
        peers_[0].connection->Queue(FrameKind::kText, text);
    }
    Wake();
    // It ends: process 0 fails the run when somebody does not come in time, and its own loss is a failure.
    changed_.wait(lock, [&] { return exchanged_.has_value() || failure_.has_value(); });
    if (!exchanged_.has_value()) {
        ThrowIfFailed();
    }
    return *std::exchange(exchanged_, std::nullopt);
}

void ControlPlane::Fail(const std::string& why) {
    std::unique_lock lock(mutex_);
    if (is_left_) {
        return;
    }
    if (place_.num_processes == 1) {
        if (failure_.has_value()) {
            return;
        }
        SetFailure(why);
        lock.unlock();
        if (options_.on_failure) {
            options_.on_failure(why);
        }
        return;
    }
    if (is_root() || failure_.has_value()) {
        SetFailure(why);
    } else {
        peers_[0].connection->Queue(FrameKind::kFailed, why);
    }
    Wake();
    const auto known = [&] { return is_failure_told_ || is_left_; };
    if (!changed_.wait_for(lock, std::chrono::duration<double>(kFailS), known)) {
        SetFailure(why);
        Wake();
    }
}

void ControlPlane::Leave() {
    std::unique_lock lock(mutex_);
    CHECK(!left_[static_cast<size_t>(place_.index)]) << "Leave was called before";
    ThrowIfFailed();
    left_[static_cast<size_t>(place_.index)] = true;
    if (place_.num_processes == 1) {
        is_left_ = true;
        return;
    }
    if (!is_root()) {
        peers_[0].connection->Queue(FrameKind::kGoodbye, "");
    }
    Wake();
    // It ends, as an exchange does.
    changed_.wait(lock, [&] { return is_left_ || failure_.has_value(); });
    if (!is_left_) {
        ThrowIfFailed();
    }
}

std::optional<int> ControlPlane::lost_process() const {
    const std::lock_guard lock(mutex_);
    return lost_process_;
}

void ControlPlane::TellWait(const RankWait& wait) {
    const std::lock_guard lock(mutex_);
    waits_.push_back(wait);
    if (!is_root() && peers_[0].is_open()) {
        peers_[0].connection->Queue(FrameKind::kWait, WireWriter()
                                                          .Number(static_cast<uint32_t>(wait.rank))
                                                          .Number(wait.is_timeout ? 1 : 0)
                                                          .Text(wait.waited_for)
                                                          .bytes());
        peers_[0].connection->Flush();  // the plane's thread may not come to it again
    }
    changed_.notify_all();
}

std::vector<ControlPlane::RankWait> ControlPlane::Waits(const AreEnough& are_enough) {
    std::unique_lock lock(mutex_);
    const auto all_are_known = [&] {
        return !is_root() || are_enough(waits_) ||
               std::none_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.is_open(); });
    };
    changed_.wait_for(lock, std::chrono::duration<double>(kWaitsS), all_are_known);
    return waits_;
}

void ControlPlane::SetFailure(const std::string& why, std::optional<int> lost_process) {
    if (failure_.has_value() || all_left_at_.has_value()) {
        return;
    }
    failure_ = why;
    lost_process_ = lost_process;
    failed_at_ = Clock::now();
    if (is_root() && lost_process.has_value()) {
        TellAll(FrameKind::kLost, WireWriter().Number(static_cast<uint32_t>(*lost_process)).bytes() + why);
    } else if (is_root()) {
        TellAll(FrameKind::kFailed, why);
    }
    changed_.notify_all();
}

void ControlPlane::SetText(int process, const std::string& text) {
    texts_[static_cast<size_t>(process)] = text;
    exchange_since_ = exchange_since_.value_or(Clock::now());
}

}  // namespace infini_train::comm
