#include "example/tools/model_flags.h"

#include "example/common/command_line.h"
#include "example/common/flag_values.h"
#include "infini_train/include/common/error.h"

DEFINE_string(llmc_filepath, "", "weights: a GPT-2 or LLaMA-3 file of llm.c");
DEFINE_string(hf_dir, "", "weights: a Hugging Face folder, config.json and model.safetensors (or shards)");
DEFINE_string(load, "", "weights: a checkpoint of a training, or the folder of its checkpoints (the newest there)");
DEFINE_double(
    rope_scaling_factor, 8,
    "stretch of the rotary frequencies for a LLaMA-3 file of llm.c that asks for it but does not say how much "
    "(LLaMA-3.1: 8, 3.2: 32)");

namespace infini_train {

void CheckOneIsGiven(const std::vector<std::string>& flags) {
    std::string names;
    int num_given = 0;
    for (const std::string& flag : flags) {
        names += (names.empty() ? "--" : ", --") + flag;
        num_given += FlagValue(flag).empty() ? 0 : 1;
    }
    if (num_given != 1) {
        throw Error({.where = names,
                     .what = num_given == 0 ? "no model (see --help)" : "exclude each other",
                     .wanted = "one of them"});
    }
}

float RopeScalingFactor() {
    return FloatAtLeast("rope_scaling_factor", FLAGS_rope_scaling_factor, 1.0f);
}

}  // namespace infini_train
