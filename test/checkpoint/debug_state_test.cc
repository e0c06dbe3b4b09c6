#include "infini_train/include/checkpoint/debug_state.h"

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "test/checkpoint/llmc_files.h"
#include "test/support/run_program.h"

namespace infini_train::checkpoint::test {
namespace {

using infini_train::test::ReferenceFolders;
using infini_train::test::TemporaryFolder;
using infini_train::test::WriteTextFile;

const LlmcGpt2Header kGpt2 = {
    .block_size = 6, .vocab_size = 5, .padded_vocab_size = 8, .num_layers = 2, .num_heads = 2, .num_channels = 4};
const LlmcLlama3Header kLlama3 = {.block_size = 6,
                                  .vocab_size = 7,
                                  .num_layers = 2,
                                  .num_heads = 4,
                                  .num_kv_heads = 2,
                                  .num_channels = 8,
                                  .hidden_size = 24};

/// x = 0 1 2 0 1 2, y = 1 2 3 1 2 3, then logits, loss and gradients that count from 1.
std::string StateOf(const Words& words, int64_t num_floats) {
    const std::vector<int32_t> ids = {0, 1, 2, 0, 1, 2, 1, 2, 3, 1, 2, 3};
    const std::string floats = FileOf(words, num_floats);
    std::string bytes = floats.substr(0, 1024);
    Append(bytes, ids.data(), ids.size() * sizeof(int32_t));
    return bytes + floats.substr(1024);
}

class DebugStateTest : public testing::Test {
 protected:
    DebugState ReadGpt2(const std::string& bytes) {
        WriteTextFile(path_, bytes);
        return ReadGpt2DebugState(path_, kGpt2);
    }
    DebugState ReadLlama3(const std::string& bytes) {
        WriteTextFile(path_, bytes);
        return ReadLlama3DebugState(path_, kLlama3);
    }

