#include "infini_train/src/comm/nccl/nccl_process_group.h"

#include <algorithm>
#include <set>
#include <utility>

#include "glog/logging.h"

#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/local/contribution.h"
#include "infini_train/src/comm/local/rank_order_sum.h"
#include "infini_train/src/comm/nccl/link_rounds.h"
#include "infini_train/src/comm/nccl/nccl_link.h"

namespace infini_train::comm {
namespace {

ncclDataType_t SumType(DataType dtype) {
    return dtype == DataType::kFloat32 ? ncclFloat32 : ncclInt64;
}

}  // namespace

NcclProcessGroup::NcclProcessGroup(const Options& options)
    : ProcessGroup(options.rank, options.world_ranks),
      device_(options.device),
      watchdog_(options.watchdog),
      communicator_(options.communicator) {
    CHECK((communicator_ == nullptr) == (size() == 1)) << Ranks(world_ranks());
}

void NcclProcessGroup::Enqueue(const char* name, const std::function<ncclResult_t(ncclComm_t, cudaStream_t)>& call) {
    cuda::CudaStream& stream = cuda::CudaStreamOf(device_);
    const std::shared_ptr<const Event> begun = stream.Record();
    communicator_->Call({.name = name}, [&](ncclComm_t comm) { return call(comm, stream.get()); });
    communicator_->Watch({.name = name}, stream.Record(), begun);
}

void NcclProcessGroup::ThrowIfFailed() {
    watchdog_->ThrowIfFailed(WorldRank(rank()));
}

void NcclProcessGroup::AllReduceSum(const TensorList& tensors) {
    TensorList some;
    for (const std::shared_ptr<Tensor>& tensor : tensors) {
        CHECK_NOTNULL(tensor.get());
        CHECK(CanSum(tensor->dtype())) << "sum of " << Name(tensor->dtype());
        if (tensor->num_elements() > 0) {
            some.push_back(tensor);
        }
    }
    if (size() == 1 || some.empty()) {
        return;
    }
    Enqueue("all-reduce", [&](ncclComm_t comm, cudaStream_t stream) {
        ncclResult_t result = ncclGroupStart();
        for (const std::shared_ptr<Tensor>& tensor : some) {
            if (result == ncclSuccess) {
                result =
                    ncclAllReduce(tensor->raw_data(), tensor->raw_data(), static_cast<size_t>(tensor->num_elements()),
                                  SumType(tensor->dtype()), ncclSum, comm, stream);
            }
        }
        // Also after an error: every start has its end.
        const ncclResult_t end = ncclGroupEnd();
        return result == ncclSuccess ? end : result;
    });
}

void NcclProcessGroup::AllGather(const Tensor& x, Tensor& gathered) {
    Shape shape = x.shape();
    shape.insert(shape.begin(), size());
    CHECK(gathered.shape() == shape) << infini_train::ToString(gathered.shape()) << " for "
                                     << infini_train::ToString(shape);
    CHECK(gathered.dtype() == x.dtype()) << Name(gathered.dtype()) << " for " << Name(x.dtype());
    if (x.num_elements() == 0) {
        return;
    }
    if (size() == 1) {
        gathered.View(x.shape())->CopyFrom(x);
        return;
    }
    Enqueue("all-gather", [&](ncclComm_t comm, cudaStream_t stream) {
        return ncclAllGather(x.raw_data(), gathered.raw_data(), x.size_bytes(), ncclUint8, comm, stream);
    });
}

void NcclProcessGroup::Broadcast(Tensor& x, int root) {
    CHECK(0 <= root && root < size()) << "root " << root << " of " << size();
    if (size() == 1 || x.num_elements() == 0) {
        return;
    }
    Enqueue("broadcast", [&](ncclComm_t comm, cudaStream_t stream) {
        return ncclBroadcast(x.raw_data(), x.raw_data(), x.size_bytes(), ncclUint8, root, comm, stream);
    });
}

void NcclProcessGroup::Barrier() {
    if (size() == 1) {
        return;
    }
    const auto x = Tensor::Zeros({1}, DataType::kInt64, device_);
    Enqueue("barrier", [&](ncclComm_t comm, cudaStream_t stream) {
        return ncclAllReduce(x->raw_data(), x->raw_data(), 1, ncclInt64, ncclSum, comm, stream);
    });
    cuda::CudaStreamOf(device_).Synchronize();
    ThrowIfFailed();
}

std::vector<int64_t> NcclProcessGroup::ExchangeNumber(int64_t number) {
    const auto mine = Tensor::FromVector<int64_t>({number}, {}, device_);
    const auto all = Tensor::Empty({size()}, DataType::kInt64, device_);
    AllGather(*mine, *all);
    std::vector<int64_t> numbers = all->ToVector<int64_t>();
    ThrowIfFailed();
    return numbers;
}

std::vector<std::string> NcclProcessGroup::ExchangeText(const std::string& text) {
    if (size() == 1) {
        return {text};
    }
    const std::vector<int64_t> sizes = ExchangeNumber(static_cast<int64_t>(text.size()));
    const int64_t longest = *std::max_element(sizes.begin(), sizes.end());
    std::vector<uint8_t> padded(text.begin(), text.end());
    padded.resize(static_cast<size_t>(longest));
    const auto mine = Tensor::FromVector(padded, {longest}, device_);
    const auto all = Tensor::Empty({size(), longest}, DataType::kUInt8, device_);
    AllGather(*mine, *all);
    const std::vector<uint8_t> bytes = all->ToVector<uint8_t>();
    ThrowIfFailed();
    std::vector<std::string> texts;
    for (size_t n = 0; n < sizes.size(); ++n) {
        const auto begin = bytes.begin() + static_cast<int64_t>(n) * longest;
        texts.emplace_back(begin, begin + sizes[n]);
    }
    return texts;
}

std::shared_ptr<ProcessGroup> NcclProcessGroup::Split(int color) {
    const std::vector<int64_t> colors = size() == 1 ? std::vector<int64_t>{color} : ExchangeNumber(color);
    std::vector<int> members;
    int rank_in_group = 0;
    for (int n = 0; n < size(); ++n) {
        if (colors[static_cast<size_t>(n)] == color) {
            rank_in_group += n < rank() ? 1 : 0;
            members.push_back(WorldRank(n));
        }
    }
    const bool has_all = static_cast<int>(members.size()) == size();
    // Every rank takes part in a split of NCCL's if any group needs a communicator of its own: not one of all ranks,
    // whose calls come in one order with those of this group, and not a rank alone.
    const auto needs_one = [&](int64_t any) {
        const auto count = std::count(colors.begin(), colors.end(), any);
        return any >= 0 && count > 1 && count < size();
    };
    std::shared_ptr<NcclCommunicator> communicator = has_all ? communicator_ : nullptr;
    if (std::any_of(colors.begin(), colors.end(), needs_one)) {
        if (needs_one(color)) {
            communicator = watchdog_->Make(WorldRank(rank()), device_.index, "of " + Ranks(members), members);
        }
        communicator_->Split(color, /*key=*/rank(), /*max_blocks=*/0, communicator.get());
    }
    if (color < 0) {
        return nullptr;
    }
    return std::make_shared<NcclProcessGroup>(Options{.rank = rank_in_group,
                                                      .world_ranks = std::move(members),
                                                      .device = device_,
                                                      .watchdog = watchdog_,
                                                      .communicator = std::move(communicator)});
}

void NcclProcessGroup::OpenOwnLink(const Link& link, std::shared_ptr<NcclCommunicator> communicator, LinkEnds* ends) {
    CHECK(std::find(opened_.begin(), opened_.end(), link) == opened_.end())
        << "link from rank " << link.from << " to rank " << link.to << " opened twice";
    opened_.push_back(link);
    if (link.from == link.to) {
        SelfLinkEnds both = MakeSelfLink(WorldRank(rank()));
        ends->senders[{link.to, link.direction}] = std::move(both.sender);
        ends->receivers[{link.from, link.direction}] = std::move(both.receiver);
    } else if (link.from == rank()) {
        ends->senders[{link.to, link.direction}] = MakeNcclSender(std::move(communicator), device_);
    } else {
        ends->receivers[{link.from, link.direction}] = MakeNcclReceiver(std::move(communicator), device_);
    }
}

LinkEnds NcclProcessGroup::OpenLinks(const std::vector<Link>& links) {
    LinkEnds ends;
    for (const Link& link : links) {
        CHECK(0 <= std::min(link.from, link.to) && std::max(link.from, link.to) < size())
            << "link from rank " << link.from << " to rank " << link.to << " of " << size();
        if (link.from == link.to && link.from == rank()) {
            OpenOwnLink(link, nullptr, &ends);
        }
    }
    for (const std::vector<size_t>& round : LinkRounds(links)) {
        const auto own = std::find_if(round.begin(), round.end(), [&](size_t place) {
            return links[place].from == rank() || links[place].to == rank();
        });
        if (own == round.end()) {
            communicator_->Split(/*color=*/0, /*key=*/0, kLinkBlocks, nullptr);
            continue;
        }
        const Link& link = links[*own];
        const bool sends = link.from == rank();
        const int peer = WorldRank(sends ? link.to : link.from);
        const auto communicator =
            watchdog_->Make(WorldRank(rank()), device_.index, StrCat(sends ? "to rank " : "from rank ", peer), {peer});
        communicator->MakeStream();
        communicator_->Split(static_cast<int>(*own), /*key=*/sends ? 0 : 1, kLinkBlocks, communicator.get());
        OpenOwnLink(link, communicator, &ends);
    }
    return ends;
}

}  // namespace infini_train::comm
