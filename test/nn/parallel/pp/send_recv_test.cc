#include "infini_train/include/nn/parallel/pp/send_recv.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/autograd/engine.h"
#include "infini_train/include/autograd/grad_mode.h"
#include "infini_train/include/nn/modules/linear.h"
#include "infini_train/include/nn/modules/loss.h"
#include "test/comm/two_ranks.h"
#include "test/support/random_tensor.h"

namespace infini_train::nn::parallel {
namespace {

using comm::Direction;
using infini_train::test::RandomTensor;
using infini_train::test::SameBits;

constexpr comm::MessageTag kForward = {.direction = Direction::kForward, .stage = 1, .microbatch = 0};
constexpr comm::MessageTag kBackward = {.direction = Direction::kBackward, .stage = 0, .microbatch = 0};

/// Two ranks of one thread, and the links between them: activations to rank 1, gradients to rank 0.
struct Boundary {
    comm::TwoRanks ranks;
    std::unique_ptr<comm::Sender> forward_sender = comm::OpenSender(*ranks.groups[0], 1, Direction::kForward);
    std::unique_ptr<comm::Receiver> forward_receiver = comm::OpenReceiver(*ranks.groups[1], 0, Direction::kForward);
    std::unique_ptr<comm::Sender> backward_sender = comm::OpenSender(*ranks.groups[1], 0, Direction::kBackward);
    std::unique_ptr<comm::Receiver> backward_receiver = comm::OpenReceiver(*ranks.groups[0], 1, Direction::kBackward);

    std::shared_ptr<Tensor> Send(const std::shared_ptr<Tensor>& x) {
        const auto receive = std::shared_ptr<comm::PendingReceive>(
            backward_receiver->Post({.tag = kBackward, .shape = x->shape(), .dtype = x->dtype()}));
        return ISend(x, *forward_sender, kForward, [receive] { return receive->Wait(); });
    }
    std::shared_ptr<Tensor> Receive(const Shape& shape, DataType dtype) {
        const auto receive = forward_receiver->Post({.tag = kForward, .shape = shape, .dtype = dtype});
        return IRecv(*receive,
                     [this](std::shared_ptr<Tensor> grad) { backward_sender->Send(std::move(grad), kBackward); });
    }
};

std::shared_ptr<Linear> MakeLinear(int64_t in, int64_t out, DataType dtype, const Device& device) {
    auto linear =
        std::make_shared<Linear>(Linear::Options{.in_features = in, .out_features = out, .init_stddev = 0.5f}, device);
    linear->Initialize(static_cast<uint64_t>(out));
    linear->To(dtype);
    return linear;
}

std::shared_ptr<Tensor> LossOf(const std::shared_ptr<Tensor>& logits) {
    const auto targets = Tensor::FromVector(std::vector<int32_t>{2, -100, 0}, {3}, logits->device());
    return CrossEntropyLoss({}).Forward({logits, targets})[0];
}

void ExpectSameGrads(const Module& got, const Module& wanted) {
    ASSERT_EQ(got.Parameters().size(), 2u);
    for (size_t i = 0; i < got.Parameters().size(); ++i) {
        EXPECT_TRUE(SameBits(*got.Parameters()[i]->grad(), *wanted.Parameters()[i]->grad())) << i;
    }
}

TEST(SendRecv, GivesTwoRanksTheGradientsOfOneTape) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        const Device device = MakeCpuDevice();
        const auto first = MakeLinear(4, 6, dtype, device);
        const auto second = MakeLinear(6, 3, dtype, device);
        const auto x = RandomTensor({3, 4}, dtype, device, 1);
        const std::shared_ptr<Tensor> loss = LossOf(second->Forward(first->Forward({x}))[0]);
        autograd::Backward({loss}, {nullptr});

