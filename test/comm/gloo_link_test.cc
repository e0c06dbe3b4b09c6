// Links over gloo. The processes are threads here, and find each other as processes do.
#include <atomic>
#include <csignal>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/comm/channel.h"
#include "infini_train/include/common/str_cat.h"
#include "test/comm/gloo_ranks.h"
#include "test/comm/two_ranks.h"

namespace infini_train::comm {
namespace {

// Two ranks of two processes, and ranks that are neighbours within and between processes.
const std::vector<Layout> kLayouts = {{.num_processes = 2, .num_threads = 1},
                                      {.num_processes = 4, .num_threads = 1},
                                      {.num_processes = 2, .num_threads = 2},
                                      {.num_processes = 3, .num_threads = 2}};
constexpr int64_t kLarge = (5 << 20) / 4 + 1;  // float32 of more than 4 MiB: more than a socket holds

MessageTag Microbatch(int microbatch) {
    return {.direction = Direction::kForward, .stage = 1, .microbatch = microbatch};
}

MessageSpec NumberSpec(int microbatch) {
    return {.tag = Microbatch(microbatch), .shape = {1}, .dtype = DataType::kFloat32};
}

std::shared_ptr<Tensor> Number(float value, const Mesh& mesh) {
    return Tensor::FromVector<float>({value}, {1}, mesh.device);
}

/// The forward link from rank 0 to rank 1, and back.
struct BothLinks {
    explicit BothLinks(const Mesh& mesh)
        : ends(mesh.world->OpenLinks({{.from = 0, .to = 1, .direction = Direction::kForward},
                                      {.from = 1, .to = 0, .direction = Direction::kForward}})),
          peer(1 - mesh.rank) {}

    Sender& sender() { return *ends.senders.at({peer, Direction::kForward}); }
    Receiver& receiver() { return *ends.receivers.at({peer, Direction::kForward}); }

