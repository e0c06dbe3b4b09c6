#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "glog/logging.h"

#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/nn/parallel/pp/timeline.h"

namespace infini_train::nn::parallel {
namespace {

size_t Units(double time) {
    CHECK(time >= 0.0 && time == std::floor(time)) << "a timeline as text has whole units of time, not " << time;
    return static_cast<size_t>(time);
}

std::string Name(const Action& action, const PipelineShape& shape, int rank) {
    const char letter = ToString(action, shape, rank)[0];
    const auto lower = static_cast<char>(std::tolower(letter));
    if (shape.num_chunks > 2) {
        return StrCat(lower, action.chunk, ":", action.microbatch);
    }
    return StrCat(action.chunk == 0 ? lower : letter, action.microbatch);
}

/// One a unit of time, up to the rank's last.
std::vector<std::string> Cells(const PipelineShape& shape, int rank, const std::vector<SimulatedAction>& actions) {
    std::vector<std::string> cells;
    for (const SimulatedAction& each : actions) {
        const size_t start = Units(each.start);
        const size_t end = Units(each.end);
        CHECK_LE(cells.size(), start) << ToString(each.action, shape, rank)
                                      << " starts before the action before it ends";
        CHECK_LT(start, end) << ToString(each.action, shape, rank) << " takes no time";
        cells.resize(start, "..");
        cells.push_back(Name(each.action, shape, rank));
        cells.resize(end, "--");
    }
    return cells;
}

void Pad(size_t width, std::string* text) {
    text->resize(std::max(width, text->size()), ' ');
}

}  // namespace

std::string TimelineText(const PipelineShape& shape, const Simulation& simulation) {
    CHECK_EQ(simulation.ranks.size(), static_cast<size_t>(shape.num_ranks)) << "ranks of the simulation";
    std::vector<std::vector<std::string>> rows;
    size_t width = 2;  // of ".."
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        rows.push_back(Cells(shape, rank, simulation.ranks[static_cast<size_t>(rank)]));
        for (const std::string& cell : rows.back()) {
            width = std::max(width, cell.size());
        }
    }
    const size_t name_width = StrCat("r", shape.num_ranks - 1).size();
    std::string text;
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        std::string line = StrCat("r", rank);
        Pad(name_width, &line);
        line += '|';
        for (const std::string& cell : rows[static_cast<size_t>(rank)]) {
            line += ' ';
            const size_t end = line.size() + width;
            line += cell;
            Pad(end, &line);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + '\n';
    }
    return text;
}

}  // namespace infini_train::nn::parallel
