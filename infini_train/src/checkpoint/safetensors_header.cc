#include "infini_train/src/checkpoint/safetensors_header.h"

#include <set>
#include <utility>

#include "nlohmann/json.hpp"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::checkpoint {
namespace {

constexpr size_t kMaxDepth = 4;
constexpr uint64_t kNumberLimit = uint64_t{1} << 53;  // above it, readers that keep numbers as doubles lose bits

enum class JsonKind { kObject, kArray, kString, kNumber, kOther };

struct JsonValue {
    JsonKind kind = JsonKind::kOther;
    std::string text = {};  // of a string
    uint64_t number = 0;
};

/// Enforces what holds for all JSON here, and hands on each value as it begins. Of the text itself only the keys of the
/// objects that are open are kept: a tree of a large header would take many times its size.
class StrictJson : public nlohmann::json_sax<nlohmann::json> {
 public:
    explicit StrictJson(std::string path) : path_(std::move(path)) {}

    void Parse(const std::string& text) {
        // nlohmann-json takes a NUL for the end of the text, and skips a byte order mark.
        if (const size_t place = text.find('\0'); place != std::string::npos) {
            throw Error({.where = path_,
                         .what = StrCat("byte ", place, " of the JSON is NUL"),
                         .wanted = "no padding but spaces"});
        }
        const size_t first = text.find_first_not_of(" \t\r\n");
        if (first == std::string::npos || text[first] != '{') {
            throw Error({.where = path_, .what = "the JSON does not begin with {"});
        }
        nlohmann::json::sax_parse(text, this);
    }

    bool null() override { return Begin({.kind = JsonKind::kOther}); }
    bool boolean(bool) override { return Begin({.kind = JsonKind::kOther}); }
    bool number_integer(number_integer_t value) override { RefuseNumber(value == 0 ? "-0" : StrCat(value)); }
    bool number_unsigned(number_unsigned_t value) override {
        if (value >= kNumberLimit) {
            RefuseNumber(StrCat(value));
        }
        return Begin({.kind = JsonKind::kNumber, .number = value});
    }
    bool number_float(number_float_t, const string_t& text) override { RefuseNumber(text); }
    bool string(string_t& text) override { return Begin({.kind = JsonKind::kString, .text = std::move(text)}); }
    bool binary(binary_t&) override { return Begin({.kind = JsonKind::kOther}); }
    bool start_object(size_t) override { return Open(JsonKind::kObject); }
    bool key(string_t& name) override {
        keys_.back() = name;
        if (!seen_.back().insert(std::move(name)).second) {
            Refuse(StrCat("duplicate key ", Quoted(keys_.back())));
        }
        return true;
    }
    bool end_object() override { return Close(JsonKind::kObject); }
    bool start_array(size_t) override { return Open(JsonKind::kArray); }
    bool end_array() override { return Close(JsonKind::kArray); }
    bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& exception) override {
        throw Error(
            {.where = path_, .what = StrCat("not JSON at byte ", position, " of it"), .got = Quoted(exception.what())});
    }

 protected:
    /// A value at keys(). Of an object or array, before what is in it.
    virtual void OnBegin(JsonValue value) = 0;
    /// After what is in it; keys() are again those of OnBegin.
    virtual void OnEnd(JsonKind) {}

    /// Of every object and array around the value, from the outermost; an array has "" for its key.
    const std::vector<std::string>& keys() const { return keys_; }

    [[noreturn]] void Refuse(const std::string& what, const std::string& got = "", const std::string& wanted = "") {
        std::string place;
        for (const std::string& key : keys_) {
            place += key.empty() ? "" : StrCat(place.empty() ? "" : ".", Quoted(key));
        }
        const std::string separator = place.empty() ? "" : ": ";
        throw Error({.where = path_, .what = StrCat(place, separator, what), .got = got, .wanted = wanted});
    }
    [[noreturn]] void RefuseKind(const std::string& wanted) {
        Refuse("the JSON has a value of a kind, or in a place, that the format does not know", "", wanted);
    }

 private:
    [[noreturn]] void RefuseNumber(const std::string& text) {
        Refuse("a number that is none of the format's", Quoted(text), "an integer from 0 to 2^53 - 1");
    }
    bool Begin(JsonValue value) {
        OnBegin(std::move(value));
        return true;
    }
    bool Open(JsonKind kind) {
        if (keys_.size() == kMaxDepth) {
            Refuse(StrCat("the JSON is nested deeper than ", kMaxDepth));
        }
        OnBegin({.kind = kind});
        keys_.emplace_back();
        seen_.emplace_back();
        return true;
    }
    bool Close(JsonKind kind) {
        keys_.pop_back();
        seen_.pop_back();
        OnEnd(kind);
        return true;
    }

    std::string path_;
    std::vector<std::string> keys_;
    std::vector<std::set<std::string>> seen_;  // keys of each object that is open
};

/// {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {"key": "value"}}
class HeaderJson : public StrictJson {
 public:
    using StrictJson::StrictJson;

    std::vector<SafetensorsEntry> entries;

 protected:
    void OnBegin(JsonValue value) override {
        const size_t depth = keys().size();
        if (depth >= 1 && keys()[0] == "__metadata__") {
            const JsonKind wanted = depth == 1 ? JsonKind::kObject : JsonKind::kString;
            if (value.kind != wanted) {
                RefuseKind("an object of strings in __metadata__");
            }
        } else if (depth == 1) {
            BeginEntry(value);
        } else if (depth == 2) {
            BeginField(std::move(value));
        } else if (depth == 3) {
            AddNumber(value);
        }
    }

