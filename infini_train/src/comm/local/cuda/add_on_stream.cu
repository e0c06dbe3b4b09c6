#include <algorithm>
#include <cstdint>

#include "cuda_runtime.h"
#include "glog/logging.h"

#include "infini_train/src/comm/local/rank_order_sum.h"
#include "infini_train/src/core/cuda/cuda_check.h"
#include "infini_train/src/core/cuda/cuda_stream.h"

namespace infini_train::comm {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 4096;

template <typename T>
__global__ void Add(const T* x, T* sum, int64_t num_elements) {
    const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < num_elements; i += stride) {
        sum[i] += x[i];
    }
}

void AddOnCuda(const Tensor& x, Tensor& sum) {
    const int64_t num_elements = sum.num_elements();
    CHECK_EQ(x.num_elements(), num_elements);
    if (num_elements == 0) {
        return;
    }
    const auto num_blocks = static_cast<unsigned>(std::min(kMaxBlocks, (num_elements + kThreads - 1) / kThreads));
    const cudaStream_t stream = cuda::LaunchStream(sum.device());
    if (sum.dtype() == DataType::kFloat32) {
        Add<<<num_blocks, kThreads, 0, stream>>>(x.data<float>(), sum.data<float>(), num_elements);
    } else {
        Add<<<num_blocks, kThreads, 0, stream>>>(x.data<int64_t>(), sum.data<int64_t>(), num_elements);
    }
    INFINI_CUDA_CHECK_LAUNCH();
}

[[maybe_unused]] const bool registered = [] {
    add_on_cuda = AddOnCuda;
    return true;
}();

}  // namespace
}  // namespace infini_train::comm
