#include "infini_train/include/autograd/function.h"

#include <algorithm>

#include "glog/logging.h"

#include "infini_train/include/autograd/grad_mode.h"

namespace infini_train::autograd {

// A chain of functions would otherwise be freed by recursion, one stack frame a function.
Function::~Function() {
    std::vector<std::shared_ptr<Function>> pending;
    const auto take_edges = [&pending](Function& function) {
        for (Edge& edge : function.edges_) {
            if (edge.function != nullptr) {
                pending.push_back(std::move(edge.function));
            }
        }
        function.edges_.clear();
    };
    take_edges(*this);
    while (!pending.empty()) {
        const std::shared_ptr<Function> function = std::move(pending.back());
        pending.pop_back();
        if (function.use_count() == 1) {
            // A saved tensor has no part in autograd (see Save), so this function's edges are all that it keeps alive.
            take_edges(*function);
        }
    }
}

TensorList Function::Apply(const TensorList& inputs) {
    CHECK(edges_.empty() && num_outputs_ == 0) << "a function is applied once";
    is_recording_ = GradMode::is_enabled() && IsSource();
    needs_input_grad_.resize(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
        needs_input_grad_[i] = GradMode::is_enabled() && inputs[i] != nullptr && inputs[i]->requires_grad();
        is_recording_ = is_recording_ || needs_input_grad_[i];
    }
    TensorList outputs = Forward(inputs);
    num_outputs_ = static_cast<int>(outputs.size());
    if (!is_recording_) {
        return outputs;
    }
    edges_.resize(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
        if (!needs_input_grad_[i]) {
            continue;
        }
        if (inputs[i]->grad_function() == nullptr) {
            edges_[i].leaf = inputs[i];
            continue;
        }
        edges_[i].function = inputs[i]->grad_function();
        edges_[i].output_index = inputs[i]->output_index();
        depth_ = std::max(depth_, edges_[i].function->depth_ + 1);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
        if (IsFloat(outputs[i]->dtype())) {
            outputs[i]->set_grad_function(shared_from_this(), static_cast<int>(i));
        }
    }
    return outputs;
}

TensorList Function::RunBackward(const TensorList& grad_outputs, WeightGradQueue* queue) {
    CHECK(!released_) << "backward a second time through a part of the tape that the first pass freed";
    queue_ = queue;
    TensorList grad_inputs = Backward(grad_outputs);
    queue_ = nullptr;
    CHECK_EQ(grad_inputs.size(), edges_.size()) << "one gradient an input";
    return grad_inputs;
}

void Function::Release() {
    saved_.clear();
    edges_.clear();
    released_ = true;
}

void Function::Save(const TensorList& tensors) {
    if (!is_recording_) {
        return;
    }
    // Detached: a saved output would otherwise hold this function, which holds the output.
    for (const std::shared_ptr<Tensor>& tensor : tensors) {
        saved_.push_back(tensor == nullptr ? nullptr : tensor->Detach());
    }
}

void Function::AddWeightGrad(size_t input, std::function<void(const Tensor::GradSlot&)> compute) {
    const std::shared_ptr<Tensor> leaf = edges_.at(input).leaf;
    CHECK_NOTNULL(leaf.get());
    std::function<void()> add = [leaf, compute = std::move(compute)] {
        compute(leaf->AcquireGrad());
        leaf->RunGradHooks();
    };
    if (queue_ != nullptr) {
        queue_->Push(std::move(add));
    } else {
        add();
    }
}

void CheckListSize(size_t got, size_t wanted) {
    CHECK_EQ(got, wanted) << "tensors in a list";
}

}  // namespace infini_train::autograd
