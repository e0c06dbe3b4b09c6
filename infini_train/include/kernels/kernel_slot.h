#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include "infini_train/include/core/device.h"

namespace infini_train::kernels {

/// Throws the Error of an operation that the device does not have.
[[noreturn]] void ThrowNotOnDevice(const char* kernel, DeviceType type);

/// One operation's implementations, by device. Written before main by kernels/<device>/register.cc, never again.
template <typename Signature>
class KernelSlot;

template <typename Result, typename... Args>
class KernelSlot<Result(Args...)> {
 public:
    using Kernel = Result (*)(Args...);

    constexpr explicit KernelSlot(const char* name) : name_(name) {}

    void Register(DeviceType type, Kernel kernel) { kernels_[static_cast<size_t>(type)] = kernel; }

    Result operator()(DeviceType type, Args... args) const {
        const Kernel kernel = kernels_[static_cast<size_t>(type)];
        if (kernel == nullptr) {
            ThrowNotOnDevice(name_, type);
        }
        return kernel(std::forward<Args>(args)...);
    }

 private:
    const char* name_;
    std::array<Kernel, kNumDeviceTypes> kernels_{};
};

}  // namespace infini_train::kernels
