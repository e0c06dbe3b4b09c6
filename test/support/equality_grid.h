#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "test/support/pipeline_case.h"

namespace infini_train::test {

/// A run of the grid, and which value it has of each factor.
struct GridPoint {
    PipelineCase run = {};
    std::vector<int> values = {};  // P, M as a rule of P, schedule, V, L, model, dtype, evaluates, dropout, recompute
};

/// Every combination of P in {1, 2, 3, 4, 8}, M in {1, 2, 3, P - 1, P, P + 1, 2 P + 1}, all schedules, V in {1, 2, 3}
/// where there may be chunks, L in {7, 24}, the three models, both dtypes, with and without evaluation, and of kWhole
/// not, of kCovered also with and without dropout and recompute. Without those whose P V is more than L.
enum class GridExtent { kWhole, kCovered };
std::vector<GridPoint> EqualityGrid(GridExtent extent);

/// Indices of a few of the points that together have each pair of values of two factors that any point has, chosen
/// greedily; always the same.
std::vector<size_t> CoveringSubset(const std::vector<GridPoint>& points);

/// Runs cases and compares them with the reference, which runs once for all that learn the same.
class EqualityChecker {
 public:
    /// Empty when every bit is the same.
    std::string DifferenceOf(const PipelineCase& run);

 private:
    std::map<std::string, RunNumbers> references_;
};

}  // namespace infini_train::test
