#include "infini_train/include/checkpoint/hf_layout.h"

#include <algorithm>
#include <utility>

#include "glog/logging.h"

#include "infini_train/src/checkpoint/hf_order.h"

namespace infini_train::checkpoint {

HfLayoutModel::HfLayoutModel(int num_layers, std::vector<HfParameter> layout) : num_layers_(num_layers) {
    for (HfParameter& parameter : layout) {
        parameters_.push_back({.name = parameter.name, .shape = parameter.shape});
        layout_.emplace(parameter.name, std::move(parameter));
    }
}

std::vector<NamedShape> HfLayoutModel::TensorsOf(const std::string& parameter) const {
    std::vector<NamedShape> tensors;
    for (const HfTensor& tensor : At(parameter).tensors) {
        tensors.push_back({.name = tensor.name, .shape = tensor.shape});
    }
    return tensors;
}

void HfLayoutModel::Convert(const std::string& parameter, size_t index, std::span<const float> values,
                            std::span<float> hf_values) const {
    const HfParameter& whole = At(parameter);
    const HfTensor& tensor = whole.tensors.at(index);
    CHECK_EQ(static_cast<int64_t>(values.size()), NumElements(whole.shape)) << parameter;
    CHECK_EQ(static_cast<int64_t>(hf_values.size()), NumElements(tensor.shape)) << tensor.name;
    int64_t first_row = 0;
    for (size_t before = 0; before < index; ++before) {
        first_row += whole.tensors[before].num_rows();
    }
    const int64_t num_rows = tensor.num_rows();
    const int64_t row_size = NumElements(tensor.shape) / num_rows;
    const float* source = values.data() + first_row * row_size;
    switch (tensor.order) {
        case HfTensor::Order::kSame:
            std::copy_n(source, hf_values.size(), hf_values.data());
            return;
        case HfTensor::Order::kTransposed:
            Transpose(source, num_rows, row_size, hf_values.data(), num_rows);
            return;
        case HfTensor::Order::kRotaryHalves:
            for (int64_t row = 0; row < num_rows; ++row) {
                std::copy_n(source + row * row_size, row_size,
                            hf_values.data() + RotaryHalvesRow(row, tensor.head_dim) * row_size);
            }
            return;
    }
}

const HfParameter& HfLayoutModel::At(const std::string& parameter) const {
    const auto found = layout_.find(parameter);
    CHECK(found != layout_.end()) << "the model has no parameter " << parameter;
    return found->second;
}

}  // namespace infini_train::checkpoint
