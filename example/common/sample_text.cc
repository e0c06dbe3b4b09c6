#include "example/common/sample_text.h"

#include <cstdint>
#include <vector>

#include "example/common/generate.h"

namespace infini_train {
void CheckText(const ProgramOptions& options, const ModelSpec& model, const data::Tokenizer& tokenizer) {
    CheckPrompt(model, EncodePrompt(options.prompt, tokenizer));
}

std::string SampleText(const RunPlan& plan, const comm::Mesh& mesh, nn::parallel::PipelineParallel& pipeline) {
    const ProgramOptions& options = *plan.options;
    const std::vector<int32_t> tokens =
        Generate(pipeline, mesh, *plan.model, EncodePrompt(options.prompt, *plan.tokenizer),
                 {.num_tokens = options.text_length,
                  .temperature = options.temperature,
                  .top_k = options.top_k,
                  .top_p = options.top_p,
                  .seed = options.seed});
    return plan.tokenizer->Decode(tokens);
}

}  // namespace infini_train
