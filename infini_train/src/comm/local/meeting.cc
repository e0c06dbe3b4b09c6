#include "infini_train/src/comm/local/meeting.h"

#include <cstddef>
#include <utility>

#include "infini_train/include/common/str_cat.h"

namespace infini_train::comm {

Meeting::Meeting(std::shared_ptr<LocalWorld> world, std::vector<int> world_ranks)
    : world_(std::move(world)), world_ranks_(std::move(world_ranks)), present_(world_ranks_.size(), nullptr) {}

Meeting::Stay::Stay(Meeting* meeting, int rank, const Contribution& contribution) : meeting_(meeting), rank_(rank) {
    meeting_->Arrive(rank_, contribution);
}

Meeting::Stay::~Stay() {
    meeting_->Depart(rank_);
}

void Meeting::WakeOthers(int rank) {
    for (size_t i = 0; i < world_ranks_.size(); ++i) {
        if (static_cast<int>(i) != rank) {
            world_->Wake(world_ranks_[i]);
        }
    }
}

void Meeting::Arrive(int rank, const Contribution& contribution) {
    const int size = static_cast<int>(world_ranks_.size());
    const auto missing = [&] {
        std::vector<int> ranks;
        for (size_t i = 0; i < present_.size(); ++i) {
            if (present_[i] == nullptr) {
                ranks.push_back(world_ranks_[i]);
            }
        }
        return ranks;
    };
    const auto what_for = [&] {
        return StrCat(Ranks(missing()), " in ", contribution.operation, " of ", Ranks(world_ranks_));
    };

    auto lock = world_->Lock();
    present_[static_cast<size_t>(rank)] = &contribution;
    if (++num_present_ == size) {
        WakeOthers(rank);
        return;
    }
    try {
        world_->Wait(
            &lock, world_ranks_[static_cast<size_t>(rank)], [&] { return num_present_ == size; }, missing, what_for);
    } catch (...) {
        // Who comes later must not find what ends with this call.
        present_[static_cast<size_t>(rank)] = nullptr;
        --num_present_;
        throw;
    }
}

void Meeting::Depart(int rank) {
    auto lock = world_->Lock();
    if (++num_done_ == static_cast<int>(world_ranks_.size())) {
        present_.assign(present_.size(), nullptr);
        num_present_ = 0;
        num_done_ = 0;
        ++round_;
        WakeOthers(rank);
        return;
    }
    // The others read what this rank brought, so a failure elsewhere cannot end this. All of them are here and have
    // only to compute.
    const int64_t round = round_;
    world_->WaitForSure(&lock, world_ranks_[static_cast<size_t>(rank)], [&] { return round_ != round; });
}

}  // namespace infini_train::comm
