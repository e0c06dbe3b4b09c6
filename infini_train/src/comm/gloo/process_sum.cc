#include "infini_train/src/comm/gloo/process_sum.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>

namespace infini_train::comm {
namespace {

// Long beside what a round costs, short beside the memory of a rank; a multiple of every element.
constexpr size_t kChunkBytes = size_t{4} << 20;

template <typename T>
void Add(const std::byte* x, size_t size_bytes, std::byte* sum) {
    const T* from = reinterpret_cast<const T*>(x);
    T* to = reinterpret_cast<T*>(sum);
    for (size_t i = 0; i < size_bytes / sizeof(T); ++i) {
        to[i] += from[i];
    }
}

/// sum = sum + x
void Add(DataType dtype, const std::byte* x, size_t size_bytes, std::byte* sum) {
    if (dtype == DataType::kFloat32) {
        Add<float>(x, size_bytes, sum);
    } else {
        Add<int64_t>(x, size_bytes, sum);
    }
}

struct Share {
    size_t begin;
    size_t size;
};

/// Bytes of a chunk that a process owns.
Share ShareOf(size_t process, size_t num_processes, size_t num_elements, size_t element_bytes) {
    const size_t begin = num_elements * process / num_processes;
    const size_t end = num_elements * (process + 1) / num_processes;
    return {.begin = begin * element_bytes, .size = (end - begin) * element_bytes};
}

/// A part of one tensor of the list.
struct Piece {
    size_t tensor = 0;
    size_t offset_bytes = 0;
    size_t size_bytes = 0;
};

/// Pieces of one dtype, which lie one after the other in memory of our own.
struct Chunk {
    DataType dtype = DataType::kFloat32;
    size_t size_bytes = 0;
    std::vector<Piece> pieces = {};
};

std::vector<Chunk> Cut(const TensorList& list) {
    std::vector<Chunk> chunks;
    for (size_t i = 0; i < list.size(); ++i) {
        for (size_t offset = 0; offset < list[i]->size_bytes();) {
            if (chunks.empty() || chunks.back().dtype != list[i]->dtype() || chunks.back().size_bytes == kChunkBytes) {
                chunks.push_back({.dtype = list[i]->dtype()});
            }
            Chunk& chunk = chunks.back();
            const size_t size = std::min(list[i]->size_bytes() - offset, kChunkBytes - chunk.size_bytes);
            chunk.pieces.push_back({.tensor = i, .offset_bytes = offset, .size_bytes = size});
            chunk.size_bytes += size;
            offset += size;
        }
    }
    return chunks;
}

/// The sum of a chunk, under way from its construction on. All that is given outlives it.
class ChunkSum {
 public:
    /// Sends each process its share of what our ranks bring.
    ChunkSum(const GroupProcesses& processes, const std::vector<const TensorList*>& ranks, const Chunk& chunk,
             SumMemory* memory)
        : processes_(processes), ranks_(ranks), chunk_(chunk), memory_(memory), round_(&processes, "all-reduce") {
        memory_->own.resize(ranks.size());
        memory_->others.resize(processes.world_ranks.size());
        memory_->sum.resize(chunk.size_bytes);
        for (size_t n = 0; n < ranks.size(); ++n) {
            own_.push_back(InOnePiece(*ranks[n], &memory_->own[n]));
        }
        const size_t share_bytes = OwnShare().size;
        for (size_t p = 0; p < processes.all.size(); ++p) {
            const GroupProcess& process = processes.all[p];
            for (size_t n = 0; n < process.ranks.size() && !process.is_own; ++n) {
                std::vector<std::byte>& other = memory_->others[static_cast<size_t>(process.first_place) + n];
                other.resize(share_bytes);
                round_.Receive(process, other.data(), share_bytes);
            }
            for (size_t n = 0; n < ranks.size() && !process.is_own; ++n) {
                const Share share = ShareOf(p);
                round_.Send(process, own_[n] + share.begin, share.size);
            }
        }
    }

    /// Adds our share in rank order and gives the sum to each process.
    void Add() {
        round_.Wait();
        const Share share = OwnShare();
        std::byte* const sum = memory_->sum.data() + share.begin;
        const auto own_place = static_cast<size_t>(processes_.own_process().first_place);
        for (size_t place = 0; place < processes_.world_ranks.size(); ++place) {
            const bool is_own = place >= own_place && place < own_place + ranks_.size();
            const std::byte* x = is_own ? own_[place - own_place] + share.begin : memory_->others[place].data();
            if (place == 0) {
                std::copy_n(x, share.size, sum);
            } else {
                infini_train::comm::Add(chunk_.dtype, x, share.size, sum);
            }
        }
        for (size_t p = 0; p < processes_.all.size(); ++p) {
            const GroupProcess& process = processes_.all[p];
            if (!process.is_own) {
                const Share other = ShareOf(p);
                round_.Receive(process, memory_->sum.data() + other.begin, other.size);
                round_.Send(process, sum, share.size);
            }
        }
    }

    /// What our ranks brought becomes the sum.
    void End() {
        round_.Wait();
        for (const TensorList* list : ranks_) {
            const std::byte* from = memory_->sum.data();
            for (const Piece& piece : chunk_.pieces) {
                auto* to = static_cast<std::byte*>((*list)[piece.tensor]->raw_data());
                std::memcpy(to + piece.offset_bytes, from, piece.size_bytes);
                from += piece.size_bytes;
            }
        }
    }

 private:
    Share ShareOf(size_t process) const {
        const size_t element_bytes = SizeOf(chunk_.dtype);
        return infini_train::comm::ShareOf(process, processes_.all.size(), chunk_.size_bytes / element_bytes,
                                           element_bytes);
    }
    /// Where the chunk of a list lies: in its tensor, or copied together.
    const std::byte* InOnePiece(const TensorList& list, std::vector<std::byte>* copy) const {
        const auto place = [&](const Piece& piece) {
            return static_cast<const std::byte*>(list[piece.tensor]->raw_data()) + piece.offset_bytes;
        };
        if (chunk_.pieces.size() == 1) {
            return place(chunk_.pieces[0]);
        }
        copy->resize(chunk_.size_bytes);
        std::byte* to = copy->data();
        for (const Piece& piece : chunk_.pieces) {
            std::memcpy(to, place(piece), piece.size_bytes);
            to += piece.size_bytes;
        }
        return copy->data();
    }
    Share OwnShare() const { return ShareOf(static_cast<size_t>(processes_.own)); }

    const GroupProcesses& processes_;
    const std::vector<const TensorList*>& ranks_;
    const Chunk& chunk_;
    SumMemory* memory_;
    std::vector<const std::byte*> own_;  // by rank of this process, what it brings
    ProcessRound round_;
};

}  // namespace

void ProcessSum::AllReduce(const GroupProcesses& processes, const std::vector<const TensorList*>& ranks) {
    const std::vector<Chunk> chunks = Cut(*ranks[0]);
    std::deque<ChunkSum> under_way;
    ChunkSum* previous = nullptr;
    // All processes start the same sends and receives in the same order.
    for (size_t i = 0; i < chunks.size(); ++i) {
        ChunkSum& next = under_way.emplace_back(processes, ranks, chunks[i], &memory_[i % kNumUnderWay]);
        if (previous != nullptr) {
            previous->Add();
        }
        previous = &next;
        if (under_way.size() == kNumUnderWay) {
            under_way.front().End();
            under_way.pop_front();
        }
    }
    if (previous != nullptr) {
        previous->Add();
    }
    for (ChunkSum& chunk : under_way) {
        chunk.End();
    }
}

}  // namespace infini_train::comm
