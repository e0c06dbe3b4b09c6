#include <algorithm>
#include <cstddef>
#include <regex>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/nn/parallel/pp/timeline.h"

namespace infini_train::nn::parallel::test {
namespace {

constexpr ActionKind kF = ActionKind::kForward;
constexpr ActionKind kD = ActionKind::kBackward;
constexpr ActionKind kB = ActionKind::kBackwardInput;
constexpr ActionKind kW = ActionKind::kBackwardWeight;

/// Two stages on two ranks, one micro-batch: a makespan of 10 ms. So short that the plot is 640 pixels wide, 64 a ms.
Timeline Measured() {
    return {{{{.kind = kF}, 0.0, 0.0, 2.0}, {{.kind = kD}, 2.5, 7.0, 10.0}},
            {{{.kind = kF}, 0.0, 2.25, 4.0}, {{.kind = kD}, 4.0, 4.0, 6.5}}};
}

Simulation Simulated() {
    Simulation simulation;
    simulation.ranks = {
        {{.action = {.kind = kF}, .start = 0.0, .end = 2.0}, {.action = {.kind = kD}, .start = 5.0, .end = 8.0}},
        {{.action = {.kind = kF}, .start = 2.0, .end = 3.0}, {.action = {.kind = kD}, .start = 3.0, .end = 5.0}}};
    return simulation;
}

const PipelineShape kTwoRanks = {.num_ranks = 2};

/// What a group of an expression matches, each time.
std::vector<std::string> Matches(const std::string& svg, const std::string& expression, size_t group = 1) {
    const std::regex regex(expression);
    std::vector<std::string> found;
    for (auto match = std::sregex_iterator(svg.begin(), svg.end(), regex); match != std::sregex_iterator(); ++match) {
        found.push_back((*match)[group]);
    }
    return found;
}

std::vector<std::string> Texts(const std::string& svg) {
    return Matches(svg, "<text[^>]*>([^<]*)</text>");
}

std::vector<std::string> Tips(const std::string& svg) {
    return Matches(svg, "<title>([^<]*)</title>");
}

bool Contains(const std::vector<std::string>& texts, const std::string& text) {
    return std::find(texts.begin(), texts.end(), text) != texts.end();
}

/// The tag of the box under the tip.
std::string BoxOf(const std::string& svg, const std::string& tip) {
    const size_t at = svg.find("<title>" + tip);
    const size_t begin = svg.find("<rect", at);
    return at == std::string::npos ? "" : svg.substr(begin, svg.find("/>", begin) - begin);
}

double Attribute(const std::string& tag, const std::string& name) {
    const std::vector<std::string> found = Matches(tag, " " + name + "=\"([^\"]*)\"");
    return found.size() == 1 ? std::stod(found[0]) : -1.0;
}

std::string FillOf(const std::string& svg, const std::string& tip) {
    return Matches(BoxOf(svg, tip), "fill=\"([^\"]*)\"").at(0);
}

/// One rank runs these one after the other for a ms each.
Timeline OneAfterTheOther(const ActionList& actions) {
    Timeline timeline(1);
    for (const Action& action : actions) {
        const double ms = static_cast<double>(timeline[0].size());
        timeline[0].push_back({action, ms, ms, ms + 1.0});
    }
    return timeline;
}

std::string SvgOf(const PipelineShape& shape, const Timeline& timeline) {
    Simulation simulation;
    simulation.ranks.resize(timeline.size());
    return TimelineSvg(shape, timeline, simulation);
}

TEST(TimelineSvg, PrintsTheFiguresOfEachRank) {
    const std::vector<std::string> texts = Texts(TimelineSvg(kTwoRanks, Measured(), Simulated()));
    EXPECT_EQ(texts[0], "Pipeline step of 10.00 ms: P = 2 ranks, M = 1 micro-batch, V = 1 chunk a rank");
    const auto expect_row = [&texts](size_t after, const std::string& rank, const std::string& bubble,
                                     const std::string& wait) {
        const auto row = std::find(texts.begin() + static_cast<std::ptrdiff_t>(after), texts.end(), rank);
        ASSERT_LT(row + 2, texts.end());
        EXPECT_EQ(row[1], bubble);
        EXPECT_EQ(row[2], wait);
    };
    const auto find = [&texts](const std::string& text) {
        return static_cast<size_t>(std::find(texts.begin(), texts.end(), text) - texts.begin());
    };
    const size_t measured = find("measured, 10.00 ms");
    const size_t simulated = find("simulated, 8.00 ms");
    ASSERT_LT(measured, simulated);
    ASSERT_LT(simulated, texts.size());
    expect_row(measured, "rank 0", "50.0 %", "4.50 ms");  // works 5 of 10
    expect_row(measured, "rank 1", "57.5 %", "2.25 ms");
    expect_row(simulated, "rank 0", "37.5 %", "3.00 ms");  // works 5 of 8
    expect_row(simulated, "rank 1", "62.5 %", "2.00 ms");
    EXPECT_TRUE(Contains(texts, "makespan: measured 10.00 ms, simulated 8.00 ms, measured / simulated = 1.250"));
}

TEST(TimelineSvg, DrawsActionsWhereTheyRan) {
    const std::string svg = TimelineSvg(kTwoRanks, Measured(), Simulated());
    const std::string forward = BoxOf(svg, "F1.0: start 2.25 ms, duration 1.75 ms, waited 2.25 ms");
    EXPECT_DOUBLE_EQ(Attribute(forward, "x"), 76.0 + 2.25 * 64.0);
    EXPECT_NEAR(Attribute(forward, "width"), 1.75 * 64.0, 1.0);
    const std::string backward = BoxOf(svg, "D0.0: start 7.00 ms, duration 3.00 ms, waited 4.50 ms");
    EXPECT_DOUBLE_EQ(Attribute(backward, "x"), 76.0 + 7.0 * 64.0);
    EXPECT_LT(Attribute(backward, "y"), Attribute(forward, "y"));  // a rank above the other
    // The simulation has the same scale, and is below.
    const std::string simulated = BoxOf(svg, "D0.0: start 5.00 ms, duration 3.00 ms, waited 3.00 ms");
    EXPECT_DOUBLE_EQ(Attribute(simulated, "x"), 76.0 + 5.0 * 64.0);
    EXPECT_DOUBLE_EQ(Attribute(simulated, "width"), Attribute(backward, "width"));
    EXPECT_GT(Attribute(simulated, "y"), Attribute(forward, "y"));
}

TEST(TimelineSvg, HatchesWaits) {
    const std::string svg = TimelineSvg(kTwoRanks, Measured(), Simulated());
    const std::string wait = BoxOf(svg, "D0.0 waited 4.50 ms from 2.50 ms");
    EXPECT_DOUBLE_EQ(Attribute(wait, "x"), 76.0 + 2.5 * 64.0);
    EXPECT_DOUBLE_EQ(Attribute(wait, "width"), 4.5 * 64.0);
    EXPECT_EQ(FillOf(svg, "D0.0 waited 4.50 ms from 2.50 ms"), "url(#wait)");
    EXPECT_NE(svg.find("<pattern id=\"wait\""), std::string::npos);
    // Eight actions; two waits measured and two simulated.
    EXPECT_EQ(Tips(svg).size(), 12u);
}

TEST(TimelineSvg, HasTicksToTheEnd) {
    const std::vector<std::string> texts = Texts(TimelineSvg(kTwoRanks, Measured(), Simulated()));
    for (int ms = 0; ms <= 10; ++ms) {
        EXPECT_TRUE(Contains(texts, StrCat(ms))) << ms;
    }
    EXPECT_FALSE(Contains(texts, "11"));
}

TEST(TimelineSvg, ColorsKindsAndShadesChunks) {
    const PipelineShape shape = {.num_chunks = 2};
    const std::string svg =
        SvgOf(shape, OneAfterTheOther({{kF, 0}, {kD, 0}, {kF, 1}, {kD, 1}, {kB, 1}, {kW, 1}, {kF, 0, 1}}));
    const std::vector<std::string> tokens = {"F0.0:", "D0.0:", "F1.0:", "D1.0:", "B1.0:", "W1.0:"};
    for (size_t i = 0; i < tokens.size(); ++i) {
        for (size_t k = 0; k < i; ++k) {
            EXPECT_NE(FillOf(svg, tokens[i]), FillOf(svg, tokens[k])) << tokens[i] << tokens[k];
        }
    }
    EXPECT_EQ(FillOf(svg, "F0.1:"), FillOf(svg, "F0.0:"));
    EXPECT_EQ(FillOf(svg, "F1.0:"), "#0d79b6");  // 95 % of Okabe and Ito's blue, the rest white
    EXPECT_TRUE(Contains(Texts(svg), "chunk 0 to 1: light to dark"));
}

TEST(TimelineSvg, ExplainsTheKindsThatAreThere) {
    const std::vector<std::string> fused = Texts(SvgOf({}, OneAfterTheOther({{kF}, {kD}})));
    EXPECT_TRUE(Contains(fused, "F forward"));
    EXPECT_TRUE(Contains(fused, "D backward"));
    EXPECT_FALSE(Contains(fused, "B gradient of the input"));
    EXPECT_FALSE(Contains(fused, "W gradient of the weights"));
    const std::vector<std::string> split = Texts(SvgOf({}, OneAfterTheOther({{kF}, {kB}, {kW}})));
    EXPECT_FALSE(Contains(split, "D backward"));
    EXPECT_TRUE(Contains(split, "B gradient of the input"));
    EXPECT_TRUE(Contains(split, "W gradient of the weights"));
    EXPECT_TRUE(Contains(split, "wait for another rank"));
}

TEST(TimelineSvg, NamesActionsWhereThereIsRoom) {
    Timeline timeline = OneAfterTheOther({{kF, 0, 0}, {kF, 0, 1}, {kD, 0, 7}});
    timeline[0].push_back({{kD, 0, 8}, 3.0, 3.0, 3.2});    // 15 pixels wide
    timeline[0].push_back({{kD, 0, 9}, 3.2, 3.2, 3.205});  // a line
    timeline[0].push_back({{kF, 0, 2}, 9.0, 9.0, 10.0});
    const std::string svg = SvgOf({.num_microbatches = 10}, timeline);
    const std::vector<std::string> tokens = Matches(svg, "font-size=\"11\"[^>]*>([^<]*)<");
    EXPECT_EQ(tokens, (std::vector<std::string>{"F0.0", "F0.1", "D0.7", "8", "F0.2"}));
    EXPECT_EQ(Tips(svg).size(), 6u);
}

TEST(TimelineSvg, NamesMicroBatchesWhereThereAreManyActions) {
    ActionList actions;
    for (int m = 0; m < 120; ++m) {
        actions.push_back({kF, 0, m});
    }
    const std::vector<std::string> tokens =
        Matches(SvgOf({.num_microbatches = 120}, OneAfterTheOther(actions)), "font-size=\"11\"[^>]*>([^<]*)<");
    ASSERT_GE(tokens.size(), 100u);
    EXPECT_EQ(tokens[99], "99");
}

TEST(TimelineSvg, IsOneWellFormedDocumentWithoutScripts) {
    const std::string svg = TimelineSvg(kTwoRanks, Measured(), Simulated());
    std::vector<std::string> open;
    for (const std::string& tag : Matches(svg, "<(/?[a-z]+(?:[^>\"]|\"[^\"]*\")*)>")) {
        const std::string name = tag.substr(0, tag.find(' '));
        if (name[0] == '/') {
            ASSERT_FALSE(open.empty());
            EXPECT_EQ(open.back(), name.substr(1));
            open.pop_back();
        } else if (!tag.ends_with('/')) {
            open.push_back(name);
        }
    }
    EXPECT_TRUE(open.empty());
    EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
    EXPECT_EQ(svg.find("script"), std::string::npos);
    EXPECT_EQ(svg.find("href"), std::string::npos);
    EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(TimelineSvg, OfNothingIsADrawing) {
    const std::string svg = SvgOf({}, {{}});
    EXPECT_TRUE(Contains(Texts(svg), "makespan: measured 0.00 ms, simulated 0.00 ms"));
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(TimelineSvgDeathTest, WantsAllRanks) {
    EXPECT_DEATH(TimelineSvg(kTwoRanks, {{}}, Simulated()), "ranks of the timeline");
    EXPECT_DEATH(TimelineSvg(kTwoRanks, Measured(), {}), "ranks of the simulation");
}

}  // namespace
}  // namespace infini_train::nn::parallel::test
