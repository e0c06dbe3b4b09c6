#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/include/common/file.h"
#include "infini_train/include/core/shape.h"

// What the JSON of safetensors files says, strictly read; whether it is true of the file is the reader's to check.

namespace infini_train::checkpoint {

inline constexpr uint64_t kSafetensorsSizeBytes = 8;  // of the number before the header
inline constexpr size_t kMaxSafetensorsRank = 8;
inline constexpr uint64_t kMaxJsonBytes = 100000000;  // the limit of the reference reader: decimal, not 100 MiB

struct SafetensorsEntry {
    std::string name;
    std::string dtype;   // as the file spells it
    Shape shape;         // extents below 2^53; of more than kMaxSafetensorsRank the first kMaxSafetensorsRank + 1
    uint64_t begin = 0;  // bytes, from the end of the header
    uint64_t end = 0;
};

struct SafetensorsHeader {
    uint64_t size_bytes = 0;  // without the number before it
    std::vector<SafetensorsEntry> entries;
};

/// Throws Error unless the header lies within the file, is at most 100000000 bytes and is strict JSON of the right
/// form: valid UTF-8, no key twice, at most 4 levels, no numbers but integers from 0 to 2^53 - 1.
SafetensorsHeader ReadSafetensorsHeader(const ReadOnlyFile& file);

struct SafetensorsIndex {
    uint64_t total_size_bytes = 0;
    std::map<std::string, std::string> file_of_tensor;
};

/// Throws Error unless the file is strict JSON as above with metadata.total_size and weight_map.
SafetensorsIndex ReadSafetensorsIndex(const ReadOnlyFile& file);

/// A name of a file in quotes, fit for a message: one line, and not endless.
std::string Quoted(std::string_view text);

}  // namespace infini_train::checkpoint
