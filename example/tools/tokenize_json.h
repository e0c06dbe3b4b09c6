#pragma once

#include <string>
#include <string_view>

namespace infini_train {

/// The string that a line of JSON, an object, has in a field. What else is in the object is checked to be JSON and
/// otherwise ignored. Throws Error for anything else; where: the file and line, for the message.
std::string JsonText(std::string_view line, const std::string& field, const std::string& where);

}  // namespace infini_train
