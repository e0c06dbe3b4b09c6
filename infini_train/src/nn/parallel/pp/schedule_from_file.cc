#include <cstddef>
#include <string>
#include <vector>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/nn/parallel/pp/checker.h"
#include "infini_train/include/nn/parallel/pp/passes.h"
#include "infini_train/include/nn/parallel/pp/schedules.h"

namespace infini_train::nn::parallel {
namespace {

void CheckNumber(const std::string& path, const std::string& what, int in_file, int in_run) {
    if (in_file != in_run) {
        throw Error({.where = path,
                     .what = StrCat("the plan is for another number of ", what, " than this run's"),
                     .got = StrCat(in_file),
                     .wanted = StrCat(in_run)});
    }
}

}  // namespace

ScheduleFromFile::ScheduleFromFile(const std::string& path) : path_(path), file_(ReadPlanFile(path)) {
    std::vector<ActionList> plans = file_.plans;
    PlaceReceives(file_.shape, &plans);
    try {
        CheckPlans(file_.shape, plans, PlanKind::kTraining, {});
    } catch (const Error& error) {
        throw Error({.where = path, .what = error.what()});
    }
}

void ScheduleFromFile::CheckShape(const PipelineShape& shape) const {
    CheckNumber(path_, "ranks (P)", file_.shape.num_ranks, shape.num_ranks);
    CheckNumber(path_, "micro-batches (M)", file_.shape.num_microbatches, shape.num_microbatches);
    CheckNumber(path_, "chunks a rank (V)", file_.shape.num_chunks, shape.num_chunks);
    for (int stage = 0; stage < shape.num_stages(); ++stage) {
        if (file_.shape.RankOf(stage) != shape.RankOf(stage)) {
            throw Error({.where = path_,
                         .what = StrCat("the plan has stage ", stage, " on another rank than this run"),
                         .got = StrCat(file_.shape.RankOf(stage)),
                         .wanted = StrCat(shape.RankOf(stage))});
        }
    }
}

ActionList ScheduleFromFile::Plan(const PipelineShape& shape, int rank) const {
    CHECK(0 <= rank && rank < shape.num_ranks) << "rank " << rank << " of " << shape.num_ranks;
    return file_.plans.at(static_cast<size_t>(rank));
}

}  // namespace infini_train::nn::parallel
