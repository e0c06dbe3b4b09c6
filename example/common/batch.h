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

/// The rows from the offset-th after a position, num_rows of them, all in its epoch.
Batch ReadBatch(const data::TokenDataset& dataset, const data::DataPosition& position, int64_t offset, int64_t num_rows,
                const Device& device);

}  // namespace infini_train
