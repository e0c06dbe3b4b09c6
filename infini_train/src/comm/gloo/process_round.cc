#include "infini_train/src/comm/gloo/process_round.h"

#include <algorithm>
#include <array>
#include <utility>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/local/contribution.h"

namespace infini_train::comm {
namespace {

// More than all texts that ranks exchange: a size beyond it is none.
constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;
// The most of a text that comes at once with its size: most texts are shorter, and need no second round.
constexpr size_t kLetterBytes = 504;

struct Letter {
    uint64_t size_bytes = 0;  // of the whole text
    std::array<char, kLetterBytes> begin = {};
};

Letter MakeLetter(const std::string& text) {
    Letter letter = {.size_bytes = text.size()};
    std::copy_n(text.data(), std::min(text.size(), kLetterBytes), letter.begin.data());
    return letter;
}

/// "ranks 2, 3 of process 1 (host) in barrier of ranks 0, 1, 2, 3"
Awaited RanksOf(const GroupProcess& other, const GroupProcesses& processes, const std::string& operation) {
    return {.ranks = other.ranks,
            .text = StrCat(Ranks(other.ranks), " of ", processes.connections->ProcessName(other.channel.process),
                           " in ", operation, " of ", Ranks(processes.world_ranks))};
}

}  // namespace

ProcessRound::ProcessRound(const GroupProcesses* processes, std::string operation)
    : processes_(processes), operation_(std::move(operation)) {}

void ProcessRound::Send(const GroupProcess& to, const void* data, size_t size_bytes) {
    under_way_.push_back(
        {.transfer = processes_->connections->Send(to.channel, data, size_bytes, rank(),
                                                   [&] { return RanksOf(to, *processes_, operation_); }),
         .other = &to});
}

void ProcessRound::Receive(const GroupProcess& from, void* data, size_t size_bytes) {
    const GlooChannel channel = {.process = from.channel.process, .id = processes_->own_process().channel.id};
    under_way_.push_back(
        {.transfer = processes_->connections->Receive(channel, data, size_bytes, rank(),
                                                      [&] { return RanksOf(from, *processes_, operation_); }),
         .other = &from});
}

void ProcessRound::Wait() {
    const GlooConnections::Clock::time_point deadline = processes_->connections->Deadline();
    for (const Under& under : under_way_) {
        processes_->connections->Wait(under.transfer, rank(), deadline,
                                      [&] { return RanksOf(*under.other, *processes_, operation_); });
    }
    under_way_.clear();
}

std::vector<std::string> ExchangeTexts(const GroupProcesses& processes, const std::string& operation,
                                       const std::string& text) {
    const size_t num_processes = processes.all.size();
    const Letter own = MakeLetter(text);
    std::vector<Letter> letters(num_processes, own);
    std::vector<std::string> texts(num_processes, text);
    ProcessRound round(&processes, operation);
    for (size_t i = 0; i < num_processes; ++i) {
        if (!processes.all[i].is_own) {
            round.Receive(processes.all[i], &letters[i], sizeof(Letter));
            round.Send(processes.all[i], &own, sizeof(Letter));
        }
    }
    round.Wait();
    for (size_t i = 0; i < num_processes; ++i) {
        if (processes.all[i].is_own) {
            continue;
        }
        const uint64_t size = letters[i].size_bytes;
        if (size > kMaxTextBytes) {
            throw Error({.where = StrCat("rank ", processes.own_process().ranks.front()),
                         .what = "what came is no text, from " + RanksOf(processes.all[i], processes, operation).text,
                         .got = StrCat(size, " bytes"),
                         .wanted = StrCat("at most ", kMaxTextBytes),
                         .kind = Error::Kind::kRuntime});
        }
        texts[i].assign(letters[i].begin.data(), std::min<size_t>(size, kLetterBytes));
        texts[i].resize(size);
        if (size > kLetterBytes) {
            round.Receive(processes.all[i], texts[i].data() + kLetterBytes, size - kLetterBytes);
        }
        if (text.size() > kLetterBytes) {
            round.Send(processes.all[i], text.data() + kLetterBytes, text.size() - kLetterBytes);
        }
    }
    round.Wait();
    return texts;
}

}  // namespace infini_train::comm
