#pragma once

#include <functional>
#include <memory>

#include "infini_train/include/core/device.h"

namespace infini_train {

/// Work of one stream, recorded once and replayed: the same operations on the same addresses, enqueued at once.
class Recording {
 public:
    /// Calls work, whose operations on the device's stream are recorded and not run. Work may not wait for the device.
    /// What it allocated and freed again is kept for the replays: nobody else gets that memory while the recording
    /// lives. Tensors that outlive the call keep their addresses as always. The device has a stream.
    Recording(const Device& device, const std::function<void()>& work);
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;
    ~Recording();

    /// Enqueues the work.
    void Replay();

 private:
    std::shared_ptr<Allocator> allocator_;
    std::unique_ptr<RecordedWork> work_;
    WithheldBlocks blocks_;
};

}  // namespace infini_train
