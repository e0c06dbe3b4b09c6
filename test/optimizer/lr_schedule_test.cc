#include "infini_train/include/optimizer/lr_schedule.h"

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"

namespace infini_train::optimizers {
namespace {

LrScheduleOptions Options(LrScheduleKind kind) {
    return {.kind = kind, .peak_lr = 1.0, .warmup_steps = 4, .total_steps = 20, .final_fraction = 0.2};
}

const std::vector<LrScheduleKind> kKinds = {LrScheduleKind::kConstant, LrScheduleKind::kLinear, LrScheduleKind::kCosine,
                                            LrScheduleKind::kWsd};

TEST(LrSchedule, RisesToThePeakInTheLastWarmupStep) {
    for (const LrScheduleKind kind : kKinds) {
        for (int64_t step = 0; step < 4; ++step) {
            EXPECT_FLOAT_EQ(LearningRate(Options(kind), step), static_cast<float>(step + 1) / 4.0f);
        }
        EXPECT_FLOAT_EQ(LearningRate(Options(kind), 4), 1.0f);
    }
}

TEST(LrSchedule, EndsAtTheFinalFractionOneStepAfterTheLast) {
    for (const LrScheduleKind kind : {LrScheduleKind::kLinear, LrScheduleKind::kCosine, LrScheduleKind::kWsd}) {
        EXPECT_GT(LearningRate(Options(kind), 19), 0.2f);
        for (const int64_t step : {20, 21, 30, 1000}) {
            EXPECT_FLOAT_EQ(LearningRate(Options(kind), step), 0.2f) << step;
        }
    }
    EXPECT_FLOAT_EQ(LearningRate(Options(LrScheduleKind::kConstant), 1000), 1.0f);
}

TEST(LrSchedule, FollowsACosine) {
    const LrScheduleOptions options = Options(LrScheduleKind::kCosine);
    EXPECT_FLOAT_EQ(LearningRate(options, 12), 0.6f);
    for (int64_t step = 4; step < 20; ++step) {
        const double angle = std::numbers::pi * static_cast<double>(step - 4) / 16.0;
        EXPECT_FLOAT_EQ(LearningRate(options, step), static_cast<float>(0.2 + 0.8 * (1.0 + std::cos(angle)) / 2.0));
    }
}

TEST(LrSchedule, GivesTheReferenceValues) {
    // PyTorch run gpt2_tiny_adamw_clip_cosine.
    const LrScheduleOptions options = {
        .kind = LrScheduleKind::kCosine, .peak_lr = 6e-4, .warmup_steps = 5, .total_steps = 20, .final_fraction = 0.1};
    EXPECT_FLOAT_EQ(LearningRate(options, 0), 0.00012f);
    EXPECT_FLOAT_EQ(LearningRate(options, 4), 0.0006f);
    EXPECT_FLOAT_EQ(LearningRate(options, 6), 0.0005940998521981274f);
    EXPECT_FLOAT_EQ(LearningRate(options, 10), 0.000465f);
}

TEST(LrSchedule, FallsOnALine) {
    const LrScheduleOptions options = Options(LrScheduleKind::kLinear);
    EXPECT_FLOAT_EQ(LearningRate(options, 8), 0.8f);
    EXPECT_FLOAT_EQ(LearningRate(options, 12), 0.6f);
    EXPECT_FLOAT_EQ(LearningRate(options, 16), 0.4f);
}

TEST(LrSchedule, StaysStableUntilTheLastFifth) {
    const LrScheduleOptions options = Options(LrScheduleKind::kWsd);
    for (int64_t step = 4; step <= 16; ++step) {
        EXPECT_FLOAT_EQ(LearningRate(options, step), 1.0f) << step;
    }
    EXPECT_FLOAT_EQ(LearningRate(options, 17), 0.8f);
    EXPECT_FLOAT_EQ(LearningRate(options, 18), 0.6f);
    EXPECT_FLOAT_EQ(LearningRate(options, 19), 0.4f);
}

TEST(LrSchedule, WarmsUpForTheWholeRunIfAsked) {
    for (const LrScheduleKind kind : kKinds) {
        LrScheduleOptions options = Options(kind);
        options.warmup_steps = 40;
        EXPECT_FLOAT_EQ(LearningRate(options, 19), 0.5f);
        EXPECT_TRUE(std::isfinite(LearningRate(options, 40)));
        options.warmup_steps = 20;
        EXPECT_FLOAT_EQ(LearningRate(options, 19), 1.0f);
    }
}

TEST(LrSchedule, ParsesEveryName) {
    EXPECT_EQ(ParseLrScheduleKind("constant"), LrScheduleKind::kConstant);
    EXPECT_EQ(ParseLrScheduleKind("linear"), LrScheduleKind::kLinear);
    EXPECT_EQ(ParseLrScheduleKind("cosine"), LrScheduleKind::kCosine);
    EXPECT_EQ(ParseLrScheduleKind("wsd"), LrScheduleKind::kWsd);
}

TEST(LrSchedule, NamesTheChoicesForAnUnknownName) {
    try {
        ParseLrScheduleKind("Cosine");
        FAIL() << "no Error";
    } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()),
                  "--lr_schedule: unknown schedule (got 'Cosine', wanted constant, linear, cosine or wsd)");
    }
}

}  // namespace
}  // namespace infini_train::optimizers
