#pragma once

#include <cstdint>
#include <fstream>
#include <string>

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

/// One JSON object a line. Floats are printed so that they read back to the same bits; what is not finite is null.
class MetricsFile {
 public:
    /// Starts the file anew. An empty path writes nothing. Throws Error when it cannot be written.
    explicit MetricsFile(const std::string& path);

    void WriteStep(const StepMetrics& metrics);
    void WriteValidation(int64_t step, float val_loss);

 private:
    void WriteLine(const std::string& line);

    std::string path_;
    std::ofstream file_;
};

/// The line of a step on stdout, and the time left when the total is known and somebody watches.
std::string StepLine(const StepMetrics& metrics, const comm::MeshShape& mesh, int64_t num_steps, bool with_time_left);

}  // namespace infini_train
