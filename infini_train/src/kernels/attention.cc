#include "infini_train/include/kernels/attention.h"

#include "glog/logging.h"

namespace infini_train::kernels {

int64_t HeadDim(const Tensor& qkv, const AttentionHeads& heads) {
    CHECK(heads.num_heads > 0 && heads.num_kv_heads > 0)
        << "attention: " << heads.num_heads << " heads, " << heads.num_kv_heads << " key/value heads";
    CHECK_EQ(heads.num_heads % heads.num_kv_heads, 0)
        << "attention: " << heads.num_heads << " heads over " << heads.num_kv_heads << " key/value heads";
    const int64_t num_slices = heads.num_heads + int64_t{2} * heads.num_kv_heads;
    const int64_t width = qkv.dim(-1);
    CHECK(width > 0 && width % num_slices == 0)
        << "attention: packed qkv " << ToString(qkv.shape()) << " with " << heads.num_heads << " heads and "
        << heads.num_kv_heads << " key/value heads";
    return width / num_slices;
}

}  // namespace infini_train::kernels
