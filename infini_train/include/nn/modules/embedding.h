#pragma once

#include <cstdint>
#include <string>

#include "infini_train/include/nn/module.h"

namespace infini_train::nn {

/// Rows of a table. Parameter: weight [num_embeddings, dim]. The rows from num_used on are padding: they start at 0.
/// Forward: {ids int32 [...]} -> {[..., dim]}
class Embedding : public Module {
 public:
    struct Options {
        int64_t num_embeddings = 0;
        int64_t num_used = 0;
        int64_t dim = 0;
        float init_stddev = 0.02f;
    };
    Embedding(const Options& options, const Device& device);

    TensorList Forward(const TensorList& inputs) override;
    ParameterSlot* weight_slot() { return &weight_; }

 protected:
    void InitializeOwn(uint64_t seed, const std::string& prefix) override;

 private:
    Options options_;
    ParameterSlot weight_;
};

}  // namespace infini_train::nn
