#include "infini_train/include/checkpoint/hf_family.h"

#include <filesystem>
#include <system_error>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/file.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/checkpoint/hf_config.h"
#include "infini_train/src/checkpoint/llmc_header.h"

namespace infini_train::checkpoint {

ModelFamily FamilyOf(const std::string& path) {
    std::error_code none;
    if (std::filesystem::is_directory(path, none)) {
        const HfConfig json(path);
        json.CheckOneOf("model_type", {"gpt2", "llama"});
        return json.String("model_type") == "gpt2" ? ModelFamily::kGpt2 : ModelFamily::kLlama3;
    }
    const LlmcHeader words{ReadOnlyFile(path)};
    if (words.word(0) != kGpt2Magic && words.word(0) != kLlama3Magic) {
        throw Error({.where = path,
                     .what = "header word 0, magic, is that of no weights",
                     .got = StrCat(words.word(0)),
                     .wanted = StrCat(kGpt2Magic, " (GPT-2) or ", kLlama3Magic, " (LLaMA-3)")});
    }
    return words.word(0) == kGpt2Magic ? ModelFamily::kGpt2 : ModelFamily::kLlama3;
}

}  // namespace infini_train::checkpoint
