#include "example/common/metrics.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <system_error>

#include "glog/logging.h"
#include "nlohmann/json.hpp"

#include "infini_train/include/common/atomic_file.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train {
namespace {

using nlohmann::json;

/// Null, absent or too large for a float32: NaN.
double Number(const json& line, const char* name) {
    const auto field = line.find(name);
    const bool is_number = field != line.end() && field->is_number();
    const double value = is_number ? field->get<double>() : std::numeric_limits<double>::quiet_NaN();
    return std::abs(value) <= FLT_MAX ? value : std::numeric_limits<double>::quiet_NaN();
}

float Float(const json& line, const char* name) {
    return static_cast<float>(Number(line, name));
}

int64_t Integer(const json& line, const char* name) {
    const auto field = line.find(name);
    const bool fits = field != line.end() && field->is_number_unsigned() && field->get<uint64_t>() <= INT64_MAX;
    return fits ? field->get<int64_t>() : -1;
}

/// The step of a line of ours, whose visitor is told when that is no later than last_step.
std::optional<int64_t> VisitLine(const std::string& text, int64_t last_step, const MetricsVisitor& visitor) {
    const json line = json::parse(text, nullptr, false);
    if (!line.is_object() || Integer(line, "step") < 0 || line.contains("loss") == line.contains("val_loss")) {
        return std::nullopt;
    }
    const int64_t step = Integer(line, "step");
    if (step <= last_step && line.contains("val_loss") && visitor.on_validation) {
        visitor.on_validation(step, Float(line, "val_loss"));
    } else if (step <= last_step && line.contains("loss") && visitor.on_step) {
        visitor.on_step({.step = step,
                         .loss = Float(line, "loss"),
                         .grad_norm = Float(line, "grad_norm"),
                         .lr = Float(line, "lr"),
                         .ms = Number(line, "ms"),
                         .tokens_per_s = Number(line, "tokens_per_s"),
                         .peak_bytes = std::max<int64_t>(0, Integer(line, "peak_bytes"))});
    }
    return step;
}

/// Takes away the lines behind last_step, and a last one that the end of the earlier run cut off.
void KeepUpTo(int64_t last_step, const std::string& path, const MetricsVisitor& visitor) {
    std::ifstream old(path, std::ios::binary);
    if (!old) {
        throw Error({.where = "--metrics_file " + path, .what = "cannot be read, to go on with it"});
    }
    AtomicFile kept(path);
    bool drops_any = false;
    std::string line;
    for (int64_t number = 1; std::getline(old, line); ++number) {
        if (old.eof()) {  // it has no end
            drops_any = true;
            break;
        }
        const std::optional<int64_t> step = VisitLine(line, last_step, visitor);
        if (!step) {
            throw Error({.where = StrCat("--metrics_file ", path, " line ", number),
                         .what = "is not of a metrics file, so the run cannot go on with it; pass another file",
                         .got = line.substr(0, 40)});
        }
        if (*step > last_step) {
            drops_any = true;
            continue;
        }
        line += '\n';
        kept.Append(line.data(), line.size());
    }
    if (drops_any) {
        kept.Commit();
    }
}

/// The number of the standard stream that a path names (/dev/stdout, also where that leads to a file).
std::optional<int> StandardStream(const std::string& path) {
    struct stat named = {};
    if (stat(path.c_str(), &named) != 0) {
        return std::nullopt;
    }
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
        struct stat status = {};
        if (fstat(stream, &status) == 0 && status.st_dev == named.st_dev && status.st_ino == named.st_ino) {
            return stream;
        }
    }
    return std::nullopt;
}

