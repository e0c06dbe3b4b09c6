#pragma once

#include <string>

#include "infini_train/include/common/error.h"

namespace infini_train::comm {

/// The Error of a rank that waited for others: they did not come within the time-out, or the run failed meanwhile.
/// "rank 1: waited 60 s for backward of micro-batch 3 for stage 1 [4, 64] float32 from rank 2, at line 7 of its plan"
/// "rank 1: rank 2 failed while this one waited for ..."
class WaitError : public Error {
 public:
    struct Wait {
        int rank = 0;                 // of the world: who waited
        std::string waited_for = {};  // what, from whom, and where in its own work the rank was
        std::string failure = {};     // of the run; empty: the time-out
        double timeout_s = 0.0;
    };

    explicit WaitError(const Wait& wait);

    const Wait& wait() const { return wait_; }
    /// This error with more of where the rank was: "at line 7 of its plan", "in the sum of the gradients".
    WaitError At(const std::string& place) const;

 private:
    Wait wait_;
};

/// Runs work; a WaitError out of it says in which part of the rank's work that was.
template <typename Work>
decltype(auto) WaitingAt(const std::string& place, const Work& work) {
    try {
        return work();
    } catch (const WaitError& error) {
        throw error.At(place);
    }
}

}  // namespace infini_train::comm
