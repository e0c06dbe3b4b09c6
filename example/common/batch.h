#pragma once

#include <cstdint>
#include <memory>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/data/token_dataset.h"

namespace infini_train {

struct Batch {
    std::shared_ptr<Tensor> inputs;   // [rows, T], int32
    std::shared_ptr<Tensor> targets;  // [rows, T], int32: the next token, or -100 for none
};

/// Rows [first_row, first_row + num_rows) of an epoch.
Batch ReadBatch(const data::TokenDataset& dataset, int64_t first_row, int64_t num_rows, const Device& device);

}  // namespace infini_train
