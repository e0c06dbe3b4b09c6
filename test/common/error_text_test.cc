#include "infini_train/include/common/error_text.h"

#include <new>
#include <stdexcept>
#include <system_error>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"

namespace infini_train {
namespace {

TEST(ErrorText, NamesWhatIsMissing) {
    EXPECT_EQ(ErrorText(std::bad_alloc()), "there is no more memory (std::bad_alloc)");
    const std::system_error no_thread(std::make_error_code(std::errc::resource_unavailable_try_again));
    EXPECT_EQ(ErrorText(no_thread), "the system starts no more threads (see ulimit -u, and -v for their stacks)");
}

TEST(ErrorText, IsWhatAnyOtherExceptionSays) {
    EXPECT_EQ(ErrorText(Error({.where = "--flag", .what = "unknown"})), "--flag: unknown");
    EXPECT_EQ(ErrorText(std::runtime_error("what")), "what");
    const std::system_error denied(std::make_error_code(std::errc::permission_denied), "file");
    EXPECT_EQ(ErrorText(denied), denied.what());
}

}  // namespace
}  // namespace infini_train