        Boundary boundary;
        const auto own_first = MakeLinear(4, 6, dtype, boundary.ranks.devices[0]);
        const auto own_second = MakeLinear(6, 3, dtype, boundary.ranks.devices[1]);
        const std::shared_ptr<Tensor> sent =
            boundary.Send(own_first->Forward({RandomTensor({3, 4}, dtype, boundary.ranks.devices[0], 1)})[0]);
        EXPECT_EQ(sent->num_elements(), 0);
        const std::shared_ptr<Tensor> received = boundary.Receive({3, 6}, dtype);
        EXPECT_TRUE(received->requires_grad());
        const std::shared_ptr<Tensor> own_loss = LossOf(own_second->Forward({received})[0]);
        EXPECT_TRUE(SameBits(*own_loss, *loss));
        autograd::Backward({own_loss}, {nullptr});
        EXPECT_EQ(own_first->Parameters()[0]->grad(), nullptr);
        autograd::Backward({sent}, {sent->Detach()});
        ExpectSameGrads(*own_first, *first);
        ExpectSameGrads(*own_second, *second);
    }
}

TEST(SendRecv, SendsAGradientThatNothingElseWasComputedFrom) {
    Boundary boundary;
    const auto x = RandomTensor({2, 5}, DataType::kFloat32, boundary.ranks.devices[0], 2);
    x->set_requires_grad(true);
    const std::shared_ptr<Tensor> sent = boundary.Send(x);
    const std::shared_ptr<Tensor> received = boundary.Receive({2, 5}, DataType::kFloat32);
    const auto grad = RandomTensor({2, 5}, DataType::kFloat32, boundary.ranks.devices[1], 3);
    const std::vector<float> values = grad->ToVector<float>();
    autograd::Backward({received}, {grad});
    autograd::Backward({sent}, {sent->Detach()});
    EXPECT_EQ(x->grad()->ToVector<float>(), values);
}

// Outputs that were sent are freed at once.
TEST(SendRecv, LeavesTheReceiverAloneWithWhatWasSent) {
    Boundary boundary;
    const Device& device = boundary.ranks.devices[0];
    const auto live_bytes = [](const Device& of) { return of.allocator->stats().live_bytes; };
    const auto linear = MakeLinear(4, 1024, DataType::kFloat32, device);
    const auto x = RandomTensor({64, 4}, DataType::kFloat32, device, 1);
    const int64_t before = live_bytes(device);
    const int64_t before_of_receiver = live_bytes(boundary.ranks.devices[1]);
    const std::shared_ptr<Tensor> sent = boundary.Send(linear->Forward({x})[0]);
    std::shared_ptr<Tensor> received = boundary.Receive({64, 1024}, DataType::kFloat32);
    constexpr int64_t kMessageBytes = 64 * 1024 * 4;
    EXPECT_EQ(live_bytes(device), before);
    EXPECT_EQ(live_bytes(boundary.ranks.devices[1]), before_of_receiver + kMessageBytes);
    // The tape of the sender, which is still there, does not hold it.
    received.reset();
    EXPECT_EQ(live_bytes(boundary.ranks.devices[1]), before_of_receiver);
}

TEST(SendRecv, RecordsNothingWithoutGradients) {
    const autograd::NoGradGuard no_grad;
    Boundary boundary;
    const std::shared_ptr<Tensor> sent =
        boundary.Send(RandomTensor({2, 5}, DataType::kFloat32, boundary.ranks.devices[0], 2));
    const std::shared_ptr<Tensor> received = boundary.Receive({2, 5}, DataType::kFloat32);
    EXPECT_EQ(sent->grad_function(), nullptr);
    EXPECT_EQ(received->grad_function(), nullptr);
    EXPECT_FALSE(received->requires_grad());
}

TEST(SendRecvDeathTest, TokensHaveNoGradient) {
    Boundary boundary;
    boundary.forward_sender->Send(Tensor::Zeros({2}, DataType::kInt32, boundary.ranks.devices[0]), kForward);
    EXPECT_DEATH(boundary.Receive({2}, DataType::kInt32), "received int32, which has no gradient");
}

}  // namespace
}  // namespace infini_train::nn::parallel
