#include "infini_train/include/autograd/weight_grad_queue.h"

#include <utility>

namespace infini_train::autograd {

void WeightGradQueue::Run() {
    while (!pending_.empty()) {
        const std::function<void()> compute = std::move(pending_.front());
        pending_.pop_front();
        compute();
    }
}

}  // namespace infini_train::autograd
