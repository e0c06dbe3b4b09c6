#include "infini_train/src/data/byte_level_alphabet.h"

#include <array>
#include <cstddef>

namespace infini_train::data {
namespace {

constexpr int kNoByte = -1;
constexpr size_t kNumCharacters = 256 + 68;  // 68 bytes are not visible

constexpr bool IsVisible(int byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

constexpr std::array<int, kNumCharacters> BytesOfCharacters() {
    std::array<int, kNumCharacters> bytes = {};
    bytes.fill(kNoByte);
    size_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
        bytes[IsVisible(byte) ? static_cast<size_t>(byte) : next++] = byte;
    }
    return bytes;
}

}  // namespace

std::optional<std::string> FromByteLevelAlphabet(std::string_view text) {
    constexpr std::array<int, kNumCharacters> kBytes = BytesOfCharacters();
    std::string bytes;
    for (size_t i = 0; i < text.size(); ++i) {
        size_t character = static_cast<unsigned char>(text[i]);
        if (character >= 0x80) {
            // All of the alphabet is below U+0800: two bytes at most.
            const size_t second = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
            if (character < 0xc2 || character > 0xdf || second < 0x80 || second > 0xbf) {
                return std::nullopt;
            }
            character = (character & 0x1f) << 6 | (second & 0x3f);
            ++i;
        }
        if (character >= kBytes.size() || kBytes[character] == kNoByte) {
            return std::nullopt;
        }
        bytes.push_back(static_cast<char>(kBytes[character]));
    }
    return bytes;
}

}  // namespace infini_train::data
