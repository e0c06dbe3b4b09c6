#include "infini_train/include/common/markup_escape.h"

namespace infini_train {

std::string MarkupEscape(std::string_view text) {
    std::string escaped;
    for (const char each : text) {
        switch (each) {
            case '&':
                escaped += "&amp;";
                break;
            case '<':
                escaped += "&lt;";
                break;
            case '>':
                escaped += "&gt;";
                break;
            case '"':
                escaped += "&quot;";
                break;
            case '\'':
                escaped += "&#39;";
                break;
            default:
                const bool is_control = static_cast<unsigned char>(each) < 0x20 && each != '\n' && each != '\t';
                escaped += is_control || each == 0x7f ? "\xef\xbf\xbd" : std::string(1, each);
        }
    }
    return escaped;
}

}  // namespace infini_train
