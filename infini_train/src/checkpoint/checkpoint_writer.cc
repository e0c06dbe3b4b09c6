#include "infini_train/include/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "glog/logging.h"
#include "nlohmann/json.hpp"

#include "infini_train/include/comm/wait_error.h"
#include "infini_train/include/common/atomic_file.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/error_text.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/checkpoint/checkpoint_unit.h"
#include "infini_train/src/checkpoint/manifest.h"
#include "infini_train/src/checkpoint/run_folder.h"

namespace infini_train::checkpoint {
namespace {

/// By its first letter, what a rank tells the others of its part: the files, or an error.
constexpr char kFiles = '+';
constexpr char kError = '-';

std::map<std::string, std::shared_ptr<Tensor>> ParametersByName(
    const std::vector<std::shared_ptr<nn::Module>>& chunks) {
    std::map<std::string, std::shared_ptr<Tensor>> parameters;
    for (const std::shared_ptr<nn::Module>& chunk : chunks) {
        for (const nn::NamedParameter& parameter : chunk->NamedParameters()) {
            parameters.emplace(parameter.name, parameter.tensor);  // of two copies on one rank the first
        }
    }
    return parameters;
}

CheckpointUnit::Parameter SourceOf(const NamedShape& parameter, const std::shared_ptr<Tensor>& tensor,
                                   const optimizers::Optimizer& optimizer) {
    const TensorList& all = optimizer.parameters();
    const auto place = static_cast<size_t>(std::find(all.begin(), all.end(), tensor) - all.begin());
    CHECK_LT(place, all.size()) << "the optimizer has no parameter " << parameter.name;
    CheckpointUnit::Parameter source = {.parameter = parameter,
                                        .values = tensor->master() != nullptr ? tensor->master() : tensor};
    for (const optimizers::Moments& moments : optimizer.moments()) {
        source.moments[moments.name] = moments.tensors[place];
    }
    return source;
}

ManifestFile WriteText(const std::string& folder, const std::string& name, const std::string& text) {
    AtomicFile file(folder + "/" + name);
    file.Append(text.data(), text.size());
    file.Commit();
    return Describe(folder, name);
}

/// The first error of any rank, or "".
std::string FirstError(const std::vector<std::string>& parts) {
    for (size_t rank = 0; rank < parts.size(); ++rank) {
        if (parts[rank].front() == kError) {
            return (parts.size() == 1 ? "" : StrCat("[rank ", rank, "] ")) + parts[rank].substr(1);
        }
    }
    return "";
}

}  // namespace

CheckpointWriter::CheckpointWriter(Options options, std::shared_ptr<const HfModel> model,
                                   std::vector<std::shared_ptr<nn::Module>> chunks,
                                   std::shared_ptr<const optimizers::Optimizer> optimizer,
                                   std::shared_ptr<comm::ProcessGroup> world)
    : options_(std::move(options)),
      model_(std::move(model)),
      optimizer_(std::move(optimizer)),
      world_(std::move(world)) {
    CHECK_NOTNULL(model_.get());
    CHECK_NOTNULL(optimizer_.get());
    CHECK_NOTNULL(world_.get());
    CHECK_GE(options_.keep, 0);
    ShareOut(chunks);
    OpenFolder();
}

CheckpointWriter::~CheckpointWriter() {
    if (progress() != Progress::kIdle) {
        Wait();
    }
}

void CheckpointWriter::ShareOut(const std::vector<std::shared_ptr<nn::Module>>& chunks) {
    const std::map<std::string, std::shared_ptr<Tensor>> parameters = ParametersByName(chunks);
    const std::vector<std::vector<NamedShape>> units = UnitsOf(*model_);
    std::string held;
    for (size_t unit = 0; unit < units.size(); ++unit) {
        const bool holds_all = std::all_of(units[unit].begin(), units[unit].end(), [&](const NamedShape& parameter) {
            return parameters.contains(parameter.name);
        });
        held += holds_all ? StrCat(unit, " ") : "";
    }
    std::vector<std::vector<int>> holders(units.size());
    const std::vector<std::string> held_by =
        comm::WaitingAt("to share out the checkpoint", [&] { return world_->ExchangeText(held); });
    for (int rank = 0; rank < world_->size(); ++rank) {
        std::istringstream list(held_by[static_cast<size_t>(rank)]);
        for (size_t unit = 0; list >> unit;) {
            holders.at(unit).push_back(rank);
        }
    }
    for (size_t unit = 0; unit < units.size(); ++unit) {
        CHECK(!holders[unit].empty()) << "no rank holds all of unit " << unit << " of the model";
        // Replicas, and the ends of a pipeline that share an embedding, have the same bits: they share the work.
        if (holders[unit][unit % holders[unit].size()] != world_->rank()) {
            continue;
        }
        std::vector<CheckpointUnit::Parameter> sources;
        for (const NamedShape& parameter : units[unit]) {
            sources.push_back(SourceOf(parameter, parameters.at(parameter.name), *optimizer_));
        }
        units_.emplace_back(unit, units.size(), std::move(sources));
    }
}

void CheckpointWriter::OpenFolder() {
    std::string error;
    if (world_->rank() == 0) {
        try {
            run_folder_ = std::make_unique<RunFolder>(options_.folder);
            run_folder_->RemoveLeftovers();
        } catch (const Error& thrown) {
            error = thrown.what();
        }
    }
    error = comm::WaitingAt("for the folder of the checkpoints", [&] { return world_->ExchangeText(error)[0]; });
    if (!error.empty()) {
        throw Error({.what = error});
    }
    // On another host it may be another folder, or none.
    const std::string seen = std::filesystem::is_directory(options_.folder) ? "seen" : "";
    const std::vector<std::string> all =
        comm::WaitingAt("for the folder of the checkpoints", [&] { return world_->ExchangeText(seen); });
    const auto blind = std::find(all.begin(), all.end(), "");
    if (blind != all.end()) {
        throw Error({.where = options_.folder,
                     .what = StrCat("rank ", blind - all.begin(), " does not see this folder, which rank 0 has made"),
                     .wanted = "one folder that all hosts see"});
    }
}

void CheckpointWriter::Begin(const TrainingState& state) {
    CHECK(progress() == Progress::kIdle) << "the checkpoint of step " << step_ << " was not committed";
    step_ = state.step;
    for (CheckpointUnit& unit : units_) {
        unit.Take();
    }
    TrainingState taken = state;
    taken.optimizer_step = optimizer_->step();
    part_ = std::async(std::launch::async, [this, taken = std::move(taken)] { return Write(taken); }).share();
}

CheckpointWriter::Part CheckpointWriter::Write(const TrainingState& state) const {
    try {
        const std::string folder = PartialFolder(options_.folder, state.step);
        std::filesystem::create_directories(folder);
        ManifestFiles files;
        for (const CheckpointUnit& unit : units_) {
            const ManifestFiles of_unit = unit.Write(*model_, folder);
            files.insert(files.end(), of_unit.begin(), of_unit.end());
        }
        if (world_->rank() == 0) {
            files.push_back(WriteText(folder, "config.json", model_->ConfigJson()));
            files.push_back(WriteText(folder, "model.safetensors.index.json", IndexJson(*model_)));
            files.push_back(WriteText(folder, kTrainingStateName, ToJson(state)));
        }
        return {.files = ToJson(files).dump()};
    } catch (const std::exception& exception) {
        return {.error = ErrorText(exception)};
    }
}

CheckpointWriter::Progress CheckpointWriter::progress() const {
    if (!part_.valid()) {
        return Progress::kIdle;
    }
    if (part_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
        return Progress::kWriting;
    }
    return part_.get().error.empty() ? Progress::kWritten : Progress::kFailed;
}

void CheckpointWriter::Wait() const {
    CHECK(part_.valid()) << "nothing is being written";
    part_.wait();
}

CheckpointWriter::Result CheckpointWriter::Commit() {
    CHECK(part_.valid()) << "there is nothing to commit";
    const Part part = part_.get();
    part_ = {};
    const std::vector<std::string> parts = comm::WaitingAt("for the parts of the checkpoint", [&] {
        return world_->ExchangeText(part.error.empty() ? kFiles + part.files : kError + part.error);
    });
    // The others go on when rank 0 has done its part: before that they must not act on the checkpoint, nor write again.
    const std::string published = world_->rank() == 0 ? Publish(parts) : "";
    const std::string error =
        comm::WaitingAt("for the commit of the checkpoint", [&] { return world_->ExchangeText(published)[0]; });
    if (!error.empty()) {
        return {.error = error};
    }
    ExpireOld();
    return {.path = StepFolder(options_.folder, step_)};
}

std::string CheckpointWriter::Publish(const std::vector<std::string>& parts) const {
    std::string error = FirstError(parts);
    if (error.empty()) {
        Manifest manifest = {.step = step_};
        for (const std::string& part : parts) {
            const ManifestFiles files = FilesFromJson(nlohmann::json::parse(part.substr(1)));
            manifest.files.insert(manifest.files.end(), files.begin(), files.end());
        }
        std::sort(manifest.files.begin(), manifest.files.end(),
                  [](const ManifestFile& a, const ManifestFile& b) { return a.name < b.name; });
        try {
            run_folder_->Publish(manifest);
            return "";
        } catch (const std::exception& exception) {
            error = exception.what();
        }
    }
    run_folder_->RemovePartial(step_);
    return error;
}

void CheckpointWriter::ExpireOld() {
    if (run_folder_ == nullptr) {
        return;
    }
    std::vector<std::string> gone;
    try {
        gone = run_folder_->Expire(options_.keep, step_);
    } catch (const Error& error) {
        LOG(WARNING) << error.what();  // the new checkpoint is there all the same
    }
    // It takes the time of a large file to be freed, for which the training does not wait.
    removal_ = std::async(std::launch::async, [gone = std::move(gone)] {
        for (const std::string& folder : gone) {
            RemoveFolder(folder);
        }
    });
}

}  // namespace infini_train::checkpoint
