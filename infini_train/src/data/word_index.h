#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace infini_train::data {

/// From the bytes of a token to its id. Half of encoding a text is looking up its words: this table touches two cache
/// lines for one (std::unordered_map touches four, and encodes at three quarters of the speed).
class WordIndex {
 public:
    /// tokens: the words by id; the index reads them, so they must stay where they are. Room for all of them.
    explicit WordIndex(const std::vector<std::string>& tokens);

    /// Returns the id that has these bytes already, if any; then nothing changes.
    std::optional<int32_t> Insert(int32_t id);
    std::optional<int32_t> Find(std::string_view word) const;

 private:
    struct Slot {
        uint32_t hash = 0;
        int32_t id = -1;  // -1: free
    };

    size_t Place(std::string_view word, uint32_t hash) const;

    const std::vector<std::string>* tokens_;
    std::vector<Slot> slots_;  // a power of two; linear probing
    size_t longest_ = 0;       // of the inserted
};

}  // namespace infini_train::data
