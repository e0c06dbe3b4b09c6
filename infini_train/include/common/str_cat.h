#pragma once

#include <sstream>
#include <string>

namespace infini_train {

/// The arguments, printed one after the other with operator<<.
template <typename... Args>
std::string StrCat(const Args&... args) {
    std::ostringstream stream;
    (stream << ... << args);
    return stream.str();
}

}  // namespace infini_train
