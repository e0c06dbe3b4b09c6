#pragma once

#include <cstdint>
#include <string_view>

#include "infini_train/include/core/dtype.h"

namespace infini_train {

/// Dense matrix products of a GPU, operations a second, by its name ("NVIDIA H200") and the dtype of the operands; 0
/// where it is not known. From the vendors' data sheets.
double PeakFlops(std::string_view hardware, DataType dtype);

/// Operations of a token of training: 6 N + 12 L C T, N parameters, L layers of C channels, T tokens a row. Counts all
/// of attention's T x T. (Chowdhery et al., arXiv:2204.02311, appendix B.)
double FlopsPerToken(int64_t num_parameters, int num_layers, int64_t num_channels, int64_t sequence_length);

}  // namespace infini_train
