#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "nlohmann/json.hpp"

namespace infini_train::checkpoint {

/// Two spaces a level and a line break at the end; what is not UTF-8 is replaced.
std::string CanonicalText(const nlohmann::ordered_json& json);

/// Reads a file that only this library writes. parse: the tree -> what it says, as text again; it may throw what
/// nlohmann-json throws for a key that is missing. Throws Error for more than 16 MiB, for what is not JSON, and
/// unless parse gives back the bytes of the file: so no key is unknown, there twice, or of another kind, and no number
/// is rounded.
void ReadCanonicalJson(const std::string& path, const std::function<std::string(const nlohmann::json& json)>& parse);

/// Of the files of a checkpoint that carry one, under the key "format".
inline constexpr int64_t kCheckpointFormat = 1;
void CheckFormat(const std::string& path, const nlohmann::json& json);

}  // namespace infini_train::checkpoint
