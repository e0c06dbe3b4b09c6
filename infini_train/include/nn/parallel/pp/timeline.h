#pragma once

#include <string>
#include <vector>

#include "infini_train/include/nn/parallel/pp/action.h"
#include "infini_train/include/nn/parallel/pp/simulator.h"

namespace infini_train::nn::parallel {

/// An action as it ran. Milliseconds since the step's start on one clock for all ranks of the process.
struct TimelineEvent {
    Action action = {};
    double wait_begin_ms = 0.0;  // the rank was free from here on; equal to start where nothing was waited for
    double start_ms = 0.0;
    double end_ms = 0.0;
};

/// What each rank did in a step, compute actions only, in their order.
using Timeline = std::vector<std::vector<TimelineEvent>>;

/// A simulation whose costs were in ms, as a timeline: a rank waits from the end of an action (the first from 0) to the
/// start of the next.
Timeline SimulatedTimeline(const Simulation& simulation);

/// From the step's start to the end of the last action of all ranks.
double MakespanMs(const Timeline& timeline);

/// How a rank spent a step.
struct RankUse {
    double work_ms = 0.0;  // in its actions
    double wait_ms = 0.0;  // before them, for other ranks
    double bubble = 0.0;   // 1 - work / makespan of all ranks
};

/// By rank. The bubble of a step without actions is 0.
std::vector<RankUse> RankUses(const Timeline& timeline);

/// The mean time of each kind of action of each stage in a timeline, in ms: what makes a simulation comparable with it.
/// A kind that a stage never ran costs 0, so simulate the plan that was measured. hop is 0: a timeline does not tell
/// how long a message travelled from how long it lay.
PipelineCosts MeasuredCosts(const PipelineShape& shape, const Timeline& timeline);

/// Chrome trace format, JSON (chrome://tracing, Perfetto), times in whole microseconds: process 1, a thread a rank, a
/// complete event ("X") for each action and for each wait before one, and an arrow for each message between two ranks
/// whose both ends are in the timeline.
std::string ChromeTrace(const PipelineShape& shape, const Timeline& timeline);

/// The measured timeline above the one simulated with its MeasuredCosts on one scale, with the bubble of each rank and
/// its waits. Needs nothing but itself: no script, no style sheet, no font.
std::string TimelineSvg(const PipelineShape& shape, const Timeline& timeline, const Simulation& simulation);

/// The simulated timeline as text, a line a rank, a cell a unit of time: "r0| f0 f1 .. d0 --". The first unit of an
/// action is named, the others are "--", idle ones ".."; cells are as wide as the widest. Chunks: 0 in lower case, 1 in
/// upper case; with more than two all in lower case with the chunk after the letter: "f2:0". CHECKs that every time is
/// a whole number of units and that no action takes none.
std::string TimelineText(const PipelineShape& shape, const Simulation& simulation);

}  // namespace infini_train::nn::parallel
