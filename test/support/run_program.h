#pragma once

#include <string>
#include <vector>

namespace infini_train::test {

struct ProgramResult {
    int exit_code = -1;  // 128 + signal for a program that a signal ended
    std::string out;
    std::string err;
};

/// Runs a program of the build folder ("gpt2"), or one with an absolute path, with its words, to its end or for at most
/// so many seconds.
ProgramResult RunProgram(const std::string& program, const std::vector<std::string>& words, unsigned limit_s = 60);

/// A new folder below the temporary folder, removed with all that is in it.
class TemporaryFolder {
 public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
    std::string path_;
};

std::string ReadTextFile(const std::string& path);
void WriteTextFile(const std::string& path, const std::string& text);

/// Folders with reference.json: ours, and INFINI_REFERENCE_DIR or ../shared/reference where that exists.
std::vector<std::string> ReferenceFolders();

}  // namespace infini_train::test
