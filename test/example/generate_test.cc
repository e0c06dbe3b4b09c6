#include "example/common/generate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/comm/wait_error.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/data/byte_tokenizer.h"
#include "infini_train/include/nn/modules/kv_cache.h"
#include "infini_train/include/nn/parallel/pp/schedules.h"
#include "test/support/pipeline_case.h"
#include "test/support/tiny_model.h"

namespace infini_train {
namespace {

using nn::parallel::PipelineParallel;
using test::kTinyVocab;
using test::PipelineCase;
using test::TinyModelKind;

constexpr int64_t kBlock = 32;
const std::vector<int32_t> kPrompt = {3, 1, 4, 1, 5};

/// What Generate wants to know.
ModelSpec Spec() {
    return {.block_size = kBlock, .vocab_size = kTinyVocab};
}

PipelineCase Case(TinyModelKind kind, int num_ranks = 1, int num_chunks = 1) {
    return {.model = {.kind = kind, .num_layers = 6, .block_size = kBlock, .dropout = 0.1f},
            .num_ranks = num_ranks,
            .num_chunks = num_chunks,
            .schedule = num_chunks == 1 ? "gpipe" : "interleaved"};
}

/// f on every rank of a pipeline, at once.
template <typename F>
void OnEachRank(const PipelineCase& run, F f) {
    const std::shared_ptr<nn::parallel::PipelineSchedule> schedule = nn::parallel::MakeSchedule(run.schedule);
    comm::RunRanks(
        {.shape = {.data = run.num_replicas, .pipeline = run.num_ranks}, .timeout_s = 60.0, .threads_per_rank = 1},
        [&](const comm::Mesh& mesh) { f(*test::MakePipeline(run, mesh, schedule), mesh); });
}

/// The tokens, which are the same on every rank.
std::vector<int32_t> Text(const PipelineCase& run, const GenerateOptions& options,
                          const std::vector<int32_t>& prompt = kPrompt) {
    std::mutex mutex;
    std::vector<std::vector<int32_t>> texts;
    OnEachRank(run, [&](PipelineParallel& pipeline, const comm::Mesh& mesh) {
        const std::vector<int32_t> text = Generate(pipeline, mesh, Spec(), prompt, options);
        const std::lock_guard lock(mutex);
        texts.push_back(text);
    });
    for (const std::vector<int32_t>& text : texts) {
        EXPECT_EQ(text, texts[0]);
    }
    return texts.at(0);
}

class GenerateText : public testing::TestWithParam<TinyModelKind> {};

TEST_P(GenerateText, IsTheSameWithAndWithoutTheCache) {
    // Up to the block, and beyond it.
    for (const int num_tokens : {0, 1, 2, 20, 27, 28, 29, 45}) {
        for (const float temperature : {0.0f, 1.0f}) {
            GenerateOptions options = {.num_tokens = num_tokens, .temperature = temperature, .seed = 7};
            const std::vector<int32_t> with = Text(Case(GetParam()), options);
            options.uses_cache = false;
            EXPECT_EQ(with, Text(Case(GetParam()), options)) << num_tokens << " tokens";
            EXPECT_EQ(with.size(), kPrompt.size() + static_cast<size_t>(num_tokens));
            EXPECT_TRUE(std::equal(kPrompt.begin(), kPrompt.end(), with.begin()));
        }
    }
}

TEST_P(GenerateText, GoesOnFromAPromptOfTheBlockAndLonger) {
    for (const size_t length : {size_t{1}, size_t{31}, size_t{32}, size_t{33}, size_t{50}}) {
        std::vector<int32_t> prompt(length);
        for (size_t i = 0; i < length; ++i) {
            prompt[i] = static_cast<int32_t>(i * i % 11);
        }
        GenerateOptions options = {.num_tokens = 4, .seed = 7};
        const std::vector<int32_t> text = Text(Case(GetParam()), options, prompt);
        options.uses_cache = false;
        EXPECT_EQ(text, Text(Case(GetParam()), options, prompt)) << "a prompt of " << length;
    }
}

TEST_P(GenerateText, IsTheSameOverAnyStages) {
    const GenerateOptions options = {.num_tokens = 40, .temperature = 1.0f, .top_k = 9, .top_p = 0.95f, .seed = 3};
    const std::vector<int32_t> wanted = Text(Case(GetParam()), options);
    EXPECT_EQ(Text(Case(GetParam(), 2), options), wanted);
    EXPECT_EQ(Text(Case(GetParam(), 3), options), wanted);
    EXPECT_EQ(Text(Case(GetParam(), 6), options), wanted);
    EXPECT_EQ(Text(Case(GetParam(), 2, 3), options), wanted) << "several chunks a rank";
    PipelineCase recomputes = Case(GetParam(), 2);
    recomputes.model.recompute = true;
    EXPECT_EQ(Text(recomputes, options), wanted);
    PipelineCase replicas = Case(GetParam(), 2);
    replicas.num_replicas = 2;
    EXPECT_EQ(Text(replicas, options), wanted);
}

/// The logits of the last position: of all positions at once, and of the first three, then one after the other.
struct LastLogits {
    std::vector<float> at_once = {};
    std::vector<float> by_pieces = {};
};

LastLogits LogitsOf(const PipelineCase& run) {
    constexpr int64_t kLength = 20;
    LastLogits logits;
    OnEachRank(run, [&](PipelineParallel& pipeline, const comm::Mesh& mesh) {
        const std::shared_ptr<Tensor> ids = test::MakeRows(4, 1, kLength, mesh.device).inputs->View({kLength});
        const auto forward = [&](int64_t begin, int64_t end) {
            const TensorList outputs = pipeline.Forward({ids->Slice(begin, end)->View({1, end - begin})});
            if (outputs.empty()) {
                return std::vector<float>{};
            }
            const int64_t length = outputs[0]->dim(1);
            return outputs[0]->View({length, outputs[0]->dim(2)})->Slice(length - 1, length)->ToVector<float>();
        };
        const std::vector<float> at_once = forward(0, kLength);
        std::vector<float> by_pieces;
        {
            const nn::KvCacheScope scope(pipeline.stage().chunks(), kLength, mesh.device);
            forward(0, 3);
            for (int64_t position = 3; position < kLength; ++position) {
                by_pieces = forward(position, position + 1);
            }
        }
        EXPECT_EQ(forward(0, kLength), at_once) << "after the cache";
        if (!at_once.empty()) {
            logits = {.at_once = at_once, .by_pieces = by_pieces};
        }
    });
    return logits;
}

TEST_P(GenerateText, ComesFromLogitsOfTheSameBitsOverAnyStages) {
    const LastLogits wanted = LogitsOf(Case(GetParam()));
    ASSERT_EQ(wanted.by_pieces.size(), wanted.at_once.size());
    for (size_t i = 0; i < wanted.at_once.size(); ++i) {
        EXPECT_NEAR(wanted.by_pieces[i], wanted.at_once[i], 1e-5 * std::max(1.0f, std::abs(wanted.at_once[i])));
    }
    for (const int num_ranks : {2, 3}) {
        const LastLogits got = LogitsOf(Case(GetParam(), num_ranks));
        EXPECT_EQ(got.by_pieces, wanted.by_pieces) << num_ranks << " stages";
        EXPECT_EQ(got.at_once, wanted.at_once) << num_ranks << " stages";
    }
}

TEST_P(GenerateText, LeavesNoMemoryBehind) {
    const PipelineCase run = Case(GetParam(), 2);
    OnEachRank(run, [&](PipelineParallel& pipeline, const comm::Mesh& mesh) {
        const auto optimizer = test::MakeAdamW(pipeline.Parameters());
        const auto stats = [&mesh] {
            mesh.world->Barrier();  // no rank goes on while another one counts
            const Allocator::Stats now = mesh.device.allocator->stats();
            mesh.world->Barrier();
            return now;
        };
        const auto train = [&] {
            const test::TinyRows rows = test::RowsOfStep(run, 0, mesh.device);
            pipeline.TrainStep(rows.inputs, rows.targets, optimizer, test::MakeTinyLoss(), run.dtype);
        };
        for (int step = 0; step < 3; ++step) {
            train();
        }
        const Allocator::Stats before = stats();
        Generate(pipeline, mesh, Spec(), kPrompt, {.num_tokens = 20});
        const Allocator::Stats after_text = stats();
        EXPECT_EQ(after_text.live_bytes, before.live_bytes);
        train();
        const Allocator::Stats after_step = stats();
        EXPECT_EQ(after_step.live_bytes, before.live_bytes);
        EXPECT_EQ(after_step.num_system_requests, after_text.num_system_requests);
        Generate(pipeline, mesh, Spec(), kPrompt, {.num_tokens = 20});
        EXPECT_EQ(stats().num_system_requests, after_text.num_system_requests);
    });
}

INSTANTIATE_TEST_SUITE_P(Models, GenerateText,
                         testing::Values(TinyModelKind::kGpt2, TinyModelKind::kTiedLlama, TinyModelKind::kUntiedLlama));

TEST(Generate, DependsOnSeedAndSample) {
    const PipelineCase run = Case(TinyModelKind::kGpt2);
    const std::vector<int32_t> text = Text(run, {.num_tokens = 20, .seed = 1});
    EXPECT_EQ(Text(run, {.num_tokens = 20, .seed = 1}), text);
    EXPECT_NE(Text(run, {.num_tokens = 20, .seed = 2}), text);
    EXPECT_NE(Text(run, {.num_tokens = 20, .seed = 1, .sample = 1}), text);
    EXPECT_EQ(Text(run, {.num_tokens = 20, .temperature = 1.0f, .top_k = 1, .seed = 1}),
              Text(run, {.num_tokens = 20, .temperature = 0.0f, .seed = 2}));
}

TEST(Generate, EndsWithTheEndToken) {
    const PipelineCase run = Case(TinyModelKind::kUntiedLlama, 2);
    const std::vector<int32_t> whole = Text(run, {.num_tokens = 20, .seed = 1});
    const int32_t end = whole[kPrompt.size() + 6];
    const auto first = std::find(whole.begin() + static_cast<int64_t>(kPrompt.size()), whole.end(), end);
    EXPECT_EQ(Text(run, {.num_tokens = 20, .seed = 1, .end_token = end}),
              std::vector<int32_t>(whole.begin(), first + 1));
}

TEST(Generate, CallsOnTokenForEachNewOne) {
    OnEachRank(Case(TinyModelKind::kGpt2, 2), [](PipelineParallel& pipeline, const comm::Mesh& mesh) {
        std::vector<int32_t> seen = kPrompt;
        const std::vector<int32_t> text =
            Generate(pipeline, mesh, Spec(), kPrompt,
                     {.num_tokens = 8, .on_token = [&seen](int32_t token) { seen.push_back(token); }});
        EXPECT_EQ(seen, text);
    });
}

TEST(Generate, NamesTheTokenThatItWaitsFor) {
    std::string error;
    std::binary_semaphore has_token(0);  // rank 0 has the first one, and is about to wait for the second
    const auto text = [&](PipelineParallel& pipeline, const comm::Mesh& mesh) {
        const auto fail = [&](int32_t) {
            EXPECT_TRUE(has_token.try_acquire_for(std::chrono::seconds(20)));
            throw std::runtime_error("no more");
        };
        if (mesh.rank == 1) {
            Generate(pipeline, mesh, Spec(), kPrompt, {.num_tokens = 8, .on_token = fail});
        }
        try {
            const auto go_on = [&](int32_t) { has_token.release(); };
            Generate(pipeline, mesh, Spec(), kPrompt, {.num_tokens = 8, .on_token = go_on});
        } catch (const comm::WaitError& waited) {
            error = waited.what();
            throw;
        }
    };
    EXPECT_THROW(OnEachRank(Case(TinyModelKind::kGpt2, 2), text), Error);
    // In one of the two agreements on the second token, whose length is another, or for the token itself.
    EXPECT_TRUE(error.starts_with("rank 0: rank 1 failed while this one waited for rank 1 in ") &&
                error.ends_with(", for token 2 of a text"))
        << error;
}

TEST(Generate, FreesTheCacheWhenItThrows) {
    OnEachRank(Case(TinyModelKind::kGpt2), [](PipelineParallel& pipeline, const comm::Mesh& mesh) {
        const int64_t before = mesh.device.allocator->stats().live_bytes;
        const auto fail = [](int32_t) { throw std::runtime_error("no more"); };
        EXPECT_THROW(Generate(pipeline, mesh, Spec(), kPrompt, {.num_tokens = 8, .on_token = fail}),
                     std::runtime_error);
        EXPECT_EQ(mesh.device.allocator->stats().live_bytes, before);
        EXPECT_EQ(Generate(pipeline, mesh, Spec(), kPrompt, {.num_tokens = 8, .seed = 1}),
                  Text(Case(TinyModelKind::kGpt2), {.num_tokens = 8, .seed = 1}));
    });
}

TEST(CheckPrompt, RefusesTokensThatTheModelHasNot) {
    EXPECT_NO_THROW(CheckPrompt(Spec(), std::vector<int32_t>{0, 10}));
    EXPECT_THROW(CheckPrompt(Spec(), std::vector<int32_t>{}), Error);
    EXPECT_THROW(CheckPrompt(Spec(), std::vector<int32_t>{3, 11}), Error);
    EXPECT_THROW(CheckPrompt(Spec(), std::vector<int32_t>{-1}), Error);
}

TEST(EncodePrompt, BeginsAsADocumentDoes) {
    const data::ByteTokenizer bytes;  // has no token for that
    EXPECT_EQ(EncodePrompt("ab", bytes), (std::vector<int32_t>{'a', 'b'}));
    EXPECT_EQ(EncodePrompt("", bytes), std::vector<int32_t>{'\n'});
    /// 256 begins a text.
    class WithBegin : public data::ByteTokenizer {
     public:
        std::optional<int32_t> begin_of_text() const override { return 256; }
        const SpecialTokens& special_tokens() const override { return special_; }

     private:
        SpecialTokens special_ = {{"<begin>", 256}};
    };
    const WithBegin tokenizer;
    EXPECT_EQ(EncodePrompt("ab", tokenizer), (std::vector<int32_t>{256, 'a', 'b'}));
    EXPECT_EQ(EncodePrompt("<begin>ab", tokenizer), (std::vector<int32_t>{256, 'a', 'b'}));
    EXPECT_EQ(EncodePrompt("", tokenizer), std::vector<int32_t>{256});
}

}  // namespace
}  // namespace infini_train
