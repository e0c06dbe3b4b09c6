#pragma once

#include <string>
#include <string_view>

namespace infini_train {

/// Text between tags or in an attribute of HTML or SVG. What no text has (NUL, ESC) becomes U+FFFD.
std::string MarkupEscape(std::string_view text);

}  // namespace infini_train
