#include "example/common/sample_text.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "example/common/generate.h"

namespace infini_train {
namespace {

std::vector<int32_t> PromptTokens(const std::string& prompt, const data::Tokenizer& tokenizer) {
    std::vector<int32_t> tokens = prompt.empty() ? std::vector<int32_t>{} : tokenizer.EncodeWithSpecials(prompt);
    if (const std::optional<int32_t> begin = tokenizer.begin_of_text();
        begin.has_value() && (tokens.empty() || tokens[0] != *begin)) {
        tokens.insert(tokens.begin(), *begin);
    }
    return tokens.empty() ? tokenizer.Encode("\n") : tokens;
}

}  // namespace

void CheckText(const ProgramOptions& options, const ModelSpec& model, const data::Tokenizer& tokenizer) {
    CheckPrompt(model, PromptTokens(options.prompt, tokenizer));
}

std::string SampleText(const RunPlan& plan, const comm::Mesh& mesh, nn::parallel::PipelineParallel& pipeline) {
    const ProgramOptions& options = *plan.options;
    const std::vector<int32_t> tokens =
        Generate(pipeline, mesh, *plan.model, PromptTokens(options.prompt, *plan.tokenizer),
                 {.num_tokens = options.text_length,
                  .temperature = options.temperature,
                  .top_k = options.top_k,
                  .top_p = options.top_p,
                  .seed = options.seed});
    return plan.tokenizer->Decode(tokens);
}

}  // namespace infini_train
