#include "infini_train/include/autograd/recompute.h"

#include <utility>

#include "glog/logging.h"

#include "infini_train/include/autograd/engine.h"
#include "infini_train/include/autograd/function.h"
#include "infini_train/include/autograd/grad_mode.h"

namespace infini_train::autograd {
namespace {

/// Passes a tensor on; its backward hands the gradient to whoever asked. The inner tape of a recomputation ends here,
/// so that its gradient keeps the dtype of the tensor, which that of a leaf does not.
class InnerInput : public Function {
 public:
    explicit InnerInput(std::shared_ptr<Tensor>* grad) : grad_(grad) {}

 protected:
    TensorList Forward(const TensorList& inputs) override { return {inputs[0]->Detach()}; }
    TensorList Backward(const TensorList& grad_outputs) override {
        *grad_ = grad_outputs[0];
        return {nullptr};
    }

 private:
    std::shared_ptr<Tensor>* grad_;  // in the frame of RecomputeFunction::Backward, which this outlives not
};

class RecomputeFunction : public Function {
 public:
    explicit RecomputeFunction(ForwardFunction forward) : forward_(std::move(forward)) {}

 protected:
    TensorList Forward(const TensorList& inputs) override {
        const NoGradGuard no_grad;
        Save(inputs);
        return forward_(inputs);
    }

    TensorList Backward(const TensorList& grad_outputs) override {
        CHECK(GradMode::is_enabled()) << "a backward pass without grad mode cannot record what it recomputes";
        TensorList grads(saved().size());
        TensorList inner_inputs;
        for (size_t i = 0; i < saved().size(); ++i) {
            std::shared_ptr<Tensor> input = saved()[i];
            if (needs_input_grad(i)) {
                input = saved()[i]->Detach();
                input->set_requires_grad(true);
                input = std::make_shared<InnerInput>(&grads[i])->Apply({input})[0];
            }
            inner_inputs.push_back(input);
        }
        const TensorList recomputed = forward_(inner_inputs);
        // To the engine a null gradient stands for 1; here it says that nothing depended on the output.
        TensorList outputs;
        TensorList reached_grads;
        for (size_t i = 0; i < grad_outputs.size(); ++i) {
            if (grad_outputs[i] != nullptr) {
                outputs.push_back(recomputed.at(i));
                reached_grads.push_back(grad_outputs[i]);
            }
        }
        autograd::Backward(outputs, reached_grads, weight_grad_queue());
        return grads;
    }

 private:
    ForwardFunction forward_;
};

}  // namespace

TensorList Recompute(const ForwardFunction& forward, const TensorList& inputs) {
    return std::make_shared<RecomputeFunction>(forward)->Apply(inputs);
}

}  // namespace infini_train::autograd
