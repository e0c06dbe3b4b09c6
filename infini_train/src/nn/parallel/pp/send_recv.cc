#include "infini_train/include/nn/parallel/pp/send_recv.h"

#include <utility>

#include "glog/logging.h"

#include "infini_train/include/autograd/function.h"

namespace infini_train::nn::parallel {
namespace {

class ISendFunction : public autograd::Function {
 public:
    ISendFunction(comm::Sender* sender, const comm::MessageTag& tag,
                  std::function<std::shared_ptr<Tensor>()> receive_grad)
        : sender_(sender), tag_(tag), receive_grad_(std::move(receive_grad)) {}

 protected:
    TensorList Forward(const TensorList& inputs) override {
        const auto& [x] = autograd::Unpack<1>(inputs);
        const Device device = x->device();
        sender_->Send(x->Detach(), tag_);
        return {Tensor::Empty({0}, DataType::kFloat32, device)};
    }

    TensorList Backward(const TensorList& /*grad_outputs*/) override { return {receive_grad_()}; }

 private:
    comm::Sender* sender_;  // only during Forward
    comm::MessageTag tag_;
    std::function<std::shared_ptr<Tensor>()> receive_grad_;
};

class IRecvFunction : public autograd::Function {
 public:
    IRecvFunction(comm::PendingReceive* receive, std::function<void(std::shared_ptr<Tensor>)> send_grad)
        : receive_(receive), send_grad_(std::move(send_grad)) {}

 protected:
    bool IsSource() const override { return true; }

    TensorList Forward(const TensorList& /*inputs*/) override {
        std::shared_ptr<Tensor> x = receive_->Wait();
        CHECK(IsFloat(x->dtype())) << "a stage received " << Name(x->dtype()) << ", which has no gradient";
        return {std::move(x)};
    }

    TensorList Backward(const TensorList& grad_outputs) override {
        send_grad_(grad_outputs[0]);
        return {};
    }

 private:
    comm::PendingReceive* receive_;  // only during Forward
    std::function<void(std::shared_ptr<Tensor>)> send_grad_;
};

}  // namespace

std::shared_ptr<Tensor> ISend(const std::shared_ptr<Tensor>& x, comm::Sender& sender, const comm::MessageTag& tag,
                              std::function<std::shared_ptr<Tensor>()> receive_grad) {
    return std::make_shared<ISendFunction>(&sender, tag, std::move(receive_grad))->Apply({x})[0];
}

std::shared_ptr<Tensor> IRecv(comm::PendingReceive& receive, std::function<void(std::shared_ptr<Tensor>)> send_grad) {
    return std::make_shared<IRecvFunction>(&receive, std::move(send_grad))->Apply({})[0];
}

}  // namespace infini_train::nn::parallel
