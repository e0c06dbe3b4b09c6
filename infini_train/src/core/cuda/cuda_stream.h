#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <typeindex>
#include <vector>

#include "cuda_runtime.h"

#include "infini_train/include/core/device.h"
#include "infini_train/include/core/stream.h"

namespace infini_train::cuda {

/// Makes a GPU the calling thread's for the length of a scope.
class DeviceGuard {
 public:
    explicit DeviceGuard(int index);
    ~DeviceGuard();
    DeviceGuard(const DeviceGuard&) = delete;
    DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
    int before_ = 0;
};

/// Events of one GPU that are used again: making one costs more than recording one. Thread-safe.
class EventPool {
 public:
    explicit EventPool(int index) : index_(index) {}
    ~EventPool();
    EventPool(const EventPool&) = delete;
    EventPool& operator=(const EventPool&) = delete;

    cudaEvent_t Take(bool with_time);
    void Return(cudaEvent_t event, bool with_time);

 private:
    int index_;
    std::mutex mutex_;
    std::vector<cudaEvent_t> free_[2];  // without and with time
};

class CudaEvent : public Event {
 public:
    CudaEvent(std::shared_ptr<EventPool> pool, bool with_time);
    ~CudaEvent() override;

    bool IsDone() const override;
    double MsSince(const Event& earlier) const override;

    cudaEvent_t get() const { return event_; }

 private:
    std::shared_ptr<EventPool> pool_;
    bool with_time_;
    cudaEvent_t event_;
};

/// The CUDA handle of an event of a CUDA stream.
cudaEvent_t HandleOf(const Event& event);

/// A CUDA stream on a GPU, and what goes with it from call to call. A rank computes on one and its communication has
/// others.
class CudaStream : public Stream {
 public:
    explicit CudaStream(int index);
    ~CudaStream() override;

    int index() const { return index_; }
    cudaStream_t get() const { return stream_; }

    std::shared_ptr<const Event> Record(bool with_time = false) override;
    void WaitFor(const Event& event) override;
    void Synchronize() override;
    void BeginRecording() override;
    std::unique_ptr<RecordedWork> EndRecording() override;
    void SetZero(void* data, size_t size_bytes) override;
    void CopyFromHost(const void* source, void* destination, size_t size_bytes) override;
    void Copy(const void* source, void* destination, size_t size_bytes) override;
    void CopyToHost(const void* source, void* destination, size_t size_bytes) override;

    /// The State of this stream, made by State(int gpu_index) when it is first asked for: library handles, workspaces,
    /// plans. Used by the rank's thread alone.
    template <typename State>
    State& Get();

 private:
    int index_;
    cudaStream_t stream_ = nullptr;
    std::shared_ptr<EventPool> events_;
    void* pinned_ = nullptr;             // host memory that the GPU reads and writes by itself
    cudaEvent_t pinned_free_ = nullptr;  // after the last copy from it
    std::unique_ptr<std::deque<std::vector<char>>>
        recorded_copies_;  // what a recording copies from the host; null: none
    std::map<std::type_index, std::shared_ptr<void>> states_;
};

template <typename State>
State& CudaStream::Get() {
    std::shared_ptr<void>& state = states_[std::type_index(typeid(State))];
    if (state == nullptr) {
        state = std::make_shared<State>(index_);
    }
    return *static_cast<State*>(state.get());
}

/// The compute stream of a CUDA device.
CudaStream& CudaStreamOf(const Device& device);
/// Its handle, for launches.
inline cudaStream_t LaunchStream(const Device& device) {
    return CudaStreamOf(device).get();
}

}  // namespace infini_train::cuda
