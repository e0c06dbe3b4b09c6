// What the thread of a ControlPlane does: hear, answer, watch.
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/control_plane.h"
#include "infini_train/src/comm/wire.h"

namespace infini_train::comm {
namespace {

// The last word to the others must not wait for one that does not read.
constexpr double kFlushS = 1.0;
constexpr const char* kNoMessage = " sent what is no message of this protocol";

double SecondsSince(std::chrono::steady_clock::time_point time) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - time).count();
}

}  // namespace

void ControlPlane::Run() {
    pthread_setname_np(pthread_self(), "control");
    std::unique_lock lock(mutex_);
    // What has failed is told before the end.
    while (!is_left_ && !(stop_ && (!failure_.has_value() || is_failure_told_))) {
        const double wait_s = NextWait();
        lock.unlock();
        Poll(wait_s);
        lock.lock();
        for (Peer& peer : peers_) {
            Hear(&peer);
        }
        CheckAlive();
        if (is_root()) {
            AdvanceExchange();
            AdvanceLeave();
        }
        const bool is_flushed = FlushAll();
        if (all_left_at_.has_value() && (is_flushed || SecondsSince(*all_left_at_) > kFlushS)) {
            is_left_ = true;
            changed_.notify_all();
        } else if (failure_.has_value() && !is_failure_told_ && (is_flushed || SecondsSince(failed_at_) > kFlushS)) {
            is_failure_told_ = true;
            changed_.notify_all();
            lock.unlock();
            if (options_.on_failure) {
                options_.on_failure(*failure_);
            }
            lock.lock();
        }
    }
}

double ControlPlane::NextWait() const {
    const bool is_urgent = exchange_since_.has_value() || leave_since_.has_value() || all_left_at_.has_value() ||
                           (failure_.has_value() && !is_failure_told_);
    const double until_heartbeat = std::max(0.0, -SecondsSince(next_heartbeat_));
    return is_urgent ? std::min(0.05, until_heartbeat) : until_heartbeat;
}

void ControlPlane::Poll(double wait_s) const {
    std::vector<pollfd> fds = {{.fd = wake_.fd(), .events = POLLIN, .revents = 0}};
    {
        const std::lock_guard lock(mutex_);
        for (const Peer& peer : peers_) {
            if (peer.is_open()) {
                const int events = POLLIN | (peer.connection->has_output() ? POLLOUT : 0);
                fds.push_back({.fd = peer.connection->fd(), .events = static_cast<short>(events), .revents = 0});
            }
        }
    }
    // One that a signal interrupts is a short wait.
    (void)poll(fds.data(), fds.size(), static_cast<int>(wait_s * 1000) + 1);
    uint64_t count = 0;
    (void)!read(wake_.fd(), &count, sizeof(count));
}

void ControlPlane::Hear(Peer* peer) {
    // One may have ended already when the rendezvous gave it here.
    if (peer->is_end_heard) {
        return;
    }
    if (peer->connection->Receive()) {
        peer->last_heard = Clock::now();
    }
    while (const std::optional<Frame> frame = peer->connection->Next()) {
        if (is_root()) {
            HandleAtRoot(peer->process, *frame);
        } else {
            HandleFromRoot(*frame);
        }
    }
    peer->is_end_heard = !peer->is_open();
    if (peer->is_end_heard) {
        changed_.notify_all();
    }
    if (peer->connection->state() == FramedConnection::State::kStranger) {
        SetFailure(Name(peer->process) + kNoMessage);
    } else if (!peer->is_open() && !(is_root() && left_[static_cast<size_t>(peer->process)])) {
        SetFailure(Name(peer->process) + " ended", peer->process);
    }
}

void ControlPlane::HandleAtRoot(int process, const Frame& frame) {
    switch (frame.kind) {
        case FrameKind::kHeartbeat:
            break;
        case FrameKind::kText:
            SetText(process, frame.body);
            break;
        case FrameKind::kFailed:
            SetFailure(frame.body);
            break;
        case FrameKind::kWait:
            HandleWait(process, frame.body);
            break;
        case FrameKind::kGoodbye:
            left_[static_cast<size_t>(process)] = true;
            break;
        default:
            SetFailure(Name(process) + " sent a message that is for other processes");
    }
}

void ControlPlane::HandleWait(int process, const std::string& body) {
    WireReader reader(body);
    const std::optional<uint32_t> rank = reader.Number();
    const std::optional<uint32_t> is_timeout = reader.Number();
    const std::optional<std::string> waited_for = reader.Text();
    if (!rank.has_value() || !is_timeout.has_value() || !waited_for.has_value()) {
        SetFailure(Name(process) + kNoMessage);
        return;
    }
    waits_.push_back({.rank = static_cast<int>(*rank), .is_timeout = *is_timeout != 0, .waited_for = *waited_for});
    changed_.notify_all();
}

void ControlPlane::HandleFromRoot(const Frame& frame) {
    switch (frame.kind) {
        case FrameKind::kHeartbeat:
            break;
        case FrameKind::kText:
        case FrameKind::kLost:
            HandleOfProcess(frame);
            break;
        case FrameKind::kFailed:
            SetFailure(frame.body);
            break;
        case FrameKind::kAllLeft:
            all_left_at_ = Clock::now();
            break;
        default:
            SetFailure(Name(0) + " sent a message that is for other processes");
    }
}

