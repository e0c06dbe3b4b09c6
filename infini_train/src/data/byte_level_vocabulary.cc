#include "infini_train/src/data/byte_level_vocabulary.h"

#include <optional>
#include <utility>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/data/byte_level_alphabet.h"

namespace infini_train::data {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 16;  // tokenizer.json has about six

}  // namespace

json ByteLevelVocabulary::ParseJson(const std::string& path, const std::string& bytes) {
    // nlohmann-json takes a NUL for the end of the text.
    if (const size_t place = bytes.find('\0'); place != std::string::npos) {
        throw Error({.where = path, .what = StrCat("byte ", place, " of the JSON is NUL")});
    }
    const auto check_depth = [&](int depth, json::parse_event_t, json&) {
        if (depth > kMaxDepth) {
            throw Error({.where = path, .what = StrCat("the JSON is nested deeper than ", kMaxDepth)});
        }
        return true;
    };
    try {
        return json::parse(bytes, check_depth);
    } catch (const json::parse_error& error) {
        throw Error({.where = path, .what = StrCat("not JSON at byte ", error.byte, " of it")});
    } catch (const json::out_of_range&) {
        throw Error({.where = path, .what = "the JSON has a number that is too large"});
    }
}

ByteLevelVocabulary::ByteLevelVocabulary(const std::string& path, const json& vocabulary,
                                         const Tokenizer::SpecialTokens& special_tokens)
    : path_(path), special_tokens_(special_tokens) {
    if (!vocabulary.is_object()) {
        throw Error({.where = path_, .what = "the vocabulary is no JSON object", .wanted = "{\"token\": id, ...}"});
    }
    size_t num_tokens = vocabulary.size();
    for (const auto& [name, id] : special_tokens_) {
        num_tokens += vocabulary.contains(name) ? 0 : 1;
    }
    names_.resize(num_tokens);
    is_merged_.resize(num_tokens);
    for (const auto& [name, id] : vocabulary.items()) {
        if (!id.is_number_integer()) {
            throw Error({.where = path_, .what = StrCat("the id of the token ", json(name).dump(), " is no integer")});
        }
        AddName(name, id.is_number_unsigned() && id.get<uint64_t>() > INT64_MAX ? INT64_MAX : id.get<int64_t>());
    }
    for (const auto& [name, id] : special_tokens_) {
        if (const auto place = ids_.find(name); place == ids_.end()) {
            AddName(name, id);
        } else if (place->second != id) {
            throw Error({.where = path_,
                         .what = StrCat("the special token ", json(name).dump(), " has another id in the vocabulary"),
                         .got = StrCat(id),
                         .wanted = StrCat(place->second)});
        }
    }
}

void ByteLevelVocabulary::AddName(const std::string& name, int64_t id) {
    const auto limit = static_cast<int64_t>(names_.size());
    if (id < 0 || id >= limit) {
        throw Error({.where = path_,
                     .what = StrCat("the ids of ", limit, " tokens are not 0 to ", limit - 1),
                     .got = StrCat(id, " for ", json(name).dump())});
    }
    std::string& place = names_[static_cast<size_t>(id)];
    if (name.empty() || !place.empty()) {
        throw Error(
            {.where = path_,
             .what = name.empty() ? StrCat("the token ", id, " is empty") : StrCat("two tokens have the id ", id),
             .got = StrCat(json(place).dump(), " and ", json(name).dump())});
    }
    place = name;
    ids_.emplace(name, static_cast<int32_t>(id));
}

int32_t ByteLevelVocabulary::IdOf(std::string_view name, const std::string& place) const {
    const auto found = ids_.find(name);
    if (found == ids_.end()) {
        throw Error({.where = path_,
                     .what = StrCat(place, ": a merge of or to a token that is not in the vocabulary"),
                     .got = json(name).dump(-1, ' ', false, json::error_handler_t::replace)});
    }
    return found->second;
}

void ByteLevelVocabulary::AddMerge(std::string_view left, std::string_view right, const std::string& place) {
    const BytePairMerge merge = {.left = IdOf(left, place),
                                 .right = IdOf(right, place),
                                 .token = IdOf(StrCat(left, right), place),
                                 .rank = static_cast<int32_t>(merges_.size())};
    for (const std::string& name : {std::string(left), std::string(right), StrCat(left, right)}) {
        if (special_tokens_.contains(name)) {
            throw Error({.where = path_, .what = StrCat(place, ": a merge of or to a special token"), .got = name});
        }
    }
    is_merged_[static_cast<size_t>(merge.token)] = true;
    merges_.push_back(merge);
}

void ByteLevelVocabulary::MarkUnmergedSpecial() {
    for (size_t id = 0; id < names_.size(); ++id) {
        const std::optional<std::string> bytes = FromByteLevelAlphabet(names_[id]);
        if (!is_merged_[id] && (!bytes.has_value() || bytes->size() != 1)) {
            special_tokens_.emplace(names_[id], static_cast<int32_t>(id));
        }
    }
}

BytePairVocabulary ByteLevelVocabulary::Finish() {
    BytePairVocabulary vocabulary = {
        .file = path_, .merges = std::move(merges_), .special_tokens = std::move(special_tokens_)};
    vocabulary.tokens.reserve(names_.size());
    for (const std::string& name : names_) {
        if (vocabulary.special_tokens.contains(name)) {
            vocabulary.tokens.emplace_back();
            continue;
        }
        std::optional<std::string> bytes = FromByteLevelAlphabet(name);
        if (!bytes.has_value()) {
            throw Error({.where = path_,
                         .what = "a token is not in the byte-level alphabet of GPT-2",
                         .got = json(name).dump()});
        }
        vocabulary.tokens.push_back(std::move(*bytes));
    }
    return vocabulary;
}

}  // namespace infini_train::data
