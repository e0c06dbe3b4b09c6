#pragma once

namespace infini_train {

/// The layers [begin, end) of a model of num_layers. The first part of a model has its embeddings, the last its head.
struct LayerRange {
    int begin = 0;
    int end = 0;
    int num_layers = 0;

    bool is_first() const { return begin == 0; }
    bool is_last() const { return end == num_layers; }
};

}  // namespace infini_train
