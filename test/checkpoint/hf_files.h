#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

#include "infini_train/include/checkpoint/weight_source.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/core/shape.h"
#include "test/checkpoint/safetensors_files.h"
#include "test/support/run_program.h"

// Folders of Hugging Face's made by hand, without the library's writer.

namespace infini_train::checkpoint::test {

struct HandTensor {
    Shape shape = {};
    std::vector<float> values = {};
};
using HandTensors = std::map<std::string, HandTensor>;

/// first, first + 1, ...
inline HandTensor CountingTensor(const Shape& shape, float first) {
    return {.shape = shape, .values = Counting(first, static_cast<size_t>(NumElements(shape)))};
}

/// A tensor of every shape; each value is there once.
inline HandTensors CountingTensors(const std::map<std::string, Shape>& shapes) {
    HandTensors tensors;
    float next = 1.0f;
    for (const auto& [name, shape] : shapes) {
        tensors[name] = CountingTensor(shape, next);
        next += static_cast<float>(NumElements(shape));
    }
    return tensors;
}

inline std::string SafetensorsOf(const HandTensors& tensors) {
    nlohmann::json header = nlohmann::json::object();
    std::string data;
    for (const auto& [name, tensor] : tensors) {
        const size_t begin = data.size();
        Append(data, tensor.values.data(), tensor.values.size() * sizeof(float));
        header[name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
    }
    return FileOf(header.dump(), data);
}

inline void WriteFolder(const std::string& folder, const nlohmann::json& config, const HandTensors& tensors) {
    std::filesystem::create_directories(folder);
    infini_train::test::WriteTextFile(folder + "/config.json", config.dump());
    infini_train::test::WriteTextFile(folder + "/model.safetensors", SafetensorsOf(tensors));
}

/// Each tensor in a file of its own.
inline void WriteShardedFolder(const std::string& folder, const nlohmann::json& config, const HandTensors& tensors) {
    std::filesystem::create_directories(folder);
    infini_train::test::WriteTextFile(folder + "/config.json", config.dump());
    nlohmann::json map;
    size_t total_size = 0;
    for (const auto& [name, tensor] : tensors) {
        map[name] = "part-" + std::to_string(map.size()) + ".safetensors";
        total_size += tensor.values.size() * sizeof(float);
        infini_train::test::WriteTextFile(folder + "/" + map[name].get<std::string>(), SafetensorsOf({{name, tensor}}));
    }
    const nlohmann::json index = {{"metadata", {{"total_size", total_size}}}, {"weight_map", map}};
    infini_train::test::WriteTextFile(folder + "/model.safetensors.index.json", index.dump());
}

inline std::vector<float> RowsOf(const WeightSource& weights, const std::string& name, int64_t begin, int64_t end) {
    const Shape& shape = weights.shape(name);
    // What is not written must not look like a row of padding.
    std::vector<float> values(static_cast<size_t>((end - begin) * (NumElements(shape) / shape[0])), -1.0f);
    weights.ReadRows(name, begin, end, values.data());
    return values;
}

inline std::vector<float> ValuesOf(const WeightSource& weights, const std::string& name) {
    return RowsOf(weights, name, 0, weights.shape(name)[0]);
}

/// That any rows of a tensor, read alone, are those of the whole.
inline void ExpectRowsToBeTheWhole(const WeightSource& weights, const std::string& name) {
    const std::vector<float> whole = ValuesOf(weights, name);
    const int64_t num_rows = weights.shape(name)[0];
    const int64_t row_size = NumElements(weights.shape(name)) / num_rows;
    for (int64_t begin = 0; begin <= num_rows; ++begin) {
        for (int64_t end = begin; end <= num_rows; ++end) {
            EXPECT_EQ(RowsOf(weights, name, begin, end),
                      std::vector<float>(whole.begin() + begin * row_size, whole.begin() + end * row_size))
                << name << " rows " << begin << " to " << end;
        }
    }
}

/// Of our parameter [rows, columns]: element (row, column) is that of the file's tensor at place(row, column).
inline void ExpectElements(const WeightSource& weights, const std::string& name, const Shape& shape,
                           const std::vector<float>& stored,
                           const std::function<int64_t(int64_t row, int64_t column)>& place) {
    ASSERT_EQ(weights.shape(name), shape) << name;
    const std::vector<float> values = ValuesOf(weights, name);
    for (int64_t row = 0; row < shape[0]; ++row) {
        for (int64_t column = 0; column < shape[1]; ++column) {
            ASSERT_EQ(values[static_cast<size_t>(row * shape[1] + column)],
                      stored[static_cast<size_t>(place(row, column))])
                << name << " " << row << ", " << column;
        }
    }
}

struct ConfigChange {
    std::string key = {};
    nlohmann::json value = {};
    std::vector<std::string> parts = {};  // of the message, or none where it is no fault
};

}  // namespace infini_train::checkpoint::test
