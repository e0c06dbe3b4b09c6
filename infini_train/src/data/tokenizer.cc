#include "infini_train/include/data/tokenizer.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/data/byte_tokenizer.h"

namespace infini_train::data {

std::unique_ptr<Tokenizer> MakeTokenizer(const std::string& name) {
    if (name == "byte") {
        return std::make_unique<ByteTokenizer>();
    }
    throw Error({.where = "--tokenizer", .what = "unknown tokenizer", .got = "'" + name + "'", .wanted = "byte"});
}

}  // namespace infini_train::data
