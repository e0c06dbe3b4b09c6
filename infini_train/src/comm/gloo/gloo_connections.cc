#include "infini_train/src/comm/gloo/gloo_connections.h"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <string_view>
#include <utility>

#include "glog/logging.h"
#include "gloo/common/error.h"
#include "gloo/transport/address.h"
#include "gloo/transport/pair.h"
#include "gloo/transport/tcp/device.h"

#include "infini_train/include/comm/wait_error.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/gloo/own_address.h"
#include "infini_train/src/comm/longest_wait.h"
#include "infini_train/src/comm/thread_signals.h"
#include "infini_train/src/comm/wire.h"

namespace infini_train::comm {
namespace {

// Of gloo's own waits, which would end all connections: the watching thread ends them before.
constexpr std::chrono::milliseconds kGlooWait = std::chrono::hours(24 * 365 * 10);
// A broken connection follows from something: this long for the control plane to say from what.
constexpr std::chrono::seconds kBetterReason(2);
constexpr std::chrono::milliseconds kWatchPeriod(100);

// A slot of gloo: what kind of message, and its size, so that a send never meets a receive of another size.
constexpr int kSizeBits = 40;
constexpr int kIdBits = 64 - kSizeBits;

uint64_t Slot(uint32_t id, size_t size_bytes) {
    CHECK_LT(size_bytes, uint64_t{1} << kSizeBits) << "bytes of a message";
    return (uint64_t{id} << kSizeBits) | size_bytes;
}

std::chrono::nanoseconds Nanoseconds(double seconds) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(std::min(seconds, kLongestWaitS)));
}

/// What gloo says, without the place in its source.
std::string Reason(const std::exception& exception) {
    std::string_view text = exception.what();
    const size_t end = text.starts_with('[') ? text.find("] ") : std::string_view::npos;
    text.remove_prefix(end == std::string_view::npos ? 0 : end + 2);
    return std::string(text);
}

}  // namespace

GlooConnections::GlooConnections(const GlooWorldOptions& options, WaitBoard* board)
    : options_(options), board_(board), num_ranks_of_process_(options.num_ranks / options.place.num_processes) {
    const int num_processes = options_.place.num_processes;
    CHECK_GT(num_processes, 1);
    CHECK_EQ(options_.num_ranks % num_processes, 0);
    CHECK_EQ(options_.process_names.size(), static_cast<size_t>(num_processes));
    CHECK_GT(options_.timeout_s, 0.0);
    const BlockSignals block_signals;
    const std::string own = OwnAddress(options_.place, options_.exchange_text);
    WireWriter listens;  // for each process
    try {
        device_ = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(own.c_str()));
        context_ = device_->createContext(process(), num_processes);
        // gloo waits five times as long for a connection.
        context_->setTimeout(std::chrono::ceil<std::chrono::milliseconds>(Nanoseconds(options_.timeout_s) / 5));
        for (int other = 0; other < num_processes; ++other) {
            const std::vector<char> bytes =
                other == process() ? std::vector<char>() : context_->createPair(other)->address().bytes();
            listens.Text(std::string_view(bytes.data(), bytes.size()));
        }
    } catch (const std::exception& exception) {
        throw Error({.where = ProcessName(process()),
                     .what = StrCat("gloo cannot listen at ", own, ": ", Reason(exception)),
                     .kind = Error::Kind::kRuntime});
    }
    for (const std::string& text : options_.exchange_text(listens.bytes())) {
        WireReader reader(text);
        std::string address;
        for (int other = 0; other <= process(); ++other) {
            address = reader.Text().value_or("");
        }
        addresses_.emplace_back(address.begin(), address.end());
    }
    watch_ = std::thread([this] { Watch(); });
}

GlooConnections::~GlooConnections() {
    CHECK(!watch_.joinable()) << "connections that were not closed";
}

