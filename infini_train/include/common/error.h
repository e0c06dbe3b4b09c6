#pragma once

#include <stdexcept>
#include <string>

namespace infini_train {

/// What a user, a file or another host can cause: one line that names the place, what was found and what was wanted.
/// Bugs of ours are glog CHECKs instead. `main` prints what() and returns exit_code().
class Error : public std::runtime_error {
 public:
    enum class Kind { kBadInput, kRuntime };

    struct Parts {
        std::string where = {};   // the file, flag or rank
        std::string what = {};    // the rule that does not hold
        std::string got = {};     // may be empty
        std::string wanted = {};  // may be empty
        Kind kind = Kind::kBadInput;
    };

    /// "where: what (got G, wanted W)"
    explicit Error(const Parts& parts);

    /// 2 for bad input, 1 for what went wrong while running.
    int exit_code() const { return kind_ == Kind::kBadInput ? 2 : 1; }

 private:
    Kind kind_;
};

}  // namespace infini_train
