#include "infini_train/include/nn/state_dict.h"

#include "glog/logging.h"

#include "infini_train/include/kernels/cast.h"

namespace infini_train::nn {

std::map<std::string, std::shared_ptr<Tensor>> StateDict(const Module& module) {
    std::map<std::string, std::shared_ptr<Tensor>> state;
    for (const NamedParameter& parameter : module.NamedParameters()) {
        const auto& master = parameter.tensor->master();
        const bool is_new = state.emplace(parameter.name, master != nullptr ? master : parameter.tensor).second;
        CHECK(is_new) << "two parameters are called " << parameter.name;
    }
    return state;
}

void RefreshFromMaster(Tensor& parameter) {
    if (parameter.master() != nullptr) {
        kernels::cast(parameter.device().type, *parameter.master(), parameter);
    }
}

}  // namespace infini_train::nn
