#include "infini_train/include/kernels/kernel_slot.h"

#include <string>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"

namespace infini_train::kernels {
namespace {

int Double(int x) {
    return 2 * x;
}

TEST(KernelSlot, CallsTheImplementationOfTheDevice) {
    KernelSlot<int(int)> slot("twice");
    slot.Register(DeviceType::kCPU, Double);
    EXPECT_EQ(slot(DeviceType::kCPU, 3), 6);
}

TEST(KernelSlot, NamesTheKernelThatADeviceDoesNotHave) {
    const KernelSlot<int(int)> slot("twice");
    try {
        slot(DeviceType::kCUDA, 3);
        FAIL() << "a kernel that is not there was called";
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("twice"), std::string::npos);
        EXPECT_NE(std::string(error.what()).find("cuda"), std::string::npos);
    }
}

}  // namespace
}  // namespace infini_train::kernels
