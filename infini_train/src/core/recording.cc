#include "infini_train/include/core/recording.h"

#include "glog/logging.h"

namespace infini_train {

Recording::Recording(const Device& device, const std::function<void()>& work) : allocator_(device.allocator) {
    Stream* const stream = StreamOf(device);
    CHECK_NOTNULL(stream);
    stream->BeginRecording();
    try {
        work();
    } catch (...) {
        // What was recorded so far is dropped, and the stream runs again.
        stream->EndRecording();
        throw;
    }
    work_ = stream->EndRecording();
    // Temporaries of the work are among what is free now.
    blocks_ = allocator_->WithholdFreeBlocks();
}

Recording::~Recording() {
    work_ = nullptr;
    allocator_->ReturnWithheld(blocks_);
}

void Recording::Replay() {
    work_->Enqueue();
}

}  // namespace infini_train
