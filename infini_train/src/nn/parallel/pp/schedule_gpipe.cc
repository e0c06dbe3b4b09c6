#include "glog/logging.h"

#include "infini_train/include/nn/parallel/pp/schedules.h"

namespace infini_train::nn::parallel {

ActionList ScheduleGPipe::Plan(const PipelineShape& shape, int rank) const {
    CHECK(0 <= rank && rank < shape.num_ranks) << "rank " << rank << " of " << shape.num_ranks;
    ActionList plan;
    for (int m = 0; m < shape.num_microbatches; ++m) {
        plan.push_back({.kind = ActionKind::kForward, .chunk = 0, .microbatch = m});
    }
    for (int m = 0; m < shape.num_microbatches; ++m) {
        plan.push_back({.kind = ActionKind::kBackward, .chunk = 0, .microbatch = m});
    }
    return plan;
}

}  // namespace infini_train::nn::parallel
