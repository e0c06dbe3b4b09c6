#include "infini_train/include/nn/parallel/pp/plan_file.h"

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "test/nn/parallel/pp/golden_plans.h"

namespace infini_train::nn::parallel::test {
namespace {

using infini_train::test::TemporaryFolder;
using infini_train::test::WriteTextFile;
using nlohmann::json;

TEST(PlanJson, HasTheGoldenFieldsWithTheirValues) {
    for (const auto& [name, numbers, file] : GoldenPlans()) {
        SCOPED_TRACE(name);
        // Receives are no part of it.
        std::vector<ActionList> plans = file.plans;
        PlaceReceives(file.shape, &plans);
        const json plan = json::parse(PlanJson(file.shape, plans, {}));
        EXPECT_EQ(plan.size(), 9u);
        for (const auto& [field, value] : plan.items()) {
            EXPECT_EQ(value, numbers.at(field)) << field;
        }
    }
}

TEST(PlanJson, WritesTheBytesOfEachRankWhereTheyAreKnown) {
    const PipelineShape shape = {.num_ranks = 2, .num_microbatches = 1};
    const std::vector<ActionList> plans = ComputePlans(ScheduleGPipe(), shape);
    EXPECT_EQ(PlanJson(shape, plans, {7, int64_t{1} << 40}),
              "{\"P\":2,\"M\":1,\"V\":1,\"makespan\":6,\"bubble_makespan_f\":0.5,\"peak_stage\":[1.0,1.0],"
              "\"recv_slots_max\":1,\"order\":[\"F0.0 D0.0\",\"F1.0 D1.0\"],\"start\":[[0,4],[1,2]],"
              "\"predicted_bytes\":[7,1099511627776]}");
}

TEST(PlanFile, ReadsWhatPlanJsonWrites) {
    const TemporaryFolder folder;
    const std::string path = folder.File("plan.json");
    for (const auto& [num_ranks, num_chunks, num_microbatches] :
         std::vector<std::tuple<int, int, int>>{{1, 1, 1}, {1, 3, 2}, {2, 2, 5}, {4, 3, 7}, {8, 1, 12}}) {
        const PipelineShape shape = {
            .num_ranks = num_ranks, .num_microbatches = num_microbatches, .num_chunks = num_chunks};
        const std::vector<ActionList> plans = ComputePlans(ScheduleInterleaved1F1B(), shape);
        WriteTextFile(path, PlanJson(shape, plans, {}));
        const PlanFile file = ReadPlanFile(path);
        EXPECT_EQ(file.plans, plans);
        EXPECT_EQ(file.shape.num_ranks, num_ranks);
        EXPECT_EQ(file.shape.num_chunks, num_chunks);
        EXPECT_EQ(file.shape.num_microbatches, num_microbatches);
        EXPECT_TRUE(file.shape.rank_of_stage.empty());
    }
    for (const auto& [name, numbers, golden] : GoldenPlans()) {
        WriteTextFile(path, PlanJson(golden.shape, golden.plans, {1, 2, 3}));
        const PlanFile file = ReadPlanFile(path);
        EXPECT_EQ(file.plans, golden.plans) << name;
        EXPECT_EQ(file.shape.rank_of_stage, golden.shape.rank_of_stage) << name;
    }
}

TEST(PlanFile, FindsWhoHoldsAStageInTheOrder) {
    for (const auto& [name, numbers, file] : GoldenPlans()) {
        const bool is_v_shape = name.ends_with("_v") || name.find(" v_") != std::string::npos;
        const std::vector<int> v_shape =
            file.shape.num_ranks == 2 ? std::vector<int>{0, 1, 1, 0} : std::vector<int>{0, 1, 2, 3, 3, 2, 1, 0};
        EXPECT_EQ(file.shape.rank_of_stage, is_v_shape ? v_shape : std::vector<int>{}) << name;
    }
}

/// A plan of two ranks, one micro-batch and two chunks; fields can be replaced by JSON text, or left out by "".
class PlanFileFields : public ::testing::Test {
 protected:
    std::string TextWith(const std::vector<std::pair<std::string, std::string>>& changes) const {
        std::vector<std::pair<std::string, std::string>> fields = {
            {"P", "2"}, {"M", "1"}, {"V", "2"}, {"order", R"(["F0.0 F2.0 D2.0 D0.0", "F1.0 F3.0 D3.0 D1.0"])"}};
        std::string text;
        for (auto& [name, value] : fields) {
            for (const auto& [changed, new_value] : changes) {
                value = changed == name ? new_value : value;
            }
            if (!value.empty()) {
                text += (text.empty() ? "" : ", ") + StrCat('"', name, "\": ", value);
            }
        }
        return "{" + text + "}";
    }
    std::string With(const std::string& field, const std::string& value) const { return TextWith({{field, value}}); }
    std::string WithOrder(const std::string& rank_0, const std::string& rank_1) const {
        return With("order", StrCat("[\"", rank_0, "\", \"", rank_1, "\"]"));
    }

