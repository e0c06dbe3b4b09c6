#include "infini_train/include/nn/modules/dropout.h"

#include "glog/logging.h"

#include "infini_train/include/autograd/dropout.h"
#include "infini_train/include/autograd/function.h"

namespace infini_train::nn {

Dropout::Dropout(const Options& options) : options_(options) {
    CHECK_NOTNULL(options_.position.get());
}

TensorList Dropout::Forward(const TensorList& inputs) {
    const auto& [x] = autograd::Unpack<1>(inputs);
    const DropoutPosition& position = *options_.position;
    if (!position.training) {
        return {x};
    }
    return {autograd::Dropout(x, options_.p,
                              {.seed = position.seed,
                               .step = position.step,
                               .layer = options_.layer,
                               .first_sample = position.first_sample})};
}

}  // namespace infini_train::nn
