#include "example/tools/generate_text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace infini_train {
namespace {

/// Bytes of the character that begins with this one; 1 for one that begins none.
size_t CharacterBytes(char first) {
    const auto byte = static_cast<uint8_t>(first);
    if (byte >= 0xC2 && byte <= 0xDF) {
        return 2;
    }
    if (byte >= 0xE0 && byte <= 0xEF) {
        return 3;
    }
    return byte >= 0xF0 && byte <= 0xF4 ? 4 : 1;
}

/// Bytes of an unfinished character at the end of a text.
size_t UnfinishedBytes(std::string_view text) {
    // At most three: one more would finish the longest.
    for (size_t count = 1; count <= std::min<size_t>(3, text.size()); ++count) {
        const char byte = text[text.size() - count];
        if ((static_cast<uint8_t>(byte) & 0xC0) != 0x80) {  // no continuation
            return CharacterBytes(byte) > count ? count : 0;
        }
    }
    return 0;
}

}  // namespace

std::string CharacterStream::Push(std::string_view piece) {
    pending_ += piece;
    const size_t whole = pending_.size() - UnfinishedBytes(pending_);
    std::string text = pending_.substr(0, whole);
    pending_.erase(0, whole);
    return text;
}

std::string CharacterStream::Rest() {
    return std::exchange(pending_, {});
}

}  // namespace infini_train
