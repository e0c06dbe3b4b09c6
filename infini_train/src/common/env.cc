#include "infini_train/include/common/env.h"

#include <cstdlib>

namespace infini_train {

std::optional<std::string> ReadEnv(const std::string& name) {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') {
        return std::nullopt;
    }
    return value;
}

}  // namespace infini_train
