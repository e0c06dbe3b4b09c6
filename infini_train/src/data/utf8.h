#pragma once

#include <cstddef>
#include <string_view>

namespace infini_train::data {

/// How many bytes from the first on are well-formed UTF-8 (Unicode, table 3-7: no overlong forms, no surrogates,
/// nothing above U+10FFFF).
size_t Utf8PrefixBytes(std::string_view bytes);

}  // namespace infini_train::data
