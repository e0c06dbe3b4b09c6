// The program `generate`, from the files of the reference folders to the text.

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "test/support/run_program.h"

namespace infini_train::test {
namespace {

using nlohmann::json;

using Words = std::vector<std::string>;

ProgramResult Generate(Words words, const Words& more = {}) {
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--device", "cpu"});
    return RunProgram("generate", words);
}

std::string File(const std::string& name) {
    return std::string(INFINI_SOURCE_DIR) + "/test/reference/" + name;
}

/// A text that PyTorch goes on with, greedily.
struct GreedyText {
    std::string file;  // without its ending
    std::string prompt;
    std::string whole;

    size_t num_new() const { return whole.size() - prompt.size(); }
};

std::vector<GreedyText> GreedyTexts() {
    std::vector<GreedyText> texts;
    for (const std::string& folder : ReferenceFolders()) {
        const json file = json::parse(ReadTextFile(folder + "/reference.json"));
        for (const auto& [name, text] : file.items()) {
            if (const size_t end = name.find("_greedy"); end != std::string::npos) {
                texts.push_back({.file = folder + "/" + name.substr(0, end), .prompt = text.at("prompt"), .whole = ""});
                for (const json& token : text.at("tokens")) {
                    texts.back().whole += static_cast<char>(token.get<int>());
                }
            }
        }
    }
    return texts;
}

Words GreedyWords(const GreedyText& text) {
    return {"--prompt", text.prompt, "--text_length", std::to_string(text.num_new()), "--temperature", "0"};
}

TEST(GenerateProgram, GoesOnAsPyTorchDoes) {
    const std::vector<GreedyText> texts = GreedyTexts();
    ASSERT_GE(texts.size(), 2u);
    for (const GreedyText& text : texts) {
        const Words words = GreedyWords(text);
        for (const Words& way : {Words{}, {"--pipeline_parallel", "2"}, {"--nokv_cache"}}) {
            const ProgramResult result = Generate({"--llmc_filepath", text.file + ".bin"}, [&] {
                Words all = words;
                all.insert(all.end(), way.begin(), way.end());
                return all;
            }());
            ASSERT_EQ(result.exit_code, 0) << result.err;
            EXPECT_EQ(result.out, text.whole + "\n") << text.file;
            EXPECT_NE(result.err.find("then " + std::to_string(text.num_new() - 1) + " tokens in "), std::string::npos)
                << result.err;
        }
        if (std::filesystem::exists(text.file + "_hf")) {
            const ProgramResult result = Generate({"--hf_dir", text.file + "_hf"}, words);
            EXPECT_EQ(result.out, text.whole + "\n") << result.err;
        }
    }
}

TEST(GenerateProgram, TakesThePromptFromAFile) {
    const TemporaryFolder folder;
    WriteTextFile(folder.File("prompt.txt"), "To be, or\n");
    const Words model = {"--llmc_filepath", File("gpt2_tiny.bin"), "--text_length", "9"};
    const ProgramResult from_file = Generate(model, {"--prompt_file", folder.File("prompt.txt")});
    const ProgramResult from_flag = Generate(model, {"--prompt", "To be, or\n"});
    EXPECT_EQ(from_file.exit_code, 0) << from_file.err;
    EXPECT_EQ(from_file.out, from_flag.out);
    EXPECT_EQ(from_file.out.substr(0, 10), "To be, or\n");
}

TEST(GenerateProgram, GoesOnFromACheckpoint) {
    const TemporaryFolder folder;
    const std::string run = folder.File("run");
    const ProgramResult training =
        RunProgram("llama3", {"--llmc_filepath", File("llama_tiny.bin"), "--input_bin", File("text_u32.bin"), "--save",
                              run, "--save_every", "1", "--num_iteration", "2", "--batch_size", "2",
                              "--sequence_length", "16", "--learning_rate", "0.01", "--device", "cpu"});
    ASSERT_EQ(training.exit_code, 0) << training.err;
    const Words words = {"--prompt", "A", "--text_length", "30", "--temperature", "0"};
    const ProgramResult newest = Generate({"--load", run}, words);
    ASSERT_EQ(newest.exit_code, 0) << newest.err;
    EXPECT_EQ(newest.out, Generate({"--load", run + "/step_00000002", "--pipeline_parallel", "2"}, words).out);
    // Which is a Hugging Face folder, too.
    EXPECT_EQ(newest.out, Generate({"--hf_dir", run + "/step_00000002"}, words).out);
    EXPECT_NE(newest.out, Generate({"--load", run + "/step_00000001"}, words).out);
    EXPECT_NE(newest.err.find("float32"), std::string::npos) << newest.err;
}

TEST(GenerateProgram, WritesSeveralTexts) {
    const ProgramResult result =
        Generate({"--llmc_filepath", File("gpt2_tiny.bin"), "--prompt", "A", "--text_length", "20"},
                 {"--num_samples", "3", "--seed", "5", "--top_k", "20", "--top_p", "0.9"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    std::vector<std::string> texts;
    for (int sample = 1; sample <= 3; ++sample) {
        const std::string title = "--- " + std::to_string(sample) + " of 3\n";
        const size_t begin = result.out.find(title);
        ASSERT_NE(begin, std::string::npos) << title;
        const size_t end = result.out.find("--- " + std::to_string(sample + 1) + " of 3\n");
        texts.push_back(result.out.substr(begin + title.size(), end - begin - title.size()));
        EXPECT_EQ(texts.back()[0], 'A');
    }
    EXPECT_NE(texts[0], texts[1]);
    EXPECT_NE(texts[1], texts[2]);
    EXPECT_NE(result.err.find("3 tokens of prompt"), std::string::npos) << result.err;
    // The first is the one of --num_samples 1.
    const ProgramResult one =
        Generate({"--llmc_filepath", File("gpt2_tiny.bin"), "--prompt", "A", "--text_length", "20"},
                 {"--seed", "5", "--top_k", "20", "--top_p", "0.9"});
    EXPECT_EQ(one.out, texts[0]);
}

TEST(GenerateProgram, WritesThePromptAloneForNoTokens) {
    const ProgramResult result =
        Generate({"--llmc_filepath", File("llama_tiny.bin"), "--prompt", "Only this", "--text_length", "0"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, "Only this\n");
}

TEST(GenerateProgram, GoesOnBeyondTheBlock) {
    // bugs.csv O46
    const ProgramResult result = Generate({"--llmc_filepath", File("gpt2_tiny.bin"), "--prompt", "A"},
                                          {"--text_length", "300", "--temperature", "0"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.err.find("then 299 tokens"), std::string::npos) << result.err;
}

TEST(GenerateProgram, RefusesWhatItCannotDo) {
    const TemporaryFolder folder;
    WriteTextFile(folder.File("text.bin"), std::string(2000, 'x'));
    const Words tiny = {"--llmc_filepath", File("gpt2_tiny.bin"), "--prompt", "A"};
    struct Refusal {
        Words words;
        std::string err;
    };
    const auto with = [&tiny](const Words& more) {
        Words words = tiny;
        words.insert(words.end(), more.begin(), more.end());
        return words;
    };
    const std::vector<Refusal> refusals = {
        {{"--prompt", "A"}, "no model"},
        {with({"--hf_dir", folder.File("")}), "exclude each other"},
        {{"--llmc_filepath", folder.File("text.bin")}, "text.bin"},
        {{"--llmc_filepath", folder.File("none.bin")}, "none.bin"},
        {{"--hf_dir", folder.File("none")}, "none"},
        {{"--load", folder.File("none")}, "none"},
        {{"--model", "d13"}, "unknown GPT-2"},
        {with({"--prompt_file", folder.File("text.bin")}), "excludes --prompt"},
        {{"--llmc_filepath", File("gpt2_tiny.bin"), "--prompt_file", folder.File("none.txt")}, "none.txt"},
        {with({"--temperature", "-1"}), "--temperature"},
        {with({"--temperature", "nan"}), "--temperature"},
        {with({"--top_k", "-1"}), "--top_k"},
        {with({"--top_p", "1.1"}), "--top_p"},
        {with({"--text_length", "-1"}), "--text_length"},
        {with({"--num_samples", "0"}), "--num_samples"},
        {with({"--pipeline_parallel", "0"}), "--pipeline_parallel"},
        {with({"--pipeline_parallel", "99"}), "99"},
        {with({"--dtype", "float16"}), "--dtype"},
        {with({"--timeout_s", "0"}), "--timeout_s"},
        {with({"--tokenizer", "nothing"}), "--tokenizer"},
        {with({"--no_such_flag", "1"}), "unknown flag"},
        {{"--model", "d12", "--prompt", "A"}, "cannot write all tokens of this model"},
    };
    for (const Refusal& refusal : refusals) {
        const ProgramResult result = Generate(refusal.words);
        EXPECT_EQ(result.exit_code, 2) << refusal.err << ": " << result.err;
        EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
        EXPECT_NE(result.err.find(refusal.err), std::string::npos) << result.err;
        EXPECT_EQ(result.out, "");
    }
}

TEST(GenerateProgram, ExplainsItsFlags) {
    const ProgramResult result = RunProgram("generate", {"--help"});
    EXPECT_EQ(result.exit_code, 0);
    for (const std::string flag : {"llmc_filepath", "hf_dir", "load", "prompt_file", "top_p", "stop_at_end_of_text"}) {
        EXPECT_NE(result.out.find("--" + flag), std::string::npos) << flag;
    }
}

}  // namespace
}  // namespace infini_train::test
