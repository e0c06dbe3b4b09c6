#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "example/common/run_log.h"
#include "example/common/run_plan.h"
#include "infini_train/include/core/device.h"

namespace infini_train {

/// --report of a run that has ended. peak_bytes: of each rank of the world. timeline_svg: of the last step, or empty.
void WriteRunReport(const RunPlan& plan, const Device& device, const RunLog& log,
                    const std::vector<int64_t>& peak_bytes, const std::string& timeline_svg);

}  // namespace infini_train
