#include "example/common/generate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "example/common/sampling.h"
#include "infini_train/include/comm/wait_error.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/core/random.h"
#include "infini_train/include/kernels/cast.h"
#include "infini_train/include/nn/modules/kv_cache.h"

namespace infini_train {
namespace {

/// Of logits [1, T, padded vocabulary] those over the real vocabulary at the last position.
std::vector<float> LastRow(const Tensor& logits, int64_t vocab_size) {
    const int64_t length = logits.dim(1);
    const std::shared_ptr<Tensor> last = logits.View({length, logits.dim(-1)})->Slice(length - 1, length);
    const std::shared_ptr<Tensor> wide = Tensor::Empty(last->shape(), DataType::kFloat32, logits.device());
    kernels::cast(logits.device().type, *last, *wide);
    std::vector<float> row = wide->ToVector<float>();
    row.resize(static_cast<size_t>(vocab_size));
    for (const float logit : row) {
        if (!std::isfinite(logit)) {
            throw Error({.where = "text",
                         .what = "the model's logits are not finite: its weights hold a NaN or an infinity",
                         .kind = Error::Kind::kRuntime});
        }
    }
    return row;
}

/// In [0, 1), a multiple of 2^-53: of the choice of token i.
double UniformOf(const GenerateOptions& options, uint64_t i) {
    const RandomStream random = {.seed = options.seed, .stream = Combine(StreamOf("generate"), options.sample)};
    const std::array<uint32_t, 4> words = Philox(random, i);
    return static_cast<double>((uint64_t{words[0]} << 32 | words[1]) >> 11) * 0x1.0p-53;
}

bool HaveCaches(const std::vector<std::shared_ptr<nn::Module>>& chunks) {
    return std::all_of(chunks.begin(), chunks.end(), [](const std::shared_ptr<nn::Module>& chunk) {
        return dynamic_cast<const nn::CachedModule*>(chunk.get()) != nullptr;
    });
}

}  // namespace

std::vector<int32_t> EncodePrompt(const std::string& prompt, const data::Tokenizer& tokenizer) {
    std::vector<int32_t> tokens = prompt.empty() ? std::vector<int32_t>{} : tokenizer.EncodeWithSpecials(prompt);
    if (const std::optional<int32_t> begin = tokenizer.begin_of_text();
        begin.has_value() && (tokens.empty() || tokens[0] != *begin)) {
        tokens.insert(tokens.begin(), *begin);
    }
    return tokens.empty() ? tokenizer.Encode("\n") : tokens;
}

void CheckPrompt(const ModelSpec& model, std::span<const int32_t> prompt) {
    if (prompt.empty()) {
        throw Error({.where = "--prompt", .what = "is empty", .wanted = "at least one token to go on from"});
    }
    for (const int32_t token : prompt) {
        if (token < 0 || token >= model.vocab_size) {
            throw Error({.where = "--prompt",
                         .what = "holds a token that the model does not have",
                         .got = StrCat(token),
                         .wanted = StrCat("below ", model.vocab_size)});
        }
    }
}

std::vector<int32_t> Generate(nn::parallel::PipelineParallel& pipeline, const comm::Mesh& mesh, const ModelSpec& model,
                              std::span<const int32_t> prompt, const GenerateOptions& options) {
    CheckPrompt(model, prompt);
    const SamplingOptions sampling = {
        .temperature = options.temperature, .top_k = options.top_k, .top_p = options.top_p};
    const auto next = Tensor::Empty({1}, DataType::kInt32, mesh.device);
    std::vector<int32_t> tokens(prompt.begin(), prompt.end());
    const auto length = [&tokens] { return static_cast<int64_t>(tokens.size()); };
    std::optional<nn::KvCacheScope> cache;
    if (options.uses_cache && options.num_tokens > 0 && HaveCaches(pipeline.stage().chunks())) {
        // The last token is not looked at any more.
        const int64_t max_positions = std::min(length() + options.num_tokens - 1, model.block_size);
        cache.emplace(pipeline.stage().chunks(), max_positions, mesh.device);
    }
    int64_t num_seen = 0;
    for (int i = 0; i < options.num_tokens; ++i) {
        if (length() > model.block_size) {
            cache.reset();
        }
        const int64_t begin = cache.has_value() ? num_seen : std::max<int64_t>(0, length() - model.block_size);
        num_seen = length();
        const std::vector<int32_t> ids(tokens.begin() + begin, tokens.end());
        comm::WaitingAt(StrCat("for token ", i + 1, " of a text"), [&] {
            const TensorList outputs = pipeline.Forward({Tensor::FromVector(ids, {1, length() - begin}, mesh.device)});
            if (!outputs.empty()) {
                const int32_t token = SampleToken(LastRow(*outputs[0], model.vocab_size), sampling,
                                                  UniformOf(options, static_cast<uint64_t>(i)));
                CopyFromHost(&token, *next);
            }
            mesh.pipeline->Broadcast(*next, pipeline.stage().last_rank());
        });
        tokens.push_back(next->ToVector<int32_t>()[0]);
        mesh.pipeline->ThrowIfFailed();
        if (options.on_token != nullptr) {
            options.on_token(tokens.back());
        }
        if (tokens.back() == options.end_token) {
            break;
        }
    }
    return tokens;
}

}  // namespace infini_train
