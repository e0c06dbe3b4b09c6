#pragma once

#include "example/common/model.h"

namespace infini_train::llama3 {

/// Fresh weights (--model), or those of a file or a folder. Reads headers alone.
ModelSpec MakeModel(const ProgramOptions& options);

}  // namespace infini_train::llama3
