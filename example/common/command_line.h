#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace infini_train {

struct FlagGroup {
    std::string title = {};
    std::vector<std::string> flags = {};  // by their gflags names
};

/// What --help prints, and which flags a program has.
struct CommandLine {
    std::string usage = {};  // what the program does, and examples
    std::vector<FlagGroup> groups = {};
    bool takes_files = false;  // words that are no flags
};

/// Sets the flags and returns the other words; nothing when it printed the help. Throws Error for a word that is no
/// flag of the program, and for a value that is not one of its flag. (gflags' own parser ends the process, with an exit
/// code of its own.)
std::optional<std::vector<std::string>> ReadCommandLine(std::span<char* const> words, const CommandLine& line);

/// The command line, or SetFlag, gave the flag a value.
bool IsGiven(const std::string& flag);
std::string FlagValue(const std::string& flag);
/// Throws Error for a value that is not one of the flag.
void SetFlag(const std::string& flag, const std::string& value);

}  // namespace infini_train
