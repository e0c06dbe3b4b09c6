#include "infini_train/src/data/utf8.h"

#include <cstdint>
#include <cstring>

namespace infini_train::data {
namespace {

unsigned char ByteAt(std::string_view bytes, size_t place) {
    return place < bytes.size() ? static_cast<unsigned char>(bytes[place]) : 0;
}

bool IsIn(unsigned char byte, unsigned char first, unsigned char last) {
    return first <= byte && byte <= last;
}

bool IsContinuation(unsigned char byte) {
    return IsIn(byte, 0x80, 0xbf);
}

/// Of the well-formed character at this place; 0 when there is none.
size_t CharacterBytes(std::string_view bytes, size_t place) {
    const unsigned char first = ByteAt(bytes, place);
    const unsigned char second = ByteAt(bytes, place + 1);
    if (first < 0x80) {
        return 1;
    }
    if (IsIn(first, 0xc2, 0xdf)) {
        return IsContinuation(second) ? 2 : 0;
    }
    if (IsIn(first, 0xe0, 0xef)) {
        const bool is_second = IsIn(second, first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf);
        return is_second && IsContinuation(ByteAt(bytes, place + 2)) ? 3 : 0;
    }
    if (IsIn(first, 0xf0, 0xf4)) {
        const bool is_second = IsIn(second, first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf);
        return is_second && IsContinuation(ByteAt(bytes, place + 2)) && IsContinuation(ByteAt(bytes, place + 3)) ? 4
                                                                                                                 : 0;
    }
    return 0;
}

}  // namespace

size_t Utf8PrefixBytes(std::string_view bytes) {
    constexpr uint64_t kHighBits = 0x8080808080808080;
    size_t place = 0;
    while (place < bytes.size()) {
        uint64_t eight = 0;
        if (bytes.size() - place >= sizeof(eight)) {
            std::memcpy(&eight, bytes.data() + place, sizeof(eight));
            if ((eight & kHighBits) == 0) {
                place += sizeof(eight);
                continue;
            }
        }
        const size_t count = CharacterBytes(bytes, place);
        if (count == 0) {
            break;
        }
        place += count;
    }
    return place;
}

}  // namespace infini_train::data
