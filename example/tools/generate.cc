#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "gflags/gflags.h"
#include "glog/logging.h"

#include "example/common/command_line.h"
#include "example/common/flag_values.h"
#include "example/common/generate.h"
#include "example/common/load_weights.h"
#include "example/common/pipeline_setup.h"
#include "example/common/run_fingerprint.h"
#include "example/gpt2/spec.h"
#include "example/llama3/spec.h"
#include "example/tools/generate_text.h"
#include "example/tools/model_flags.h"
#include "infini_train/include/checkpoint/checkpoint_reader.h"
#include "infini_train/include/checkpoint/hf_family.h"
#include "infini_train/include/checkpoint/training_state.h"
#include "infini_train/include/comm/process_place.h"
#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/error_text.h"
#include "infini_train/include/common/file.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/data/tokenizer.h"

DEFINE_string(model, "", "random weights, to try the speed: tiny, d12, d24, d36, d48 (GPT-2), 1b, 8b (LLaMA-3)");
DEFINE_string(prompt, "", "text to go on from, names of special tokens included; empty: as a document begins");
DEFINE_string(prompt_file, "", "file with that text");
DEFINE_string(tokenizer, "",
              "byte (one token a byte), a file (tokenizer.json, .tiktoken, llm.c's .bin) or a folder; empty: that of "
              "the checkpoint or of the Hugging Face folder, where there is one, else byte");
DEFINE_int32(text_length, 64, "tokens to generate");
DEFINE_int32(num_samples, 1, "texts to generate, one after the other");
DEFINE_bool(stop_at_end_of_text, false, "end a text with the tokenizer's token for that");
DEFINE_double(temperature, 1, "of sampling; 0: always the likeliest token");
DEFINE_int32(top_k, 0, "sample among the k likeliest tokens alone; 0: all");
DEFINE_double(top_p, 1, "sample among the likeliest tokens that together have this probability; 1: all");
DEFINE_uint64(seed, 42, "decides the sampling, and random weights");
DEFINE_bool(kv_cache, true,
            "keep keys and values of earlier positions; without, each token computes all of them again");
DEFINE_int32(pipeline_parallel, 1, "stages that the layers are spread over, a rank each");
DEFINE_int32(nthread_per_process, 0,
             "ranks of a process, a thread each; 0: pipeline_parallel, or 1 where a launcher (torchrun, mpirun, srun) "
             "starts the processes");
DEFINE_string(device, "auto", "cpu, cuda (a GPU a rank), or auto: cuda where the build and the machine have it");
DEFINE_string(dtype, "", "float32 or bfloat16; empty: that of the checkpoint, where there is one, else float32");
DEFINE_int32(threads_per_rank, 0, "OpenMP threads of a rank; 0: its share of the cores");
DEFINE_double(timeout_s, 600, "seconds that a rank waits for another before the run ends");

namespace infini_train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxRanks = 1024;

CommandLine GenerateCommandLine(const std::string& program) {
    return {.usage = "Writes text that a language model goes on with.\n\n  " + program +
                     " --llmc_filepath weights.bin --prompt \"Once\" --temperature 0\n  " + program +
                     " --hf_dir folder --prompt_file story.txt --text_length 200 --top_p 0.9\n  " + program +
                     " --load checkpoints --num_samples 3 --stop_at_end_of_text\n",
            .groups = {
                {"Model", {"llmc_filepath", "hf_dir", "load", "model", "rope_scaling_factor"}},
                {"Text", {"prompt", "prompt_file", "tokenizer", "text_length", "num_samples", "stop_at_end_of_text"}},
                {"Sampling", {"temperature", "top_k", "top_p", "seed"}},
                {"Running",
                 {"pipeline_parallel", "nthread_per_process", "device", "dtype", "threads_per_rank", "kv_cache",
                  "timeout_s"}}}};
}

/// All that the ranks share; nobody changes it.
struct Job {
    ProgramOptions options = {};
    ModelSpec model = {};
    PipelineSetup setup = {};
    std::unique_ptr<data::Tokenizer> tokenizer = nullptr;
    std::vector<int32_t> prompt = {};
    GenerateOptions text = {};
    int num_samples = 1;
};

/// Where the time went, over all texts.
struct Times {
    std::chrono::duration<double> prompts{0.0};  // up to the first token of each text
    std::chrono::duration<double> rest{0.0};
    int64_t num_rest = 0;  // tokens after the first
};

ModelSpec OpenModel(const ProgramOptions& options) {
    const std::string path = options.llmc_filepath + options.hf_dir + options.load;  // one of them, or none
    const bool is_llama = path.empty() ? options.model == "1b" || options.model == "8b"
                                       : checkpoint::FamilyOf(path) == checkpoint::ModelFamily::kLlama3;
    return is_llama ? llama3::MakeModel(options) : gpt2::MakeModel(options);
}

/// Settings of a training that a checkpoint holds; none without one.
std::map<std::string, std::string> SettingsOf(const std::string& load) {
    return load.empty() ? std::map<std::string, std::string>{} : checkpoint::ReadTrainingState(load).settings;
}

