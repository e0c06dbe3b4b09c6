#include "infini_train/src/nn/parallel/pp/svg_writer.h"

#include <string>

#include "gtest/gtest.h"

namespace infini_train::nn::parallel::test {
namespace {

TEST(SvgWriter, WritesNumbersShortly) {
    EXPECT_EQ(SvgNumber(0.0), "0");
    EXPECT_EQ(SvgNumber(-0.001), "0");
    EXPECT_EQ(SvgNumber(100.0), "100");
    EXPECT_EQ(SvgNumber(-2.5), "-2.5");
    EXPECT_EQ(SvgNumber(1.0 / 3.0), "0.33");
}

TEST(SvgWriter, WritesElementsInTheirOrder) {
    SvgWriter svg(30.5, 20.0, "<pattern/>");
    svg.BeginTip("1 < 2");
    svg.Rect({.x = 1.0, .y = 2.0, .width = 3.25, .height = 4.0}, "#abcdef");
    svg.EndTip();
    svg.Line(0.0, 1.0, 2.0, 3.0, "#000000", "");
    svg.Line(0.0, 1.0, 2.0, 3.0, "#000000", "4 3");
    svg.Text(5.0, 6.0, "R&D", {.size = 9.5, .anchor = SvgWriter::Anchor::kEnd, .fill = "#111111", .bold = true});
    svg.Text(5.0, 6.0, "mid", {.anchor = SvgWriter::Anchor::kMiddle});
    EXPECT_EQ(svg.Finish(), R"(<svg xmlns="http://www.w3.org/2000/svg" width="30.5" height="20" viewBox="0 0 30.5 20" )"
                            R"(font-family="Helvetica, Arial, 'DejaVu Sans', sans-serif">
<defs><pattern/></defs>
<rect x="0" y="0" width="30.5" height="20" fill="#ffffff"/>
<g><title>1 &lt; 2</title>
<rect x="1" y="2" width="3.25" height="4" fill="#abcdef"/>
</g>
<line x1="0" y1="1" x2="2" y2="3" stroke="#000000"/>
<line x1="0" y1="1" x2="2" y2="3" stroke="#000000" stroke-dasharray="4 3"/>
<text x="5" y="6" font-size="9.5" text-anchor="end" fill="#111111" font-weight="bold">R&amp;D</text>
<text x="5" y="6" font-size="12" text-anchor="middle" fill="#222222">mid</text>
</svg>
)");
}

}  // namespace
}  // namespace infini_train::nn::parallel::test
