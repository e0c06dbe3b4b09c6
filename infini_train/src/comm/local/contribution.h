#pragma once

#include <memory>
#include <string>
#include <vector>

#include "infini_train/include/core/tensor.h"

namespace infini_train::comm {

struct LocalGroup;

/// What a rank brings to a collective; pointers to what its caller holds.
struct Contribution {
    std::string operation = {};         // the same on all ranks
    const TensorList* sums = nullptr;   // the same length, shapes and dtypes on all ranks; every rank writes to them
    const Tensor* values = nullptr;     // the same shape and dtype on all ranks
    const std::string* text = nullptr;  // these may differ
    int color = 0;
    std::shared_ptr<const Event> enqueued = nullptr;  // the rank's work before; null on a device without streams
    std::shared_ptr<LocalGroup> group = nullptr;
};

/// By rank of the group.
using Contributions = std::vector<const Contribution*>;

/// Throws Error, the same on every rank but for its beginning, where the ranks came for different operations or with
/// tensors that do not fit together. `rank` is the caller's in the world.
void CheckAgreement(const Contributions& all, int rank, const std::vector<int>& world_ranks);

/// "rank 1", "ranks 0, 2, 5"
std::string Ranks(const std::vector<int>& ranks);

}  // namespace infini_train::comm
