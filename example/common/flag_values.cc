#include "example/common/flag_values.h"

#include "infini_train/include/common/error.h"

namespace infini_train {

void RefuseFlag(const char* flag, const std::string& what, const std::string& got, const std::string& wanted) {
    throw Error({.where = std::string("--") + flag, .what = what, .got = got, .wanted = wanted});
}

int AtMost(const char* flag, int value, int most) {
    if (value > most) {
        RefuseFlag(flag, "out of range", StrCat(value), StrCat("at most ", most));
    }
    return value;
}

float FloatAtLeast(const char* flag, double value, float least) {
    const auto narrow = static_cast<float>(value);
    if (!(narrow >= least) || !std::isfinite(narrow)) {
        RefuseFlag(flag, "out of range for a float32", StrCat(value), StrCat("at least ", least));
    }
    return narrow;
}

float Fraction(const char* flag, double value, bool may_be_one) {
    const auto narrow = static_cast<float>(value);
    if (!(narrow >= 0.0f && (narrow < 1.0f || (may_be_one && narrow == 1.0f)))) {
        RefuseFlag(flag, "out of range for a float32", StrCat(value), may_be_one ? "0 to 1" : "0 to less than 1");
    }
    return narrow;
}

bool Choice(const char* flag, const std::string& value, const char* first, const char* second) {
    if (value != first && value != second) {
        RefuseFlag(flag, "unknown value", value, StrCat(first, " or ", second));
    }
    return value == first;
}

}  // namespace infini_train
