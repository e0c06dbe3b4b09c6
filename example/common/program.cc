#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "glog/logging.h"

#include "example/common/flags.h"
#include "example/common/model.h"
#include "example/common/pipeline_setup.h"
#include "example/common/run_fingerprint.h"
#include "example/common/sample_text.h"
#include "example/common/stop_signal.h"
#include "example/common/train_loop.h"
#include "infini_train/include/checkpoint/training_state.h"
#include "infini_train/include/comm/process_place.h"
#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/error_text.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/data/token_dataset.h"
#include "infini_train/include/data/tokenizer.h"

namespace infini_train {
namespace {

/// What a run reads: opened before the model is built, so that a wrong file is refused at once.
struct Datasets {
    std::unique_ptr<data::TokenDataset> train = nullptr;
    std::unique_ptr<data::TokenDataset> validation = nullptr;  // null without one
};

void CheckSequenceLength(const ProgramOptions& options, const ModelSpec& model) {
    if (options.sequence_length > model.block_size) {
        throw Error({.where = "--sequence_length",
                     .what = "longer than the model's block",
                     .got = StrCat(options.sequence_length),
                     .wanted = StrCat("at most ", model.block_size)});
    }
}

std::unique_ptr<data::TokenDataset> OpenDataset(const std::string& path, const ProgramOptions& options,
                                                const ModelSpec& model, int64_t min_rows) {
    auto dataset = std::make_unique<data::TokenDataset>(path, options.sequence_length);
    dataset->CheckHasRows(min_rows);
    CheckSequenceLength(options, model);
    dataset->CheckVocab(model.vocab_size);
    return dataset;
}

Datasets OpenDatasets(const ProgramOptions& options, const ModelSpec& model, const PipelineSetup& setup) {
    if (options.input_bin.empty()) {
        throw Error({.where = "--input_bin",
                     .what =
                         "no tokens to train on; make a file with 'find . -name \"*.md\" | xargs ./tokenize --output "
                         "tokens.bin', then pass '--input_bin tokens.bin'"});
    }
    Datasets datasets = {.train =
                             OpenDataset(options.input_bin, options, model, setup.rows_per_step(options.batch_size))};
    if (options.shuffle) {
        datasets.train->Shuffle(options.seed);
    }
    if (!options.input_val_bin.empty()) {
        datasets.validation = OpenDataset(options.input_val_bin, options, model, options.batch_size);
    }
    return datasets;
}

/// Of the text that the run will write; null where it writes none. Before the training, not after it: the text can be
/// written.
std::unique_ptr<data::Tokenizer> OpenTokenizer(const ProgramOptions& options, const ModelSpec& model) {
    if (options.prompt.empty() && options.sample_every == 0) {
        return nullptr;
    }
    std::unique_ptr<data::Tokenizer> tokenizer = data::MakeTokenizer(options.tokenizer);
    if (model.vocab_size > tokenizer->vocab_size()) {
        throw Error({.where = "--tokenizer " + options.tokenizer,
                     .what = "cannot write the tokens of this model as text; leave out --prompt and --sample_every",
                     .got = StrCat("a vocabulary of ", model.vocab_size),
                     .wanted = StrCat("at most ", tokenizer->vocab_size())});
    }
    CheckText(options, model, *tokenizer);
    return tokenizer;
}

/// Writing a file anew must not empty one that the run reads, nor one that it writes, too.
void CheckOutputs(const ProgramOptions& options) {
    if (!options.save.empty() && !options.dry_run) {  // other files may be meant to lie there
        std::error_code none;                         // where it cannot be made, saving says so
        std::filesystem::create_directories(options.save, none);
    }
    std::vector<std::pair<std::string, std::string>> outputs = {
        {"--metrics_file", options.metrics_file}, {"--report", options.report}, {"--plan_json", options.plan_json}};
    for (const std::string& path : options.timeline) {
        outputs.emplace_back("--timeline", path);
    }
    const std::vector<std::string> inputs = {options.input_bin, options.input_val_bin, options.llmc_filepath,
                                             options.pipeline_schedule};
    for (size_t i = 0; i < outputs.size(); ++i) {
        const auto& [flag, path] = outputs[i];
        std::error_code none;
        for (const std::string& input : inputs) {
            if (!path.empty() && !input.empty() && std::filesystem::equivalent(path, input, none)) {
                throw Error({.where = flag + " " + path, .what = "is also an input of this run"});
            }
        }
        for (size_t other = 0; other < i; ++other) {
            if (!path.empty() && path == outputs[other].second) {
                throw Error({.where = flag + " " + path, .what = "is also the file of " + outputs[other].first});
            }
        }
        if (!path.empty() && std::filesystem::is_directory(path, none)) {
            throw Error({.where = flag + " " + path, .what = "is a folder; pass a file"});
        }
        // Now, and not when a run of days has ended.
        const std::filesystem::path folder = std::filesystem::path(path).parent_path();
        if (!folder.empty() && !std::filesystem::is_directory(folder, none)) {
            throw Error({.where = flag + " " + path, .what = "there is no folder " + folder.string()});
        }
    }
}

/// Says so when the ranks will not fit into the memory that is free now.
void NoteShortMemory(const PipelineSetup& setup, const nn::parallel::MemoryPrediction& prediction) {
    int64_t wanted = 0;
    for (const int64_t bytes : prediction.peak_bytes) {
        wanted += bytes * setup.mesh.data;
    }
    const int64_t free_bytes = sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE);
    if (wanted > free_bytes) {
        const bool keeps_all = setup.schedule_name == "gpipe" || setup.schedule_name == "looped_bfs";
        std::printf("note: all ranks together are predicted to need %.1f MiB, %.1f MiB are free%s\n",
                    static_cast<double>(wanted) / 1048576.0, static_cast<double>(free_bytes) / 1048576.0,
                    keeps_all ? "; --pipeline_schedule 1f1b keeps fewer micro-batches at once" : "");
    }
}

/// What was decided before any rank starts.
void PrintDecisions(const ProgramOptions& options, const PipelineSetup& setup,
                    const nn::parallel::MemoryPrediction& prediction, const std::string& transport_note) {
    for (const std::string& note :
         {setup.layout_note.empty() ? "" : "layout: " + setup.layout_note, setup.process.note, transport_note}) {
        if (!note.empty()) {
            std::printf("%s\n", note.c_str());
        }
    }
    if (options.print_plan || (options.dry_run && options.plan_json.empty())) {
        PrintPlan(setup, prediction);
    }
    if (!options.plan_json.empty()) {
        WritePlanJson(options.plan_json, setup, prediction);
    }
    if (options.device == DeviceType::kCPU) {
        NoteShortMemory(setup, prediction);
    }
}

/// What a graph records is replayed as it is: on other ranks, and with other random numbers, a step is another.
void CheckCudaGraph(const ProgramOptions& options, const PipelineSetup& setup) {
    const auto refuse = [](const std::string& got, const std::string& wanted) {
        throw Error({.where = "--cuda_graph", .what = "cannot record such a step", .got = got, .wanted = wanted});
    };
    if (!options.cuda_graph) {
        return;
    }
    if (options.device != DeviceType::kCUDA) {
        refuse("--device cpu", "--device cuda");
    }
    if (setup.mesh.num_ranks() > 1) {
        refuse(StrCat(setup.mesh.num_ranks(), " ranks"), "one rank");
    }
    if (options.dropout != 0.0f) {
        refuse(StrCat("--dropout ", options.dropout), "--dropout 0");
    }
}

bool IsTraining(const ProgramOptions& options) {
    return options.num_iteration > 0 && !options.dry_run;
}

void Run(const ProgramOptions& options, ModelFactory make_model) {
    const comm::ProcessPlace process = comm::ReadProcessPlace();
    if (process.index == 0) {  // the others write none; their hosts need no such folders
        CheckOutputs(options);
    }
    const bool is_training = IsTraining(options);
    const ModelSpec model = make_model(options);
    if (options.dry_run) {
        CheckSequenceLength(options, model);
    }
    const PipelineSetup setup = MakePipelineSetup(options, model, process);
    comm::RanksOptions ranks = {.shape = setup.mesh,
                                .process = setup.process,
                                .device = options.device,
                                .transport = options.transport,
                                .timeout_s = options.timeout_s,
                                .threads_per_rank = setup.threads_per_rank};
    const std::string transport_note = options.dry_run ? "" : comm::ChooseTransport(ranks).note;
    CheckCudaGraph(options, setup);
    const Datasets datasets = is_training ? OpenDatasets(options, model, setup) : Datasets{};
    const std::unique_ptr<data::Tokenizer> tokenizer = options.dry_run ? nullptr : OpenTokenizer(options, model);
    std::optional<checkpoint::TrainingState> start;
    if (is_training && !options.load.empty()) {
        start = checkpoint::ReadTrainingState(options.load);
    }
    const nn::parallel::MemoryPrediction prediction = PredictMemory(setup, model, options);
    if (setup.process.index == 0) {
        PrintDecisions(options, setup, prediction, transport_note);
    }
    if (options.dry_run) {
        return;
    }
    const RunPlan plan = {.options = &options,
                          .model = &model,
                          .setup = &setup,
                          .prediction = &prediction,
                          .train = datasets.train.get(),
                          .validation = datasets.validation.get(),
                          .tokenizer = tokenizer.get(),
                          .start = start.has_value() ? &*start : nullptr};
    if (setup.process.num_processes > 1) {
        ranks.fingerprint = RunFingerprint(plan, FlagsFingerprint());
    }
    comm::RunRanks(ranks, [&plan](const comm::Mesh& mesh) { RunRank(plan, mesh); });
}

void FlushStdout() {
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
    // To the end: the launcher of a run that has failed sends one, which must not cut off the line that says why.
    std::unique_ptr<StopSignals> signals;
    try {
        ProgramOptions options;
        if (ParseFlags(argc, argv, &options)) {
            // Where nothing is trained nothing is lost, and a signal ends the process as usual.
            signals = IsTraining(options) ? std::make_unique<StopSignals>() : nullptr;
            Run(options, make_model);
        }
        FlushStdout();
        return 0;
    } catch (const Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return error.exit_code();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", ErrorText(error).c_str());
        return 1;
    }
}

}  // namespace infini_train
