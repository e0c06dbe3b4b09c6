#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace infini_train {

struct TextInput {
    std::string path = {};
    bool is_json_lines = false;  // the name ends in ".jsonl": a document a line; else the file is a document
    uint64_t size_bytes = 0;
};

/// Each path is a file, or a folder with all files below it, sorted by the bytes of their paths: those with one of the
/// extensions ("txt"), or, when there are none, those whose first bytes look like text. Names that begin with a dot are
/// left out. Throws Error for a path that is neither, for a folder without a file to read, and when one cannot be read.
std::vector<TextInput> FindTextInputs(const std::vector<std::string>& paths,
                                      const std::vector<std::string>& extensions);

}  // namespace infini_train
