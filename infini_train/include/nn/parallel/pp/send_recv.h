#pragma once

#include <functional>
#include <memory>

#include "infini_train/include/comm/channel.h"
#include "infini_train/include/core/tensor.h"

namespace infini_train::nn::parallel {

// The two autograd nodes through which the tape of a rank goes on at its neighbours. A backward pass over ISend's
// output waits for the gradient from the next stage; one that reaches IRecv sends the gradient to the previous stage.

/// Hands x over: the caller drops it. Returns a tensor without elements, whose backward is that of x.
/// receive_grad: gives the gradient of x, shape and dtype of x; called once, by the backward.
std::shared_ptr<Tensor> ISend(const std::shared_ptr<Tensor>& x, comm::Sender& sender, const comm::MessageTag& tag,
                              std::function<std::shared_ptr<Tensor>()> receive_grad);

/// What the previous stage sent. send_grad: takes the gradient of it; called once, by the backward.
std::shared_ptr<Tensor> IRecv(comm::PendingReceive& receive, std::function<void(std::shared_ptr<Tensor>)> send_grad);

}  // namespace infini_train::nn::parallel
