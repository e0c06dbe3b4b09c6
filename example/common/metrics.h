#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "infini_train/include/comm/mesh.h"

namespace infini_train {

struct StepMetrics {
    int64_t step = 0;  // from 1
    float loss = 0.0f;
    float grad_norm = 0.0f;
    float lr = 0.0f;
    double ms = 0.0;
    double tokens_per_s = 0.0;
    int64_t peak_bytes = 0;  // of the rank that has most
    double mfu = 0.0;        // of the peak of all ranks' hardware; 0 where that is not known
};

/// Who is told each line of a metrics file; what is null there is NaN here.
struct MetricsVisitor {
    std::function<void(const StepMetrics&)> on_step = {};
    std::function<void(int64_t step, float val_loss)> on_validation = {};
};

/// One JSON object a line. Floats are printed so that they read back to the same bits; what is not finite is null.
class MetricsFile {
 public:
    /// Step 0 starts the file anew. A run that goes on from a later one keeps what an existing file has up to that
    /// step, in whole lines, and drops the rest, so that no step is there twice; earlier is told what was kept. An
    /// empty path writes nothing; a path that names stdout or stderr (/dev/stdout) writes to it as it is. Throws Error
    /// when the file cannot be written, and when one to be continued has a line that is none of metrics: it then stays
    /// as it is.
    explicit MetricsFile(const std::string& path, int64_t resume_step = 0, const MetricsVisitor& earlier = {});
    MetricsFile(const MetricsFile&) = delete;
    MetricsFile& operator=(const MetricsFile&) = delete;
    ~MetricsFile();

    void WriteStep(const StepMetrics& metrics);
    void WriteValidation(int64_t step, float val_loss);

 private:
    void WriteLine(const std::string& line);

    std::string path_;
    std::FILE* file_ = nullptr;
};

/// The line of a step on stdout.
std::string StepLine(const StepMetrics& metrics, const comm::MeshShape& mesh, int64_t num_steps);

/// Notices a loss far above those of the steps before it.
class SpikeDetector {
 public:
    struct Options {
        size_t window = 100;                   // steps that the mean and the deviation are of
        size_t min_steps = 20;                 // fewer say nothing yet
        double num_deviations = 6.0;           // above the mean
        double min_relative_deviation = 0.01;  // of the mean: a loss that hardly moves has no spikes of 1e-6
    };

    explicit SpikeDetector(const Options& options);

    /// "step 7: the loss 9.1 is far above ..."; empty where there is nothing to note. A loss that stays high is noted
    /// once. One that is not finite is left out.
    std::string Add(int64_t step, float loss);

 private:
    Options options_;
    std::vector<double> losses_;  // the last ones, a ring
    size_t num_seen_ = 0;
    bool is_in_spike_ = false;
};

}  // namespace infini_train
