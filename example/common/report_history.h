#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "example/common/metrics.h"

namespace infini_train {

/// A quantity over the steps of a run, however many there are, in bounded memory: neighbouring steps share a bucket as
/// soon as there are more of them than a drawing has pixels for.
class Curve {
 public:
    struct Bucket {
        int64_t first_step = 0;
        int64_t last_step = 0;
        int64_t num_values = 0;  // finite ones; min, max and sum are of these
        double min = 0.0;
        double max = 0.0;
        double sum = 0.0;

        double Mean() const { return sum / static_cast<double>(num_values); }
    };

    /// Steps come in rising order; one that does not is left out. A value that is not finite leaves a gap.
    void Add(int64_t step, double value);

    /// At most a thousand, by step.
    const std::vector<Bucket>& buckets() const { return buckets_; }
    int64_t num_not_finite() const { return num_not_finite_; }
    /// The last finite value.
    std::optional<double> last() const { return last_; }

 private:
    void MergePairs();

    std::vector<Bucket> buckets_;
    int64_t steps_per_bucket_ = 1;
    int64_t num_not_finite_ = 0;
    std::optional<double> last_;
};

/// What a report shows of the steps of a run.
class RunHistory {
 public:
    struct Best {
        int64_t step = 0;
        float val_loss = 0.0f;
    };

    void AddStep(const StepMetrics& metrics);
    void AddValidation(int64_t step, float val_loss);

    const Curve& loss() const { return loss_; }
    const Curve& val_loss() const { return val_loss_; }
    const Curve& grad_norm() const { return grad_norm_; }
    const Curve& lr() const { return lr_; }
    const Curve& tokens_per_s() const { return tokens_per_s_; }

    int64_t num_steps() const { return num_steps_; }
    double seconds() const { return seconds_; }  // of the steps alone
    double num_tokens() const { return num_tokens_; }
    int64_t peak_bytes() const { return peak_bytes_; }
    double mfu() const { return mfu_; }  // of the last step; 0 where it is not known
    const std::optional<Best>& best() const { return best_; }

 private:
    Curve loss_;
    Curve val_loss_;
    Curve grad_norm_;
    Curve lr_;
    Curve tokens_per_s_;
    int64_t num_steps_ = 0;
    double seconds_ = 0.0;
    double num_tokens_ = 0.0;
    int64_t peak_bytes_ = 0;
    double mfu_ = 0.0;
    std::optional<Best> best_;
};

}  // namespace infini_train
