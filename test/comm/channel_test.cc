#include "infini_train/include/comm/channel.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/comm/run_ranks.h"
#include "test/comm/two_ranks.h"
#include "test/comm/warnings.h"

namespace infini_train::comm {
namespace {

constexpr MessageTag kTag = {.direction = Direction::kForward, .stage = 1, .microbatch = 3};

std::shared_ptr<Tensor> Number(float value, const Device& device) {
    return Tensor::FromVector<float>({value}, {1}, device);
}

MessageTag Microbatch(int microbatch) {
    return {.direction = Direction::kForward, .stage = 1, .microbatch = microbatch};
}

MessageSpec NumberSpec(int microbatch) {
    return {.tag = Microbatch(microbatch), .shape = {1}, .dtype = DataType::kFloat32};
}

float ValueOf(PendingReceive& receive) {
    return receive.Wait()->ToVector<float>()[0];
}

int64_t LiveBytes(const Device& device) {
    return device.allocator->stats().live_bytes;
}

int64_t PeakBytes(const Device& device) {
    return device.allocator->stats().peak_bytes;
}

/// The forward link from rank 0 to rank 1.
struct Link {
    explicit Link(const TwoRanks& ranks)
        : sender(OpenSender(*ranks.groups[0], 1, Direction::kForward)),
          receiver(OpenReceiver(*ranks.groups[1], 0, Direction::kForward)) {}

