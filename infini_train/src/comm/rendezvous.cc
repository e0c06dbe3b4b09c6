#include "infini_train/src/comm/rendezvous.h"

#include <algorithm>
#include <chrono>
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
#include "infini_train/src/comm/reception.h"
#include "infini_train/src/comm/rendezvous_wait.h"
#include "infini_train/src/comm/slow_wait.h"
#include "infini_train/src/comm/wire.h"

namespace infini_train::comm {
namespace {

using Clock = RendezvousClock;

// Process 0 knows best what is wrong, so the others wait longer than it does; but for a process 0 that has stopped not
// for ever.
constexpr double kAnswerMarginS = kFlushS + 1.0;

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
    return place.index == 0 ? ReceiveProcesses(place, timeout_s, fingerprint)
                            : Visit(place, timeout_s, fingerprint).Make();
}

}  // namespace infini_train::comm
