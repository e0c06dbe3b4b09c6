#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "test/support/run_program.h"

// Short trainings of the tiny models as a user runs them, and what they leave behind.

namespace infini_train::test {

using Words = std::vector<std::string>;

inline Words Join(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

inline bool Contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

/// The names in a folder, sorted.
inline std::vector<std::string> NamesIn(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

/// Files that are not in both folders, or differ in a byte. Empty for folders that are the same.
inline std::string DifferentFiles(const std::string& one, const std::string& other) {
    std::string different;
    std::vector<std::string> names = Join(NamesIn(one), NamesIn(other));
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    for (const std::string& name : names) {
        const std::string path = one + "/" + name;
        const std::string other_path = other + "/" + name;
        const bool is_same = std::filesystem::exists(path) && std::filesystem::exists(other_path) &&
                             ReadTextFile(path) == ReadTextFile(other_path);
        different += is_same ? "" : name + " ";
    }
    return different;
}

/// What a step of a metrics file says, as it is written: "3 loss 4.89 norm 3.39 lr 0.0003\n", and of a validation
/// "3 val_loss 4.5\n". The same text: the same bits, in the same order.
inline std::string NumbersOf(const std::string& metrics_path) {
    std::string numbers;
    std::istringstream lines(ReadTextFile(metrics_path));
    for (std::string line; std::getline(lines, line);) {
        const nlohmann::json json = nlohmann::json::parse(line);
        numbers += json.at("step").dump();
        for (const char* name : {"loss", "grad_norm", "lr", "val_loss"}) {
            numbers += json.contains(name) ? std::string(" ") + name + " " + json.at(name).dump() : "";
        }
        numbers += "\n";
    }
    return numbers;
}

inline std::vector<double> LossesOf(const std::string& metrics_path) {
    std::vector<double> losses;
    std::istringstream lines(ReadTextFile(metrics_path));
    for (std::string line; std::getline(lines, line);) {
        const nlohmann::json json = nlohmann::json::parse(line);
        if (json.contains("loss")) {
            losses.push_back(json.at("loss").get<double>());
        }
    }
    return losses;
}

/// Three shards of 11, 9 and 7 rows of 16 tokens. A step takes 8 rows: an epoch is three steps, and 3 rows are left.
class TrainingRun : public testing::Test {
 protected:
    TrainingRun() {
        uint32_t state = 1;
        for (const auto& [name, num_rows] : {std::pair{"shard_a.txt", 11}, {"shard_b.txt", 9}, {"shard_c.txt", 7}}) {
            std::string text;
            while (text.size() < 16u * static_cast<size_t>(num_rows) + 1) {
                state = state * 1664525u + 1013904223u;
                text += static_cast<char>('a' + (state >> 24) % 26);
            }
            WriteTextFile(File(name), text);
        }
    }

    /// A fresh start, without its length.
    Words Start() const {
        return {"--model", "tiny",        "--input_bin", File("shard_*.txt"),  "--batch_size", "2", "--sequence_length",
                "16",      "--timeout_s", "60",          "--total_batch_size", "128"};
    }
    /// The flags of a step that uses all there is: everything of it must be in a checkpoint.
    Words Rich() const {
        return Join(Start(),
                    {"--shuffle", "--dropout", "0.1", "--weight_decay", "0.1", "--grad_clip", "1", "--learning_rate",
                     "1e-2", "--warmup_iterations", "3", "--lr_decay_iterations", "8", "--final_lr_fraction", "0.1"});
    }
    /// Where a run writes its metrics and its checkpoints.
    Words Files(const std::string& name) const {
        return {"--metrics_file", File(name + ".jsonl"), "--save", File(name)};
    }
    Words Steps(int num_steps) const { return {"--num_iteration", std::to_string(num_steps)}; }

    std::string File(const std::string& name) const { return folder_.File(name); }
    std::string Numbers(const std::string& name) const { return NumbersOf(File(name + ".jsonl")); }
    std::string StepFolder(const std::string& name, int step) const {
        const std::string digits = std::to_string(step);
        return File(name) + "/step_" + std::string(8 - digits.size(), '0') + digits;
    }

    /// A run that must end well.
    ProgramResult Train(const std::string& program, const Words& words) const {
        ProgramResult result = RunProgram(program, words);
        EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
        EXPECT_EQ(result.err, "");
        return result;
    }

    TemporaryFolder folder_;
};

}  // namespace infini_train::test
