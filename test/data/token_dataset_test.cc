#include "infini_train/include/data/token_dataset.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "test/data/token_test_files.h"

namespace infini_train::data {
namespace {

using test::ExpectError;

class TokenDatasetTest : public test::TokenTest {};

/// first, first + 1, ...
std::vector<uint16_t> Count(uint16_t first, size_t count) {
    std::vector<uint16_t> tokens(count);
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
}

struct Rows {
    std::vector<int32_t> inputs;
    std::vector<int32_t> targets;
};

Rows Read(const TokenDataset& dataset, int64_t first_row, int64_t num_rows) {
    const auto size = static_cast<size_t>(num_rows * dataset.sequence_length());
    Rows rows = {.inputs = std::vector<int32_t>(size), .targets = std::vector<int32_t>(size)};
    dataset.ReadRows(first_row, num_rows, rows.inputs.data(), rows.targets.data());
    return rows;
}

TEST_F(TokenDatasetTest, ShiftsTargetsByOneToken) {
    const TokenDataset dataset(WriteGpt2("a.bin", Count(10, 7)), 3);
    EXPECT_EQ(dataset.num_rows(), 2);
    const Rows rows = Read(dataset, 0, 2);
    EXPECT_EQ(rows.inputs, (std::vector<int32_t>{10, 11, 12, 13, 14, 15}));
    EXPECT_EQ(rows.targets, (std::vector<int32_t>{11, 12, 13, 14, 15, 16}));
}

TEST_F(TokenDatasetTest, NeedsATargetForTheLastTokenOfARow) {
    EXPECT_EQ(TokenDataset(WriteGpt2("a.bin", Count(0, 1)), 3).num_rows(), 0);
    EXPECT_EQ(TokenDataset(WriteGpt2("a.bin", Count(0, 3)), 3).num_rows(), 0);
    EXPECT_EQ(TokenDataset(WriteGpt2("a.bin", Count(0, 4)), 3).num_rows(), 1);
    EXPECT_EQ(TokenDataset(WriteGpt2("a.bin", Count(0, 6)), 3).num_rows(), 1);
}

TEST_F(TokenDatasetTest, GoesOnInTheNextShard) {
    WriteGpt2("shard_0.bin", Count(0, 6));    // 2 rows of 2, and a token that is in none
    WriteGpt2("shard_1.bin", Count(100, 2));  // none
    WriteGpt2("shard_2.bin", Count(200, 3));  // 1
    WriteGpt2("shard_3.bin", Count(300, 5));  // 2
    const TokenDataset dataset(Path("shard_*.bin"), 2);
    EXPECT_EQ(dataset.num_rows(), 5);
    EXPECT_EQ(dataset.num_tokens(), 16);
    const Rows rows = Read(dataset, 1, 4);
    EXPECT_EQ(rows.inputs, (std::vector<int32_t>{2, 3, 200, 201, 300, 301, 302, 303}));
    EXPECT_EQ(rows.targets, (std::vector<int32_t>{3, 4, 201, 202, 301, 302, 303, 304}));
}

TEST_F(TokenDatasetTest, SortsShardsByTheBytesOfTheirNames) {
    for (const char* name : {"b.bin", "B.bin", "a_2.bin", "a_10.bin", "\xc3\xa9.bin"}) {
        WriteGpt2(name, Count(0, 3));
    }
    const TokenDataset dataset(Path("*.bin"), 2);
    std::vector<std::string> paths;
    for (const TokenFile& shard : dataset.shards()) {
        paths.push_back(shard.path());
    }
    EXPECT_EQ(paths, (std::vector<std::string>{Path("B.bin"), Path("a_10.bin"), Path("a_2.bin"), Path("b.bin"),
                                               Path("\xc3\xa9.bin")}));
}

TEST_F(TokenDatasetTest, TakesANameWithPatternCharactersAsItIs) {
    WriteGpt2("a[1].bin", Count(0, 3));
    EXPECT_EQ(TokenDataset(Path("a[1].bin"), 2).num_rows(), 1);
}

TEST_F(TokenDatasetTest, RefusesAPatternThatNothingMatches) {
    ExpectError([&] { TokenDataset(Path("*.bin"), 2); }, {Path("*.bin"), "no file matches"});
    ExpectError([&] { TokenDataset(Path("a.bin"), 2); }, {Path("a.bin"), "cannot open"});
}

TEST_F(TokenDatasetTest, RefusesShardsOfTwoKinds) {
    WriteGpt2("a.bin", {1, 2, 3});
    WriteLlama3("b.bin", {1, 2, 3});
    ExpectError([&] { TokenDataset(Path("*.bin"), 2); }, {Path("b.bin"), "other kind of tokens than " + Path("a.bin"),
                                                          "got LLaMA-3 tokens", "wanted GPT-2 tokens"});
}

TEST_F(TokenDatasetTest, ChecksTheVocabularyOfEveryShard) {
    WriteGpt2("a.bin", {1, 50256, 3});
    WriteGpt2("b.bin", {1, 2, 50257});
    const TokenDataset dataset(Path("*.bin"), 2);
    ExpectError([&] { dataset.CheckVocab(50257); }, {Path("b.bin"), "token 2", "id 50257"});
    EXPECT_NO_THROW(dataset.CheckVocab(50258));
}

TEST_F(TokenDatasetTest, RefusesFewerRowsThanAStepTakes) {
    const TokenDataset dataset(WriteGpt2("a.bin", Count(0, 64)), 16);
    EXPECT_EQ(dataset.num_rows(), 3);
    EXPECT_NO_THROW(dataset.CheckHasRows(3));
    ExpectError([&] { dataset.CheckHasRows(4); }, {Path("a.bin"), "64 tokens, 3 rows of 16", "65 tokens, 4 rows"});
    ExpectError([&] { dataset.StepPosition({}, 4); }, {"too few tokens"});
}

TEST_F(TokenDatasetTest, BeginsTheNextEpochWhereAStepWouldNotFit) {
    const TokenDataset dataset(WriteGpt2("a.bin", Count(0, 7 * 4 + 1)), 4);  // 3.5 steps of 2 rows
    std::vector<std::pair<int64_t, int64_t>> starts;
    DataPosition position;
    for (int64_t step = 0; step < 7; ++step) {
        const DataPosition start = dataset.StepPosition(position, 2);
        starts.emplace_back(start.epoch, start.row);
        position = dataset.NextPosition(position, 2);
    }
    EXPECT_EQ(starts,
              (std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {0, 2}, {0, 4}, {1, 0}, {1, 2}, {1, 4}, {2, 0}}));
}

TEST_F(TokenDatasetTest, SaysWhatAnEpochDrops) {
    const TokenDataset whole(WriteGpt2("whole.bin", Count(0, 6 * 4 + 1)), 4);
    EXPECT_EQ(whole.DropNote(2), "");
    const TokenDataset rest(WriteGpt2("rest.bin", Count(0, 7 * 4 + 1 + 3)), 4);
    const std::string note = rest.DropNote(2);
    for (const std::string& part :
         {Path("rest.bin"), std::string("7 of 32 tokens"), std::string("3 steps of 2 rows")}) {
        EXPECT_NE(note.find(part), std::string::npos) << note;
    }
}

TEST_F(TokenDatasetTest, GivesTheSameTokensHoweverAStepIsCut) {
    WriteGpt2("a.bin", Count(0, 500));
    WriteGpt2("b.bin", Count(1000, 500));
    constexpr int64_t kRowsPerStep = 12;
    for (const bool shuffles : {false, true}) {
        TokenDataset dataset(Path("?.bin"), 16);
        if (shuffles) {
            dataset.Shuffle(7);
        }
        const auto read_epochs = [&](int64_t batch_size) {
            std::vector<int32_t> tokens;
            DataPosition position;
            for (int64_t step = 0; step < 11; ++step) {
                for (int64_t row = 0; row < kRowsPerStep; row += batch_size) {
                    std::vector<int32_t> inputs(static_cast<size_t>(batch_size * 16));
                    std::vector<int32_t> targets(inputs.size());
                    dataset.ReadStepRows(position, kRowsPerStep, row, batch_size, inputs.data(), targets.data());
                    tokens.insert(tokens.end(), inputs.begin(), inputs.end());
                    EXPECT_EQ(targets[0], inputs[0] + 1);
                }
                position = dataset.NextPosition(position, kRowsPerStep);
            }
            return tokens;
        };
        const std::vector<int32_t> whole = read_epochs(kRowsPerStep);
        EXPECT_EQ(whole.size(), 11u * 12u * 16u);
        for (const int64_t batch_size : {1, 2, 3, 6}) {
            EXPECT_EQ(read_epochs(batch_size), whole) << batch_size;
        }
    }
}

TEST_F(TokenDatasetTest, ShuffledReadsEachRowOnceAnEpochAndEveryEpochInAnotherOrder) {
    WriteGpt2("a.bin", Count(0, 500));
    WriteGpt2("b.bin", Count(1000, 500));
    TokenDataset dataset(Path("?.bin"), 16);
    dataset.Shuffle(7);
    std::vector<std::vector<int32_t>> epochs(2);
    DataPosition position;
    for (int64_t step = 0; step < 2 * dataset.num_rows(); ++step) {
        std::vector<int32_t> inputs(16);
        std::vector<int32_t> targets(16);
        dataset.ReadStepRows(position, 1, 0, 1, inputs.data(), targets.data());
        epochs[static_cast<size_t>(dataset.StepPosition(position, 1).epoch)].push_back(inputs[0]);
        position = dataset.NextPosition(position, 1);
    }
    EXPECT_NE(epochs[0], epochs[1]);
    for (std::vector<int32_t>& rows : epochs) {
        EXPECT_FALSE(std::is_sorted(rows.begin(), rows.end()));
        std::sort(rows.begin(), rows.end());
        EXPECT_EQ(std::adjacent_find(rows.begin(), rows.end()), rows.end());
        EXPECT_EQ(static_cast<int64_t>(rows.size()), dataset.num_rows());
    }
}

/// The first token of each row of a step.
std::vector<int32_t> StepRows(const TokenDataset& dataset, const DataPosition& position, int64_t rows_per_step,
                              int64_t first_row, int64_t num_rows) {
    const auto size = static_cast<size_t>(num_rows * dataset.sequence_length());
    Rows rows = {.inputs = std::vector<int32_t>(size), .targets = std::vector<int32_t>(size)};
    dataset.ReadStepRows(position, rows_per_step, first_row, num_rows, rows.inputs.data(), rows.targets.data());
    std::vector<int32_t> first_tokens;
    for (int64_t row = 0; row < num_rows; ++row) {
        first_tokens.push_back(rows.inputs[static_cast<size_t>(row * dataset.sequence_length())]);
    }
    return first_tokens;
}

TEST_F(TokenDatasetTest, GivesNoRowToTwoReplicasInAnEpochWhateverTheLayout) {
    WriteGpt2("a.bin", Count(0, 500));
    WriteGpt2("b.bin", Count(1000, 203));
    WriteGpt2("c.bin", Count(2000, 700));
    constexpr int64_t kRowsPerStep = 24;  // of 1, 2, 3, 4 and 8 replicas
    for (const bool shuffles : {false, true}) {
        TokenDataset dataset(Path("?.bin"), 7);
        if (shuffles) {
            dataset.Shuffle(3);
        }
        const int64_t steps_per_epoch = dataset.num_rows() / kRowsPerStep;
        ASSERT_GT(dataset.num_rows() % kRowsPerStep, 0);  // a rest is dropped
        std::vector<std::vector<int32_t>> steps_of_one;
        for (const int64_t num_replicas : {1, 2, 3, 4, 8}) {
            DataPosition position;
            std::vector<std::vector<int32_t>> steps;
            std::vector<int32_t> epoch;
            for (int64_t step = 0; step < 3 * steps_per_epoch; ++step) {
                steps.emplace_back();
                for (int64_t replica = 0; replica < num_replicas; ++replica) {
                    const int64_t num_rows = kRowsPerStep / num_replicas;
                    const std::vector<int32_t> rows =
                        StepRows(dataset, position, kRowsPerStep, replica * num_rows, num_rows);
                    steps.back().insert(steps.back().end(), rows.begin(), rows.end());
                }
                epoch.insert(epoch.end(), steps.back().begin(), steps.back().end());
                position = dataset.NextPosition(position, kRowsPerStep);
                if ((step + 1) % steps_per_epoch == 0) {
                    std::sort(epoch.begin(), epoch.end());
                    EXPECT_EQ(std::adjacent_find(epoch.begin(), epoch.end()), epoch.end()) << num_replicas;
                    EXPECT_EQ(position.epoch, step / steps_per_epoch);
                    epoch.clear();
                }
            }
            if (num_replicas == 1) {
                steps_of_one = steps;
            }
            EXPECT_EQ(steps, steps_of_one) << num_replicas;
        }
    }
}

TEST_F(TokenDatasetTest, GoesOnInItsShardAndEpochFromASavedPosition) {
    WriteGpt2("a.bin", Count(0, 61));
    WriteGpt2("b.bin", Count(1000, 61));
    WriteGpt2("c.bin", Count(2000, 61));
    for (const bool shuffles : {false, true}) {
        const auto open = [&] {
            TokenDataset dataset(Path("?.bin"), 5);  // 12 rows a shard
            if (shuffles) {
                dataset.Shuffle(3);
            }
            return dataset;
        };
        const TokenDataset straight = open();
        std::vector<DataPosition> positions(1);
        std::vector<std::vector<int32_t>> steps;
        for (int step = 0; step < 16; ++step) {  // 7 an epoch
            steps.push_back(StepRows(straight, positions.back(), 5, 0, 5));
            positions.push_back(straight.NextPosition(positions.back(), 5));
        }
        for (const size_t saved : {1u, 3u, 7u, 9u, 14u}) {
            const TokenDataset resumed = open();
            DataPosition position = positions[saved];
            for (size_t step = saved; step < steps.size(); ++step) {
                EXPECT_EQ(StepRows(resumed, position, 5, 0, 5), steps[step]) << saved << " " << step;
                position = resumed.NextPosition(position, 5);
            }
        }
        if (!shuffles) {
            EXPECT_EQ(steps[3].front(), 1015);  // row 15 is the fourth of the second shard
        }
    }
}

TEST_F(TokenDatasetTest, ReadsNoRowTwiceInAnEpochWhenAResumedRunTakesOtherSteps) {
    TokenDataset dataset(WriteGpt2("a.bin", Count(0, 101)), 5);  // 20 rows
    dataset.Shuffle(3);
    DataPosition position;
    std::vector<int32_t> rows;
    for (const int64_t rows_per_step : {6, 6, 3, 5}) {
        EXPECT_EQ(dataset.StepPosition(position, rows_per_step), position);
        const std::vector<int32_t> step = StepRows(dataset, position, rows_per_step, 0, rows_per_step);
        rows.insert(rows.end(), step.begin(), step.end());
        position = dataset.NextPosition(position, rows_per_step);
    }
    std::sort(rows.begin(), rows.end());
    EXPECT_EQ(rows.size(), 20u);
    EXPECT_EQ(std::adjacent_find(rows.begin(), rows.end()), rows.end());
    EXPECT_EQ(dataset.StepPosition(position, 1), (DataPosition{.epoch = 1, .row = 0}));
}

TEST_F(TokenDatasetTest, DiesOnRowsBeyondTheEpoch) {
    const TokenDataset dataset(WriteGpt2("a.bin", Count(0, 9)), 4);
    EXPECT_DEATH(Read(dataset, 1, 2), "of 2");
}

}  // namespace
}  // namespace infini_train::data
