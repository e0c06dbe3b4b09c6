#pragma once

#include <sstream>
#include <string>
#include <string_view>

namespace infini_train::nn::parallel {

/// A number in a drawing: two decimals, without zeros at the end.
std::string SvgNumber(double value);

/// Writes the elements of a drawing, pixels from its upper left corner.
class SvgWriter {
 public:
    struct Box {
        double x = 0.0;
        double y = 0.0;
        double width = 0.0;
        double height = 0.0;
    };
    enum class Anchor { kStart, kMiddle, kEnd };
    struct TextStyle {
        double size = 12.0;
        Anchor anchor = Anchor::kStart;
        std::string_view fill = "#222222";
        bool bold = false;
    };

    /// A drawing on white paper, so that it reads on a dark page too. defs: what `fill` may refer to, SVG itself.
    SvgWriter(double width, double height, std::string_view defs);

    void Rect(const Box& box, std::string_view fill);
    /// A line down or across; dash: "" or lengths, "4 3".
    void Line(double x1, double y1, double x2, double y2, std::string_view stroke, std::string_view dash);
    /// y is the base line.
    void Text(double x, double y, std::string_view text, const TextStyle& style);
    /// What is drawn between shows the text under the pointer.
    void BeginTip(std::string_view text);
    void EndTip();

    /// The file. Nothing is drawn after it.
    std::string Finish();

 private:
    std::ostringstream out_;
};

}  // namespace infini_train::nn::parallel
