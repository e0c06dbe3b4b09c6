#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/data/byte_level_vocabulary.h"
#include "infini_train/src/data/byte_pair_files.h"
#include "infini_train/src/data/pretokenizer.h"

namespace infini_train::data {
namespace {

void ReadMerges(const std::string& path, ByteLevelVocabulary* vocabulary) {
    const std::string bytes = ReadTokenizerFile(path);
    std::string_view rest = bytes;
    for (int64_t number = 1; !rest.empty(); ++number) {
        std::string_view line = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(line.size() + 1, rest.size()));
        if (line.ends_with('\r')) {
            line.remove_suffix(1);
        }
        const bool is_comment = number == 1 && line.starts_with("#version");
        if (is_comment || (line.empty() && rest.empty())) {
            continue;
        }
        const size_t space = line.find(' ');
        if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
            throw Error({.where = path,
                         .what = StrCat("line ", number, " is no merge"),
                         .wanted = "two tokens with a blank between them"});
        }
        vocabulary->AddMerge(line.substr(0, space), line.substr(space + 1), StrCat("merges.txt, line ", number));
    }
}

}  // namespace

BytePairVocabulary ReadGpt2Folder(const std::string& folder) {
    const std::filesystem::path path(folder);
    const std::string vocab_path = path / "vocab.json";
    ByteLevelVocabulary vocabulary(vocab_path,
                                   ByteLevelVocabulary::ParseJson(vocab_path, ReadTokenizerFile(vocab_path)), {});
    ReadMerges(path / "merges.txt", &vocabulary);
    vocabulary.MarkUnmergedSpecial();
    BytePairVocabulary result = vocabulary.Finish();
    result.file = folder;
    result.pattern = kGpt2Pattern;
    return result;
}

}  // namespace infini_train::data
