#pragma once

#include <cstdint>
#include <memory>

#include "infini_train/include/core/dtype.h"
#include "infini_train/include/core/tensor.h"
#include "infini_train/include/nn/module.h"
#include "infini_train/include/nn/modules/dropout.h"
#include "infini_train/include/nn/parallel/pp/stage_layout.h"

namespace infini_train::test {

enum class TinyModelKind { kGpt2, kTiedLlama, kUntiedLlama };

/// A GPT-2, whose head is its embedding and has 5 rows of padding, or a LLaMA of either kind.
struct TinyModel {
    TinyModelKind kind = TinyModelKind::kGpt2;
    int num_layers = 7;
    int64_t block_size = 32;
    int64_t num_channels = 16;
    float dropout = 0.0f;
    bool recompute = false;

    bool is_tied() const { return kind != TinyModelKind::kUntiedLlama; }
};

inline constexpr int64_t kTinyVocab = 11;

/// Some of its layers, float32, the parameters without values.
std::shared_ptr<nn::Module> MakeLayers(const TinyModel& model, const nn::parallel::LayerRange& layers,
                                       const std::shared_ptr<nn::DropoutPosition>& position, const Device& device);
/// The values that every test starts with; then dtype.
void SetValues(nn::Module& layers, DataType dtype);
/// All layers, with their values.
std::shared_ptr<nn::Module> MakeWhole(const TinyModel& model, DataType dtype,
                                      const std::shared_ptr<nn::DropoutPosition>& position, const Device& device);
/// {logits, targets} -> {sum, count}
std::shared_ptr<nn::Module> MakeTinyLoss();

struct TinyRows {
    std::shared_ptr<Tensor> inputs;   // [num_rows, length], int32
    std::shared_ptr<Tensor> targets;  // [num_rows, length], int32
};

/// Random tokens. Of the targets about a third are -100, of some rows more, so that micro-batches differ in their
/// count. A row depends on its index and the seed alone.
TinyRows MakeRows(uint64_t seed, int64_t num_rows, int64_t length, const Device& device);
/// Rows [begin, end).
TinyRows SliceRows(const TinyRows& rows, int64_t begin, int64_t end);

}  // namespace infini_train::test
