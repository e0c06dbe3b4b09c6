#include "infini_train/src/comm/nccl/nccl_check.h"

#include <algorithm>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::comm {

std::string NcclErrorText(ncclResult_t result) {
    std::string text = ncclGetErrorString(result);
    const char* const message = ncclGetLastError(nullptr);
    if (message != nullptr && message[0] != '\0') {
        text += StrCat(": ", message);
    }
    std::replace(text.begin(), text.end(), '\n', ' ');
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
}

void CheckNccl(const char* call, ncclResult_t result) {
    if (result != ncclSuccess && result != ncclInProgress) {
        throw Error(
            {.where = "NCCL", .what = StrCat(NcclErrorText(result), " in ", call), .kind = Error::Kind::kRuntime});
    }
}

}  // namespace infini_train::comm
