#pragma once

#include <string>
#include <vector>

namespace infini_train::nn::parallel {

/// The layers [begin, end) of a model of num_layers. The first part of a model has its embeddings, the last its final
/// norm, head and loss.
struct LayerRange {
    int begin = 0;
    int end = 0;
    int num_layers = 0;

    bool is_first() const { return begin == 0; }
    bool is_last() const { return end == num_layers; }
    int size() const { return end - begin; }
};

/// The layers of each stage, in order: all of them, each once, none without.
using StageLayout = std::vector<LayerRange>;

/// As even as possible; the first num_layers % num_stages stages have one more. Throws Error for more stages than
/// layers.
StageLayout EvenLayout(int num_layers, int num_stages);

/// "3,3,2": the number of layers of each stage. Throws Error that names --pipeline_layout for anything that is not
/// num_stages positive numbers with the sum num_layers.
StageLayout ParseLayout(const std::string& text, int num_layers, int num_stages);

/// Times of the parts of a model on one micro-batch, forward and backward together.
struct LayerCosts {
    double embedding = 0.0;
    double layer = 1.0;
    double head = 0.0;
};

/// The layout whose slowest stage is fastest; of those the one whose second slowest is fastest, and so on; of those the
/// one that has the longer stages earlier. Without costs of embedding and head that is EvenLayout. Throws Error for
/// more stages than layers.
StageLayout BalancedLayout(int num_layers, int num_stages, const LayerCosts& costs);

/// "3,3,2"
std::string ToString(const StageLayout& layout);

}  // namespace infini_train::nn::parallel
