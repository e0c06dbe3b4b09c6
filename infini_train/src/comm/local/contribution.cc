#include "infini_train/src/comm/local/contribution.h"

#include <cstddef>
#include <optional>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::comm {
namespace {

bool SameKind(const Tensor& a, const Tensor& b) {
    return a.shape() == b.shape() && a.dtype() == b.dtype();
}

std::string Kind(const Tensor& x) {
    return StrCat(infini_train::ToString(x.shape()), " ", Name(x.dtype()));
}

struct Difference {
    std::string a;
    std::string b;
};

/// The first thing in which two ranks disagree, as each has it.
std::optional<Difference> Compare(const Contribution& a, const Contribution& b) {
    if (a.operation != b.operation) {
        return Difference{.a = a.operation, .b = b.operation};
    }
    if (a.values != nullptr && !SameKind(*a.values, *b.values)) {
        return Difference{.a = StrCat(a.operation, " with ", Kind(*a.values)),
                          .b = StrCat(b.operation, " with ", Kind(*b.values))};
    }
    if (a.sums == nullptr) {
        return std::nullopt;
    }
    if (a.sums->size() != b.sums->size()) {
        return Difference{.a = StrCat(a.operation, " of a list of length ", a.sums->size()),
                          .b = StrCat(b.operation, " of a list of length ", b.sums->size())};
    }
    for (size_t i = 0; i < a.sums->size(); ++i) {
        const Tensor& x = *(*a.sums)[i];
        const Tensor& y = *(*b.sums)[i];
        if (!SameKind(x, y)) {
            const std::string entry = StrCat(a.operation, " with entry ", i, " of ", a.sums->size(), " ");
            return Difference{.a = entry + Kind(x), .b = entry + Kind(y)};
        }
    }
    return std::nullopt;
}

}  // namespace

void CheckAgreement(const Contributions& all, int rank, const std::vector<int>& world_ranks) {
    for (size_t i = 1; i < all.size(); ++i) {
        if (const std::optional<Difference> difference = Compare(*all[0], *all[i])) {
            throw Error({.where = StrCat("rank ", rank),
                         .what = StrCat(Ranks(world_ranks), " disagree: rank ", world_ranks[0], " came for ",
                                        difference->a, ", rank ", world_ranks[i], " for ", difference->b),
                         .kind = Error::Kind::kRuntime});
        }
    }
}

std::string Ranks(const std::vector<int>& ranks) {
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (size_t i = 0; i < ranks.size(); ++i) {
        text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    }
    return text;
}

}  // namespace infini_train::comm