    TemporaryFolder folder_;
    std::string path_ = folder_.File("state.bin");
    const Words gpt2_words_ = {20240327, 2, 2, 3};
    const Words llama3_words_ = {20240803, 2, 3};
    std::string gpt2_bytes_ = StateOf(gpt2_words_, 2 * 3 * 5 + 1 + kGpt2Values);
    std::string llama3_bytes_ = StateOf(llama3_words_, 2 * 3 * 7 + 1 + kLlama3Values);
};

TEST_F(DebugStateTest, ReadsGpt2) {
    const DebugState state = ReadGpt2(gpt2_bytes_);
    EXPECT_EQ(state.batch_size, 2);
    EXPECT_EQ(state.sequence_length, 3);
    EXPECT_EQ(state.inputs, (std::vector<int32_t>{0, 1, 2, 0, 1, 2}));
    EXPECT_EQ(state.targets, (std::vector<int32_t>{1, 2, 3, 1, 2, 3}));
    EXPECT_EQ(state.logits, Counting(1, 30));
    EXPECT_EQ(state.loss, 31.0f);
    EXPECT_EQ(Values(state.gradients, "wpe.weight"), Counting(32 + 32, 24));
    EXPECT_EQ(Values(state.gradients, "ln_f.bias"), Counting(31 + kGpt2Values - 3, 4));
    // Gradients are float32 beside weights of any dtype.
    LlmcGpt2Header narrow = kGpt2;
    narrow.dtype = DataType::kBFloat16;
    EXPECT_EQ(Values(ReadGpt2DebugState(path_, narrow).gradients, "wpe.weight"), Counting(64, 24));
}

TEST_F(DebugStateTest, ReadsLlama3) {
    const DebugState state = ReadLlama3(llama3_bytes_);
    EXPECT_EQ(state.batch_size, 2);
    EXPECT_EQ(state.sequence_length, 3);
    EXPECT_EQ(state.logits, Counting(1, 42));
    EXPECT_EQ(state.loss, 43.0f);
    EXPECT_EQ(Values(state.gradients, "wte.weight"), Counting(44, 56));
    EXPECT_EQ(Values(state.gradients, "lm_head.weight"), Counting(43 + kLlama3Values - 55, 56));
}

TEST_F(DebugStateTest, RefusesWhatDoesNotFitTheModel) {
    ExpectRefusal([&] { ReadGpt2(gpt2_bytes_ + "x"); }, {path_, "after the last tensor"});
    ExpectRefusal([&] { ReadGpt2(gpt2_bytes_.substr(0, gpt2_bytes_.size() - 1)); }, {path_, "cut short"});
    ExpectRefusal([&] { ReadLlama3(llama3_bytes_ + "x"); }, {path_, "after the last tensor"});
    const auto refuse = [&](const Words& words, const std::vector<std::string>& parts) {
        ExpectRefusal([&] { ReadGpt2(FileOf(words, 1)); }, parts);
    };
    refuse(Gpt2Words(), {path_, "magic", "GPT-2 weights"});
    refuse(With(gpt2_words_, {{1, 1}}), {"version"});
    refuse(With(gpt2_words_, {{2, 0}}), {"batch size", "got 0"});
    refuse(With(gpt2_words_, {{2, -2}}), {"batch size", "got -2"});
    refuse(With(gpt2_words_, {{3, 7}}), {"sequence length", "got 7", "1 to 6"});
    refuse(With(gpt2_words_, {{4, 1}}), {"word 4"});
    refuse(With(gpt2_words_, {{2, 1 << 20}, {3, 6}}), {"size"});
    ExpectRefusal([&] { ReadLlama3(FileOf(Llama3IntegerWords(), kLlama3Values)); }, {path_, "LLaMA-3 weights"});
    ExpectRefusal([&] { ReadLlama3(FileOf(With(llama3_words_, {{4, 1}}), 1)); }, {path_, "word 4"});
    ExpectRefusal([&] { ReadLlama3(FileOf(With(llama3_words_, {{1, 0}}), 1)); }, {path_, "batch size"});
}

TEST_F(DebugStateTest, RefusesIdsOutsideTheVocabulary) {
    std::string bytes = gpt2_bytes_;
    bytes[1024 + 4 * 4] = 5;
    ExpectRefusal([&] { ReadGpt2(bytes); }, {path_, "input 4", "id 5", "below 5"});
    bytes = gpt2_bytes_;
    bytes[1024 + 4 * 11 + 3] = '\xff';
    ExpectRefusal([&] { ReadGpt2(bytes); }, {path_, "target 5", "id -16777213"});
}

double CrossEntropyOf(const DebugState& state, int64_t vocab_size) {
    double sum = 0.0;
    for (size_t n = 0; n < state.targets.size(); ++n) {
        const float* logits = state.logits.data() + n * static_cast<size_t>(vocab_size);
        double denominator = 0.0;
        for (int64_t v = 0; v < vocab_size; ++v) {
            denominator += std::exp(static_cast<double>(logits[v]));
        }
        sum += std::log(denominator) - static_cast<double>(logits[state.targets[n]]);
    }
    return sum / static_cast<double>(state.targets.size());
}

TEST(DebugStateReference, TheLossIsThatOfTheLogits) {
    for (const std::string& folder : ReferenceFolders()) {
        const LlmcGpt2Header gpt2 = OpenLlmcGpt2(folder + "/gpt2_tiny.bin").header;
        const DebugState state = ReadGpt2DebugState(folder + "/gpt2_tiny_debug_state.bin", gpt2);
        EXPECT_NEAR(state.loss, CrossEntropyOf(state, gpt2.vocab_size), 1e-5);
        EXPECT_TRUE(std::isfinite(Values(state.gradients, "ln_f.bias").back()));
        if (std::filesystem::exists(folder + "/llama_tiny_debug_state.bin")) {
            const LlmcLlama3Header llama3 = OpenLlmcLlama3(folder + "/llama_tiny.bin").header;
            const DebugState llama3_state = ReadLlama3DebugState(folder + "/llama_tiny_debug_state.bin", llama3);
            EXPECT_NEAR(llama3_state.loss, CrossEntropyOf(llama3_state, llama3.vocab_size), 1e-5);
            // Its batch is 2, which is no version of weights.
            ExpectRefusal([&] { OpenLlmcLlama3(folder + "/llama_tiny_debug_state.bin"); }, {"debug state"});
        }
    }
}

}  // namespace
}  // namespace infini_train::checkpoint::test
