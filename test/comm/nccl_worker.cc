// One process of a run over NCCL, for nccl_process_group_test: nccl_worker grid, or a fault by its name. Rank 0 prints
// OK at the end.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "glog/logging.h"

#include "infini_train/include/comm/process_place.h"
#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/core/random.h"

namespace infini_train::comm {
namespace {

constexpr int64_t kLarge = (5 << 20) / 4 + 1;  // float32 of more than 4 MiB, which no buffer of NCCL's takes whole
const std::vector<int64_t> kSizes = {0, 1, 7, 1000, kLarge};

void Expect(bool holds, const Mesh& mesh, const std::string& what) {
    if (!holds) {
        throw Error({.where = StrCat("rank ", mesh.rank), .what = what + " is wrong", .kind = Error::Kind::kRuntime});
    }
}

/// Whole numbers, exact in every type; another value for each element and key.
template <typename T>
std::vector<T> Numbers(int64_t num_elements, int key) {
    std::vector<T> values;
    for (int64_t i = 0; i < num_elements; ++i) {
        const auto number = static_cast<int>((i * 7 + key * 31) % 127);
        if constexpr (std::is_same_v<T, BFloat16>) {
            values.push_back(BFloat16(static_cast<float>(number)));
        } else {
            values.push_back(static_cast<T>(number));
        }
    }
    return values;
}

/// The same bytes: BFloat16 has no ==.
template <typename T>
bool IsSame(const Tensor& x, const std::vector<T>& wanted) {
    const std::vector<T> values = x.ToVector<T>();
    if (values.size() != wanted.size()) {
        return false;
    }
    for (size_t i = 0; i < values.size(); ++i) {
        if constexpr (std::is_same_v<T, BFloat16>) {
            if (values[i].bits != wanted[i].bits) {
                return false;
            }
        } else if (values[i] != wanted[i]) {
            return false;
        }
    }
    return true;
}

template <typename T>
std::vector<T> SumOfRanks(int64_t num_elements, const std::vector<int>& ranks) {
    std::vector<T> sum(static_cast<size_t>(num_elements));
    for (const int rank : ranks) {
        const std::vector<T> values = Numbers<T>(num_elements, rank);
        for (size_t i = 0; i < sum.size(); ++i) {
            sum[i] += values[i];
        }
    }
    return sum;
}

template <typename T>
void CheckSums(const Mesh& mesh, ProcessGroup& group) {
    TensorList list;
    for (const int64_t size : kSizes) {
        const auto alone = Tensor::FromVector(Numbers<T>(size, mesh.rank), {size}, mesh.device);
        group.AllReduceSum({alone});
        Expect(IsSame(*alone, SumOfRanks<T>(size, group.world_ranks())), mesh, StrCat("a sum of ", size));
        list.push_back(Tensor::FromVector(Numbers<T>(size, mesh.rank), {size}, mesh.device));
    }
    group.AllReduceSum(list);
    for (const std::shared_ptr<Tensor>& x : list) {
        Expect(IsSame(*x, SumOfRanks<T>(x->num_elements(), group.world_ranks())), mesh,
               StrCat("a sum of ", x->num_elements(), " in a list"));
    }
    group.AllReduceSum({});
}

/// Values whose sum shows its order in its bits: those have to be the same on every rank, and again.
void CheckSumBits(const Mesh& mesh) {
    for (const int64_t size : {int64_t{1000}, kLarge}) {
        std::vector<float> values;
        for (int64_t i = 0; i < size; ++i) {
            const RandomStream random = {.seed = 1, .stream = static_cast<uint64_t>(mesh.rank)};
            values.push_back(static_cast<float>(Normal(random, static_cast<uint64_t>(i))));
        }
        std::vector<float> first;
        for (int round = 0; round < 2; ++round) {
            const auto x = Tensor::FromVector(values, {size}, mesh.device);
            mesh.world->AllReduceSum({x});
            const auto all = Tensor::Empty({mesh.world->size(), size}, DataType::kFloat32, mesh.device);
            mesh.world->AllGather(*x, *all);
            first = round == 0 ? x->ToVector<float>() : first;
            for (int rank = 0; rank < mesh.world->size(); ++rank) {
                Expect(IsSame(*all->Slice(rank, rank + 1), first), mesh,
                       StrCat("sum ", round, " of ", size, " on rank ", rank));
            }
        }
    }
}

template <typename T>
void CheckGatherAndBroadcast(const Mesh& mesh) {
    ProcessGroup& world = *mesh.world;
    for (const int64_t size : kSizes) {
        const auto x = Tensor::FromVector(Numbers<T>(size, mesh.rank), {size, 1}, mesh.device);
        const auto gathered = Tensor::Empty({world.size(), size, 1}, x->dtype(), mesh.device);
        world.AllGather(*x, *gathered);
        for (int rank = 0; rank < world.size(); ++rank) {
            Expect(IsSame(*gathered->Slice(rank, rank + 1), Numbers<T>(size, rank)), mesh,
                   StrCat("an all-gather of ", size, " ", Name(x->dtype())));
        }
        for (int root = 0; root < world.size(); ++root) {
            const auto y = Tensor::FromVector(Numbers<T>(size, mesh.rank), {size}, mesh.device);
            world.Broadcast(*y, root);
            Expect(IsSame(*y, Numbers<T>(size, root)), mesh,
                   StrCat("a broadcast of ", size, " ", Name(y->dtype()), " from ", root));
        }
    }
}

void CheckTextsAndGroups(const Mesh& mesh) {
    ProcessGroup& world = *mesh.world;
    const auto text = [](int rank) {
        return rank == 0 ? std::string()
                         : std::string("a\n\0b", 4) + std::string(static_cast<size_t>(rank) * 9999, 'x');
    };
    const std::vector<std::string> texts = world.ExchangeText(text(mesh.rank));
    const std::vector<std::string> empty = world.ExchangeText("");
    for (int rank = 0; rank < world.size(); ++rank) {
        Expect(texts[static_cast<size_t>(rank)] == text(rank), mesh, StrCat("the text of rank ", rank));
        Expect(empty[static_cast<size_t>(rank)].empty(), mesh, "an empty text");
    }
    world.Barrier();

    std::vector<int> wanted;
    for (int rank = mesh.rank % 2; rank < world.size(); rank += 2) {
        wanted.push_back(rank);
    }
    const std::shared_ptr<ProcessGroup> parity = world.Split(mesh.rank % 2);
    Expect(parity->world_ranks() == wanted && parity->rank() == mesh.rank / 2, mesh, "a group of every second rank");
    CheckSums<float>(mesh, *parity);
    parity->Barrier();

    // All but the last; of one rank, that is nobody.
    const bool is_last = mesh.rank == world.size() - 1;
    const std::shared_ptr<ProcessGroup> rest = world.Split(is_last ? -1 : 3);
    Expect((rest == nullptr) == is_last, mesh, "a group without the last rank");
    if (rest != nullptr) {
        CheckSums<int64_t>(mesh, *rest);
        CheckSums<float>(mesh, *rest->Split(rest->rank()));
    }
    CheckSums<float>(mesh, *world.Split(0));
}

struct Message {
    MessageSpec spec;
    int key;  // of its values
};

/// The k-th message of a link; some are empty, some large, the dtypes change.
Message MakeMessage(const Link& link, int microbatch) {
    const int64_t size = kSizes[static_cast<size_t>(microbatch) % kSizes.size()];
    return {.spec = {.tag = {.direction = link.direction, .stage = link.to, .microbatch = microbatch},
                     .shape = {size, 1},
                     .dtype = microbatch % 3 == 1 ? DataType::kBFloat16 : DataType::kFloat32},
            .key = link.from * 100 + link.to * 10 + microbatch + (link.direction == Direction::kBackward ? 1000 : 0)};
}

std::shared_ptr<Tensor> MakeValues(const Message& message, const Device& device) {
    const int64_t size = message.spec.shape[0];
    return message.spec.dtype == DataType::kBFloat16
               ? Tensor::FromVector(Numbers<BFloat16>(size, message.key), message.spec.shape, device)
               : Tensor::FromVector(Numbers<float>(size, message.key), message.spec.shape, device);
}

void CheckValues(const Mesh& mesh, const Message& message, const Tensor& x) {
    const int64_t size = message.spec.shape[0];
    Expect(x.shape() == message.spec.shape && x.dtype() == message.spec.dtype &&
               (x.dtype() == DataType::kBFloat16 ? IsSame(x, Numbers<BFloat16>(size, message.key))
                                                 : IsSame(x, Numbers<float>(size, message.key))),
           mesh, ToString(message.spec));
}

std::vector<Link> RingLinks(int size) {
    std::vector<Link> links;
    for (int rank = 0; rank < size; ++rank) {
        const int next = (rank + 1) % size;
        links.push_back({.from = rank, .to = next, .direction = Direction::kForward});
        links.push_back({.from = next, .to = rank, .direction = Direction::kBackward});
    }
    return links;
}

/// Both directions of a ring at once, all receives posted before anything is sent; of one rank, links to itself.
void CheckRing(const Mesh& mesh, LinkEnds* ends, const std::vector<Link>& links) {
    constexpr int kNumMicrobatches = 7;
    struct Receive {
        Message message;
        std::unique_ptr<PendingReceive> pending;
    };
    std::vector<Receive> receives;
    for (int m = 0; m < kNumMicrobatches; ++m) {
        for (const Link& link : links) {
            if (link.to == mesh.rank) {
                const Message message = MakeMessage(link, m);
                receives.push_back({.message = message,
                                    .pending = ends->receivers.at({link.from, link.direction})->Post(message.spec)});
            }
        }
    }
    for (int m = 0; m < kNumMicrobatches; ++m) {
        for (const Link& link : links) {
            if (link.from == mesh.rank) {
                const Message message = MakeMessage(link, m);
                ends->senders.at({link.to, link.direction})->Send(MakeValues(message, mesh.device), message.spec.tag);
                // Memory that is given out again too early would change what is sent.
                Tensor::Empty(message.spec.shape, message.spec.dtype, mesh.device)->SetZero();
            }
        }
    }
    for (Receive& receive : receives) {
        CheckValues(mesh, receive.message, *receive.pending->Wait());
    }
    mesh.world->ThrowIfFailed();
}

/// Keeps the GPU busy for longer than a small message travels, while the host goes on.
void Delay(const Mesh& mesh) {
    const auto x = Tensor::Zeros({64 << 20}, DataType::kUInt8, mesh.device);
    const auto y = Tensor::Empty(x->shape(), x->dtype(), mesh.device);
    for (int i = 0; i < 300; ++i) {
        y->CopyFrom(*x);
    }
}

/// Rank 1 has other work on its GPU when a message of rank 0 comes: it may not come into memory that is still read, and
/// nobody may read it before it is there.
void CheckOrder(const Mesh& mesh, LinkEnds* ends, const Link& link) {
    const Message message = MakeMessage(link, 3);
    const auto send = [&] {
        ends->senders.at({1, link.direction})->Send(MakeValues(message, mesh.device), message.spec.tag);
    };
    const auto post = [&] { return ends->receivers.at({0, link.direction})->Post(message.spec); };

    mesh.world->Barrier();
    if (mesh.rank == 0) {
        send();
    } else if (mesh.rank == 1) {
        auto old = Tensor::FromVector(Numbers<float>(1000, 1), message.spec.shape, mesh.device);
        const auto copy = Tensor::Empty(old->shape(), old->dtype(), mesh.device);
        Delay(mesh);
        copy->CopyFrom(*old);
        old.reset();  // most likely the memory that the message comes into
        CheckValues(mesh, message, *post()->Wait());
        Expect(IsSame(*copy, Numbers<float>(1000, 1)), mesh, "what was read from memory before a receive");
    }

    mesh.world->Barrier();
    if (mesh.rank == 0) {
        Delay(mesh);
        send();
    } else if (mesh.rank == 1) {
        const auto x = post()->Wait();
        const auto copy = Tensor::Empty(x->shape(), x->dtype(), mesh.device);
        copy->CopyFrom(*x);
        CheckValues(mesh, message, *copy);
    }
    mesh.world->Barrier();
}

void Grid(const Mesh& mesh) {
    CheckSums<float>(mesh, *mesh.world);
    CheckSums<int64_t>(mesh, *mesh.world);
    CheckSumBits(mesh);
    CheckGatherAndBroadcast<BFloat16>(mesh);
    CheckGatherAndBroadcast<int64_t>(mesh);
    CheckGatherAndBroadcast<uint8_t>(mesh);
    CheckTextsAndGroups(mesh);

    const std::vector<Link> links = RingLinks(mesh.world->size());
    LinkEnds ends = mesh.world->OpenLinks(links);
    for (int step = 0; step < 3; ++step) {
        CheckRing(mesh, &ends, links);
    }
    if (mesh.world->size() > 1) {
        CheckOrder(mesh, &ends, links[0]);
    }
    // A group's own links, beside those of the world, and one of each rank to itself.
    std::vector<Link> more = mesh.pipeline->size() > 1 ? RingLinks(mesh.pipeline->size()) : std::vector<Link>();
    for (int rank = 0; rank < mesh.pipeline->size(); ++rank) {
        if (mesh.pipeline->size() > 1) {
            more.push_back({.from = rank, .to = rank, .direction = Direction::kForward});
        }
    }
    LinkEnds more_ends = mesh.pipeline->OpenLinks(more);
    CheckRing(mesh, &more_ends, more);
}

/// After some steps rank 1 does what the name says; the others wait for its next message.
void Fault(const Mesh& mesh, const std::string& name) {
    const std::vector<Link> links = RingLinks(mesh.world->size());
    LinkEnds ends = mesh.world->OpenLinks(links);
    CheckRing(mesh, &ends, links);
    if (mesh.rank == 1 && name == "kill") {
        std::raise(SIGKILL);
    }
    if (mesh.rank == 1 && name == "exit") {
        std::_Exit(3);
    }
    if (mesh.rank == 1 && name == "throw") {
        // Unwinding must not wait for what was posted.
        const auto pending = ends.receivers.at({0, Direction::kForward})->Post(MakeMessage(links[0], 1).spec);
        throw Error({.what = "thrown on purpose", .kind = Error::Kind::kRuntime});
    }
    const std::vector<Link> from_1 = {links[2], links[1]};  // to the next rank, and back to rank 0
    for (const Link& link : from_1) {
        if (link.to == mesh.rank) {
            const Message message = MakeMessage(link, 3);
            const auto x = ends.receivers.at({link.from, link.direction})->Post(message.spec)->Wait();
            x->ToVector<float>();
            mesh.world->ThrowIfFailed();
        }
    }
    // Those who wait for no message of rank 1, and in "stall" rank 1 itself.
    mesh.world->Barrier();
}

}  // namespace
}  // namespace infini_train::comm

int main(int argc, char** argv) {
    using namespace infini_train;
    google::InitGoogleLogging(argv[0]);
    CHECK_EQ(argc, 2) << "nccl_worker grid|kill|exit|throw|stall";
    const std::string what = argv[1];
    try {
        const comm::ProcessPlace place = comm::ReadProcessPlace();
        comm::RunRanks({.shape = {.pipeline = place.num_processes},
                        .process = place,
                        .device = DeviceType::kCUDA,
                        .transport = place.num_processes > 1 ? comm::Transport::kNccl : comm::Transport::kAuto,
                        .timeout_s = what == "stall" ? 15.0 : 60.0},
                       [&](const comm::Mesh& mesh) {
                           if (what == "grid") {
                               comm::Grid(mesh);
                           } else {
                               comm::Fault(mesh, what);
                           }
                       });
        if (place.index == 0) {
            std::printf("OK\n");
        }
        return 0;
    } catch (const Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return error.exit_code();
    }
}
