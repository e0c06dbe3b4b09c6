#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace infini_train {

/// A point in the order of a stream's work. Threads may use it at the same time.
class Event {
 public:
    Event() = default;
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    virtual ~Event() = default;

    /// True once all work before it is done.
    virtual bool IsDone() const = 0;
    /// From an earlier event of the same device to this one, both recorded with their times and done.
    virtual double MsSince(const Event& earlier) const = 0;
};
using EventList = std::vector<std::shared_ptr<const Event>>;

/// Operations that a stream recorded.
class RecordedWork {
 public:
    RecordedWork() = default;
    RecordedWork(const RecordedWork&) = delete;
    RecordedWork& operator=(const RecordedWork&) = delete;
    virtual ~RecordedWork() = default;

    /// On the stream that recorded them.
    virtual void Enqueue() = 0;
};

/// The order of one rank's work on its device: what is enqueued begins when all that was enqueued before it is done,
/// and the host goes on at once. Devices that compute at once, on the calling thread, have none.
class Stream {
 public:
    Stream() = default;
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    virtual ~Stream() = default;

    /// An event after all work enqueued so far. Any thread may ask for it. with_time: for MsSince.
    virtual std::shared_ptr<const Event> Record(bool with_time = false) = 0;
    /// Work enqueued from now on begins after the event, which may be of another stream.
    virtual void WaitFor(const Event& event) = 0;
    /// Returns when all work is done.
    virtual void Synchronize() = 0;

    /// From now until EndRecording what is enqueued is recorded and not run. See core/recording.h.
    virtual void BeginRecording() = 0;
    virtual std::unique_ptr<RecordedWork> EndRecording() = 0;

    /// Enqueues memory operations. Host memory may be changed again on return.
    virtual void SetZero(void* data, size_t size_bytes) = 0;
    virtual void CopyFromHost(const void* source, void* destination, size_t size_bytes) = 0;
    /// Between memory of devices of one type, this stream's or another's.
    virtual void Copy(const void* source, void* destination, size_t size_bytes) = 0;
    /// Waits for the stream's work and copies.
    virtual void CopyToHost(const void* source, void* destination, size_t size_bytes) = 0;
};

}  // namespace infini_train
