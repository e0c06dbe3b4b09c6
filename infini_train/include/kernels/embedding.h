#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/kernel_slot.h"

namespace infini_train::kernels {

/// y[..., c] = weight[ids[...], c]
/// ids int32 of any shape; weight [V, C] float32 or bfloat16. CHECKs 0 <= id < V: whoever reads ids from a file refuses
/// others. Returns y [ids..., C], dtype of weight.
using EmbeddingForwardSig = std::shared_ptr<Tensor>(const Tensor& ids, const Tensor& weight);
inline constinit KernelSlot<EmbeddingForwardSig> embedding_forward{"embedding_forward"};

/// dweight[v, c] = (accumulate ? dweight[v, c] : 0) + sum over positions n with ids[n] = v of dy[n, c], in the order of
/// n. dy [ids..., C] float32 or bfloat16; dweight [V, C] float32.
using EmbeddingBackwardSig = void(const Tensor& dy, const Tensor& ids, Tensor& dweight, bool accumulate);
inline constinit KernelSlot<EmbeddingBackwardSig> embedding_backward{"embedding_backward"};

namespace cpu {
EmbeddingForwardSig EmbeddingForward;
EmbeddingBackwardSig EmbeddingBackward;
}  // namespace cpu
namespace cuda {
EmbeddingForwardSig EmbeddingForward;
EmbeddingBackwardSig EmbeddingBackward;
}  // namespace cuda
namespace meta {
EmbeddingForwardSig EmbeddingForward;
EmbeddingBackwardSig EmbeddingBackward;
}  // namespace meta

}  // namespace infini_train::kernels