    void OnEnd(JsonKind kind) override {
        if (kind != JsonKind::kObject || keys().size() != 1 || keys()[0] == "__metadata__") {
            return;
        }
        if (num_fields_ != 3 || offsets_.size() != 2) {
            Refuse("an entry without its fields", "", "dtype, shape and data_offsets, which are two numbers");
        }
        entries.back().begin = offsets_[0];
        entries.back().end = offsets_[1];
    }

 private:
    void BeginEntry(const JsonValue& value) {
        if (value.kind != JsonKind::kObject) {
            RefuseKind("an object for each tensor");
        }
        entries.emplace_back().name = keys()[0];
        num_fields_ = 0;
        offsets_.clear();
    }
    void BeginField(JsonValue value) {
        const bool is_dtype = keys()[1] == "dtype" && value.kind == JsonKind::kString;
        const bool is_list = (keys()[1] == "shape" || keys()[1] == "data_offsets") && value.kind == JsonKind::kArray;
        if (!is_dtype && !is_list) {
            RefuseKind("a string dtype, an array shape and an array data_offsets, no more");
        }
        ++num_fields_;  // each once: no key comes twice
        if (is_dtype) {
            entries.back().dtype = std::move(value.text);
        }
    }
    void AddNumber(const JsonValue& value) {
        if (value.kind != JsonKind::kNumber) {
            RefuseKind("numbers in shape and data_offsets");
        }
        Shape& shape = entries.back().shape;
        if (keys()[1] == "data_offsets") {
            if (offsets_.size() == 2) {
                Refuse("more than two data_offsets");
            }
            offsets_.push_back(value.number);
        } else if (shape.size() <= kMaxSafetensorsRank) {
            shape.push_back(static_cast<int64_t>(value.number));
        }
    }

    int num_fields_ = 0;
    std::vector<uint64_t> offsets_;
};

/// {"metadata": {"total_size": 24, ...}, "weight_map": {"name": "file"}}; what else metadata holds is not ours.
class IndexJson : public StrictJson {
 public:
    using StrictJson::StrictJson;

    SafetensorsIndex index;

 protected:
    void OnBegin(JsonValue value) override {
        const size_t depth = keys().size();
        if (depth == 0) {
            return;
        }
        const bool is_map = keys()[0] == "weight_map";
        if (!is_map && keys()[0] != "metadata") {
            Refuse("a key that the index of a model does not have", "", "metadata and weight_map");
        }
        if (depth == 1 && value.kind != JsonKind::kObject) {
            RefuseKind("objects metadata and weight_map");
        }
        if (depth == 1) {
            has_map_ = has_map_ || is_map;
        } else if (is_map) {
            if (value.kind != JsonKind::kString) {
                RefuseKind("the name of a file for each tensor");
            }
            index.file_of_tensor.emplace(keys()[1], std::move(value.text));
        } else if (depth == 2 && keys()[1] == "total_size") {
            if (value.kind != JsonKind::kNumber) {
                RefuseKind("a number of bytes");
            }
            has_total_ = true;
            index.total_size_bytes = value.number;
        }
    }

    void OnEnd(JsonKind) override {
        if (keys().empty() && !(has_map_ && has_total_)) {
            Refuse("the index of a model without its fields", "", "metadata.total_size and weight_map");
        }
    }

 private:
    bool has_map_ = false;
    bool has_total_ = false;
};

std::string ReadText(const ReadOnlyFile& file, uint64_t offset, uint64_t size_bytes) {
    std::string text(size_bytes, '\0');
    file.Read(offset, text.data(), text.size());
    return text;
}

}  // namespace

SafetensorsHeader ReadSafetensorsHeader(const ReadOnlyFile& file) {
    if (file.size_bytes() < kSafetensorsSizeBytes) {
        throw Error({.where = file.path(),
                     .what = "too short for the size of a safetensors header",
                     .got = StrCat(file.size_bytes(), " bytes"),
                     .wanted = StrCat("at least ", kSafetensorsSizeBytes)});
    }
    uint64_t size_bytes = 0;
    file.Read(0, &size_bytes, kSafetensorsSizeBytes);
    if (size_bytes > kMaxJsonBytes) {
        throw Error({.where = file.path(),
                     .what = "the size of the safetensors header is too large",
                     .got = StrCat(size_bytes, " bytes"),
                     .wanted = StrCat("at most ", kMaxJsonBytes)});
    }
    if (size_bytes > file.size_bytes() - kSafetensorsSizeBytes) {
        throw Error({.where = file.path(),
                     .what = "the file ends within its safetensors header",
                     .got = StrCat(file.size_bytes(), " bytes"),
                     .wanted = StrCat("at least ", kSafetensorsSizeBytes + size_bytes)});
    }
    HeaderJson json(file.path());
    json.Parse(ReadText(file, kSafetensorsSizeBytes, size_bytes));
    return {.size_bytes = size_bytes, .entries = std::move(json.entries)};
}

SafetensorsIndex ReadSafetensorsIndex(const ReadOnlyFile& file) {
    if (file.size_bytes() > kMaxJsonBytes) {
        throw Error({.where = file.path(),
                     .what = "too large for the index of a model",
                     .got = StrCat(file.size_bytes(), " bytes"),
                     .wanted = StrCat("at most ", kMaxJsonBytes)});
    }
    IndexJson json(file.path());
    json.Parse(ReadText(file, 0, file.size_bytes()));
    return std::move(json.index);
}

std::string Quoted(std::string_view text) {
    constexpr size_t kMaxShown = 200;
    const std::string shown(text.substr(0, kMaxShown));
    const nlohmann::json json = shown.size() < text.size() ? shown + "..." : shown;
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace infini_train::checkpoint
