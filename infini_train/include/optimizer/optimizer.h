#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/optimizer_step.h"

namespace infini_train::optimizers {

/// What an optimizer remembers of its parameters: one float32 tensor a parameter, in their order and shapes.
struct Moments {
    std::string name;
    TensorList tensors;
};

/// Parameters that are updated alike.
struct ParameterGroup {
    TensorList parameters = {};
    float weight_decay = 0.0f;
    float lr_scale = 1.0f;  // their learning rate is the optimizer's times this
};

/// What is usual: those of two or more dimensions decay, whatever module they are in; gains and biases never do. Groups
/// of neighbours, so that the parameters stay in the order of the list.
std::vector<ParameterGroup> DecayGroups(const TensorList& parameters, float weight_decay);

/// Updates parameters from their gradients, the same ones from construction to the end.
///
/// A parameter is float32, or has a float32 master, which is updated while the parameter becomes its rounded copy. One
/// that has no gradient in a step is left as it is: values and moments.
class Optimizer {
 public:
    Optimizer(const Optimizer&) = delete;
    Optimizer& operator=(const Optimizer&) = delete;
    virtual ~Optimizer() = default;

    /// Of all groups, one group after the other.
    const TensorList& parameters() const { return parameters_; }
    float lr() const { return lr_; }
    void set_lr(float lr) { lr_ = lr; }
    /// Steps taken so far; the next Step counts from there.
    int64_t step() const { return step_; }
    void set_step(int64_t step) { step_ = step; }
    /// All there is to save of an optimizer but its step. The tensors are the ones it works with.
    const std::vector<Moments>& moments() const { return moments_; }

    /// One step with the gradients times grad_scale ([1] float32, on the device of the parameters). A scale that is not
    /// finite changes no value and no moment, but counts as a step.
    void Step(const Tensor& grad_scale);
    /// One step with the gradients as they are.
    void Step();
    void ClearGrads();

 protected:
    /// CHECKs that no parameter is there twice, nor two over the same memory: it would be updated twice.
    Optimizer(const std::vector<ParameterGroup>& groups, float lr);

    /// Adds zeros for every parameter. The first moments added are the kernels' moment1, the second their moment2.
    void AddMoments(const std::string& name);
    /// Runs the kernel on parameters of one learning rate that have a gradient, of which there is at least one.
    virtual void Apply(std::span<const kernels::OptimizerParameter> parameters, const Tensor& grad_scale, float lr) = 0;

 private:
    /// What the group of a parameter says of it.
    struct Rule {
        float weight_decay = 0.0f;
        float lr_scale = 1.0f;
    };

    TensorList parameters_;
    std::vector<Rule> rules_;       // of each parameter
    std::vector<float> lr_scales_;  // each value that there is, once
    float lr_;
    int64_t step_ = 0;
    std::vector<Moments> moments_;
    std::shared_ptr<Tensor> unit_scale_;                // null without parameters
    std::vector<kernels::OptimizerParameter> updates_;  // of the current pass; kept for its memory
};

}  // namespace infini_train::optimizers
