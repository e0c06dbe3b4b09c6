#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "infini_train/include/comm/channel.h"
#include "infini_train/include/core/device.h"
#include "infini_train/src/comm/local/local_world.h"

namespace infini_train::comm {

/// One edge between two ranks for one direction: the messages that no receive was posted for yet, or the receives that
/// no message came for yet. The k-th meets the k-th: then the message is delivered and counts for the receiver.
class Mailbox {
 public:
    struct Message {
        std::shared_ptr<Tensor> tensor = nullptr;
        MessageTag tag = {};
        std::shared_ptr<const Event> ready = nullptr;  // when its values are there; null without streams
    };
    struct Receive {
        MessageSpec expected = {};
        Device device = {};
        std::shared_ptr<Tensor> buffer = nullptr;            // on the receiver's GPU where the sender has another,
        std::shared_ptr<const Event> buffer_free = nullptr;  // and when it may be written
        std::optional<Message> message = std::nullopt;       // once delivered
    };

    /// Ranks of the world.
    Mailbox(std::shared_ptr<LocalWorld> world, int sender, int receiver);

    void Send(std::shared_ptr<Tensor> tensor, const MessageTag& tag);
    std::shared_ptr<Receive> Post(const MessageSpec& expected, const Device& device);
    /// Waits for the message of a posted receive and gives it away. Throws as PendingReceive::Wait.
    std::shared_ptr<Tensor> Take(Receive* receive);

 private:
    void Deliver(Message message, Receive* receive);

    std::shared_ptr<LocalWorld> world_;
    int sender_;
    int receiver_;
    std::unique_ptr<Stream> copies_;  // from GPU to GPU, beside the computation; made when first needed
    // One of them is empty. A receive stays here when nobody waits for it any more: its message must not meet another.
    std::deque<Message> messages_;
    std::deque<std::shared_ptr<Receive>> receives_;
};

std::unique_ptr<Sender> MakeSender(std::shared_ptr<Mailbox> mailbox);
/// What arrives is on the device.
std::unique_ptr<Receiver> MakeReceiver(std::shared_ptr<Mailbox> mailbox, const Device& device);

}  // namespace infini_train::comm
