#pragma once

#include <memory>
#include <vector>

#include "infini_train/include/comm/mesh.h"
#include "infini_train/include/nn/module.h"
#include "infini_train/include/nn/parallel/pp/pipeline_parallel.h"
#include "infini_train/include/nn/parallel/pp/pipeline_schedule.h"

namespace infini_train::nn::parallel {

double Median(std::vector<double> values);

/// Of the steps that a benchmark times.
struct StepTimes {
    std::vector<double> step_ms = {};      // from the step's start on rank 0 to its end, the optimizer included
    std::vector<double> makespan_ms = {};  // of its micro-batches
    std::vector<double> ratio = {};        // that makespan / the one simulated with the mean time of each action
};

struct StepsOptions {
    int num_microbatches = 1;
    int num_rows = 1;  // of a micro-batch
    int64_t sequence_length = 64;
    int64_t vocab_size = 0;
    float max_grad_norm = 0.0f;
    int num_warm_up = 2;  // steps that are not timed: the first ones take memory from the system
    int num_steps = 9;
    double hop_ms = 0.0;  // for the simulation
    std::shared_ptr<PipelineSchedule> schedule = nullptr;
};

/// Trains the chunks of this rank with AdamW on tokens without a meaning. Collective; rank 0 writes the times.
void TimeSteps(const comm::Mesh& mesh, const std::vector<std::shared_ptr<Module>>& chunks, DataType dtype,
               const StepsOptions& options, StepTimes* times);

}  // namespace infini_train::nn::parallel
