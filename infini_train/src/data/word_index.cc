#include "infini_train/src/data/word_index.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace infini_train::data {
namespace {

uint32_t HashOf(std::string_view word) {
    return static_cast<uint32_t>(std::hash<std::string_view>()(word));
}

}  // namespace

WordIndex::WordIndex(const std::vector<std::string>& tokens)
    : tokens_(&tokens), slots_(std::bit_ceil(2 * tokens.size() + 1)) {}

size_t WordIndex::Place(std::string_view word, uint32_t hash) const {
    const size_t mask = slots_.size() - 1;
    size_t place = hash & mask;
    // At most half of the slots are in use: a free one ends the search.
    while (slots_[place].id >= 0 &&
           !(slots_[place].hash == hash && (*tokens_)[static_cast<size_t>(slots_[place].id)] == word)) {
        place = (place + 1) & mask;
    }
    return place;
}

std::optional<int32_t> WordIndex::Insert(int32_t id) {
    const std::string& word = (*tokens_)[static_cast<size_t>(id)];
    const uint32_t hash = HashOf(word);
    Slot& slot = slots_[Place(word, hash)];
    if (slot.id >= 0) {
        return slot.id;
    }
    slot = {.hash = hash, .id = id};
    longest_ = std::max(longest_, word.size());
    return std::nullopt;
}

std::optional<int32_t> WordIndex::Find(std::string_view word) const {
    if (word.size() > longest_) {
        return std::nullopt;
    }
    const int32_t id = slots_[Place(word, HashOf(word))].id;
    return id < 0 ? std::nullopt : std::optional(id);
}

}  // namespace infini_train::data
