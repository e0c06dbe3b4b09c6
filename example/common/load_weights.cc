#include "example/common/load_weights.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/nn/state_dict.h"

namespace infini_train {

void LoadWeights(const checkpoint::WeightFile& file, const nn::Module& module) {
    for (const auto& [name, values] : nn::StateDict(module)) {
        if (!file.Contains(name)) {
            throw Error({.where = file.path(), .what = "has no tensor " + name});
        }
        if (file.shape(name) != values->shape()) {
            throw Error({.where = file.path(),
                         .what = "tensor " + name + " has another shape",
                         .got = ToString(file.shape(name)),
                         .wanted = ToString(values->shape())});
        }
        file.Read(name, values->data<float>());
    }
    for (const nn::NamedParameter& parameter : module.NamedParameters()) {
        nn::RefreshFromMaster(*parameter.tensor);
    }
}

}  // namespace infini_train
