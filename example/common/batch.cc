#include "example/common/batch.h"

#include <vector>

namespace infini_train {

Batch ReadBatch(const data::TokenDataset& dataset, const data::DataPosition& position, int64_t offset, int64_t num_rows,
                const Device& device) {
    const Shape shape = {num_rows, dataset.sequence_length()};
    std::vector<int32_t> inputs(static_cast<size_t>(NumElements(shape)));
    std::vector<int32_t> targets(inputs.size());
    dataset.ReadRows(position, offset, num_rows, inputs.data(), targets.data());
    return {.inputs = Tensor::FromVector(inputs, shape, device), .targets = Tensor::FromVector(targets, shape, device)};
}

}  // namespace infini_train
