#include "example/common/text_file.h"

#include <fstream>

#include "infini_train/include/common/error.h"

namespace infini_train {

void WriteTextFile(const std::string& flag, const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::trunc);
    file << text;
    file.close();
    if (!file) {
        throw Error({.where = flag + " " + path, .what = "cannot be written"});
    }
}

}  // namespace infini_train
