#include "infini_train/src/data/byte_pair_vocabulary.h"

#include <optional>

#include "glog/logging.h"

#include "infini_train/src/data/word_index.h"

namespace infini_train::data {

std::vector<BytePairMerge> MergesOfRanks(const std::vector<std::string>& tokens) {
    WordIndex ids(tokens);
    for (size_t id = 0; id < tokens.size(); ++id) {
        if (!tokens[id].empty()) {
            ids.Insert(static_cast<int32_t>(id));
        }
    }
    std::vector<BytePairMerge> merges;
    for (size_t id = 0; id < tokens.size(); ++id) {
        const std::string_view token = tokens[id];
        CHECK_LE(token.size(), kMaxRankedTokenBytes) << "token " << id;
        for (size_t cut = 1; cut < token.size(); ++cut) {
            const std::optional<int32_t> left = ids.Find(token.substr(0, cut));
            const std::optional<int32_t> right = left.has_value() ? ids.Find(token.substr(cut)) : std::nullopt;
            if (right.has_value()) {
                const auto rank = static_cast<int32_t>(id);
                merges.push_back({.left = *left, .right = *right, .token = rank, .rank = rank});
            }
        }
    }
    return merges;
}

}  // namespace infini_train::data
