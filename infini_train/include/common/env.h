#pragma once

#include <optional>
#include <string>

namespace infini_train {

/// The value of an environment variable; nothing when it is not set, or empty (`RANK= ./gpt2` takes a variable away).
/// The library reads the environment here alone.
std::optional<std::string> ReadEnv(const std::string& name);

}  // namespace infini_train
