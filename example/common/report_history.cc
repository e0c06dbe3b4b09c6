#include "example/common/report_history.h"

#include <algorithm>
#include <cmath>

namespace infini_train {
namespace {

constexpr size_t kMaxBuckets = 1000;  // about the pixels of a drawing that is as wide as a page

void Merge(const Curve::Bucket& later, Curve::Bucket* bucket) {
    if (bucket->num_values == 0 || later.num_values == 0) {
        const int64_t first_step = bucket->first_step;
        *bucket = bucket->num_values == 0 ? later : *bucket;
        bucket->first_step = first_step;
    } else {
        bucket->min = std::min(bucket->min, later.min);
        bucket->max = std::max(bucket->max, later.max);
        bucket->sum += later.sum;
        bucket->num_values += later.num_values;
    }
    bucket->last_step = later.last_step;
}

}  // namespace

void Curve::Add(int64_t step, double value) {
    if (step < 0 || (!buckets_.empty() && step <= buckets_.back().last_step)) {
        return;
    }
    Bucket bucket = {.first_step = step, .last_step = step};
    if (std::isfinite(value)) {
        bucket = {.first_step = step, .last_step = step, .num_values = 1, .min = value, .max = value, .sum = value};
        last_ = value;
    } else {
        ++num_not_finite_;
    }
    if (!buckets_.empty() && buckets_.back().first_step / steps_per_bucket_ == step / steps_per_bucket_) {
        Merge(bucket, &buckets_.back());
        return;
    }
    buckets_.push_back(bucket);
    while (buckets_.size() > kMaxBuckets) {
        MergePairs();
    }
}

void Curve::MergePairs() {
    steps_per_bucket_ *= 2;
    std::vector<Bucket> merged;
    for (const Bucket& bucket : buckets_) {
        if (!merged.empty() && merged.back().first_step / steps_per_bucket_ == bucket.first_step / steps_per_bucket_) {
            Merge(bucket, &merged.back());
        } else {
            merged.push_back(bucket);
        }
    }
    buckets_ = std::move(merged);
}

void RunHistory::AddStep(const StepMetrics& metrics) {
    loss_.Add(metrics.step, static_cast<double>(metrics.loss));
    grad_norm_.Add(metrics.step, static_cast<double>(metrics.grad_norm));
    lr_.Add(metrics.step, static_cast<double>(metrics.lr));
    tokens_per_s_.Add(metrics.step, metrics.tokens_per_s);
    ++num_steps_;
    const double seconds = metrics.ms / 1e3;
    if (std::isfinite(seconds * metrics.tokens_per_s)) {
        seconds_ += seconds;
        num_tokens_ += seconds * metrics.tokens_per_s;
    }
    peak_bytes_ = std::max(peak_bytes_, metrics.peak_bytes);
    mfu_ = metrics.mfu;
}

void RunHistory::AddValidation(int64_t step, float val_loss) {
    val_loss_.Add(step, static_cast<double>(val_loss));
    if (std::isfinite(val_loss) && (!best_ || val_loss < best_->val_loss)) {
        best_ = Best{.step = step, .val_loss = val_loss};
    }
}

}  // namespace infini_train
