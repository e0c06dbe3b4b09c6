#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/checkpoint/weight_file.h"
#include "infini_train/include/common/error.h"

// llm.c files made by hand, without the library's writer.

namespace infini_train::checkpoint::test {

using Words = std::array<int32_t, 256>;

inline void Append(std::string& file, const void* bytes, size_t size_bytes) {
    file.append(static_cast<const char*>(bytes), size_bytes);
}

/// A header, then values 1, 2, 3, ... of a dtype.
inline std::string FileOf(const Words& words, int64_t num_values, DataType dtype = DataType::kFloat32) {
    std::string file;
    Append(file, words.data(), sizeof(words));
    for (int64_t i = 1; i <= num_values; ++i) {
        const auto value = static_cast<float>(i);
        const BFloat16 narrow(value);
        if (dtype == DataType::kFloat32) {
            Append(file, &value, sizeof(value));
        } else {
            Append(file, &narrow, sizeof(narrow));
        }
    }
    return file;
}

/// 2 layers, 2 heads, 4 channels, block 6, vocabulary 5 padded to 8.
inline constexpr int64_t kGpt2Values = 8 * 4 + 6 * 4 + 2 * (12 * 4 * 4 + 13 * 4) + 2 * 4;
inline Words Gpt2Words() {
    return {20240326, 3, 6, 5, 2, 2, 4, 8};
}

/// 2 layers, 4 heads, 2 key/value heads, 8 channels, MLP 24, block 6, vocabulary 7.
inline constexpr int64_t kLlama3Values = 2 * 7 * 8 + 8 + 2 * (2 * 8 + (4 + 4) * 2 * 8 + 8 * 8 + 3 * 24 * 8);
inline Words Llama3IntegerWords() {
    return {20240803, 3, 6, 7, 2, 4, 2, 8, 1, 8, 0, 10000, 1, 4, 3, 1};
}
inline Words Llama3FloatWords() {
    Words words = Llama3IntegerWords();
    words[8] = std::bit_cast<int32_t>(1.0f);
    words[10] = std::bit_cast<int32_t>(1e-6f);
    words[11] = std::bit_cast<int32_t>(10000.0f);
    return words;
}

inline Words With(Words words, const std::map<size_t, int32_t>& changes) {
    for (const auto& [index, value] : changes) {
        words.at(index) = value;
    }
    return words;
}

inline std::vector<float> Values(const WeightFile& file, const std::string& name) {
    std::vector<float> values(static_cast<size_t>(NumElements(file.shape(name))));
    file.Read(name, values.data());
    return values;
}

/// first, first + 1, ...
inline std::vector<float> Counting(float first, size_t count) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) {
        values[i] = first + static_cast<float>(i);
    }
    return values;
}

/// Calls open with the file at path as it is but for one byte of its first num_bytes, many times; the file is good
/// again afterwards. Returns how often open threw Error.
inline int NumRefusedFlips(const std::string& path, size_t num_bytes, int num_flips,
                           const std::function<void()>& open) {
    std::mt19937 random(1);
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    int num_refused = 0;
    for (int i = 0; i < num_flips; ++i) {
        const auto place = static_cast<std::streamoff>(random() % num_bytes);
        const int good = file.seekg(place).get();
        const auto put = [&](int byte) { file.seekp(place).put(static_cast<char>(byte)).flush(); };
        put(good ^ static_cast<int>(1 + random() % 255));
        try {
            open();
        } catch (const Error&) {
            ++num_refused;
        }
        put(good);
    }
    EXPECT_TRUE(file.good());
    return num_refused;
}

/// That this throws bad input with each part in its message.
inline void ExpectRefusal(const std::function<void()>& action, const std::vector<std::string>& parts) {
    try {
        action();
        ADD_FAILURE() << "no Error; wanted one with " << testing::PrintToString(parts);
    } catch (const Error& error) {
        EXPECT_EQ(error.exit_code(), 2);
        for (const std::string& part : parts) {
            EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
                << part << " is not in: " << error.what();
        }
    }
}

}  // namespace infini_train::checkpoint::test
