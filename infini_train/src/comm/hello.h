#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace infini_train::comm {

/// Of what processes say to each other.
inline constexpr uint32_t kProtocolVersion = 1;

/// What a process says of itself when it comes to process 0.
struct Hello {
    uint32_t version = kProtocolVersion;
    int index = 0;
    int num_processes = 1;
    std::string job_id = {};
    std::string host = {};
    std::string fingerprint = {};
};

enum class Refusal {
    kBadInput,  // as Error::Kind
    kRuntime,
    kOtherJob,  // of another run: this one goes on, and the one who came may try again
};

std::string EncodeHello(const Hello& hello);
/// Nothing for what is no hello, numbers that no int holds among it. Of one of another version all but the fingerprint.
std::optional<Hello> DecodeHello(const std::string& body);

/// How two lists of lines "name=value" differ: "learning_rate=0.1 there, learning_rate=0.2 here (and 2 more lines)".
/// Empty when they do not.
std::string FingerprintDifference(const std::string& there, const std::string& here);

}  // namespace infini_train::comm
