#include "infini_train/src/comm/gloo/process_sum.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

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

}  // namespace

void ProcessSum::AllReduce(const GroupProcesses& processes, const std::vector<const TensorList*>& ranks) {
    const TensorList& list = *ranks[0];
    std::vector<Piece> pieces;
    size_t chunk_bytes = 0;
    DataType dtype = DataType::kFloat32;
    const auto flush = [&] {
        if (!pieces.empty()) {
            AllReducePieces(processes, ranks, pieces, dtype);
        }
        pieces.clear();
        chunk_bytes = 0;
    };
    for (size_t i = 0; i < list.size(); ++i) {
        if (list[i]->dtype() != dtype) {
            flush();
            dtype = list[i]->dtype();
        }
        for (size_t offset = 0; offset < list[i]->size_bytes();) {
            const size_t size = std::min(list[i]->size_bytes() - offset, kChunkBytes - chunk_bytes);
            pieces.push_back({.tensor = i, .offset_bytes = offset, .size_bytes = size});
            offset += size;
            chunk_bytes += size;
            if (chunk_bytes == kChunkBytes) {
                flush();
            }
        }
    }
    flush();
}

void ProcessSum::AllReducePieces(const GroupProcesses& processes, const std::vector<const TensorList*>& ranks,
                                 const std::vector<Piece>& pieces, DataType dtype) {
    size_t size = 0;
    for (const Piece& piece : pieces) {
        size += piece.size_bytes;
    }
    own_.resize(ranks.size());
    for (size_t n = 0; n < ranks.size(); ++n) {
        own_[n].resize(size);
        std::byte* to = own_[n].data();
        for (const Piece& piece : pieces) {
            const auto* from = static_cast<const std::byte*>((*ranks[n])[piece.tensor]->raw_data());
            std::memcpy(to, from + piece.offset_bytes, piece.size_bytes);
            to += piece.size_bytes;
        }
    }

    const size_t num_processes = processes.all.size();
    const auto share_of = [&](size_t process) {
        return ShareOf(process, num_processes, size / SizeOf(dtype), SizeOf(dtype));
    };
    const Share share = share_of(static_cast<size_t>(processes.own));
    others_.resize(processes.world_ranks.size());
    sum_.resize(size);
    ProcessRound round(&processes, "all-reduce");
    for (size_t p = 0; p < num_processes; ++p) {
        const GroupProcess& process = processes.all[p];
        for (size_t n = 0; n < process.ranks.size() && !process.is_own; ++n) {
            std::vector<std::byte>& other = others_[static_cast<size_t>(process.first_place) + n];
            other.resize(share.size);
            round.Receive(process, other.data(), share.size);
        }
        for (size_t n = 0; n < ranks.size() && !process.is_own; ++n) {
            round.Send(process, own_[n].data() + share_of(p).begin, share_of(p).size);
        }
    }
    round.Wait();

    std::byte* const sum = sum_.data() + share.begin;
    const auto own_place = static_cast<size_t>(processes.own_process().first_place);
    for (size_t place = 0; place < processes.world_ranks.size(); ++place) {
        const bool is_own = place >= own_place && place < own_place + ranks.size();
        const std::byte* x = is_own ? own_[place - own_place].data() + share.begin : others_[place].data();
        if (place == 0) {
            std::copy_n(x, share.size, sum);
        } else {
            Add(dtype, x, share.size, sum);
        }
    }
    for (size_t p = 0; p < num_processes; ++p) {
        if (!processes.all[p].is_own) {
            round.Receive(processes.all[p], sum_.data() + share_of(p).begin, share_of(p).size);
            round.Send(processes.all[p], sum, share.size);
        }
    }
    round.Wait();

    for (const TensorList* list : ranks) {
        const std::byte* from = sum_.data();
        for (const Piece& piece : pieces) {
            auto* to = static_cast<std::byte*>((*list)[piece.tensor]->raw_data());
            std::memcpy(to + piece.offset_bytes, from, piece.size_bytes);
            from += piece.size_bytes;
        }
    }
}

}  // namespace infini_train::comm
