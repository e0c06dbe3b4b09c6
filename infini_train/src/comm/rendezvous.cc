#include "infini_train/src/comm/rendezvous.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/hello.h"
#include "infini_train/src/comm/process_names.h"
#include "infini_train/src/comm/slow_wait.h"
#include "infini_train/src/comm/wire.h"

namespace infini_train::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Connection = std::unique_ptr<FramedConnection>;

// A hello or a welcome: far more than a fingerprint or a list of hosts has.
constexpr size_t kMaxHelloBytes = size_t{1} << 20;
// After a fault, for those who are still on their way: so that they hear of it, too.
constexpr double kGraceS = 3.0;
// For a few bytes to go out.
constexpr double kFlushS = 2.0;
// Process 0 knows best what is wrong, so the others wait longer than it does; but for a process 0 that has stopped not
// for ever.
constexpr double kAnswerMarginS = kFlushS + 1.0;

Clock::time_point After(double seconds) {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

double SecondsUntil(Clock::time_point time) {
    return std::chrono::duration<double>(time - Clock::now()).count();
}

int64_t WholeSecondsSince(Clock::time_point time) {
    return std::chrono::round<std::chrono::seconds>(Clock::now() - time).count();
}

std::string Address(const ProcessPlace& place) {
    return StrCat(place.master_address, " port ", place.master_port);
}

/// Waits until one of them can be read, or written if it has output; at most until the deadline.
void Poll(const std::vector<FramedConnection*>& connections, const Descriptor* listener, Clock::time_point deadline) {
    std::vector<pollfd> fds;
    for (const FramedConnection* connection : connections) {
        const int events = POLLIN | (connection->has_output() ? POLLOUT : 0);
        fds.push_back({.fd = connection->fd(), .events = static_cast<short>(events), .revents = 0});
    }
    if (listener != nullptr) {
        fds.push_back({.fd = listener->fd(), .events = POLLIN, .revents = 0});
    }
    const double wait_s = std::clamp(SecondsUntil(deadline), 0.0, 1.0);
    // Rounded up: a wait of a fraction of a millisecond must not become a loop that burns a core. What a signal
    // interrupts is looked at again by the caller.
    (void)poll(fds.data(), fds.size(), static_cast<int>(wait_s * 1000) + 1);
}

/// Nobody would end a process that waits for the others.
void CheckLauncher(const ProcessPlace& place) {
    if (IsLauncherGone(place)) {
        throw Error(
            {.what = StrCat(ProcessName(place.index, HostName()), " was left behind: ", place.launcher, " has ended"),
             .kind = Error::Kind::kRuntime});
    }
}

/// Process 0's side.
class Reception {
 public:
    Reception(const ProcessPlace& place, double timeout_s, const std::string& fingerprint)
        : place_(place),
          timeout_s_(timeout_s),
          fingerprint_(fingerprint),
          listener_(Listen(place.master_address, place.master_port)),
          deadline_(After(timeout_s)),
          num_expected_(place.num_processes - 1),
          address_note_(ProblemOfOwnAddress(place.master_address)) {
        met_.connections.resize(static_cast<size_t>(place.num_processes));
        met_.hosts.resize(met_.connections.size());
        met_.hosts[0] = HostName();
    }

    Met Receive() {
        SlowWait slow(timeout_s_, Clock::now());
        while (num_came_ < num_expected_ && Clock::now() < deadline_) {
            if (Clock::now() >= slow.due()) {
                LOG_IF(WARNING, !fault_.has_value())
                    << OwnName() << " has waited " << WholeSecondsSince(slow.since()) << " s for " << MissingNames()
                    << " to come to " << Address(place_) << address_note_ << note_;
                slow.Told(Clock::now());
            }
            Poll(Open(), &listener_, std::min(deadline_, slow.due()));
            while (std::optional<Descriptor> socket = Accept(listener_)) {
                strangers_.push_back(std::make_unique<FramedConnection>(*std::move(socket), kMaxHelloBytes));
            }
            HearStrangers();
            HearGuests();
            CheckLauncher(place_);
        }
        if (!fault_.has_value() && num_came_ < num_expected_) {
            Fault(StrCat(MissingNames(), " did not come to ", Address(place_), " within ", timeout_s_, " s",
                         address_note_, note_),
                  Error::Kind::kRuntime);
        }
        if (fault_.has_value()) {
            const auto refusal = fault_->exit_code() == 2 ? Refusal::kBadInput : Refusal::kRuntime;
            SendAll(FrameKind::kRefused,
                    WireWriter().Number(static_cast<uint32_t>(refusal)).Text(fault_->what()).bytes());
            throw *fault_;
        }
        WireWriter hosts;
        for (const std::string& host : met_.hosts) {
            hosts.Text(host);
        }
        SendAll(FrameKind::kWelcome, hosts.bytes());
        return std::move(met_);
    }

 private:
    void Fault(const std::string& what, Error::Kind kind) {
        if (!fault_.has_value()) {
            fault_ = Error({.what = what, .kind = kind});
            deadline_ = std::min(deadline_, After(kGraceS));
        }
    }

    std::vector<FramedConnection*> Open() const {
        std::vector<FramedConnection*> open;
        for (const auto* list : {&strangers_, &met_.connections, &turned_away_}) {
            for (const Connection& connection : *list) {
                if (connection != nullptr && connection->state() == FramedConnection::State::kOpen) {
                    open.push_back(connection.get());
                }
            }
        }
        return open;
    }

    /// Those who have not said who they are.
    void HearStrangers() {
        for (Connection& stranger : strangers_) {
            stranger->Flush();
            stranger->Receive();
            const std::optional<Frame> frame = stranger->Next();
            if (frame.has_value()) {
                const std::optional<Hello> hello =
                    frame->kind == FrameKind::kHello ? DecodeHello(frame->body) : std::nullopt;
                if (hello.has_value()) {
                    Admit(*hello, std::move(stranger));
                } else {
                    Refuse(stranger.get(), OwnName() + " takes it for no process of a run");
                    stranger.reset();
                }
            } else if (stranger->state() != FramedConnection::State::kOpen) {
                stranger.reset();
            }
        }
        std::erase(strangers_, nullptr);
    }

    void Refuse(FramedConnection* stranger, const std::string& why) {
        stranger->Queue(FrameKind::kRefused,
                        WireWriter().Number(static_cast<uint32_t>(Refusal::kOtherJob)).Text(why).bytes());
        stranger->Flush();
    }

    void Admit(const Hello& hello, Connection connection) {
        if (hello.job_id != place_.job_id) {
            Refuse(connection.get(), StrCat(OwnName(), " belongs to another run (its job id is '", place_.job_id,
                                            "', ours '", hello.job_id, "')"));
            note_ = StrCat("; a process of another run came (", hello.host, ", job id '", hello.job_id, "', ours is '",
                           place_.job_id, "')");
            return;
        }
        ++num_came_;
        num_expected_ = std::max(num_expected_, hello.num_processes - 1);  // they are to hear of the fault, too
        const std::string name = ProcessName(hello.index, hello.host);
        const std::string difference = FingerprintDifference(hello.fingerprint, fingerprint_);
        if (hello.version != kProtocolVersion) {
            Fault(StrCat(name, " runs another version of this program than ", OwnName(), ": protocol ", hello.version,
                         " there, ", kProtocolVersion, " here"),
                  Error::Kind::kBadInput);
        } else if (hello.num_processes != place_.num_processes) {
            Fault(StrCat(name, " was started as one of ", hello.num_processes, " processes, ", OwnName(), " as one of ",
                         place_.num_processes),
                  Error::Kind::kBadInput);
        } else if (hello.index < 0 || hello.index >= place_.num_processes || !HostOf(hello.index).empty()) {
            const bool is_taken = hello.index >= 0 && hello.index < place_.num_processes;
            Fault(StrCat(name, is_taken ? " came twice, the other is on " + HostOf(hello.index)
                                        : StrCat(" of ", place_.num_processes, " came")),
                  Error::Kind::kBadInput);
        } else if (!difference.empty()) {
            Fault(StrCat(name, " was started otherwise than ", OwnName(), ": ", difference), Error::Kind::kBadInput);
        } else {
            met_.hosts[static_cast<size_t>(hello.index)] = hello.host;
            met_.connections[static_cast<size_t>(hello.index)] = std::move(connection);
            return;
        }
        turned_away_.push_back(std::move(connection));
    }

    std::string OwnName() const { return ProcessName(0, met_.hosts[0]); }
    const std::string& HostOf(int index) const { return met_.hosts[static_cast<size_t>(index)]; }

    void HearGuests() {
        for (int index = 1; index < place_.num_processes; ++index) {
            FramedConnection* guest = met_.connections[static_cast<size_t>(index)].get();
            if (guest == nullptr) {
                continue;
            }
            guest->Receive();
            if (guest->state() != FramedConnection::State::kOpen) {
                Fault(ProcessName(index, HostOf(index)) + " ended before all processes had come",
                      Error::Kind::kRuntime);
            }
        }
    }

    std::string MissingNames() const {
        std::vector<int> missing;
        for (int index = 1; index < place_.num_processes; ++index) {
            if (met_.connections[static_cast<size_t>(index)] == nullptr) {
                missing.push_back(index);
            }
        }
        return StrCat(ProcessNames(missing), " of ", place_.num_processes);
    }

    /// To all who have said that they belong to this run.
    void SendAll(FrameKind kind, const std::string& body) {
        strangers_.clear();
        const auto bytes = FramedConnection::Encode(kind, body);
        for (FramedConnection* connection : Open()) {
            connection->Queue(bytes);
        }
        const auto deadline = After(kFlushS);
        for (bool is_pending = true; is_pending && Clock::now() < deadline;) {
            is_pending = false;
            for (FramedConnection* connection : Open()) {
                connection->Flush();
                is_pending = is_pending || connection->has_output();
            }
            if (is_pending) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
        }
    }

    const ProcessPlace& place_;
    double timeout_s_;
    const std::string& fingerprint_;
    Descriptor listener_;
    Clock::time_point deadline_;
    std::vector<Connection> strangers_;
    std::vector<Connection> turned_away_;  // of this run, and wrong
    Met met_;                              // a host's name: this process has come
    int num_came_ = 0;
    int num_expected_;
    std::optional<Error> fault_;  // the first
    std::string address_note_;    // why a process may not find the way here
    std::string note_;            // of whom was sent away, for the one who looks for a missing process
};

/// The other processes' side.
class Visit {
 public:
    Visit(const ProcessPlace& place, double timeout_s, const std::string& fingerprint)
        : place_(place),
          timeout_s_(timeout_s),
          hello_(EncodeHello({.index = place.index,
                              .num_processes = place.num_processes,
                              .job_id = place.job_id,
                              .host = HostName(),
                              .fingerprint = fingerprint})),
          deadline_(After(timeout_s)) {}

    Met Make() {
        std::string problem = "no answer";
        SlowWait slow(timeout_s_, Clock::now());
        do {
            CheckLauncher(place_);
            std::optional<Descriptor> socket =
                TryConnect(place_.master_address, place_.master_port, std::min(5.0, SecondsUntil(deadline_)), &problem);
            if (socket.has_value()) {
                auto connection = std::make_unique<FramedConnection>(*std::move(socket), kMaxHelloBytes);
                connection->Queue(FrameKind::kHello, hello_);
                if (std::optional<std::vector<std::string>> hosts = WaitForWelcome(connection.get(), &problem)) {
                    Met met = {.hosts = *std::move(hosts)};
                    met.connections.resize(met.hosts.size());
                    met.connections[0] = std::move(connection);
                    return met;
                }
            }
            if (Clock::now() >= slow.due()) {
                LOG(WARNING) << ProcessName(place_.index, HostName()) << " has tried for "
                             << WholeSecondsSince(slow.since()) << " s to reach process 0 at " << Address(place_)
                             << ": " << problem;
                slow.Told(Clock::now());
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        } while (Clock::now() < deadline_);
        throw Fault(StrCat("was not reached within ", timeout_s_, " s: ", problem));
    }

 private:
    Error Fault(const std::string& what) const {
        return Error({.where = StrCat("process ", place_.index),
                      .what = StrCat("process 0 at ", Address(place_), " ", what),
                      .kind = Error::Kind::kRuntime});
    }

    /// The hosts. Nothing when it is not our process 0 who listens there: *problem says what was seen.
    std::optional<std::vector<std::string>> WaitForWelcome(FramedConnection* connection, std::string* problem) {
        // A stranger who says nothing is left at the time-out, process 0 may take until its own.
        const auto last_moment = After(timeout_s_ + kAnswerMarginS);
        while (true) {
            connection->Flush();
            connection->Receive();
            if (const std::optional<Frame> frame = connection->Next()) {
                if (frame->kind == FrameKind::kWelcome) {
                    return DecodeHosts(frame->body);
                }
                ThrowIfRefused(*frame, problem);
                return std::nullopt;
            }
            if (connection->state() == FramedConnection::State::kStranger) {
                *problem = "another program listens there";
                return std::nullopt;
            }
            if (connection->state() == FramedConnection::State::kEnded) {
                if (connection->is_one_of_ours()) {
                    throw Fault("ended before all processes had come");
                }
                *problem = "the connection was closed at once: another program listens there";
                return std::nullopt;
            }
            const auto deadline = connection->is_one_of_ours() ? last_moment : deadline_;
            if (Clock::now() >= deadline) {
                *problem = "it takes connections, but does not answer";
                return std::nullopt;
            }
            Poll({connection}, nullptr, deadline);
            CheckLauncher(place_);
        }
    }

    std::vector<std::string> DecodeHosts(const std::string& body) const {
        WireReader reader(body);
        std::vector<std::string> hosts;
        for (int index = 0; index < place_.num_processes; ++index) {
            hosts.push_back(reader.Text().value_or("unknown host"));
        }
        return hosts;
    }

    static void ThrowIfRefused(const Frame& frame, std::string* problem) {
        WireReader reader(frame.body);
        const auto refusal = static_cast<Refusal>(reader.Number().value_or(0));
        const std::string why = reader.Text().value_or("no reason was given");
        if (frame.kind != FrameKind::kRefused) {
            *problem = "it sent what is no answer";
        } else if (refusal == Refusal::kOtherJob) {
            *problem = why;
        } else {
            throw Error(
                {.what = why, .kind = refusal == Refusal::kBadInput ? Error::Kind::kBadInput : Error::Kind::kRuntime});
        }
    }

    const ProcessPlace& place_;
    double timeout_s_;
    std::string hello_;
    Clock::time_point deadline_;
};

}  // namespace

Met Rendezvous(const ProcessPlace& place, double timeout_s, const std::string& fingerprint) {
    CHECK(0 <= place.index && place.index < place.num_processes && place.num_processes > 1)
        << place.index << " of " << place.num_processes;
    CHECK_LT(fingerprint.size(), kMaxHelloBytes / 2);
    return place.index == 0 ? Reception(place, timeout_s, fingerprint).Receive()
                            : Visit(place, timeout_s, fingerprint).Make();
}

}  // namespace infini_train::comm
