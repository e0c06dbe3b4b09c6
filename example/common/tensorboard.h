#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "example/common/metrics.h"

namespace infini_train {

/// The curves of a run as TensorBoard reads them: train/loss, train/grad_norm, train/lr, train/tokens_per_s, train/ms,
/// train/peak_mib and val/loss by step, and the configuration as a text. A file
/// events.out.tfevents.<seconds>.<host>.infini_train in a folder: records (TFRecord framing: length, CRC-32C, bytes,
/// CRC-32C) that are protocol buffer messages of type Event. The few fields that are needed are encoded by hand, so
/// that no protocol buffer library is.
class TensorBoardWriter {
 public:
    /// A folder is of one run. Step 0 starts it anew: earlier files of ours in it are removed. A run that goes on from
    /// a later step cuts them behind that step (a record that the end of the earlier run tore goes, too) and adds a
    /// file, so that no step is there twice; a TensorBoard that has read more already forgets it. Files of others stay
    /// as they are. An empty folder name writes nothing. Throws Error when the folder cannot be made or written.
    explicit TensorBoardWriter(const std::string& folder, int64_t resume_step = 0);

    void WriteStep(const StepMetrics& metrics);
    void WriteValidation(int64_t step, float val_loss);
    /// Shown as it is, line by line.
    void WriteConfiguration(const std::string& text);

 private:
    void WriteEvent(int64_t step, const std::string& fields);

    int64_t resume_step_ = 0;
    std::string path_;
    std::ofstream file_;
};

}  // namespace infini_train
