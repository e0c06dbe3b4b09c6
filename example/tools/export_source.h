#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "infini_train/include/checkpoint/hf_gpt2.h"
#include "infini_train/include/checkpoint/hf_llama.h"
#include "infini_train/include/checkpoint/weight_source.h"
#include "infini_train/include/core/dtype.h"

namespace infini_train {

/// The model that --llmc_filepath, --hf_dir or --load names, in whichever format it is.
struct ExportSource {
    std::variant<checkpoint::HfGpt2Config, checkpoint::HfLlamaConfig> config = {};
    std::shared_ptr<const checkpoint::WeightSource> weights = nullptr;
    std::vector<std::string> notes = {};  // what the user should know of the files
    DataType dtype = DataType::kFloat32;  // to write: --dtype, or that of the weights
};

/// The whole of a program that reads such a model and writes it to --output. Returns the exit code: 0, 2 for bad input,
/// 1 for what failed while running, with one line on stderr. own_flags are those that the program has besides those of
/// the source.
int RunExport(int argc, char** argv, const std::string& usage, const std::vector<std::string>& own_flags,
              void (*write)(const ExportSource& source, const std::string& output));

}  // namespace infini_train
