#include "infini_train/include/optimizer/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"

namespace infini_train::optimizers {
namespace {

/// How much of the decay from `begin` to `end` is done, 0 to 1.
double Progress(int64_t step, int64_t begin, int64_t end) {
    if (step >= end) {
        return 1.0;
    }
    return std::max(0.0, static_cast<double>(step - begin) / static_cast<double>(end - begin));
}

/// The share of the way from the peak down to the final value that is still to go.
double Remaining(const LrScheduleOptions& options, int64_t step) {
    const int64_t warmup = options.warmup_steps;
    const int64_t total = options.total_steps;
    switch (options.kind) {
        case LrScheduleKind::kConstant:
            return 1.0;
        case LrScheduleKind::kLinear:
            return 1.0 - Progress(step, warmup, total);
        case LrScheduleKind::kCosine:
            return (1.0 + std::cos(std::numbers::pi * Progress(step, warmup, total))) / 2.0;
        case LrScheduleKind::kWsd:
            return 1.0 - Progress(step, std::max(warmup, total - total / 5), total);
    }
    LOG(FATAL) << "unknown schedule " << static_cast<int>(options.kind);
    return 0.0;
}

}  // namespace

float LearningRate(const LrScheduleOptions& options, int64_t step) {
    CHECK_GE(step, 0) << "learning rate of a step";
    if (step < options.warmup_steps) {
        return static_cast<float>(options.peak_lr * static_cast<double>(step + 1) /
                                  static_cast<double>(options.warmup_steps));
    }
    const double final_lr = options.final_fraction * options.peak_lr;
    return static_cast<float>(final_lr + (options.peak_lr - final_lr) * Remaining(options, step));
}

LrScheduleKind ParseLrScheduleKind(std::string_view name) {
    if (name == "constant") {
        return LrScheduleKind::kConstant;
    }
    if (name == "linear") {
        return LrScheduleKind::kLinear;
    }
    if (name == "cosine") {
        return LrScheduleKind::kCosine;
    }
    if (name == "wsd") {
        return LrScheduleKind::kWsd;
    }
    throw Error({.where = "--lr_schedule",
                 .what = "unknown schedule",
                 .got = "'" + std::string(name) + "'",
                 .wanted = "constant, linear, cosine or wsd"});
}

}  // namespace infini_train::optimizers
