// For scripts/check_tokenizers.py: encodes with a tokenizer what comes on standard input.
//
//   tokenizer_tool byte|FILE|DIR encode|prompt|time
//
// Input: texts, each a little-endian uint32 of its bytes and these. Output of encode (special tokens are text) and of
// prompt (they are recognised): for each text the number of its tokens as uint32, and these as int32. time encodes each
// text three times and prints the most bytes per second.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "infini_train/include/data/tokenizer.h"

namespace infini_train::data {
namespace {

bool ReadText(std::string* text) {
    uint32_t size_bytes = 0;
    if (std::fread(&size_bytes, sizeof(size_bytes), 1, stdin) != 1) {
        return false;
    }
    text->resize(size_bytes);
    return std::fread(text->data(), 1, size_bytes, stdin) == size_bytes;
}

void Write(const std::vector<int32_t>& tokens) {
    const auto count = static_cast<uint32_t>(tokens.size());
    std::fwrite(&count, sizeof(count), 1, stdout);
    std::fwrite(tokens.data(), sizeof(int32_t), tokens.size(), stdout);
}

double BytesPerSecond(const Tokenizer& tokenizer, const std::string& text) {
    double best = 0;
    for (int i = 0; i < 3; ++i) {
        const auto start = std::chrono::steady_clock::now();
        const size_t num_tokens = tokenizer.Encode(text).size();
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        best = num_tokens == 0 ? best : std::max(best, static_cast<double>(text.size()) / seconds.count());
    }
    return best;
}

void Run(const std::string& name, const std::string& what) {
    const std::unique_ptr<Tokenizer> tokenizer = MakeTokenizer(name);
    for (std::string text; ReadText(&text);) {
        if (what == "time") {
            std::printf("%.0f\n", BytesPerSecond(*tokenizer, text));
        } else {
            Write(what == "prompt" ? tokenizer->EncodeWithSpecials(text) : tokenizer->Encode(text));
        }
    }
}

}  // namespace
}  // namespace infini_train::data

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "tokenizer_tool byte|FILE|DIR encode|prompt|time\n");
        return 2;
    }
    try {
        infini_train::data::Run(argv[1], argv[2]);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "tokenizer_tool: %s\n", error.what());
        return 1;
    }
}
