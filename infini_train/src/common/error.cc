#include "infini_train/include/common/error.h"

namespace infini_train {
namespace {

std::string Line(const Error::Parts& parts) {
    std::string line = parts.where.empty() ? parts.what : parts.where + ": " + parts.what;
    if (!parts.got.empty() && !parts.wanted.empty()) {
        line += " (got " + parts.got + ", wanted " + parts.wanted + ")";
    } else if (!parts.got.empty()) {
        line += " (got " + parts.got + ")";
    } else if (!parts.wanted.empty()) {
        line += " (wanted " + parts.wanted + ")";
    }
    for (char& c : line) {
        if (static_cast<unsigned char>(c) < ' ') {
            c = ' ';  // a value may hold a line break; the message is one line all the same
        }
    }
    return line;
}

}  // namespace

Error::Error(const Parts& parts) : std::runtime_error(Line(parts)), kind_(parts.kind) {}

}  // namespace infini_train
