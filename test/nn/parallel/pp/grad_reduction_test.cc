#include "infini_train/include/nn/parallel/pp/grad_reduction.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/nn/init.h"
#include "infini_train/include/nn/state_dict.h"
#include "infini_train/include/optimizer/sgd.h"

namespace infini_train::nn::parallel {
namespace {

/// Parameters with values and gradients that the test chooses.
class Bag : public Module {
 public:
    struct Item {
        std::string name = {};
        std::vector<float> values = {};
        bool is_shared = false;
    };
    Bag(const std::vector<Item>& items, const Device& device) : slots_(items.size()) {
        for (size_t i = 0; i < items.size(); ++i) {
            const auto size = static_cast<int64_t>(items[i].values.size());
            slots_[i] = Tensor::FromVector(items[i].values, {size}, device);
            RegisterParameter(items[i].name, &slots_[i]);
            if (items[i].is_shared) {
                ShareAcrossStages(&slots_[i]);
            }
        }
    }

    TensorList Forward(const TensorList& inputs) override { return inputs; }
    void SetGrad(size_t item, const std::vector<float>& grad) {
        const Tensor::GradSlot slot = slots_[item]->AcquireGrad();
        slot.grad->CopyFrom(*Tensor::FromVector(grad, slot.grad->shape(), slot.grad->device()));
    }
    std::vector<float> Grad(size_t item) const { return slots_[item]->grad()->ToVector<float>(); }
    const Tensor& tensor(size_t item) const { return *slots_[item]; }

 private:
    std::vector<ParameterSlot> slots_;
};

using Bags = std::vector<std::vector<Bag::Item>>;

/// The chunks of a rank of a pipeline, and what reduces their gradients.
struct Rank {
    /// stages: the parameters of each.
    Rank(const Bags& stages, const comm::Mesh& mesh, const std::vector<int>& rank_of_stage = {},
         DataType dtype = DataType::kFloat32)
        : bags(MakeBags(stages, mesh, rank_of_stage, dtype)),
          stage({.chunks = {bags.begin(), bags.end()}, .rank_of_stage = rank_of_stage}, mesh),
          reduction(stage, mesh) {}

    static std::vector<std::shared_ptr<Bag>> MakeBags(const Bags& stages, const comm::Mesh& mesh,
                                                      const std::vector<int>& rank_of_stage, DataType dtype) {
        const int num_chunks = static_cast<int>(stages.size()) / mesh.shape.pipeline;
        const PipelineShape shape = {
            .num_ranks = mesh.shape.pipeline, .num_chunks = num_chunks, .rank_of_stage = rank_of_stage};
        std::vector<std::shared_ptr<Bag>> bags;
        for (int chunk = 0; chunk < num_chunks; ++chunk) {
            const int stage = shape.StageOf(mesh.position.pipeline, chunk);
            bags.push_back(std::make_shared<Bag>(stages[static_cast<size_t>(stage)], mesh.device));
            bags.back()->To(dtype);
        }
        return bags;
    }

    float Norm(int64_t num_valid, float max_norm = 0.0f, float* scale = nullptr) const {
        TensorList parameters;
        for (const std::shared_ptr<Bag>& bag : bags) {
            const TensorList own = bag->Parameters();
            parameters.insert(parameters.end(), own.begin(), own.end());
        }
        const optimizers::Sgd optimizer(parameters, {});
        const auto count = Tensor::FromVector(std::vector<int64_t>{num_valid}, {1}, stage.device());
        const optimizers::GradScale grad = reduction.Scale(optimizer, *count, max_norm);
        if (scale != nullptr) {
            *scale = grad.scale->ToVector<float>()[0];
        }
        return grad.norm->ToVector<float>()[0];
    }