void GlooConnections::Connect(int rank) {
    const std::lock_guard lock(connect_mutex_);
    ThrowIfFailed(rank);
    if (is_connected_) {
        return;
    }
    for (int other = 0; other < options_.place.num_processes; ++other) {
        if (other == process()) {
            continue;
        }
        try {
            const BlockBrokenPipe block_broken_pipe;
            context_->getPair(other)->connect(addresses_[static_cast<size_t>(other)]);
        } catch (const std::exception& exception) {
            ThrowIfFailed(rank);
            const std::string failure = WhyItBroke(other);
            // The other ranks of this process must not try again: gloo would connect anew where it is connected.
            Fail(failure);
            throw WaitError({.rank = rank,
                             .waited_for = StrCat("a connection to ", ProcessName(other), " (", Reason(exception), ")"),
                             .failure = failure});
        }
        ThrowIfFailed(rank);
    }
    is_connected_ = true;
}

uint32_t GlooConnections::NewChannelId() {
    const uint32_t id = next_channel_id_++;
    CHECK_LT(id, uint32_t{1} << kIdBits) << "groups and links of a process";
    return id;
}

std::string GlooConnections::RankName(int rank) const {
    return StrCat("rank ", rank, " of ", ProcessName(ProcessOf(rank)));
}

GlooTransfer GlooConnections::Start(GlooTransfer transfer, const GlooChannel& channel, size_t size_bytes, int rank,
                                    const std::function<Awaited()>& awaited) {
    const uint64_t slot = Slot(channel.id, size_bytes);
    try {
        const BlockBrokenPipe block_broken_pipe;
        if (transfer.is_send) {
            transfer.buffer->send(channel.process, slot);
        } else {
            transfer.buffer->recv(channel.process, slot);
        }
    } catch (const gloo::Exception&) {
        const std::string failure = WhyItBroke(channel.process);
        CloseAll();
        throw WaitError({.rank = rank, .waited_for = awaited().text, .failure = failure});
    }
    return transfer;
}

GlooTransfer GlooConnections::Send(const GlooChannel& channel, const void* data, size_t size_bytes, int rank,
                                   const std::function<Awaited()>& awaited) {
    if (size_bytes == 0) {
        return {};
    }
    // gloo reads it only.
    return Start({.buffer = context_->createUnboundBuffer(const_cast<void*>(data), size_bytes),
                  .process = channel.process,
                  .is_send = true},
                 channel, size_bytes, rank, awaited);
}

GlooTransfer GlooConnections::Receive(const GlooChannel& channel, void* data, size_t size_bytes, int rank,
                                      const std::function<Awaited()>& awaited) {
    if (size_bytes == 0) {
        return {};
    }
    return Start({.buffer = context_->createUnboundBuffer(data, size_bytes), .process = channel.process}, channel,
                 size_bytes, rank, awaited);
}

GlooConnections::Clock::time_point GlooConnections::Deadline() const {
    return Clock::now() + Nanoseconds(options_.timeout_s);
}

void GlooConnections::Abort(const Waiting& waiting) {
    if (waiting.is_send) {
        waiting.buffer->abortWaitSend();
    } else {
        waiting.buffer->abortWaitRecv();
    }
}

GlooConnections::Outcome GlooConnections::WaitUntil(Waiting* waiting) {
    std::list<Waiting*>::iterator place;
    {
        const std::lock_guard lock(mutex_);
        if (!failure_.empty() || is_closing_) {
            return Outcome::kCut;
        }
        place = waits_.insert(waits_.end(), waiting);
    }
    bool is_done = false;
    bool is_broken = false;
    try {
        is_done = waiting->is_send ? waiting->buffer->waitSend(kGlooWait) : waiting->buffer->waitRecv(kGlooWait);
    } catch (const gloo::Exception&) {
        is_broken = true;
    }
    const std::lock_guard lock(mutex_);
    waits_.erase(place);
    if (is_done) {
        return Outcome::kDone;
    }
    return waiting->is_timed_out ? Outcome::kTimedOut : is_broken ? Outcome::kBroken : Outcome::kCut;
}

