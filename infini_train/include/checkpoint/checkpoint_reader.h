#pragma once

#include <memory>
#include <string>
#include <vector>

#include "infini_train/include/nn/module.h"
#include "infini_train/include/optimizer/optimizer.h"

// What a CheckpointWriter wrote. The weights are read as those of any Hugging Face folder.

namespace infini_train::checkpoint {

/// The folder of a checkpoint: `path` itself, or, where path is the folder of a run, its newest complete one, by the
/// number of the step. Throws Error when there is none: when files are missing or have another size than the manifest
/// says, or a small one, *.json, has another checksum.
std::string FindCheckpoint(const std::string& path);

/// Throws Error for the first file that differs in any bit from what was written. Reads all files whose place in the
/// list is part of num_parts: each rank takes its share, and together they read everything once.
void VerifyChecksums(const std::string& folder, int part, int num_parts);

/// Sets the moments of the optimizer, which is over the parameters of the chunks, and its step. Reads the moments of
/// these parameters alone, whatever ranks wrote them. Throws Error when one is missing or has another shape, and when
/// the checkpoint is of an optimizer with other moments.
void LoadMoments(const std::string& folder, const std::vector<std::shared_ptr<nn::Module>>& chunks,
                 optimizers::Optimizer& optimizer);

}  // namespace infini_train::checkpoint
