#pragma once

#include <string>

namespace infini_train::checkpoint {

enum class ModelFamily { kGpt2, kLlama3 };

/// Whose weights they are: by the magic of an llm.c file, or by model_type in the config.json of a folder. Throws Error
/// for another model.
ModelFamily FamilyOf(const std::string& path);

}  // namespace infini_train::checkpoint