    std::unique_ptr<Sender> sender;
    std::unique_ptr<Receiver> receiver;
};

TEST(Message, SaysWhatItIs) {
    EXPECT_EQ(ToString(kTag), "forward of micro-batch 3 for stage 1");
    EXPECT_EQ(ToString(MessageSpec{.tag = {.direction = Direction::kBackward, .stage = 0, .microbatch = 12},
                                   .shape = {4, 64, 128},
                                   .dtype = DataType::kBFloat16}),
              "backward of micro-batch 12 for stage 0 [4, 64, 128] bfloat16");
}

TEST(Channel, DeliversInTheOrderOfTheSender) {
    const TwoRanks ranks;
    const Link link(ranks);
    for (int m = 0; m < 3; ++m) {
        link.sender->Send(Number(static_cast<float>(m), ranks.devices[0]), Microbatch(m));
    }
    std::vector<std::unique_ptr<PendingReceive>> receives;
    for (int m = 0; m < 3; ++m) {
        receives.push_back(link.receiver->Post(NumberSpec(m)));
    }
    // Whoever is waited for first: the k-th receive has the k-th message.
    for (const size_t m : {2, 0, 1}) {
        EXPECT_EQ(ValueOf(*receives[m]), static_cast<float>(m));
    }
}

TEST(Channel, MeetsReceivesThatWerePostedEarly) {
    const TwoRanks ranks;
    const Link link(ranks);
    const auto first = link.receiver->Post(NumberSpec(0));
    const auto second = link.receiver->Post(NumberSpec(1));
    link.sender->Send(Number(0.5f, ranks.devices[0]), Microbatch(0));
    link.sender->Send(Number(1.5f, ranks.devices[0]), Microbatch(1));
    link.sender->Send(Number(2.5f, ranks.devices[0]), Microbatch(2));
    const auto third = link.receiver->Post(NumberSpec(2));
    EXPECT_EQ(ValueOf(*third), 2.5f);
    EXPECT_EQ(ValueOf(*second), 1.5f);
    EXPECT_EQ(ValueOf(*first), 0.5f);
}

// bugs.csv O12: with two ranks the next one is the previous one.
TEST(Channel, KeepsDirectionsAndWaysApart) {
    const TwoRanks ranks;
    std::vector<std::unique_ptr<Sender>> senders;
    std::vector<std::unique_ptr<Receiver>> receivers;
    // The gradients first, so that a mailbox by peer alone would swap them with the activations.
    for (const Direction direction : {Direction::kBackward, Direction::kForward}) {
        for (const size_t from : {0, 1}) {
            const int to = from == 0 ? 1 : 0;
            senders.push_back(OpenSender(*ranks.groups[from], to, direction));
            senders.back()->Send(Number(static_cast<float>(senders.size()), ranks.devices[from]),
                                 {.direction = direction, .stage = to, .microbatch = 0});
        }
    }
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
        for (const size_t to : {0, 1}) {
            const int from = to == 0 ? 1 : 0;
            receivers.push_back(OpenReceiver(*ranks.groups[to], from, direction));
            const MessageTag tag = {.direction = direction, .stage = static_cast<int>(to), .microbatch = 0};
            const auto receive = receivers.back()->Post({.tag = tag, .shape = {1}, .dtype = DataType::kFloat32});
            const float sent = (direction == Direction::kBackward ? 1.0f : 3.0f) + static_cast<float>(from);
            EXPECT_EQ(ValueOf(*receive), sent);
        }
    }
}

TEST(Channel, LeadsFromARankToItself) {
    const TwoRanks ranks;
    const LinkEnds ends = ranks.groups[1]->OpenLinks({{.from = 1, .to = 1, .direction = Direction::kForward}});
    const auto& sender = ends.senders.at({1, Direction::kForward});
    const auto& receiver = ends.receivers.at({1, Direction::kForward});
    auto tensor = Number(7.0f, ranks.devices[1]);
    const void* data = tensor->raw_data();
    sender->Send(std::move(tensor), Microbatch(0));
    const auto early = receiver->Post(NumberSpec(0));
    const auto late = receiver->Post(NumberSpec(1));
    sender->Send(Number(8.0f, ranks.devices[1]), Microbatch(1));
    EXPECT_EQ(early->Wait()->raw_data(), data);
    EXPECT_EQ(ValueOf(*late), 8.0f);
    EXPECT_EQ(LiveBytes(ranks.devices[1]), 0);
    EXPECT_EQ(ranks.devices[1].allocator->stats().peak_bytes, 2 * static_cast<int64_t>(Allocator::kAlignment));
}

TEST(Channel, MovesTheTensorWithoutItsTape) {
    const TwoRanks ranks;
    const Link link(ranks);
    auto tensor = Tensor::FromVector<float>({1.0f, -2.0f, 3.0f, 4.0f, 5.0f, 6.0f}, {2, 3}, ranks.devices[0]);
    tensor->set_requires_grad(true);
    const std::weak_ptr<Tensor> sent = tensor;
    const void* data = tensor->raw_data();
    link.sender->Send(std::move(tensor), kTag);
    EXPECT_TRUE(sent.expired());
    const auto received = link.receiver->Post({.tag = kTag, .shape = {2, 3}, .dtype = DataType::kFloat32})->Wait();
    EXPECT_EQ(received->raw_data(), data);
    EXPECT_EQ(received->ToVector<float>()[5], 6.0f);
    EXPECT_FALSE(received->requires_grad());
    EXPECT_TRUE(received->owns_storage_alone());
    EXPECT_EQ(received->device().allocator, ranks.devices[1].allocator);
}

TEST(Channel, CarriesNoElements) {
    const TwoRanks ranks;
    const Link link(ranks);
    link.sender->Send(Tensor::Zeros({0, 5}, DataType::kBFloat16, ranks.devices[0]), kTag);
    const auto receive = link.receiver->Post({.tag = kTag, .shape = {0, 5}, .dtype = DataType::kBFloat16});
    EXPECT_EQ(receive->Wait()->shape(), (Shape{0, 5}));
}

TEST(Channel, RefusesAMessageForSomethingElse) {
    const TwoRanks ranks;
    const Link link(ranks);
    link.sender->Send(Number(1.0f, ranks.devices[0]), Microbatch(2));
    const auto receive = link.receiver->Post(NumberSpec(3));
    EXPECT_EQ(
        ErrorOf([&] { receive->Wait(); }),
        "rank 1: expected forward of micro-batch 3 for stage 1 [1] float32 from rank 0 (got forward of micro-batch "
        "2 for stage 1 [1] float32)");
    link.sender->Send(Number(1.0f, ranks.devices[0]), {.direction = Direction::kForward, .stage = 3, .microbatch = 4});
    const auto other_stage = link.receiver->Post(NumberSpec(4));
    EXPECT_NE(ErrorOf([&] { other_stage->Wait(); }).find("(got forward of micro-batch 4 for stage 3 [1]"),
              std::string::npos);
}

// bugs.csv O14: the two ends had different dtypes.
TEST(Channel, RefusesAnotherShapeOrDtype) {
    const TwoRanks ranks;
    const Link link(ranks);
    link.sender->Send(Tensor::Zeros({4, 3}, DataType::kFloat32, ranks.devices[0]), kTag);
    link.sender->Send(Tensor::Zeros({6, 2}, DataType::kBFloat16, ranks.devices[0]), kTag);
    const MessageSpec expected = {.tag = kTag, .shape = {4, 3}, .dtype = DataType::kBFloat16};
    for (const std::string got : {"[4, 3] float32", "[6, 2] bfloat16"}) {
        const auto receive = link.receiver->Post(expected);
        EXPECT_EQ(ErrorOf([&] { receive->Wait(); }),
                  "rank 1: expected forward of micro-batch 3 for stage 1 [4, 3] bfloat16 from rank 0 (got forward of "
                  "micro-batch 3 for stage 1 " +
                      got + ")");
    }
}

TEST(Channel, NamesWhomItWaitedForInVain) {
    const TwoRanks ranks(0.05);
    const Link link(ranks);
    const auto receive = link.receiver->Post({.tag = kTag, .shape = {4, 3}, .dtype = DataType::kBFloat16});
    EXPECT_EQ(ErrorOf([&] { receive->Wait(); }),
              "rank 1: waited 0.05 s for forward of micro-batch 3 for stage 1 [4, 3] bfloat16 from rank 0");
}

TEST(Channel, WarnsOfTheSlowRankAtTheEndOfAChain) {
    Warnings warnings;
    RunRanks({.shape = {.pipeline = 4}, .timeout_s = 3.0}, [&](const Mesh& mesh) {
        std::shared_ptr<Tensor> number;
        if (mesh.rank == 3) {
            warnings.WaitForFirst();
            number = Number(1.0f, mesh.device);
        } else {
            number = OpenReceiver(*mesh.world, mesh.rank + 1, Direction::kForward)->Post(NumberSpec(7))->Wait();
        }
        if (mesh.rank > 0) {
            OpenSender(*mesh.world, mesh.rank - 1, Direction::kForward)->Send(std::move(number), Microbatch(7));
        }
    });
    ASSERT_EQ(warnings.texts().size(), 1u);
    const std::string text = warnings.texts()[0];
    EXPECT_TRUE(text.starts_with("[rank 2] has waited ") &&
                text.ends_with(" s for forward of micro-batch 7 for stage 1 [1] float32 from rank 3"))
        << text;
}

TEST(Channel, CountsAMessageForTheReceiverFromDelivery) {
    for (const bool posted_first : {false, true}) {
        const TwoRanks ranks;
        const Link link(ranks);
        constexpr int64_t kBytes = 1024;  // 1000 rounded up
        const MessageSpec spec = {.tag = kTag, .shape = {250}, .dtype = DataType::kFloat32};
        std::unique_ptr<PendingReceive> receive;
        if (posted_first) {
            receive = link.receiver->Post(spec);
        }
        link.sender->Send(Tensor::Zeros({250}, DataType::kFloat32, ranks.devices[0]), kTag);
        if (!posted_first) {
            EXPECT_EQ(LiveBytes(ranks.devices[0]), kBytes);
            EXPECT_EQ(PeakBytes(ranks.devices[1]), 0);
            receive = link.receiver->Post(spec);
        }
        EXPECT_EQ(LiveBytes(ranks.devices[0]), 0);
        EXPECT_EQ(LiveBytes(ranks.devices[1]), kBytes);
        receive->Wait();
        EXPECT_EQ(LiveBytes(ranks.devices[1]), 0);
        EXPECT_EQ(PeakBytes(ranks.devices[1]), kBytes);
        // The block is the sender's again.
        EXPECT_EQ(ranks.devices[1].allocator->stats().reserved_bytes, 0);
        EXPECT_EQ(ranks.devices[0].allocator->stats().num_system_requests, 1);
    }
}

TEST(Channel, GivesAMessageToNobodyElseWhenItsReceiveIsDropped) {
    const TwoRanks ranks;
    const Link link(ranks);
    link.receiver->Post(NumberSpec(0)).reset();
    link.sender->Send(Number(0.0f, ranks.devices[0]), Microbatch(0));
    link.sender->Send(Number(1.0f, ranks.devices[0]), Microbatch(1));
    EXPECT_EQ(ValueOf(*link.receiver->Post(NumberSpec(1))), 1.0f);
    EXPECT_EQ(LiveBytes(ranks.devices[0]) + LiveBytes(ranks.devices[1]), 0);
}

TEST(Channel, FreesWhatNobodyTook) {
    std::vector<std::weak_ptr<Allocator>> allocators;
    {
        const TwoRanks ranks;
        allocators = {ranks.devices[0].allocator, ranks.devices[1].allocator};
        const Link link(ranks);
        const auto delivered = link.receiver->Post(NumberSpec(0));  // never waited for
        for (int m = 0; m < 3; ++m) {
            link.sender->Send(Number(0.0f, ranks.devices[0]), Microbatch(m));
        }
        EXPECT_GT(LiveBytes(ranks.devices[0]), 0);
        EXPECT_GT(LiveBytes(ranks.devices[1]), 0);
    }
    EXPECT_TRUE(allocators[0].expired());
    EXPECT_TRUE(allocators[1].expired());
}

TEST(Channel, DeliversWhatAGroupThatHasEndedSent) {
    std::unique_ptr<PendingReceive> receive;
    std::weak_ptr<Allocator> sender_allocator;
    {
        const TwoRanks ranks;
        const Link link(ranks);
        receive = link.receiver->Post(NumberSpec(0));
        link.sender->Send(Number(4.0f, ranks.devices[0]), Microbatch(0));
        sender_allocator = ranks.devices[0].allocator;
    }
    {
        const auto received = receive->Wait();
        EXPECT_EQ(received->data<float>()[0], 4.0f);
        EXPECT_FALSE(sender_allocator.expired());
    }
    EXPECT_TRUE(sender_allocator.expired());
}

// bugs.csv O15: messages larger than any buffer, and both ranks send before they receive.
TEST(Channel, TakesLargeMessagesFromTwoRanksThatBothSendFirst) {
    constexpr int64_t kElements = int64_t{16} << 20;  // 64 MiB of float32
    RunRanks({.shape = {.pipeline = 2}, .timeout_s = 60.0}, [](const Mesh& mesh) {
        const int peer = 1 - mesh.rank;
        const auto sender = OpenSender(*mesh.pipeline, peer, Direction::kForward);
        const auto receiver = OpenReceiver(*mesh.pipeline, peer, Direction::kForward);
        for (int m = 0; m < 2; ++m) {
            const auto large = Tensor::Empty({kElements}, DataType::kFloat32, mesh.device);
            large->data<float>()[kElements - 1] = static_cast<float>(10 * mesh.rank + m);
            sender->Send(large, Microbatch(m));
        }
        for (int m = 0; m < 2; ++m) {
            const MessageSpec expected = {.tag = Microbatch(m), .shape = {kElements}, .dtype = DataType::kFloat32};
            const auto received = receiver->Post(expected)->Wait();
            EXPECT_EQ(received->data<float>()[kElements - 1], static_cast<float>(10 * peer + m));
        }
    });
}

TEST(Channel, PassesManyMessagesBetweenThreads) {
    RunRanks({.shape = {.pipeline = 3}, .timeout_s = 60.0}, [](const Mesh& mesh) {
        // A ring: each passes on what it gets, and adds one.
        const auto sender = OpenSender(*mesh.pipeline, (mesh.rank + 1) % 3, Direction::kForward);
        const auto receiver = OpenReceiver(*mesh.pipeline, (mesh.rank + 2) % 3, Direction::kForward);
        auto number = Number(0.0f, mesh.device);
        for (int m = 0; m < 300; ++m) {
            std::unique_ptr<PendingReceive> receive;
            if (m % 2 == 0) {
                receive = receiver->Post(NumberSpec(m));
            }
            sender->Send(std::move(number), Microbatch(m));
            if (m % 2 == 1) {
                receive = receiver->Post(NumberSpec(m));
            }
            number = receive->Wait();
            number->data<float>()[0] += 1.0f;
        }
        EXPECT_EQ(number->data<float>()[0], 300.0f);
        // One message may be on its way, and one may wait.
        EXPECT_LE(PeakBytes(mesh.device), 3 * static_cast<int64_t>(Allocator::kAlignment));
    });
}

TEST(ChannelDeathTest, IsOpenedOnceAndWaitedForOnce) {
    const TwoRanks ranks;
    const Link link(ranks);
    EXPECT_DEATH(OpenSender(*ranks.groups[0], 1, Direction::kForward), "from rank 0 to rank 1 opened twice");
    EXPECT_DEATH(OpenReceiver(*ranks.groups[1], 0, Direction::kForward), "from rank 0 to rank 1 opened twice");
    EXPECT_DEATH(OpenSender(*ranks.groups[0], 2, Direction::kForward), "from rank 0 to rank 2 of 2");
    EXPECT_DEATH(link.sender->Send(nullptr, kTag), "Must be non NULL|non-null");
    link.sender->Send(Number(1.0f, ranks.devices[0]), Microbatch(0));
    const auto receive = link.receiver->Post(NumberSpec(0));
    receive->Wait();
    EXPECT_DEATH(receive->Wait(), "waited for before");
}

}  // namespace
}  // namespace infini_train::comm
