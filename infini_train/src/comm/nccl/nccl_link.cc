#include "infini_train/src/comm/nccl/nccl_link.h"

#include <cstdint>
#include <map>
#include <utility>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::comm {
namespace {

using cuda::CudaStream;
using cuda::CudaStreamOf;

constexpr int kSenderPlace = 0;
constexpr int kReceiverPlace = 1;

/// Sends after all that the rank has computed so far. The tensor's memory stays as it is until the event.
void EnqueueSend(const Tensor& tensor, const NcclCommunicator::Operation& operation, NcclCommunicator* communicator) {
    CudaStream& stream = communicator->stream();
    const std::shared_ptr<const Event> computed = CudaStreamOf(tensor.device()).Record();
    stream.WaitFor(*computed);
    communicator->Call(operation, [&](ncclComm_t comm) {
        return ncclSend(tensor.raw_data(), tensor.size_bytes(), ncclUint8, kReceiverPlace, comm, stream.get());
    });
    const std::shared_ptr<const Event> sent = stream.Record();
    tensor.UsedUntil(sent);
    communicator->Watch(operation, sent, computed);
}

/// Receives into memory that work enqueued before may still use. The tensor has its values from the event on.
std::shared_ptr<const Event> EnqueueReceive(Tensor& tensor, const NcclCommunicator::Operation& operation,
                                            NcclCommunicator* communicator) {
    CudaStream& stream = communicator->stream();
    stream.WaitFor(*CudaStreamOf(tensor.device()).Record());
    communicator->Call(operation, [&](ncclComm_t comm) {
        return ncclRecv(tensor.raw_data(), tensor.size_bytes(), ncclUint8, kSenderPlace, comm, stream.get());
    });
    auto received = stream.Record();
    // Nobody may ever wait for it.
    tensor.UsedUntil(received);
    communicator->Watch(operation, received, nullptr);
    return received;
}

class NcclSender : public Sender {
 public:
    NcclSender(std::shared_ptr<NcclCommunicator> communicator, const Device& device)
        : communicator_(std::move(communicator)), device_(device) {}

    void Send(std::shared_ptr<Tensor> tensor, const MessageTag& tag) override {
        CHECK_NOTNULL(tensor.get());
        CHECK(tensor->device() == device_)
            << infini_train::ToString(tensor->device()) << " for " << infini_train::ToString(device_);
        communicator_->ThrowIfFailed();
        if (tensor->num_elements() > 0) {
            EnqueueSend(*tensor, {.tag = tag}, communicator_.get());
        }
    }

 private:
    std::shared_ptr<NcclCommunicator> communicator_;
    Device device_;
};

class NcclPendingReceive : public PendingReceive {
 public:
    NcclPendingReceive(std::shared_ptr<NcclCommunicator> communicator, std::shared_ptr<Tensor> tensor,
                       std::shared_ptr<const Event> received)
        : communicator_(std::move(communicator)), tensor_(std::move(tensor)), received_(std::move(received)) {}

    std::shared_ptr<Tensor> Wait() override {
        CHECK(tensor_ != nullptr) << "a receive that was waited for before";
        communicator_->ThrowIfFailed();
        if (received_ != nullptr) {
            CudaStream& stream = CudaStreamOf(tensor_->device());
            communicator_->WaitFrom(received_, stream.Record());
            stream.WaitFor(*received_);
        }
        return std::exchange(tensor_, nullptr);
    }

 private:
    std::shared_ptr<NcclCommunicator> communicator_;
    std::shared_ptr<Tensor> tensor_;
    std::shared_ptr<const Event> received_;  // null for no elements
};

class NcclReceiver : public Receiver {
 public:
    NcclReceiver(std::shared_ptr<NcclCommunicator> communicator, const Device& device)
        : communicator_(std::move(communicator)), device_(device) {}

    std::unique_ptr<PendingReceive> Post(const MessageSpec& expected) override {
        auto tensor = Tensor::Empty(expected.shape, expected.dtype, device_);
        std::shared_ptr<const Event> received;
        if (tensor->num_elements() > 0) {
            received = EnqueueReceive(*tensor, {.tag = expected.tag}, communicator_.get());
        }
        return std::make_unique<NcclPendingReceive>(communicator_, std::move(tensor), std::move(received));
    }

 private:
    std::shared_ptr<NcclCommunicator> communicator_;
    Device device_;
};

/// The messages that a rank has sent to itself, by their place in the order.
struct SelfQueue {
    int world_rank = 0;
    int64_t num_sent = 0;
    int64_t num_posted = 0;
    std::map<int64_t, std::pair<std::shared_ptr<Tensor>, MessageTag>> messages = {};
};

class SelfSender : public Sender {
 public:
    explicit SelfSender(std::shared_ptr<SelfQueue> queue) : queue_(std::move(queue)) {}

    void Send(std::shared_ptr<Tensor> tensor, const MessageTag& tag) override {
        CHECK_NOTNULL(tensor.get());
        // The tensor may be the last that holds a tape, which ends here as on other links.
        queue_->messages[queue_->num_sent++] = {tensor->Detach(), tag};
    }

 private:
    std::shared_ptr<SelfQueue> queue_;
};

class SelfPendingReceive : public PendingReceive {
 public:
    SelfPendingReceive(std::shared_ptr<SelfQueue> queue, int64_t place, const MessageSpec& expected)
        : queue_(std::move(queue)), place_(place), expected_(expected) {}

    std::shared_ptr<Tensor> Wait() override {
        const auto message = queue_->messages.extract(place_);
        CHECK(!message.empty()) << "rank " << queue_->world_rank << " waits for itself: " << ToString(expected_);
        const auto& [tensor, tag] = message.mapped();
        const MessageSpec came = {.tag = tag, .shape = tensor->shape(), .dtype = tensor->dtype()};
        if (came != expected_) {
            throw Error({.where = StrCat("rank ", queue_->world_rank),
                         .what = StrCat("expected ", ToString(expected_), " from itself"),
                         .got = ToString(came),
                         .kind = Error::Kind::kRuntime});
        }
        return tensor;
    }

 private:
    std::shared_ptr<SelfQueue> queue_;
    int64_t place_;
    MessageSpec expected_;
};

class SelfReceiver : public Receiver {
 public:
    explicit SelfReceiver(std::shared_ptr<SelfQueue> queue) : queue_(std::move(queue)) {}

    std::unique_ptr<PendingReceive> Post(const MessageSpec& expected) override {
        return std::make_unique<SelfPendingReceive>(queue_, queue_->num_posted++, expected);
    }

 private:
    std::shared_ptr<SelfQueue> queue_;
};

}  // namespace

std::unique_ptr<Sender> MakeNcclSender(std::shared_ptr<NcclCommunicator> communicator, const Device& device) {
    EnqueueSend(*Tensor::Zeros({1}, DataType::kUInt8, device), {.name = "connection"}, communicator.get());
    return std::make_unique<NcclSender>(std::move(communicator), device);
}

std::unique_ptr<Receiver> MakeNcclReceiver(std::shared_ptr<NcclCommunicator> communicator, const Device& device) {
    EnqueueReceive(*Tensor::Empty({1}, DataType::kUInt8, device), {.name = "connection"}, communicator.get());
    return std::make_unique<NcclReceiver>(std::move(communicator), device);
}

SelfLinkEnds MakeSelfLink(int world_rank) {
    const auto queue = std::make_shared<SelfQueue>(SelfQueue{.world_rank = world_rank});
    return {.sender = std::make_unique<SelfSender>(queue), .receiver = std::make_unique<SelfReceiver>(queue)};
}

}  // namespace infini_train::comm
