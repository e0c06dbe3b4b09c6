#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

#include "infini_train/src/data/byte_pair_vocabulary.h"
#include "infini_train/src/data/pretokenizer.h"

namespace infini_train::data::test {

/// What the small vocabulary is trained on, and a text to try tokenizers with.
inline const std::string kTrainingText =
    "The pipeline has eight stages, and the eight stages have one micro-batch each. It's full when the last one "
    "begins; "
    "they'll wait, we've waited, I'd wait: don't! THE LAST ONE'S gradients come back at step 1234567, 3.14159 or "
    "0x1F.\n"
    "\n\n    def forward(self, x):\r\n        return self.layer(x) + x\n\tна этапе конвейера, на этапе 流水线并行 "
    "流水线\n"
    "naïve café, naïve cafés    the   the \u00a0the\u3000the   \n";

/// The simplest form of byte-pair encoding: of all neighbours whose bytes together are a token, those of the lowest
/// rank first, the leftmost of them.
inline std::vector<std::string> MergeByRank(std::string_view word, const std::map<std::string, int32_t>& ranks) {
    std::vector<std::string> parts;
    for (const char byte : word) {
        parts.emplace_back(1, byte);
    }
    while (true) {
        size_t best = parts.size();
        int32_t best_rank = INT32_MAX;
        for (size_t i = 0; i + 1 < parts.size(); ++i) {
            const auto place = ranks.find(parts[i] + parts[i + 1]);
            if (place != ranks.end() && place->second < best_rank) {
                best = i;
                best_rank = place->second;
            }
        }
        if (best == parts.size()) {
            return parts;
        }
        parts[best] += parts[best + 1];
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
}

/// Byte-pair training: tokens by rank, the 256 bytes first, then the most frequent pair of the text's words, so many
/// times; and the pairs.
struct TrainedTokens {
    std::vector<std::string> tokens = {};
    std::vector<std::pair<std::string, std::string>> merges = {};

    std::map<std::string, int32_t> Ranks() const {
        std::map<std::string, int32_t> ranks;
        for (size_t id = 0; id < tokens.size(); ++id) {
            ranks.emplace(tokens[id], static_cast<int32_t>(id));
        }
        return ranks;
    }
};

inline TrainedTokens Train(const std::string& text, size_t num_merges) {
    TrainedTokens trained;
    for (int byte = 0; byte < 256; ++byte) {
        // Not in the order of the bytes: an id is not the byte, as in GPT-2.
        trained.tokens.emplace_back(1, static_cast<char>(byte * 7 + 33));
    }
    std::vector<std::vector<std::string>> words;
    Pretokenizer("test", kGpt2Pattern).ForEachWord(text, [&](std::string_view word) {
        words.push_back(MergeByRank(word, {}));
    });
    while (trained.merges.size() < num_merges) {
        std::map<std::pair<std::string, std::string>, int> counts;
        for (const auto& word : words) {
            for (size_t i = 0; i + 1 < word.size(); ++i) {
                ++counts[{word[i], word[i + 1]}];
            }
        }
        if (counts.empty()) {
            break;
        }
        const auto best = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
                              return a.second < b.second;
                          })->first;
        const std::string token = best.first + best.second;
        trained.merges.push_back(best);
        if (std::find(trained.tokens.begin(), trained.tokens.end(), token) == trained.tokens.end()) {
            trained.tokens.push_back(token);
        }
        for (auto& word : words) {
            for (size_t i = 0; i + 1 < word.size(); ++i) {
                if (word[i] == best.first && word[i + 1] == best.second) {
                    word[i] = token;
                    word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
                }
            }
        }
    }
    return trained;
}

/// A text in GPT-2's byte-level alphabet.
inline std::string ToByteLevelAlphabet(std::string_view bytes) {
    std::string text;
    for (const char character : bytes) {
        const int byte = static_cast<unsigned char>(character);
        const auto is_visible = [](int b) { return (b > 32 && b < 127) || (b > 160 && b != 173); };
        int point = byte;
        if (!is_visible(byte)) {
            point = 256;
            for (int b = 0; b < byte; ++b) {
                point += is_visible(b) ? 0 : 1;
            }
        }
        if (point < 128) {
            text.push_back(static_cast<char>(point));
        } else {
            text.push_back(static_cast<char>(0xc0 | point >> 6));
            text.push_back(static_cast<char>(0x80 | (point & 0x3f)));
        }
    }
    return text;
}

/// vocab.json of the tokens, with a special one after them.
inline nlohmann::json VocabularyJson(const TrainedTokens& trained) {
    nlohmann::json vocabulary = nlohmann::json::object();
    for (size_t id = 0; id < trained.tokens.size(); ++id) {
        vocabulary[ToByteLevelAlphabet(trained.tokens[id])] = id;
    }
    vocabulary["<|endoftext|>"] = trained.tokens.size();
    return vocabulary;
}

/// The ids that the simplest encoder gives, words by this pattern.
inline std::vector<int32_t> EncodeSimply(std::string_view text, const TrainedTokens& trained, const char* pattern) {
    const std::map<std::string, int32_t> ranks = trained.Ranks();
    std::vector<int32_t> tokens;
    Pretokenizer("test", pattern).ForEachWord(text, [&](std::string_view word) {
        for (const std::string& part : MergeByRank(word, ranks)) {
            tokens.push_back(ranks.at(part));
        }
    });
    return tokens;
}

}  // namespace infini_train::data::test
