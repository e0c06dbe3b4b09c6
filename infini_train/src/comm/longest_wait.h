#pragma once

namespace infini_train::comm {

/// A time-out that is longer counts as this: three years. A clock in nanoseconds overflows at 292.
inline constexpr double kLongestWaitS = 1e8;

}  // namespace infini_train::comm
