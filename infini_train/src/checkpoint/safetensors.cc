#include "infini_train/include/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include "infini_train/include/common/checked_math.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/checkpoint/llmc_header.h"
#include "infini_train/src/checkpoint/safetensors_header.h"

namespace infini_train::checkpoint {
namespace {

struct NamedBits {
    std::string_view name;
    uint64_t bits;
};

constexpr std::array<NamedBits, 22> kDtypes = {{
    {"BOOL", 8},        {"U8", 8},      {"I8", 8},      {"I16", 16},    {"U16", 16},    {"F16", 16},
    {"BF16", 16},       {"I32", 32},    {"U32", 32},    {"F32", 32},    {"I64", 64},    {"U64", 64},
    {"F64", 64},        {"C64", 64},    {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
}};

struct CheckedFile {
    std::shared_ptr<const ReadOnlyFile> file;
    SafetensorsHeader header;
};

/// Nothing when the format has no such dtype.
std::optional<uint64_t> NumBits(const std::string& dtype) {
    const auto* found =
        std::find_if(kDtypes.begin(), kDtypes.end(), [&](const NamedBits& known) { return known.name == dtype; });
    return found != kDtypes.end() ? std::optional(found->bits) : std::nullopt;
}

void CheckDtype(const std::string& path, const SafetensorsEntry& entry) {
    if (!NumBits(entry.dtype).has_value()) {
        throw Error({.where = path,
                     .what = StrCat("tensor ", Quoted(entry.name), " has an unknown dtype"),
                     .got = Quoted(entry.dtype),
                     .wanted = "one of safetensors"});
    }
}

/// Bytes that the shape takes, or nothing when they are not whole or do not fit 64 bits.
std::optional<uint64_t> CountBytes(const SafetensorsEntry& entry) {
    std::optional<uint64_t> bits = 1;
    for (const int64_t extent : entry.shape) {
        bits = bits.has_value() ? CheckedMultiply(*bits, static_cast<uint64_t>(extent)) : std::nullopt;
    }
    bits = bits.has_value() ? CheckedMultiply(*bits, *NumBits(entry.dtype)) : std::nullopt;
    return bits.has_value() && *bits % 8 == 0 ? std::optional(*bits / 8) : std::nullopt;
}

void CheckShape(const std::string& path, const SafetensorsEntry& entry) {
    if (entry.shape.size() > kMaxSafetensorsRank) {
        throw Error({.where = path,
                     .what = StrCat("tensor ", Quoted(entry.name), " has too many axes"),
                     .wanted = StrCat("at most ", kMaxSafetensorsRank)});
    }
    const std::optional<uint64_t> wanted = CountBytes(entry);
    if (entry.begin > entry.end || wanted != entry.end - entry.begin) {
        throw Error({.where = path,
                     .what = StrCat("tensor ", Quoted(entry.name), ": data_offsets do not fit ", entry.dtype, " ",
                                    ToString(entry.shape)),
                     .got = StrCat("bytes ", entry.begin, " to ", entry.end),
                     .wanted = wanted.has_value() ? StrCat(*wanted, " bytes") : "a size in whole bytes below 2^61"});
    }
}

/// That the tensors, sorted by their place, follow each other from the header to the end of the file.
void CheckCoverage(const ReadOnlyFile& file, const SafetensorsHeader& header) {
    uint64_t end = 0;
    for (const SafetensorsEntry& entry : header.entries) {
        if (entry.begin != end) {
            throw Error({.where = file.path(),
                         .what = StrCat("tensor ", Quoted(entry.name), " ",
                                        entry.begin < end ? "overlaps the one before it" : "has a hole before it"),
                         .got = StrCat("begin ", entry.begin),
                         .wanted = StrCat(end)});
        }
        end = entry.end;
    }
    CheckFileSize(file, CheckedAdd(end, kSafetensorsSizeBytes + header.size_bytes));
}

CheckedFile OpenAndCheck(const std::string& path) {
    auto file = std::make_shared<const ReadOnlyFile>(path);
    SafetensorsHeader header = ReadSafetensorsHeader(*file);
    for (const SafetensorsEntry& entry : header.entries) {
        CheckDtype(path, entry);
    }
    for (const SafetensorsEntry& entry : header.entries) {
        CheckShape(path, entry);
    }
    // By end too: an empty tensor may begin where another one does.
    std::sort(header.entries.begin(), header.entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
        return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    CheckCoverage(*file, header);
    return {.file = std::move(file), .header = std::move(header)};
}

bool IsMaskBuffer(std::string_view name) {
    const auto skip = [&](std::string_view prefix) {
        const bool has_prefix = name.starts_with(prefix);
        name.remove_prefix(has_prefix ? prefix.size() : 0);
        return has_prefix;
    };
    skip("transformer.");
    if (!skip("h.")) {
        return false;
    }
    const size_t num_digits = std::min(name.find_first_not_of("0123456789"), name.size());
    const bool is_layer = num_digits == 1 || (num_digits > 1 && name[0] != '0');
    name.remove_prefix(num_digits);
    return is_layer && (name == ".attn.bias" || name == ".attn.masked_bias");
}

WeightFile MakeWeightFile(const CheckedFile& checked) {
    std::map<std::string, WeightFile::Entry> entries;
    for (const SafetensorsEntry& entry : checked.header.entries) {
        if (IsMaskBuffer(entry.name)) {
            continue;
        }
        if (entry.dtype != "F32" && entry.dtype != "BF16") {
            throw Error({.where = checked.file->path(),
                         .what = StrCat("tensor ", Quoted(entry.name), " has a dtype that weights cannot have here"),
                         .got = entry.dtype,
                         .wanted = "F32 or BF16"});
        }
        entries.emplace(entry.name,
                        WeightFile::Entry{.offset = kSafetensorsSizeBytes + checked.header.size_bytes + entry.begin,
                                          .shape = entry.shape,
                                          .dtype = entry.dtype == "F32" ? DataType::kFloat32 : DataType::kBFloat16});
    }
    return {checked.file, std::move(entries)};
}

/// The path of a shard, which an index from anywhere must not choose freely.
std::string ShardPath(const std::string& index_path, const std::string& name) {
    const bool is_bare = !name.empty() && name != "." && name.find("..") == std::string::npos &&
                         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
    if (!is_bare) {
        throw Error({.where = index_path,
                     .what = "weight_map leads out of the folder of the index",
                     .got = Quoted(name),
                     .wanted = "the bare name of a file in it"});
    }
    const std::filesystem::path parent = std::filesystem::path(index_path).parent_path();
    const std::filesystem::path folder = parent.empty() ? "." : parent;
    std::error_code ignored;  // gives an empty path; opening the file reports it better
    const std::filesystem::path real_file = std::filesystem::canonical(folder / name, ignored);
    const std::filesystem::path real_folder = std::filesystem::canonical(folder, ignored);
    if (!real_file.empty() && real_file.parent_path() != real_folder) {
        throw Error({.where = index_path,
                     .what = StrCat("the shard ", Quoted(name), " is a link out of the folder of the index"),
                     .got = real_file.string(),
                     .wanted = "a file in that folder (copy it there)"});
    }
    return (folder / name).string();
}

/// That the file holds the tensors which the index maps to it, and no others. Returns their bytes.
uint64_t CheckShard(const std::string& index_path, const CheckedFile& checked, std::set<std::string> mapped) {
    for (const SafetensorsEntry& entry : checked.header.entries) {
        if (mapped.erase(entry.name) == 0) {
            throw Error({.where = index_path,
                         .what = StrCat("weight_map does not map the tensor ", Quoted(entry.name), " to the file ",
                                        checked.file->path(), " that has it")});
        }
    }
    if (!mapped.empty()) {
        throw Error({.where = checked.file->path(),
                     .what = StrCat("has no tensor ", Quoted(*mapped.begin()), ", which ", index_path, " maps to it")});
    }
    return checked.file->size_bytes() - kSafetensorsSizeBytes - checked.header.size_bytes;
}

}  // namespace

WeightFile OpenSafetensors(const std::string& path) {
    return MakeWeightFile(OpenAndCheck(path));
}

std::vector<WeightFile> OpenShardedSafetensors(const std::string& index_path) {
    const SafetensorsIndex index = ReadSafetensorsIndex(ReadOnlyFile(index_path));
    std::map<std::string, std::set<std::string>> tensors_of_file;
    for (const auto& [tensor, name] : index.file_of_tensor) {
        tensors_of_file[name].insert(tensor);
    }
    std::vector<WeightFile> files;
    uint64_t total_size_bytes = 0;
    for (const auto& [name, tensors] : tensors_of_file) {
        const CheckedFile checked = OpenAndCheck(ShardPath(index_path, name));
        total_size_bytes += CheckShard(index_path, checked, tensors);
        files.push_back(MakeWeightFile(checked));
    }
    if (total_size_bytes != index.total_size_bytes) {
        throw Error({.where = index_path,
                     .what = "metadata.total_size is not that of the tensors in the files",
                     .got = StrCat(index.total_size_bytes, " bytes"),
                     .wanted = StrCat(total_size_bytes)});
    }
    return files;
}

}  // namespace infini_train::checkpoint
