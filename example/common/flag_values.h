#pragma once

#include <cmath>
#include <string>

#include "infini_train/include/common/str_cat.h"

// Checks of the values of flags. All throw Error that names the flag, the value and what is wanted.

namespace infini_train {

[[noreturn]] void RefuseFlag(const char* flag, const std::string& what, const std::string& got,
                             const std::string& wanted);

template <typename T>
T AtLeast(const char* flag, T value, T least) {
    // Also refuses NaN.
    if (!(value >= least) || !std::isfinite(static_cast<double>(value))) {
        RefuseFlag(flag, "out of range", StrCat(value), StrCat("at least ", least));
    }
    return value;
}
int AtMost(const char* flag, int value, int most);
/// As float32, in which the run computes: 1e300 is infinite there, and 1 - 1e-12 is 1.
float FloatAtLeast(const char* flag, double value, float least);
/// From 0 to 1, as float32.
float Fraction(const char* flag, double value, bool may_be_one);
/// Whether it is the first of two values.
bool Choice(const char* flag, const std::string& value, const char* first, const char* second);

}  // namespace infini_train
