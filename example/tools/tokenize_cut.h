#pragma once

#include <cstddef>
#include <string_view>

namespace infini_train {

/// Whether text may be cut before this byte: the tokens of both parts, one after the other, are those of the whole.
/// True for some of the places where it could be:
///   before a blank or a tab that follows a character that is certainly none;
///   before a line end that follows an ASCII letter, a digit or a Chinese character.
///
/// Byte-level BPE encodes each word by itself, so a place between two words is right if the words before it stay the
/// same when the text ends there, and those after it when the text begins there. In the patterns of GPT-2, cl100k and
/// LLaMA-3 (and those that differ from them in their classes of letters and numbers)
///   - a word goes on from another character to a blank only in `[^\s\p{L}\p{N}]+[\r\n]*`, to a line end after what is
///   no
///     letter and no number: so a word ends here;
///   - only `\s+(?!\S)` looks at what follows, and it ends before the character that is before the cut;
///   - nothing looks back.
bool IsTextCut(std::string_view text, size_t place);

}  // namespace infini_train
