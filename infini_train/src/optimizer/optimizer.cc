#include "infini_train/include/optimizer/optimizer.h"

#include <algorithm>
#include <cstddef>
#include <unordered_set>
#include <utility>

#include "glog/logging.h"

namespace infini_train::optimizers {
namespace {

/// The float32 values that are updated.
Tensor& MasterOf(Tensor& parameter) {
    return parameter.master() != nullptr ? *parameter.master() : parameter;
}

}  // namespace

std::vector<ParameterGroup> DecayGroups(const TensorList& parameters, float weight_decay) {
    std::vector<ParameterGroup> groups;
    for (const std::shared_ptr<Tensor>& parameter : parameters) {
        CHECK_NOTNULL(parameter.get());
        const float decay = parameter->num_dims() >= 2 ? weight_decay : 0.0f;
        if (groups.empty() || groups.back().weight_decay != decay) {
            groups.push_back({.weight_decay = decay});
        }
        groups.back().parameters.push_back(parameter);
    }
    return groups;
}

Optimizer::Optimizer(const std::vector<ParameterGroup>& groups, float lr) : lr_(lr) {
    for (const ParameterGroup& group : groups) {
        parameters_.insert(parameters_.end(), group.parameters.begin(), group.parameters.end());
        rules_.resize(parameters_.size(), {.weight_decay = group.weight_decay, .lr_scale = group.lr_scale});
        if (std::find(lr_scales_.begin(), lr_scales_.end(), group.lr_scale) == lr_scales_.end()) {
            lr_scales_.push_back(group.lr_scale);
        }
    }
    std::unordered_set<const void*> seen;
    for (size_t i = 0; i < parameters_.size(); ++i) {
        CHECK_NOTNULL(parameters_[i].get());
        Tensor& parameter = *parameters_[i];
        CHECK(seen.insert(&parameter).second) << "optimizer: parameter " << i << " is in the list twice";
        CHECK(parameter.num_elements() == 0 || seen.insert(parameter.raw_data()).second)
            << "optimizer: parameter " << i << " " << ToString(parameter.shape())
            << " shares its values with another; of tied parameters only the owner is updated";
        CHECK(MasterOf(parameter).dtype() == DataType::kFloat32)
            << "optimizer: parameter " << i << " is " << Name(parameter.dtype()) << " and has no float32 master";
        CHECK(parameter.device() == parameters_[0]->device())
            << "optimizer: parameter " << i << " on " << ToString(parameter.device()) << ", the first on "
            << ToString(parameters_[0]->device());
    }
    if (!parameters_.empty()) {
        unit_scale_ = Tensor::FromVector(std::vector<float>{1.0f}, {1}, parameters_[0]->device());
    }
    updates_.reserve(parameters_.size());
}

void Optimizer::AddMoments(const std::string& name) {
    CHECK_LT(moments_.size(), 2u) << "optimizer: the kernels know two moments";
    Moments moments = {.name = name, .tensors = {}};
    moments.tensors.reserve(parameters_.size());
    for (const std::shared_ptr<Tensor>& parameter : parameters_) {
        moments.tensors.push_back(Tensor::Zeros(parameter->shape(), DataType::kFloat32, parameter->device()));
    }
    moments_.push_back(std::move(moments));
}

void Optimizer::Step(const Tensor& grad_scale) {
    ++step_;
    for (const float lr_scale : lr_scales_) {
        updates_.clear();
        for (size_t i = 0; i < parameters_.size(); ++i) {
            Tensor& parameter = *parameters_[i];
            // The leaf keeps its gradient alive for the length of this call.
            const Tensor* grad = parameter.grad().get();
            if (grad == nullptr || rules_[i].lr_scale != lr_scale) {
                continue;
            }
            updates_.push_back({.master = &MasterOf(parameter),
                                .value = parameter.master() != nullptr ? &parameter : nullptr,
                                .grad = grad,
                                .moment1 = !moments_.empty() ? moments_[0].tensors[i].get() : nullptr,
                                .moment2 = moments_.size() > 1 ? moments_[1].tensors[i].get() : nullptr,
                                .weight_decay = rules_[i].weight_decay});
        }
        if (!updates_.empty()) {
            Apply(updates_, grad_scale, lr_ * lr_scale);
        }
    }
}

void Optimizer::Step() {
    if (parameters_.empty()) {
        ++step_;
        return;
    }
    Step(*unit_scale_);
}

void Optimizer::ClearGrads() {
    for (const std::shared_ptr<Tensor>& parameter : parameters_) {
        parameter->ClearGrad();
    }
}

}  // namespace infini_train::optimizers
