#include "test/support/run_program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "glog/logging.h"

namespace infini_train::test {

ProgramResult RunProgram(const std::string& program, const std::vector<std::string>& words, unsigned limit_s) {
    const TemporaryFolder folder;
    const std::string out_path = folder.File("out");
    const std::string err_path = folder.File("err");
    const std::string path = program.starts_with("/") ? program : std::string(INFINI_BINARY_DIR) + "/" + program;
    std::vector<char*> argv = {const_cast<char*>(path.c_str())};
    for (const std::string& word : words) {
        argv.push_back(const_cast<char*>(word.c_str()));
    }
    argv.push_back(nullptr);
    const pid_t child = fork();
    PCHECK(child >= 0) << "fork";
    if (child == 0) {
        alarm(limit_s);  // ends a program that hangs
        const int out = open(out_path.c_str(), O_WRONLY | O_CREAT, 0600);
        const int err = open(err_path.c_str(), O_WRONLY | O_CREAT, 0600);
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
        execv(path.c_str(), argv.data());
        _exit(127);
    }
    int status = 0;
    PCHECK(waitpid(child, &status, 0) == child);
    return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            .out = ReadTextFile(out_path),
            .err = ReadTextFile(err_path)};
}

TemporaryFolder::TemporaryFolder() {
    path_ = (std::filesystem::temp_directory_path() / "infini_train_XXXXXX").string();
    PCHECK(mkdtemp(path_.data()) != nullptr) << path_;
}

TemporaryFolder::~TemporaryFolder() {
    std::filesystem::remove_all(path_);
}

std::string ReadTextFile(const std::string& path) {
    const std::ifstream file(path, std::ios::binary);
    CHECK(file.good()) << path;
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

void WriteTextFile(const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary);
    file << text;
    CHECK(file.good()) << path;
}

std::vector<std::string> ReferenceFolders() {
    std::vector<std::string> folders = {std::string(INFINI_SOURCE_DIR) + "/test/reference"};
    const char* named = std::getenv("INFINI_REFERENCE_DIR");
    const std::string other = named != nullptr ? named : std::string(INFINI_SOURCE_DIR) + "/../shared/reference";
    if (std::filesystem::exists(other + "/reference.json")) {
        folders.push_back(other);
    }
    return folders;
}

}  // namespace infini_train::test
