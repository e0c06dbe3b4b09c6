#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace infini_train::data {

/// The bytes that a text in GPT-2's byte-level alphabet (its encoder.py) stands for; nothing when a character is not
/// one of its 256. In it a byte that is a visible Latin-1 character is that character, and the others, in order, are
/// the characters from U+0100 on: a blank is U+0120.
std::optional<std::string> FromByteLevelAlphabet(std::string_view text);

}  // namespace infini_train::data
