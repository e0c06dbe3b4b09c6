#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/data/byte_level_vocabulary.h"
#include "infini_train/src/data/byte_pair_files.h"
#include "infini_train/src/data/pretokenizer.h"

namespace infini_train::data {
namespace {

using nlohmann::json;

constexpr size_t kMaxShownBytes = 120;

std::string Shown(const json& value) {
    const std::string text = value.dump();
    return text.size() <= kMaxShownBytes ? text : text.substr(0, kMaxShownBytes) + "...";
}

/// A part of the JSON, with its place for messages.
class Part {
 public:
    Part(const std::string& path, const std::string& place, const json& value)
        : path_(path), place_(place), value_(value) {
        if (!value_.is_object()) {
            Refuse(value_.is_null() ? "missing" : Shown(value_), "an object");
        }
    }

    [[noreturn]] void Refuse(const std::string& got, const std::string& wanted) const {
        throw Error({.where = path_,
                     .what = StrCat(place_.empty() ? "the file" : place_, ": not a tokenizer that can be read here"),
                     .got = got,
                     .wanted = wanted});
    }

    /// null where it is missing.
    const json& operator[](const char* key) const {
        static const json none;
        const auto place = value_.find(key);
        return place == value_.end() ? none : *place;
    }

    Part Object(const char* key) const { return {path_, PlaceOf(key), (*this)[key]}; }
    Part Element(const char* key, size_t index) const {
        return {path_, StrCat(PlaceOf(key), "[", index, "]"), Array(key)[index]};
    }

    const json& Array(const char* key) const {
        const json& value = (*this)[key];
        if (!value.is_array()) {
            Refuse(StrCat(key, ": ", Shown(value)), "an array");
        }
        return value;
    }

    std::string String(const char* key) const {
        const json& value = (*this)[key];
        if (!value.is_string()) {
            Refuse(StrCat(key, ": ", Shown(value)), "a string");
        }
        return value.get<std::string>();
    }

    /// missing: what the library that writes these files takes then.
    bool Bool(const char* key, bool missing) const {
        const json& value = (*this)[key];
        if (!value.is_boolean() && !value.is_null()) {
            Refuse(StrCat(key, ": ", Shown(value)), "true or false");
        }
        return value.is_null() ? missing : value.get<bool>();
    }

    void Require(bool holds, const char* key, const std::string& wanted) const {
        if (!holds) {
            Refuse(StrCat(key, ": ", Shown((*this)[key])), wanted);
        }
    }

 private:
    std::string PlaceOf(const char* key) const { return place_.empty() ? key : StrCat(place_, ".", key); }

    std::string path_;
    std::string place_;
    const json& value_;
};

Tokenizer::SpecialTokens ReadAddedTokens(const Part& file) {
    Tokenizer::SpecialTokens tokens;
    if (file["added_tokens"].is_null()) {
        return tokens;
    }
    const size_t num_tokens = file.Array("added_tokens").size();
    for (size_t i = 0; i < num_tokens; ++i) {
        const Part added = file.Element("added_tokens", i);
        added.Require(added.Bool("special", false), "special", "true: text makes no added token");
        for (const char* const rule : {"lstrip", "rstrip", "single_word"}) {
            added.Require(!added.Bool(rule, false), rule, "false");
        }
        const std::string name = added.String("content");
        const json& id = added["id"];
        added.Require(id.is_number_unsigned() && id.get<uint64_t>() <= INT32_MAX, "id", "an id of a token");
        if (name.empty() || !tokens.emplace(name, id.get<int32_t>()).second) {
            added.Refuse(StrCat("content: ", json(name).dump()), "a name that comes once");
        }
    }
    return tokens;
}

/// The pattern of the words.
std::string ReadPretokenizer(const Part& pretokenizer) {
    const std::string wanted = "ByteLevel, or a Sequence of Split and ByteLevel";
    const auto read_byte_level = [](const Part& part, bool has_pattern) {
        part.Require(!part.Bool("add_prefix_space", true), "add_prefix_space", "false");
        part.Require(part.Bool("use_regex", true) == has_pattern, "use_regex", has_pattern ? "true" : "false");
    };
    const std::string type = pretokenizer.String("type");
    if (type == "ByteLevel") {
        read_byte_level(pretokenizer, true);
        return kGpt2Pattern;
    }
    pretokenizer.Require(type == "Sequence", "type", wanted);
    pretokenizer.Require(pretokenizer.Array("pretokenizers").size() == 2, "pretokenizers", wanted);
    const Part split = pretokenizer.Element("pretokenizers", 0);
    const Part byte_level = pretokenizer.Element("pretokenizers", 1);
    split.Require(split["type"] == "Split", "type", wanted);
    split.Require(split["behavior"] == "Isolated", "behavior", "Isolated");
    split.Require(!split.Bool("invert", false), "invert", "false");
    byte_level.Require(byte_level["type"] == "ByteLevel", "type", wanted);
    read_byte_level(byte_level, false);
    return split.Object("pattern").String("Regex");
}

void CheckModel(const Part& model) {
    // Old files do not say the type.
    model.Require(model["type"].is_null() || model["type"] == "BPE", "type", "BPE");
    model.Require(model["dropout"].is_null() || model["dropout"] == 0.0, "dropout", "null");
    model.Require(!model.Bool("byte_fallback", false), "byte_fallback", "false: byte-level BPE has every byte");
    for (const char* const affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
        model.Require(model[affix].is_null() || model[affix] == "", affix, "null");
    }
}

void ReadMerges(const Part& model, ByteLevelVocabulary* vocabulary) {
    const json& merges = model.Array("merges");
    for (size_t i = 0; i < merges.size(); ++i) {
        const json& merge = merges[i];
        const std::string place = StrCat("model.merges[", i, "]");
        if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
            vocabulary->AddMerge(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>(), place);
            continue;
        }
        const std::string_view text =
            merge.is_string() ? std::string_view(merge.get_ref<const std::string&>()) : std::string_view();
        const size_t space = text.find(' ');
        if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
            model.Refuse(StrCat("merges[", i, "]: ", Shown(merge)), "\"left right\" or [\"left\", \"right\"]");
        }
        vocabulary->AddMerge(text.substr(0, space), text.substr(space + 1), place);
    }
}

}  // namespace

BytePairVocabulary ReadTokenizerJson(const std::string& path, const std::string& bytes) {
    const json root = ByteLevelVocabulary::ParseJson(path, bytes);
    const Part file(path, "", root);
    const Part model = file.Object("model");
    CheckModel(model);
    file.Require(file["normalizer"].is_null(), "normalizer", "null");
    const std::string pattern = ReadPretokenizer(file.Object("pre_tokenizer"));
    ByteLevelVocabulary vocabulary(path, model["vocab"], ReadAddedTokens(file));
    ReadMerges(model, &vocabulary);
    BytePairVocabulary result = vocabulary.Finish();
    result.pattern = pattern;
    result.whole_words_first = model.Bool("ignore_merges", false);
    return result;
}

}  // namespace infini_train::data
