#include "infini_train/include/checkpoint/training_state.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/checkpoint/canonical_json.h"
#include "infini_train/src/checkpoint/manifest.h"

namespace infini_train::checkpoint {
namespace {

void CheckCount(const std::string& path, const std::string& name, int64_t count) {
    if (count < 0) {
        throw Error({.where = path, .what = name + " is negative", .got = StrCat(count)});
    }
}

/// What the manifest says of trainer_state.json.
ManifestFile StateFileOf(const std::string& folder, const Manifest& manifest) {
    for (const ManifestFile& file : manifest.files) {
        if (file.name == kTrainingStateName) {
            return file;
        }
    }
    throw Error({.where = folder, .what = StrCat("the manifest names no ", kTrainingStateName)});
}

}  // namespace

std::string ToJson(const TrainingState& state) {
    // An object even when it is empty.
    nlohmann::ordered_json settings = nlohmann::ordered_json::object();
    for (const auto& [name, value] : state.settings) {
        settings[name] = value;
    }
    return CanonicalText({{"format", kCheckpointFormat},
                          {"step", state.step},
                          {"optimizer", state.optimizer},
                          {"optimizer_step", state.optimizer_step},
                          {"seed", state.seed},
                          {"position", {{"epoch", state.position.epoch}, {"row", state.position.row}}},
                          {"settings", settings}});
}

TrainingState ReadTrainingState(const std::string& folder) {
    const Manifest manifest = ReadManifest(folder);
    CheckChecksum(folder, StateFileOf(folder, manifest));
    const std::string path = folder + "/" + kTrainingStateName;
    TrainingState state;
    ReadCanonicalJson(path, [&](const nlohmann::json& json) {
        CheckFormat(path, json);
        state = {.step = json.at("step").get<int64_t>(),
                 .optimizer = json.at("optimizer").get<std::string>(),
                 .optimizer_step = json.at("optimizer_step").get<int64_t>(),
                 .seed = json.at("seed").get<uint64_t>(),
                 .position = {.epoch = json.at("position").at("epoch").get<int64_t>(),
                              .row = json.at("position").at("row").get<int64_t>()},
                 .settings = json.at("settings").get<std::map<std::string, std::string>>()};
        return ToJson(state);
    });
    CheckCount(path, "step", state.step);
    CheckCount(path, "optimizer_step", state.optimizer_step);
    CheckCount(path, "position.epoch", state.position.epoch);
    CheckCount(path, "position.row", state.position.row);
    if (state.step != manifest.step) {
        throw Error({.where = path,
                     .what = "is of another step than the manifest",
                     .got = StrCat(state.step),
                     .wanted = StrCat(manifest.step)});
    }
    return state;
}

}  // namespace infini_train::checkpoint
