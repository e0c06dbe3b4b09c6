#include "infini_train/src/kernels/cpu/gemm.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "infini_train/include/core/dtype.h"

namespace infini_train::kernels::cpu {
namespace {

/// One product with its operands; stored as bytes so that a case may be of any dtype.
struct Problem {
    GemmShape shape;
    GemmOptions options;
    std::vector<std::byte> a, b, bias, c;
};

std::vector<std::byte> RandomBytes(int64_t count, DataType dtype, std::mt19937& generator) {
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    std::vector<std::byte> bytes(static_cast<size_t>(count) * SizeOf(dtype));
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        const float value = uniform(generator);
        if (dtype == DataType::kFloat32) {
            std::memcpy(&bytes[i * sizeof(float)], &value, sizeof(float));
        } else {
            const BFloat16 narrow(value);
            std::memcpy(&bytes[i * sizeof(BFloat16)], &narrow, sizeof(BFloat16));
        }
    }
    return bytes;
}

double ValueAt(const std::vector<std::byte>& bytes, int64_t index, DataType dtype) {
    if (dtype == DataType::kFloat32) {
        float value;
        std::memcpy(&value, &bytes[static_cast<size_t>(index) * sizeof(value)], sizeof(value));
        return value;
    }
    BFloat16 value;
    std::memcpy(&value, &bytes[static_cast<size_t>(index) * sizeof(value)], sizeof(value));
    return static_cast<float>(value);
}

int64_t LeadingOf(int64_t given, int64_t width) {
    return given == 0 ? width : given;
}

Problem MakeProblem(const GemmShape& shape, const GemmOptions& options, bool has_bias) {
    std::mt19937 generator(static_cast<uint32_t>(shape.m * 7919 + shape.n * 104729 + shape.k));
    const auto [m, n, k] = shape;
    const int64_t rows_a = options.transpose_a ? k : m;
    const int64_t rows_b = options.transpose_b ? n : k;
    Problem problem{.shape = shape, .options = options, .a = {}, .b = {}, .bias = {}, .c = {}};
    problem.a =
        RandomBytes(rows_a * LeadingOf(options.leading_a, options.transpose_a ? m : k), options.input_dtype, generator);
    problem.b =
        RandomBytes(rows_b * LeadingOf(options.leading_b, options.transpose_b ? k : n), options.input_dtype, generator);
    problem.bias = RandomBytes(has_bias ? n : 0, options.input_dtype, generator);
    problem.c = RandomBytes(m * LeadingOf(options.leading_c, n), options.output_dtype, generator);
    return problem;
}

std::vector<std::byte> Multiply(const Problem& problem) {
    std::vector<std::byte> c = problem.c;
    Gemm(problem.shape, problem.options,
         {.a = problem.a.data(),
          .b = problem.b.data(),
          .bias = problem.bias.empty() ? nullptr : problem.bias.data(),
          .c = c.data()});
    return c;
}

std::vector<std::byte> MultiplyWithThreads(const Problem& problem, int num_threads) {
    const int before = omp_get_max_threads();
    omp_set_num_threads(num_threads);
    std::vector<std::byte> c = Multiply(problem);
    EXPECT_EQ(omp_get_max_threads(), num_threads) << "Gemm changed the caller's thread count";
    omp_set_num_threads(before);
    return c;
}

std::string Describe(const Problem& problem) {
    const auto& [shape, options, a, b, bias, c] = problem;
    return "m " + std::to_string(shape.m) + " n " + std::to_string(shape.n) + " k " + std::to_string(shape.k) +
           (options.transpose_a ? " A^T" : " A") + (options.transpose_b ? " B^T " : " B ") +
           std::string(Name(options.input_dtype)) + " -> " + std::string(Name(options.output_dtype)) +
           (options.accumulate ? " accumulate" : "") + (bias.empty() ? "" : " bias");
}

/// Compares Gemm with a loop in double. A float32 sum of K products, in any order, is off by at most
/// (K + 2) eps sum |a| |b|: one rounding for each product and addition, bias and C. bfloat16 products are exact in
/// float32; a bfloat16 result rounds once more, by 2^-8 of itself at most.
void ExpectMatchesLoop(const Problem& problem) {
    const auto& [shape, options, a, b, bias, c] = problem;
    const auto [m, n, k] = shape;
    const int64_t leading_a = LeadingOf(options.leading_a, options.transpose_a ? m : k);
    const int64_t leading_b = LeadingOf(options.leading_b, options.transpose_b ? k : n);
    const int64_t leading_c = LeadingOf(options.leading_c, n);
    const std::vector<std::byte> got = Multiply(problem);
    const double epsilon = std::numeric_limits<float>::epsilon();
    for (int64_t row = 0; row < m; ++row) {
        for (int64_t column = 0; column < leading_c; ++column) {
            const int64_t index = row * leading_c + column;
            if (column >= n) {
                ASSERT_EQ(ValueAt(got, index, options.output_dtype), ValueAt(c, index, options.output_dtype))
                    << Describe(problem) << ": wrote between the rows of C";
                continue;
            }
            double sum = 0.0;
            double magnitude = 0.0;
            const auto add = [&](double term) {
                sum += term;
                magnitude += std::abs(term);
            };
            for (int64_t i = 0; i < k; ++i) {
                add(ValueAt(a, options.transpose_a ? i * leading_a + row : row * leading_a + i, options.input_dtype) *
                    ValueAt(b, options.transpose_b ? column * leading_b + i : i * leading_b + column,
                            options.input_dtype));
            }
            if (!bias.empty()) {
                add(ValueAt(bias, column, options.input_dtype));
            }
            if (options.accumulate) {
                add(ValueAt(c, index, DataType::kFloat32));
            }
            double tolerance = static_cast<double>(k + 2) * epsilon * magnitude;
            if (options.output_dtype == DataType::kBFloat16) {
                tolerance += (std::abs(sum) + tolerance) / 256.0;
            }
            ASSERT_NEAR(ValueAt(got, index, options.output_dtype), sum, tolerance)
                << Describe(problem) << " at " << row << ", " << column;
        }
    }
}

/// Every combination of transposes, dtypes, accumulation and bias.
std::vector<GemmOptions> AllOptions() {
    std::vector<GemmOptions> all;
    for (const bool transpose_a : {false, true}) {
        for (const bool transpose_b : {false, true}) {
            for (const auto& [input, output] :
                 {std::pair{DataType::kFloat32, DataType::kFloat32}, std::pair{DataType::kBFloat16, DataType::kFloat32},
                  std::pair{DataType::kBFloat16, DataType::kBFloat16}}) {
                for (const bool accumulate : {false, true}) {
                    if (accumulate && output == DataType::kBFloat16) {
                        continue;
                    }
                    all.push_back({.transpose_a = transpose_a,
                                   .transpose_b = transpose_b,
                                   .accumulate = accumulate,
                                   .input_dtype = input,
                                   .output_dtype = output});
                }
            }
        }
    }
    return all;
}

TEST(Gemm, MatchesValuesByHand) {
    const std::vector<float> a{1, 2, 3, 4, 5, 6};   // [2, 3]
    const std::vector<float> b{1, 0, 2, -1, 1, 3};  // [2, 3], transposed
    const std::vector<float> bias{100, 200};
    std::vector<float> c{0.5f, 0.25f, 0, 0};
    Gemm({.m = 2, .n = 2, .k = 3}, {.transpose_b = true, .accumulate = true},
         {.a = a.data(), .b = b.data(), .bias = bias.data(), .c = c.data()});
    EXPECT_EQ(c, (std::vector<float>{107.5f, 210.25f, 116, 219}));
}

TEST(Gemm, MatchesALoopOnOddSizes) {
    for (const GemmOptions& options : AllOptions()) {
        for (const int64_t m : {0, 1, 7, 65}) {
            for (const int64_t n : {0, 1, 7, 65}) {
                for (const int64_t k : {0, 1, 7, 65}) {
                    for (const bool has_bias : {false, true}) {
                        ASSERT_NO_FATAL_FAILURE(
                            ExpectMatchesLoop(MakeProblem({.m = m, .n = n, .k = k}, options, has_bias)));
                    }
                }
            }
        }
    }
}

TEST(Gemm, MatchesALoopAcrossBlocks) {
    for (const GemmOptions& options : AllOptions()) {
        for (const GemmShape& shape : {GemmShape{.m = 257, .n = 193, .k = 40}, GemmShape{.m = 3, .n = 801, .k = 65},
                                       GemmShape{.m = 801, .n = 5, .k = 65}, GemmShape{.m = 64, .n = 64, .k = 1100}}) {
            for (const bool has_bias : {false, true}) {
                ASSERT_NO_FATAL_FAILURE(ExpectMatchesLoop(MakeProblem(shape, options, has_bias)));
            }
        }
    }
}

TEST(Gemm, LeavesTheGapsBetweenRowsAlone) {
    for (GemmOptions options : AllOptions()) {
        options.leading_a = 300;
        options.leading_b = 405;
        options.leading_c = 420;
        ASSERT_NO_FATAL_FAILURE(ExpectMatchesLoop(MakeProblem({.m = 270, .n = 400, .k = 33}, options, true)));
    }
}

TEST(Gemm, KeepsNansWithTheirRow) {
    std::vector<float> a(8 * 8, 1.0f);
    const std::vector<float> b(8 * 8, 1.0f);
    std::vector<float> c(8 * 8, std::numeric_limits<float>::quiet_NaN());  // not accumulated: what C held is gone
    a[3 * 8 + 2] = std::numeric_limits<float>::quiet_NaN();
    Gemm({.m = 8, .n = 8, .k = 8}, {}, {.a = a.data(), .b = b.data(), .c = c.data()});
    for (size_t i = 0; i < c.size(); ++i) {
        EXPECT_EQ(std::isnan(c[i]), i / 8 == 3) << i;
    }
}

std::vector<Problem> ProblemsOfManySizes() {
    std::vector<Problem> problems;
    for (const GemmOptions& options : AllOptions()) {
        for (const GemmShape& shape :
             {GemmShape{.m = 1, .n = 1, .k = 5000}, GemmShape{.m = 7, .n = 65, .k = 3000},
              GemmShape{.m = 65, .n = 7, .k = 384}, GemmShape{.m = 257, .n = 384, .k = 65},
              GemmShape{.m = 384, .n = 257, .k = 257}, GemmShape{.m = 256, .n = 768, .k = 768},
              GemmShape{.m = 1, .n = 2304, .k = 768}, GemmShape{.m = 65, .n = 64, .k = 4097},
              GemmShape{.m = 513, .n = 1000, .k = 384}, GemmShape{.m = 512, .n = 64, .k = 64}}) {
            problems.push_back(MakeProblem(shape, options, shape.m % 2 == 1));
        }
    }
    return problems;
}

TEST(Gemm, GivesTheSameBitsWithAnyNumberOfThreads) {
    for (const Problem& problem : ProblemsOfManySizes()) {
        const std::vector<std::byte> one = MultiplyWithThreads(problem, 1);
        for (const int num_threads : {2, 3, 4}) {
            ASSERT_EQ(MultiplyWithThreads(problem, num_threads), one)
                << Describe(problem) << " threads " << num_threads;
        }
    }
}

TEST(Gemm, GivesTheSameBitsToConcurrentCallers) {
    const std::vector<Problem> problems = ProblemsOfManySizes();
    std::vector<std::vector<std::byte>> want;
    for (const Problem& problem : problems) {
        want.push_back(Multiply(problem));
    }
    std::vector<std::string> failures(4);
    std::vector<std::thread> callers;
    for (size_t caller = 0; caller < failures.size(); ++caller) {
        callers.emplace_back([&, caller] {
            for (size_t i = 0; i < problems.size(); ++i) {
                const size_t index = (i + caller * 13) % problems.size();  // not in step with the others
                if (MultiplyWithThreads(problems[index], static_cast<int>(caller) + 1) != want[index]) {
                    failures[caller] = Describe(problems[index]);
                }
            }
        });
    }
    for (std::thread& caller : callers) {
        caller.join();
    }
    EXPECT_EQ(failures, std::vector<std::string>(failures.size()));
}

TEST(Gemm, SurvivesMoreShapesThanItRemembers) {
    for (int64_t m = 1; m <= 300; ++m) {
        ASSERT_NO_FATAL_FAILURE(ExpectMatchesLoop(MakeProblem({.m = m, .n = 3, .k = 2}, {}, false)));
    }
}

TEST(GemmDeathTest, RefusesToAccumulateIntoBFloat16) {
    const BFloat16 one(1.0f);
    BFloat16 c;
    EXPECT_DEATH(Gemm({.m = 1, .n = 1, .k = 1},
                      {.accumulate = true, .input_dtype = DataType::kBFloat16, .output_dtype = DataType::kBFloat16},
                      {.a = &one, .b = &one, .c = &c}),
                 "accumulates into float32");
}

TEST(GemmDeathTest, RefusesALeadingDimensionBelowTheWidth) {
    const std::vector<float> a(4);
    std::vector<float> c(4);
    EXPECT_DEATH(Gemm({.m = 2, .n = 2, .k = 2}, {.leading_a = 1}, {.a = a.data(), .b = a.data(), .c = c.data()}),
                 "leading dimension of A");
}

}  // namespace
}  // namespace infini_train::kernels::cpu
