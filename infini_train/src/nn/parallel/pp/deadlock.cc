#include <cstddef>
#include <deque>
#include <map>
#include <tuple>

#include "infini_train/include/nn/parallel/pp/checker.h"
#include "infini_train/src/nn/parallel/pp/messages.h"

namespace infini_train::nn::parallel {
namespace {

enum class Role { kCompute, kSend, kReceive };

/// An entry of a stream. A send or receive is one end of its message.
struct Operation {
    Role role = Role::kCompute;
    Action action = {};
    int rank = 0;
    std::optional<Message> message = std::nullopt;  // that is sent or received, or that an action waits for
};

/// Tells streams apart: rank, and what the map distinguishes of peer, direction and role.
using StreamKey = std::tuple<int, int, int, int>;

StreamKey KeyOf(const Operation& operation, StreamMap streams) {
    const int role = static_cast<int>(operation.role);
    const int any = -1;
    if (streams == StreamMap::kOne || operation.role == Role::kCompute) {
        return {operation.rank, any, any, streams == StreamMap::kOne ? any : role};
    }
    const Edge& edge = operation.message->edge;
    const int direction = static_cast<int>(edge.direction);
    switch (streams) {
        case StreamMap::kSendReceive:
            return {operation.rank, any, any, role};
        case StreamMap::kPerDirection:
            return {operation.rank, any, direction, any};
        case StreamMap::kPerEdge:
            return {operation.rank, edge.from == operation.rank ? edge.to : edge.from, direction, role};
        default:
            return {operation.rank, any, any, any};
    }
}

class Streams {
 public:
    Streams(const PipelineShape& shape, const std::vector<ActionList>& plans, StreamMap streams)
        : shape_(shape), is_made_(NumIndices(shape), false), has_come_(NumIndices(shape), false) {
        for (int rank = 0; rank < shape.num_ranks; ++rank) {
            for (const Action& action : plans[static_cast<size_t>(rank)]) {
                const std::optional<Message> into = MessageInto(action, shape, rank);
                const std::optional<Message> out = MessageOutOf(action, shape, rank);
                const bool is_receive = action.kind == ActionKind::kReceive;
                if (!is_receive || into->edge.from != into->edge.to) {
                    Add({is_receive ? Role::kReceive : Role::kCompute, action, rank, into}, streams);
                }
                if (out && out->edge.from != out->edge.to) {
                    Add({Role::kSend, action, rank, out}, streams);
                }
            }
        }
    }

    /// Whether all operations run.
    bool Drain() {
        bool has_moved = true;
        while (has_moved) {
            has_moved = false;
            for (auto& [key, stream] : streams_) {
                while (!stream.empty() && RunHead(&stream)) {
                    has_moved = true;
                }
            }
        }
        for (const auto& [key, stream] : streams_) {
            if (!stream.empty()) {
                return false;
            }
        }
        return true;
    }

 private:
    using Stream = std::deque<Operation>;

    void Add(const Operation& operation, StreamMap streams) {
        Stream& stream = streams_[KeyOf(operation, streams)];
        stream.push_back(operation);
        if (operation.role == Role::kReceive) {
            receives_[IndexOf(operation.message->tag, shape_)] = &stream;
        }
    }

    bool RunHead(Stream* stream) {
        const Operation head = stream->front();
        if (head.role == Role::kCompute) {
            if (head.message && !has_come_[IndexOf(head.message->tag, shape_)]) {
                return false;
            }
            stream->pop_front();
            if (const std::optional<Message> out = MessageOutOf(head.action, shape_, head.rank)) {
                is_made_[IndexOf(out->tag, shape_)] = true;
                has_come_[IndexOf(out->tag, shape_)] = out->edge.from == out->edge.to;
            }
            return true;
        }
        if (head.role == Role::kReceive) {
            return false;  // the send moves both
        }
        const size_t index = IndexOf(head.message->tag, shape_);
        Stream* other = receives_[index];
        const bool is_met = other != nullptr && !other->empty() && other->front().role == Role::kReceive &&
                            other->front().message->tag == head.message->tag;
        if (!is_made_[index] || !is_met) {
            return false;
        }
        stream->pop_front();
        other->pop_front();
        has_come_[index] = true;
        return true;
    }

    const PipelineShape& shape_;
    std::map<StreamKey, Stream> streams_;
    std::map<size_t, Stream*> receives_;  // by IndexOf: the stream that receives it
    std::vector<bool> is_made_;           // by IndexOf: its producer has ended
    std::vector<bool> has_come_;
};

}  // namespace

bool Deadlocks(const PipelineShape& shape, const std::vector<ActionList>& plans, StreamMap streams) {
    return !Streams(shape, plans, streams).Drain();
}

}  // namespace infini_train::nn::parallel
