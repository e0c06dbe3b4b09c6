#include "example/common/timeline_files.h"

#include <algorithm>

#include "example/common/text_file.h"
#include "infini_train/include/nn/parallel/pp/simulator.h"

namespace infini_train {
namespace {

/// The compute actions as they ran, which is the plan's order.
std::vector<nn::parallel::ActionList> ActionsOf(const nn::parallel::Timeline& timeline) {
    std::vector<nn::parallel::ActionList> plans(timeline.size());
    for (size_t rank = 0; rank < timeline.size(); ++rank) {
        for (const nn::parallel::TimelineEvent& event : timeline[rank]) {
            plans[rank].push_back(event.action);
        }
    }
    return plans;
}

}  // namespace

std::string TimelineFigure(const nn::parallel::PipelineShape& shape, const nn::parallel::Timeline& timeline) {
    if (std::all_of(timeline.begin(), timeline.end(), [](const auto& events) { return events.empty(); })) {
        return "";
    }
    const nn::parallel::Simulation simulation =
        nn::parallel::Simulate(shape, ActionsOf(timeline), nn::parallel::MeasuredCosts(shape, timeline));
    return nn::parallel::TimelineSvg(shape, timeline, simulation);
}

void WriteTimelineFiles(const std::vector<std::string>& paths, const nn::parallel::PipelineShape& shape,
                        const nn::parallel::Timeline& timeline) {
    for (const std::string& path : paths) {
        if (path.ends_with(".json")) {
            WriteTextFile("--timeline", path, nn::parallel::ChromeTrace(shape, timeline));
        } else {
            WriteTextFile("--timeline", path, TimelineFigure(shape, timeline));
        }
    }
}

}  // namespace infini_train
