#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <exception>
#include <filesystem>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "gflags/gflags.h"

#include "example/tools/tokenize_inputs.h"
#include "example/tools/tokenize_pool.h"
#include "example/tools/tokenize_progress.h"
#include "example/tools/tokenize_reader.h"
#include "example/tools/tokenize_shards.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/error_text.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/data/token_file.h"
#include "infini_train/include/data/tokenizer.h"

DEFINE_string(output, "", "token file to write; one that exists is replaced when the new one is complete");
DEFINE_int64(shard_tokens, 0,
             "several token files of so many tokens: for --output NAME.bin NAME_000001.bin and so on; 0: one file");
DEFINE_string(tokenizer, "byte",
              "byte (one token a byte, and 256 between documents), or a tokenizer's file or folder: tokenizer.json, "
              "vocab.json and merges.txt, tokenizer.model, a .tiktoken file, llm.c's .bin");
DEFINE_string(format, "",
              "gpt2 (16 bits a token) or llama3 (32 bits a token); by default gpt2 where the vocabulary fits");
DEFINE_bool(no_separator, false, "no end-of-text token between documents");
DEFINE_string(extensions, "", "which files of a folder to read, as txt,md; by default all that look like text");
DEFINE_string(json_field, "text", "where the text is in a line of a .jsonl file");
DEFINE_string(val_output, "", "a second token file, for validation");
DEFINE_double(val_fraction, 0.1, "how much goes to --val_output, above 0 and below 1");
DEFINE_string(val_split, "tail",
              "tail (the last part of all text) or documents (whole documents, chosen by a hash of their number)");
DEFINE_int64(threads, 0, "threads that encode; they make no difference to the tokens; 0: one for each core");