    LinkEnds ends;
    int peer;
};

struct Message {
    MessageSpec spec;
    float first;  // of its values, which count on from there
};

/// The m-th message of a link; some are empty, some large, the dtypes change.
Message MakeMessage(const Link& link, int m) {
    const int64_t sizes[] = {1000, 0, kLarge, 1, 7};
    return {.spec = {.tag = {.direction = link.direction, .stage = link.to, .microbatch = m},
                     .shape = {sizes[m % 5], 1},
                     .dtype = m % 3 == 1 ? DataType::kInt32 : DataType::kFloat32},
            .first = static_cast<float>(link.from * 100 + link.to * 10 + m) +
                     (link.direction == Direction::kBackward ? 1000.0f : 0.0f)};
}

template <typename T>
std::vector<T> Numbers(const Message& message) {
    std::vector<T> numbers;
    for (int64_t i = 0; i < message.spec.shape[0]; ++i) {
        numbers.push_back(static_cast<T>(message.first + static_cast<float>(i % 1000)));
    }
    return numbers;
}

std::shared_ptr<Tensor> MakeTensor(const Message& message, const Device& device) {
    return message.spec.dtype == DataType::kInt32
               ? Tensor::FromVector(Numbers<int32_t>(message), message.spec.shape, device)
               : Tensor::FromVector(Numbers<float>(message), message.spec.shape, device);
}

void ExpectMessage(const Message& message, const Tensor& x) {
    EXPECT_EQ(x.shape(), message.spec.shape);
    ASSERT_EQ(x.dtype(), message.spec.dtype);
    EXPECT_TRUE(x.dtype() == DataType::kInt32 ? x.ToVector<int32_t>() == Numbers<int32_t>(message)
                                              : x.ToVector<float>() == Numbers<float>(message))
        << ToString(message.spec);
}

/// Both directions of a ring, and of each rank a link to itself.
std::vector<Link> RingLinks(int size) {
    std::vector<Link> links;
    for (int rank = 0; rank < size; ++rank) {
        const int next = (rank + 1) % size;
        links.push_back({.from = rank, .to = next, .direction = Direction::kForward});
        links.push_back({.from = next, .to = rank, .direction = Direction::kBackward});
        links.push_back({.from = rank, .to = rank, .direction = Direction::kForward});
    }
    return links;
}

/// All receives are posted before the messages are sent, or after.
void ExpectRing(const Mesh& mesh, LinkEnds* ends, const std::vector<Link>& links, bool posts_early) {
    constexpr int kNumMessages = 10;
    struct Receive {
        Message message;
        std::unique_ptr<PendingReceive> pending;
    };
    std::vector<Receive> receives;
    const auto post = [&] {
        for (int m = 0; m < kNumMessages; ++m) {
            for (const Link& link : links) {
                if (link.to == mesh.rank) {
                    const Message message = MakeMessage(link, m);
                    receives.push_back(
                        {.message = message,
                         .pending = ends->receivers.at({link.from, link.direction})->Post(message.spec)});
                }
            }
        }
    };
    if (posts_early) {
        post();
    }
    for (int m = 0; m < kNumMessages; ++m) {
        for (const Link& link : links) {
            if (link.from == mesh.rank) {
                const Message message = MakeMessage(link, m);
                ends->senders.at({link.to, link.direction})->Send(MakeTensor(message, mesh.device), message.spec.tag);
                // Memory that is given out again too early would change what is sent.
                Tensor::Empty(message.spec.shape, message.spec.dtype, mesh.device)->SetZero();
            }
        }
    }
    if (!posts_early) {
        post();
    }
    // Whoever is waited for first: the k-th receive has the k-th message.
    for (auto receive = receives.rbegin(); receive != receives.rend(); ++receive) {
        ExpectMessage(receive->message, *receive->pending->Wait());
    }
}

TEST(GlooLink, CarriesMessagesOfAnySizeBothWaysAtOnce) {
    for (const Layout& layout : kLayouts) {
        SCOPED_TRACE(StrCat(layout.num_processes, " processes of ", layout.num_threads));
        ExpectNoErrors(RunProcesses(layout, [](const Mesh& mesh) {
            const std::vector<Link> links = RingLinks(mesh.world->size());
            LinkEnds ends = mesh.world->OpenLinks(links);
            ExpectRing(mesh, &ends, links, /*posts_early=*/true);
            ExpectRing(mesh, &ends, links, /*posts_early=*/false);
        }));
    }
}

TEST(GlooLink, KeepsTheLinksOfGroupsApart) {
    ExpectNoErrors(RunProcesses({.num_processes = 2, .num_threads = 2}, [](const Mesh& mesh) {
        // Of ranks 0 and 2, and of 1 and 3, beside those of the world between the same processes.
        const auto pair = mesh.world->Split(mesh.rank % 2);
        const std::vector<Link> own = {{.from = 0, .to = 1, .direction = Direction::kForward}};
        LinkEnds ends = pair->OpenLinks(own);
        LinkEnds world_ends = mesh.world->OpenLinks({{.from = 0, .to = 2, .direction = Direction::kForward},
                                                     {.from = 1, .to = 3, .direction = Direction::kForward}});
        const auto value = static_cast<float>(mesh.rank);
        if (pair->rank() == 0) {
            world_ends.senders.at({mesh.rank + 2, Direction::kForward})->Send(Number(value + 10, mesh), Microbatch(0));
            ends.senders.at({1, Direction::kForward})->Send(Number(value, mesh), Microbatch(0));
        } else {
            const auto mine = ends.receivers.at({0, Direction::kForward})->Post(NumberSpec(0));
            EXPECT_EQ(mine->Wait()->ToVector<float>()[0], value - 2);
            const auto worlds = world_ends.receivers.at({mesh.rank - 2, Direction::kForward})->Post(NumberSpec(0));
            EXPECT_EQ(worlds->Wait()->ToVector<float>()[0], value - 2 + 10);
        }
    }));
}

TEST(GlooLink, DeliversWhatARankSentBeforeItsEnd) {
    std::latch has_ended(1);
    ExpectNoErrors(RunProcesses({.num_processes = 2}, [&](const Mesh& mesh) {
        BothLinks links(mesh);
        const Message message = MakeMessage({.from = 0, .to = 1, .direction = Direction::kForward}, 2);
        if (mesh.rank == 0) {
            links.sender().Send(MakeTensor(message, mesh.device), message.spec.tag);
            links.ends = {};
            has_ended.count_down();
        } else {
            has_ended.wait();
            ExpectMessage(message, *links.receiver().Post(message.spec)->Wait());
        }
    }));
}

TEST(GlooLink, FreesWhatTheOtherProcessHasTaken) {
    ExpectNoErrors(RunProcesses({.num_processes = 2}, [](const Mesh& mesh) {
        BothLinks links(mesh);
        if (mesh.rank == 0) {
            for (int m = 0; m < 20; ++m) {
                links.sender().Send(Tensor::Zeros({kLarge}, DataType::kFloat32, mesh.device), Microbatch(m));
                EXPECT_EQ(links.receiver().Post(NumberSpec(m))->Wait()->num_elements(), 1);
            }
            // The last may still be on its way to be freed when the answer is here.
            EXPECT_LT(mesh.device.allocator->stats().peak_bytes, 4 * 4 * kLarge);
        } else {
            for (int m = 0; m < 20; ++m) {
                links.receiver().Post({.tag = Microbatch(m), .shape = {kLarge}})->Wait();
                links.sender().Send(Number(0.0f, mesh), Microbatch(m));
            }
        }
    }));
}

TEST(GlooLink, GivesAMessageToNobodyElseWhenItsReceiveIsDropped) {
    ExpectNoErrors(RunProcesses({.num_processes = 2}, [](const Mesh& mesh) {
        BothLinks links(mesh);
        if (mesh.rank == 0) {
            for (int m = 0; m < 4; ++m) {
                links.sender().Send(Number(static_cast<float>(m), mesh), Microbatch(m));
            }
        } else {
            for (int m = 0; m < 4; ++m) {
                auto receive = links.receiver().Post(NumberSpec(m));
                if (m % 2 == 1) {
                    EXPECT_EQ(receive->Wait()->ToVector<float>()[0], static_cast<float>(m));
                }
            }
        }
        mesh.world->Barrier();
    }));
}

/// What rank 1 says of what rank 0 sends instead of a [4, 3] bfloat16 of micro-batch 3.
std::string ErrorOfAnother(const Shape& shape, DataType dtype, int microbatch) {
    std::string text;
    ExpectNoErrors(RunProcesses({.num_processes = 2}, [&](const Mesh& mesh) {
        BothLinks links(mesh);
        if (mesh.rank == 0) {
            links.sender().Send(Tensor::Zeros(shape, dtype, mesh.device), Microbatch(microbatch));
        } else {
            const auto receive =
                links.receiver().Post({.tag = Microbatch(3), .shape = {4, 3}, .dtype = DataType::kBFloat16});
            text = ErrorOf([&] { receive->Wait(); });
        }
    }));
    return text;
}

// bugs.csv O14: the two ends had different dtypes.
TEST(GlooLink, RefusesAnotherTagShapeOrDtype) {
    const std::string expected =
        "rank 1: expected forward of micro-batch 3 for stage 1 [4, 3] bfloat16 from rank 0 of process 0 (";
    struct Case {
        Shape shape;
        DataType dtype;
        int microbatch;
    };
    for (const Case& each : std::vector<Case>{{{4, 3}, DataType::kBFloat16, 2},
                                              {{6, 2}, DataType::kBFloat16, 3},
                                              {{4, 3}, DataType::kFloat32, 3},
                                              {{5000, 1000}, DataType::kFloat32, 3},
                                              {{0, 3}, DataType::kBFloat16, 3}}) {
        const std::string error = ErrorOfAnother(each.shape, each.dtype, each.microbatch);
        EXPECT_TRUE(error.starts_with(expected)) << error;
        ExpectContains(error, StrCat("(got forward of micro-batch ", each.microbatch, " for stage 1 ",
                                     infini_train::ToString(each.shape), " ", Name(each.dtype), ")"));
    }
}

TEST(GlooLink, NamesWhomItWaitedForInVain) {
    std::latch has_waited(1);
    const std::vector<std::string> errors = RunProcesses(
        {.num_processes = 2},
        [&](const Mesh& mesh) {
            BothLinks links(mesh);
            if (mesh.rank == 0) {
                has_waited.wait();
            } else {
                try {
                    links.receiver().Post(NumberSpec(7))->Wait();
                } catch (const Error&) {
                    has_waited.count_down();
                    throw;
                }
            }
        },
        /*timeout_s=*/1.0);
    ExpectSame(errors,
               "[rank 1] waited 1 s for forward of micro-batch 7 for stage 1 [1] float32 from rank 0 of process 0 (");
}

// bugs.csv O15: messages larger than any buffer, and both ranks send before they receive.
TEST(GlooLink, TakesLargeMessagesFromTwoRanksThatBothSendFirst) {
    constexpr int64_t kElements = int64_t{16} << 20;  // 64 MiB of float32
    ExpectNoErrors(RunProcesses({.num_processes = 2}, [](const Mesh& mesh) {
        BothLinks links(mesh);
        for (int m = 0; m < 2; ++m) {
            const auto large = Tensor::Empty({kElements}, DataType::kFloat32, mesh.device);
            large->data<float>()[kElements - 1] = static_cast<float>(10 * mesh.rank + m);
            links.sender().Send(large, Microbatch(m));
        }
        for (int m = 0; m < 2; ++m) {
            const auto received = links.receiver().Post({.tag = Microbatch(m), .shape = {kElements}})->Wait();
            EXPECT_EQ(received->data<float>()[kElements - 1], static_cast<float>(10 * links.peer + m));
        }
    }));
}

}  // namespace
}  // namespace infini_train::comm
