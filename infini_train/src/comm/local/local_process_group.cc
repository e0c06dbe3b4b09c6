#include "infini_train/src/comm/local/local_process_group.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "glog/logging.h"

#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/local/rank_order_sum.h"

namespace infini_train::comm {

LocalGroup::LocalGroup(std::shared_ptr<LocalWorld> world_in, std::vector<int> world_ranks_in)
    : world(std::move(world_in)), world_ranks(std::move(world_ranks_in)), meeting(world, world_ranks) {}

LocalProcessGroup::LocalProcessGroup(std::shared_ptr<LocalGroup> group, int rank, const Device& device)
    : ProcessGroup(rank, group->world_ranks), group_(std::move(group)), device_(device) {}

void LocalProcessGroup::Meet(Contribution mine, const std::function<void(const Contributions&)>& work) {
    Stream* const stream = StreamOf(device_);
    const auto wait_for_others = [&](const Contributions& all) {
        for (const Contribution* contribution : all) {
            if (contribution->enqueued != nullptr) {
                stream->WaitFor(*contribution->enqueued);
            }
        }
    };
    if (stream != nullptr) {
        mine.enqueued = stream->Record();
    }
    {
        const Meeting::Stay stay(&group_->meeting, rank(), mine);
        CheckAgreement(stay.all(), world_ranks()[static_cast<size_t>(rank())], world_ranks());
        wait_for_others(stay.all());
        work(stay.all());
    }
    if (stream != nullptr) {
        const Contribution done = {.operation = mine.operation + ", its end", .enqueued = stream->Record()};
        const Meeting::Stay stay(&group_->meeting, rank(), done);
        wait_for_others(stay.all());
    }
}

void LocalProcessGroup::AllReduceSum(const TensorList& tensors) {
    for (const std::shared_ptr<Tensor>& tensor : tensors) {
        CHECK_NOTNULL(tensor.get());
        CHECK(CanSum(tensor->dtype())) << "sum of " << Name(tensor->dtype());
    }
    if (size() == 1) {
        return;
    }
    if (StreamOf(device_) != nullptr) {
        SumOnStream(tensors);
        return;
    }
    Meet({.operation = "all-reduce", .sums = &tensors}, [&](const Contributions& all) {
        std::vector<Tensor*> copies(all.size());
        for (size_t i = 0; i < tensors.size(); ++i) {
            for (size_t n = 0; n < all.size(); ++n) {
                copies[n] = (*all[n]->sums)[i].get();
            }
            // Each rank does its part of the elements, for all.
            const int64_t num_elements = tensors[i]->num_elements();
            SumInRankOrder(copies, num_elements * rank() / size(), num_elements * (rank() + 1) / size());
        }
    });
}

void LocalProcessGroup::SumOnStream(const TensorList& tensors) {
    TensorList sums;
    Meet({.operation = "all-reduce", .sums = &tensors}, [&](const Contributions& all) {
        for (size_t i = 0; i < tensors.size(); ++i) {
            const auto sum = Tensor::Empty(tensors[i]->shape(), tensors[i]->dtype(), device_);
            const auto copy = Tensor::Empty(tensors[i]->shape(), tensors[i]->dtype(), device_);
            sum->CopyFrom(*(*all[0]->sums)[i]);
            for (size_t n = 1; n < all.size(); ++n) {
                copy->CopyFrom(*(*all[n]->sums)[i]);
                AddOnStream(*copy, *sum);
            }
            sums.push_back(sum);
        }
    });
    // Now that all have read them.
    for (size_t i = 0; i < tensors.size(); ++i) {
        tensors[i]->CopyFrom(*sums[i]);
    }
}

void LocalProcessGroup::AllGather(const Tensor& x, Tensor& gathered) {
    Shape shape = x.shape();
    shape.insert(shape.begin(), size());
    CHECK(gathered.shape() == shape) << infini_train::ToString(gathered.shape()) << " for "
                                     << infini_train::ToString(shape);
    CHECK(gathered.dtype() == x.dtype()) << Name(gathered.dtype()) << " for " << Name(x.dtype());
    Meet({.operation = "all-gather", .values = &x}, [&](const Contributions& all) {
        for (size_t n = 0; n < all.size(); ++n) {
            const int64_t row = static_cast<int64_t>(n);
            gathered.Slice(row, row + 1)->View(x.shape())->CopyFrom(*all[n]->values);
        }
    });
}

void LocalProcessGroup::Broadcast(Tensor& x, int root) {
    CHECK(0 <= root && root < size()) << "root " << root << " of " << size();
    const int world_root = world_ranks()[static_cast<size_t>(root)];
    Meet({.operation = StrCat("broadcast from rank ", world_root), .values = &x}, [&](const Contributions& all) {
        if (rank() != root) {
            x.CopyFrom(*all[static_cast<size_t>(root)]->values);
        }
    });
}

void LocalProcessGroup::Barrier() {
    Meet({.operation = "barrier"}, [](const Contributions&) {});
}

std::vector<std::string> LocalProcessGroup::ExchangeText(const std::string& text) {
    std::vector<std::string> texts;
    Meet({.operation = "exchange of texts", .text = &text}, [&](const Contributions& all) {
        for (const Contribution* contribution : all) {
            texts.push_back(*contribution->text);
        }
    });
    return texts;
}

std::shared_ptr<ProcessGroup> LocalProcessGroup::Split(int color) {
    std::vector<int> members;  // ranks of this group
    std::vector<int> members_in_world;
    Meet({.operation = "split", .color = color}, [&](const Contributions& all) {
        for (size_t n = 0; n < all.size(); ++n) {
            if (all[n]->color == color) {
                members.push_back(static_cast<int>(n));
                members_in_world.push_back(world_ranks()[n]);
            }
        }
    });
    // The first member makes what all of them share.
    std::shared_ptr<LocalGroup> made;
    if (color >= 0 && members.front() == rank()) {
        made = std::make_shared<LocalGroup>(group_->world, members_in_world);
    }
    std::shared_ptr<LocalGroup> mine;
    Meet({.operation = "split", .group = made},
         [&](const Contributions& all) { mine = all[static_cast<size_t>(members.front())]->group; });
    if (color < 0) {
        return nullptr;
    }
    const auto place = std::find(members.begin(), members.end(), rank());
    return std::make_shared<LocalProcessGroup>(std::move(mine), static_cast<int>(place - members.begin()), device_);
}

std::shared_ptr<Mailbox> LocalProcessGroup::TakeEnd(int sender, int receiver, Direction direction,
                                                    bool LocalGroup::SharedLink::*end) {
    CHECK(0 <= std::min(sender, receiver) && std::max(sender, receiver) < size())
        << "link from rank " << sender << " to rank " << receiver << " of " << size();
    const auto lock = group_->world->Lock();
    LocalGroup::SharedLink& link = group_->links[{sender, receiver, direction}];
    CHECK(!std::exchange(link.*end, true))
        << "link from rank " << sender << " to rank " << receiver << " opened twice at one end";
    if (link.mailbox == nullptr) {
        link.mailbox = std::make_shared<Mailbox>(group_->world, world_ranks()[static_cast<size_t>(sender)],
                                                 world_ranks()[static_cast<size_t>(receiver)]);
    }
    return link.mailbox;
}

LinkEnds LocalProcessGroup::OpenLinks(const std::vector<Link>& links) {
    LinkEnds ends;
    for (const Link& link : links) {
        if (link.from == rank()) {
            ends.senders[{link.to, link.direction}] =
                MakeSender(TakeEnd(link.from, link.to, link.direction, &LocalGroup::SharedLink::has_sender));
        }
        if (link.to == rank()) {
            ends.receivers[{link.from, link.direction}] = MakeReceiver(
                TakeEnd(link.from, link.to, link.direction, &LocalGroup::SharedLink::has_receiver), device_);
        }
    }
    return ends;
}

void LocalProcessGroup::ThrowIfFailed() {
    group_->world->ThrowIfFailed(world_ranks()[static_cast<size_t>(rank())]);
}

}  // namespace infini_train::comm
