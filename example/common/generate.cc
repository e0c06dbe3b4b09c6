#include "example/common/generate.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/core/random.h"
#include "infini_train/include/kernels/cast.h"

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

/// The token where the running sum of the probabilities passes a uniform number.
int32_t Sample(const std::vector<float>& logits, float temperature, float uniform) {
    const float largest = *std::max_element(logits.begin(), logits.end());
    std::vector<double> weights;
    double total = 0.0;
    for (const float logit : logits) {
        weights.push_back(std::exp(static_cast<double>(logit - largest) / static_cast<double>(temperature)));
        total += weights.back();
    }
    double left = static_cast<double>(uniform) * total;
    for (size_t token = 0; token < weights.size(); ++token) {
        left -= weights[token];
        if (left < 0.0) {
            return static_cast<int32_t>(token);
        }
    }
    return static_cast<int32_t>(weights.size() - 1);
}

}  // namespace

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
    const RandomStream random = {.seed = options.seed, .stream = StreamOf("generate")};
    const auto next = Tensor::Empty({1}, DataType::kInt32, mesh.device);
    std::vector<int32_t> tokens(prompt.begin(), prompt.end());
    for (int i = 0; i < options.num_tokens; ++i) {
        const auto window = std::min(static_cast<int64_t>(tokens.size()), model.block_size);
        const std::vector<int32_t> seen(tokens.end() - window, tokens.end());
        const TensorList outputs = pipeline.Forward({Tensor::FromVector(seen, {1, window}, mesh.device)});
        if (!outputs.empty()) {
            const std::vector<float> logits = LastRow(*outputs[0], model.vocab_size);
            const int32_t token =
                options.temperature == 0.0f
                    ? static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin())
                    : Sample(logits, options.temperature, Uniform(random, static_cast<uint64_t>(i)));
            CopyFromHost(&token, *next);
        }
        mesh.pipeline->Broadcast(*next, pipeline.stage().last_rank());
        tokens.push_back(next->ToVector<int32_t>()[0]);
        mesh.pipeline->ThrowIfFailed();
    }
    return tokens;
}

}  // namespace infini_train
