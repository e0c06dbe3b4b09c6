#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/checkpoint/safetensors.h"
#include "infini_train/include/common/str_cat.h"
#include "test/checkpoint/llmc_files.h"
#include "test/support/run_program.h"

// Files of safetensors made by hand.

namespace infini_train::checkpoint::test {

inline std::string SizeOfHeader(uint64_t size_bytes) {
    std::string bytes;
    Append(bytes, &size_bytes, sizeof(size_bytes));
    return bytes;
}

inline std::string FileOf(const std::string& json, const std::string& data) {
    return SizeOfHeader(json.size()) + json + data;
}

/// "name": {...}
inline std::string EntryOf(const std::string& name, const std::string& dtype, const std::string& shape, uint64_t begin,
                           uint64_t end) {
    return StrCat("\"", name, "\": {\"dtype\": \"", dtype, "\", \"shape\": ", shape, ", \"data_offsets\": [", begin,
                  ", ", end, "]}");
}

/// count values 1, 2, 3, ... of a dtype.
inline std::string DataOf(int64_t count, DataType dtype = DataType::kFloat32) {
    return FileOf(Words{}, count, dtype).substr(sizeof(Words));
}

class SafetensorsTest : public testing::Test {
 protected:
    WeightFile Open(const std::string& bytes) {
        infini_train::test::WriteTextFile(path_, bytes);
        return OpenSafetensors(path_);
    }
    void ExpectRefused(const std::string& bytes, std::vector<std::string> parts) {
        parts.push_back(path_);
        ExpectRefusal([&] { Open(bytes); }, parts);
    }
    /// This header before 8 bytes of data.
    void ExpectHeaderRefused(const std::string& json, const std::vector<std::string>& parts) {
        SCOPED_TRACE(json.substr(0, 200));
        ExpectRefused(FileOf(json, std::string(8, '\0')), parts);
    }

    infini_train::test::TemporaryFolder folder_;
    std::string path_ = folder_.File("model.safetensors");
};

}  // namespace infini_train::checkpoint::test
