#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/core/device.h"
#include "infini_train/include/core/dtype.h"
#include "infini_train/include/optimizer/lr_schedule.h"

namespace infini_train {

inline constexpr int kMaxMicrobatches = 1 << 16;  // of a step; a plan is a list that grows with them

/// What the flags of ./gpt2 and ./llama3 say, checked as far as that needs no file. Each flag is described in flags.cc.
struct ProgramOptions {
    std::string input_bin;
    std::string input_val_bin;
    int val_loss_every = 0;
    int val_batches = 0;
    bool shuffle = false;
    std::string tokenizer;

    std::string model;
    std::string llmc_filepath;
    std::string hf_dir;
    std::string load;  // a folder of one complete checkpoint
    float rope_scaling_factor = 8.0f;
    uint64_t seed = 0;
    float dropout = 0.0f;
    bool recompute = false;

    int pipeline_parallel = 1;
    int nthread_per_process = 0;        // 0: as many as the pipeline has ranks, one where a launcher started processes
    std::string pipeline_schedule;      // empty: the default
    int virtual_pipeline_parallel = 0;  // 0: the schedule's own
    std::string pipeline_layout;        // empty: even
    double timeout_s = 0.0;
    bool dry_run = false;
    bool print_plan = false;
    std::string plan_json;
    std::vector<std::string> timeline;

    int threads_per_rank = 0;
    DeviceType device = DeviceType::kCPU;  // auto resolved
    comm::Transport transport = comm::Transport::kAuto;
    bool nondeterministic = false;
    bool cuda_graph = false;
    DataType dtype = DataType::kFloat32;

    int64_t batch_size = 0;
    int64_t sequence_length = 0;
    int64_t total_batch_size = 0;  // 0: one micro-batch a replica
    int num_iteration = 0;
    bool overfit_single_batch = false;

    bool use_adamw = true;
    float beta1 = 0.0f;
    float beta2 = 0.0f;
    float eps = 0.0f;
    float momentum = 0.0f;
    float weight_decay = 0.0f;
    float grad_clip = 0.0f;
    optimizers::LrScheduleOptions lr;
    bool skips_nonfinite = false;

    std::string save;
    int save_every = 0;
    int keep = 0;
    bool stops_on_save_error = false;

    std::string prompt;
    int text_length = 0;
    float temperature = 0.0f;
    int top_k = 0;
    float top_p = 1.0f;
    int sample_every = 0;

    std::string metrics_file;
    std::string tensorboard;
    std::string report;

    std::vector<std::string> notes;  // what the user should know of how the flags and the checkpoint go together
};

/// Parses and checks. Prints the help and returns false for --help. Throws Error for anything that is not a flag or not
/// a value of it.
bool ParseFlags(int argc, char** argv, ProgramOptions* options);

/// Lines "flag=value" of all that must be the same in every process of a run.
std::string FlagsFingerprint();
/// Such lines of the flags that the command line, or the checkpoint, gave a value.
std::string GivenFlags();

}  // namespace infini_train