/// A flag that is empty takes its value from the checkpoint.
std::string FlagOr(const std::string& flag, const std::map<std::string, std::string>& settings,
                   const std::string& otherwise) {
    if (const std::string value = FlagValue(flag); !value.empty()) {
        return value;
    }
    const auto saved = settings.find(flag);
    return saved == settings.end() ? otherwise : saved->second;
}

std::string TokenizerOf(const std::string& hf_dir) {
    std::error_code none;
    for (const char* name : {"tokenizer.json", "vocab.json", "tokenizer.model"}) {
        if (!hf_dir.empty() && std::filesystem::exists(hf_dir + "/" + name, none)) {
            return hf_dir;
        }
    }
    return "byte";
}

std::string PromptText() {
    if (FLAGS_prompt_file.empty()) {
        return FLAGS_prompt;
    }
    if (!FLAGS_prompt.empty()) {
        RefuseFlag("prompt_file", "excludes --prompt", FLAGS_prompt_file, "one of the two");
    }
    const ReadOnlyFile file(FLAGS_prompt_file);
    constexpr uint64_t kMaxBytes = uint64_t{1} << 26;  // more tokens than any model looks back at
    if (file.size_bytes() > kMaxBytes) {
        throw Error({.where = "--prompt_file " + FLAGS_prompt_file,
                     .what = "too large for a prompt",
                     .got = StrCat(file.size_bytes(), " bytes"),
                     .wanted = StrCat("at most ", kMaxBytes)});
    }
    std::string text(file.size_bytes(), '\0');
    file.Read(0, text.data(), text.size());
    return text;
}

DataType ParseDtype(const std::string& name) {
    return Choice("dtype", name, "float32", "bfloat16") ? DataType::kFloat32 : DataType::kBFloat16;
}

DeviceType ChosenDevice() {
    if (FLAGS_device == "auto") {
        return NumCudaDevices() == 0 ? DeviceType::kCPU : DeviceType::kCUDA;
    }
    return Choice("device", FLAGS_device, "cpu", "cuda") ? DeviceType::kCPU : DeviceType::kCUDA;
}

GenerateOptions CheckedTextOptions(const data::Tokenizer& tokenizer) {
    if (FLAGS_stop_at_end_of_text && !tokenizer.end_of_text().has_value()) {
        RefuseFlag("stop_at_end_of_text", "the tokenizer has no token for that", "true", "false");
    }
    return {.num_tokens = AtLeast("text_length", FLAGS_text_length, 0),
            .temperature = FloatAtLeast("temperature", FLAGS_temperature, 0.0f),
            .top_k = AtLeast("top_k", FLAGS_top_k, 0),
            .top_p = Fraction("top_p", FLAGS_top_p, true),
            .seed = FLAGS_seed,
            .end_token = FLAGS_stop_at_end_of_text ? tokenizer.end_of_text() : std::nullopt,
            .uses_cache = FLAGS_kv_cache};
}

/// Replicas would write the same text.
void CheckRanks(const PipelineSetup& setup) {
    if (setup.mesh.data > 1) {
        RefuseFlag("pipeline_parallel", "a text is written by one rank a stage",
                   StrCat(setup.shape.num_ranks, " for ", setup.mesh.num_ranks(), " ranks"),
                   StrCat(setup.mesh.num_ranks()));
    }
}

Job MakeJob() {
    CheckOneIsGiven({"llmc_filepath", "hf_dir", "load", "model"});
    Job job;
    ProgramOptions& options = job.options;
    options.model = FLAGS_model;
    options.llmc_filepath = FLAGS_llmc_filepath;
    options.hf_dir = FLAGS_hf_dir;
    options.load = FLAGS_load.empty() ? "" : checkpoint::FindCheckpoint(FLAGS_load);
    options.rope_scaling_factor = RopeScalingFactor();
    options.seed = FLAGS_seed;
    options.pipeline_parallel =
        AtMost("pipeline_parallel", AtLeast("pipeline_parallel", FLAGS_pipeline_parallel, 1), kMaxRanks);
    options.nthread_per_process =
        AtMost("nthread_per_process", AtLeast("nthread_per_process", FLAGS_nthread_per_process, 0), kMaxRanks);
    options.threads_per_rank =
        AtMost("threads_per_rank", AtLeast("threads_per_rank", FLAGS_threads_per_rank, 0), kMaxRanks);
    options.timeout_s = AtLeast("timeout_s", FLAGS_timeout_s, 1.0);
    options.device = ChosenDevice();
    options.prompt = PromptText();
    const std::map<std::string, std::string> settings = SettingsOf(options.load);
    options.tokenizer = FlagOr("tokenizer", settings, TokenizerOf(FLAGS_hf_dir));
    job.model = OpenModel(options);
    job.tokenizer = data::MakeTokenizer(options.tokenizer);
    job.num_samples = AtLeast("num_samples", FLAGS_num_samples, 1);
    options.dtype = ParseDtype(FlagOr("dtype", settings, "float32"));
    if (job.model.vocab_size > job.tokenizer->vocab_size()) {
        RefuseFlag("tokenizer", "cannot write all tokens of this model",
                   StrCat(options.tokenizer, ", which has ", job.tokenizer->vocab_size()),
                   StrCat("at least ", job.model.vocab_size));
    }
    job.text = CheckedTextOptions(*job.tokenizer);
    job.prompt = EncodePrompt(options.prompt, *job.tokenizer);
    CheckPrompt(job.model, job.prompt);
    job.setup = MakePipelineSetup(options, job.model, comm::ReadProcessPlace());
    CheckRanks(job.setup);
    return job;
}

