#include <cstdlib>
#include <sstream>
#include <string>

#include "infini_train/include/core/device.h"
#include "test/support/cuda_compare.h"

namespace infini_train::test {
namespace {

/// CTest says what it gave by CTEST_RESOURCE_GROUP_COUNT and CTEST_RESOURCE_GROUP_<i>_GPUS="id:3,slots:1". CUDA then
/// shows just those.
void TakeGivenGpus() {
    const char* count = std::getenv("CTEST_RESOURCE_GROUP_COUNT");
    if (count == nullptr) {
        return;
    }
    std::string visible;
    for (int group = 0; group < std::atoi(count); ++group) {
        const char* given = std::getenv(("CTEST_RESOURCE_GROUP_" + std::to_string(group) + "_GPUS").c_str());
        if (given == nullptr) {
            continue;
        }
        const std::string text = given;
        const size_t begin = text.find("id:") + 3;
        visible += (visible.empty() ? "" : ",") + text.substr(begin, text.find(',', begin) - begin);
    }
    setenv("CUDA_VISIBLE_DEVICES", visible.c_str(), /*overwrite=*/1);
}

}  // namespace

int NumGpus() {
    // Before the first call of CUDA, which reads the variable once.
    static const int num_gpus = [] {
        TakeGivenGpus();
        return NumCudaDevices();
    }();
    return num_gpus;
}

}  // namespace infini_train::test
