#include "infini_train/include/nn/parallel/pp/grad_reduction.h"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/kernels/accumulate.h"
#include "infini_train/include/kernels/grad_norm.h"
#include "infini_train/include/nn/init.h"
#include "infini_train/include/nn/state_dict.h"
#include "infini_train/src/nn/parallel/pp/inventory.h"

namespace infini_train::nn::parallel {
namespace {

std::vector<const Tensor*> Pointers(const TensorList& tensors) {
    std::vector<const Tensor*> pointers;
    for (const std::shared_ptr<Tensor>& tensor : tensors) {
        pointers.push_back(tensor.get());
    }
    return pointers;
}

/// The gradient to be summed with that of a copy; one that no micro-batch reached is 0.
std::shared_ptr<Tensor> GradOrZeros(Tensor& parameter) {
    if (parameter.grad() == nullptr) {
        parameter.AcquireGrad().grad->SetZero();
    }
    return parameter.grad();
}

}  // namespace

GradReduction::GradReduction(const PipelineStage& stage, const comm::Mesh& mesh)
    : chunks_(stage.chunks()),
      shape_(stage.ShapeFor(1)),
      last_rank_(stage.last_rank()),
      pipeline_(mesh.pipeline),
      data_(mesh.data),
      device_(mesh.device) {
    CHECK_NOTNULL(data_.get());
    const std::vector<InventoryEntry> inventory = TakeInventory(stage);
    FindShared(inventory);
    NumberParameters(inventory);
}

/// Null where another rank holds it.
std::shared_ptr<Tensor> GradReduction::FindParameter(const InventoryEntry& entry) const {
    if (entry.rank != pipeline_->rank()) {
        return nullptr;
    }
    for (const NamedParameter& parameter :
         chunks_[static_cast<size_t>(shape_.ChunkOf(entry.stage))]->NamedParameters()) {
        if (parameter.name == entry.name) {
            return parameter.tensor;
        }
    }
    LOG(FATAL) << "stage " << entry.stage << " lost its parameter " << entry.name;
}

void GradReduction::FindShared(const std::vector<InventoryEntry>& inventory) {
    std::map<std::string, std::vector<InventoryEntry>> holders_by_name;
    for (const InventoryEntry& entry : inventory) {
        if (entry.is_shared) {
            holders_by_name[entry.name].push_back(entry);
        }
    }
    for (const auto& [name, holders] : holders_by_name) {
        if (holders.size() != 2 || holders[0].num_elements != holders[1].num_elements) {
            throw Error(
                {.where = name,
                 .what = "a parameter that is shared across stages has two holders, of one size",
                 .got = StrCat(holders.size(), " holders, the first with ", holders[0].num_elements, " elements"),
                 .wanted = "2"});
        }
        const std::shared_ptr<Tensor> first = FindParameter(holders[0]);
        const std::shared_ptr<Tensor> second = FindParameter(holders[1]);
        if (holders[0].rank == holders[1].rank) {
            if (first != nullptr) {
                MasterOf(*second).CopyFrom(MasterOf(*first));
                RefreshFromMaster(*second);
                shared_.push_back({.tensor = first, .copy_on_this_rank = second, .holders = nullptr});
            }
            continue;
        }
        const std::shared_ptr<Tensor> own = first != nullptr ? first : second;
        // Every rank of the pipeline takes part in the split.
        const std::shared_ptr<comm::ProcessGroup> group = pipeline_->Split(own != nullptr ? 0 : -1);
        if (own != nullptr) {
            group->Broadcast(MasterOf(*own), holders[0].rank < holders[1].rank ? 0 : 1);
            RefreshFromMaster(*own);
            shared_.push_back({.tensor = own, .copy_on_this_rank = nullptr, .holders = group});
        }
    }
}

void GradReduction::NumberParameters(const std::vector<InventoryEntry>& inventory) {
    counted_.resize(chunks_.size());
    std::unordered_set<std::string> shared_names;
    std::unordered_set<int> stages_begun;
    for (const InventoryEntry& entry : inventory) {
        const std::shared_ptr<Tensor> parameter = FindParameter(entry);
        if (parameter != nullptr && stages_begun.insert(entry.stage).second) {
            counted_[static_cast<size_t>(shape_.ChunkOf(entry.stage))].first_index = num_parameters_;
        }
        if (entry.is_shared && !shared_names.insert(entry.name).second) {
            continue;  // the first holder's copy counts
        }
        if (parameter != nullptr) {
            counted_[static_cast<size_t>(shape_.ChunkOf(entry.stage))].parameters.push_back(parameter);
        }
        ++num_parameters_;
        num_elements_ += entry.num_elements;
    }
}

void GradReduction::Clear() {
    for (const std::shared_ptr<Module>& chunk : chunks_) {
        for (const std::shared_ptr<Tensor>& parameter : chunk->Parameters()) {
            parameter->ClearGrad();
        }
        for (const TiedParameters& tie : chunk->Ties()) {
            tie.alias->ClearGrad();
        }
    }
}

void GradReduction::ReduceTied() {
    for (const std::shared_ptr<Module>& chunk : chunks_) {
        ReduceTiedGrads(*chunk);
    }
    for (const SharedParameter& parameter : shared_) {
        const std::shared_ptr<Tensor> grad = GradOrZeros(*parameter.tensor);
        if (parameter.copy_on_this_rank == nullptr) {
            parameter.holders->AllReduceSum({grad});
            continue;
        }
        const std::shared_ptr<Tensor> other = GradOrZeros(*parameter.copy_on_this_rank);
        kernels::accumulate(device_.type, *other, *grad, /*accumulate=*/true);
        other->CopyFrom(*grad);
    }
}

void GradReduction::ReduceReplicas() {
    if (data_->size() == 1) {
        return;
    }
    TensorList grads;
    for (const std::shared_ptr<Module>& chunk : chunks_) {
        for (const std::shared_ptr<Tensor>& parameter : chunk->Parameters()) {
            if (parameter->grad() != nullptr) {
                grads.push_back(parameter->grad());
            }
        }
    }
    data_->AllReduceSum(grads);
}

kernels::LossMean GradReduction::ReduceLoss(const TensorList& sums, const TensorList& counts) const {
    const auto total = Tensor::Empty({2}, DataType::kInt64, device_);
    kernels::loss_total(device_.type, Pointers(sums), Pointers(counts), *total);
    pipeline_->Broadcast(*total, last_rank_);
    const auto by_replica = Tensor::Empty({data_->size(), 2}, DataType::kInt64, device_);
    data_->AllGather(*total, *by_replica);
    return kernels::loss_mean(device_.type, *by_replica);
}

optimizers::GradScale GradReduction::Scale(const optimizers::Optimizer& optimizer, const Tensor& num_valid,
                                           float max_norm) const {
    std::unordered_set<const Tensor*> optimized;
    for (const std::shared_ptr<Tensor>& parameter : optimizer.parameters()) {
        optimized.insert(parameter.get());
    }
    // Each rank fills in its own and adds the others' to zeros, which is exact in any order.
    const auto squared_sums = Tensor::Zeros({num_parameters_}, DataType::kFloat32, device_);
    const auto nothing = Tensor::Empty({0}, DataType::kFloat32, device_);
    for (const ChunkParameters& chunk : counted_) {
        std::vector<const Tensor*> grads;
        for (const std::shared_ptr<Tensor>& parameter : chunk.parameters) {
            // The leaf keeps its gradient alive for the length of this call.
            const Tensor* grad = optimized.contains(parameter.get()) ? parameter->grad().get() : nullptr;
            grads.push_back(grad != nullptr ? grad : nothing.get());
        }
        const auto num_grads = static_cast<int64_t>(grads.size());
        kernels::squared_sums(device_.type, grads,
                              *squared_sums->Slice(chunk.first_index, chunk.first_index + num_grads));
    }
    pipeline_->AllReduceSum({squared_sums});
    auto [norm, scale] = kernels::grad_scale(device_.type, *squared_sums, num_valid, max_norm);
    return {.norm = std::move(norm), .scale = std::move(scale)};
}

std::vector<float> GradReduction::Read(const TensorList& scalars) const {
    const auto gathered = Tensor::Empty({static_cast<int64_t>(scalars.size())}, DataType::kFloat32, device_);
    for (size_t i = 0; i < scalars.size(); ++i) {
        const auto place = static_cast<int64_t>(i);
        gathered->Slice(place, place + 1)->CopyFrom(*scalars[i]);
    }
    std::vector<float> values = gathered->ToVector<float>();
    // What a collective left on the device is only valid when no rank failed.
    pipeline_->ThrowIfFailed();
    data_->ThrowIfFailed();
    return values;
}

}  // namespace infini_train::nn::parallel
