#include "example/common/metrics.h"

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "nlohmann/json.hpp"

#include "infini_train/include/common/error.h"

namespace infini_train {

MetricsFile::MetricsFile(const std::string& path) : path_(path) {
    if (path_.empty()) {
        return;
    }
    std::error_code none;
    if (std::filesystem::is_fifo(path_, none)) {
        throw Error({.where = "--metrics_file " + path_, .what = "is a pipe, which waits for a reader; pass a file"});
    }
    file_.open(path_, std::ios::trunc);
    if (!file_) {
        throw Error({.where = "--metrics_file " + path_, .what = "cannot be written"});
    }
}

void MetricsFile::WriteLine(const std::string& line) {
    if (path_.empty()) {
        return;
    }
    file_ << line << std::endl;  // flushed: others read it while we train
    if (!file_) {
        throw Error({.where = "--metrics_file " + path_, .what = "cannot be written", .kind = Error::Kind::kRuntime});
    }
}

void MetricsFile::WriteStep(const StepMetrics& metrics) {
    const nlohmann::ordered_json line = {{"step", metrics.step},
                                         {"loss", metrics.loss},
                                         {"grad_norm", metrics.grad_norm},
                                         {"lr", metrics.lr},
                                         {"ms", metrics.ms},
                                         {"tokens_per_s", metrics.tokens_per_s},
                                         {"peak_bytes", metrics.peak_bytes}};
    WriteLine(line.dump());
}

void MetricsFile::WriteValidation(int64_t step, float val_loss) {
    WriteLine(nlohmann::ordered_json({{"step", step}, {"val_loss", val_loss}}).dump());
}

std::string StepLine(const StepMetrics& metrics, const comm::MeshShape& mesh, int64_t num_steps, bool with_time_left) {
    char line[256];
    int length = std::snprintf(
        line, sizeof(line),
        "step %4lld/%lld | loss %.6f | lr %.2e | norm %.4f | %.1f ms | %.0f tok/s | peak %.1f MiB | "
        "DP=%d, TP=%d, PP=%d",
        static_cast<long long>(metrics.step), static_cast<long long>(num_steps), static_cast<double>(metrics.loss),
        static_cast<double>(metrics.lr), static_cast<double>(metrics.grad_norm), metrics.ms, metrics.tokens_per_s,
        static_cast<double>(metrics.peak_bytes) / (1024.0 * 1024.0), mesh.data, mesh.tensor, mesh.pipeline);
    const auto append = [&](const char* format, double value) {
        length += std::snprintf(line + length, sizeof(line) - static_cast<size_t>(length), format, value);
    };
    if (metrics.mfu > 0.0) {
        append(" | MFU %.1f %%", 100.0 * metrics.mfu);
    }
    if (with_time_left) {
        append(" | %.0f s left", static_cast<double>(num_steps - metrics.step) * metrics.ms / 1e3);
    }
    return line;
}

}  // namespace infini_train
