#pragma once

#include "cuda_runtime.h"

namespace infini_train::cuda {

/// Throws the Error of a call that failed.
[[noreturn]] void ThrowCudaError(const char* call, cudaError_t error);
/// For destructors: logs instead.
void LogCudaError(const char* call, cudaError_t error);

}  // namespace infini_train::cuda

#define INFINI_CUDA_CHECK(call)                                             \
    do {                                                                    \
        const cudaError_t infini_cuda_error = (call);                       \
        if (infini_cuda_error != cudaSuccess) {                             \
            ::infini_train::cuda::ThrowCudaError(#call, infini_cuda_error); \
        }                                                                   \
    } while (false)

#define INFINI_CUDA_LOG(call)                                             \
    do {                                                                  \
        const cudaError_t infini_cuda_error = (call);                     \
        if (infini_cuda_error != cudaSuccess) {                           \
            ::infini_train::cuda::LogCudaError(#call, infini_cuda_error); \
        }                                                                 \
    } while (false)

/// After every launch.
#define INFINI_CUDA_CHECK_LAUNCH() INFINI_CUDA_CHECK(cudaGetLastError())
