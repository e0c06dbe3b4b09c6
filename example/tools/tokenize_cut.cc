#include "example/tools/tokenize_cut.h"

namespace infini_train {
namespace {

bool IsInRange(unsigned char byte, unsigned char first, unsigned char last) {
    return first <= byte && byte <= last;
}

bool IsAsciiLetterOrDigit(unsigned char byte) {
    return IsInRange(byte, 'a', 'z') || IsInRange(byte, 'A', 'Z') || IsInRange(byte, '0', '9');
}

}  // namespace

bool IsTextCut(std::string_view text, size_t place) {
    if (place == 0 || place >= text.size()) {
        return false;
    }
    const auto byte_before = [&](size_t distance) -> unsigned char {
        return place < distance ? 0 : static_cast<unsigned char>(text[place - distance]);
    };
    const auto continues = [](unsigned char byte) { return IsInRange(byte, 0x80, 0xbf); };
    const unsigned char last = byte_before(1);
    const bool is_cjk = continues(last) && continues(byte_before(2));  // with its first byte, below
    switch (text[place]) {
        case ' ':
        case '\t':
            // U+00C0 to U+07FF, and U+4000 to U+DFFF: Unicode has no blanks there.
            return IsInRange(last, 0x21, 0x7e) || (continues(last) && IsInRange(byte_before(2), 0xc3, 0xdf)) ||
                   (is_cjk && IsInRange(byte_before(3), 0xe4, 0xed));
        case '\n':
        case '\r':
            // U+5000 to U+8FFF are letters, all of them.
            return IsAsciiLetterOrDigit(last) || (is_cjk && IsInRange(byte_before(3), 0xe5, 0xe8));
        default:
            return false;
    }
}

}  // namespace infini_train
