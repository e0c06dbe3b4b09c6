#include "infini_train/src/comm/gloo/gloo_process_group.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "glog/logging.h"

#include "infini_train/include/comm/wait_error.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/gloo/gloo_link.h"
#include "infini_train/src/comm/gloo/process_agreement.h"
#include "infini_train/src/comm/local/rank_order_sum.h"
#include "infini_train/src/comm/wire.h"

namespace infini_train::comm {
namespace {

std::byte* Row(Tensor& gathered, size_t row, size_t row_bytes) {
    return static_cast<std::byte*>(gathered.raw_data()) + row * row_bytes;
}

/// The texts of the ranks of this process as one.
std::string Join(const Contributions& local) {
    WireWriter writer;
    for (const Contribution* contribution : local) {
        writer.Text(*contribution->text);
    }
    return writer.bytes();
}

/// What the receiver gave the link at a place of the list.
GlooLinkIds FindIds(const std::string& given, size_t place, int sender, int receiver) {
    WireReader reader(given);
    while (const std::optional<uint32_t> link = reader.Number()) {
        const GlooLinkIds ids = {.header = reader.Number().value_or(0), .payload = reader.Number().value_or(0)};
        if (*link == place) {
            return ids;
        }
    }
    throw Error({.where = StrCat("rank ", sender),
                 .what = StrCat("opened a link to rank ", receiver, ", which opened none from here"),
                 .kind = Error::Kind::kRuntime});
}

}  // namespace

GlooGroup::GlooGroup(std::shared_ptr<LocalWorld> world, GroupProcesses processes_in)
    : LocalGroup(std::move(world), processes_in.own_process().ranks), processes(std::move(processes_in)) {}

GlooProcessGroup::GlooProcessGroup(std::shared_ptr<GlooGroup> group, int local_rank, const Device& device)
    : ProcessGroup(group->processes.own_process().first_place + local_rank, group->processes.world_ranks),
      group_(std::move(group)),
      local_rank_(local_rank),
      device_(device),
      local_(group_, local_rank, device) {
    CHECK(device.type == DeviceType::kCPU) << ToString(device);
}

int GlooProcessGroup::LocalRankOf(int rank) const {
    const GroupProcess& own = processes().own_process();
    const int place = rank - own.first_place;
    return 0 <= place && place < static_cast<int>(own.ranks.size()) ? place : -1;
}

void GlooProcessGroup::ThrowIfFailed() {
    processes().connections->ThrowIfFailed(WorldRank(rank()));
}

void GlooProcessGroup::Meet(const Contribution& mine, const std::function<void(const Contributions&)>& work) {
    {
        const Meeting::Stay stay(&group_->meeting, local_rank_, mine);
        CheckAgreement(stay.all(), WorldRank(rank()), local_.world_ranks());
        if (local_rank_ == 0) {
            group_->failure = nullptr;
            try {
                group_->descriptions = ExchangeTexts(processes(), mine.operation, Describe(mine));
                if (ProcessesAgree(group_->descriptions)) {
                    work(stay.all());
                }
            } catch (...) {
                group_->failure = std::current_exception();
            }
        }
    }
    // Nobody writes to these before all ranks have come to the next meeting.
    if (group_->failure != nullptr) {
        try {
            std::rethrow_exception(group_->failure);
        } catch (const WaitError& error) {
            WaitError::Wait wait = error.wait();
            wait.rank = WorldRank(rank());
            throw WaitError(wait);
        }
    }
    if (!ProcessesAgree(group_->descriptions)) {
        ThrowDisagreement(processes(), group_->descriptions, WorldRank(rank()));
    }
}

void GlooProcessGroup::CopyFromLocal(int source, const Tensor& have, Tensor& become) {
    const Contribution mine = {.operation = "copy", .values = local_rank_ == source ? &have : nullptr};
    const Meeting::Stay stay(&group_->meeting, local_rank_, mine);
    if (local_rank_ != source) {
        become.CopyFrom(*stay.all()[static_cast<size_t>(source)]->values);
    }
}

void GlooProcessGroup::AllReduceSum(const TensorList& tensors) {
    for (const std::shared_ptr<Tensor>& tensor : tensors) {
        CHECK_NOTNULL(tensor.get());
        CHECK(CanSum(tensor->dtype())) << "sum of " << Name(tensor->dtype());
    }
    Meet({.operation = "all-reduce", .sums = &tensors}, [&](const Contributions& local) {
        std::vector<const TensorList*> ranks;
        for (const Contribution* contribution : local) {
            ranks.push_back(contribution->sums);
        }
        group_->sum.AllReduce(processes(), ranks);
    });
}

void GlooProcessGroup::AllGather(const Tensor& x, Tensor& gathered) {
    Shape shape = x.shape();
    shape.insert(shape.begin(), size());
    CHECK(gathered.shape() == shape) << infini_train::ToString(gathered.shape()) << " for "
                                     << infini_train::ToString(shape);
    CHECK(gathered.dtype() == x.dtype()) << Name(gathered.dtype()) << " for " << Name(x.dtype());
    Meet({.operation = "all-gather", .values = &x}, [&](const Contributions& local) {
        const size_t row_bytes = x.size_bytes();
        ProcessRound round(&processes(), "all-gather");
        for (const GroupProcess& process : processes().all) {
            for (size_t n = 0; n < process.ranks.size(); ++n) {
                std::byte* const row = Row(gathered, static_cast<size_t>(process.first_place) + n, row_bytes);
                if (process.is_own) {
                    std::copy_n(static_cast<const std::byte*>(local[n]->values->raw_data()), row_bytes, row);
                } else {
                    round.Receive(process, row, row_bytes);
                }
            }
            for (size_t n = 0; n < local.size() && !process.is_own; ++n) {
                round.Send(process, local[n]->values->raw_data(), row_bytes);
            }
        }
        round.Wait();
    });
    CopyFromLocal(/*source=*/0, gathered, gathered);
}

void GlooProcessGroup::Broadcast(Tensor& x, int root) {
    CHECK(0 <= root && root < size()) << "root " << root << " of " << size();
    const std::string operation = StrCat("broadcast from rank ", WorldRank(root));
    const int local_root = LocalRankOf(root);
    Meet({.operation = operation, .values = &x}, [&](const Contributions& local) {
        ProcessRound round(&processes(), operation);
        for (const GroupProcess& process : processes().all) {
            const int end = process.first_place + static_cast<int>(process.ranks.size());
            if (local_root >= 0 && !process.is_own) {
                const Tensor& from = *local[static_cast<size_t>(local_root)]->values;
                round.Send(process, from.raw_data(), from.size_bytes());
            } else if (local_root < 0 && process.first_place <= root && root < end) {
                round.Receive(process, x.raw_data(), x.size_bytes());
            }
        }
        round.Wait();
    });
    CopyFromLocal(std::max(local_root, 0), x, x);
}

void GlooProcessGroup::Barrier() {
    Meet({.operation = "barrier"}, [](const Contributions&) {});
}

std::vector<std::string> GlooProcessGroup::ExchangeText(const std::string& text) {
    const std::string operation = "exchange of texts";
    Meet({.operation = operation, .text = &text}, [&](const Contributions& local) {
        group_->texts.clear();
        const std::vector<std::string> joined = ExchangeTexts(processes(), operation, Join(local));
        for (size_t p = 0; p < joined.size(); ++p) {
            WireReader reader(joined[p]);
            for (size_t n = 0; n < processes().all[p].ranks.size(); ++n) {
                group_->texts.push_back(reader.Text().value_or(""));
            }
        }
    });
    return group_->texts;
}

std::shared_ptr<ProcessGroup> GlooProcessGroup::Split(int color) {
    GlooConnections& connections = *processes().connections;
    const std::vector<std::string> texts =
        ExchangeText(WireWriter().Number(static_cast<uint32_t>(color)).Number(connections.NewChannelId()).bytes());
    // The processes of the new group; the first rank of each says by which channel it is reached.
    GroupProcesses made = {.connections = processes().connections};
    int local_rank = 0;
    int first_local = -1;  // the rank of this process that makes what they share
    for (int n = 0; n < size(); ++n) {
        WireReader reader(texts[static_cast<size_t>(n)]);
        const auto its_color = static_cast<int>(reader.Number().value_or(0));
        const uint32_t channel_id = reader.Number().value_or(0);
        if (its_color != color) {
            continue;
        }
        const int process = connections.ProcessOf(WorldRank(n));
        const bool is_own = process == connections.process();
        if (made.all.empty() || made.all.back().channel.process != process) {
            made.own = is_own ? static_cast<int>(made.all.size()) : made.own;
            made.all.push_back({.channel = {.process = process, .id = channel_id},
                                .first_place = static_cast<int>(made.world_ranks.size()),
                                .is_own = is_own});
        }
        if (is_own && first_local < 0) {
            first_local = LocalRankOf(n);
        }
        local_rank += is_own && n < rank() ? 1 : 0;
        made.all.back().ranks.push_back(WorldRank(n));
        made.world_ranks.push_back(WorldRank(n));
    }
    const bool spans_processes = made.all.size() > 1;
    std::shared_ptr<LocalGroup> shared;
    if (color >= 0 && local_rank == 0) {
        shared = spans_processes ? std::make_shared<GlooGroup>(group_->world, std::move(made))
                                 : std::make_shared<LocalGroup>(group_->world, made.world_ranks);
    }
    {
        const Contribution mine = {.operation = "split", .group = shared};
        const Meeting::Stay stay(&group_->meeting, local_rank_, mine);
        shared = stay.all()[static_cast<size_t>(first_local)]->group;
    }
    if (color < 0) {
        return nullptr;
    }
    if (!spans_processes) {
        return std::make_shared<LocalProcessGroup>(std::move(shared), local_rank, device_);
    }
    return std::make_shared<GlooProcessGroup>(std::static_pointer_cast<GlooGroup>(std::move(shared)), local_rank,
                                              device_);
}

LinkEnds GlooProcessGroup::OpenLinks(const std::vector<Link>& links) {
    GlooConnections& connections = *processes().connections;
    std::vector<Link> own_links;  // within this process, counted in it
    std::map<size_t, GlooLinkIds> ids;
    WireWriter given;
    for (size_t i = 0; i < links.size(); ++i) {
        const Link& link = links[i];
        CHECK(0 <= std::min(link.from, link.to) && std::max(link.from, link.to) < size())
            << "link from rank " << link.from << " to rank " << link.to << " of " << size();
        const int from = LocalRankOf(link.from);
        const int to = LocalRankOf(link.to);
        if (from >= 0 && to >= 0) {
            own_links.push_back({.from = from, .to = to, .direction = link.direction});
            continue;
        }
        if (link.from != rank() && link.to != rank()) {
            continue;
        }
        CHECK(std::find(opened_.begin(), opened_.end(), link) == opened_.end())
            << "link from rank " << link.from << " to rank " << link.to << " opened twice";
        opened_.push_back(link);
        if (link.to == rank()) {
            ids[i] = {.header = connections.NewChannelId(), .payload = connections.NewChannelId()};
            given.Number(static_cast<uint32_t>(i)).Number(ids[i].header).Number(ids[i].payload);
        }
    }
    const std::vector<std::string> texts = ExchangeText(given.bytes());

    LinkEnds local_ends = local_.OpenLinks(own_links);
    LinkEnds ends;
    const int first_place = processes().own_process().first_place;
    for (auto& [key, sender] : local_ends.senders) {
        ends.senders[{key.first + first_place, key.second}] = std::move(sender);
    }
    for (auto& [key, receiver] : local_ends.receivers) {
        ends.receivers[{key.first + first_place, key.second}] = std::move(receiver);
    }
    for (size_t i = 0; i < links.size(); ++i) {
        const Link& link = links[i];
        if (LocalRankOf(link.from) >= 0 && LocalRankOf(link.to) >= 0) {
            continue;
        }
        GlooLinkOptions options = {
            .connections = processes().connections, .sender = WorldRank(link.from), .receiver = WorldRank(link.to)};
        if (link.to == rank()) {
            options.ids = ids[i];
            ends.receivers[{link.from, link.direction}] = MakeGlooReceiver(options, device_);
        } else if (link.from == rank()) {
            options.ids = FindIds(texts[static_cast<size_t>(link.to)], i, options.sender, options.receiver);
            ends.senders[{link.to, link.direction}] = MakeGlooSender(options);
        }
    }
    return ends;
}

}  // namespace infini_train::comm
