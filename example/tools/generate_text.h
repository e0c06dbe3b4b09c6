#pragma once

#include <string>
#include <string_view>

namespace infini_train {

/// A text that comes in pieces, a token each, which may end within a UTF-8 character.
class CharacterStream {
 public:
    /// Adds a piece. Returns what came so far and was not returned yet, but for a last character that is not whole.
    /// Bytes that belong to no character pass.
    std::string Push(std::string_view piece);
    /// What is left.
    std::string Rest();

 private:
    std::string pending_;
};

}  // namespace infini_train
