#pragma once

#include <exception>
#include <string>

namespace infini_train {

/// An exception of any kind as a line for the user: what() of an Error; for memory and threads that cannot be had,
/// whose what() names neither, what is missing.
std::string ErrorText(const std::exception& exception);

}  // namespace infini_train
