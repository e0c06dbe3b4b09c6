#include "infini_train/include/kernels/attention_cached.h"

#include "glog/logging.h"

namespace infini_train::kernels {

CachedAttentionSizes CheckedCachedSizes(const Tensor& qkv, const AttentionHeads& heads, int64_t start,
                                        const Tensor& keys, const Tensor& values) {
    CHECK_EQ(qkv.num_dims(), 3) << "attention_cached: qkv " << ToString(qkv.shape());
    const int64_t head_dim = HeadDim(qkv, heads);
    CHECK_EQ(keys.num_dims(), 4) << "attention_cached: keys " << ToString(keys.shape());
    const Shape kept = {qkv.dim(0), keys.dim(1), heads.num_kv_heads, head_dim};
    for (const Tensor* tensor : {&keys, &values}) {
        CHECK(tensor->shape() == kept && tensor->dtype() == qkv.dtype())
            << "attention_cached: keys or values " << ToString(tensor->shape()) << " " << Name(tensor->dtype())
            << ", wanted " << ToString(kept) << " " << Name(qkv.dtype());
    }
    CHECK(0 <= start && start + qkv.dim(1) <= keys.dim(1))
        << "attention_cached: " << qkv.dim(1) << " positions after " << start << " in a cache of " << keys.dim(1);
    return {.batch_size = qkv.dim(0),
            .length = qkv.dim(1),
            .start = start,
            .max_positions = keys.dim(1),
            .num_heads = heads.num_heads,
            .num_kv_heads = heads.num_kv_heads,
            .head_dim = head_dim};
}

}  // namespace infini_train::kernels
