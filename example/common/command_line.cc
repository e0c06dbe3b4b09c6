#include "example/common/command_line.h"

#include <cstddef>
#include <cstdio>

#include "gflags/gflags.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train {
namespace {

void PrintHelp(const CommandLine& line) {
    std::printf("%s", line.usage.c_str());
    for (const FlagGroup& group : line.groups) {
        std::printf("\n%s\n", group.title.c_str());
        for (const std::string& name : group.flags) {
            gflags::CommandLineFlagInfo info;
            gflags::GetCommandLineFlagInfo(name.c_str(), &info);
            std::string value = info.default_value;
            if (info.type == "double") {
                value = StrCat(std::stod(value));  // gflags writes 0.1 as 0.10000000000000001
            }
            value = value.empty() ? "" : " [" + value + "]";
            std::printf("  --%s%s\n      %s\n", name.c_str(), value.c_str(), info.description.c_str());
        }
    }
}

bool HasFlag(const CommandLine& line, const std::string& name) {
    for (const FlagGroup& group : line.groups) {
        for (const std::string& flag : group.flags) {
            if (name == flag) {
                return true;
            }
        }
    }
    return false;
}

/// A word that begins with '-', and the one after it where that is its value: i moves on to the last of them.
void ReadFlag(std::span<char* const> words, const CommandLine& line, size_t* i) {
    const std::string word = words[*i];
    const size_t dashes = word.starts_with("--") ? 2 : 1;
    const size_t equals = word.find('=');
    std::string name = word.substr(dashes, equals == std::string::npos ? equals : equals - dashes);
    bool negated = false;
    if (!HasFlag(line, name) && name.starts_with("no") && HasFlag(line, name.substr(2))) {
        name = name.substr(2);
        negated = true;
    }
    gflags::CommandLineFlagInfo info;
    if (!HasFlag(line, name) || !gflags::GetCommandLineFlagInfo(name.c_str(), &info) ||
        (negated && info.type != "bool")) {
        throw Error({.where = word.substr(0, equals), .what = "unknown flag (see --help)"});
    }
    if (negated && equals != std::string::npos) {
        throw Error({.where = word, .what = "--no" + name + " takes no value"});
    }
    if (equals != std::string::npos) {
        SetFlag(name, word.substr(equals + 1));
    } else if (info.type == "bool") {
        SetFlag(name, negated ? "false" : "true");
    } else if (*i + 1 < words.size()) {
        SetFlag(name, words[++*i]);
    } else {
        throw Error({.where = "--" + name, .what = "no value", .wanted = info.type});
    }
}

}  // namespace

std::optional<std::vector<std::string>> ReadCommandLine(std::span<char* const> words, const CommandLine& line) {
    std::vector<std::string> files;
    for (size_t i = 0; i < words.size(); ++i) {
        const std::string word = words[i];
        if (word == "--help" || word == "-help" || word == "-h") {
            PrintHelp(line);
            return std::nullopt;
        }
        if (line.takes_files && word == "--") {
            files.insert(files.end(), words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
            break;
        }
        if (word.size() >= 2 && word[0] == '-') {
            ReadFlag(words, line, &i);
        } else if (line.takes_files) {
            files.push_back(word);
        } else {
            throw Error({.where = word, .what = "not a flag; flags begin with -- (see --help)"});
        }
    }
    return files;
}

bool IsGiven(const std::string& flag) {
    gflags::CommandLineFlagInfo info;
    return gflags::GetCommandLineFlagInfo(flag.c_str(), &info) && !info.is_default;
}

std::string FlagValue(const std::string& flag) {
    std::string value;
    gflags::GetCommandLineOption(flag.c_str(), &value);
    return value;
}

void SetFlag(const std::string& flag, const std::string& value) {
    if (gflags::SetCommandLineOption(flag.c_str(), value.c_str()).empty()) {
        gflags::CommandLineFlagInfo info;
        gflags::GetCommandLineFlagInfo(flag.c_str(), &info);
        throw Error({.where = "--" + flag, .what = "not a value of this flag", .got = value, .wanted = info.type});
    }
}

}  // namespace infini_train
