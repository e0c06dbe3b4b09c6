#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "infini_train/include/nn/module.h"
#include "infini_train/include/nn/modules/dropout.h"
#include "infini_train/include/nn/parallel/pp/checker.h"
#include "infini_train/include/nn/parallel/pp/pipeline_schedule.h"
#include "infini_train/include/optimizer/optimizer.h"

namespace infini_train::nn::parallel {

/// A training step that is to be foreseen.
struct MemoryQuery {
    PipelineShape shape = {};
    const PipelineSchedule* schedule = nullptr;
    DataType dtype = DataType::kFloat32;
    BoundarySpec input = {};   // of a micro-batch
    BoundarySpec target = {};  // of a micro-batch
    /// A rank's chunks, float32, as the run itself builds them. Their parameters need no values.
    std::function<std::vector<std::shared_ptr<Module>>(int rank, const std::shared_ptr<DropoutPosition>& position,
                                                       const Device& device)>
        build_chunks = {};
    std::function<std::shared_ptr<optimizers::Optimizer>(const TensorList& parameters)> make_optimizer = {};
    std::shared_ptr<Module> loss_fn = nullptr;
};

struct MemoryPrediction {
    std::vector<int64_t> peak_bytes = {};       // by rank: all that its allocator hands out
    std::vector<int64_t> parameter_bytes = {};  // by rank: values and, where they are kept, float32 masters
    int64_t num_elements = 0;                   // of the parameters of the whole model, a tied one counted once
    PlanReport plan = {};
};

/// Runs the plan of each rank, one after the other, on a device that computes nothing and takes no memory: two whole
/// steps with their optimizer, so that every tensor of a run is accounted for. A message counts from when its receive
/// is posted. Throws what the checker throws.
MemoryPrediction PredictMemory(const MemoryQuery& query);

}  // namespace infini_train::nn::parallel
