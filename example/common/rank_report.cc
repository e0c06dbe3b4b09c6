#include "example/common/rank_report.h"

#include <algorithm>

#include "infini_train/include/comm/wait_error.h"

namespace infini_train {

std::vector<RankReport> GatherReports(const RankReport& own, const comm::Mesh& mesh) {
    constexpr int64_t kFields = 3;
    const auto fields = Tensor::FromVector(std::vector<int64_t>{own.peak_bytes, own.save_state, own.stop_signal},
                                           {kFields}, mesh.device);
    const auto all = Tensor::Empty({mesh.world->size(), kFields}, DataType::kInt64, mesh.device);
    comm::WaitingAt("for the reports of the ranks", [&] { mesh.world->AllGather(*fields, *all); });
    const std::vector<int64_t> values = all->ToVector<int64_t>();
    std::vector<RankReport> reports;
    for (size_t i = 0; i < values.size(); i += kFields) {
        reports.push_back({.peak_bytes = values[i], .save_state = values[i + 1], .stop_signal = values[i + 2]});
    }
    return reports;
}

int64_t LargestPeak(const std::vector<RankReport>& reports) {
    int64_t largest = 0;
    for (const RankReport& report : reports) {
        largest = std::max(largest, report.peak_bytes);
    }
    return largest;
}

int StopSignalOf(const std::vector<RankReport>& reports) {
    for (const RankReport& report : reports) {
        if (report.stop_signal != 0) {
            return static_cast<int>(report.stop_signal);
        }
    }
    return 0;
}

}  // namespace infini_train
