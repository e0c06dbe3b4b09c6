// The program from text to token files: what it reads and writes, and what it refuses.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/data/byte_tokenizer.h"
#include "infini_train/include/data/token_file.h"
#include "test/support/run_program.h"

namespace infini_train::test {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;
using Tokens = std::vector<int32_t>;

constexpr int32_t kEnd = 256;

class TokenizeProgram : public testing::Test {
 protected:
    std::string Path(const std::string& name) const { return folder_.File(name); }
    std::string Write(const std::string& name, const std::string& text) const {
        fs::create_directories(fs::path(Path(name)).parent_path());
        WriteTextFile(Path(name), text);
        return Path(name);
    }
    Strings Names(const std::string& prefix) const {
        Strings names;
        for (const auto& entry : fs::directory_iterator(folder_.File(""))) {
            if (const std::string name = entry.path().filename().string(); name.starts_with(prefix)) {
                names.push_back(name);
            }
        }
        std::sort(names.begin(), names.end());
        return names;
    }
    Tokens TokensOf(const std::string& name) const {
        const data::TokenFile file(Path(name));
        Tokens tokens(static_cast<size_t>(file.num_tokens()));
        file.Read(0, file.num_tokens(), tokens.data());
        return tokens;
    }
    static void ExpectRuns(const Strings& words) {
        const ProgramResult result = RunProgram("tokenize", words);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        EXPECT_EQ(result.err, "");
    }
    /// One line with all the parts, exit code 2, and nothing written.
    void ExpectRefusal(const Strings& words, const Strings& parts) const {
        Strings all = {"--output", Path("refused.bin")};
        all.insert(all.end(), words.begin(), words.end());
        const ProgramResult result = RunProgram("tokenize", all);
        EXPECT_EQ(result.exit_code, 2) << result.out << result.err;
        EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
        for (const std::string& part : parts) {
            EXPECT_NE(result.err.find(part), std::string::npos) << part << " is not in: " << result.err;
        }
        EXPECT_EQ(Names("refused"), Strings{});
    }

    TemporaryFolder folder_;
};

Tokens Bytes(const std::string& text) {
    return data::ByteTokenizer().Encode(text);
}

/// The documents with an end between two of them.
Tokens Joined(const Strings& documents) {
    Tokens tokens;
    for (const std::string& document : documents) {
        if (!tokens.empty()) {
            tokens.push_back(kEnd);
        }
        const Tokens part = Bytes(document);
        tokens.insert(tokens.end(), part.begin(), part.end());
    }
    return tokens;
}

TEST_F(TokenizeProgram, PutsAnEndBetweenDocuments) {
    const Strings inputs = {Write("a.txt", "one\n"), Write("empty.txt", ""), Write("b.txt", "t\xff\n")};
    Strings words = {"--output", Path("all.bin")};
    words.insert(words.end(), inputs.begin(), inputs.end());
    ExpectRuns(words);
    EXPECT_EQ(TokensOf("all.bin"), Joined({"one\n", "t\xff\n"}));
    words.emplace_back("--no_separator");
    ExpectRuns(words);
    EXPECT_EQ(TokensOf("all.bin"), Bytes("one\nt\xff\n"));
}

TEST_F(TokenizeProgram, ReadsTheTextsOfAFolderInTheOrderOfTheirPaths) {
    Write("in/b.txt", "b");
    Write("in/B.md", "B");
    Write("in/deep/er/a.cc", "a");
    Write("in/deep/.hidden/c.txt", "hidden");
    Write("in/.c.txt", "hidden");
    Write("in/data.bin", std::string("\0\1", 2));
    fs::create_directory_symlink(Path("in"), Path("in/deep/up"));
    ExpectRuns({"--output", Path("all.bin"), Path("in")});
    EXPECT_EQ(TokensOf("all.bin"), Joined({"B", "b", "a"}));
    ExpectRuns({"--output", Path("some.bin"), "--extensions", "md,.cc", Path("in")});
    EXPECT_EQ(TokensOf("some.bin"), Joined({"B", "a"}));
    ExpectRefusal({"--extensions", "py", Path("in")}, {Path("in"), "--extensions"});
}

TEST_F(TokenizeProgram, ReadsADocumentFromEachLineOfJson) {
    const std::string lines = Write("a.jsonl",
                                    "{\"id\": 1, \"text\": \"one\\nline\"}\n"
                                    "\n"
                                    "{\"text\": \"\", \"more\": {\"text\": 5}}\r\n"
                                    "{\"list\": [{\"text\": \"no\"}], \"text\": \"\\u00e9\"}");
    ExpectRuns({"--output", Path("a.bin"), lines});
    EXPECT_EQ(TokensOf("a.bin"), Joined({"one\nline", "\xc3\xa9"}));
    ExpectRuns({"--output", Path("b.bin"), "--json_field", "body", Write("b.jsonl", R"({"text": 1, "body": "b"})")});
    EXPECT_EQ(TokensOf("b.bin"), Bytes("b"));
}

TEST_F(TokenizeProgram, NamesTheLineOfJsonThatItCannotUse) {
    const std::string good = "{\"text\": \"good\"}\n\n";
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"{\"text\": \"a\"", "not JSON at byte"},
        {"{\"text\": \"a\"} b", "not JSON at byte"},
        {"{\"text\": \"\xff\"}", "not JSON at byte"},
        {"{\"text\": \"\\ud800\"}", "not JSON at byte"},
        {"[\"text\"]", "is an array, not a JSON object"},
        {"\"text\"", "is a string, not a JSON object"},
        {"{\"body\": \"a\"}", "no field 'text'"},
        {"{\"text\": null}", "'text' is null, not a string"},
        {"{\"text\": {\"text\": \"a\"}}", "'text' is an object, not a string"},
        {"{\"text\": \"a\", \"text\": \"b\"}", "'text' is there twice"},
        {std::string(100000, '['), "is an array"},
    };
    for (const auto& [line, what] : cases) {
        ExpectRefusal({Write("a.jsonl", good + line)}, {Path("a.jsonl") + ":3", what});
    }
}

