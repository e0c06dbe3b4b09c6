#pragma once

#include <memory>
#include <string>

#include "infini_train/include/core/dtype.h"
#include "infini_train/include/core/shape.h"
#include "infini_train/include/core/tensor.h"

namespace infini_train::comm {

/// Activations go forward, their gradients backward.
enum class Direction { kForward, kBackward };

/// What a message between two stages is.
struct MessageTag {
    Direction direction = Direction::kForward;
    int stage = 0;  // that consumes it, counted over the whole model
    int microbatch = 0;

    bool operator==(const MessageTag&) const = default;
};

/// "forward of micro-batch 3 for stage 1"
std::string ToString(const MessageTag& tag);

/// What a receiver expects, and a sender sends.
struct MessageSpec {
    MessageTag tag = {};
    Shape shape = {};
    DataType dtype = DataType::kFloat32;

    bool operator==(const MessageSpec&) const = default;
};

/// "forward of micro-batch 3 for stage 1 [4, 64, 128] bfloat16"
std::string ToString(const MessageSpec& spec);

/// One directed edge between two ranks for one direction: messages arrive in the order in which they were sent, and the
/// k-th receive that is posted takes the k-th message. A link knows no dtype and no shape of its own.
class Sender {
 public:
    Sender() = default;
    Sender(const Sender&) = delete;
    Sender& operator=(const Sender&) = delete;
    virtual ~Sender() = default;

    /// Hands the tensor over; returns at once. The caller may not use it afterwards.
    virtual void Send(std::shared_ptr<Tensor> tensor, const MessageTag& tag) = 0;
};

/// A receive under way.
class PendingReceive {
 public:
    PendingReceive() = default;
    PendingReceive(const PendingReceive&) = delete;
    PendingReceive& operator=(const PendingReceive&) = delete;
    virtual ~PendingReceive() = default;

    /// The message, on the receiver's device; called once. Throws Error, naming both ends, when what came is not what
    /// was expected, when nothing came within the time-out, and when another rank has failed.
    virtual std::shared_ptr<Tensor> Wait() = 0;
};

class Receiver {
 public:
    Receiver() = default;
    Receiver(const Receiver&) = delete;
    Receiver& operator=(const Receiver&) = delete;
    virtual ~Receiver() = default;

    /// Announces the next receive; returns at once. Posting early lets the transfer run beside the computation.
    virtual std::unique_ptr<PendingReceive> Post(const MessageSpec& expected) = 0;
};

}  // namespace infini_train::comm
