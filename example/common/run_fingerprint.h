#pragma once

#include <string>

#include "example/common/run_plan.h"

namespace infini_train {

/// Lines "name=value" of what all processes of a run must have alike: the version, the flags, the model, the plan of
/// all ranks, and what is in the files that they start from and train on. The files may lie elsewhere on another host.
/// Of weights and tokens it looks at a few rows of each tensor and of each dataset: other files are seen, a copy with
/// one wrong byte may not be. flags: lines "flag=value" of all that the program has.
std::string RunFingerprint(const RunPlan& plan, const std::string& flags);

}  // namespace infini_train
