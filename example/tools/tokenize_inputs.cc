#include "example/tools/tokenize_inputs.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/file.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLookedAtBytes = 8192;  // what git and grep look at to tell text from other files

bool LooksLikeText(const std::string& path) {
    const ReadOnlyFile file(path);
    std::string start(std::min(file.size_bytes(), kLookedAtBytes), ' ');
    file.Read(0, start.data(), start.size());
    return start.find('\0') == std::string::npos;
}

TextInput MakeInput(const std::string& path) {
    return {.path = path, .is_json_lines = path.ends_with(".jsonl"), .size_bytes = ReadOnlyFile(path).size_bytes()};
}

std::vector<std::string> FilesBelow(const std::string& folder, const std::vector<std::string>& extensions) {
    std::vector<std::string> paths;
    std::error_code error;
    // Links to folders are not followed: they could lead back up.
    fs::recursive_directory_iterator entry(folder, error);
    for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
        if (entry->path().filename().string().starts_with(".")) {
            entry.disable_recursion_pending();
            continue;
        }
        std::error_code none;
        if (!entry->is_regular_file(none)) {
            continue;
        }
        const std::string path = entry->path().string();
        const std::string extension = entry->path().extension().string();
        const bool is_wanted = extensions.empty()
                                   ? LooksLikeText(path)
                                   : std::find(extensions.begin(), extensions.end(),
                                               extension.empty() ? extension : extension.substr(1)) != extensions.end();
        if (is_wanted) {
            paths.push_back(path);
        }
    }
    if (error) {
        throw Error({.where = folder, .what = StrCat("cannot read this folder: ", error.message())});
    }
    if (paths.empty()) {
        throw Error({.where = folder,
                     .what = extensions.empty() ? "no text file in this folder"
                                                : "no file with one of the --extensions in this folder"});
    }
    std::sort(paths.begin(), paths.end());
    return paths;
}

}  // namespace

std::vector<TextInput> FindTextInputs(const std::vector<std::string>& paths,
                                      const std::vector<std::string>& extensions) {
    std::vector<TextInput> inputs;
    for (const std::string& path : paths) {
        std::error_code none;
        if (!fs::is_directory(path, none)) {
            inputs.push_back(MakeInput(path));
            continue;
        }
        for (const std::string& file : FilesBelow(path, extensions)) {
            inputs.push_back(MakeInput(file));
        }
    }
    return inputs;
}

}  // namespace infini_train
