#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "infini_train/include/comm/process_group.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/core/device.h"
#include "infini_train/src/comm/local/local_process_group.h"

namespace infini_train::comm {

/// Two ranks of one thread: what happens in which order is the test's to say.
struct TwoRanks {
    explicit TwoRanks(double timeout_s = 60.0) {
        const auto all =
            std::make_shared<LocalGroup>(std::make_shared<LocalWorld>(2, timeout_s), std::vector<int>{0, 1});
        for (int rank = 0; rank < 2; ++rank) {
            groups[static_cast<size_t>(rank)] =
                std::make_shared<LocalProcessGroup>(all, rank, devices[static_cast<size_t>(rank)]);
        }
    }

    std::array<Device, 2> devices = {MakeCpuDevice(), MakeCpuDevice()};
    std::array<std::shared_ptr<ProcessGroup>, 2> groups;
};

/// One end of one link. Of a link from a rank to itself both are opened: that is OpenLinks' to do.
inline std::unique_ptr<Sender> OpenSender(ProcessGroup& group, int peer, Direction direction) {
    return std::move(
        group.OpenLinks({{.from = group.rank(), .to = peer, .direction = direction}}).senders.at({peer, direction}));
}
inline std::unique_ptr<Receiver> OpenReceiver(ProcessGroup& group, int peer, Direction direction) {
    return std::move(
        group.OpenLinks({{.from = peer, .to = group.rank(), .direction = direction}}).receivers.at({peer, direction}));
}

/// The text of the Error that work throws; empty when it throws none.
template <typename Work>
std::string ErrorOf(const Work& work) {
    try {
        work();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

}  // namespace infini_train::comm
