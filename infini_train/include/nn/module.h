#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/include/core/tensor.h"

namespace infini_train::nn {

/// Where a module keeps a parameter. Null for one that it does not have.
using ParameterSlot = std::shared_ptr<Tensor>;

struct NamedParameter {
    std::string name;  // "h.0.attn.c_attn.weight"
    std::shared_ptr<Tensor> tensor;
};

/// One parameter used in two places: the head of a language model that is its embedding. Both tensors share the values;
/// each has a gradient of its own, and ReduceTiedGrads adds the second to the first before an optimizer sees it.
struct TiedParameters {
    std::shared_ptr<Tensor> owner;
    std::shared_ptr<Tensor> alias;
};

/// A part of a model: parameters and submodules by name, and a function of tensors.
class Module : public std::enable_shared_from_this<Module> {
 public:
    Module() = default;
    Module(const Module&) = delete;
    Module& operator=(const Module&) = delete;
    virtual ~Module() = default;

    virtual TensorList Forward(const TensorList& inputs) = 0;

    /// All parameters below this module, each once, in the order of registration; names are joined with '.'. Aliases of
    /// tied parameters are not among them.
    std::vector<NamedParameter> NamedParameters() const;
    TensorList Parameters() const;
    /// Every pair tied below this module.
    std::vector<TiedParameters> Ties() const;
    /// Names of the parameters of which another stage of a pipeline holds a copy, by the same name: a tied head far
    /// from its embedding. Their gradients are added before an optimizer sees them, so that the copies stay equal.
    std::vector<std::string> SharedNames() const;

    /// Gives every parameter its initial value, a function of (seed, name of the parameter, index of the element)
    /// alone.
    void Initialize(uint64_t seed);
    /// Computes in dtype from now on: float32, or bfloat16 values with float32 masters. The tensors of Parameters()
    /// change, so an optimizer is made after it.
    void To(DataType dtype);

 protected:
    /// The slot is a member of the subclass; a tensor in it becomes a leaf, float32.
    void RegisterParameter(const std::string& name, ParameterSlot* slot);
    /// An empty name adds nothing to the names below it.
    void RegisterModule(const std::string& name, std::shared_ptr<Module> module);
    /// From now on *alias shares the values of *owner. Both are registered below this module.
    void Tie(ParameterSlot* owner, ParameterSlot* alias);
    /// Another stage holds a copy of this registered parameter.
    void ShareAcrossStages(ParameterSlot* slot);

    /// Initial values of this module's own parameters; prefix is its name and a '.', or empty. Nothing to do without
    /// parameters, and for a slot that is null: the alias of a tie, whose owner's module does it.
    virtual void InitializeOwn(uint64_t seed, const std::string& prefix);

 private:
    struct SlotTie {
        ParameterSlot* owner;
        ParameterSlot* alias;
    };
    void CollectSlots(const std::string& prefix, std::vector<std::pair<std::string, ParameterSlot*>>& slots) const;
    void CollectTies(std::vector<SlotTie>& ties) const;
    void CollectShared(std::vector<ParameterSlot*>& shared) const;
    std::vector<std::pair<std::string, ParameterSlot*>> OwnedSlots() const;
    void InitializeTree(uint64_t seed, const std::string& prefix);

    std::vector<std::pair<std::string, ParameterSlot*>> slots_;
    std::vector<std::pair<std::string, std::shared_ptr<Module>>> modules_;
    std::vector<SlotTie> ties_;
    std::vector<ParameterSlot*> shared_;
};

/// owner.grad += alias.grad for every tie, in the order of Ties(): the same sum whatever ranks hold the two.
void ReduceTiedGrads(const Module& module);

}  // namespace infini_train::nn
