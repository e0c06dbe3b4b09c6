#include "example/common/saved_flags.h"

#include <array>
#include <filesystem>
#include <system_error>

#include "example/common/command_line.h"
#include "example/common/flag_values.h"
#include "infini_train/include/checkpoint/checkpoint_reader.h"
#include "infini_train/include/checkpoint/training_state.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train {
namespace {

/// What decides the numbers of a run: a run that goes on from a checkpoint takes those that it is not given from there.
constexpr std::array kSavedFlags = {"input_bin",
                                    "shuffle",
                                    "tokenizer",
                                    "seed",
                                    "dropout",
                                    "dtype",
                                    "batch_size",
                                    "sequence_length",
                                    "total_batch_size",
                                    "num_iteration",
                                    "optimizer",
                                    "learning_rate",
                                    "lr_schedule",
                                    "warmup_iterations",
                                    "lr_decay_iterations",
                                    "final_lr_fraction",
                                    "weight_decay",
                                    "beta1",
                                    "beta2",
                                    "eps",
                                    "momentum",
                                    "grad_clip"};

/// What a killed run left unfinished, *.partial, is none.
bool HasCheckpoints(const std::string& run_folder) {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(run_folder, none)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with("step_") && !name.ends_with(".partial")) {
            return true;
        }
    }
    return false;
}

/// Flags that are not given become those of a checkpoint. Returns notes on those that differ.
std::vector<std::string> TakeSettings(const std::map<std::string, std::string>& settings) {
    std::vector<std::string> notes;
    for (const char* flag : kSavedFlags) {
        const auto saved = settings.find(flag);
        if (saved == settings.end()) {
            continue;
        }
        if (!IsGiven(flag)) {
            SetFlag(flag, saved->second);
        } else if (FlagValue(flag) != saved->second) {
            notes.push_back(StrCat("--", flag, " ", FlagValue(flag), ", the checkpoint was made with ", saved->second));
        }
    }
    return notes;
}

}  // namespace

std::map<std::string, std::string> SettingsToSave() {
    std::map<std::string, std::string> settings;
    for (const char* flag : kSavedFlags) {
        settings[flag] = FlagValue(flag);
    }
    return settings;
}

std::vector<std::string> ResolveLoad() {
    std::string load = FlagValue("load");
    if (load.empty()) {
        return {};
    }
    if (load == "latest") {
        const std::string save = FlagValue("save");
        if (save.empty()) {
            RefuseFlag("load", "needs --save, the folder in which it looks", "latest", "--save DIR");
        }
        if (!HasCheckpoints(save)) {
            SetFlag("load", "");
            return {"there is no checkpoint in " + save + " yet"};
        }
        load = save;
        for (const char* start : {"model", "llmc_filepath", "hf_dir"}) {
            SetFlag(start, "");
        }
    }
    load = checkpoint::FindCheckpoint(load);
    SetFlag("load", load);
    return TakeSettings(checkpoint::ReadTrainingState(load).settings);
}

}  // namespace infini_train
