#include "example/common/flags.h"

#include <array>
#include <span>
#include <sstream>

#include "gflags/gflags.h"

#include "example/common/command_line.h"
#include "example/common/flag_values.h"
#include "example/common/saved_flags.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

DEFINE_string(input_bin, "",
              "tokens to train on: a token file, a text file (.txt, one token a byte), or a quoted glob of shards");
DEFINE_string(input_val_bin, "", "tokens for the validation loss");
DEFINE_bool(shuffle, false, "take the rows of each epoch in a random order, which the seed and the epoch decide");
DEFINE_int32(val_loss_every, 0, "validation loss every N steps; 0: only after the last");
DEFINE_int32(val_batches, 20, "micro-batches of a validation");

DEFINE_string(model, "", "fresh start, random weights: tiny; gpt2: d12, d24, d36, d48; llama3: 1b, 8b");
DEFINE_string(llmc_filepath, "", "weights to start from: an llm.c .bin file, float32 or bfloat16");
DEFINE_string(hf_dir, "",
              "weights to start from: a Hugging Face folder, config.json and model.safetensors (or shards)");
DEFINE_string(load, "",
              "go on from a checkpoint: its folder, the folder of --save (the newest there), or latest: the newest in "
              "--save, and where there is none yet a start as the other flags say; flags that decide the numbers and "
              "are not given are the checkpoint's");
DEFINE_double(rope_scaling_factor, 8,
              "llama3: stretch of the rotary frequencies for an .bin file that asks for it but does not say "
              "how much (LLaMA-3.1: 8, 3.2: 32)");
DEFINE_uint64(seed, 42, "decides initial weights, dropout and sampling");
DEFINE_double(dropout, 0,
              "share of the embedding's and of each residual branch's elements that are dropped, in [0, 1)");
DEFINE_bool(recompute, false,
            "keep only the input of each layer and compute the layer again in the backward: less memory, more time");

DEFINE_int32(pipeline_parallel, 1, "stages that the layers are spread over, a rank each");
DEFINE_int32(
    nthread_per_process, 0,
    "ranks of a process, a thread each; all ranks together are a multiple of pipeline_parallel: replicas share the "
    "rows of a step; 0: pipeline_parallel, or 1 where a launcher (torchrun, mpirun, srun, run_local.sh) starts "
    "the processes");
DEFINE_string(pipeline_schedule, "",
              "gpipe, 1f1b, 1f1b_eager, interleaved, looped_bfs, or a plan file (.json, as --plan_json writes it); the "
              "numbers are the same for all; default: gpipe, or 1f1b on one rank");
DEFINE_int32(virtual_pipeline_parallel, 0,
             "chunks of layers a rank, for interleaved and looped_bfs; 0: 2 for those, 1 for the others");
DEFINE_string(pipeline_layout, "",
              "layers of each stage, \"3,3,2\"; auto: from measured times of a layer, the embedding and the head; "
              "default: as even as possible");
DEFINE_double(timeout_s, 600, "seconds that a rank waits for another before the run ends");

DEFINE_string(device, "auto", "cpu, cuda (a GPU a rank), or auto: cuda where the build and the machine have it");
DEFINE_string(
    transport, "auto",
    "between ranks on GPUs: nccl (a GPU a rank, or processes by scripts/run_local.sh), copy (rank threads of "
    "one process, on any number of GPUs); auto: nccl where it can be. On CPUs: copy, and gloo between processes");
DEFINE_bool(
    nondeterministic, false,
    "allow GPU kernels whose sums have no fixed order (the backward of attention): faster, and two runs differ");
DEFINE_bool(cuda_graph, false,
            "on one GPU: record a step's work once and replay it; the same numbers with less work for the host");
DEFINE_string(dtype, "float32",
              "float32, or bfloat16: weights and activations; master weights and gradients stay float32");
DEFINE_int32(threads_per_rank, 0, "OpenMP threads of a rank; 0: its share of the cores");

