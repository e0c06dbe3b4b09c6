#include "infini_train/include/nn/module.h"

#include <algorithm>
#include <utility>

#include "glog/logging.h"

#include "infini_train/include/kernels/accumulate.h"
#include "infini_train/include/nn/state_dict.h"

namespace infini_train::nn {
namespace {

std::string PrefixBelow(const std::string& prefix, const std::string& name) {
    return name.empty() ? prefix : prefix + name + ".";
}

}  // namespace

void Module::RegisterParameter(const std::string& name, ParameterSlot* slot) {
    CHECK_NOTNULL(slot);
    CHECK_NOTNULL(slot->get());
    CHECK((*slot)->dtype() == DataType::kFloat32) << name << ": To makes the copy in another dtype";
    (*slot)->set_requires_grad(true);
    slots_.emplace_back(name, slot);
}

void Module::RegisterModule(const std::string& name, std::shared_ptr<Module> module) {
    CHECK_NOTNULL(module.get());
    modules_.emplace_back(name, std::move(module));
}

void Module::Tie(ParameterSlot* owner, ParameterSlot* alias) {
    CHECK((*owner)->shape() == (*alias)->shape())
        << ToString((*owner)->shape()) << " tied to " << ToString((*alias)->shape());
    *alias = (*owner)->Detach();
    (*alias)->set_requires_grad(true);
    ties_.push_back({.owner = owner, .alias = alias});
}

void Module::ShareAcrossStages(ParameterSlot* slot) {
    CHECK_NOTNULL(slot);
    shared_.push_back(slot);
}

void Module::CollectSlots(const std::string& prefix, std::vector<std::pair<std::string, ParameterSlot*>>& slots) const {
    for (const auto& [name, slot] : slots_) {
        slots.emplace_back(prefix + name, slot);
    }
    for (const auto& [name, module] : modules_) {
        module->CollectSlots(PrefixBelow(prefix, name), slots);
    }
}

void Module::CollectTies(std::vector<SlotTie>& ties) const {
    ties.insert(ties.end(), ties_.begin(), ties_.end());
    for (const auto& [name, module] : modules_) {
        module->CollectTies(ties);
    }
}

void Module::CollectShared(std::vector<ParameterSlot*>& shared) const {
    shared.insert(shared.end(), shared_.begin(), shared_.end());
    for (const auto& [name, module] : modules_) {
        module->CollectShared(shared);
    }
}

std::vector<std::pair<std::string, ParameterSlot*>> Module::OwnedSlots() const {
    std::vector<std::pair<std::string, ParameterSlot*>> slots;
    CollectSlots("", slots);
    std::vector<SlotTie> ties;
    CollectTies(ties);
    std::vector<ParameterSlot*> seen;  // a module that is registered twice has its parameters once
    std::vector<std::pair<std::string, ParameterSlot*>> owned;
    for (const auto& [name, slot] : slots) {
        const bool is_alias =
            std::any_of(ties.begin(), ties.end(), [slot = slot](const SlotTie& tie) { return tie.alias == slot; });
        if (!is_alias && std::find(seen.begin(), seen.end(), slot) == seen.end()) {
            seen.push_back(slot);
            owned.emplace_back(name, slot);
        }
    }
    return owned;
}

std::vector<NamedParameter> Module::NamedParameters() const {
    std::vector<NamedParameter> parameters;
    for (const auto& [name, slot] : OwnedSlots()) {
        parameters.push_back({.name = name, .tensor = *slot});
    }
    return parameters;
}

TensorList Module::Parameters() const {
    TensorList parameters;
    for (const auto& [name, slot] : OwnedSlots()) {
        parameters.push_back(*slot);
    }
    return parameters;
}

std::vector<TiedParameters> Module::Ties() const {
    std::vector<SlotTie> slot_ties;
    CollectTies(slot_ties);
    std::vector<TiedParameters> ties;
    for (const SlotTie& tie : slot_ties) {
        ties.push_back({.owner = *tie.owner, .alias = *tie.alias});
    }
    return ties;
}

std::vector<std::string> Module::SharedNames() const {
    std::vector<ParameterSlot*> shared;
    CollectShared(shared);
    std::vector<std::string> names;
    for (const auto& [name, slot] : OwnedSlots()) {
        if (std::find(shared.begin(), shared.end(), slot) != shared.end()) {
            names.push_back(name);
        }
    }
    return names;
}

void Module::Initialize(uint64_t seed) {
    // An alias takes its owner's values: its module sees no parameter there and leaves them alone.
    std::vector<SlotTie> ties;
    CollectTies(ties);
    TensorList aliases;
    for (const SlotTie& tie : ties) {
        aliases.push_back(std::exchange(*tie.alias, nullptr));
    }
    InitializeTree(seed, "");
    for (size_t i = 0; i < ties.size(); ++i) {
        *ties[i].alias = aliases[i];
    }
    for (const NamedParameter& parameter : NamedParameters()) {
        RefreshFromMaster(*parameter.tensor);
    }
}

void Module::InitializeTree(uint64_t seed, const std::string& prefix) {
    InitializeOwn(seed, prefix);
    for (const auto& [name, module] : modules_) {
        module->InitializeTree(seed, PrefixBelow(prefix, name));
    }
}

void Module::InitializeOwn(uint64_t seed, const std::string& prefix) {
    CHECK(slots_.empty()) << "a module with parameters says how they start: " << prefix << " (seed " << seed << ")";
}

void Module::To(DataType dtype) {
    CHECK(IsFloat(dtype)) << Name(dtype);
    for (const auto& [name, slot] : OwnedSlots()) {
        if ((*slot)->dtype() == dtype) {
            continue;
        }
        if ((*slot)->master() != nullptr) {
            *slot = (*slot)->master();
            continue;
        }
        std::shared_ptr<Tensor> value = Tensor::Empty((*slot)->shape(), dtype, (*slot)->device());
        value->set_requires_grad(true);
        value->set_master(*slot);
        RefreshFromMaster(*value);
        *slot = value;
    }
    std::vector<SlotTie> ties;
    CollectTies(ties);
    for (const SlotTie& tie : ties) {
        *tie.alias = (*tie.owner)->Detach();
        (*tie.alias)->set_requires_grad(true);
    }
}

void ReduceTiedGrads(const Module& module) {
    for (const TiedParameters& tie : module.Ties()) {
        const std::shared_ptr<Tensor> grad = tie.alias->grad();
        if (grad != nullptr) {
            const Tensor::GradSlot slot = tie.owner->AcquireGrad();
            kernels::accumulate(grad->device().type, *grad, *slot.grad, slot.accumulate);
        }
    }
}

}  // namespace infini_train::nn
