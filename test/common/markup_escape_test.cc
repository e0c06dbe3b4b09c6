#include "infini_train/include/common/markup_escape.h"

#include <string>

#include "gtest/gtest.h"

namespace infini_train {
namespace {

TEST(MarkupEscape, TakesTheirMeaningFromCharacters) {
    EXPECT_EQ(MarkupEscape(R"(a<b>&"c"')"), "a&lt;b&gt;&amp;&quot;c&quot;&#39;");
}

TEST(MarkupEscape, KeepsBlanksAndUtf8AndReplacesWhatNoTextHas) {
    EXPECT_EQ(MarkupEscape("\t\n\xc3\xa4"), "\t\n\xc3\xa4");
    EXPECT_EQ(MarkupEscape(std::string("\0", 1) + "\x1b\x7f"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

}  // namespace
}  // namespace infini_train