    /// What ReadPlanFile says of a file with this text, less the name of the file; or "ok".
    std::string Verdict(const std::string& text) const {
        WriteTextFile(path_, text);
        try {
            ReadPlanFile(path_);
            return "ok";
        } catch (const Error& error) {
            const std::string message = error.what();
            EXPECT_EQ(error.exit_code(), 2);
            EXPECT_TRUE(message.starts_with(path_ + ": ")) << message;
            EXPECT_EQ(message.find_first_of("\n\t\r"), std::string::npos) << message;
            EXPECT_LT(message.size(), path_.size() + 300);
            return message.substr(path_.size() + 2);
        }
    }

    const TemporaryFolder folder_;
    const std::string path_ = folder_.File("plan.json");
};

TEST_F(PlanFileFields, MayBeMoreThanNeeded) {
    EXPECT_EQ(Verdict(TextWith({})), "ok");
    EXPECT_EQ(Verdict(R"({"x": {"P": 7, "y": [[[null]]]}, "start": "?", )" + TextWith({}).substr(1)), "ok");
    EXPECT_EQ(Verdict("\n " + WithOrder("  F0.0\\n\\tF2.0  D2.0 D0.0 ", "F1.0 F3.0 D3.0 D1.0") + " \n"), "ok");
}

TEST_F(PlanFileFields, MustBeOneJsonObject) {
    for (const std::string text : {"", " ", "{", "}", "plan", "{} {}", "{'P': 2}", "{\"P\": 2,}", "{\"P\": NaN}",
                                   "\xff\xfe", "{\"\x80\": 1}", "{\"P\": 02}"}) {
        EXPECT_TRUE(Verdict(text).starts_with("the plan is not JSON")) << Verdict(text);
    }
    EXPECT_EQ(Verdict("[]"), "the plan is not a JSON object (got array)");
    EXPECT_EQ(Verdict("7"), "the plan is not a JSON object (got number)");
    EXPECT_EQ(Verdict("null"), "the plan is not a JSON object (got null)");
    EXPECT_EQ(Verdict(TextWith({}) + std::string(1, '\0')), "the plan is not JSON (got a NUL, wanted text)");
    // What the parser quotes in its message may be as long as the file.
    EXPECT_TRUE(Verdict("{\"P\": \"" + std::string(100000, 'x')).starts_with("the plan is not JSON"));
}

TEST_F(PlanFileFields, MustNotNestDeeply) {
    const std::string deep = "the plan is nested too deeply (wanted at most 8 levels)";
    EXPECT_EQ(Verdict(std::string(1000000, '[')), deep);
    EXPECT_EQ(Verdict(With("P", std::string(1000, '[') + std::string(1000, ']'))), deep);
    std::string objects;
    for (int level = 0; level < 100000; ++level) {
        objects += "{\"P\":";
    }
    EXPECT_EQ(Verdict(objects), deep);
}

TEST_F(PlanFileFields, MustBeThereOnce) {
    EXPECT_EQ(Verdict(R"({"M": 3, )" + TextWith({}).substr(1)), "the plan has a field twice (got \"M\")");
    EXPECT_EQ(Verdict(R"({"order": [], )" + TextWith({}).substr(1)), "the plan has a field twice (got \"order\")");
    for (const std::string field : {"P", "M", "V"}) {
        EXPECT_TRUE(Verdict(With(field, "")).starts_with("the plan's " + field + " (got null, wanted a whole number"));
    }
    EXPECT_EQ(Verdict(With("order", "")), "the plan's order (got null, wanted a list of 2 lists, as P says)");
}

TEST_F(PlanFileFields, MustBeSizesThatAModelCanHave) {
    for (const std::string value :
         {"0", "-1", "-0", "1.0", "2e0", "\"2\"", "true", "[2]", "1048577", "4294967298", "18446744073709551617",
          "-9223372036854775809", "1e999", "99999999999999999999999999999999999999"}) {
        for (const std::string field : {"P", "M", "V"}) {
            const std::string verdict = Verdict(With(field, value));
            EXPECT_TRUE(verdict.starts_with("the plan's " + field + " (got ") ||
                        verdict.starts_with("the plan is not JSON"))
                << field << " " << value << ": " << verdict;
        }
    }
    EXPECT_EQ(Verdict(With("P", "1025")), "the plan's P (got 1025, wanted a whole number from 1 to 1024)");
    EXPECT_EQ(Verdict(With("V", "513")), "the plan's V (got 513, wanted a whole number from 1 to 512)");
    EXPECT_EQ(Verdict(With("M", "1048577")), "the plan's M (got 1048577, wanted a whole number from 1 to 1048576)");
}

// Nothing is as large as P V M before the file has been seen to hold as much.
TEST_F(PlanFileFields, MustHaveActionsForTheirSizes) {
    EXPECT_EQ(Verdict(TextWith({{"M", "1048576"}})),
              "the plan has too few actions for its P, V and M (got 8, wanted at least 8388608)");
    EXPECT_EQ(Verdict(With("V", "512")),
              "the plan has too few actions for its P, V and M (got 8, wanted at least 2048)");
    EXPECT_EQ(Verdict(With("M", "3")), "the plan has too few actions for its P, V and M (got 8, wanted at least 24)");
}

TEST_F(PlanFileFields, MustHaveAnOrderForEachRank) {
    EXPECT_EQ(Verdict(With("P", "3")), "the plan's order (got 2 lists, wanted a list of 3 lists, as P says)");
    EXPECT_EQ(Verdict(With("order", "{}")), "the plan's order (got object, wanted a list of 2 lists, as P says)");
    EXPECT_EQ(Verdict(With("order", "[[], []]")), "the plan's order of rank 0 (got array, wanted a string of actions)");
    EXPECT_EQ(Verdict(With("order", "[\"\", 3]")),
              "the plan's order of rank 1 (got number, wanted a string of actions)");
}

TEST_F(PlanFileFields, MustNameActionsThatThereAre) {
    const std::string wanted = "wanted F, D, B or W, a stage below 4, '.' and a micro-batch below 1)";
    for (const std::string token :
         {"F",       "F.",     "F0",     "F.0",   "0.0",           "f0.0",          "R0.0",
          "RF1.0/0", "F0.0/0", "F0.0.0", "F-1.0", "F0.-1",         "F+0.0",         "F0.+0",
          "F4.0",    "F0.1",   "F0.0,",  "F 0.0", "F0x0.0",        "F0.0x",         "F1e0.0",
          "FF0.0",   "F0,0",   "F0..0",  "X",     "F2147483648.0", "F0.4294967296", "D0.18446744073709551616"}) {
        const std::string verdict = Verdict(WithOrder("F0.0 " + token + " F2.0 D2.0 D0.0", "F1.0 F3.0 D3.0 D1.0"));
        const std::string shown = token.substr(0, token.find(' '));
        EXPECT_EQ(verdict, "the plan's order of rank 0, action 2 (got \"" + shown + "\", " + wanted);
    }
    const std::string verdict = Verdict(WithOrder(std::string(100000, 'F'), ""));
    EXPECT_NE(verdict.find("action 1 (got \"FFFFFF"), std::string::npos) << verdict;
    EXPECT_EQ(Verdict(WithOrder("\\u0007\\u00e9", "")),
              "the plan's order of rank 0, action 1 (got \"\\u0007\\u00e9\", " + wanted);
}

TEST_F(PlanFileFields, MustNotRepeatAnAction) {
    EXPECT_EQ(Verdict(WithOrder("F0.0 F2.0 D2.0 F0.0 D0.0", "F1.0 F3.0 D3.0 D1.0")),
              "the plan's order of rank 0, action 4: comes a second time");
    EXPECT_EQ(Verdict(WithOrder("F0.0 F2.0 D2.0 D0.0", "F1.0 F3.0 D3.0 D1.0 F01.00")),
              "the plan's order of rank 1, action 5: comes a second time");
}

TEST_F(PlanFileFields, MustHaveEachStageOnOneRank) {
    EXPECT_EQ(Verdict(WithOrder("F0.0 F2.0 D2.0 D0.0", "F1.0 F3.0 D3.0 D1.0 W2.0")),
              "stage 2 of the plan is on two ranks (got 0 and 1)");
    EXPECT_EQ(Verdict(WithOrder("F0.0 D0.0 B0.0 W0.0", "F1.0 F3.0 D3.0 D1.0")),
              "rank 0 of the plan holds another number of stages than V says (got 1, wanted 2)");
    EXPECT_EQ(Verdict(WithOrder("F0.0 D0.0 F1.0 D1.0 F2.0 D2.0", "F3.0 D3.0")),
              "rank 0 of the plan holds another number of stages than V says (got 3, wanted 2)");
}

TEST_F(PlanFileFields, AreNotSoughtInAFileThatIsNotThereOrTooLarge) {
    const std::string missing = folder_.File("missing.json");
    try {
        ReadPlanFile(missing);
        ADD_FAILURE() << "no error";
    } catch (const Error& error) {
        EXPECT_TRUE(std::string(error.what()).starts_with(missing)) << error.what();
    }
    EXPECT_EQ(Verdict(std::string((16 << 20) + 1, ' ')),
              "too large for a plan (got 16777217 bytes, wanted at most 16777216)");
}

}  // namespace
}  // namespace infini_train::nn::parallel::test