    std::vector<std::shared_ptr<Bag>> bags;
    PipelineStage stage;
    GradReduction reduction;
};

void OnMesh(const comm::MeshShape& shape, const std::function<void(const comm::Mesh&)>& work) {
    comm::RunRanks({.shape = shape, .timeout_s = 60.0}, work);
}

std::string ErrorOnRanks(int num_ranks, const std::function<void(const comm::Mesh&)>& work) {
    try {
        OnMesh({.pipeline = num_ranks}, work);
        return "";
    } catch (const Error& error) {
        return error.what();
    }
}

// The root of the squares 1 + 2^-23 and 2^-48 is 1 + 2^-24: exactly between two numbers, and rounds to 1. Each 2^-53
// that is added to those is lost; eight of them added among themselves first would count, and round it up.
TEST(GradReduction, AddsTheNormInTheOrderOfTheWholeModel) {
    const std::vector<Bag::Item> large = {{.name = "a", .values = {0, 0, 0}}, {.name = "b", .values = {0}}};
    std::vector<Bag::Item> small;
    for (int i = 0; i < 8; ++i) {
        small.push_back({.name = "c" + std::to_string(i), .values = {0, 0}});
    }
    const auto norm_on = [&](const comm::Mesh& mesh, const std::vector<int>& rank_of_stage) {
        const Rank rank({large, small, {}, {}}, mesh, rank_of_stage);
        for (const std::shared_ptr<Bag>& bag : rank.bags) {
            const size_t num_items = bag->Parameters().size();
            for (size_t i = 0; i < num_items && num_items == 8; ++i) {
                bag->SetGrad(i, {0x1p-27f, 0x1p-27f});
            }
            if (num_items == 2) {
                bag->SetGrad(0, {1.0f, 0x1p-12f, 0x1p-12f});
                bag->SetGrad(1, {0x1p-24f});
            }
        }
        return rank.Norm(1);
    };
    for (const int num_ranks : {1, 2, 4}) {
        OnMesh({.pipeline = num_ranks}, [&](const comm::Mesh& mesh) { EXPECT_EQ(norm_on(mesh, {}), 1.0f); });
    }
    OnMesh({.pipeline = 2}, [&](const comm::Mesh& mesh) { EXPECT_EQ(norm_on(mesh, {1, 0, 0, 1}), 1.0f); });
    OnMesh({}, [](const comm::Mesh& mesh) {
        // As a sum of the stages' sums it would be this.
        const Rank rank({{{.name = "a", .values = {0, 0, 0}}, {.name = "b", .values = {0, 0}}}}, mesh);
        rank.bags[0]->SetGrad(0, {1.0f, 0x1p-12f, 0x1p-12f});
        rank.bags[0]->SetGrad(1, {0x1p-24f, 0x1p-25f});
        EXPECT_EQ(rank.Norm(1), 1.0f + 0x1p-23f);
    });
}

// bugs.csv O20, O22: of the mean loss, before clipping.
TEST(GradReduction, ScalesByTheNormOfAllStagesAndTheNumberOfTargets) {
    OnMesh({.pipeline = 2}, [](const comm::Mesh& mesh) {
        const Rank rank({{{.name = "a", .values = {0}}}, {{.name = "b", .values = {0}}}}, mesh);
        rank.bags[0]->SetGrad(0, {mesh.rank == 0 ? 30.0f : 40.0f});
        float scale = 0.0f;
        EXPECT_EQ(rank.Norm(10, 0.0f, &scale), 5.0f);
        EXPECT_EQ(scale, 0.1f);
        EXPECT_EQ(rank.Norm(10, 2.5f, &scale), 5.0f);
        EXPECT_NEAR(scale, 0.05f, 1e-6f);
        EXPECT_EQ(rank.Norm(0, 2.5f, &scale), 0.0f);
        EXPECT_EQ(scale, 0.0f);
    });
}

/// Two stages hold "wte", of P ranks; the other stages have parameters of their own.
void ExpectCopiesToBeOneParameter(int num_ranks, int num_stages, const std::vector<int>& rank_of_stage) {
    SCOPED_TRACE(testing::Message() << num_ranks << " ranks, " << num_stages << " stages");
    Bags stages;
    for (int stage = 0; stage < num_stages; ++stage) {
        stages.push_back({{.name = "h." + std::to_string(stage), .values = {7.0f}}});
    }
    // They start unequal: what the first stage has is true.
    stages.front().push_back({.name = "wte", .values = {1.0f, 2.0f}, .is_shared = true});
    stages.back().push_back({.name = "wte", .values = {5.0f, 6.0f}, .is_shared = true});
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        OnMesh({.pipeline = num_ranks}, [&](const comm::Mesh& mesh) {
            Rank rank(stages, mesh, rank_of_stage, dtype);
            EXPECT_EQ(rank.reduction.num_parameters(), num_stages + 1);
            EXPECT_EQ(rank.reduction.num_elements(), num_stages + 2);
            for (int chunk = 0; chunk < rank.stage.num_chunks(); ++chunk) {
                Bag& bag = *rank.bags[static_cast<size_t>(chunk)];
                if (rank.stage.is_first(chunk) || rank.stage.is_last(chunk)) {
                    EXPECT_EQ(StateDict(bag).at("wte")->ToVector<float>(), (std::vector<float>{1.0f, 2.0f}));
                    if (dtype == DataType::kBFloat16) {
                        EXPECT_EQ(static_cast<float>(bag.tensor(1).ToVector<BFloat16>()[1]), 2.0f);
                    }
                    bag.SetGrad(1, rank.stage.is_first(chunk) ? std::vector<float>{1.0f, 4.0f}
                                                              : std::vector<float>{2.0f, 0.0f});
                }
            }
            rank.reduction.ReduceTied();
            for (int chunk = 0; chunk < rank.stage.num_chunks(); ++chunk) {
                if (rank.stage.is_first(chunk) || rank.stage.is_last(chunk)) {
                    EXPECT_EQ(rank.bags[static_cast<size_t>(chunk)]->Grad(1), (std::vector<float>{3.0f, 4.0f}));
                }
            }
            EXPECT_EQ(rank.Norm(1), 5.0f);  // counted once
        });
    }
}

TEST(GradReduction, MakesOneParameterOfTheCopiesOfTwoRanks) {
    ExpectCopiesToBeOneParameter(2, 2, {});
    ExpectCopiesToBeOneParameter(3, 3, {});
    ExpectCopiesToBeOneParameter(2, 4, {});
    ExpectCopiesToBeOneParameter(2, 4, {1, 0, 1, 0});
}

TEST(GradReduction, MakesOneParameterOfTheCopiesOfOneRank) {
    ExpectCopiesToBeOneParameter(1, 2, {});
    ExpectCopiesToBeOneParameter(2, 4, {0, 1, 1, 0});
    ExpectCopiesToBeOneParameter(2, 4, {1, 0, 0, 1});
    ExpectCopiesToBeOneParameter(4, 8, {0, 1, 2, 3, 3, 2, 1, 0});
}

TEST(GradReduction, CountsACopyThatNothingReachedAsZero) {
    const Bag::Item shared = {.name = "wte", .values = {0.0f}, .is_shared = true};
    for (const int num_ranks : {1, 2}) {
        OnMesh({.pipeline = num_ranks}, [&](const comm::Mesh& mesh) {
            Rank rank({{shared}, {shared}}, mesh);
            // The last stage alone; what another step left is forgotten.
            rank.bags.front()->SetGrad(0, {100.0f});
            rank.reduction.Clear();
            if (rank.stage.is_last(rank.stage.num_chunks() - 1)) {
                rank.bags.back()->SetGrad(0, {3.0f});
            }
            rank.reduction.ReduceTied();
            EXPECT_EQ(rank.bags.front()->Grad(0), std::vector<float>{3.0f});
            EXPECT_EQ(rank.bags.back()->Grad(0), std::vector<float>{3.0f});
        });
    }
}

TEST(GradReduction, RefusesASharedParameterThatHasNotTwoHolders) {
    const Bag::Item shared = {.name = "wte", .values = {0.0f}, .is_shared = true};
    const Bag::Item longer = {.name = "wte", .values = {0.0f, 0.0f}, .is_shared = true};
    const auto error_of = [](const Bags& stages) {
        return ErrorOnRanks(3, [&](const comm::Mesh& mesh) { const Rank rank(stages, mesh); });
    };
    EXPECT_NE(error_of({{shared}, {}, {}}).find("wte: a parameter that is shared"), std::string::npos);
    EXPECT_NE(error_of({{shared}, {}, {}}).find("got 1 holders"), std::string::npos);
    EXPECT_NE(error_of({{shared}, {shared}, {shared}}).find("got 3 holders"), std::string::npos);
    EXPECT_NE(error_of({{shared}, {}, {longer}}).find("of one size"), std::string::npos);
    EXPECT_EQ(error_of({{}, {shared}, {shared}}), "");
}

// bugs.csv O24, O25, O27: what the last stage of each replica has, on every rank; micro-batches, then replicas.
TEST(GradReduction, AddsTheLossesOfTheReplicasOnEveryRank) {
    OnMesh({.data = 3, .pipeline = 2}, [](const comm::Mesh& mesh) {
        const Rank rank({{}, {}}, mesh);
        TensorList sums;
        TensorList counts;
        if (mesh.position.pipeline == 1) {
            const auto replica = static_cast<float>(mesh.position.data);
            sums = {Tensor::FromVector<float>({0.25f + replica}, {1}, mesh.device),
                    Tensor::FromVector<float>({0.25f}, {1}, mesh.device)};
            counts = {Tensor::FromVector<int64_t>({1}, {1}, mesh.device),
                      Tensor::FromVector<int64_t>({10 * mesh.position.data}, {1}, mesh.device)};
        }
        const kernels::LossMean loss = rank.reduction.ReduceLoss(sums, counts);
        EXPECT_EQ(loss.num_valid->ToVector<int64_t>()[0], 1 + 11 + 21);
        EXPECT_EQ(loss.mean->ToVector<float>()[0], static_cast<float>((0.5 + 1.5 + 2.5) / 33.0));
        EXPECT_TRUE(loss.mean->device() == mesh.device);
    });
}

TEST(GradReduction, GivesTheLossOfNothingAsZero) {
    OnMesh({.pipeline = 2}, [](const comm::Mesh& mesh) {
        const Rank rank({{}, {}}, mesh);
        const kernels::LossMean loss = rank.reduction.ReduceLoss({}, {});
        EXPECT_EQ(loss.num_valid->ToVector<int64_t>()[0], 0);
        EXPECT_EQ(loss.mean->ToVector<float>()[0], 0.0f);
    });
}

TEST(GradReduction, ReadsScalarsInTheirOrder) {
    OnMesh({}, [](const comm::Mesh& mesh) {
        const Rank rank({{}}, mesh);
        EXPECT_EQ(rank.reduction.Read({Tensor::FromVector<float>({3.0f}, {1}, mesh.device),
                                       Tensor::FromVector<float>({-1.5f}, {1}, mesh.device)}),
                  (std::vector<float>{3.0f, -1.5f}));
    });
}

TEST(GradReduction, AddsTheGradientsOfTheReplicas) {
    OnMesh({.data = 3, .pipeline = 2}, [](const comm::Mesh& mesh) {
        Rank rank(
            {{{.name = "a", .values = {0, 0}}, {.name = "unused", .values = {0}}}, {{.name = "b", .values = {0}}}},
            mesh);
        const auto replica = static_cast<float>(mesh.position.data);
        const bool is_first = mesh.position.pipeline == 0;
        rank.bags[0]->SetGrad(0, is_first ? std::vector<float>{replica, 1.0f} : std::vector<float>{10.0f * replica});
        rank.reduction.ReduceReplicas();
        EXPECT_EQ(rank.bags[0]->Grad(0), is_first ? (std::vector<float>{3.0f, 3.0f}) : std::vector<float>{30.0f});
        if (is_first) {
            EXPECT_EQ(rank.bags[0]->tensor(1).grad(), nullptr);
        }
    });
}

}  // namespace
}  // namespace infini_train::nn::parallel
