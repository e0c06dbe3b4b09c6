#pragma once

#include <string>
#include <vector>

#include "gflags/gflags.h"

// How the programs of this folder are given a model of either family.

DECLARE_string(llmc_filepath);
DECLARE_string(hf_dir);
DECLARE_string(load);
DECLARE_double(rope_scaling_factor);

namespace infini_train {

/// Throws Error unless one of the flags has a value, and one alone.
void CheckOneIsGiven(const std::vector<std::string>& flags);

/// --rope_scaling_factor. Throws Error for one that is out of range.
float RopeScalingFactor();

}  // namespace infini_train
