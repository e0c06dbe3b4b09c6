#include "infini_train/include/autograd/engine.h"

#include <algorithm>
#include <memory>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "glog/logging.h"

#include "infini_train/include/autograd/function.h"
#include "infini_train/include/kernels/accumulate.h"
#include "infini_train/include/kernels/add.h"
#include "infini_train/include/kernels/fill.h"

namespace infini_train::autograd {
namespace {

/// What is known of a function while the pass runs.
struct NodeState {
    int num_uses_left = 0;  // edges into it whose gradient has not arrived
    int64_t order = 0;      // when it was found: breaks ties between functions of one depth
    TensorList grad_outputs;
};

struct ReadyNode {
    std::shared_ptr<Function> function;
    int64_t order = 0;
    bool operator<(const ReadyNode& other) const {
        if (function->depth() != other.function->depth()) {
            return function->depth() < other.function->depth();
        }
        return order > other.order;
    }
};

using NodeStates = std::unordered_map<Function*, NodeState>;

NodeStates CountUses(const TensorList& outputs) {
    NodeStates states;
    std::vector<Function*> pending;
    int64_t num_found = 0;
    const auto find = [&](Function* function) {
        if (states.contains(function)) {
            return;
        }
        states[function] = {.order = num_found++,
                            .grad_outputs = TensorList(static_cast<size_t>(function->num_outputs()))};
        pending.push_back(function);
    };
    for (const std::shared_ptr<Tensor>& output : outputs) {
        if (output->grad_function() != nullptr) {
            find(output->grad_function().get());
        }
    }
    while (!pending.empty()) {
        Function* function = pending.back();
        pending.pop_back();
        for (const Function::Edge& edge : function->edges()) {
            if (edge.function != nullptr) {
                find(edge.function.get());
                ++states.at(edge.function.get()).num_uses_left;
            }
        }
    }
    return states;
}

void AddToLeaf(Tensor& leaf, const Tensor& grad) {
    CHECK(grad.shape() == leaf.shape()) << "gradient " << ToString(grad.shape()) << " of a leaf "
                                        << ToString(leaf.shape());
    const Tensor::GradSlot slot = leaf.AcquireGrad();
    kernels::accumulate(grad.device().type, grad, *slot.grad, slot.accumulate);
    leaf.RunGradHooks();
}

void AddToOutput(std::shared_ptr<Tensor>& sum, std::shared_ptr<Tensor> grad) {
    if (sum == nullptr) {
        sum = std::move(grad);
    } else {
        sum = kernels::add(sum->device().type, *sum, *grad);
    }
}

std::shared_ptr<Tensor> GradOfOutput(const Tensor& output, const std::shared_ptr<Tensor>& grad) {
    if (grad != nullptr) {
        CHECK(grad->shape() == output.shape() && grad->dtype() == output.dtype())
            << "gradient " << ToString(grad->shape()) << " " << Name(grad->dtype()) << " of an output "
            << ToString(output.shape()) << " " << Name(output.dtype());
        return grad;
    }
    CHECK_EQ(output.num_elements(), 1) << "only an output of one element has a gradient of 1 by itself";
    std::shared_ptr<Tensor> one = Tensor::Empty(output.shape(), output.dtype(), output.device());
    kernels::fill(output.device().type, *one, 1.0f);
    return one;
}

}  // namespace

void Backward(const TensorList& outputs, const TensorList& grad_outputs, WeightGradQueue* queue) {
    CheckListSize(grad_outputs.size(), outputs.size());
    NodeStates states = CountUses(outputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
        const std::shared_ptr<Tensor> grad = GradOfOutput(*outputs[i], grad_outputs[i]);
        if (outputs[i]->grad_function() != nullptr) {
            NodeState& state = states.at(outputs[i]->grad_function().get());
            AddToOutput(state.grad_outputs[static_cast<size_t>(outputs[i]->output_index())], grad);
        } else if (outputs[i]->requires_grad()) {
            AddToLeaf(*outputs[i], *grad);
        }
    }
    std::priority_queue<ReadyNode> ready;
    const auto make_ready = [&](const std::shared_ptr<Function>& function) {
        const NodeState& state = states.at(function.get());
        if (state.num_uses_left == 0) {
            ready.push({.function = function, .order = state.order});
        }
    };
    std::vector<Function*> roots;
    for (const std::shared_ptr<Tensor>& output : outputs) {
        Function* function = output->grad_function().get();
        // Two outputs of one function make it ready once.
        if (function != nullptr && std::find(roots.begin(), roots.end(), function) == roots.end()) {
            roots.push_back(function);
            make_ready(output->grad_function());
        }
    }
    while (!ready.empty()) {
        const std::shared_ptr<Function> function = ready.top().function;
        ready.pop();
        TensorList grads = std::move(states.at(function.get()).grad_outputs);
        const bool reached = std::any_of(grads.begin(), grads.end(), [](const auto& grad) { return grad != nullptr; });
        TensorList grad_inputs = reached ? function->RunBackward(grads, queue) : TensorList(function->edges().size());
        grads.clear();
        const std::vector<Function::Edge> edges = function->edges();
        function->Release();
        for (size_t i = 0; i < edges.size(); ++i) {
            if (edges[i].leaf != nullptr && grad_inputs[i] != nullptr) {
                AddToLeaf(*edges[i].leaf, *grad_inputs[i]);
            }
            if (edges[i].function != nullptr) {
                NodeState& state = states.at(edges[i].function.get());
                if (grad_inputs[i] != nullptr) {
                    AddToOutput(state.grad_outputs[static_cast<size_t>(edges[i].output_index)],
                                std::move(grad_inputs[i]));
                }
                --state.num_uses_left;
                make_ready(edges[i].function);
            }
        }
    }
}

}  // namespace infini_train::autograd
