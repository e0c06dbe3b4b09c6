#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "infini_train/include/checkpoint/hf_model.h"
#include "infini_train/include/checkpoint/training_state.h"
#include "infini_train/include/comm/process_group.h"
#include "infini_train/include/nn/module.h"
#include "infini_train/include/optimizer/optimizer.h"

namespace infini_train::checkpoint {

class CheckpointUnit;
class RunFolder;

/// Writes checkpoints of a training, as one of its ranks sees it: DIR/step_00000030, a folder with
///   config.json, model-00001-of-0000N.safetensors, ..., model.safetensors.index.json: a Hugging Face folder, float32;
///   optimizer-00001-of-0000N.safetensors, ...: the moments, "m.h.0.ln_1.weight", in the shapes of our parameters;
///   trainer_state.json; manifest.json: the step, and of all other files their names, sizes and checksums.
/// File 1 has what comes before the layers, file i + 2 layer i, the last one what comes after them. No byte of them
/// depends on how the model is spread over ranks: each unit is written by one of the ranks that hold it. bfloat16
/// parameters are written as their masters.
///
/// The files are written in step_00000030.partial, the manifest last, and then the folder gets its name: whatever has
/// that name is complete. The training goes on meanwhile:
///
///   writer.Begin(state);                       // returns when this rank's tensors are copied to the host
///   ...                                        // steps, each of which tells the ranks each other's progress()
///   if (no rank is still writing) writer.Commit();
class CheckpointWriter {
 public:
    struct Options {
        std::string folder = {};  // DIR
        int keep = 0;             // complete checkpoints; 0: all
    };
    enum class Progress { kIdle, kWriting, kWritten, kFailed };
    /// Of a checkpoint, the same on every rank.
    struct Result {
        std::string path = {};   // where it is; empty when there is none
        std::string error = {};  // why there is none: of the first rank that failed
    };

    /// Collective over the world. Parameters are those of the chunks, by their names; the optimizer is over all of
    /// them. Takes host memory for a copy of what this rank writes, makes the folder and removes what earlier runs did
    /// not complete. Throws Error on every rank when rank 0 cannot have the folder, another run saves there, or a
    /// rank does not see it.
    CheckpointWriter(Options options, std::shared_ptr<const HfModel> model,
                     std::vector<std::shared_ptr<nn::Module>> chunks,
                     std::shared_ptr<const optimizers::Optimizer> optimizer, std::shared_ptr<comm::ProcessGroup> world);
    CheckpointWriter(const CheckpointWriter&) = delete;
    CheckpointWriter& operator=(const CheckpointWriter&) = delete;
    /// Waits for the writing of this rank, and leaves what has no Commit as partial.
    ~CheckpointWriter();

    /// Begins a checkpoint of the values as they are now. CHECKs that there is none that has not been committed.
    void Begin(const TrainingState& state);
    /// Of this rank's part. Does not wait.
    Progress progress() const;
    /// Until this rank's part is written, or has failed.
    void Wait() const;
    /// Ends a checkpoint: collective over the world, after Begin on all ranks; waits for those that are still writing.
    /// Where a rank has failed there is no checkpoint, what has been written of it is removed, and earlier ones stay.
    /// Otherwise the oldest beyond `keep` are removed, in the background.
    Result Commit();

 private:
    /// What came of the part that this rank writes.
    struct Part {
        std::string error = {};
        std::string files = {};  // a list for the manifest, as text
    };

    /// Agrees with the other ranks on who writes what.
    void ShareOut(const std::vector<std::shared_ptr<nn::Module>>& chunks);
    void OpenFolder();
    Part Write(const TrainingState& state) const;
    /// On rank 0: makes a checkpoint of what the ranks have written, or removes it if one has failed. Returns the
    /// error.
    std::string Publish(const std::vector<std::string>& parts) const;
    void ExpireOld();

    Options options_;
    std::shared_ptr<const HfModel> model_;
    std::shared_ptr<const optimizers::Optimizer> optimizer_;
    std::shared_ptr<comm::ProcessGroup> world_;
    std::vector<CheckpointUnit> units_;      // that this rank writes
    std::unique_ptr<RunFolder> run_folder_;  // on rank 0
    int64_t step_ = 0;
    std::shared_future<Part> part_;  // of the checkpoint that is not committed
    std::future<void> removal_;
};

}  // namespace infini_train::checkpoint
