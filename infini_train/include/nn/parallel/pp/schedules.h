#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "infini_train/include/nn/parallel/pp/pipeline_schedule.h"
#include "infini_train/include/nn/parallel/pp/plan_file.h"

namespace infini_train::nn::parallel {

// Formulas: P ranks, M micro-batches, V chunks a rank, stage = c P + r; F, D = time of a whole rank's layers.

/// All forwards, then all backwards (arXiv:1811.06965). Bubble (P - 1)(F + D); peak M micro-batches on each rank.
class ScheduleGPipe : public PipelineSchedule {
 public:
    void CheckShape(const PipelineShape& shape) const override;
    ActionList Plan(const PipelineShape& shape, int rank) const override;
};

/// One forward, one backward (PipeDream-flush, arXiv:2006.09503): w = min(M, P - 1 - r) forwards, then F, D in turn,
/// then the rest of D. Bubble (P - 1)(F + D); peak min(M, P - r). Eager: w = min(M, 2 (P - 1 - r)), which hides a hop;
/// peak min(M, 2 (P - r) - 1).
class Schedule1F1B : public PipelineSchedule {
 public:
    enum class WarmUp { kPlain, kEager };
    explicit Schedule1F1B(WarmUp warm_up = WarmUp::kPlain) : warm_up_(warm_up) {}

    void CheckShape(const PipelineShape& shape) const override;
    ActionList Plan(const PipelineShape& shape, int rank) const override;

 private:
    WarmUp warm_up_;
};

/// Interleaved 1F1B (arXiv:2104.04473). R = max(1, floor(M / P)) groups, group i holds micro-batches floor(i M / R) to
/// floor((i + 1) M / R) - 1, G is the largest group; each chunk runs a whole group before the next chunk does. w =
/// min(M V, 2 (P - 1 - r) + (V - 1) G) chunk forwards, then F, D in turn, then the rest of D. Bubble (P - 1)(F + D) / V
/// where P divides M; peak min(w + 1, M V) chunks.
class ScheduleInterleaved1F1B : public PipelineSchedule {
 public:
    void CheckShape(const PipelineShape& shape) const override;
    ActionList Plan(const PipelineShape& shape, int rank) const override;
};

/// Looped breadth-first (arXiv:2211.05953): for each chunk all forwards, then for each chunk from the last all
/// backwards. Bubble (P - 1)(F + D) / V where M >= P; peak M micro-batches.
class ScheduleLoopedBFS : public PipelineSchedule {
 public:
    void CheckShape(const PipelineShape& shape) const override;
    ActionList Plan(const PipelineShape& shape, int rank) const override;
};

/// A plan from a file (plan_file.h), for exactly its shape.
class ScheduleFromFile : public PipelineSchedule {
 public:
    /// Throws Error, naming the file, for one that holds no plan, or a plan that CheckPlans refuses.
    explicit ScheduleFromFile(const std::string& path);

    /// Who holds which stage, in the file.
    const PipelineShape& shape() const { return file_.shape; }
    void CheckShape(const PipelineShape& shape) const override;
    ActionList Plan(const PipelineShape& shape, int rank) const override;

 private:
    std::string path_;
    PlanFile file_;
};

/// gpipe, 1f1b, 1f1b_eager, interleaved, looped_bfs, or the path of a plan file (.json). Throws Error for any other
/// name.
std::unique_ptr<PipelineSchedule> MakeSchedule(std::string_view name);

}  // namespace infini_train::nn::parallel
