#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace infini_train::checkpoint {

/// config.json of a folder, or an object in it. A key with null is one that is not there. What is refused throws an
/// Error that names the file, the key, its value and what it should be.
class HfConfig {
 public:
    /// Throws Error unless the file is JSON of at most 1 MiB, an object, with no key twice in an object.
    explicit HfConfig(const std::string& folder);

    bool Has(const std::string& key) const;
    /// These throw Error without the key.
    int64_t Integer(const std::string& key, int64_t min, int64_t max) const;
    float Number(const std::string& key, float min, float max) const;
    std::string String(const std::string& key) const;
    HfConfig Object(const std::string& key) const;
    std::optional<bool> Bool(const std::string& key) const;

    /// That a key, if it is there, has this value: another one asks for another model.
    void CheckOnly(const std::string& key, const nlohmann::json& wanted) const;
    /// That it is there and has one of these.
    void CheckOneOf(const std::string& key, const std::vector<std::string>& wanted) const;

    [[noreturn]] void Refuse(const std::string& key, const std::string& what, const std::string& wanted) const;

 private:
    HfConfig(std::string path, std::string place, nlohmann::json object);

    const nlohmann::json& At(const std::string& key) const;

    std::string path_;
    std::string place_ = {};  // of the object in the file: "rope_scaling."
    nlohmann::json object_;
};

/// The shortest decimal number that is read back as the same float, for a config that people read: 1e-05.
double ShortestDecimal(float value);

}  // namespace infini_train::checkpoint
