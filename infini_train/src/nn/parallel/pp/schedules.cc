#include "infini_train/include/nn/parallel/pp/schedules.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::nn::parallel {
namespace {

constexpr const char* kFlag = "--pipeline_schedule";

void CheckOneChunk(const PipelineShape& shape, const std::string& schedule) {
    if (shape.num_chunks != 1) {
        throw Error({.where = StrCat(kFlag, schedule),
                     .what = "this schedule runs one chunk a rank",
                     .got = StrCat("--virtual_pipeline_parallel ", shape.num_chunks),
                     .wanted = StrCat("1, or ", kFlag, " interleaved or looped_bfs")});
    }
}

/// These planners count on stage c P + r for chunk c of rank r.
void CheckLoop(const PipelineShape& shape, const std::string& schedule) {
    for (int stage = 0; stage < shape.num_stages(); ++stage) {
        if (shape.RankOf(stage) != stage % shape.num_ranks) {
            throw Error({.where = StrCat(kFlag, schedule),
                         .what = StrCat("the stages of this schedule go round the ranks: stage ", stage,
                                        " is on the wrong one"),
                         .got = StrCat("rank ", shape.RankOf(stage)),
                         .wanted = StrCat("rank ", stage % shape.num_ranks)});
        }
    }
}

}  // namespace

void PipelineSchedule::CheckShape(const PipelineShape& shape) const {
    CheckOneChunk(shape, "");
}

void ScheduleGPipe::CheckShape(const PipelineShape& shape) const {
    CheckOneChunk(shape, " gpipe");
    CheckLoop(shape, " gpipe");
}

void Schedule1F1B::CheckShape(const PipelineShape& shape) const {
    const std::string name = warm_up_ == WarmUp::kPlain ? " 1f1b" : " 1f1b_eager";
    CheckOneChunk(shape, name);
    CheckLoop(shape, name);
}

void ScheduleInterleaved1F1B::CheckShape(const PipelineShape& shape) const {
    CheckLoop(shape, " interleaved");
}

void ScheduleLoopedBFS::CheckShape(const PipelineShape& shape) const {
    CheckLoop(shape, " looped_bfs");
}

std::unique_ptr<PipelineSchedule> MakeSchedule(std::string_view name) {
    if (name == "gpipe") {
        return std::make_unique<ScheduleGPipe>();
    }
    if (name == "1f1b") {
        return std::make_unique<Schedule1F1B>();
    }
    if (name == "1f1b_eager") {
        return std::make_unique<Schedule1F1B>(Schedule1F1B::WarmUp::kEager);
    }
    if (name == "interleaved") {
        return std::make_unique<ScheduleInterleaved1F1B>();
    }
    if (name == "looped_bfs") {
        return std::make_unique<ScheduleLoopedBFS>();
    }
    if (name.ends_with(".json")) {
        return std::make_unique<ScheduleFromFile>(std::string(name));
    }
    throw Error({.where = kFlag,
                 .what = "no such schedule",
                 .got = std::string(name),
                 .wanted = "gpipe, 1f1b, 1f1b_eager, interleaved, looped_bfs or the path of a plan (.json)"});
}

}  // namespace infini_train::nn::parallel
