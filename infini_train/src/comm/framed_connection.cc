#include "infini_train/src/comm/framed_connection.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "infini_train/src/comm/wire.h"

namespace infini_train::comm {
namespace {

// Not what any text protocol begins with. It never changes: the version of what follows is in the hello.
constexpr std::string_view kMark("\x01infini\n", 8);
constexpr size_t kHeaderBytes = sizeof(uint32_t) + sizeof(FrameKind);
// One read; and how much one connection may bring before the others have their turn.
constexpr size_t kReadBytes = size_t{64} << 10;
constexpr size_t kTurnBytes = size_t{4} << 20;

}  // namespace

FramedConnection::FramedConnection(Descriptor socket, size_t max_body_bytes)
    : socket_(std::move(socket)), max_body_bytes_(max_body_bytes) {
    Queue(std::make_shared<const std::string>(kMark));
}

std::shared_ptr<const std::string> FramedConnection::Encode(FrameKind kind, const std::string& body) {
    std::string bytes = WireWriter().Number(static_cast<uint32_t>(body.size())).bytes();
    bytes += static_cast<char>(kind);
    bytes += body;
    return std::make_shared<const std::string>(std::move(bytes));
}

void FramedConnection::Flush() {
    while (state_ == State::kOpen && !output_.empty()) {
        const std::string& bytes = *output_.front();
        const ssize_t sent =
            send(socket_.fd(), bytes.data() + output_begin_, bytes.size() - output_begin_, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK) {
                // Its last words may still be unread: Receive finds the end behind them.
                output_.clear();
                output_begin_ = 0;
            }
            return;
        }
        output_begin_ += static_cast<size_t>(sent);
        if (output_begin_ == bytes.size()) {
            output_.pop_front();
            output_begin_ = 0;
        }
    }
}

bool FramedConnection::Receive() {
    size_t num_received = 0;
    std::array<char, kReadBytes> bytes;
    while (state_ == State::kOpen && num_received < kTurnBytes) {
        const ssize_t received = recv(socket_.fd(), bytes.data(), bytes.size(), 0);
        if (received > 0) {
            input_.append(bytes.data(), static_cast<size_t>(received));
            num_received += static_cast<size_t>(received);
        } else if (received == 0 || (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)) {
            state_ = State::kEnded;
        } else if (errno != EINTR) {
            break;
        }
    }
    return num_received > 0;
}

std::optional<Frame> FramedConnection::Next() {
    if (state_ == State::kStranger) {
        return std::nullopt;
    }
    std::string_view rest = std::string_view(input_).substr(input_begin_);
    if (!mark_came_) {
        if (!rest.starts_with(kMark.substr(0, rest.size()))) {
            state_ = State::kStranger;
        }
        if (rest.size() < kMark.size() || state_ == State::kStranger) {
            return std::nullopt;
        }
        mark_came_ = true;
        input_begin_ += kMark.size();
        rest.remove_prefix(kMark.size());
    }
    WireReader reader(rest);
    const std::optional<uint32_t> size = reader.Number();
    if (!size.has_value() || reader.rest().empty()) {
        return std::nullopt;
    }
    const auto kind = static_cast<FrameKind>(reader.rest().front());
    if (*size > max_body_bytes_ || kind < FrameKind::kHello || kind > FrameKind::kWait) {
        state_ = State::kStranger;
        return std::nullopt;
    }
    if (rest.size() < kHeaderBytes + *size) {
        return std::nullopt;
    }
    Frame frame = {.kind = kind, .body = std::string(rest.substr(kHeaderBytes, *size))};
    input_begin_ += kHeaderBytes + *size;
    if (input_begin_ == input_.size() || input_begin_ > kReadBytes) {
        input_.erase(0, input_begin_);
        input_begin_ = 0;
    }
    return frame;
}

}  // namespace infini_train::comm
