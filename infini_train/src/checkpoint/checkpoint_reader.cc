#include "infini_train/include/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "glog/logging.h"

#include "infini_train/include/checkpoint/safetensors.h"
#include "infini_train/include/checkpoint/training_state.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/checkpoint/checkpoint_unit.h"
#include "infini_train/src/checkpoint/manifest.h"
#include "infini_train/src/checkpoint/run_folder.h"

namespace infini_train::checkpoint {
namespace {

constexpr int64_t kChunkElements = int64_t{1} << 20;  // bounds the host's part of a tensor on a device

std::string Joined(const std::set<std::string>& names) {
    std::string list;
    for (const std::string& name : names) {
        list += (list.empty() ? "" : ", ") + name;
    }
    return list.empty() ? "none" : list;
}

/// The newest complete one, or "" and of the newest what is wrong with it.
std::string NewestComplete(const std::vector<StepEntry>& entries, std::string* why) {
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
        try {
            CheckStep(*entry);
            return entry->path;
        } catch (const Error& error) {
            *why = why->empty() ? error.what() : *why;
        }
    }
    return "";
}

/// The moments of a checkpoint, in whatever files they are.
class MomentFiles {
 public:
    explicit MomentFiles(const std::string& folder) : folder_(folder) {
        for (const ManifestFile& file : ReadManifest(folder).files) {
            if (IsMomentFileName(file.name)) {
                files_.push_back(OpenSafetensors(folder + "/" + file.name));
            }
        }
        for (size_t file = 0; file < files_.size(); ++file) {
            for (const std::string& name : files_[file].names()) {
                file_of_tensor_.emplace(name, file);
            }
        }
    }

    std::set<std::string> moments() const {
        std::set<std::string> names;
        for (const auto& [tensor, file] : file_of_tensor_) {
            names.insert(tensor.substr(0, tensor.find('.')));
        }
        return names;
    }

    void Read(const std::string& tensor, Tensor& destination) const {
        const auto found = file_of_tensor_.find(tensor);
        if (found == file_of_tensor_.end()) {
            throw Error({.where = folder_, .what = "has no tensor " + tensor});
        }
        const WeightFile& file = files_[found->second];
        if (file.shape(tensor) != destination.shape()) {
            throw Error({.where = file.path(),
                         .what = "tensor " + tensor + " has another shape",
                         .got = ToString(file.shape(tensor)),
                         .wanted = ToString(destination.shape())});
        }
        const int64_t num_rows = destination.dim(0);
        const int64_t row_size = std::max<int64_t>(1, destination.num_elements() / std::max<int64_t>(1, num_rows));
        const int64_t chunk_rows = std::max<int64_t>(1, kChunkElements / row_size);
        std::vector<float> chunk;
        for (int64_t begin = 0; begin < num_rows; begin += chunk_rows) {
            const int64_t end = std::min(begin + chunk_rows, num_rows);
            chunk.resize(static_cast<size_t>((end - begin) * row_size));
            file.ReadRows(tensor, begin, end, chunk.data());
            CopyFromHost(chunk.data(), *destination.Slice(begin, end));
        }
    }

 private:
    std::string folder_;
    std::vector<WeightFile> files_;
    std::map<std::string, size_t> file_of_tensor_;
};

}  // namespace

std::string FindCheckpoint(const std::string& path) {
    std::filesystem::path folder = std::filesystem::path(path).lexically_normal();
    folder = folder.has_filename() ? folder : folder.parent_path();  // "run/"
    std::error_code none;
    if (!std::filesystem::is_directory(folder, none)) {
        throw Error(
            {.where = path, .what = "is not a folder", .wanted = "a checkpoint, or a folder of a run with some"});
    }
    if (IsPartial(folder.string())) {
        throw Error({.where = path, .what = "is a checkpoint that was never completed"});
    }
    if (std::filesystem::exists(folder / kManifestName, none)) {
        CheckFiles(folder.string(), ReadManifest(folder.string()));
        return folder.string();
    }
    const std::vector<StepEntry> entries = ListSteps(folder.string());
    if (entries.empty()) {
        throw Error({.where = path,
                     .what = "has no checkpoint",
                     .wanted = StrCat(kManifestName, ", or folders step_... of checkpoints")});
    }
    std::string why;
    const std::string newest = NewestComplete(entries, &why);
    if (newest.empty()) {
        throw Error({.where = path,
                     .what = StrCat("has no complete checkpoint among ", entries.size()),
                     .got = "of the newest: " + why});
    }
    return newest;
}

void VerifyChecksums(const std::string& folder, int part, int num_parts) {
    CHECK(0 <= part && part < num_parts) << "part " << part << " of " << num_parts;
    const ManifestFiles files = ReadManifest(folder).files;
    for (size_t i = static_cast<size_t>(part); i < files.size(); i += static_cast<size_t>(num_parts)) {
        CheckChecksum(folder, files[i]);
    }
}

void LoadMoments(const std::string& folder, const std::vector<std::shared_ptr<nn::Module>>& chunks,
                 optimizers::Optimizer& optimizer) {
    const MomentFiles files(folder);
    std::set<std::string> wanted;
    for (const optimizers::Moments& moments : optimizer.moments()) {
        wanted.insert(moments.name);
    }
    if (files.moments() != wanted) {
        throw Error({.where = folder,
                     .what =
                         "is the checkpoint of another optimizer: its moments differ; the weights alone can be read "
                         "as a Hugging Face folder",
                     .got = Joined(files.moments()),
                     .wanted = Joined(wanted)});
    }
    std::map<const Tensor*, std::string> names;
    for (const std::shared_ptr<nn::Module>& chunk : chunks) {
        for (const nn::NamedParameter& parameter : chunk->NamedParameters()) {
            names[parameter.tensor.get()] = parameter.name;
        }
    }
    for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
        const auto name = names.find(optimizer.parameters()[i].get());
        CHECK(name != names.end()) << "parameter " << i << " of the optimizer is in no chunk";
        for (const optimizers::Moments& moments : optimizer.moments()) {
            files.Read(MomentTensorName(moments.name, name->second), *moments.tensors[i]);
        }
    }
    optimizer.set_step(ReadTrainingState(folder).optimizer_step);
}

}  // namespace infini_train::checkpoint