DEFINE_int64(batch_size, 4, "rows of a micro-batch");
DEFINE_int64(sequence_length, 64, "tokens of a row");
DEFINE_int64(total_batch_size, 0,
             "tokens of a step; each replica has total_batch_size / (batch_size x sequence_length x replicas) "
             "micro-batches; 0: one micro-batch a replica");
DEFINE_int32(num_iteration, 10, "optimizer steps; 0: no training, just the text for --prompt");

DEFINE_bool(overfit_single_batch, false, "train on the first step's rows again and again: the loss must go to 0");

DEFINE_string(optimizer, "adamw", "adamw or sgd");
DEFINE_double(learning_rate, 3e-4, "peak learning rate");
DEFINE_string(lr_schedule, "cosine",
              "constant, linear, cosine or wsd (stable, then linear over the last fifth); from the peak to "
              "final_lr_fraction of it");
DEFINE_int32(warmup_iterations, 0, "steps over which the learning rate rises to its peak");
DEFINE_int32(lr_decay_iterations, 0, "steps until the learning rate is at its end, warm-up included; 0: num_iteration");
DEFINE_double(final_lr_fraction, 1, "learning rate after the last step, as a fraction of the peak");
DEFINE_double(weight_decay, 0, "decay of parameters with two or more dimensions");
DEFINE_double(beta1, 0.9, "AdamW: memory of the gradient");
DEFINE_double(beta2, 0.95, "AdamW: memory of the squared gradient");
DEFINE_double(eps, 1e-8, "AdamW: added to the root of the squared gradient");
DEFINE_double(momentum, 0, "SGD: memory of the gradient; 0: plain");
DEFINE_double(grad_clip, 0, "largest global norm of the gradient; 0: no clipping");

DEFINE_string(on_nonfinite, "stop",
              "a loss or gradient norm that is not finite: stop, or skip (the step changes nothing; 10 in a row stop)");

DEFINE_string(
    save, "",
    "folder for checkpoints, one that all hosts see: after the last step, every save_every steps, and when a signal "
    "stops the run");
DEFINE_int32(save_every, 0, "steps between checkpoints; 0: only at the end");
DEFINE_int32(keep, 0, "newest checkpoints to keep; 0: all");
DEFINE_string(on_save_error, "continue",
              "a checkpoint that cannot be written: continue (say so, and train on) or stop");

DEFINE_string(
    tokenizer, "byte",
    "of --prompt and of generated text: byte (one token a byte), a file (tokenizer.json, .tiktoken, llm.c's .bin) "
    "or a folder (tokenizer.json, or vocab.json and merges.txt)");
DEFINE_string(prompt, "", "text that generation goes on from; written after the last step");
DEFINE_int32(text_length, 64, "tokens to generate");
DEFINE_double(temperature, 1, "of sampling; 0: always the likeliest token");
DEFINE_int32(top_k, 0, "sample among the k likeliest tokens alone; 0: all");
DEFINE_double(top_p, 1, "sample among the likeliest tokens that together have this probability; 1: all");
DEFINE_int32(sample_every, 0, "generate a text every N steps; 0: never");

DEFINE_string(
    metrics_file, "",
    "file with one JSON object a step: step, loss, grad_norm, lr, ms, tokens_per_s, peak_bytes; written anew, or "
    "after --load continued");
DEFINE_string(tensorboard, "", "folder for a TensorBoard event file with the curves of the run");
DEFINE_string(report, "", "HTML file to write at the end: configuration, curves, timeline of a step, memory by rank");
DEFINE_bool(dry_run, false, "plan, check and predict memory; no training, no --input_bin, no memory for parameters");
DEFINE_bool(print_plan, false, "print the pipeline's timeline at unit costs, its bubble and the memory of each rank");
DEFINE_string(plan_json, "", "file to write the plan to: order, start times, bubble, predicted bytes by rank");
DEFINE_string(
    timeline, "",
    "files for the last step's measured timeline, with commas between: a.json (Chrome trace, opens in Perfetto), "
    "b.svg (a figure, with the simulated timeline below)");

