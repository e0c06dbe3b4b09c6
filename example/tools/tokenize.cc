#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "gflags/gflags.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/data/token_writer.h"
#include "infini_train/include/data/tokenizer.h"

DEFINE_string(output, "", "token file to write; one that exists is replaced when the new one is complete");
DEFINE_string(format, "gpt2", "gpt2 (16 bits a token) or llama3 (32 bits a token)");
DEFINE_string(tokenizer, "byte", "byte: one token a byte, and 256 between documents");
DEFINE_string(val_output, "", "a second token file, for validation: the last part of the tokens goes there");
DEFINE_double(val_fraction, 0.1, "how much goes to --val_output, above 0 and below 1");

namespace infini_train {
namespace {

constexpr std::array kFlags = {"output", "format", "tokenizer", "val_output", "val_fraction"};

void PrintHelp() {
    std::printf(
        "Turns text into a token file for ./gpt2 and ./llama3.\n\n"
        "  tokenize --output tokens.bin FILE...\n"
        "  tokenize --output train.bin --val_output val.bin --val_fraction 0.1 book1.txt book2.txt\n\n"
        "Each FILE is a document, read as bytes; an end-of-text token goes between two of them.\n\n");
    for (const char* name : kFlags) {
        gflags::CommandLineFlagInfo info;
        gflags::GetCommandLineFlagInfo(name, &info);
        std::string value = info.default_value;
        if (info.type == "double") {
            value = StrCat(std::stod(value));  // gflags writes 0.1 as 0.10000000000000001
        }
        value = value.empty() ? "" : " [" + value + "]";
        std::printf("  --%s%s\n      %s\n", name, value.c_str(), info.description.c_str());
    }
}

/// Sets the flags, which all take a value, and returns the other words; nothing when it printed the help. gflags' own
/// parser would end the process with an exit code of its own.
std::optional<std::vector<std::string>> ReadCommandLine(std::span<char* const> words) {
    std::vector<std::string> files;
    for (size_t i = 0; i < words.size(); ++i) {
        const std::string word = words[i];
        if (word == "--help" || word == "-h" || word == "-help") {
            PrintHelp();
            return std::nullopt;
        }
        if (word == "--") {
            files.insert(files.end(), words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
            break;
        }
        if (!word.starts_with("-")) {
            files.push_back(word);
            continue;
        }
        const size_t equals = word.find('=');
        const std::string name = word.substr(0, equals).substr(word.starts_with("--") ? 2 : 1);
        if (std::find(kFlags.begin(), kFlags.end(), name) == kFlags.end()) {
            throw Error({.where = word.substr(0, equals), .what = "unknown flag (see --help)"});
        }
        if (equals == std::string::npos && i + 1 == words.size()) {
            throw Error({.where = "--" + name, .what = "no value"});
        }
        const std::string value = equals == std::string::npos ? words[++i] : word.substr(equals + 1);
        if (gflags::SetCommandLineOption(name.c_str(), value.c_str()).empty()) {
            throw Error({.where = "--" + name, .what = "not a value of this flag", .got = "'" + value + "'"});
        }
    }
    return files;
}

data::TokenKind ParseFormat(const std::string& name) {
    if (name == "gpt2") {
        return data::TokenKind::kGpt2;
    }
    if (name == "llama3") {
        return data::TokenKind::kLlama3;
    }
    throw Error({.where = "--format", .what = "unknown format", .got = "'" + name + "'", .wanted = "gpt2 or llama3"});
}

std::string ReadFile(const std::string& path) {
    std::error_code none;
    if (std::filesystem::exists(path, none) && !std::filesystem::is_regular_file(path, none)) {
        throw Error(
            {.where = path, .what = "is not a regular file"});  // a pipe could wait for ever, a device never end
    }
    std::string text;
    std::FILE* file = std::fopen(path.c_str(), "rb");
    bool is_read = file != nullptr;
    if (is_read) {
        std::vector<char> chunk(size_t{1} << 20);
        while (const size_t count = std::fread(chunk.data(), 1, chunk.size(), file)) {
            text.append(chunk.data(), count);
        }
        is_read = std::ferror(file) == 0;
        std::fclose(file);
    }
    if (!is_read) {
        throw Error({.where = path, .what = "cannot read this file"});
    }
    return text;
}

std::vector<int32_t> Encode(const data::Tokenizer& tokenizer, const std::vector<std::string>& files) {
    std::vector<int32_t> tokens;
    for (const std::string& path : files) {
        if (&path != &files.front()) {
            if (const std::optional<int32_t> end = tokenizer.end_of_text(); end.has_value()) {
                tokens.push_back(*end);
            }
        }
        const std::vector<int32_t> document = tokenizer.Encode(ReadFile(path));
        tokens.insert(tokens.end(), document.begin(), document.end());
    }
    return tokens;
}

/// How many of the tokens, from the end, are for validation.
size_t NumValTokens(size_t num_tokens) {
    if (FLAGS_val_output.empty()) {
        return 0;
    }
    if (!(FLAGS_val_fraction > 0.0 && FLAGS_val_fraction < 1.0)) {
        throw Error({.where = "--val_fraction",
                     .what = "out of range",
                     .got = StrCat(FLAGS_val_fraction),
                     .wanted = "above 0 and below 1"});
    }
    if (FLAGS_val_output == FLAGS_output) {
        throw Error({.where = "--val_output", .what = "the same file as --output", .got = FLAGS_val_output});
    }
    return static_cast<size_t>(static_cast<double>(num_tokens) * FLAGS_val_fraction);
}

void Run(const std::vector<std::string>& files) {
    if (FLAGS_output.empty()) {
        throw Error({.where = "--output", .what = "needed: the token file to write (see --help)"});
    }
    if (files.empty()) {
        throw Error({.where = "FILE", .what = "needed: the text to read (see --help)"});
    }
    const data::TokenKind kind = ParseFormat(FLAGS_format);
    const std::unique_ptr<data::Tokenizer> tokenizer = data::MakeTokenizer(FLAGS_tokenizer);
    const std::vector<int32_t> tokens = Encode(*tokenizer, files);
    const size_t num_train = tokens.size() - NumValTokens(tokens.size());

    // Both are complete before either gets its name.
    std::vector<std::unique_ptr<data::TokenFileWriter>> writers;
    const auto write = [&](const std::string& path, std::span<const int32_t> part) {
        writers.push_back(std::make_unique<data::TokenFileWriter>(path, kind));
        writers.back()->Append(part);
    };
    write(FLAGS_output, std::span(tokens).first(num_train));
    if (!FLAGS_val_output.empty()) {
        write(FLAGS_val_output, std::span(tokens).subspan(num_train));
    }
    for (const auto& writer : writers) {
        writer->Finish();
    }
    for (const auto& writer : writers) {
        writer->Commit();
        std::printf("%s: %lld tokens, %lld bytes\n", writer->path().c_str(),
                    static_cast<long long>(writer->num_tokens()), static_cast<long long>(writer->size_bytes()));
    }
    std::printf("from %zu file%s with the %s tokenizer, ids below %d\n", files.size(), files.size() == 1 ? "" : "s",
                FLAGS_tokenizer.c_str(), tokenizer->vocab_size());
}

}  // namespace
}  // namespace infini_train

int main(int argc, char** argv) {
    try {
        const auto files = infini_train::ReadCommandLine(std::span(argv, static_cast<size_t>(argc)).subspan(1));
        if (files.has_value()) {
            infini_train::Run(*files);
        }
        return 0;
    } catch (const infini_train::Error& error) {
        std::fprintf(stderr, "tokenize: %s\n", error.what());
        return error.exit_code();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "tokenize: unexpected: %s\n", error.what());
        return 1;
    }
}