void Print(const std::string& text) {
    // Each token is seen as soon as it is there.
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
        throw Error({.where = "stdout", .what = "cannot be written", .kind = Error::Kind::kRuntime});
    }
}

void WriteText(const Job& job, const comm::Mesh& mesh, int sample, nn::parallel::PipelineParallel& pipeline,
               Times* times) {
    const bool prints = mesh.rank == 0;
    CharacterStream characters;
    const Clock::time_point begin = Clock::now();
    std::optional<Clock::time_point> first;
    GenerateOptions options = job.text;
    options.sample = static_cast<uint64_t>(sample);
    options.on_token = [&](int32_t token) {
        if (!first.has_value()) {
            first = Clock::now();
            times->prompts += *first - begin;
        } else {
            ++times->num_rest;
        }
        if (prints) {
            Print(characters.Push(job.tokenizer->Decode({&token, 1})));
        }
    };
    if (prints) {
        Print(job.num_samples == 1 ? "" : StrCat("--- ", sample + 1, " of ", job.num_samples, "\n"));
        Print(characters.Push(job.tokenizer->Decode(job.prompt)));
    }
    Generate(pipeline, mesh, job.model, job.prompt, options);
    times->rest += Clock::now() - first.value_or(Clock::now());
    if (prints) {
        Print(characters.Rest() + "\n");
    }
}

void RunRank(const Job& job, const comm::Mesh& mesh) {
    const auto position = std::make_shared<nn::DropoutPosition>();
    nn::parallel::PipelineParallel pipeline(
        LoadChunks(job.options, job.setup, job.model, position, mesh), mesh,
        {.schedule = job.setup.schedule, .rank_of_stage = job.setup.shape.rank_of_stage, .dropout_position = position});
    Times times;
    for (int sample = 0; sample < job.num_samples; ++sample) {
        WriteText(job, mesh, sample, pipeline, &times);
    }
    if (mesh.rank == 0) {
        std::fprintf(stderr, "%zu tokens of prompt in %.3f s; then %lld tokens in %.3f s: %.1f tokens/s\n",
                     job.prompt.size() * static_cast<size_t>(job.num_samples), times.prompts.count(),
                     static_cast<long long>(times.num_rest), times.rest.count(),
                     times.num_rest == 0 ? 0.0 : static_cast<double>(times.num_rest) / times.rest.count());
    }
}

/// "flag=value" of all that the processes of a run must have alike.
std::string FlagLines() {
    std::string lines;
    for (const FlagGroup& group : GenerateCommandLine("").groups) {
        for (const std::string& flag : group.flags) {
            // The text in the file is compared.
            lines += flag == "prompt_file" ? "" : StrCat(flag, "=", FlagValue(flag), "\n");
        }
    }
    return lines;
}

void Run() {
    const Job job = MakeJob();
    const ProgramOptions& options = job.options;
    comm::RanksOptions ranks = {.shape = job.setup.mesh,
                                .process = job.setup.process,
                                .device = options.device,
                                .timeout_s = options.timeout_s,
                                .threads_per_rank = job.setup.threads_per_rank};
    std::vector<std::string> notes = job.model.notes;
    notes.push_back(job.setup.process.note);
    notes.push_back(comm::ChooseTransport(ranks).note);
    if (job.setup.process.index == 0) {
        std::fprintf(stderr, "%s, %s\n", job.model.name.c_str(), std::string(Name(options.dtype)).c_str());
        for (const std::string& note : notes) {
            if (!note.empty()) {
                std::fprintf(stderr, "note: %s\n", note.c_str());
            }
        }
    }
    if (job.setup.process.num_processes > 1) {
        ranks.fingerprint = RunFingerprint(
            {.options = &options, .model = &job.model, .setup = &job.setup, .tokenizer = job.tokenizer.get()},
            FlagLines());
    }
    comm::RunRanks(ranks, [&job](const comm::Mesh& mesh) { RunRank(job, mesh); });
}

}  // namespace
}  // namespace infini_train

int main(int argc, char** argv) {
    using namespace infini_train;
    FLAGS_logtostderr = true;
    google::InitGoogleLogging(argv[0]);
    try {
        const std::span<char* const> words(argv, static_cast<size_t>(argc));
        if (ReadCommandLine(words.subspan(1), GenerateCommandLine(argv[0])).has_value()) {
            Run();
        }
        return 0;
    } catch (const Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return error.exit_code();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", ErrorText(error).c_str());
        return 1;
    }
}
