#include "infini_train/src/core/cuda/cuda_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/src/core/cuda/cuda_check.h"

namespace infini_train::cuda {
namespace {

constexpr size_t kPinnedBytes = size_t{1} << 20;  // larger copies go through the driver's own

/// A CUDA graph, and the host memory that its copies read each time.
class CudaGraph : public RecordedWork {
 public:
    CudaGraph(cudaGraph_t graph, cudaStream_t stream, std::deque<std::vector<char>> copies)
        : stream_(stream), copies_(std::move(copies)) {
        const cudaError_t error = cudaGraphInstantiate(&executable_, graph, 0);
        INFINI_CUDA_LOG(cudaGraphDestroy(graph));
        INFINI_CUDA_CHECK(error);
    }
    ~CudaGraph() override {
        INFINI_CUDA_LOG(cudaStreamSynchronize(stream_));
        INFINI_CUDA_LOG(cudaGraphExecDestroy(executable_));
    }

    void Enqueue() override { INFINI_CUDA_CHECK(cudaGraphLaunch(executable_, stream_)); }

 private:
    cudaStream_t stream_;
    std::deque<std::vector<char>> copies_;
    cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

void ThrowCudaError(const char* call, cudaError_t error) {
    throw Error({.where = "CUDA",
                 .what = std::string(cudaGetErrorString(error)) + " in " + call,
                 .kind = Error::Kind::kRuntime});
}

void LogCudaError(const char* call, cudaError_t error) {
    // At the end of a process the driver is gone before the last objects are.
    if (error != cudaErrorCudartUnloading) {
        LOG(ERROR) << "CUDA: " << cudaGetErrorString(error) << " in " << call;
    }
}

DeviceGuard::DeviceGuard(int index) {
    INFINI_CUDA_CHECK(cudaGetDevice(&before_));
    INFINI_CUDA_CHECK(cudaSetDevice(index));
}

DeviceGuard::~DeviceGuard() {
    INFINI_CUDA_LOG(cudaSetDevice(before_));
}

EventPool::~EventPool() {
    for (const std::vector<cudaEvent_t>& events : free_) {
        for (cudaEvent_t event : events) {
            INFINI_CUDA_LOG(cudaEventDestroy(event));
        }
    }
}

cudaEvent_t EventPool::Take(bool with_time) {
    {
        const std::lock_guard lock(mutex_);
        std::vector<cudaEvent_t>& free = free_[with_time ? 1 : 0];
        if (!free.empty()) {
            const cudaEvent_t event = free.back();
            free.pop_back();
            return event;
        }
    }
    const DeviceGuard guard(index_);
    cudaEvent_t event = nullptr;
    INFINI_CUDA_CHECK(cudaEventCreateWithFlags(&event, with_time ? cudaEventDefault : cudaEventDisableTiming));
    return event;
}

void EventPool::Return(cudaEvent_t event, bool with_time) {
    const std::lock_guard lock(mutex_);
    free_[with_time ? 1 : 0].push_back(event);
}

CudaEvent::CudaEvent(std::shared_ptr<EventPool> pool, bool with_time)
    : pool_(std::move(pool)), with_time_(with_time), event_(pool_->Take(with_time)) {}

CudaEvent::~CudaEvent() {
    pool_->Return(event_, with_time_);
}

bool CudaEvent::IsDone() const {
    const cudaError_t error = cudaEventQuery(event_);
    if (error == cudaErrorNotReady) {
        return false;
    }
    INFINI_CUDA_CHECK(error);
    return true;
}

double CudaEvent::MsSince(const Event& earlier) const {
    CHECK(with_time_) << "an event without its time";
    float ms = 0.0f;
    INFINI_CUDA_CHECK(cudaEventElapsedTime(&ms, HandleOf(earlier), event_));
    return static_cast<double>(ms);
}

cudaEvent_t HandleOf(const Event& event) {
    const auto* cuda_event = dynamic_cast<const CudaEvent*>(&event);
    CHECK_NOTNULL(cuda_event);
    return cuda_event->get();
}

CudaStream::CudaStream(int index) : index_(index), events_(std::make_shared<EventPool>(index)) {
    const DeviceGuard guard(index_);
    INFINI_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    INFINI_CUDA_CHECK(cudaMallocHost(&pinned_, kPinnedBytes));
    INFINI_CUDA_CHECK(cudaEventCreateWithFlags(&pinned_free_, cudaEventDisableTiming));
}

CudaStream::~CudaStream() {
    INFINI_CUDA_LOG(cudaStreamSynchronize(stream_));
    states_.clear();
    INFINI_CUDA_LOG(cudaEventDestroy(pinned_free_));
    INFINI_CUDA_LOG(cudaFreeHost(pinned_));
    INFINI_CUDA_LOG(cudaStreamDestroy(stream_));
}

std::shared_ptr<const Event> CudaStream::Record(bool with_time) {
    auto event = std::make_shared<CudaEvent>(events_, with_time);
    INFINI_CUDA_CHECK(cudaEventRecord(event->get(), stream_));
    return event;
}

void CudaStream::WaitFor(const Event& event) {
    INFINI_CUDA_CHECK(cudaStreamWaitEvent(stream_, HandleOf(event), 0));
}

void CudaStream::Synchronize() {
    INFINI_CUDA_CHECK(cudaStreamSynchronize(stream_));
}

void CudaStream::BeginRecording() {
    recorded_copies_ = std::make_unique<std::deque<std::vector<char>>>();
    // Relaxed: what the libraries do on the way, as loading a kernel for its first use, is allowed.
    INFINI_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
}

std::unique_ptr<RecordedWork> CudaStream::EndRecording() {
    const std::unique_ptr<std::deque<std::vector<char>>> copies = std::move(recorded_copies_);
    cudaGraph_t graph = nullptr;
    INFINI_CUDA_CHECK(cudaStreamEndCapture(stream_, &graph));
    return std::make_unique<CudaGraph>(graph, stream_, std::move(*copies));
}

void CudaStream::SetZero(void* data, size_t size_bytes) {
    INFINI_CUDA_CHECK(cudaMemsetAsync(data, 0, size_bytes, stream_));
}

void CudaStream::CopyFromHost(const void* source, void* destination, size_t size_bytes) {
    if (recorded_copies_ != nullptr) {
        const char* const bytes = static_cast<const char*>(source);
        const std::vector<char>& copy = recorded_copies_->emplace_back(bytes, bytes + size_bytes);
        INFINI_CUDA_CHECK(cudaMemcpyAsync(destination, copy.data(), size_bytes, cudaMemcpyHostToDevice, stream_));
        return;
    }
    if (size_bytes > kPinnedBytes) {
        INFINI_CUDA_CHECK(cudaMemcpyAsync(destination, source, size_bytes, cudaMemcpyHostToDevice, stream_));
        // The driver may read pageable memory after it has returned.
        INFINI_CUDA_CHECK(cudaStreamSynchronize(stream_));
        return;
    }
    INFINI_CUDA_CHECK(cudaEventSynchronize(pinned_free_));
    std::memcpy(pinned_, source, size_bytes);
    INFINI_CUDA_CHECK(cudaMemcpyAsync(destination, pinned_, size_bytes, cudaMemcpyHostToDevice, stream_));
    INFINI_CUDA_CHECK(cudaEventRecord(pinned_free_, stream_));
}

void CudaStream::Copy(const void* source, void* destination, size_t size_bytes) {
    INFINI_CUDA_CHECK(cudaMemcpyAsync(destination, source, size_bytes, cudaMemcpyDefault, stream_));
}

void CudaStream::CopyToHost(const void* source, void* destination, size_t size_bytes) {
    if (size_bytes > kPinnedBytes) {
        INFINI_CUDA_CHECK(cudaMemcpyAsync(destination, source, size_bytes, cudaMemcpyDeviceToHost, stream_));
        INFINI_CUDA_CHECK(cudaStreamSynchronize(stream_));
        return;
    }
    INFINI_CUDA_CHECK(cudaMemcpyAsync(pinned_, source, size_bytes, cudaMemcpyDeviceToHost, stream_));
    INFINI_CUDA_CHECK(cudaStreamSynchronize(stream_));
    std::memcpy(destination, pinned_, size_bytes);
}

CudaStream& CudaStreamOf(const Device& device) {
    auto* stream = dynamic_cast<CudaStream*>(device.allocator->stream());
    CHECK_NOTNULL(stream);
    return *stream;
}

}  // namespace infini_train::cuda
