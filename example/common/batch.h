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

/// num_rows rows, from the first_row-th on, of the step of rows_per_step rows at a position.
Batch ReadStepBatch(const data::TokenDataset& dataset, const data::DataPosition& position, int64_t rows_per_step,
                    int64_t first_row, int64_t num_rows, const Device& device);
/// Rows [first_row, first_row + num_rows) as they lie in the files.
Batch ReadBatch(const data::TokenDataset& dataset, int64_t first_row, int64_t num_rows, const Device& device);

}  // namespace infini_train
