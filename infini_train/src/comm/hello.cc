#include "infini_train/src/comm/hello.h"

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>

#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/wire.h"

namespace infini_train::comm {
namespace {

std::map<std::string, std::string> Lines(const std::string& fingerprint) {
    std::map<std::string, std::string> lines;
    std::istringstream stream(fingerprint);
    for (std::string line; std::getline(stream, line);) {
        lines[line.substr(0, line.find('='))] = line;
    }
    return lines;
}

}  // namespace

// All up to the host is the same in every version of the protocol: so that a process of another one can be named.
std::string EncodeHello(const Hello& hello) {
    return WireWriter()
        .Number(hello.version)
        .Number(static_cast<uint32_t>(hello.index))
        .Number(static_cast<uint32_t>(hello.num_processes))
        .Text(hello.job_id)
        .Text(hello.host)
        .Text(hello.fingerprint)
        .bytes();
}

std::optional<Hello> DecodeHello(const std::string& body) {
    WireReader reader(body);
    const auto version = reader.Number();
    const auto index = reader.Number();
    const auto num_processes = reader.Number();
    auto job_id = reader.Text();
    auto host = reader.Text();
    auto fingerprint = reader.Text();
    if (!version.has_value() || !index.has_value() || !num_processes.has_value() || !job_id.has_value() ||
        !host.has_value()) {
        return std::nullopt;
    }
    constexpr uint32_t kMaxNumber = std::numeric_limits<int>::max();
    if (*index > kMaxNumber || *num_processes > kMaxNumber) {
        return std::nullopt;
    }
    if (version != kProtocolVersion) {
        fingerprint = "";
    }
    if (!fingerprint.has_value()) {
        return std::nullopt;
    }
    return Hello{.version = *version,
                 .index = static_cast<int>(*index),
                 .num_processes = static_cast<int>(*num_processes),
                 .job_id = *std::move(job_id),
                 .host = *std::move(host),
                 .fingerprint = *std::move(fingerprint)};
}

std::string FingerprintDifference(const std::string& there, const std::string& here) {
    if (there == here) {
        return "";
    }
    const auto lines_there = Lines(there);
    const auto lines_here = Lines(here);
    std::set<std::string> names;
    for (const auto* lines : {&lines_there, &lines_here}) {
        for (const auto& [name, line] : *lines) {
            names.insert(name);
        }
    }
    std::string first;
    int num_more = 0;
    for (const std::string& name : names) {
        const auto in_there = lines_there.find(name);
        const auto in_here = lines_here.find(name);
        const std::string text_there = in_there == lines_there.end() ? "no " + name : in_there->second;
        const std::string text_here = in_here == lines_here.end() ? "no " + name : in_here->second;
        if (text_there == text_here) {
            continue;
        }
        if (first.empty()) {
            first = text_there + " there, " + text_here + " here";
        } else {
            ++num_more;
        }
    }
    if (first.empty()) {
        return "the same lines in another order, or repeated";
    }
    return num_more == 0 ? first : StrCat(first, " (and ", num_more, num_more == 1 ? " more line)" : " more lines)");
}

}  // namespace infini_train::comm
