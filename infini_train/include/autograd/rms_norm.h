#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"

namespace infini_train::autograd {

/// kernels/rms_norm.h. branch may be null: sum is then x, seen through this function, so that the backward adds the
/// gradient of the residual stream and that of the norm in one kernel in either case.
struct RmsNormSum {
    std::shared_ptr<Tensor> sum;  // x + branch, to go on with in place of x
    std::shared_ptr<Tensor> y;    // its norm
};
RmsNormSum RmsNorm(const std::shared_ptr<Tensor>& x, const std::shared_ptr<Tensor>& branch,
                   const std::shared_ptr<Tensor>& weight, float eps);

}  // namespace infini_train::autograd
