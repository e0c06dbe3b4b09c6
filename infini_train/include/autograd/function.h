#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "infini_train/include/autograd/weight_grad_queue.h"
#include "infini_train/include/core/tensor.h"

namespace infini_train::autograd {

/// A differentiable operation, applied once: a node of the tape. A subclass computes values in Forward and gradients in
/// Backward.
class Function : public std::enable_shared_from_this<Function> {
 public:
    /// Where the gradient of an input goes: to the function that computed it, or into a leaf. Neither: it needs none.
    struct Edge {
        std::shared_ptr<Function> function;
        int output_index = 0;
        std::shared_ptr<Tensor> leaf;
    };

    Function() = default;
    Function(const Function&) = delete;
    Function& operator=(const Function&) = delete;
    virtual ~Function();

    /// Forward, and its record on the tape if grad mode is on and an input requires a gradient, or the function is a
    /// source. An input may be null where the operation has an optional one.
    TensorList Apply(const TensorList& inputs);

    // --- for the engine
    const std::vector<Edge>& edges() const { return edges_; }
    int num_outputs() const { return num_outputs_; }
    /// The longest way from a leaf. The engine runs deeper functions first.
    int64_t depth() const { return depth_; }
    /// Backward with what it may use; entries of grad_outputs are null for outputs that nothing depended on.
    TensorList RunBackward(const TensorList& grad_outputs, WeightGradQueue* queue);
    /// Drops the saved tensors and the edges: a backward pass frees the tape as it goes.
    void Release();

 protected:
    virtual TensorList Forward(const TensorList& inputs) = 0;
    /// One gradient an input, in the order of the inputs; null where there is none or where it was added to the leaf
    /// already.
    virtual TensorList Backward(const TensorList& grad_outputs) = 0;

    /// True for a function whose outputs need a gradient although no input does: what another rank computed.
    virtual bool IsSource() const { return false; }

    /// Keeps tensors for Backward. Only what is needed: they live until then. Nothing is kept when nothing is recorded.
    void Save(const TensorList& tensors);
    const TensorList& saved() const { return saved_; }
    bool is_recording() const { return is_recording_; }
    bool needs_input_grad(size_t input) const { return needs_input_grad_[input]; }

    /// Adds to the gradient of the leaf at `input`, now or, where the backward pass has a queue, when that runs.
    /// `compute` writes the gradient into the slot it is given and must hold all it needs.
    void AddWeightGrad(size_t input, std::function<void(const Tensor::GradSlot&)> compute);
    /// The queue of the backward pass that is running; null without one.
    WeightGradQueue* weight_grad_queue() const { return queue_; }

 private:
    std::vector<Edge> edges_;
    std::vector<bool> needs_input_grad_;
    TensorList saved_;
    bool is_recording_ = false;
    bool released_ = false;
    int num_outputs_ = 0;
    int64_t depth_ = 0;
    WeightGradQueue* queue_ = nullptr;  // during RunBackward
};

/// The N tensors of a list, for structured bindings: `const auto& [x, weight] = Unpack<2>(inputs);`
template <size_t N>
std::array<std::shared_ptr<Tensor>, N> Unpack(const TensorList& tensors);

/// CHECKs the length of a list.
void CheckListSize(size_t got, size_t wanted);

template <size_t N>
std::array<std::shared_ptr<Tensor>, N> Unpack(const TensorList& tensors) {
    CheckListSize(tensors.size(), N);
    std::array<std::shared_ptr<Tensor>, N> result;
    for (size_t i = 0; i < N; ++i) {
        result[i] = tensors[i];
    }
    return result;
}

}  // namespace infini_train::autograd
