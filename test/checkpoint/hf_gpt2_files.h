#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "infini_train/include/checkpoint/hf_gpt2.h"
#include "test/checkpoint/hf_files.h"
#include "test/checkpoint/llmc_files.h"
#include "test/support/run_program.h"

// A GPT-2 made by hand.

namespace infini_train::checkpoint::test {

inline constexpr int64_t kChannels = 6;

inline nlohmann::json Gpt2Config() {
    return {{"model_type", "gpt2"}, {"architectures", {"GPT2LMHeadModel"}},
            {"n_layer", 2},         {"n_head", 3},
            {"n_embd", kChannels},  {"n_positions", 7},
            {"vocab_size", 5}};
}

inline HandTensors Gpt2Tensors(const std::string& prefix = "") {
    const int64_t c = kChannels;
    std::map<std::string, Shape> shapes = {{prefix + "wte.weight", {5, c}},
                                           {prefix + "wpe.weight", {7, c}},
                                           {prefix + "ln_f.weight", {c}},
                                           {prefix + "ln_f.bias", {c}}};
    for (const std::string layer : {"h.0.", "h.1."}) {
        const std::map<std::string, Shape> more = {
            {"ln_1.weight", {c}},
            {"ln_1.bias", {c}},
            {"attn.c_attn.weight", {c, 3 * c}},
            {"attn.c_attn.bias", {3 * c}},
            {"attn.c_proj.weight", {c, c}},
            {"attn.c_proj.bias", {c}},
            {"ln_2.weight", {c}},
            {"ln_2.bias", {c}},
            {"mlp.c_fc.weight", {c, 4 * c}},
            {"mlp.c_fc.bias", {4 * c}},
            {"mlp.c_proj.weight", {4 * c, c}},
            {"mlp.c_proj.bias", {c}},
        };
        for (const auto& [name, shape] : more) {
            shapes[prefix + layer + name] = shape;
        }
    }
    return CountingTensors(shapes);
}

class HfGpt2Test : public testing::Test {
 protected:
    HfGpt2Folder Open(const nlohmann::json& config, const HandTensors& tensors) {
        WriteFolder(path_, config, tensors);
        return OpenHfGpt2(path_);
    }
    void ExpectRefused(const nlohmann::json& config, const HandTensors& tensors, std::vector<std::string> parts) {
        parts.push_back(path_);
        ExpectRefusal([&] { Open(config, tensors); }, parts);
    }

    infini_train::test::TemporaryFolder folder_;
    std::string path_ = folder_.File("model");
};

}  // namespace infini_train::checkpoint::test
