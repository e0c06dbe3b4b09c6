#include "infini_train/include/comm/process_group.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/core/random.h"
#include "test/comm/two_ranks.h"
#include "test/comm/warnings.h"

namespace infini_train::comm {
namespace {

/// The world of `num_ranks` ranks. What one of them throws is thrown here.
void InAGroup(int num_ranks, const std::function<void(const Mesh&)>& rank_main, double timeout_s = 60.0) {
    RunRanks({.shape = {.data = num_ranks}, .timeout_s = timeout_s}, rank_main);
}

/// Of very different sizes, so that the order of a sum shows in its bits.
template <typename T>
std::vector<T> Values(int rank, int64_t num_elements) {
    std::vector<T> values;
    for (int64_t i = 0; i < num_elements; ++i) {
        const RandomStream random = {.seed = 1, .stream = static_cast<uint64_t>(rank)};
        const double normal = Normal(random, static_cast<uint64_t>(i));
        values.push_back(static_cast<T>(normal * ((i + rank) % 3 == 0 ? 1e7 : 10.0)));
    }
    return values;
}

template <typename T>
std::vector<T> SumOfRanks(int num_ranks, int64_t num_elements) {
    std::vector<T> sum = Values<T>(0, num_elements);
    for (int rank = 1; rank < num_ranks; ++rank) {
        const std::vector<T> values = Values<T>(rank, num_elements);
        for (size_t i = 0; i < sum.size(); ++i) {
            sum[i] += values[i];
        }
    }
    return sum;
}

// One more than a block of the sum, and not a multiple of any number of ranks but one.
constexpr int64_t kSizes[] = {0, 1, 7, 1000, 4 * 2048 + 1};

template <typename T>
void ExpectSums(int num_ranks) {
    InAGroup(num_ranks, [&](const Mesh& mesh) {
        TensorList list;
        for (const int64_t size : kSizes) {
            list.push_back(Tensor::FromVector(Values<T>(mesh.rank, size), {size}, mesh.device));
            const std::shared_ptr<Tensor> alone = Tensor::FromVector(Values<T>(mesh.rank, size), {size}, mesh.device);
            mesh.world->AllReduceSum({alone});
            EXPECT_EQ(alone->ToVector<T>(), SumOfRanks<T>(num_ranks, size)) << num_ranks << " ranks, " << size;
        }
        mesh.world->AllReduceSum(list);
        for (const std::shared_ptr<Tensor>& tensor : list) {
            EXPECT_EQ(tensor->ToVector<T>(), SumOfRanks<T>(num_ranks, tensor->num_elements()));
        }
        mesh.world->AllReduceSum({});
    });
}

TEST(AllReduceSum, AddsInRankOrder) {
    for (const int num_ranks : {1, 2, 3, 4}) {
        ExpectSums<float>(num_ranks);
        ExpectSums<int64_t>(num_ranks);
    }
}

TEST(AllReduceSum, AddsByHand) {
    InAGroup(3, [](const Mesh& mesh) {
        // 1e8 + 1 is 1e8 in float32: in any other order the sum is not 0.
        const float values[] = {1e8f, 1.0f, -1e8f};
        const auto x = Tensor::FromVector<float>({values[mesh.rank], 2.0f}, {2, 1}, mesh.device);
        const auto n = Tensor::FromVector<int64_t>({(int64_t{1} << 53) + mesh.rank}, {}, mesh.device);
        mesh.world->AllReduceSum({x, n});
        EXPECT_EQ(x->ToVector<float>(), (std::vector<float>{0.0f, 6.0f}));
        EXPECT_EQ(n->ToVector<int64_t>()[0], 3 * (int64_t{1} << 53) + 3);
    });
}

TEST(AllReduceSum, TakesNoMemoryOfTheRank) {
    InAGroup(2, [](const Mesh& mesh) {
        const auto x = Tensor::Zeros({1000}, DataType::kFloat32, mesh.device);
        mesh.world->AllReduceSum({x});
        EXPECT_EQ(mesh.device.allocator->stats().peak_bytes, 4096);
    });
}

TEST(AllGather, BringsTheValuesOfEachRank) {
    for (const int num_ranks : {1, 2, 3, 4}) {
        InAGroup(num_ranks, [&](const Mesh& mesh) {
            for (const int64_t size : kSizes) {
                const auto x = Tensor::FromVector(Values<float>(mesh.rank, size), {size, 1}, mesh.device);
                const auto gathered = Tensor::Empty({num_ranks, size, 1}, DataType::kFloat32, mesh.device);
                mesh.world->AllGather(*x, *gathered);
                for (int rank = 0; rank < num_ranks; ++rank) {
                    EXPECT_EQ(gathered->Slice(rank, rank + 1)->ToVector<float>(), Values<float>(rank, size));
                }
            }
            const auto letter = Tensor::FromVector<uint8_t>({static_cast<uint8_t>('a' + mesh.rank)}, {}, mesh.device);
            const auto letters = Tensor::Empty({num_ranks}, DataType::kUInt8, mesh.device);
            mesh.world->AllGather(*letter, *letters);
            EXPECT_EQ(letters->ToVector<uint8_t>().back(), 'a' + num_ranks - 1);
        });
    }
}

TEST(Broadcast, BringsTheValuesOfTheRoot) {
    for (const int num_ranks : {1, 2, 3, 4}) {
        InAGroup(num_ranks, [&](const Mesh& mesh) {
            for (int root = 0; root < num_ranks; ++root) {
                for (const int64_t size : kSizes) {
                    const auto x = Tensor::FromVector(Values<int64_t>(mesh.rank, size), {size}, mesh.device);
                    mesh.world->Broadcast(*x, root);
                    EXPECT_EQ(x->ToVector<int64_t>(), Values<int64_t>(root, size));
                }
            }
        });
    }
}

TEST(Barrier, LetsNobodyPassBeforeAllHaveCome) {
    for (const int num_ranks : {1, 2, 3, 4}) {
        std::atomic<int> num_come = 0;
        InAGroup(num_ranks, [&](const Mesh& mesh) {
            for (int round = 1; round <= 50; ++round) {
                num_come.fetch_add(1, std::memory_order_relaxed);
                mesh.world->Barrier();
                EXPECT_EQ(num_come.load(std::memory_order_relaxed), round * num_ranks);
                mesh.world->Barrier();
            }
        });
    }
}

TEST(ExchangeText, BringsTheTextOfEachRank) {
    InAGroup(3, [](const Mesh& mesh) {
        const std::vector<std::string> texts = {"", std::string("a\n\0b", 4), std::string(100000, 'x')};
        EXPECT_EQ(mesh.world->ExchangeText(texts[static_cast<size_t>(mesh.rank)]), texts);
    });
}

TEST(Split, MakesAGroupOfEachColor) {
    InAGroup(5, [](const Mesh& mesh) {
        // Ranks 0 2 3 | 4 | 1 in none.
        const int colors[] = {7, -1, 7, 7, 0};
        const auto group = mesh.world->Split(colors[mesh.rank]);
        if (mesh.rank == 1) {
            EXPECT_EQ(group, nullptr);
            return;
        }
        EXPECT_EQ(group->world_ranks(), mesh.rank == 4 ? std::vector<int>{4} : (std::vector<int>{0, 2, 3}));
        EXPECT_EQ(group->world_ranks()[static_cast<size_t>(group->rank())], mesh.rank);
        const auto x = Tensor::FromVector<int64_t>({mesh.rank}, {1}, mesh.device);
        group->AllReduceSum({x});
        EXPECT_EQ(x->ToVector<int64_t>()[0], mesh.rank == 4 ? 4 : 0 + 2 + 3);
    });
}

TEST(Split, MakesGroupsOfGroups) {
    InAGroup(4, [](const Mesh& mesh) {
        const auto upper = mesh.world->Split(mesh.rank == 0 ? -1 : 0);
        if (mesh.rank == 0) {
            return;
        }
        const auto outer = upper->Split(upper->rank() == 1 ? 1 : 0);
        EXPECT_EQ(outer->world_ranks(), mesh.rank == 2 ? std::vector<int>{2} : (std::vector<int>{1, 3}));
        if (mesh.rank == 2) {
            return;
        }
        // Errors of links speak of ranks of the world, peers are ranks of the group.
        const MessageTag tag = {.direction = Direction::kBackward, .stage = 0, .microbatch = 0};
        if (mesh.rank == 1) {
            OpenSender(*outer, 1, tag.direction)->Send(Tensor::Zeros({}, DataType::kInt32, mesh.device), tag);
        } else {
            const auto receive = OpenReceiver(*outer, 0, tag.direction)->Post({.tag = tag});
            EXPECT_EQ(ErrorOf([&] { receive->Wait(); }),
                      "rank 3: expected backward of micro-batch 0 for stage 0 [] float32 from rank 1 (got backward of "
                      "micro-batch 0 for stage 0 [] int32)");
        }
    });
}

TEST(ProcessGroup, WorksBesideOthers) {
    InAGroup(4, [](const Mesh& mesh) {
        const auto row = mesh.world->Split(mesh.rank / 2);
        const auto column = mesh.world->Split(mesh.rank % 2);
        for (int64_t round = 0; round < 100; ++round) {
            const auto x = Tensor::FromVector<int64_t>({mesh.rank + round}, {1}, mesh.device);
            row->AllReduceSum({x});
            column->AllReduceSum({x});
            EXPECT_EQ(x->ToVector<int64_t>()[0], 0 + 1 + 2 + 3 + 4 * round);
        }
    });
}

/// What each of two ranks says when their calls do not fit: the text after "rank r: ".
void ExpectDisagreement(const std::function<void(const Mesh&)>& call, const std::string& wanted) {
    InAGroup(2, [&](const Mesh& mesh) {
        const std::string text = ErrorOf([&] { call(mesh); });
        EXPECT_EQ(text, StrCat("rank ", mesh.rank, ": ranks 0, 1 disagree: ", wanted));
        mesh.world->Barrier();  // and works on
    });
}

TEST(ProcessGroup, SaysOnEveryRankWhereTensorsDisagree) {
    const auto zeros = [](const Shape& shape, DataType dtype, const Mesh& mesh) {
        return Tensor::Zeros(shape, dtype, mesh.device);
    };
    ExpectDisagreement(
        [&](const Mesh& mesh) {
            TensorList list(static_cast<size_t>(2 + mesh.rank), zeros({3}, DataType::kFloat32, mesh));
            mesh.world->AllReduceSum(list);
        },
        "rank 0 came for all-reduce of a list of length 2, rank 1 for all-reduce of a list of length 3");
    ExpectDisagreement(
        [&](const Mesh& mesh) {
            const auto same = zeros({}, DataType::kInt64, mesh);
            mesh.world->AllReduceSum({same, zeros({4, 6 + mesh.rank}, DataType::kFloat32, mesh)});
        },
        "rank 0 came for all-reduce with entry 1 of 2 [4, 6] float32, rank 1 for all-reduce with entry 1 of 2 [4, 7] "
        "float32");
    ExpectDisagreement(
        [&](const Mesh& mesh) {
            mesh.world->AllReduceSum({zeros({2}, mesh.rank == 0 ? DataType::kInt64 : DataType::kFloat32, mesh)});
        },
        "rank 0 came for all-reduce with entry 0 of 1 [2] int64, rank 1 for all-reduce with entry 0 of 1 [2] float32");
    ExpectDisagreement(
        [&](const Mesh& mesh) {
            const auto gathered = zeros({2, 1 + mesh.rank}, DataType::kUInt8, mesh);
            mesh.world->AllGather(*zeros({1 + mesh.rank}, DataType::kUInt8, mesh), *gathered);
        },
        "rank 0 came for all-gather with [1] uint8, rank 1 for all-gather with [2] uint8");
    ExpectDisagreement(
        [&](const Mesh& mesh) {
            mesh.world->Broadcast(*zeros({2}, mesh.rank == 0 ? DataType::kInt32 : DataType::kFloat32, mesh), 1);
        },
        "rank 0 came for broadcast from rank 1 with [2] int32, rank 1 for broadcast from rank 1 with [2] float32");
}

TEST(ProcessGroup, SaysOnEveryRankWhereOperationsDisagree) {
    ExpectDisagreement(
        [](const Mesh& mesh) {
            const auto x = Tensor::Zeros({2}, DataType::kFloat32, mesh.device);
            mesh.rank == 0 ? mesh.world->AllReduceSum({x}) : mesh.world->Barrier();
        },
        "rank 0 came for all-reduce, rank 1 for barrier");
    ExpectDisagreement(
        [](const Mesh& mesh) {
            const auto x = Tensor::Zeros({2}, DataType::kFloat32, mesh.device);
            mesh.world->Broadcast(*x, mesh.rank);
        },
        "rank 0 came for broadcast from rank 0, rank 1 for broadcast from rank 1");
    ExpectDisagreement(
        [](const Mesh& mesh) { mesh.rank == 0 ? void(mesh.world->Split(0)) : void(mesh.world->ExchangeText("")); },
        "rank 0 came for split, rank 1 for exchange of texts");
}

TEST(ProcessGroup, NamesTheRankThatDisagreesWithTheFirst) {
    InAGroup(4, [](const Mesh& mesh) {
        const auto group = mesh.world->Split(mesh.rank == 1 ? -1 : 0);
        if (group == nullptr) {
            return;
        }
        const std::string text = ErrorOf([&] { mesh.rank == 3 ? group->Barrier() : void(group->ExchangeText("")); });
        EXPECT_EQ(text, StrCat("rank ", mesh.rank,
                               ": ranks 0, 2, 3 disagree: rank 0 came for exchange of texts, rank 3 for barrier"));
    });
}

TEST(ProcessGroup, NamesWhomItWaitedForInVain) {
    const TwoRanks ranks(0.05);
    const auto x = Tensor::Zeros({2}, DataType::kFloat32, ranks.devices[0]);
    EXPECT_EQ(ErrorOf([&] { ranks.groups[0]->AllReduceSum({x}); }),
              "rank 0: waited 0.05 s for rank 1 in all-reduce of ranks 0, 1");
    EXPECT_EQ(ErrorOf([&] { ranks.groups[1]->Split(0); }), "rank 1: waited 0.05 s for rank 0 in split of ranks 0, 1");
    const std::string text = ErrorOf([] {
        InAGroup(
            4,
            [](const Mesh& mesh) {
                if (mesh.rank == 1) {
                    mesh.world->Barrier();
                }
            },
            0.05);
    });
    EXPECT_EQ(text, "[rank 1] waited 0.05 s for ranks 0, 2, 3 in barrier of ranks 0, 1, 2, 3");
}

TEST(ProcessGroup, WarnsOnceOfARankThatAllWaitFor) {
    Warnings warnings;
    InAGroup(
        4,
        [&](const Mesh& mesh) {
            if (mesh.rank == 2) {
                warnings.WaitForFirst();
            }
            mesh.world->Barrier();
        },
        3.0);
    ASSERT_EQ(warnings.texts().size(), 1u);
    const std::string text = warnings.texts()[0];
    EXPECT_TRUE(text.ends_with(" s for rank 2 in barrier of ranks 0, 1, 2, 3")) << text;
}

TEST(ProcessGroupDeathTest, RefusesWhatNoRankCouldMean) {
    const TwoRanks ranks;
    ProcessGroup& group = *ranks.groups[0];
    const auto x = Tensor::Zeros({3}, DataType::kBFloat16, ranks.devices[0]);
    const auto gathered = Tensor::Zeros({3, 2}, DataType::kBFloat16, ranks.devices[0]);
    EXPECT_DEATH(group.AllReduceSum({x}), "sum of bfloat16");
    EXPECT_DEATH(group.AllReduceSum({nullptr}), "Must be non NULL|non-null");
    EXPECT_DEATH(group.AllGather(*x, *gathered), "\\[3, 2\\] for \\[2, 3\\]");
    EXPECT_DEATH(group.Broadcast(*x, 2), "root 2 of 2");
}

}  // namespace
}  // namespace infini_train::comm
