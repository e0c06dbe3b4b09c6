#include "infini_train/src/comm/gloo/gloo_link.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/gloo/gloo_send_queue.h"

namespace infini_train::comm {
namespace {

constexpr size_t kMaxDims = 8;

/// What a message is, as it travels.
struct Header {
    int32_t is_backward = 0;
    int32_t stage = 0;
    int32_t microbatch = 0;
    int32_t dtype = 0;
    int64_t num_dims = 0;
    std::array<int64_t, kMaxDims> dims = {};
};

Header MakeHeader(const MessageSpec& spec) {
    CHECK_LE(spec.shape.size(), kMaxDims) << ToString(spec);
    Header header = {.is_backward = spec.tag.direction == Direction::kBackward ? 1 : 0,
                     .stage = spec.tag.stage,
                     .microbatch = spec.tag.microbatch,
                     .dtype = static_cast<int32_t>(spec.dtype),
                     .num_dims = static_cast<int64_t>(spec.shape.size())};
    std::copy(spec.shape.begin(), spec.shape.end(), header.dims.begin());
    return header;
}

/// Nothing for what no MakeHeader made.
std::optional<MessageSpec> ReadHeader(const Header& header) {
    if (header.num_dims < 0 || header.num_dims > static_cast<int64_t>(kMaxDims) || header.dtype < 0 ||
        header.dtype >= kNumDataTypes) {
        return std::nullopt;
    }
    return MessageSpec{.tag = {.direction = header.is_backward != 0 ? Direction::kBackward : Direction::kForward,
                               .stage = header.stage,
                               .microbatch = header.microbatch},
                       .shape = Shape(header.dims.begin(), header.dims.begin() + header.num_dims),
                       .dtype = static_cast<DataType>(header.dtype)};
}

class GlooSender : public Sender {
 public:
    explicit GlooSender(const GlooLinkOptions& options)
        : options_(options), queue_(std::make_shared<GlooSendQueue>(options.connections.get())) {
        options_.connections->Keep(queue_);
    }

    void Send(std::shared_ptr<Tensor> tensor, const MessageTag& tag) override {
        CHECK_NOTNULL(tensor.get());
        const MessageSpec spec = {.tag = tag, .shape = tensor->shape(), .dtype = tensor->dtype()};
        const auto awaited = [&] {
            return Awaited{.ranks = {options_.receiver},
                           .text = StrCat(ToString(spec), " to ", options_.connections->RankName(options_.receiver))};
        };
        // The tensor may be the last that holds a tape, which ends here.
        const auto message = std::make_shared<Message>(Message{.header = MakeHeader(spec), .tensor = tensor->Detach()});
        tensor.reset();
        GlooSendQueue::Sent sent = {.memory = message};
        const int process = options_.connections->ProcessOf(options_.receiver);
        sent.transfers.push_back(options_.connections->Send({.process = process, .id = options_.ids.header},
                                                            &message->header, sizeof(Header), options_.sender,
                                                            awaited));
        sent.transfers.push_back(options_.connections->Send({.process = process, .id = options_.ids.payload},
                                                            message->tensor->raw_data(), message->tensor->size_bytes(),
                                                            options_.sender, awaited));
        queue_->Push(std::move(sent));
    }

 private:
    struct Message {
        Header header = {};
        std::shared_ptr<Tensor> tensor = nullptr;
    };

    GlooLinkOptions options_;
    std::shared_ptr<GlooSendQueue> queue_;
};

class GlooPendingReceive : public PendingReceive {
 public:
    GlooPendingReceive(const GlooLinkOptions& options, const MessageSpec& expected, const Device& device)
        : options_(options), expected_(expected), arrival_(std::make_shared<Arrival>()) {
        const int process = options.connections->ProcessOf(options.sender);
        const auto awaited = [this] { return ToWaitFor(); };
        arrival_->tensor = Tensor::Empty(expected.shape, expected.dtype, device);
        arrival_->header_transfer =
            options.connections->Receive({.process = process, .id = options.ids.header}, &arrival_->header,
                                         sizeof(Header), options.receiver, awaited);
        arrival_->payload_transfer =
            options.connections->Receive({.process = process, .id = options.ids.payload}, arrival_->tensor->raw_data(),
                                         arrival_->tensor->size_bytes(), options.receiver, awaited);
    }
    ~GlooPendingReceive() override {
        if (arrival_ != nullptr) {
            // Its message must not meet another receive, and gloo stops at one whose memory is gone.
            options_.connections->Keep(std::move(arrival_));
        }
    }

    std::shared_ptr<Tensor> Wait() override {
        CHECK(arrival_ != nullptr) << "a receive that was waited for before";
        const GlooConnections::Clock::time_point deadline = options_.connections->Deadline();
        const auto awaited = [this] { return ToWaitFor(); };
        options_.connections->Wait(arrival_->header_transfer, options_.receiver, deadline, awaited);
        const std::optional<MessageSpec> came = ReadHeader(arrival_->header);
        if (came != expected_) {
            throw Error({.where = StrCat("rank ", options_.receiver),
                         .what = "expected " + ToWaitFor().text,
                         .got = came.has_value() ? ToString(*came) : "no header of a message",
                         .kind = Error::Kind::kRuntime});
        }
        options_.connections->Wait(arrival_->payload_transfer, options_.receiver, deadline, awaited);
        return std::move(std::exchange(arrival_, nullptr)->tensor);
    }

 private:
    /// What gloo writes to.
    struct Arrival {
        Header header = {};
        std::shared_ptr<Tensor> tensor = nullptr;
        GlooTransfer header_transfer = {};  // after the memory, so that they end before it
        GlooTransfer payload_transfer = {};
    };

    Awaited ToWaitFor() const {
        return {.ranks = {options_.sender},
                .text = StrCat(ToString(expected_), " from ", options_.connections->RankName(options_.sender))};
    }

    GlooLinkOptions options_;
    MessageSpec expected_;
    std::shared_ptr<Arrival> arrival_;
};

class GlooReceiver : public Receiver {
 public:
    GlooReceiver(const GlooLinkOptions& options, const Device& device) : options_(options), device_(device) {}

    std::unique_ptr<PendingReceive> Post(const MessageSpec& expected) override {
        return std::make_unique<GlooPendingReceive>(options_, expected, device_);
    }

 private:
    GlooLinkOptions options_;
    Device device_;
};

}  // namespace

std::unique_ptr<Sender> MakeGlooSender(const GlooLinkOptions& options) {
    return std::make_unique<GlooSender>(options);
}

std::unique_ptr<Receiver> MakeGlooReceiver(const GlooLinkOptions& options, const Device& device) {
    return std::make_unique<GlooReceiver>(options, device);
}

}  // namespace infini_train::comm
