#include "infini_train/src/data/byte_pair_encoder.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::data {
namespace {

constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();
constexpr uint32_t kNoNode = std::numeric_limits<uint32_t>::max();

}  // namespace

BytePairEncoder::BytePairEncoder(const BytePairVocabulary& vocabulary) : tokens_(vocabulary.tokens), words_(tokens_) {
    WordIndex all = IndexTokens(vocabulary.file);
    IndexMerges(vocabulary);
    if (vocabulary.whole_words_first) {
        words_ = std::move(all);
    } else {
        IndexMergedWords();
    }
}

WordIndex BytePairEncoder::IndexTokens(const std::string& file) {
    WordIndex all(tokens_);
    for (size_t id = 0; id < tokens_.size(); ++id) {
        if (tokens_[id].empty()) {
            continue;
        }
        if (const std::optional<int32_t> other = all.Insert(static_cast<int32_t>(id)); other.has_value()) {
            throw Error({.where = file, .what = StrCat("the tokens ", *other, " and ", id, " have the same bytes")});
        }
    }
    for (size_t byte = 0; byte < byte_tokens_.size(); ++byte) {
        const std::optional<int32_t> id = all.Find(std::string(1, static_cast<char>(byte)));
        if (!id.has_value()) {
            throw Error(
                {.where = file, .what = StrCat("no token for the byte ", byte), .wanted = "one for each of the 256"});
        }
        byte_tokens_[byte] = *id;
    }
    return all;
}

void BytePairEncoder::IndexMerges(const BytePairVocabulary& vocabulary) {
    std::vector<BytePairMerge> merges = vocabulary.merges;
    std::sort(merges.begin(), merges.end(), [](const BytePairMerge& a, const BytePairMerge& b) {
        return std::tie(a.left, a.right) < std::tie(b.left, b.right);
    });
    pairs_.reserve(merges.size());
    first_pair_.reserve(tokens_.size() + 1);
    for (const BytePairMerge& merge : merges) {
        const auto left = static_cast<size_t>(merge.left);
        const auto right = static_cast<size_t>(merge.right);
        const auto token = static_cast<size_t>(merge.token);
        CHECK(std::max({left, right, token}) < tokens_.size() && merge.rank < kNoRank) << vocabulary.file;
        if (first_pair_.size() == left + 1 && pairs_.back().right == merge.right) {
            throw Error({.where = vocabulary.file,
                         .what = StrCat("two merges of the tokens ", merge.left, " and ", merge.right)});
        }
        first_pair_.resize(left + 1, pairs_.size());
        pairs_.push_back({.right = merge.right, .token = merge.token, .rank = merge.rank});
    }
    first_pair_.resize(tokens_.size() + 1, pairs_.size());
}

void BytePairEncoder::IndexMergedWords() {
    Scratch scratch;
    std::vector<int32_t> merged;
    for (size_t id = 0; id < tokens_.size(); ++id) {
        if (tokens_[id].empty()) {
            continue;
        }
        // A token may be one that its own bytes do not lead to: then it is not what the word becomes.
        merged.clear();
        Merge(tokens_[id], &scratch, &merged);
        if (merged.size() == 1 && merged.front() == static_cast<int32_t>(id)) {
            words_.Insert(merged.front());
        }
    }
}

const BytePairEncoder::Pair* BytePairEncoder::Find(int32_t left, int32_t right) const {
    const Pair* const begin = pairs_.data() + first_pair_[static_cast<size_t>(left)];
    const Pair* const end = pairs_.data() + first_pair_[static_cast<size_t>(left) + 1];
    const Pair* const place =
        std::lower_bound(begin, end, right, [](const Pair& pair, int32_t wanted) { return pair.right < wanted; });
    return place != end && place->right == right ? place : nullptr;
}

void BytePairEncoder::Rate(uint32_t index, Scratch* scratch) const {
    Node& node = scratch->nodes[index];
    node.rank = kNoRank;
    if (node.next == kNoNode) {
        return;
    }
    if (const Pair* pair = Find(node.token, scratch->nodes[node.next].token); pair != nullptr) {
        node.rank = pair->rank;
        node.merged = pair->token;
        scratch->candidates.push_back({.rank = pair->rank, .node = index});
    }
}

void BytePairEncoder::Encode(std::string_view word, Scratch* scratch, std::vector<int32_t>* tokens) const {
    if (const std::optional<int32_t> id = words_.Find(word); id.has_value()) {
        tokens->push_back(*id);
        return;
    }
    Merge(word, scratch, tokens);
}

void BytePairEncoder::Merge(std::string_view word, Scratch* scratch, std::vector<int32_t>* tokens) const {
    CHECK(!word.empty() && word.size() <= kMaxWordBytes) << word.size();
    const auto size = static_cast<uint32_t>(word.size());
    std::vector<Node>& nodes = scratch->nodes;
    std::vector<Candidate>& candidates = scratch->candidates;
    nodes.resize(size);
    candidates.clear();
    for (uint32_t i = 0; i < size; ++i) {
        nodes[i] = {.previous = i == 0 ? kNoNode : i - 1,
                    .next = i + 1 == size ? kNoNode : i + 1,
                    .token = byte_tokens_[static_cast<unsigned char>(word[i])]};
    }
    for (uint32_t i = 0; i < size; ++i) {
        Rate(i, scratch);
    }
    const auto is_later = [](const Candidate& a, const Candidate& b) {
        return std::tie(a.rank, a.node) > std::tie(b.rank, b.node);
    };
    std::make_heap(candidates.begin(), candidates.end(), is_later);
    const auto rate = [&](uint32_t i) {
        const size_t num_candidates = candidates.size();
        Rate(i, scratch);
        if (candidates.size() > num_candidates) {
            std::push_heap(candidates.begin(), candidates.end(), is_later);
        }
    };
    while (!candidates.empty()) {
        const Candidate best = candidates.front();
        std::pop_heap(candidates.begin(), candidates.end(), is_later);
        candidates.pop_back();
        Node& node = nodes[best.node];
        if (node.rank != best.rank) {
            continue;  // one of the two has been merged since
        }
        nodes[node.next].rank = kNoRank;
        node.token = node.merged;
        node.next = nodes[node.next].next;
        if (node.next != kNoNode) {
            nodes[node.next].previous = best.node;
        }
        rate(best.node);
        if (node.previous != kNoNode) {
            rate(node.previous);
        }
    }
    for (uint32_t i = 0; i != kNoNode; i = nodes[i].next) {
        tokens->push_back(nodes[i].token);
    }
}

}  // namespace infini_train::data
