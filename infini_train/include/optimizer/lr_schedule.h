#pragma once

#include <cstdint>
#include <string_view>

namespace infini_train::optimizers {

enum class LrScheduleKind { kConstant, kLinear, kCosine, kWsd };

struct LrScheduleOptions {
    LrScheduleKind kind = LrScheduleKind::kCosine;
    double peak_lr = 0.0;
    int64_t warmup_steps = 0;
    int64_t total_steps = 0;      // warm-up included
    double final_fraction = 1.0;  // of the peak; ignored by kConstant
};

/// Learning rate of a step, counted from 0: a function of the step alone, so that a resumed run goes on as it would
/// have. With w warm-up steps of S, f = final_fraction, all in double:
///   s < w:     peak (s + 1) / w
///   constant:  peak
///   linear:    peak (1 - (1 - f) p),                    p = (s - w) / (S - w)
///   cosine:    peak (f + (1 - f) (1 + cos(pi p)) / 2),  p = (s - w) / (S - w)
///   wsd:       peak until d = max(w, S - S / 5), then peak (1 - (1 - f) p), p = (s - d) / (S - d)
/// The final value is reached at s = S, one step after the last, and stays.
float LearningRate(const LrScheduleOptions& options, int64_t step);

/// The value of --lr_schedule. Throws Error for an unknown one.
LrScheduleKind ParseLrScheduleKind(std::string_view name);

}  // namespace infini_train::optimizers