namespace infini_train {
namespace {

namespace fs = std::filesystem;

constexpr std::array kFlags = {"output",     "shard_tokens", "tokenizer",    "format",    "no_separator", "extensions",
                               "json_field", "val_output",   "val_fraction", "val_split", "threads"};

void PrintHelp() {
    std::printf(
        "Turns text into token files for ./gpt2 and ./llama3.\n\n"
        "  tokenize --output tokens.bin PATH...\n"
        "  tokenize --output train.bin --val_output val.bin --val_fraction 0.1 book1.txt book2.txt\n"
        "  tokenize --output web.bin --shard_tokens 100000000 --tokenizer gpt2/ --val_output web_val.bin \\\n"
        "      --val_fraction 0.01 --val_split documents crawl/\n\n"
        "Each PATH is a file or a folder. A file is a document, read as bytes; one whose name ends in .jsonl has a\n"
        "document on each line. An end-of-text token goes between two documents, where the tokenizer has one.\n\n");
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

/// Sets the flags and returns the other words; nothing when it printed the help. gflags' own parser would end the
/// process with an exit code of its own.
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
        gflags::CommandLineFlagInfo info;
        gflags::GetCommandLineFlagInfo(name.c_str(), &info);
        if (equals == std::string::npos && info.type == "bool") {
            gflags::SetCommandLineOption(name.c_str(), "true");
            continue;
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

/// Of --format, or by what the ids need.
data::TokenKind KindOf(const data::Tokenizer& tokenizer) {
    const int max_vocab = std::numeric_limits<uint16_t>::max() + 1;
    const bool fits = tokenizer.vocab_size() <= max_vocab;
    if (FLAGS_format == "llama3" || (FLAGS_format.empty() && !fits)) {
        return data::TokenKind::kLlama3;
    }
    if (FLAGS_format != "gpt2" && !FLAGS_format.empty()) {
        throw Error({.where = "--format",
                     .what = "unknown format",
                     .got = "'" + FLAGS_format + "'",
                     .wanted = "gpt2 or llama3"});
    }
    if (!fits) {
        throw Error({.where = "--format",
                     .what = "gpt2 has 16 bits a token, too few for this tokenizer",
                     .got = StrCat(tokenizer.vocab_size(), " ids"),
                     .wanted = StrCat("at most ", max_vocab, ", or llama3")});
    }
    return data::TokenKind::kGpt2;
}

std::vector<std::string> Extensions() {
    std::vector<std::string> extensions;
    std::string rest = FLAGS_extensions;
    while (!rest.empty()) {
        const size_t comma = std::min(rest.find(','), rest.size());
        const std::string extension =
            rest.substr(rest.starts_with(".") ? 1 : 0, comma - (rest.starts_with(".") ? 1 : 0));
        if (extension.empty()) {
            throw Error({.where = "--extensions",
                         .what = "an empty extension",
                         .got = "'" + FLAGS_extensions + "'",
                         .wanted = "as txt,md"});
        }
        extensions.push_back(extension);
        rest.erase(0, comma + 1);
    }
    return extensions;
}

ValSplit ValSplitOf() {
    if (FLAGS_val_split != "tail" && FLAGS_val_split != "documents") {
        throw Error({.where = "--val_split",
                     .what = "unknown split",
                     .got = "'" + FLAGS_val_split + "'",
                     .wanted = "tail or documents"});
    }
    if (!(FLAGS_val_fraction > 0.0 && FLAGS_val_fraction < 1.0)) {
        throw Error({.where = "--val_fraction",
                     .what = "out of range",
                     .got = StrCat(FLAGS_val_fraction),
                     .wanted = "above 0 and below 1"});
    }
    if (FLAGS_val_output.empty()) {
        return ValSplit::kNone;
    }
    return FLAGS_val_split == "tail" ? ValSplit::kTail : ValSplit::kDocuments;
}

void CheckAtLeastZero(const char* flag, int64_t value) {
    if (value < 0) {
        throw Error({.where = flag, .what = "out of range", .got = StrCat(value), .wanted = "at least 0"});
    }
}

/// Two names of one file would end as one of the two.
void CheckOutput(const std::string& flag, const std::string& path, const std::vector<TextInput>& inputs) {
    for (const TextInput& input : inputs) {
        std::error_code none;
        if (fs::equivalent(path, input.path, none)) {
            throw Error({.where = flag, .what = "this file is also read", .got = path, .wanted = "another file"});
        }
    }
}

void CheckOutputs(const std::vector<TextInput>& inputs) {
    CheckOutput("--output", FLAGS_output, inputs);
    CheckOutput("--val_output", FLAGS_val_output, inputs);
    const auto whole = [](const std::string& path) { return fs::weakly_canonical(fs::absolute(path)); };
    if (!FLAGS_val_output.empty() && whole(FLAGS_val_output) == whole(FLAGS_output)) {
        throw Error({.where = "--val_output", .what = "the same file as --output", .got = FLAGS_val_output});
    }
}

/// A shard stays open until all are committed.
void AllowManyOpenFiles() {
    struct rlimit limit = {};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

struct InFlight {
    std::future<std::vector<EncodedPiece>> encoded;
    size_t text_bytes = 0;
};

/// In the order of the text, whichever thread is first.
void EncodeAll(TextReader& reader, const data::Tokenizer& tokenizer, TokenShards& train,
               std::optional<TokenShards>& validation) {
    const int num_cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    const int num_threads = FLAGS_threads == 0 ? num_cores : static_cast<int>(std::min<int64_t>(FLAGS_threads, 1024));
    TokenizeProgress progress(reader.total_bytes());
    EncoderPool pool(tokenizer, FLAGS_json_field, num_threads);
    std::deque<InFlight> in_flight;
    size_t in_flight_bytes = 0;
    const auto write_first = [&] {
        for (const EncodedPiece& piece : in_flight.front().encoded.get()) {
            (piece.is_validation ? *validation : train).Append(piece.tokens, piece.begins_document);
        }
        in_flight_bytes -= in_flight.front().text_bytes;
        in_flight.pop_front();
        progress.Update(reader.num_bytes(), train.num_tokens() + (validation ? validation->num_tokens() : 0));
    };
    // Enough that no thread waits for a slower one that is ahead in the order.
    const size_t max_bytes = 4 * static_cast<size_t>(num_threads) * TextReader::Options{}.batch_bytes;
    for (std::vector<TextPiece> pieces = reader.Next(); !pieces.empty(); pieces = reader.Next()) {
        size_t text_bytes = 0;
        for (const TextPiece& piece : pieces) {
            text_bytes += piece.text.size();
        }
        while (!in_flight.empty() && in_flight_bytes + text_bytes > max_bytes) {
            write_first();
        }
        in_flight.push_back({.encoded = pool.Encode(std::move(pieces)), .text_bytes = text_bytes});
        in_flight_bytes += text_bytes;
    }
    while (!in_flight.empty()) {
        write_first();
    }
}

void CheckHasTokens(const std::string& flag, const std::string& path, const TokenShards& shards,
                    int64_t num_documents) {
    if (shards.num_tokens() == 0) {
        throw Error({.where = path,
                     .what = StrCat("no tokens for ", flag),
                     .got = StrCat(num_documents, " document", num_documents == 1 ? "" : "s"),
                     .wanted = FLAGS_val_output.empty() ? "text" : "more text, another --val_fraction or --val_split"});
    }
}

void Run(const std::vector<std::string>& paths) {
    if (FLAGS_output.empty()) {
        throw Error({.where = "--output", .what = "needed: the token file to write (see --help)"});
    }
    if (paths.empty()) {
        throw Error({.where = "PATH", .what = "needed: the text to read (see --help)"});
    }
    CheckAtLeastZero("--shard_tokens", FLAGS_shard_tokens);
    CheckAtLeastZero("--threads", FLAGS_threads);
    const ValSplit val_split = ValSplitOf();
    const std::unique_ptr<data::Tokenizer> tokenizer = data::MakeTokenizer(FLAGS_tokenizer);
    const data::TokenKind kind = KindOf(*tokenizer);
    const std::vector<TextInput> inputs = FindTextInputs(paths, Extensions());
    CheckOutputs(inputs);
    AllowManyOpenFiles();

    const auto shards_at = [&](const std::string& path) {
        return TokenShards::Options{.path = path,
                                    .kind = kind,
                                    .shard_tokens = FLAGS_shard_tokens,
                                    .separator = FLAGS_no_separator ? std::nullopt : tokenizer->end_of_text()};
    };
    TokenShards train(shards_at(FLAGS_output));
    std::optional<TokenShards> validation;
    if (val_split != ValSplit::kNone) {
        validation.emplace(shards_at(FLAGS_val_output));
    }
    TextReader reader(inputs, {.val_split = val_split, .val_fraction = FLAGS_val_fraction});
    EncodeAll(reader, *tokenizer, train, validation);

    CheckHasTokens("--output", FLAGS_output, train, reader.num_documents());
    if (validation.has_value()) {
        CheckHasTokens("--val_output", FLAGS_val_output, *validation, reader.num_documents());
    }
    // All are complete before one gets its name.
    train.Finish();
    if (validation.has_value()) {
        validation->Finish();
        validation->Commit();
    }
    train.Commit();
    std::printf("%s%s", train.Summary().c_str(), validation.has_value() ? validation->Summary().c_str() : "");
    std::printf("from %zu file%s, %lld document%s, with the %s tokenizer, ids below %d\n", inputs.size(),
                inputs.size() == 1 ? "" : "s", static_cast<long long>(reader.num_documents()),
                reader.num_documents() == 1 ? "" : "s", FLAGS_tokenizer.c_str(), tokenizer->vocab_size());
}

}  // namespace
}  // namespace infini_train

int main(int argc, char** argv) {
    try {
        const auto paths = infini_train::ReadCommandLine(std::span(argv, static_cast<size_t>(argc)).subspan(1));
        if (paths.has_value()) {
            infini_train::Run(*paths);
        }
        return 0;
    } catch (const infini_train::Error& error) {
        std::fprintf(stderr, "tokenize: %s\n", error.what());
        return error.exit_code();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "tokenize: %s\n", infini_train::ErrorText(error).c_str());
        return 1;
    }
}
