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

TEST_F(TokenDatasetTest, DiesOnRowsBeyondTheEpoch) {
    const TokenDataset dataset(WriteGpt2("a.bin", Count(0, 9)), 4);
    EXPECT_DEATH(Read(dataset, 1, 2), "of 2");
}

}  // namespace
}  // namespace infini_train::data
