#include <algorithm>

#include "glog/logging.h"

#include "infini_train/include/nn/parallel/pp/schedules.h"

namespace infini_train::nn::parallel {

ActionList Schedule1F1B::Plan(const PipelineShape& shape, int rank) const {
    CHECK(0 <= rank && rank < shape.num_ranks) << "rank " << rank << " of " << shape.num_ranks;
    const int num_after = shape.num_ranks - 1 - rank;
    const int warm_up = warm_up_ == WarmUp::kPlain ? num_after : 2 * num_after;
    const int num_ahead = std::min(shape.num_microbatches, warm_up);
    ActionList plan;
    for (int m = 0; m < num_ahead; ++m) {
        plan.push_back({.kind = ActionKind::kForward, .chunk = 0, .microbatch = m});
    }
    for (int m = 0; m < shape.num_microbatches; ++m) {
        if (num_ahead + m < shape.num_microbatches) {
            plan.push_back({.kind = ActionKind::kForward, .chunk = 0, .microbatch = num_ahead + m});
        }
        plan.push_back({.kind = ActionKind::kBackward, .chunk = 0, .microbatch = m});
    }
    return plan;
}

}  // namespace infini_train::nn::parallel
