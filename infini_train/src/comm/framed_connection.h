#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "infini_train/src/comm/socket.h"

namespace infini_train::comm {

enum class FrameKind : uint8_t {
    kHello = 1,  // to process 0: who comes
    kWelcome,    // from it: all have come
    kRefused,    // from it, and why
    kHeartbeat,  // both ways; empty
    kText,       // to process 0: one's own text of an exchange; from it: that of each process
    kFailed,     // both ways: why the run ends
    kGoodbye,    // to process 0: one's own work is done; empty
    kAllLeft,    // from it: everybody's is; empty
    kLost,       // from it: the run ends, since a process was lost: which one, and the text of kFailed
    kWait,       // to process 0: the wait of a rank that a failure ended
};

struct Frame {
    FrameKind kind = FrameKind::kHeartbeat;
    std::string body = {};
};

/// Frames over a connection, without waiting. Each end first sends a fixed mark: who does not is a stranger. On the
/// wire a frame is its body's size (4 bytes), its kind (1 byte), its body.
class FramedConnection {
 public:
    enum class State {
        kOpen,
        kEnded,     // the other end closed it, or cannot be reached
        kStranger,  // it sent what is no frame of ours
    };

    FramedConnection(Descriptor socket, size_t max_body_bytes);

    int fd() const { return socket_.fd(); }
    /// Of a connection that has ended Next may still have frames.
    State state() const { return state_; }
    /// Whether the other end has sent our mark.
    bool is_one_of_ours() const { return mark_came_; }
    bool has_output() const { return !output_.empty(); }
    void set_max_body_bytes(size_t max_body_bytes) { max_body_bytes_ = max_body_bytes; }

    /// The bytes of a frame; for several connections they are made once.
    static std::shared_ptr<const std::string> Encode(FrameKind kind, const std::string& body);
    void Queue(std::shared_ptr<const std::string> bytes) { output_.push_back(std::move(bytes)); }
    void Queue(FrameKind kind, const std::string& body) { Queue(Encode(kind, body)); }

    /// Writes as much of what is queued as the socket takes now.
    void Flush();
    /// Reads what has come; false if nothing has.
    bool Receive();
    /// The next whole frame that was received.
    std::optional<Frame> Next();

 private:
    Descriptor socket_;
    size_t max_body_bytes_;
    State state_ = State::kOpen;
    bool mark_came_ = false;
    std::string input_;
    size_t input_begin_ = 0;  // before it: consumed
    std::deque<std::shared_ptr<const std::string>> output_;
    size_t output_begin_ = 0;  // of the first of them
};

}  // namespace infini_train::comm