std::FILE* Open(const std::string& path, int64_t resume_step, const MetricsVisitor& earlier) {
    std::error_code none;
    if (std::filesystem::is_fifo(path, none)) {
        throw Error({.where = "--metrics_file " + path, .what = "is a pipe, which waits for a reader; pass a file"});
    }
    // Opened by its name again it would have a position of its own, and each would write over the other's lines.
    if (const std::optional<int> stream = StandardStream(path)) {
        return fdopen(dup(*stream), "w");
    }
    if (resume_step > 0 && std::filesystem::is_regular_file(path, none)) {
        // A link stays: the file behind it is the one that is replaced.
        KeepUpTo(resume_step, std::filesystem::canonical(path).string(), earlier);
        return std::fopen(path.c_str(), "a");
    }
    return std::fopen(path.c_str(), "w");
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, int64_t resume_step, const MetricsVisitor& earlier) : path_(path) {
    if (path_.empty()) {
        return;
    }
    file_ = Open(path_, resume_step, earlier);
    if (file_ == nullptr) {
        throw Error({.where = "--metrics_file " + path_, .what = "cannot be written"});
    }
}

MetricsFile::~MetricsFile() {
    if (file_ != nullptr) {
        std::fclose(file_);  // each line was flushed
    }
}

void MetricsFile::WriteLine(const std::string& line) {
    if (file_ == nullptr) {
        return;
    }
    // Flushed: others read it while we train.
    if (std::fputs((line + '\n').c_str(), file_) < 0 || std::fflush(file_) != 0) {
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

std::string StepLine(const StepMetrics& metrics, const comm::MeshShape& mesh, int64_t num_steps) {
    char line[256];
    const int length = std::snprintf(
        line, sizeof(line),
        "step %4lld/%lld | loss %.6f | lr %.2e | norm %.4f | %.1f ms | %.0f tok/s | peak %.1f MiB | "
        "DP=%d, TP=%d, PP=%d",
        static_cast<long long>(metrics.step), static_cast<long long>(num_steps), static_cast<double>(metrics.loss),
        static_cast<double>(metrics.lr), static_cast<double>(metrics.grad_norm), metrics.ms, metrics.tokens_per_s,
        static_cast<double>(metrics.peak_bytes) / (1024.0 * 1024.0), mesh.data, mesh.tensor, mesh.pipeline);
    if (metrics.mfu > 0.0) {
        std::snprintf(line + length, sizeof(line) - static_cast<size_t>(length), " | MFU %.1f %%", 100.0 * metrics.mfu);
    }
    return line;
}

SpikeDetector::SpikeDetector(const Options& options) : options_(options) {
    CHECK(2 <= options_.min_steps && options_.min_steps <= options_.window) << "steps of a spike detector";
}

std::string SpikeDetector::Add(int64_t step, float loss) {
    if (!std::isfinite(loss)) {
        return "";
    }
    const auto value = static_cast<double>(loss);
    const auto count = static_cast<double>(losses_.size());
    double mean = 0.0;
    for (const double each : losses_) {
        mean += each / count;
    }
    double variance = 0.0;
    for (const double each : losses_) {
        variance += (each - mean) * (each - mean) / count;
    }
    const double deviation = std::max(std::sqrt(variance), options_.min_relative_deviation * std::abs(mean));
    const bool knows = losses_.size() >= options_.min_steps;
    const double limit = knows ? mean + options_.num_deviations * deviation : std::numeric_limits<double>::infinity();
    const bool is_above = value > limit;
    const bool is_new = is_above && !is_in_spike_;
    is_in_spike_ = is_above;
    // A spike counts no more than the limit, so that the next one is still seen.
    const double counted = std::min(value, limit);
    if (losses_.size() < options_.window) {
        losses_.push_back(counted);
    } else {
        losses_[num_seen_ % options_.window] = counted;
    }
    ++num_seen_;
    if (!is_new) {
        return "";
    }
    char note[160];
    std::snprintf(note, sizeof(note), "step %lld: the loss %.4f is far above the %.4f +- %.4f of the steps before",
                  static_cast<long long>(step), value, mean, deviation);
    return note;
}

}  // namespace infini_train
