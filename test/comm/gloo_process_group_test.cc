// Process groups over gloo. The processes are threads here, and find each other as processes do.
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/core/random.h"
#include "test/comm/gloo_ranks.h"

namespace infini_train::comm {
namespace {

const std::vector<Layout> kLayouts = {{.num_processes = 2, .num_threads = 1},
                                      {.num_processes = 3, .num_threads = 1},
                                      {.num_processes = 4, .num_threads = 1},
                                      {.num_processes = 2, .num_threads = 2},
                                      {.num_processes = 2, .num_threads = 3}};
// No multiple of any number of ranks but one.
const std::vector<int64_t> kSmallSizes = {0, 1, 7, 1000};
// And one more than what is summed at once.
const std::vector<int64_t> kSizes = {0, 1, 7, 1000, (4 << 20) / 4 + 1};

std::string Name(const Layout& layout) {
    return StrCat(layout.num_processes, " processes of ", layout.num_threads);
}

constexpr size_t kNumValues = 5000;

/// Of very different sizes, so that the order of a sum shows in its bits.
std::vector<double> MakeValues(int rank) {
    std::vector<double> values;
    for (size_t i = 0; i < kNumValues; ++i) {
        const double normal = Normal({.seed = 1, .stream = static_cast<uint64_t>(rank)}, i);
        values.push_back(normal * ((i + static_cast<size_t>(rank)) % 3 == 0 ? 1e7 : 10.0));
    }
    return values;
}

template <typename T>
std::vector<T> Values(int rank, int64_t num_elements) {
    static const std::vector<std::vector<double>> ranks = {MakeValues(0), MakeValues(1), MakeValues(2),
                                                           MakeValues(3), MakeValues(4), MakeValues(5)};
    std::vector<T> values;
    for (size_t i = 0; i < static_cast<size_t>(num_elements); ++i) {
        values.push_back(static_cast<T>(ranks[static_cast<size_t>(rank)][i % kNumValues]));
    }
    return values;
}

template <typename T>
std::vector<T> SumOfRanks(const std::vector<int>& ranks, int64_t num_elements) {
    std::vector<T> sum = Values<T>(ranks[0], num_elements);
    for (size_t n = 1; n < ranks.size(); ++n) {
        const std::vector<T> values = Values<T>(ranks[n], num_elements);
        for (size_t i = 0; i < sum.size(); ++i) {
            sum[i] += values[i];
        }
    }
    return sum;
}

template <typename T>
void ExpectSum(const Tensor& x, const std::vector<int>& ranks) {
    // Not EXPECT_EQ, which would print a million elements.
    EXPECT_TRUE(x.ToVector<T>() == SumOfRanks<T>(ranks, x.num_elements()))
        << x.num_elements() << " " << Name(x.dtype()) << " of " << ranks.size() << " ranks";
}

void ExpectSums(const Mesh& mesh, ProcessGroup& group, const std::vector<int64_t>& sizes = kSmallSizes) {
    TensorList list;
    for (const int64_t size : sizes) {
        list.push_back(Tensor::FromVector(Values<float>(mesh.rank, size), {size}, mesh.device));
        list.push_back(Tensor::FromVector(Values<int64_t>(mesh.rank, size), {size, 1}, mesh.device));
        list.push_back(Tensor::FromVector(Values<int64_t>(mesh.rank, size), {size}, mesh.device));
    }
    const TensorList large = {list.rbegin()[2]};
    const TensorList copy = {Tensor::Empty(large[0]->shape(), large[0]->dtype(), mesh.device)};
    copy[0]->CopyFrom(*large[0]);
    group.AllReduceSum(copy);
    ExpectSum<float>(*copy[0], group.world_ranks());
    group.AllReduceSum(list);
    for (size_t i = 0; i < list.size(); i += 3) {
        ExpectSum<float>(*list[i], group.world_ranks());
        ExpectSum<int64_t>(*list[i + 1], group.world_ranks());
        ExpectSum<int64_t>(*list[i + 2], group.world_ranks());
    }
    group.AllReduceSum({});
}

TEST(GlooAllReduceSum, AddsInRankOrder) {
    for (const Layout& layout : kLayouts) {
        SCOPED_TRACE(Name(layout));
        ExpectNoErrors(RunProcesses(layout, [](const Mesh& mesh) { ExpectSums(mesh, *mesh.world, kSizes); }));
    }
}

TEST(GlooAllReduceSum, AddsByHand) {
    for (const Layout& layout : {Layout{.num_processes = 3}, Layout{.num_processes = 2, .num_threads = 2}}) {
        ExpectNoErrors(RunProcesses(layout, [](const Mesh& mesh) {
            // 1e8 + 1 is 1e8 in float32: in any other order the sum is not 0.
            const float values[] = {1e8f, 1.0f, -1e8f, 0.0f};
            const auto x = Tensor::FromVector<float>({values[mesh.rank], 2.0f}, {2, 1}, mesh.device);
            mesh.world->AllReduceSum({x});
            EXPECT_EQ(x->ToVector<float>(), (std::vector<float>{0.0f, 2.0f * static_cast<float>(mesh.world->size())}));
        }));
    }
}

template <typename T>
void ExpectGatherAndBroadcast(const Mesh& mesh) {
    ProcessGroup& world = *mesh.world;
    for (const int64_t size : kSizes) {
        const std::shared_ptr<Tensor> x = Tensor::FromVector(Values<T>(mesh.rank, size), {size, 1}, mesh.device);
        const std::shared_ptr<Tensor> gathered = Tensor::Empty({world.size(), size, 1}, x->dtype(), mesh.device);
        world.AllGather(*x, *gathered);
        for (int rank = 0; rank < world.size(); ++rank) {
            EXPECT_TRUE(gathered->Slice(rank, rank + 1)->ToVector<T>() == Values<T>(rank, size)) << size;
        }
        for (int root = 0; root < world.size(); ++root) {
            const std::shared_ptr<Tensor> y = Tensor::FromVector(Values<T>(mesh.rank, size), {size}, mesh.device);
            world.Broadcast(*y, root);
            EXPECT_TRUE(y->ToVector<T>() == Values<T>(root, size)) << size << " from " << root;
        }
    }
}

TEST(GlooProcessGroup, GathersAndBroadcasts) {
    for (const Layout& layout : kLayouts) {
        SCOPED_TRACE(Name(layout));
        ExpectNoErrors(RunProcesses(layout, [](const Mesh& mesh) {
            ExpectGatherAndBroadcast<float>(mesh);
            ExpectGatherAndBroadcast<int64_t>(mesh);
        }));
    }
}

TEST(GlooProcessGroup, LetsNobodyPassABarrierBeforeAllHaveCome) {
    for (const Layout& layout : kLayouts) {
        std::atomic<int> num_arrived = 0;
        ExpectNoErrors(RunProcesses(layout, [&](const Mesh& mesh) {
            for (int round = 1; round <= 50; ++round) {
                ++num_arrived;
                mesh.world->Barrier();
                EXPECT_GE(num_arrived, round * mesh.world->size());
                mesh.world->Barrier();
            }
        }));
    }
}

TEST(GlooProcessGroup, ExchangesTextsOfAnyLength) {
    const auto text = [](int rank) {
        return rank == 0 ? std::string()
                         : std::string("a\n\0b", 4) + std::string(static_cast<size_t>(rank) * 99999, 'x');
    };
    for (const Layout& layout : kLayouts) {
        ExpectNoErrors(RunProcesses(layout, [&](const Mesh& mesh) {
            const std::vector<std::string> texts = mesh.world->ExchangeText(text(mesh.rank));
            const std::vector<std::string> empty = mesh.world->ExchangeText("");
            ASSERT_EQ(texts.size(), static_cast<size_t>(mesh.world->size()));
            for (int rank = 0; rank < mesh.world->size(); ++rank) {
                EXPECT_TRUE(texts[static_cast<size_t>(rank)] == text(rank)) << rank;
                EXPECT_EQ(empty[static_cast<size_t>(rank)], "");
            }
        }));
    }
}

TEST(GlooProcessGroup, SplitsWithinAndAcrossProcesses) {
    for (const Layout& layout : kLayouts) {
        SCOPED_TRACE(Name(layout));
        ExpectNoErrors(RunProcesses(layout, [](const Mesh& mesh) {
            ProcessGroup& world = *mesh.world;
            std::vector<int> wanted;
            for (int rank = mesh.rank % 2; rank < world.size(); rank += 2) {
                wanted.push_back(rank);
            }
            const auto parity = world.Split(mesh.rank % 2);
            EXPECT_EQ(parity->world_ranks(), wanted);
            EXPECT_EQ(parity->rank(), mesh.rank / 2);
            ExpectSums(mesh, *parity);
            const auto half = world.Split(mesh.rank * 2 / world.size());
            ExpectSums(mesh, *half);
            // Of a group that is not the world, and of one in it.
            ExpectSums(mesh, *parity->Split(parity->rank() == 0 ? 5 : 4));
            const bool is_last = mesh.rank == world.size() - 1;
            const auto rest = world.Split(is_last ? -1 : 3);
            EXPECT_EQ(rest == nullptr, is_last);
            if (rest != nullptr) {
                ExpectSums(mesh, *rest);
            }
            ExpectSums(mesh, *world.Split(0));
        }));
    }
}

TEST(GlooProcessGroup, WorksBesideOthers) {
    // Each rank in groups that have nothing to do with each other, at the same time.
    ExpectNoErrors(RunProcesses({.num_processes = 2, .num_threads = 2}, [](const Mesh& mesh) {
        const auto column = mesh.world->Split(mesh.rank % 2);
        for (int round = 0; round < 50; ++round) {
            const auto x = Tensor::FromVector<int64_t>({mesh.rank, round}, {2}, mesh.device);
            column->AllReduceSum({x});
            const int64_t sum = mesh.rank % 2 == 0 ? 0 + 2 : 1 + 3;
            EXPECT_EQ(x->ToVector<int64_t>(), (std::vector<int64_t>{sum, 2 * round}));
        }
    }));
}

// bugs.csv O87
TEST(GlooProcessGroup, SaysOnEveryProcessWhereRanksDisagree) {
    struct Case {
        std::function<void(const Mesh&)> work;
        std::string text;
    };
    const auto tensors = [](const Mesh& mesh, const Shape& shape, DataType dtype) {
        return Tensor::Zeros(shape, dtype, mesh.device);
    };
    const Case cases[] = {
        {[](const Mesh& mesh) {
             if (mesh.rank == 1) {
                 mesh.world->Barrier();
             } else {
                 mesh.world->AllReduceSum({});
             }
         },
         "rank 0 came for all-reduce, rank 1 for barrier"},
        {[&](const Mesh& mesh) {
             const auto x = tensors(mesh, {2}, DataType::kFloat32);
             mesh.world->AllReduceSum(mesh.rank == 1 ? TensorList{x} : TensorList{x, x});
         },
         "rank 0 came for all-reduce of a list of length 2, rank 1 for all-reduce of a list of length 1"},
        {[&](const Mesh& mesh) {
             mesh.world->AllReduceSum(
                 {tensors(mesh, {2}, DataType::kFloat32), tensors(mesh, {mesh.rank == 1 ? 4 : 3}, DataType::kInt64)});
         },
         "rank 0 came for all-reduce with entry 1 of 2 [3] int64, rank 1 for all-reduce with entry 1 of 2 [4] int64"},
        {[&](const Mesh& mesh) {
             mesh.world->Broadcast(*tensors(mesh, {2}, mesh.rank == 1 ? DataType::kInt32 : DataType::kFloat32), 0);
         },
         "rank 0 came for broadcast from rank 0 with [2] float32, rank 1 for broadcast from rank 0 with [2] int32"},
    };
    for (const Case& each : cases) {
        for (const std::string& error : RunProcesses({.num_processes = 2}, each.work)) {
            ExpectContains(error, "ranks 0, 1 disagree: " + each.text);
        }
    }
}

TEST(GlooProcessGroup, NamesWhomItWaitedForInVain) {
    std::latch has_waited(2);
    const std::vector<std::string> errors = RunProcesses(
        {.num_processes = 2, .num_threads = 2},
        [&](const Mesh& mesh) {
            if (mesh.rank < 2) {
                try {
                    mesh.world->Barrier();
                } catch (const Error&) {
                    has_waited.count_down();
                    throw;
                }
            } else {
                has_waited.wait();
            }
        },
        /*timeout_s=*/1.0);
    for (const std::string& error : errors) {
        // By which of the two it was that waited the time-out comes first.
        ExpectContains(error, "] waited 1 s for ranks 2, 3 of process 1 (");
        ExpectContains(error, ") in barrier of ranks 0, 1, 2, 3");
    }
}

TEST(GlooProcessGroup, EndsEveryWaitWhenARankOfAnotherProcessThrows) {
    const std::vector<std::string> errors = RunProcesses({.num_processes = 3, .num_threads = 2}, [](const Mesh& mesh) {
        mesh.world->Barrier();
        const auto pair = mesh.world->Split(mesh.rank % 2);
        if (mesh.rank == 3) {
            throw Error({.where = "file", .what = "is bad", .kind = Error::Kind::kRuntime});
        }
        if (mesh.rank % 2 == 0) {
            pair->Split(0)->Barrier();
            mesh.world->Barrier();
        } else {
            pair->Barrier();
        }
    });
    ExpectSame(errors, "[rank 3] file: is bad");
}

size_t CountEntries(const std::string& folder) {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) {
        ++count;
    }
    return count;
}

TEST(GlooProcessGroup, LeavesNoThreadAndNoConnection) {
    const auto run = [](bool fails) {
        RunProcesses({.num_processes = 3}, [fails](const Mesh& mesh) {
            mesh.world->OpenLinks({{.from = 0, .to = 1, .direction = Direction::kForward}});
            if (fails && mesh.rank == 1) {
                throw Error({.what = "on purpose"});
            }
            mesh.world->Barrier();
        });
    };
    run(false);  // what the first use of a library keeps
    const size_t num_threads = CountEntries("/proc/self/task");
    const size_t num_files = CountEntries("/proc/self/fd");
    for (const bool fails : {false, true}) {
        run(fails);
        EXPECT_EQ(CountEntries("/proc/self/task"), num_threads) << fails;
        EXPECT_EQ(CountEntries("/proc/self/fd"), num_files) << fails;
    }
}

}  // namespace
}  // namespace infini_train::comm
