#include "infini_train/src/comm/process_names.h"

#include "infini_train/include/common/str_cat.h"

namespace infini_train::comm {

std::string ProcessName(int index, const std::string& host) {
    return host.empty() ? StrCat("process ", index) : StrCat("process ", index, " (", host, ")");
}

std::string ProcessNames(const std::vector<int>& indices) {
    std::string names = "process ";
    for (size_t i = 0; i < indices.size(); ++i) {
        names += i == 0 ? "" : i + 1 == indices.size() ? " and " : ", ";
        names += StrCat(indices[i]);
    }
    return names;
}

}  // namespace infini_train::comm
