#pragma once

#include <utility>

#include "glog/logging.h"

#include "infini_train/include/core/dtype.h"

namespace infini_train::kernels::cpu {

/// Calls f with a value of the C++ type of a float dtype:
///   DispatchFloat(x.dtype(), [&](auto zero) { using T = decltype(zero); ... });
template <typename F>
decltype(auto) DispatchFloat(DataType dtype, F&& f) {
    CHECK(IsFloat(dtype)) << "wanted a float dtype, got " << Name(dtype);
    if (dtype == DataType::kFloat32) {
        return std::forward<F>(f)(float{});
    }
    return std::forward<F>(f)(BFloat16{});
}

}  // namespace infini_train::kernels::cpu
