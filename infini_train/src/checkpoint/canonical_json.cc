#include "infini_train/src/checkpoint/canonical_json.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/file.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/checkpoint/safetensors_header.h"

namespace infini_train::checkpoint {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 24;  // the manifest of 50000 layers

}  // namespace

std::string CanonicalText(const nlohmann::ordered_json& json) {
    return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void ReadCanonicalJson(const std::string& path, const std::function<std::string(const nlohmann::json& json)>& parse) {
    const ReadOnlyFile file(path);
    if (file.size_bytes() > kMaxBytes) {
        throw Error({.where = path,
                     .what = "is too large",
                     .got = StrCat(file.size_bytes(), " bytes"),
                     .wanted = StrCat("at most ", kMaxBytes)});
    }
    std::string text(file.size_bytes(), '\0');
    file.Read(0, text.data(), text.size());
    std::string again;
    try {
        again = parse(nlohmann::json::parse(text));
    } catch (const nlohmann::json::exception& exception) {
        throw Error({.where = path, .what = "is not what a checkpoint has there", .got = Quoted(exception.what())});
    }
    if (again != text) {
        const size_t size = std::min(again.size(), text.size());
        const auto place = std::mismatch(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(size), again.begin());
        throw Error({.where = path,
                     .what = StrCat("was changed after it was written: byte ", place.first - text.begin(),
                                    " is not what a checkpoint has there")});
    }
}

void CheckFormat(const std::string& path, const nlohmann::json& json) {
    const auto format = json.at("format").get<int64_t>();
    if (format != kCheckpointFormat) {
        throw Error({.where = path,
                     .what = "is of another version of the format of checkpoints",
                     .got = StrCat(format),
                     .wanted = StrCat(kCheckpointFormat)});
    }
}

}  // namespace infini_train::checkpoint
