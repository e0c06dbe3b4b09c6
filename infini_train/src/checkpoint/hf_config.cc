#include "infini_train/src/checkpoint/hf_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <set>
#include <utility>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/file.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/checkpoint/safetensors_header.h"

namespace infini_train::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxBytes = uint64_t{1} << 20;
constexpr int kMaxDepth = 16;

std::string ReadText(const std::string& path) {
    const ReadOnlyFile file(path);
    if (file.size_bytes() > kMaxBytes) {
        throw Error({.where = path,
                     .what = "too large for the config of a model",
                     .got = StrCat(file.size_bytes(), " bytes"),
                     .wanted = StrCat("at most ", kMaxBytes)});
    }
    std::string text(file.size_bytes(), '\0');
    file.Read(0, text.data(), text.size());
    return text;
}

Json Parse(const std::string& path) {
    std::vector<std::set<std::string>> keys;  // of every object that is open
    const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
        if (depth > kMaxDepth) {
            throw Error({.where = path, .what = StrCat("the JSON is nested deeper than ", kMaxDepth)});
        }
        if (event == Json::parse_event_t::object_start) {
            keys.emplace_back();
        } else if (event == Json::parse_event_t::object_end) {
            keys.pop_back();
        } else if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
            throw Error({.where = path, .what = "duplicate key " + Quoted(parsed.get<std::string>())});
        }
        return true;
    };
    Json json;
    try {
        json = Json::parse(ReadText(path), check);
    } catch (const Json::exception& exception) {
        throw Error({.where = path, .what = "not JSON", .got = Quoted(exception.what())});
    }
    if (!json.is_object()) {
        throw Error({.where = path, .what = "the JSON is not an object"});
    }
    return json;
}

std::string Shown(const Json& value) {
    constexpr size_t kMaxShown = 200;
    const std::string text = value.dump();
    return text.size() > kMaxShown ? text.substr(0, kMaxShown) + "..." : text;
}

}  // namespace

HfConfig::HfConfig(const std::string& folder) : path_(folder + "/config.json"), object_(Parse(path_)) {}

HfConfig::HfConfig(std::string path, std::string place, Json object)
    : path_(std::move(path)), place_(std::move(place)), object_(std::move(object)) {}

bool HfConfig::Has(const std::string& key) const {
    return object_.contains(key) && !object_.at(key).is_null();
}

int64_t HfConfig::Integer(const std::string& key, int64_t min, int64_t max) const {
    const Json& value = At(key);
    const bool is_count = value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(max);
    if (!is_count || value.get<int64_t>() < min) {
        Refuse(key, "is out of range", StrCat("an integer from ", min, " to ", max));
    }
    return value.get<int64_t>();
}

float HfConfig::Number(const std::string& key, float min, float max) const {
    const Json& value = At(key);
    const double number = value.is_number() ? value.get<double>() : -1.0;
    if (!(number >= static_cast<double>(min) && number <= static_cast<double>(max))) {
        Refuse(key, "is out of range", StrCat("a number from ", min, " to ", max));
    }
    return static_cast<float>(number);
}

std::string HfConfig::String(const std::string& key) const {
    const Json& value = At(key);
    if (!value.is_string()) {
        Refuse(key, "has a value of another kind", "a string");
    }
    return value.get<std::string>();
}

HfConfig HfConfig::Object(const std::string& key) const {
    const Json& value = At(key);
    if (!value.is_object()) {
        Refuse(key, "has a value of another kind", "an object");
    }
    return {path_, place_ + key + ".", value};
}

std::optional<bool> HfConfig::Bool(const std::string& key) const {
    if (!Has(key)) {
        return std::nullopt;
    }
    const Json& value = At(key);
    if (!value.is_boolean()) {
        Refuse(key, "has a value of another kind", "true or false");
    }
    return value.get<bool>();
}

void HfConfig::CheckOnly(const std::string& key, const Json& wanted) const {
    if (Has(key) && At(key) != wanted) {
        Refuse(key, "asks for a model that there is not here", wanted.dump());
    }
}

void HfConfig::CheckOneOf(const std::string& key, const std::vector<std::string>& wanted) const {
    if (std::find(wanted.begin(), wanted.end(), String(key)) == wanted.end()) {
        std::string list;
        for (const std::string& value : wanted) {
            list += (list.empty() ? "" : " or ") + Quoted(value);
        }
        Refuse(key, "asks for a model that there is not here", list);
    }
}

void HfConfig::Refuse(const std::string& key, const std::string& what, const std::string& wanted) const {
    throw Error({.where = path_,
                 .what = StrCat(place_, key, " ", what),
                 .got = Has(key) ? Shown(object_.at(key)) : "",
                 .wanted = wanted});
}

const Json& HfConfig::At(const std::string& key) const {
    if (!Has(key)) {
        Refuse(key, "is missing", "");
    }
    return object_.at(key);
}

double ShortestDecimal(float value) {
    std::array<char, 64> text = {};  // the last of them stays NUL
    std::to_chars(text.data(), text.data() + text.size() - 1, value);
    return std::strtod(text.data(), nullptr);
}

}  // namespace infini_train::checkpoint
