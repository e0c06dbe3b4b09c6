#pragma once

#include <string>
#include <vector>

#include "infini_train/include/nn/parallel/pp/timeline.h"

namespace infini_train {

/// The measured timeline above the one that the simulator makes of the measured times of each action. Empty for a step
/// that was not measured.
std::string TimelineFigure(const nn::parallel::PipelineShape& shape, const nn::parallel::Timeline& timeline);

/// --timeline: a Chrome trace for a path that ends in .json; for .svg the TimelineFigure.
void WriteTimelineFiles(const std::vector<std::string>& paths, const nn::parallel::PipelineShape& shape,
                        const nn::parallel::Timeline& timeline);

}  // namespace infini_train
