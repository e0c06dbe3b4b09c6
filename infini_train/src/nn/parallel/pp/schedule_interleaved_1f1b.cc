#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "glog/logging.h"

#include "infini_train/include/nn/parallel/pp/schedules.h"

namespace infini_train::nn::parallel {

ActionList ScheduleInterleaved1F1B::Plan(const PipelineShape& shape, int rank) const {
    CHECK(0 <= rank && rank < shape.num_ranks) << "rank " << rank << " of " << shape.num_ranks;
    const int64_t num_microbatches = shape.num_microbatches;
    const int64_t num_groups = std::max<int64_t>(1, num_microbatches / shape.num_ranks);
    ActionList forwards;
    ActionList backwards;
    int largest = 0;
    for (int64_t group = 0; group < num_groups; ++group) {
        const int begin = static_cast<int>(group * num_microbatches / num_groups);
        const int end = static_cast<int>((group + 1) * num_microbatches / num_groups);
        largest = std::max(largest, end - begin);
        for (int chunk = 0; chunk < shape.num_chunks; ++chunk) {
            for (int m = begin; m < end; ++m) {
                forwards.push_back({.kind = ActionKind::kForward, .chunk = chunk, .microbatch = m});
                const int from_last = shape.num_chunks - 1 - chunk;
                backwards.push_back({.kind = ActionKind::kBackward, .chunk = from_last, .microbatch = m});
            }
        }
    }
    const int warm_up = 2 * (shape.num_ranks - 1 - rank) + (shape.num_chunks - 1) * largest;
    const size_t num_ahead = std::min(forwards.size(), static_cast<size_t>(warm_up));
    ActionList plan(forwards.begin(), forwards.begin() + static_cast<ptrdiff_t>(num_ahead));
    for (size_t i = 0; i < backwards.size(); ++i) {
        if (num_ahead + i < forwards.size()) {
            plan.push_back(forwards[num_ahead + i]);
        }
        plan.push_back(backwards[i]);
    }
    return plan;
}

}  // namespace infini_train::nn::parallel
