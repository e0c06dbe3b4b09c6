#include "infini_train/include/kernels/kernel_slot.h"

#include <string>

#include "infini_train/include/common/error.h"

namespace infini_train::kernels {

void ThrowNotOnDevice(const char* kernel, DeviceType type) {
    throw Error(
        {.where = kernel, .what = "no implementation for device '" + std::string(Name(type)) + "' in this build"});
}

}  // namespace infini_train::kernels
