#include "infini_train/src/checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <string_view>

#define XXH_INLINE_ALL  // the header is the library
#include "xxhash.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/file.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/checkpoint/canonical_json.h"
#include "infini_train/src/checkpoint/safetensors_header.h"

namespace infini_train::checkpoint {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;

std::string Hex(uint64_t value) {
    char text[17] = {};
    std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
    return text;
}

/// 0 for what is no such number: its text is another one then.
uint64_t FromHex(const std::string& text) {
    uint64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value, 16);
    return value;
}

void CheckNames(const std::string& path, const ManifestFiles& files) {
    std::string before;
    for (const ManifestFile& file : files) {
        const bool is_bare = file.name != "." && file.name != ".." && file.name != kManifestName &&
                             file.name.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
        if (!is_bare || file.name <= before) {
            throw Error({.where = path,
                         .what = "names a file that cannot be one of a checkpoint",
                         .got = Quoted(file.name),
                         .wanted = "bare names, sorted, each once"});
        }
        before = file.name;
    }
}

uint64_t ChecksumOf(const ReadOnlyFile& file) {
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    std::vector<std::byte> bytes(std::min<uint64_t>(kReadBytes, file.size_bytes()));
    for (uint64_t begin = 0; begin < file.size_bytes(); begin += bytes.size()) {
        const auto size = static_cast<size_t>(std::min<uint64_t>(bytes.size(), file.size_bytes() - begin));
        file.Read(begin, bytes.data(), size);
        XXH3_64bits_update(&state, bytes.data(), size);
    }
    return XXH3_64bits_digest(&state);
}

void CheckSize(const ReadOnlyFile& file, const ManifestFile& wanted) {
    if (file.size_bytes() != wanted.size_bytes) {
        throw Error({.where = file.path(),
                     .what = "has another size than the manifest of its checkpoint says",
                     .got = StrCat(file.size_bytes(), " bytes"),
                     .wanted = StrCat(wanted.size_bytes)});
    }
}

}  // namespace

nlohmann::ordered_json ToJson(const ManifestFiles& files) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const ManifestFile& file : files) {
        json.push_back({{"name", file.name}, {"size_bytes", file.size_bytes}, {"xxh3", Hex(file.checksum)}});
    }
    return json;
}

ManifestFiles FilesFromJson(const nlohmann::json& json) {
    ManifestFiles files;
    for (const nlohmann::json& file : json) {
        files.push_back({.name = file.at("name").get<std::string>(),
                         .size_bytes = file.at("size_bytes").get<uint64_t>(),
                         .checksum = FromHex(file.at("xxh3").get<std::string>())});
    }
    return files;
}

std::string ToJson(const Manifest& manifest) {
    return CanonicalText({{"format", kCheckpointFormat}, {"step", manifest.step}, {"files", ToJson(manifest.files)}});
}

Manifest ReadManifest(const std::string& folder) {
    const std::string path = folder + "/" + kManifestName;
    Manifest manifest;
    ReadCanonicalJson(path, [&](const nlohmann::json& json) {
        CheckFormat(path, json);
        manifest = {.step = json.at("step").get<int64_t>(), .files = FilesFromJson(json.at("files"))};
        return ToJson(manifest);
    });
    CheckNames(path, manifest.files);
    return manifest;
}

ManifestFile Describe(const std::string& folder, const std::string& name) {
    const ReadOnlyFile file(folder + "/" + name);
    return {.name = name, .size_bytes = file.size_bytes(), .checksum = ChecksumOf(file)};
}

void CheckFiles(const std::string& folder, const Manifest& manifest) {
    for (const ManifestFile& file : manifest.files) {
        CheckSize(ReadOnlyFile(folder + "/" + file.name), file);
        if (file.name.ends_with(".json")) {
            CheckChecksum(folder, file);
        }
    }
}

void CheckChecksum(const std::string& folder, const ManifestFile& wanted) {
    const ReadOnlyFile file(folder + "/" + wanted.name);
    CheckSize(file, wanted);
    const uint64_t checksum = ChecksumOf(file);
    if (checksum != wanted.checksum) {
        throw Error({.where = file.path(),
                     .what = "was changed after it was written: its checksum is not that of the manifest",
                     .got = Hex(checksum),
                     .wanted = Hex(wanted.checksum)});
    }
}

}  // namespace infini_train::checkpoint