/// About 3 MB of lines, of which none is like another.
std::string LongText() {
    std::string text;
    for (int i = 0; text.size() < 3000000; ++i) {
        text += std::to_string(i * 7919) + " bottles, caf\xc3\xa9.\r\n";
    }
    return text;
}

TEST_F(TokenizeProgram, WritesTheSameTokensWithAnyNumberOfThreads) {
    const std::string text = LongText();
    const std::string path = Write("long.txt", text);
    for (const char* threads : {"1", "2", "7"}) {
        ExpectRuns({"--output", Path("long.bin"), "--threads", threads, path});
        EXPECT_TRUE(TokensOf("long.bin") == Bytes(text)) << threads;
    }
}

TEST_F(TokenizeProgram, FillsShardsAndRemovesThoseOfALongerOutput) {
    const std::string text = LongText();
    const std::string path = Write("long.txt", text);
    ExpectRuns({"--output", Path("s.bin"), "--shard_tokens", "700001", path});
    const Strings names = Names("s_");
    EXPECT_EQ(names, (Strings{"s_000001.bin", "s_000002.bin", "s_000003.bin", "s_000004.bin", "s_000005.bin"}));
    Tokens joined;
    for (const std::string& name : names) {
        const Tokens tokens = TokensOf(name);
        EXPECT_TRUE(tokens.size() == 700001 || name == names.back());
        joined.insert(joined.end(), tokens.begin(), tokens.end());
    }
    EXPECT_TRUE(joined == Bytes(text));

    Write("s_000009.bin.tmp.1", "left by a run that was killed");
    const Strings others = {"s_00009.bin", "s_000009.bim", "s_x00009.bin", "s_0000009.bin"};
    for (const std::string& name : others) {
        Write(name, "another file");
    }
    ExpectRuns({"--output", Path("s.bin"), "--shard_tokens", "2000000", path});
    for (const std::string& name : others) {
        EXPECT_EQ(ReadTextFile(Path(name)), "another file");
        fs::remove(Path(name));
    }
    EXPECT_EQ(Names("s_"), (Strings{"s_000001.bin", "s_000002.bin"}));
}

TEST_F(TokenizeProgram, KeepsTheLastPartOfTheTextForValidation) {
    const std::string text = LongText();
    ExpectRuns(
        {"--output", Path("t.bin"), "--val_output", Path("v.bin"), "--val_fraction", "0.05", Write("long.txt", text)});
    Tokens joined = TokensOf("t.bin");
    const Tokens validation = TokensOf("v.bin");
    EXPECT_NEAR(static_cast<double>(validation.size()), 0.05 * static_cast<double>(text.size()), 100.0);
    joined.insert(joined.end(), validation.begin(), validation.end());
    EXPECT_TRUE(joined == Bytes(text));
    ExpectRefusal({"--val_output", Path("refused_too.bin"), Write("word.txt", "word")}, {"no tokens for --val_output"});
}

