#include "example/common/report.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "example/common/report_chart.h"
#include "infini_train/include/common/error.h"
#include "test/support/run_program.h"

namespace infini_train {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

size_t Count(const std::string& text, const std::string& part) {
    size_t count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
        ++count;
    }
    return count;
}

bool Has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

StepMetrics MetricsOf(int64_t step) {
    return {.step = step,
            .loss = 2.0f + 1.0f / static_cast<float>(step),
            .grad_norm = 1.0f,
            .lr = 1e-3f,
            .ms = 500.0,
            .tokens_per_s = 2000.0,
            .peak_bytes = 64 << 20};
}

TEST(Curve, KeepsEachOfFewValues) {
    Curve curve;
    for (int64_t step = 1; step <= 1000; ++step) {
        curve.Add(step, static_cast<double>(step));
    }
    ASSERT_EQ(curve.buckets().size(), 1000u);
    EXPECT_EQ(curve.buckets()[6].first_step, 7);
    EXPECT_EQ(curve.buckets()[6].last_step, 7);
    EXPECT_EQ(curve.buckets()[6].Mean(), 7.0);
}

TEST(Curve, KeepsTheLeastTheLargestAndTheMeanOfMany) {
    Curve curve;
    constexpr int64_t kSteps = 100'003;
    for (int64_t step = 1; step <= kSteps; ++step) {
        curve.Add(step, step == 54'321 ? -1e6 : static_cast<double>(step));
    }
    EXPECT_LE(curve.buckets().size(), 1000u);
    EXPECT_GT(curve.buckets().size(), 500u);
    int64_t next_step = 1;
    int64_t num_values = 0;
    double least = 0.0;
    double sum = 0.0;
    for (const Curve::Bucket& bucket : curve.buckets()) {
        EXPECT_EQ(bucket.first_step, next_step);
        EXPECT_EQ(bucket.num_values, bucket.last_step - bucket.first_step + 1);
        EXPECT_EQ(bucket.max, static_cast<double>(bucket.last_step));
        next_step = bucket.last_step + 1;
        num_values += bucket.num_values;
        least = std::min(least, bucket.min);
        sum += bucket.sum;
    }
    EXPECT_EQ(num_values, kSteps);
    EXPECT_EQ(least, -1e6);
    EXPECT_DOUBLE_EQ(sum, 0.5 * kSteps * (kSteps + 1) - 54'321.0 - 1e6);
    EXPECT_EQ(curve.last(), static_cast<double>(kSteps));
}

TEST(Curve, HasGapsWhereNothingIsFinite) {
    Curve curve;
    for (int64_t step = 1; step <= 5000; ++step) {
        curve.Add(step, step > 2000 && step <= 3000 ? std::nan("") : 1.0);
    }
    EXPECT_EQ(curve.num_not_finite(), 1000);
    EXPECT_EQ(curve.last(), 1.0);
    const auto num_gaps = std::count_if(curve.buckets().begin(), curve.buckets().end(),
                                        [](const Curve::Bucket& bucket) { return bucket.num_values == 0; });
    EXPECT_NEAR(static_cast<double>(num_gaps), 125.0, 1.0) << "of 8 steps each";
}

TEST(Curve, TakesFarApartStepsAndLeavesOutThoseThatGoBack) {
    Curve curve;
    curve.Add(-1, 1.0);
    for (const int64_t step : {int64_t{1}, int64_t{1}, int64_t{5}, int64_t{3}, INT64_MAX, int64_t{7}}) {
        curve.Add(step, 1.0);
    }
    ASSERT_EQ(curve.buckets().size(), 3u);
    EXPECT_EQ(curve.buckets()[2].first_step, INT64_MAX);
}

TEST(RunHistory, AddsUpTimeTokensAndMemory) {
    RunHistory history;
    history.AddStep(MetricsOf(1));
    history.AddStep({.step = 2, .loss = kNan, .ms = std::nan(""), .tokens_per_s = std::nan(""), .peak_bytes = 7});
    history.AddStep(MetricsOf(3));
    history.AddValidation(1, 3.0f);
    history.AddValidation(2, 2.5f);
    history.AddValidation(3, kNan);
    EXPECT_EQ(history.num_steps(), 3);
    EXPECT_EQ(history.seconds(), 1.0);
    EXPECT_EQ(history.num_tokens(), 2000.0);
    EXPECT_EQ(history.peak_bytes(), 64 << 20);
    ASSERT_TRUE(history.best());
    EXPECT_EQ(history.best()->step, 2);
}

TEST(ChartHtml, HasTicksThatAreShort) {
    Curve curve;
    for (int64_t step = 1; step <= 100; ++step) {
        curve.Add(1000 * step, 0.0003 * static_cast<double>(step) / 100.0);
    }
    const std::string html =
        ChartHtml({.title = "rate", .series = {{.name = "lr", .curve = &curve}}, .from_zero = true});
    for (const char* tick : {">0</i>", ">1e-4</i>", ">2e-4</i>", ">3e-4</i>", ">20k</i>", ">100k</i>"}) {
        EXPECT_TRUE(Has(html, tick)) << tick << " is not in " << html;
    }
    EXPECT_FALSE(Has(html, "log scale"));
}

TEST(ChartHtml, TakesALogScaleForValuesFarApart) {
    Curve curve;
    curve.Add(1, 1.0);
    curve.Add(2, 100.0);
    Chart chart = {.title = "norm", .series = {{.name = "norm", .curve = &curve}}, .may_be_log = true};
    const std::string html = ChartHtml(chart);
    EXPECT_TRUE(Has(html, "log scale"));
    EXPECT_TRUE(Has(html, "style=\"top:50.00%\">10</i>")) << html;
    curve.Add(3, 0.0);
    EXPECT_FALSE(Has(ChartHtml(chart), "log scale")) << "0 has no logarithm";
}

TEST(ChartHtml, BreaksTheLineAtAGap) {
    Curve curve;
    for (int64_t step = 1; step <= 5; ++step) {
        curve.Add(step, step == 3 ? std::nan("") : 1.0);
    }
    const std::string html = ChartHtml({.title = "loss", .series = {{.name = "loss", .curve = &curve}}});
    EXPECT_TRUE(Has(html, "class=\"line s0\" d=\"M0.0 500.0h0L250.0 500.0M750.0 500.0h0L1000.0 500.0\"")) << html;
    EXPECT_TRUE(Has(html, "1 not finite"));
    EXPECT_TRUE(Has(html, "[3,3]")) << "no values under the pointer";
}

TEST(ChartHtml, DrawsWhateverValuesThereAre) {
    for (const std::vector<double>& values : std::vector<std::vector<double>>{
             {0.0}, {7.0}, {-3.0, -3.0}, {1e-300, 1e300}, {1e300, -1e300}, {1e-320, 2e-320}, {1.0, 1.0 + 1e-15}}) {
        for (const bool may_be_log : {false, true}) {
            Curve curve;
            for (size_t i = 0; i < values.size(); ++i) {
                curve.Add(static_cast<int64_t>(i), values[i]);
            }
            const std::string html = ChartHtml({.title = "any",
                                                .series = {{.name = "any", .curve = &curve}},
                                                .from_zero = true,
                                                .may_be_log = may_be_log});
            EXPECT_FALSE(Has(html, "nan") || Has(html, "inf")) << html;
            EXPECT_LT(html.size(), 8000u);
        }
    }
    const Curve none;
    EXPECT_EQ(ChartHtml({.series = {{.curve = &none}}}), "");
}

ReportData HostileData() {
    const std::string attack = "</pre></td><script>alert('\"&')</script>\x01";
    ReportData data = {
        .title = attack,
        .configuration = {{.title = attack, .rows = {{attack, attack}}}, {.title = attack, .is_folded = true}},
        .notes = {attack},
        .timeline_svg = "<svg></svg>",
        .memory = {{.predicted_bytes = 1 << 20, .measured_bytes = 2 << 20}, {}},
        .samples = {{.step = 1, .text = attack}}};
    data.history.AddStep(MetricsOf(1));
    return data;
}

TEST(Report, EscapesAllTexts) {
    const std::string html = ReportHtml(HostileData());
    EXPECT_EQ(Count(html, "<script>"), 1u) << "its own";
    EXPECT_EQ(Count(html, "&lt;script&gt;alert(&#39;&quot;&amp;&#39;)&lt;/script&gt;\xef\xbf\xbd"), 8u);
    EXPECT_EQ(Count(html, "</pre>"), 1u);
}

TEST(Report, FetchesNothing) {
    const std::string html = ReportHtml(HostileData());
    for (const char* part : {"http:", "https:", "src=", "href=", "@import", "url("}) {
        EXPECT_FALSE(Has(html, part)) << part;
    }
    EXPECT_TRUE(Has(html, "default-src 'none'"));
}

TEST(Report, HasAPlaceForAllThatItIsGiven) {
    ReportData data = HostileData();
    data.history.AddValidation(1, 2.5f);
    const std::string html = ReportHtml(data);
    for (const char* part :
         {"Curves", ">Loss<", "validation", ">Gradient norm<", ">Learning rate<", ">Speed<", "<svg></svg>", "rank 0",
          "2.0 MiB, predicted 1.0 MiB (-50.0 %)", "rank 1", "0.0 MiB, predicted 0.0 MiB (+0.0 %)", "Texts of the model",
          "Configuration", "<details>", "64.0 MiB"}) {
        EXPECT_TRUE(Has(html, part)) << part;
    }
    const std::string empty = ReportHtml({.title = "nothing"});
    for (const char* part : {"Curves", "Timeline", "rank", "Texts", "Configuration", "class=\"notes\""}) {
        EXPECT_FALSE(Has(empty.substr(empty.find("<body>")), part + std::string("<")) && Has(empty, "<h2>")) << part;
    }
}

TEST(Report, OfAHundredThousandStepsIsBelowAMegabyte) {
    ReportData data = {.title = "long"};
    for (int64_t step = 1; step <= 100'000; ++step) {
        StepMetrics metrics = MetricsOf(step);
        metrics.loss += std::sin(static_cast<float>(step));
        metrics.grad_norm += std::cos(static_cast<float>(step));
        metrics.tokens_per_s += static_cast<double>(step % 977);
        data.history.AddStep(metrics);
        data.history.AddValidation(step, metrics.loss);
        data.samples.push_back({.step = step, .text = std::string(20'000, '&')});
        data.notes.push_back(std::string(100, 'n'));
    }
    for (int rank = 0; rank < 1024; ++rank) {
        data.memory.push_back({.predicted_bytes = rank, .measured_bytes = rank});
    }
    const std::string html = ReportHtml(data);
    EXPECT_LT(html.size(), size_t{1'000'000} + 12 * 10'000 * 4) << "curves and, escaped, a dozen texts";
    EXPECT_TRUE(Has(html, "99988 more are left out"));
    EXPECT_TRUE(Has(html, "960 more are left out"));
    EXPECT_TRUE(Has(html, ">step 100000<"));
}

TEST(Report, LeavesOutATimelineThatNoBrowserWouldLike) {
    ReportData data = {.title = "long", .timeline_svg = "<svg>" + std::string(5 << 20, ' ') + "</svg>"};
    const std::string html = ReportHtml(data);
    EXPECT_LT(html.size(), 20'000u);
    EXPECT_TRUE(Has(html, "5.0 MiB are too large for this page"));
}

TEST(Report, TakesLinesForRows) {
    const ReportSection section = SectionOfLines("flags", "a=1\nb=\nc=x=y\nalone\n", true);
    const std::vector<std::pair<std::string, std::string>> rows = {{"a", "1"}, {"b", ""}, {"c", "x=y"}, {"alone", ""}};
    EXPECT_EQ(section.rows, rows);
    EXPECT_TRUE(section.is_folded);
}

TEST(Report, SaysWhatCannotBeWritten) {
    const test::TemporaryFolder folder;
    WriteReport(folder.File("a.html"), {.title = "a title"});
    EXPECT_EQ(test::ReadTextFile(folder.File("a.html")), ReportHtml({.title = "a title"}));
    EXPECT_THROW(WriteReport(folder.File("no/folder.html"), {.title = "a title"}), Error);
}

}  // namespace
}  // namespace infini_train
