#include "glog/logging.h"

#include "infini_train/include/nn/parallel/pp/schedules.h"

namespace infini_train::nn::parallel {

ActionList ScheduleLoopedBFS::Plan(const PipelineShape& shape, int rank) const {
    CHECK(0 <= rank && rank < shape.num_ranks) << "rank " << rank << " of " << shape.num_ranks;
    ActionList plan;
    for (int chunk = 0; chunk < shape.num_chunks; ++chunk) {
        for (int m = 0; m < shape.num_microbatches; ++m) {
            plan.push_back({.kind = ActionKind::kForward, .chunk = chunk, .microbatch = m});
        }
    }
    for (int chunk = shape.num_chunks - 1; chunk >= 0; --chunk) {
        for (int m = 0; m < shape.num_microbatches; ++m) {
            plan.push_back({.kind = ActionKind::kBackward, .chunk = chunk, .microbatch = m});
        }
    }
    return plan;
}

}  // namespace infini_train::nn::parallel
