#include "infini_train/src/nn/parallel/pp/svg_writer.h"

#include <cstdio>

#include "infini_train/include/common/markup_escape.h"

namespace infini_train::nn::parallel {

std::string SvgNumber(double value) {
    char digits[32];
    const int length = std::snprintf(digits, sizeof(digits), "%.2f", value);
    std::string text(digits, static_cast<size_t>(length));
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') {
        text.pop_back();
    }
    return text == "-0" ? "0" : text;
}

SvgWriter::SvgWriter(double width, double height, std::string_view defs) {
    const std::string w = SvgNumber(width);
    const std::string h = SvgNumber(height);
    out_ << R"(<svg xmlns="http://www.w3.org/2000/svg" width=")" << w << R"(" height=")" << h << R"(" viewBox="0 0 )"
         << w << ' ' << h << R"(" font-family="Helvetica, Arial, 'DejaVu Sans', sans-serif">)"
         << "\n<defs>" << defs << "</defs>\n";
    Rect({.width = width, .height = height}, "#ffffff");
}

void SvgWriter::Rect(const Box& box, std::string_view fill) {
    out_ << R"(<rect x=")" << SvgNumber(box.x) << R"(" y=")" << SvgNumber(box.y) << R"(" width=")"
         << SvgNumber(box.width) << R"(" height=")" << SvgNumber(box.height) << R"(" fill=")" << MarkupEscape(fill)
         << "\"/>\n";
}

void SvgWriter::Line(double x1, double y1, double x2, double y2, std::string_view stroke, std::string_view dash) {
    out_ << R"(<line x1=")" << SvgNumber(x1) << R"(" y1=")" << SvgNumber(y1) << R"(" x2=")" << SvgNumber(x2)
         << R"(" y2=")" << SvgNumber(y2) << R"(" stroke=")" << MarkupEscape(stroke) << '"';
    if (!dash.empty()) {
        out_ << R"( stroke-dasharray=")" << MarkupEscape(dash) << '"';
    }
    out_ << "/>\n";
}

void SvgWriter::Text(double x, double y, std::string_view text, const TextStyle& style) {
    const std::string_view anchor = style.anchor == Anchor::kStart    ? "start"
                                    : style.anchor == Anchor::kMiddle ? "middle"
                                                                      : "end";
    out_ << R"(<text x=")" << SvgNumber(x) << R"(" y=")" << SvgNumber(y) << R"(" font-size=")" << SvgNumber(style.size)
         << R"(" text-anchor=")" << anchor << R"(" fill=")" << MarkupEscape(style.fill) << '"'
         << (style.bold ? R"( font-weight="bold")" : "") << '>' << MarkupEscape(text) << "</text>\n";
}

void SvgWriter::BeginTip(std::string_view text) {
    out_ << "<g><title>" << MarkupEscape(text) << "</title>\n";
}

void SvgWriter::EndTip() {
    out_ << "</g>\n";
}

std::string SvgWriter::Finish() {
    out_ << "</svg>\n";
    return out_.str();
}

}  // namespace infini_train::nn::parallel