void ControlPlane::HandleOfProcess(const Frame& frame) {
    WireReader reader(frame.body);
    const std::optional<uint32_t> process = reader.Number();
    const std::string text(reader.rest());
    if (!process.has_value() || *process >= texts_.size()) {
        SetFailure(Name(0) + kNoMessage);
    } else if (frame.kind == FrameKind::kText) {
        SetText(static_cast<int>(*process), text);
        AdvanceExchange();
    } else {
        SetFailure(text, static_cast<int>(*process));
    }
}

void ControlPlane::CheckAlive() {
    const bool beats = Clock::now() >= next_heartbeat_;
    if (beats) {
        next_heartbeat_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                             std::chrono::duration<double>(options_.heartbeat_s));
        if (IsLauncherGone(place_)) {
            SetFailure(StrCat(Name(place_.index), " was left behind: ", place_.launcher, " has ended"));
        }
    }
    // After a time in which this process itself did not run (Ctrl-Z, a computer that slept) the others get theirs anew.
    const bool was_stopped = SecondsSince(last_check_) > options_.silence_s / 2;
    last_check_ = Clock::now();
    for (Peer& peer : peers_) {
        if (!peer.is_open()) {
            continue;
        }
        if (was_stopped) {
            peer.last_heard = last_check_;
        }
        if (SecondsSince(peer.last_heard) > options_.silence_s) {
            SetFailure(StrCat(Name(peer.process), " has sent nothing for ", options_.silence_s, " s"), peer.process);
        }
        // What still waits to be written is as good a sign of life.
        if (beats && !peer.connection->has_output()) {
            peer.connection->Queue(FrameKind::kHeartbeat, "");
        }
    }
}

void ControlPlane::AdvanceExchange() {
    if (!exchange_since_.has_value() || failure_.has_value()) {
        return;
    }
    const std::vector<int> missing = Processes([&](size_t process) { return !texts_[process].has_value(); });
    if (missing.empty()) {
        exchanged_.emplace();
        for (size_t process = 0; process < texts_.size(); ++process) {
            if (is_root()) {
                WireWriter header;
                header.Number(static_cast<uint32_t>(process));
                TellAll(FrameKind::kText, header.bytes() + *texts_[process]);
            }
            exchanged_->push_back(*std::exchange(texts_[process], std::nullopt));
        }
        exchange_since_.reset();
        changed_.notify_all();
        return;
    }
    if (!is_root()) {
        return;
    }
    const std::vector<int> gone =
        Processes([&](size_t process) { return left_[process] && !texts_[process].has_value(); });
    const std::vector<int> waiting = Processes([&](size_t process) { return texts_[process].has_value(); });
    if (!gone.empty()) {
        SetFailure(StrCat(Names(gone), " left while ", Names(waiting), " went on"));
    } else if (SecondsSince(*exchange_since_) > options_.timeout_s) {
        SetFailure(StrCat(Names(missing), " did not come to exchange a text with ", Names(waiting), " within ",
                          options_.timeout_s, " s"));
    }
}

void ControlPlane::AdvanceLeave() {
    if (failure_.has_value() || all_left_at_.has_value()) {
        return;
    }
    const std::vector<int> left = Processes([&](size_t process) { return left_[process]; });
    const std::vector<int> others = Processes([&](size_t process) { return !left_[process]; });
    if (others.empty()) {
        all_left_at_ = Clock::now();
        TellAll(FrameKind::kAllLeft, "");
    } else if (!left.empty()) {
        leave_since_ = leave_since_.value_or(Clock::now());
        if (SecondsSince(*leave_since_) > options_.timeout_s) {
            SetFailure(StrCat(Names(left), " left, but ", Names(others), " did not within ", options_.timeout_s, " s"));
        }
    }
}

bool ControlPlane::FlushAll() {
    bool is_flushed = true;
    for (Peer& peer : peers_) {
        peer.connection->Flush();
        is_flushed = is_flushed && !(peer.is_open() && peer.connection->has_output());
    }
    return is_flushed;
}

void ControlPlane::TellAll(FrameKind kind, const std::string& body) {
    const auto bytes = FramedConnection::Encode(kind, body);
    for (Peer& peer : peers_) {
        if (peer.is_open()) {
            peer.connection->Queue(bytes);
        }
    }
}

std::vector<int> ControlPlane::Processes(const std::function<bool(size_t)>& condition) const {
    std::vector<int> processes;
    for (int process = 0; process < place_.num_processes; ++process) {
        if (condition(static_cast<size_t>(process))) {
            processes.push_back(process);
        }
    }
    return processes;
}

std::string ControlPlane::Names(const std::vector<int>& processes) const {
    std::string names;
    for (size_t i = 0; i < processes.size(); ++i) {
        names += i == 0 ? "" : i + 1 == processes.size() ? " and " : ", ";
        names += Name(processes[i]);
    }
    return names;
}

}  // namespace infini_train::comm