void GlooConnections::Wait(const GlooTransfer& transfer, int rank, Clock::time_point deadline,
                           const std::function<Awaited()>& awaited) {
    if (transfer.buffer == nullptr) {
        return;
    }
    WaitBoard::Wait on_board(board_, rank, awaited().ranks);
    Waiting waiting = {.buffer = transfer.buffer.get(),
                       .is_send = transfer.is_send,
                       .deadline = deadline,
                       .awaited = &awaited,
                       .on_board = &on_board};
    const Outcome outcome = WaitUntil(&waiting);
    if (outcome == Outcome::kDone) {
        return;
    }
    if (outcome == Outcome::kTimedOut) {
        throw WaitError({.rank = rank, .waited_for = awaited().text, .timeout_s = options_.timeout_s});
    }
    const std::string failure = outcome == Outcome::kBroken ? WhyItBroke(transfer.process) : Failure();
    CHECK(!failure.empty()) << "rank " << rank << " waits after the end of the run";
    CloseAll();
    throw WaitError({.rank = rank, .waited_for = awaited().text, .failure = failure});
}

bool GlooConnections::WaitQuietly(const GlooTransfer& transfer) {
    Waiting waiting = {.buffer = transfer.buffer.get(),
                       .is_send = transfer.is_send,
                       .deadline = Clock::time_point::max(),
                       .awaited = nullptr,
                       .on_board = nullptr};
    return transfer.buffer == nullptr || WaitUntil(&waiting) == Outcome::kDone;
}

std::string GlooConnections::WhyItBroke(int process) {
    std::unique_lock lock(mutex_);
    failed_.wait_for(lock, kBetterReason, [&] { return !failure_.empty(); });
    return failure_.empty() ? StrCat("the connection to ", ProcessName(process), " broke") : failure_;
}

void GlooConnections::Keep(std::shared_ptr<void> memory) {
    const std::lock_guard lock(mutex_);
    kept_.push_back(std::move(memory));
}

void GlooConnections::Fail(const std::string& why) {
    {
        const std::lock_guard lock(mutex_);
        if (!failure_.empty()) {
            return;
        }
        failure_ = why;
        for (const Waiting* waiting : waits_) {
            Abort(*waiting);
        }
        failed_.notify_all();
    }
    CloseAll();
}

void GlooConnections::CloseAll() {
    // gloo does so when a wait of its own times out. Its Pair::close would reset them, and a process whose gloo has not
    // yet taken a connection that is reset is ended by it.
    char byte = 0;
    try {
        context_->createUnboundBuffer(&byte, sizeof(byte))->waitRecv(std::chrono::milliseconds(0));
    } catch (const gloo::Exception&) {
    }
}

void GlooConnections::ThrowIfFailed(int rank) {
    const std::string failure = Failure();
    if (!failure.empty()) {
        throw Error({.where = StrCat("rank ", rank), .what = failure, .kind = Error::Kind::kRuntime});
    }
}

std::string GlooConnections::Failure() {
    const std::lock_guard lock(mutex_);
    return failure_;
}

void GlooConnections::Watch() {
    pthread_setname_np(pthread_self(), "gloo watch");
    std::unique_lock lock(mutex_);
    while (!watched_.wait_for(lock, kWatchPeriod, [&] { return is_closing_; })) {
        const Clock::time_point now = Clock::now();
        std::vector<std::string> warnings;
        for (Waiting* waiting : waits_) {
            if (now >= waiting->deadline && !waiting->is_timed_out) {
                waiting->is_timed_out = true;
                Abort(*waiting);
            } else if (waiting->on_board != nullptr && now >= waiting->on_board->due()) {
                warnings.push_back(waiting->on_board->Warning(now, (*waiting->awaited)()));
            }
        }
        lock.unlock();  // who reads the log may be slow
        for (const std::string& warning : warnings) {
            LOG_IF(WARNING, !warning.empty()) << warning;
        }
        lock.lock();
    }
}

void GlooConnections::Close() {
    std::vector<std::shared_ptr<void>> kept;
    {
        const std::lock_guard lock(mutex_);
        is_closing_ = true;
        for (const Waiting* waiting : waits_) {
            Abort(*waiting);
        }
        watched_.notify_all();
        kept = std::move(kept_);
    }
    watch_.join();
}

}  // namespace infini_train::comm
