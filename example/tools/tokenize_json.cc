#include "example/tools/tokenize_json.h"

#include <cstddef>
#include <optional>
#include <utility>

#include "nlohmann/json.hpp"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train {
namespace {

/// Keeps one string of the outermost object and nothing else: a line may be as deep and as long as it likes. Each
/// function says whether to go on.
class FieldFinder : public nlohmann::json_sax<nlohmann::json> {
 public:
    explicit FieldFinder(const std::string& field) : field_(field) {}

    const std::string& problem() const { return problem_; }
    std::string TakeText() { return std::move(*text_); }
    bool has_text() const { return text_.has_value(); }

    bool null() override { return Other("null"); }
    bool boolean(bool) override { return Other("a boolean"); }
    bool number_integer(number_integer_t) override { return Other("a number"); }
    bool number_unsigned(number_unsigned_t) override { return Other("a number"); }
    bool number_float(number_float_t, const string_t&) override { return Other("a number"); }
    bool binary(binary_t&) override { return Other("bytes"); }
    bool string(string_t& value) override {
        if (depth_ != 1 || !is_wanted_) {
            return Other("a string");
        }
        text_ = std::move(value);
        is_wanted_ = false;
        return true;
    }
    bool key(string_t& name) override {
        is_wanted_ = depth_ == 1 && name == field_;
        return !is_wanted_ || !text_.has_value() || Fail(StrCat("the field '", field_, "' is there twice"));
    }
    bool start_object(size_t) override {
        if (depth_ > 0 && !Other("an object")) {
            return false;
        }
        ++depth_;
        return true;
    }
    bool end_object() override { return Leave(); }
    bool start_array(size_t) override {
        if (!Other("an array")) {
            return false;
        }
        ++depth_;
        return true;
    }
    bool end_array() override { return Leave(); }
    bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
        return Fail(StrCat("not JSON at byte ", position, " of the line"));
    }

 private:
    /// A value that is not the text.
    bool Other(const char* kind) {
        if (depth_ == 0) {
            return Fail(StrCat("the line is ", kind, ", not a JSON object"));
        }
        return !is_wanted_ || Fail(StrCat("the field '", field_, "' is ", kind, ", not a string"));
    }
    bool Leave() {
        --depth_;
        return true;
    }
    bool Fail(const std::string& problem) {
        problem_ = problem;
        return false;
    }

    std::string field_;
    std::optional<std::string> text_;
    std::string problem_;
    int64_t depth_ = 0;
    bool is_wanted_ = false;  // the value that comes next
};

}  // namespace

std::string JsonText(std::string_view line, const std::string& field, const std::string& where) {
    FieldFinder finder(field);
    if (!nlohmann::json::sax_parse(line.begin(), line.end(), &finder)) {
        throw Error({.where = where, .what = finder.problem()});
    }
    if (!finder.has_text()) {
        throw Error({.where = where, .what = StrCat("no field '", field, "'"), .wanted = "the name in --json_field"});
    }
    return finder.TakeText();
}

}  // namespace infini_train
