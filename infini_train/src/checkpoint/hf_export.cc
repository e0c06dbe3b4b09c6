#include "infini_train/include/checkpoint/hf_export.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "glog/logging.h"
#include "nlohmann/json.hpp"

#include "infini_train/include/checkpoint/safetensors_writer.h"
#include "infini_train/include/common/atomic_file.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::checkpoint {
namespace {

/// A tensor to write, and where its values come from.
struct Piece {
    NamedShape tensor;
    NamedShape parameter;
    size_t index = 0;  // of the tensor among those of the parameter
};

struct Shard {
    std::map<std::string, Piece> pieces = {};  // by the name of the tensor
    uint64_t size_bytes = 0;
};

/// A folder that gets its name when it is complete; before that nothing of it stays.
class NewFolder {
 public:
    explicit NewFolder(const std::string& path) : path_(std::filesystem::path(path).lexically_normal()) {
        if (!path_.has_filename()) {
            path_ = path_.parent_path();  // "out/"
        }
        std::error_code none;
        if (std::filesystem::exists(path_, none) &&
            !(std::filesystem::is_directory(path_, none) && std::filesystem::is_empty(path_, none))) {
            throw Error({.where = path, .what = "is there already", .wanted = "a new or an empty folder"});
        }
        temporary_path_ = StrCat(path_.string(), ".tmp.", getpid());
        std::error_code error;
        if (!std::filesystem::create_directory(temporary_path_, error)) {
            throw Error({.where = path,
                         .what = StrCat("cannot make the folder ", temporary_path_.string(), ": ",
                                        error ? error.message() : "it is there already")});
        }
    }
    NewFolder(const NewFolder&) = delete;
    NewFolder& operator=(const NewFolder&) = delete;
    ~NewFolder() {
        std::error_code none;
        std::filesystem::remove_all(temporary_path_, none);
    }

    std::string File(const std::string& name) const { return (temporary_path_ / name).string(); }
    void Commit() {
        std::error_code error;
        std::filesystem::rename(temporary_path_, path_, error);
        if (error) {
            throw Error({.where = path_.string(),
                         .what = "cannot move the finished folder into place: " + error.message(),
                         .kind = Error::Kind::kRuntime});
        }
    }

 private:
    std::filesystem::path path_;
    std::filesystem::path temporary_path_;
};

std::vector<Shard> Split(const HfModel& model, const HfExportOptions& options) {
    std::vector<Shard> shards(1);
    for (const NamedShape& parameter : model.parameters()) {
        const std::vector<NamedShape> tensors = model.TensorsOf(parameter.name);
        for (size_t index = 0; index < tensors.size(); ++index) {
            const uint64_t size_bytes =
                static_cast<uint64_t>(NumElements(tensors[index].shape)) * SizeOf(options.dtype);
            if (shards.back().size_bytes > 0 && shards.back().size_bytes + size_bytes > options.max_shard_bytes) {
                shards.emplace_back();
            }
            shards.back().size_bytes += size_bytes;
            shards.back().pieces[tensors[index].name] = {
                .tensor = tensors[index], .parameter = parameter, .index = index};
        }
    }
    return shards;
}

/// "model-00002-of-00003.safetensors"
std::string NameOf(size_t shard, size_t num_shards) {
    if (num_shards == 1) {
        return "model.safetensors";
    }
    char name[64] = {};
    std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors", shard + 1, num_shards);
    return name;
}

std::vector<float> ReadParameter(const WeightSource& weights, const NamedShape& parameter) {
    if (weights.shape(parameter.name) != parameter.shape) {
        throw Error({.where = weights.path(),
                     .what = "tensor " + parameter.name + " has another shape",
                     .got = ToString(weights.shape(parameter.name)),
                     .wanted = ToString(parameter.shape)});
    }
    std::vector<float> values(static_cast<size_t>(NumElements(parameter.shape)));
    weights.ReadRows(parameter.name, 0, parameter.shape.at(0), values.data());
    return values;
}

void WriteShard(const std::string& path, const Shard& shard, const HfModel& model, const WeightSource& weights,
                DataType dtype) {
    std::vector<SafetensorsWriter::Tensor> tensors;
    for (const auto& [name, piece] : shard.pieces) {
        tensors.push_back({.name = name, .dtype = dtype, .shape = piece.tensor.shape});
    }
    SafetensorsWriter writer(path, std::move(tensors));
    for (const SafetensorsWriter::Tensor& tensor : writer.tensors()) {
        const Piece& piece = shard.pieces.at(tensor.name);
        std::vector<float> hf_values(static_cast<size_t>(NumElements(tensor.shape)));
        model.Convert(piece.parameter.name, piece.index, ReadParameter(weights, piece.parameter), hf_values);
        writer.Append(hf_values);
    }
    writer.Commit();
}

void WriteText(const std::string& path, const std::string& text) {
    AtomicFile file(path);
    file.Append(text.data(), text.size());
    file.Commit();
}

std::string IndexOf(const std::vector<Shard>& shards) {
    uint64_t total_size = 0;
    std::map<std::string, std::string> file_of_tensor;
    for (size_t i = 0; i < shards.size(); ++i) {
        total_size += shards[i].size_bytes;
        for (const auto& [name, piece] : shards[i].pieces) {
            file_of_tensor[name] = NameOf(i, shards.size());
        }
    }
    const nlohmann::ordered_json json = {{"metadata", {{"total_size", total_size}}}, {"weight_map", file_of_tensor}};
    return json.dump(2) + "\n";
}

std::string ConfigWithDtype(const HfModel& model, DataType dtype) {
    nlohmann::ordered_json json = nlohmann::ordered_json::parse(model.ConfigJson());
    json["torch_dtype"] = Name(dtype);
    return json.dump(2) + "\n";
}

}  // namespace

void ExportHf(const std::string& folder, const HfModel& model, const WeightSource& weights,
              const HfExportOptions& options) {
    CHECK(IsFloat(options.dtype)) << Name(options.dtype);
    NewFolder files(folder);
    const std::vector<Shard> shards = Split(model, options);
    for (size_t i = 0; i < shards.size(); ++i) {
        WriteShard(files.File(NameOf(i, shards.size())), shards[i], model, weights, options.dtype);
    }
    if (shards.size() > 1) {
        WriteText(files.File("model.safetensors.index.json"), IndexOf(shards));
    }
    WriteText(files.File("config.json"), ConfigWithDtype(model, options.dtype));
    files.Commit();
}

}  // namespace infini_train::checkpoint
