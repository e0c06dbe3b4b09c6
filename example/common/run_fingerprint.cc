#include "example/common/run_fingerprint.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <set>
#include <span>
#include <sstream>
#include <string_view>
#include <vector>

#define XXH_INLINE_ALL  // the header is the library
#include "xxhash.h"

#include "infini_train/include/common/str_cat.h"

namespace infini_train {
namespace {

// Other data differs in nearly every row.
constexpr int64_t kRowsOfADataset = 64;
// Next to each other: of a matrix that is stored transposed they are read as one.
constexpr int64_t kRowsOfAParameter = 4;

/// Flags that may differ: places of files whose content is compared, what changes no number, what process 0 alone
/// writes, and the device, of which the one that was chosen is compared.
constexpr std::array kMayDiffer = {"input_bin",   "input_val_bin", "llmc_filepath",    "hf_dir",
                                   "load",        "tokenizer",     "threads_per_rank", "metrics_file",
                                   "tensorboard", "print_plan",    "plan_json",        "device"};

/// Flags whose value is process 0's alone, but for which all ranks do something when they are set.
constexpr std::array kAllOrNone = {"timeline", "report"};

bool IsIn(const auto& flags, std::string_view flag) {
    return std::find(flags.begin(), flags.end(), flag) != flags.end();
}

class Digest {
 public:
    Digest() { XXH3_64bits_reset(&state_); }

    template <typename T>
    void Add(std::span<const T> values) {
        XXH3_64bits_update(&state_, values.data(), values.size_bytes());
    }
    void Add(int64_t value) { Add(std::span<const int64_t>(&value, 1)); }
    /// Two texts after each other are not the same as one.
    void Add(const std::string& text) {
        Add(static_cast<int64_t>(text.size()));
        Add(std::span<const char>(text));
    }

    std::string Text() const {
        char text[17] = {};
        std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(XXH3_64bits_digest(&state_)));
        return text;
    }

 private:
    XXH3_state_t state_ = {};
};

/// Up to num_wanted of num_rows, the first and the last among them.
std::set<int64_t> SomeRows(int64_t num_rows, int64_t num_wanted) {
    std::set<int64_t> rows;
    for (int64_t i = 0; i < num_wanted; ++i) {
        rows.insert((num_rows - 1) * i / (num_wanted - 1));
    }
    return rows;
}

std::string FlagLines(const std::string& flags) {
    std::string lines;
    std::istringstream all(flags);
    for (std::string line; std::getline(all, line);) {
        const std::string flag = line.substr(0, line.find('='));
        if (IsIn(kAllOrNone, flag)) {
            lines += flag + (line.size() == flag.size() + 1 ? "=\n" : "=a file\n");
        } else if (!IsIn(kMayDiffer, flag)) {
            lines += line + "\n";
        }
    }
    return lines;
}

std::string DatasetText(const data::TokenDataset* dataset) {
    if (dataset == nullptr) {
        return "none";
    }
    Digest digest;
    const int64_t length = dataset->sequence_length();
    std::vector<int32_t> inputs(static_cast<size_t>(length));
    std::vector<int32_t> targets(inputs.size());
    for (const int64_t row : SomeRows(dataset->num_rows(), kRowsOfADataset)) {
        dataset->ReadRows(row, 1, inputs.data(), targets.data());
        digest.Add(std::span<const int32_t>(inputs));
    }
    return StrCat(dataset->num_tokens(), " tokens in ", dataset->shards().size(), " files, content ", digest.Text());
}

std::string WeightsText(const ModelSpec& model) {
    if (model.weights == nullptr) {
        return "initial values";
    }
    Digest digest;
    std::vector<float> values;
    for (const checkpoint::NamedShape& parameter : model.hf->parameters()) {
        const Shape& shape = parameter.shape;
        const int64_t num_rows = std::min(kRowsOfAParameter, shape[0]);
        const int64_t first = (shape[0] - num_rows) / 2;
        values.resize(static_cast<size_t>(NumElements(shape) / shape[0] * num_rows));
        digest.Add(parameter.name);
        model.weights->ReadRows(parameter.name, first, first + num_rows, values.data());
        digest.Add(std::span<const float>(values));
    }
    return "content " + digest.Text();
}

std::string ModelText(const ModelSpec& model) {
    Digest digest;
    digest.Add(model.hf->ConfigJson());
    return StrCat(model.num_layers, " layers, ", model.num_channels, " channels, block ", model.block_size,
                  ", vocabulary ", model.vocab_size, ", config ", digest.Text());
}

std::string PlanText(const PipelineSetup& setup) {
    Digest digest;
    for (const nn::parallel::ActionList& actions : setup.schedule->PlanAllRanks(setup.shape)) {
        digest.Add(static_cast<int64_t>(actions.size()));
        for (const nn::parallel::Action& action : actions) {
            const std::array<int, 5> numbers = {static_cast<int>(action.kind), action.chunk, action.microbatch,
                                                static_cast<int>(action.direction), action.slot};
            digest.Add(std::span<const int>(numbers));
        }
    }
    return StrCat("P ", setup.shape.num_ranks, ", M ", setup.shape.num_microbatches, ", V ", setup.shape.num_chunks,
                  ", DP ", setup.mesh.data, ", layers ", nn::parallel::ToString(setup.layout), ", order ",
                  digest.Text());
}

std::string TokenizerText(const RunPlan& plan) {
    if (plan.tokenizer == nullptr) {
        return "none";
    }
    Digest digest;
    const std::vector<int32_t> prompt = plan.tokenizer->EncodeWithSpecials(plan.options->prompt);
    digest.Add(std::span<const int32_t>(prompt));
    return StrCat("vocabulary ", plan.tokenizer->vocab_size(), ", prompt of ", prompt.size(), " tokens ",
                  digest.Text());
}

}  // namespace

std::string RunFingerprint(const RunPlan& plan, const std::string& flags) {
    return StrCat("version=", INFINI_VERSION, "\n", FlagLines(flags),
                  "device=", plan.options->device == DeviceType::kCUDA ? "cuda" : "cpu",
                  "\nconfig=", ModelText(*plan.model), "\nweights=", WeightsText(*plan.model),
                  "\nstep=", plan.start == nullptr ? 0 : plan.start->step, "\nplan=", PlanText(*plan.setup),
                  "\ntokens=", DatasetText(plan.train), "\nvalidation tokens=", DatasetText(plan.validation),
                  "\ntokens of text=", TokenizerText(plan), "\n");
}

}  // namespace infini_train
