#include "test/support/equality_grid.h"

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::test {
namespace {

constexpr std::array<int, 5> kRanks = {1, 2, 3, 4, 8};
constexpr std::array<const char*, 5> kSchedules = {"gpipe", "1f1b", "1f1b_eager", "interleaved", "looped_bfs"};
constexpr size_t kFirstWithChunks = 3;
constexpr std::array<int, 2> kLayers = {7, 24};
constexpr std::array<TinyModelKind, 3> kModels = {TinyModelKind::kGpt2, TinyModelKind::kTiedLlama,
                                                  TinyModelKind::kUntiedLlama};
constexpr size_t kStride = 7919;  // a prime, so that no factor of the grid divides it
constexpr std::array<DataType, 2> kDataTypes = {DataType::kFloat32, DataType::kBFloat16};

/// M of each rule; one that gives 0 is left out, and one that gives what another gave too where that is asked for.
std::vector<std::pair<int, int>> Microbatches(int num_ranks, bool each_once) {
    const std::array<int, 7> all = {1, 2, 3, num_ranks - 1, num_ranks, num_ranks + 1, 2 * num_ranks + 1};
    std::vector<std::pair<int, int>> result;
    for (size_t rule = 0; rule < all.size(); ++rule) {
        const bool is_double =
            std::any_of(result.begin(), result.end(), [&](const auto& other) { return other.second == all[rule]; });
        if (all[rule] > 0 && !(each_once && is_double)) {
            result.emplace_back(static_cast<int>(rule), all[rule]);
        }
    }
    return result;
}

/// The points of one P, M, schedule and V.
void AddPoints(const PipelineCase& layout, const std::vector<int>& layout_values, GridExtent extent,
               std::vector<GridPoint>* points) {
    const int num_switches = extent == GridExtent::kWhole ? 2 : 8;  // evaluates, dropout, recompute
    for (size_t layers = 0; layers < kLayers.size(); ++layers) {
        if (layout.num_ranks * layout.num_chunks > kLayers[layers]) {
            continue;
        }
        for (size_t model = 0; model < kModels.size(); ++model) {
            for (size_t dtype = 0; dtype < kDataTypes.size(); ++dtype) {
                for (int switches = 0; switches < num_switches; ++switches) {
                    GridPoint point = {.run = layout, .values = layout_values};
                    point.run.model = {.kind = kModels[model],
                                       .num_layers = kLayers[layers],
                                       .dropout = (switches & 2) != 0 ? 0.25f : 0.0f,
                                       .recompute = (switches & 4) != 0};
                    point.run.dtype = kDataTypes[dtype];
                    point.run.evaluates = (switches & 1) != 0;
                    for (const int value : {static_cast<int>(layers), static_cast<int>(model), static_cast<int>(dtype),
                                            switches & 1, switches & 2, switches & 4}) {
                        point.values.push_back(value);
                    }
                    points->push_back(point);
                }
            }
        }
    }
}

/// Factor, value, other factor, value.
using Pair = std::tuple<size_t, int, size_t, int>;

std::vector<Pair> PairsOf(const GridPoint& point) {
    std::vector<Pair> pairs;
    for (size_t a = 0; a < point.values.size(); ++a) {
        for (size_t b = a + 1; b < point.values.size(); ++b) {
            pairs.emplace_back(a, point.values[a], b, point.values[b]);
        }
    }
    return pairs;
}

}  // namespace

std::vector<GridPoint> EqualityGrid(GridExtent extent) {
    std::vector<GridPoint> points;
    for (const int num_ranks : kRanks) {
        for (const auto& [rule, num_microbatches] : Microbatches(num_ranks, extent == GridExtent::kWhole)) {
            for (size_t schedule = 0; schedule < kSchedules.size(); ++schedule) {
                for (int num_chunks = 1; num_chunks <= (schedule < kFirstWithChunks ? 1 : 3); ++num_chunks) {
                    AddPoints({.num_microbatches = num_microbatches,
                               .num_ranks = num_ranks,
                               .num_chunks = num_chunks,
                               .schedule = kSchedules[schedule]},
                              {num_ranks, rule, static_cast<int>(schedule), num_chunks}, extent, &points);
                }
            }
        }
    }
    return points;
}

std::vector<size_t> CoveringSubset(const std::vector<GridPoint>& points) {
    std::vector<std::vector<Pair>> pairs;
    std::set<Pair> missing;
    for (const GridPoint& point : points) {
        pairs.push_back(PairsOf(point));
        missing.insert(pairs.back().begin(), pairs.back().end());
    }
    std::vector<size_t> chosen;
    while (!missing.empty()) {
        size_t best = 0;
        size_t most = 0;
        // Of points that add as much, another one each time: so the values that need no point of their own vary too.
        const size_t begin = chosen.size() * kStride;
        for (size_t step = 0; step < pairs.size(); ++step) {
            const size_t i = (begin + step) % pairs.size();
            // What is covered stays so: a point is never worth more later.
            std::erase_if(pairs[i], [&](const Pair& pair) { return !missing.contains(pair); });
            if (pairs[i].size() > most) {
                most = pairs[i].size();
                best = i;
            }
        }
        for (const Pair& pair : pairs[best]) {
            missing.erase(pair);
        }
        chosen.push_back(best);
    }
    return chosen;
}

std::string EqualityChecker::DifferenceOf(const PipelineCase& run) {
    PipelineCase learned = run;
    learned.num_ranks = 1;
    learned.num_chunks = 1;
    learned.schedule = "one rank";
    const auto [reference, is_new] = references_.try_emplace(ToString(learned));
    if (is_new) {
        reference->second = RunReference(run);
    }
    try {
        return Difference(run, reference->second, RunPipeline(run));
    } catch (const Error& error) {
        return StrCat("does not run: ", error.what());
    }
}

}  // namespace infini_train::test
