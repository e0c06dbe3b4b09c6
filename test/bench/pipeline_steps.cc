#include "test/bench/pipeline_steps.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "infini_train/include/nn/modules/loss.h"
#include "infini_train/include/nn/parallel/pp/simulator.h"
#include "infini_train/include/nn/parallel/pp/timeline.h"
#include "infini_train/include/optimizer/adamw.h"

namespace infini_train::nn::parallel {

double Median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

void TimeSteps(const comm::Mesh& mesh, const std::vector<std::shared_ptr<Module>>& chunks, DataType dtype,
               const StepsOptions& options, StepTimes* times) {
    PipelineParallel pipeline(chunks, mesh,
                              {.num_microbatches = options.num_microbatches,
                               .max_grad_norm = options.max_grad_norm,
                               .schedule = options.schedule});
    const auto optimizer = std::make_shared<optimizers::AdamW>(pipeline.Parameters(), optimizers::AdamW::Options{});
    const auto loss = std::make_shared<CrossEntropyLoss>(CrossEntropyLoss::Options{.vocab_size = options.vocab_size});
    const int64_t num_rows = int64_t{options.num_microbatches} * options.num_rows;
    std::vector<int32_t> ids(static_cast<size_t>(num_rows * options.sequence_length));
    for (size_t i = 0; i < ids.size(); ++i) {
        ids[i] = static_cast<int32_t>(i * 7919 % static_cast<size_t>(options.vocab_size));
    }
    const auto tokens = Tensor::FromVector(ids, {num_rows, options.sequence_length}, mesh.device);
    const PipelineShape shape = pipeline.stage().ShapeFor(options.num_microbatches);
    for (int step = 0; step < options.num_warm_up + options.num_steps; ++step) {
        mesh.world->Barrier();
        const auto start = std::chrono::steady_clock::now();
        pipeline.TrainStep(tokens, tokens, optimizer, loss, dtype);
        mesh.world->Barrier();
        const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
        const Timeline timeline = pipeline.GatherTimeline();
        if (mesh.rank != 0 || step < options.num_warm_up) {
            continue;
        }
        PipelineCosts costs = MeasuredCosts(shape, timeline);
        costs.hop = options.hop_ms;
        const Simulation simulation = Simulate(shape, options.schedule->PlanAllRanks(shape), costs);
        times->step_ms.push_back(elapsed.count());
        times->makespan_ms.push_back(MakespanMs(timeline));
        times->ratio.push_back(times->makespan_ms.back() / simulation.makespan);
    }
}

}  // namespace infini_train::nn::parallel
