#pragma once

// A launch over many tensors gives each of them as many consecutive blocks as its size needs.
namespace infini_train::kernels::cuda {

/// The most bytes of arguments that a launch takes, from CUDA 12.1 on. A table of tensors that is an argument needs no
/// copy of its own, is never overwritten while an earlier launch reads it, and is part of a captured graph.
constexpr int kMaxArgumentBytes = 32764;

/// The index of the tensor whose blocks [first_block[index], first_block[index + 1]) hold the block.
__device__ inline int OwnerOfBlock(const int* first_block, int num_tensors, int block) {
    int low = 0;
    int high = num_tensors;
    // first_block[low] <= block < first_block[high]: an empty tensor before the owner has the same first block, so the
    // last one with it is found.
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (first_block[middle] <= block) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

}  // namespace infini_train::kernels::cuda
