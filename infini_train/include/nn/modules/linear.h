#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "infini_train/include/nn/module.h"

namespace infini_train::nn {

/// y = x weight^T + bias. Parameters: weight [out, in], bias [out] (where asked for).
/// Forward: {x [..., in]} -> {y [..., out]}
class Linear : public Module {
 public:
    struct Options {
        int64_t in_features = 0;
        int64_t out_features = 0;
        bool bias = true;
        float init_stddev = 0.02f;  // of the weight; the bias starts at 0
        int64_t num_used = -1;      // rows of the weight that start with it, the others with 0; -1: all
    };
    Linear(const Options& options, const Device& device);

    TensorList Forward(const TensorList& inputs) override;
    ParameterSlot* weight_slot() { return &weight_; }
    const std::shared_ptr<Tensor>& weight() const { return weight_; }
    /// Null without one.
    const std::shared_ptr<Tensor>& bias() const { return bias_; }

 protected:
    void InitializeOwn(uint64_t seed, const std::string& prefix) override;

 private:
    Options options_;
    ParameterSlot weight_;
    ParameterSlot bias_;
};

}  // namespace infini_train::nn
