#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace infini_train::checkpoint {

/// Where the next step of a training takes its rows from.
struct TrainingPosition {
    int64_t epoch = 0;
    int64_t row = 0;  // of the epoch

    bool operator==(const TrainingPosition&) const = default;
};

/// All that decides how a training goes on, but for its tensors. The same whatever the layout of the ranks.
struct TrainingState {
    int64_t step = 0;            // steps that lie behind
    std::string optimizer = {};  // "adamw"
    int64_t optimizer_step = 0;  // Optimizer::step(); a CheckpointWriter fills it in
    uint64_t seed = 0;
    TrainingPosition position = {};
    std::map<std::string, std::string> settings = {};  // flags that decide the numbers

    bool operator==(const TrainingState&) const = default;
};

/// The text of trainer_state.json.
std::string ToJson(const TrainingState& state);
/// Of the folder of one checkpoint. Throws Error unless its trainer_state.json is byte by byte what ToJson writes, and
/// what the manifest of the folder says.
TrainingState ReadTrainingState(const std::string& folder);

}  // namespace infini_train::checkpoint
