#include "infini_train/include/kernels/attention.h"

#include <cstdint>
#include <memory>

#include "glog/logging.h"

#include "infini_train/src/kernels/cuda/cudnn_attention.h"
#include "infini_train/src/kernels/cuda/flash_attention.h"

// bfloat16 goes to cuDNN, which uses the tensor cores to their limit. What it does not serve, builds without it, and
// float32 go to our own kernels.

namespace infini_train::kernels::cuda {
namespace {

AttentionSizes CheckedAttentionSizes(const char* operation, const Tensor& qkv, const AttentionHeads& heads) {
    CHECK_EQ(qkv.num_dims(), 3) << operation << ": qkv " << ToString(qkv.shape());
    return {.batch_size = qkv.dim(0),
            .length = qkv.dim(1),
            .num_heads = heads.num_heads,
            .num_kv_heads = heads.num_kv_heads,
            .head_dim = HeadDim(qkv, heads)};
}

}  // namespace

AttentionOutput AttentionForward(const Tensor& qkv, const AttentionHeads& heads) {
    const AttentionSizes sizes = CheckedAttentionSizes("attention_forward", qkv, heads);
    AttentionOutput output{
        .out = Tensor::Empty({sizes.batch_size, sizes.length, sizes.out_width()}, qkv.dtype(), qkv.device()),
        .lse = Tensor::Empty({sizes.batch_size, sizes.num_heads, sizes.length}, DataType::kFloat32, qkv.device())};
    if (qkv.num_elements() == 0) {
        return output;
    }
    const bool done = qkv.dtype() == DataType::kBFloat16 && cudnn_attention.forward != nullptr &&
                      cudnn_attention.forward(sizes, qkv, *output.out, *output.lse);
    if (!done) {
        FlashForward(sizes, qkv, *output.out, *output.lse);
    }
    return output;
}

std::shared_ptr<Tensor> AttentionBackward(const Tensor& dout, const Tensor& qkv, const Tensor& out, const Tensor& lse,
                                          const AttentionHeads& heads, bool deterministic) {
    const AttentionSizes sizes = CheckedAttentionSizes("attention_backward", qkv, heads);
    const Shape out_shape{sizes.batch_size, sizes.length, sizes.out_width()};
    for (const Tensor* tensor : {&dout, &out}) {
        CHECK(tensor->shape() == out_shape && tensor->dtype() == qkv.dtype())
            << "attention_backward: " << ToString(tensor->shape()) << " " << Name(tensor->dtype()) << ", wanted "
            << ToString(out_shape) << " " << Name(qkv.dtype());
    }
    const Shape lse_shape{sizes.batch_size, sizes.num_heads, sizes.length};
    CHECK(lse.shape() == lse_shape) << "attention_backward: lse " << ToString(lse.shape()) << ", wanted "
                                    << ToString(lse_shape);
    auto dqkv = Tensor::Empty(qkv.shape(), qkv.dtype(), qkv.device());
    if (qkv.num_elements() == 0) {
        return dqkv;
    }
    const bool done = qkv.dtype() == DataType::kBFloat16 && cudnn_attention.backward != nullptr &&
                      cudnn_attention.backward(sizes, dout, qkv, out, lse, deterministic, *dqkv);
    if (!done) {
        FlashBackward(sizes, dout, qkv, out, lse, *dqkv);
    }
    return dqkv;
}

}  // namespace infini_train::kernels::cuda
