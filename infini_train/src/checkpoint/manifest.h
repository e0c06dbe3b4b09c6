#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace infini_train::checkpoint {

inline constexpr char kManifestName[] = "manifest.json";
inline constexpr char kTrainingStateName[] = "trainer_state.json";

/// A file of a checkpoint as it was when it was complete.
struct ManifestFile {
    std::string name = {};  // without a folder
    uint64_t size_bytes = 0;
    uint64_t checksum = 0;  // XXH3, 64 bits (https://xxhash.com)
};
using ManifestFiles = std::vector<ManifestFile>;

/// What a checkpoint consists of. Its file is written last: a folder without one is no checkpoint.
struct Manifest {
    int64_t step = 0;
    ManifestFiles files = {};  // all but itself, by name
};

nlohmann::ordered_json ToJson(const ManifestFiles& files);
/// Throws what nlohmann-json throws for a key that is missing.
ManifestFiles FilesFromJson(const nlohmann::json& json);

std::string ToJson(const Manifest& manifest);
/// Throws Error unless the folder has a manifest that is byte by byte what ToJson writes, of names that are bare and
/// sorted. Does not look at the files.
Manifest ReadManifest(const std::string& folder);

/// Reads all of the file.
ManifestFile Describe(const std::string& folder, const std::string& name);
/// Throws Error unless all files are there with their sizes, and the small ones, *.json, with their checksums.
void CheckFiles(const std::string& folder, const Manifest& manifest);
/// Throws Error unless the file has this checksum; reads all of it.
void CheckChecksum(const std::string& folder, const ManifestFile& file);

}  // namespace infini_train::checkpoint
