#include "infini_train/src/comm/reception.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/hello.h"
#include "infini_train/src/comm/process_names.h"
#include "infini_train/src/comm/rendezvous_wait.h"
#include "infini_train/src/comm/slow_wait.h"
#include "infini_train/src/comm/wire.h"

namespace infini_train::comm {
namespace {

using Clock = RendezvousClock;
using Connection = std::unique_ptr<FramedConnection>;

// After a fault, for those who are still on their way: so that they hear of it, too.
constexpr double kGraceS = 3.0;

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
            bool is_full = false;
            while (std::optional<Descriptor> socket = Accept(listener_, &is_full)) {
                strangers_.push_back(std::make_unique<FramedConnection>(*std::move(socket), kMaxHelloBytes));
            }
            HearStrangers();
            if (is_full) {
                MakeRoom();
            }
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

    /// This process can open no more files: the stranger that has been silent for the longest goes.
    void MakeRoom() {
        if (!strangers_.empty()) {
            strangers_.erase(strangers_.begin());
            return;
        }
        note_ = StrCat("; ", OwnName(), " cannot open more files (ulimit -n)");
        std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the listener stays ready to be read
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

}  // namespace

Met ReceiveProcesses(const ProcessPlace& place, double timeout_s, const std::string& fingerprint) {
    return Reception(place, timeout_s, fingerprint).Receive();
}

}  // namespace infini_train::comm
