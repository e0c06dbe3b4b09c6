#include "example/common/batch.h"

#include <vector>

namespace infini_train {

namespace {

template <typename Read>
Batch MakeBatch(const Shape& shape, const Device& device, const Read& read) {
    std::vector<int32_t> inputs(static_cast<size_t>(NumElements(shape)));
    std::vector<int32_t> targets(inputs.size());
    read(inputs.data(), targets.data());
    return {.inputs = Tensor::FromVector(inputs, shape, device), .targets = Tensor::FromVector(targets, shape, device)};
}

}  // namespace

Batch ReadStepBatch(const data::TokenDataset& dataset, const data::DataPosition& position, int64_t rows_per_step,
                    int64_t first_row, int64_t num_rows, const Device& device) {
    return MakeBatch({num_rows, dataset.sequence_length()}, device, [&](int32_t* inputs, int32_t* targets) {
        dataset.ReadStepRows(position, rows_per_step, first_row, num_rows, inputs, targets);
    });
}

Batch ReadBatch(const data::TokenDataset& dataset, int64_t first_row, int64_t num_rows, const Device& device) {
    return MakeBatch({num_rows, dataset.sequence_length()}, device, [&](int32_t* inputs, int32_t* targets) {
        dataset.ReadRows(first_row, num_rows, inputs, targets);
    });
}

}  // namespace infini_train
