#include "example/common/saved_flags.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "example/common/command_line.h"
#include "example/common/flag_values.h"
#include "infini_train/include/checkpoint/checkpoint_reader.h"
#include "infini_train/include/checkpoint/training_state.h"
#include "infini_train/include/common/error.h"
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
                                    "overfit_single_batch",
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
                                    "grad_clip",
                                    "on_nonfinite"};

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

/// gflags writes 0.1 as 0.10000000000000001.
std::string Short(const std::string& value) {
    double number = 0.0;
    const char* end = value.data() + value.size();
    const bool is_fraction = value.find('.') != std::string::npos &&
                             std::from_chars(value.data(), end, number) == std::from_chars_result{end, std::errc{}};
    char text[32];  // 24 are enough for any double
    return is_fraction ? std::string(text, std::to_chars(text, text + sizeof(text), number).ptr) : value;
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
            notes.push_back(StrCat("--", flag, " ", Short(FlagValue(flag)), ", the checkpoint was made with ",
                                   Short(saved->second)));
        }
    }
    return notes;
}

/// Of a run that begins after `step` and saves where checkpoints of later steps are: of another run, or of this one
/// before it went back.
std::vector<std::string> NotesOnLaterSteps(int64_t step) {
    const std::string save = FlagValue("save");
    if (save.empty() || !HasCheckpoints(save)) {
        return {};
    }
    try {
        const std::string newest = checkpoint::FindCheckpoint(save);
        if (checkpoint::ReadTrainingState(newest).step > step) {
            return {"--save " + save + " has a checkpoint of a later step already: --load latest takes " + newest +
                    " until this run is past it"};
        }
    } catch (const Error&) {  // what is broken there is no checkpoint that a run could take
    }
    return {};
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
        return NotesOnLaterSteps(0);
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
    const checkpoint::TrainingState state = checkpoint::ReadTrainingState(load);
    std::vector<std::string> notes = TakeSettings(state.settings);
    for (const std::string& note : NotesOnLaterSteps(state.step)) {
        notes.push_back(note);
    }
    return notes;
}

}  // namespace infini_train