TEST_F(TokenizeProgram, ChoosesWholeDocumentsForValidation) {
    const auto split = [&](int num_documents) {
        std::string lines;
        for (int i = 0; i < num_documents; ++i) {
            lines += "{\"text\": \"" + std::string(1, static_cast<char>('a' + i % 26)) + std::to_string(i) + "\"}\n";
        }
        ExpectRuns({"--output", Path("t.bin"), "--val_output", Path("v.bin"), "--val_split", "documents",
                    "--val_fraction", "0.2", Write("d.jsonl", lines)});
        std::vector<std::vector<Tokens>> parts;
        for (const char* name : {"t.bin", "v.bin"}) {
            std::vector<Tokens>& documents = parts.emplace_back(1);
            for (const int32_t token : TokensOf(name)) {
                token == kEnd ? static_cast<void>(documents.emplace_back()) : documents.back().push_back(token);
            }
        }
        return parts;
    };
    const auto parts = split(1000);
    EXPECT_NEAR(static_cast<double>(parts[1].size()), 200.0, 50.0);
    EXPECT_EQ(parts[0].size() + parts[1].size(), 1000u);
    // Four times the deviation of a fair choice: the chosen ones are everywhere, not at the end.
    const auto num_early =
        std::count_if(parts[1].begin(), parts[1].end(), [](const Tokens& d) { return d.size() < 4; });
    EXPECT_NEAR(static_cast<double>(num_early), 20.0, 16.0);
    const auto longer = split(1500);
    EXPECT_TRUE(std::equal(parts[1].begin(), parts[1].end(), longer[1].begin()));
}

TEST_F(TokenizeProgram, KeepsTheOldOutputWhenItIsKilledAndLeavesNothingAfterTheNextRun) {
    std::string text;
    for (int i = 0; i < 40; ++i) {
        text += LongText();
    }
    const std::string path = Write("long.txt", text);
    ExpectRuns({"--output", Path("a.bin"), Write("a.txt", "old")});
    const std::string program = std::string(INFINI_BINARY_DIR) + "/tokenize";
    const std::string output = Path("a.bin");
    const pid_t child = fork();
    if (child == 0) {
        execl(program.c_str(), program.c_str(), "--output", output.c_str(), path.c_str(), nullptr);
        _exit(127);
    }
    const std::string leftover = "a.bin.tmp." + std::to_string(child);
    for (int i = 0; i < 10000 && Names(leftover).empty(); ++i) {
        usleep(100);
    }
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "it was over before it was killed";
    EXPECT_EQ(Names("a.bin"), (Strings{"a.bin", leftover}));
    EXPECT_EQ(TokensOf("a.bin"), Bytes("old"));
    ExpectRuns({"--output", output, Write("a.txt", "new")});
    EXPECT_EQ(Names("a.bin"), Strings{"a.bin"});
    EXPECT_EQ(TokensOf("a.bin"), Bytes("new"));
}

TEST_F(TokenizeProgram, RefusesWhatItCannotRead) {
    const std::string text = Write("a.txt", "text");
    ExpectRefusal({}, {"PATH", "needed"});
    ExpectRefusal({text, Path("none")}, {Path("none"), "No such file"});
    ExpectRefusal({"/dev/zero"}, {"/dev/zero", "not a regular file"});
    ExpectRefusal({Write("empty.txt", "")}, {"no tokens"});
    fs::create_directory(Path("folder"));
    ExpectRefusal({Path("folder")}, {Path("folder"), "no text file"});
    // What the program may hold at once is bounded.
    fs::resize_file(Write("zeros.txt", ""), 300000000);
    ExpectRefusal({Path("zeros.txt")}, {Path("zeros.txt"), "could be cut", "is it text?"});
    fs::resize_file(Write("zeros.jsonl", ""), 300000000);
    ExpectRefusal({Path("zeros.jsonl")}, {Path("zeros.jsonl") + ":1", "too long"});
}

TEST_F(TokenizeProgram, RefusesFlagsThatCannotBe) {
    const std::string text = Write("a.txt", "some text");
    ExpectRefusal({text, "--bogus"}, {"--bogus", "unknown flag"});
    ExpectRefusal({text, "--threads", "-1"}, {"--threads", "-1"});
    ExpectRefusal({text, "--shard_tokens", "many"}, {"--shard_tokens", "many"});
    ExpectRefusal({text, "--format", "gpt3"}, {"--format", "gpt3", "gpt2 or llama3"});
    ExpectRefusal({text, "--extensions", "txt,,md"}, {"--extensions", "empty"});
    ExpectRefusal({text, "--val_output", Path("v.bin"), "--val_fraction", "1"}, {"--val_fraction", "below 1"});
    ExpectRefusal({text, "--val_output", Path("v.bin"), "--val_split", "hash"}, {"--val_split", "hash"});
    ExpectRefusal({text, "--val_output", Path("./refused.bin")}, {"--val_output", "the same file"});
    ExpectRefusal({text, "--val_output", text}, {"--val_output", "also read"});
    ExpectRefusal({text, "--val_output", Path("none/v.bin")}, {"none/v.bin", "cannot make"});
}

}  // namespace
}  // namespace infini_train::test
