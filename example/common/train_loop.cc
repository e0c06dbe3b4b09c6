#include <fcntl.h>
#include <omp.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "glog/logging.h"

#include "example/common/flags.h"
#include "example/common/generate.h"
#include "example/common/metrics.h"
#include "example/common/model.h"
#include "example/common/train_step.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/data/byte_tokenizer.h"
#include "infini_train/include/data/token_dataset.h"
#include "infini_train/include/optimizer/adamw.h"
#include "infini_train/include/optimizer/sgd.h"

namespace infini_train {
namespace {

std::unique_ptr<optimizers::Optimizer> MakeOptimizer(const ProgramOptions& options, const TensorList& parameters) {
    if (options.use_adamw) {
        return std::make_unique<optimizers::AdamW>(parameters,
                                                   optimizers::AdamW::Options{.beta1 = options.beta1,
                                                                              .beta2 = options.beta2,
                                                                              .eps = options.eps,
                                                                              .weight_decay = options.weight_decay});
    }
    return std::make_unique<optimizers::Sgd>(
        parameters, optimizers::Sgd::Options{.momentum = options.momentum, .weight_decay = options.weight_decay});
}

BatchShape ShapeOf(const ProgramOptions& options) {
    return {.batch_size = options.batch_size,
            .sequence_length = options.sequence_length,
            .num_microbatches = options.num_microbatches};
}

/// What a run reads: opened before the model is built, so that a wrong file is refused at once.
struct Datasets {
    std::unique_ptr<data::TokenDataset> train;
    std::unique_ptr<data::TokenDataset> validation;  // null without one
};

std::unique_ptr<data::TokenDataset> OpenDataset(const std::string& path, const BatchShape& shape, int64_t min_rows) {
    auto dataset = std::make_unique<data::TokenDataset>(path, shape.sequence_length);
    dataset->CheckHasRows(min_rows);
    return dataset;
}

Datasets OpenDatasets(const ProgramOptions& options) {
    if (options.input_bin.empty()) {
        throw Error({.where = "--input_bin",
                     .what =
                         "no tokens to train on; make a file with 'find . -name \"*.md\" | xargs ./tokenize --output "
                         "tokens.bin', then pass '--input_bin tokens.bin'"});
    }
    const BatchShape shape = ShapeOf(options);
    Datasets datasets = {.train = OpenDataset(options.input_bin, shape, shape.rows_per_step()), .validation = nullptr};
    if (!options.input_val_bin.empty()) {
        datasets.validation = OpenDataset(options.input_val_bin, shape, shape.batch_size);
    }
    return datasets;
}

void CheckDatasets(const Datasets& datasets, const Model& model, const ProgramOptions& options) {
    if (options.sequence_length > model.block_size) {
        throw Error({.where = "--sequence_length",
                     .what = "longer than the model's block",
                     .got = StrCat(options.sequence_length),
                     .wanted = StrCat("at most ", model.block_size)});
    }
    datasets.train->CheckVocab(model.vocab_size);
    if (datasets.validation != nullptr) {
        datasets.validation->CheckVocab(model.vocab_size);
    }
}

/// step 0: before any training, just the text.
void PrintText(const Model& model, const ProgramOptions& options, int64_t step) {
    const data::ByteTokenizer tokenizer;
    // Without a prompt a text begins as a document does.
    const std::string prompt = options.prompt.empty() ? "\n" : options.prompt;
    const std::vector<int32_t> tokens =
        Generate(model, tokenizer.Encode(prompt),
                 {.num_tokens = options.text_length, .temperature = options.temperature, .seed = options.seed});
    const std::string text = tokenizer.Decode(tokens);
    if (step > 0) {
        std::printf("step %4lld | text:\n", static_cast<long long>(step));
    }
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::printf("\n");
    std::fflush(stdout);
}

void CheckFinite(const StepMetrics& metrics) {
    if (!std::isfinite(metrics.loss) || !std::isfinite(metrics.grad_norm)) {
        throw Error({.where = StrCat("step ", metrics.step),
                     .what = "the loss or the gradient norm is not finite; training ends here",
                     .got = StrCat("loss ", metrics.loss, ", norm ", metrics.grad_norm),
                     .kind = Error::Kind::kRuntime});
    }
}

void Train(const Model& model, const Datasets& datasets, const ProgramOptions& options, const Device& device) {
    const BatchShape shape = ShapeOf(options);
    const data::TokenDataset& dataset = *datasets.train;
    MetricsFile metrics_file(options.metrics_file);
    const std::unique_ptr<optimizers::Optimizer> optimizer = MakeOptimizer(options, model.net->Parameters());
    const bool is_watched = isatty(STDOUT_FILENO) == 1;
    std::printf("%lld tokens a step in %d micro-batch%s of %lld x %lld; %lld steps an epoch\n",
                static_cast<long long>(shape.tokens_per_step()), shape.num_microbatches,
                shape.num_microbatches == 1 ? "" : "es", static_cast<long long>(shape.batch_size),
                static_cast<long long>(shape.sequence_length),
                static_cast<long long>(dataset.num_rows() / shape.rows_per_step()));
    const std::string drop_note = dataset.DropNote(shape.rows_per_step());
    if (!drop_note.empty()) {
        std::printf("note: %s\n", drop_note.c_str());
    }
    for (int64_t step = 0; step < options.num_iteration; ++step) {
        const auto start = std::chrono::steady_clock::now();
        optimizer->set_lr(optimizers::LearningRate(options.lr, step));
        const StepResult result = TrainStep(model, ReadStep(dataset, shape, step, device), shape.batch_size, step,
                                            options.grad_clip, *optimizer);
        const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
        const StepMetrics metrics = {
            .step = step + 1,
            .loss = result.loss,
            .grad_norm = result.grad_norm,
            .lr = optimizer->lr(),
            .ms = elapsed.count(),
            .tokens_per_s = static_cast<double>(shape.tokens_per_step()) / elapsed.count() * 1e3,
            .peak_bytes = device.allocator->stats().peak_bytes};
        std::printf("%s\n", StepLine(metrics, options.num_iteration, is_watched).c_str());
        std::fflush(stdout);
        metrics_file.WriteStep(metrics);
        CheckFinite(metrics);
        const bool is_last = step + 1 == options.num_iteration;
        if (datasets.validation != nullptr &&
            (is_last || (options.val_loss_every > 0 && (step + 1) % options.val_loss_every == 0))) {
            const float val_loss = ValidationLoss(model, *datasets.validation, shape, options.val_batches);
            std::printf("step %4lld | val loss %.6f\n", static_cast<long long>(step + 1),
                        static_cast<double>(val_loss));
            metrics_file.WriteValidation(step + 1, val_loss);
        }
        if (options.sample_every > 0 && (step + 1) % options.sample_every == 0 && !is_last) {
            PrintText(model, options, step + 1);
        }
    }
}

/// Before the training, not after it: a text can be written.
void CheckText(const Model& model, const ProgramOptions& options) {
    const data::ByteTokenizer tokenizer;
    if ((!options.prompt.empty() || options.sample_every > 0) && model.vocab_size > tokenizer.vocab_size()) {
        throw Error({.where = "--tokenizer byte",
                     .what = "cannot write the tokens of this model as text; leave out --prompt and --sample_every",
                     .got = StrCat("a vocabulary of ", model.vocab_size),
                     .wanted = StrCat("at most ", tokenizer.vocab_size())});
    }
    if (!options.prompt.empty()) {
        CheckPrompt(model, tokenizer.Encode(options.prompt));
    }
}

/// Starting the metrics anew must not empty a file that the run reads.
void CheckMetricsFile(const ProgramOptions& options) {
    for (const std::string& input : {options.input_bin, options.input_val_bin, options.llmc_filepath}) {
        std::error_code none;
        if (!input.empty() && std::filesystem::equivalent(options.metrics_file, input, none)) {
            throw Error({.where = "--metrics_file " + options.metrics_file, .what = "is also an input of this run"});
        }
    }
}

void Run(const ProgramOptions& options, ModelFactory make_model) {
    if (options.threads_per_rank > 0) {
        omp_set_num_threads(options.threads_per_rank);
    }
    CheckMetricsFile(options);
    const bool is_training = options.num_iteration > 0;
    const Datasets datasets = is_training ? OpenDatasets(options) : Datasets{};
    const Device device = MakeCpuDevice();
    const Model model = make_model(options, device);
    if (is_training) {
        CheckDatasets(datasets, model, options);
    }
    CheckText(model, options);
    model.dropout_position->seed = options.seed;
    model.net->To(options.dtype);
    int64_t num_parameters = 0;
    for (const std::shared_ptr<Tensor>& parameter : model.net->Parameters()) {
        num_parameters += parameter->num_elements();
    }
    std::printf("%s: %lld parameters, %s, device %s, %d threads\n", model.name.c_str(),
                static_cast<long long>(num_parameters), std::string(Name(options.dtype)).c_str(),
                ToString(device).c_str(), omp_get_max_threads());
    for (const std::string& note : model.notes) {
        std::printf("note: %s\n", note.c_str());
    }
    if (is_training) {
        Train(model, datasets, options, device);
    }
    if (!options.prompt.empty() || options.sample_every > 0) {
        PrintText(model, options, options.num_iteration);
    }
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
        throw Error({.where = "stdout", .what = "cannot be written", .kind = Error::Kind::kRuntime});
    }
}

/// A standard stream that the caller closed is opened on nothing: a file of ours would otherwise take its number, and
/// the step lines would go there.
void OpenStandardStreams() {
    while (true) {
        const int file = open("/dev/null", O_RDWR);
        if (file < 0 || file > STDERR_FILENO) {
            close(file);
            return;
        }
    }
}

}  // namespace

int RunProgram(int argc, char** argv, ModelFactory make_model) {
    OpenStandardStreams();
    FLAGS_logtostderr = true;
    google::InitGoogleLogging(argv[0]);
    try {
        ProgramOptions options;
        if (ParseFlags(argc, argv, &options)) {
            Run(options, make_model);
        }
        return 0;
    } catch (const Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return error.exit_code();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "unexpected: %s\n", error.what());
        return 1;
    }
}

}  // namespace infini_train