namespace infini_train {
namespace {

constexpr float kLeastEps = 1e-30f;  // with none, a parameter whose gradients are 0 divides 0 by 0
constexpr int kMaxRanks = 1024;      // of a process, and stages and chunks: plans are lists over all of them
constexpr int kMaxThreads = 1024;    // more than any host has; far more end in the OpenMP runtime, without a word

CommandLine ProgramCommandLine(const std::string& program) {
    return {
        .usage = "Trains a language model, or goes on from a prompt.\n\n  " + program +
                 " --model tiny --input_bin tokens.bin --num_iteration 100 --save checkpoints\n  " + program +
                 " --load checkpoints --num_iteration 200 --save checkpoints\n  " + program +
                 " --llmc_filepath weights.bin --num_iteration 0 --prompt \"Once\" --text_length 100 --temperature 0\n",
        .groups = {
            {"Data", {"input_bin", "input_val_bin", "val_loss_every", "val_batches", "shuffle", "tokenizer"}},
            {"Model",
             {"model", "llmc_filepath", "hf_dir", "load", "rope_scaling_factor", "seed", "dropout", "recompute"}},
            {"Pipeline",
             {"pipeline_parallel", "nthread_per_process", "pipeline_schedule", "virtual_pipeline_parallel",
              "pipeline_layout", "timeout_s"}},
            {"Device", {"device", "dtype", "transport", "nondeterministic", "cuda_graph", "threads_per_rank"}},
            {"Batch", {"batch_size", "sequence_length", "total_batch_size", "num_iteration", "overfit_single_batch"}},
            {"Optimizer",
             {"optimizer", "learning_rate", "lr_schedule", "warmup_iterations", "lr_decay_iterations",
              "final_lr_fraction", "weight_decay", "beta1", "beta2", "eps", "momentum", "grad_clip", "on_nonfinite"}},
            {"Checkpoints", {"save", "save_every", "keep", "on_save_error"}},
            {"Text", {"prompt", "text_length", "temperature", "top_k", "top_p", "sample_every"}},
            {"Output", {"metrics_file", "tensorboard", "report", "timeline", "dry_run", "print_plan", "plan_json"}},
        }};
}

void CheckMicrobatch(int64_t batch_size, int64_t sequence_length) {
    int64_t tokens = 0;
    if (__builtin_mul_overflow(batch_size, sequence_length, &tokens) || tokens > INT32_MAX) {
        RefuseFlag("batch_size", "too many tokens in a micro-batch", StrCat(batch_size, " rows of ", sequence_length),
                   StrCat("at most ", INT32_MAX));
    }
}

std::vector<std::string> TimelinePaths() {
    std::vector<std::string> paths;
    std::istringstream list(FLAGS_timeline);
    for (std::string path; std::getline(list, path, ',');) {
        if (!path.ends_with(".json") && !path.ends_with(".svg")) {
            RefuseFlag("timeline", "unknown kind of file", path, "a name that ends in .json or .svg");
        }
        paths.push_back(path);
    }
    if (!paths.empty() && FLAGS_num_iteration == 0) {
        RefuseFlag("timeline", "there is no step to draw", "--num_iteration 0", "at least 1");
    }
    return paths;
}

DeviceType ChosenDevice() {
    if (FLAGS_device == "cpu" || (FLAGS_device == "auto" && NumCudaDevices() == 0)) {
        return DeviceType::kCPU;
    }
    if (FLAGS_device != "cuda" && FLAGS_device != "auto") {
        RefuseFlag("device", "unknown value", FLAGS_device, "auto, cpu or cuda");
    }
    if (NumCudaDevices() == 0) {
        throw Error({.where = "--device cuda",
                     .what = HasCuda() ? "this machine has no GPU, or its driver does not answer"
                                       : "this build has no CUDA; configure with -DINFINI_USE_CUDA=ON"});
    }
    return DeviceType::kCUDA;
}

/// Where the weights come from: one of the four.
void CheckStart() {
    constexpr std::array kStarts = {"model", "llmc_filepath", "hf_dir", "load"};
    const char* first = nullptr;
    for (const char* flag : kStarts) {
        const std::string value = FlagValue(flag);
        if (!value.empty() && first != nullptr) {
            RefuseFlag(first, std::string("excludes --") + flag, FlagValue(first), "one of the two");
        }
        first = value.empty() ? first : flag;
    }
    if (first == nullptr) {
        throw Error({.where = "--model",
                     .what = "no model",
                     .wanted = "--model tiny for random weights, or --llmc_filepath FILE, --hf_dir DIR, --load DIR"});
    }
}

void CheckSave() {
    for (const char* flag : {"save_every", "keep"}) {
        if (FlagValue(flag) != "0" && FLAGS_save.empty()) {
            RefuseFlag(flag, "needs --save", FlagValue(flag), "a folder for checkpoints");
        }
    }
}

ProgramOptions CheckedOptions() {
    CheckStart();
    if (FLAGS_val_loss_every != 0 && FLAGS_input_val_bin.empty()) {
        RefuseFlag("val_loss_every", "needs --input_val_bin", StrCat(FLAGS_val_loss_every),
                   "a token file to validate on");
    }
    ProgramOptions options = {
        .input_bin = FLAGS_input_bin,
        .input_val_bin = FLAGS_input_val_bin,
        .val_loss_every = AtLeast("val_loss_every", FLAGS_val_loss_every, 0),
        .val_batches = AtLeast("val_batches", FLAGS_val_batches, 1),
        .shuffle = FLAGS_shuffle,
        .tokenizer = FLAGS_tokenizer,
        .model = FLAGS_model,
        .llmc_filepath = FLAGS_llmc_filepath,
        .hf_dir = FLAGS_hf_dir,
        .load = FLAGS_load,
        .rope_scaling_factor = FloatAtLeast("rope_scaling_factor", FLAGS_rope_scaling_factor, 1.0f),
        .seed = FLAGS_seed,
        .dropout = Fraction("dropout", FLAGS_dropout, false),
        .recompute = FLAGS_recompute,
        .pipeline_parallel =
            AtMost("pipeline_parallel", AtLeast("pipeline_parallel", FLAGS_pipeline_parallel, 1), kMaxRanks),
        .nthread_per_process =
            AtMost("nthread_per_process", AtLeast("nthread_per_process", FLAGS_nthread_per_process, 0), kMaxRanks),
        .pipeline_schedule = FLAGS_pipeline_schedule,
        .virtual_pipeline_parallel =
            AtMost("virtual_pipeline_parallel",
                   AtLeast("virtual_pipeline_parallel", FLAGS_virtual_pipeline_parallel, 0), kMaxRanks),
        .pipeline_layout = FLAGS_pipeline_layout,
        .timeout_s = AtLeast("timeout_s", FLAGS_timeout_s, 0.001),
        .dry_run = FLAGS_dry_run,
        .print_plan = FLAGS_print_plan,
        .plan_json = FLAGS_plan_json,
        .timeline = TimelinePaths(),
        .threads_per_rank =
            AtMost("threads_per_rank", AtLeast("threads_per_rank", FLAGS_threads_per_rank, 0), kMaxThreads),
        .device = ChosenDevice(),
        .transport = comm::ParseTransport(FLAGS_transport),
        .nondeterministic = FLAGS_nondeterministic,
        .cuda_graph = FLAGS_cuda_graph,
        .dtype = Choice("dtype", FLAGS_dtype, "float32", "bfloat16") ? DataType::kFloat32 : DataType::kBFloat16,
        .batch_size = AtLeast<int64_t>("batch_size", FLAGS_batch_size, 1),
        .sequence_length = AtLeast<int64_t>("sequence_length", FLAGS_sequence_length, 1),
        .total_batch_size = AtLeast<int64_t>("total_batch_size", FLAGS_total_batch_size, 0),
        .num_iteration = AtLeast("num_iteration", FLAGS_num_iteration, 0),
        .overfit_single_batch = FLAGS_overfit_single_batch,
        .use_adamw = Choice("optimizer", FLAGS_optimizer, "adamw", "sgd"),
        .beta1 = Fraction("beta1", FLAGS_beta1, false),
        .beta2 = Fraction("beta2", FLAGS_beta2, false),
        .eps = FloatAtLeast("eps", FLAGS_eps, kLeastEps),
        .momentum = Fraction("momentum", FLAGS_momentum, false),
        .weight_decay = FloatAtLeast("weight_decay", FLAGS_weight_decay, 0.0f),
        .grad_clip = FloatAtLeast("grad_clip", FLAGS_grad_clip, 0.0f),
        .lr = {.kind = optimizers::ParseLrScheduleKind(FLAGS_lr_schedule),
               .peak_lr = FloatAtLeast("learning_rate", FLAGS_learning_rate, 0.0f),
               .warmup_steps = AtLeast("warmup_iterations", FLAGS_warmup_iterations, 0),
               .total_steps = AtLeast("lr_decay_iterations", FLAGS_lr_decay_iterations, 0) > 0
                                  ? FLAGS_lr_decay_iterations
                                  : FLAGS_num_iteration,
               .final_fraction = Fraction("final_lr_fraction", FLAGS_final_lr_fraction, true)},
        .skips_nonfinite = Choice("on_nonfinite", FLAGS_on_nonfinite, "skip", "stop"),
        .save = FLAGS_save,
        .save_every = AtLeast("save_every", FLAGS_save_every, 0),
        .keep = AtLeast("keep", FLAGS_keep, 0),
        .stops_on_save_error = Choice("on_save_error", FLAGS_on_save_error, "stop", "continue"),
        .prompt = FLAGS_prompt,
        .text_length = AtLeast("text_length", FLAGS_text_length, 0),
        .temperature = FloatAtLeast("temperature", FLAGS_temperature, 0.0f),
        .top_k = AtLeast("top_k", FLAGS_top_k, 0),
        .top_p = Fraction("top_p", FLAGS_top_p, true),
        .sample_every = AtLeast("sample_every", FLAGS_sample_every, 0),
        .metrics_file = FLAGS_metrics_file,
        .tensorboard = FLAGS_tensorboard,
        .report = FLAGS_report,
        .notes = {},
    };
    CheckSave();
    CheckMicrobatch(options.batch_size, options.sequence_length);
    if (options.num_iteration == 0 && options.prompt.empty() && !options.dry_run) {
        RefuseFlag("num_iteration", "nothing to do without --prompt", "0", "steps to train, or a prompt to go on from");
    }
    return options;
}

template <typename Filter>
std::string FlagLines(const Filter& is_wanted) {
    std::string lines;
    for (const FlagGroup& group : ProgramCommandLine("").groups) {
        for (const std::string& flag : group.flags) {
            lines += is_wanted(flag) ? StrCat(flag, "=", FlagValue(flag), "\n") : "";
        }
    }
    return lines;
}

}  // namespace

std::string FlagsFingerprint() {
    return FlagLines([](const std::string&) { return true; });
}

std::string GivenFlags() {
    return FlagLines(IsGiven);
}

bool ParseFlags(int argc, char** argv, ProgramOptions* options) {
    const std::span<char* const> words(argv, static_cast<size_t>(argc));
    if (!ReadCommandLine(words.subspan(1), ProgramCommandLine(argv[0])).has_value()) {
        return false;
    }
    // Before those of a checkpoint count as given.
    const bool asks_for_decay = IsGiven("lr_schedule") && !IsGiven("final_lr_fraction");
    const std::vector<std::string> notes = ResolveLoad();
    *options = CheckedOptions();
    options->notes = notes;
    const bool is_flat = options->lr.kind != optimizers::LrScheduleKind::kConstant && options->lr.final_fraction == 1.0;
    if (asks_for_decay && is_flat) {
        options->notes.push_back(StrCat("--lr_schedule ", FLAGS_lr_schedule,
                                        " changes nothing with --final_lr_fraction 1: pass a smaller one"));
    }
    return true;
}

}  // namespace infini_train
