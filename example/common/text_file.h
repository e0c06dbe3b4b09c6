#pragma once

#include <string>

namespace infini_train {

/// Writes a file anew. Throws Error that names the flag and the file.
void WriteTextFile(const std::string& flag, const std::string& path, const std::string& text);

}  // namespace infini_train
