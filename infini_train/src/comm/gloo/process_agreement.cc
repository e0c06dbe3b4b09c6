#include "infini_train/src/comm/gloo/process_agreement.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <sstream>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::comm {
namespace {

// After the operation: what the further lines are.
constexpr const char* kList = "list";
constexpr const char* kValues = "values";

std::string Kind(const Tensor& x) {
    return StrCat(infini_train::ToString(x.shape()), " ", Name(x.dtype()), "\n");
}

std::vector<std::string> Lines(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
        lines.push_back(line);
    }
    return lines;
}

/// What a description has other than another, in words: of the operation, or of its line at a place.
std::string InWords(const std::vector<std::string>& lines, size_t place, bool has_other_length) {
    const std::string& operation = lines[0];
    if (place < 2) {
        return operation;
    }
    const size_t length = lines.size() - 2;
    if (lines[1] == kValues) {
        return StrCat(operation, " with ", lines[place]);
    }
    return has_other_length ? StrCat(operation, " of a list of length ", length)
                            : StrCat(operation, " with entry ", place - 2, " of ", length, " ", lines[place]);
}

}  // namespace

std::string Describe(const Contribution& contribution) {
    std::string text = contribution.operation + "\n";
    if (contribution.values != nullptr) {
        text += StrCat(kValues, "\n", Kind(*contribution.values));
    }
    if (contribution.sums != nullptr) {
        text += StrCat(kList, "\n");
        for (const std::shared_ptr<Tensor>& tensor : *contribution.sums) {
            text += Kind(*tensor);
        }
    }
    return text;
}

bool ProcessesAgree(const std::vector<std::string>& descriptions) {
    return std::equal(descriptions.begin() + 1, descriptions.end(), descriptions.begin());
}

void ThrowDisagreement(const GroupProcesses& processes, const std::vector<std::string>& descriptions, int rank) {
    const auto other = std::find_if(descriptions.begin(), descriptions.end(),
                                    [&](const std::string& description) { return description != descriptions[0]; });
    const auto process = static_cast<size_t>(other - descriptions.begin());
    const std::vector<std::string> a = Lines(descriptions[0]);
    const std::vector<std::string> b = Lines(*other);
    const auto place = static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
    const bool has_other_length = a.size() != b.size();
    throw Error({.where = StrCat("rank ", rank),
                 .what = StrCat(Ranks(processes.world_ranks), " disagree: rank ", processes.world_ranks[0],
                                " came for ", InWords(a, place, has_other_length), ", rank ",
                                processes.all[process].ranks.front(), " for ", InWords(b, place, has_other_length)),
                 .kind = Error::Kind::kRuntime});
}

}  // namespace infini_train::comm
