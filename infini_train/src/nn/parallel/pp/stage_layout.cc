#include "infini_train/include/nn/parallel/pp/stage_layout.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string_view>
#include <system_error>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::nn::parallel {
namespace {

void CheckEnoughLayers(int num_layers, int num_stages) {
    CHECK(num_layers >= 0 && num_stages > 0) << num_layers << " layers, " << num_stages << " stages";
    if (num_stages > num_layers) {
        throw Error({.where = "--pipeline_parallel",
                     .what = "more stages than layers",
                     .got = StrCat("P x V = ", num_stages, " stages for ", num_layers, " layers"),
                     .wanted = StrCat("at most ", num_layers)});
    }
}

StageLayout LayoutOfSizes(const std::vector<int>& sizes) {
    const int num_layers = std::accumulate(sizes.begin(), sizes.end(), 0);
    StageLayout layout;
    int begin = 0;
    for (const int size : sizes) {
        layout.push_back({.begin = begin, .end = begin + size, .num_layers = num_layers});
        begin += size;
    }
    return layout;
}

/// The positive numbers of "3,3,2"; nothing when the text is anything else. No blanks, no signs.
std::optional<std::vector<int>> ParseSizes(std::string_view text) {
    std::vector<int> sizes;
    while (true) {
        int size = 0;
        const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), size);
        if (error != std::errc() || size <= 0) {
            return std::nullopt;
        }
        sizes.push_back(size);
        text.remove_prefix(static_cast<size_t>(rest - text.data()));
        if (text.empty()) {
            return sizes;
        }
        if (text.front() != ',') {
            return std::nullopt;
        }
        text.remove_prefix(1);
    }
}

}  // namespace

StageLayout EvenLayout(int num_layers, int num_stages) {
    CheckEnoughLayers(num_layers, num_stages);
    std::vector<int> sizes;
    for (int stage = 0; stage < num_stages; ++stage) {
        sizes.push_back(num_layers / num_stages + (stage < num_layers % num_stages ? 1 : 0));
    }
    return LayoutOfSizes(sizes);
}

StageLayout ParseLayout(const std::string& text, int num_layers, int num_stages) {
    std::string got = StrCat("'", text, "'");
    if (const std::optional<std::vector<int>> sizes = ParseSizes(text)) {
        const int64_t sum = std::accumulate(sizes->begin(), sizes->end(), int64_t{0});
        if (static_cast<int64_t>(sizes->size()) == num_stages && sum == num_layers) {
            return LayoutOfSizes(*sizes);
        }
        got += StrCat(": ", sizes->size(), " with the sum ", sum);
    }
    throw Error({.where = "--pipeline_layout",
                 .what = "not the number of layers of each stage",
                 .got = got,
                 .wanted = StrCat(num_stages, " positive numbers with commas between them and the sum ", num_layers)});
}

// Each further layer goes to the stage that is the fastest with it. Why nothing is better: in any other layout some
// stage s has more layers than here and some stage t fewer. When t got its last layer here, s with one more was no
// faster, so there s is no faster than t is here. Move a layer from s to t: the slower of the two is then no slower,
// and if it is as slow, so is the other. Repeat until the layouts are the same. This needs only that a stage is no
// faster with more layers, which holds for rounded times too.
StageLayout BalancedLayout(int num_layers, int num_stages, const LayerCosts& costs) {
    CheckEnoughLayers(num_layers, num_stages);
    for (const double cost : {costs.embedding, costs.layer, costs.head}) {
        CHECK(std::isfinite(cost) && cost >= 0.0) << "cost of a part of a model: " << cost;
    }
    CHECK_GT(costs.layer, 0.0) << "cost of a layer";
    std::vector<int> sizes(static_cast<size_t>(num_stages), 1);
    const auto time_with_one_more = [&](size_t stage) {
        return (sizes[stage] + 1) * costs.layer + (stage == 0 ? costs.embedding : 0.0) +
               (stage + 1 == sizes.size() ? costs.head : 0.0);
    };
    for (int layer = num_stages; layer < num_layers; ++layer) {
        size_t fastest = 0;
        for (size_t stage = 1; stage < sizes.size(); ++stage) {
            if (time_with_one_more(stage) < time_with_one_more(fastest)) {
                fastest = stage;
            }
        }
        ++sizes[fastest];
    }
    return LayoutOfSizes(sizes);
}

std::string ToString(const StageLayout& layout) {
    std::string text;
    for (const LayerRange& stage : layout) {
        text += (text.empty() ? "" : ",") + std::to_string(stage.size());
    }
    return text;
}

}  // namespace infini_train::nn::parallel
