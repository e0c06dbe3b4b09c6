#include "infini_train/src/comm/local/mailbox.h"

#include <string>
#include <utility>
#include <vector>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::comm {
namespace {

class LocalSender : public Sender {
 public:
    explicit LocalSender(std::shared_ptr<Mailbox> mailbox) : mailbox_(std::move(mailbox)) {}

    void Send(std::shared_ptr<Tensor> tensor, const MessageTag& tag) override {
        mailbox_->Send(std::move(tensor), tag);
    }

 private:
    std::shared_ptr<Mailbox> mailbox_;
};

class LocalPendingReceive : public PendingReceive {
 public:
    LocalPendingReceive(std::shared_ptr<Mailbox> mailbox, std::shared_ptr<Mailbox::Receive> receive)
        : mailbox_(std::move(mailbox)), receive_(std::move(receive)) {}

    std::shared_ptr<Tensor> Wait() override {
        CHECK(receive_ != nullptr) << "a receive that was waited for before";
        return mailbox_->Take(std::exchange(receive_, nullptr).get());
    }

 private:
    std::shared_ptr<Mailbox> mailbox_;
    std::shared_ptr<Mailbox::Receive> receive_;
};

class LocalReceiver : public Receiver {
 public:
    LocalReceiver(std::shared_ptr<Mailbox> mailbox, const Device& device)
        : mailbox_(std::move(mailbox)), device_(device) {}

    std::unique_ptr<PendingReceive> Post(const MessageSpec& expected) override {
        return std::make_unique<LocalPendingReceive>(mailbox_, mailbox_->Post(expected, device_));
    }

 private:
    std::shared_ptr<Mailbox> mailbox_;
    Device device_;
};

}  // namespace

Mailbox::Mailbox(std::shared_ptr<LocalWorld> world, int sender, int receiver)
    : world_(std::move(world)), sender_(sender), receiver_(receiver) {}

void Mailbox::Deliver(Message message, Receive* receive) {
    const bool fits =
        message.tensor->shape() == receive->expected.shape && message.tensor->dtype() == receive->expected.dtype;
    if (receive->buffer == nullptr || !fits) {
        // What does not fit is an error of the receiver, who must see it as it came.
        receive->message = {.tensor = receive->buffer == nullptr ? message.tensor->HandOver(receive->device)
                                                                 : std::move(message.tensor),
                            .tag = message.tag,
                            .ready = std::move(message.ready)};
        return;
    }
    copies_->WaitFor(*message.ready);
    copies_->WaitFor(*receive->buffer_free);
    copies_->Copy(message.tensor->raw_data(), receive->buffer->raw_data(), receive->buffer->size_bytes());
    const std::shared_ptr<const Event> done = copies_->Record();
    message.tensor->UsedUntil(done);
    receive->buffer->UsedUntil(done);
    receive->message = {.tensor = std::move(receive->buffer), .tag = message.tag, .ready = done};
}

void Mailbox::Send(std::shared_ptr<Tensor> tensor, const MessageTag& tag) {
    CHECK_NOTNULL(tensor.get());
    // The tensor may be the last that holds a tape. That ends here, on the sender's thread and outside of the lock.
    Message message = {.tensor = tensor->Detach(), .tag = tag};
    if (Stream* const stream = StreamOf(tensor->device()); stream != nullptr) {
        message.ready = stream->Record();
    }
    tensor.reset();

    const auto lock = world_->Lock();
    if (receives_.empty()) {
        messages_.push_back(std::move(message));
        return;
    }
    const std::shared_ptr<Receive> receive = std::move(receives_.front());
    receives_.pop_front();
    Deliver(std::move(message), receive.get());
    world_->Wake(receiver_);
}

std::shared_ptr<Mailbox::Receive> Mailbox::Post(const MessageSpec& expected, const Device& device) {
    const auto receive = std::make_shared<Receive>(Receive{.expected = expected, .device = device});
    const bool copies = world_->GpuOf(sender_) != world_->GpuOf(receiver_);
    if (copies) {
        receive->buffer = Tensor::Empty(expected.shape, expected.dtype, device);
        receive->buffer_free = StreamOf(device)->Record();
    }
    const auto lock = world_->Lock();
    if (copies && copies_ == nullptr) {
        copies_ = MakeCudaStream(device.index);
    }
    if (messages_.empty()) {
        receives_.push_back(receive);
    } else {
        Deliver(std::move(messages_.front()), receive.get());
        messages_.pop_front();
    }
    return receive;
}

std::shared_ptr<Tensor> Mailbox::Take(Receive* receive) {
    const auto wanted = [&] { return StrCat(ToString(receive->expected), " from rank ", sender_); };
    Message message;
    {
        auto lock = world_->Lock();
        world_->Wait(
            &lock, receiver_, [&] { return receive->message.has_value(); }, [&] { return std::vector<int>{sender_}; },
            wanted);
        message = std::move(*receive->message);
    }
    const MessageSpec came = {.tag = message.tag, .shape = message.tensor->shape(), .dtype = message.tensor->dtype()};
    if (came != receive->expected) {
        throw Error({.where = StrCat("rank ", receiver_),
                     .what = "expected " + wanted(),
                     .got = ToString(came),
                     .kind = Error::Kind::kRuntime});
    }
    if (message.ready != nullptr) {
        StreamOf(message.tensor->device())->WaitFor(*message.ready);
    }
    return std::move(message.tensor);
}

std::unique_ptr<Sender> MakeSender(std::shared_ptr<Mailbox> mailbox) {
    return std::make_unique<LocalSender>(std::move(mailbox));
}

std::unique_ptr<Receiver> MakeReceiver(std::shared_ptr<Mailbox> mailbox, const Device& device) {
    return std::make_unique<LocalReceiver>(std::move(mailbox), device);
}

}  // namespace infini_train::comm
