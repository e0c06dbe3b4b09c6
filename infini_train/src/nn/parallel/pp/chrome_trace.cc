#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "glog/logging.h"
#include "nlohmann/json.hpp"

#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/nn/parallel/pp/timeline.h"
#include "infini_train/src/nn/parallel/pp/messages.h"

namespace infini_train::nn::parallel {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kProcess = 1;  // 0 is the idle task to Perfetto

std::string_view CategoryOf(ActionKind kind) {
    switch (kind) {
        case ActionKind::kForward:
            return "forward";
        case ActionKind::kBackward:
            return "backward";
        case ActionKind::kBackwardInput:
            return "backward_input";
        case ActionKind::kBackwardWeight:
            return "backward_weight";
        case ActionKind::kReceive:
            break;
    }
    LOG(FATAL) << "a timeline has compute actions only";
}

/// Whole microseconds: with fractions a viewer's rounding lets neighbours overlap, and draws one below the other.
int64_t Microseconds(double ms) {
    return std::llround(ms * 1000.0);
}

Json Metadata(std::string_view what, int thread, const Json& args) {
    return {{"name", what}, {"ph", "M"}, {"pid", kProcess}, {"tid", thread}, {"args", args}};
}

Json Slice(std::string_view name, std::string_view category, int rank, double begin_ms, double end_ms,
           const Json& args) {
    const int64_t begin = Microseconds(begin_ms);
    return {{"name", name},    {"cat", category}, {"ph", "X"},   {"ts", begin}, {"dur", Microseconds(end_ms) - begin},
            {"pid", kProcess}, {"tid", rank},     {"args", args}};
}

void AddEvent(const PipelineShape& shape, int rank, const TimelineEvent& event, Json* trace) {
    const std::string token = ToString(event.action, shape, rank);
    const int64_t wait = Microseconds(event.start_ms) - Microseconds(event.wait_begin_ms);
    if (wait > 0) {
        trace->push_back(Slice("wait", "wait", rank, event.wait_begin_ms, event.start_ms, {{"for", token}}));
    }
    trace->push_back(Slice(token, CategoryOf(event.action.kind), rank, event.start_ms, event.end_ms,
                           {{"stage", shape.StageOf(rank, event.action.chunk)},
                            {"chunk", event.action.chunk},
                            {"microbatch", event.action.microbatch},
                            {"wait_ms", static_cast<double>(wait) / 1000.0}}));
}

/// What of a message is in the timeline.
struct Arrow {
    Message message = {};
    const TimelineEvent* producer = nullptr;
    const TimelineEvent* consumer = nullptr;
};

std::vector<Arrow> ArrowsOf(const PipelineShape& shape, const Timeline& timeline) {
    std::vector<Arrow> arrows(NumIndices(shape));
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        for (const TimelineEvent& event : timeline[static_cast<size_t>(rank)]) {
            if (const std::optional<Message> sent = MessageOutOf(event.action, shape, rank)) {
                arrows[IndexOf(sent->tag, shape)].producer = &event;
            }
            if (const std::optional<Message> received = MessageInto(event.action, shape, rank)) {
                Arrow& arrow = arrows[IndexOf(received->tag, shape)];
                arrow.message = *received;
                arrow.consumer = &event;
            }
        }
    }
    return arrows;
}

void AddArrow(const Arrow& arrow, size_t id, Json* trace) {
    const Edge& edge = arrow.message.edge;
    if (arrow.producer == nullptr || arrow.consumer == nullptr || edge.from == edge.to) {
        return;
    }
    const std::string_view name = edge.direction == comm::Direction::kForward ? "activation" : "gradient";
    // An arrow hangs on the slice that its time lies in. The end of the producer is outside of it, its middle is not.
    const int64_t begin = Microseconds(arrow.producer->start_ms);
    const int64_t middle = begin + (Microseconds(arrow.producer->end_ms) - begin) / 2;
    trace->push_back({{"name", name},
                      {"cat", "message"},
                      {"ph", "s"},
                      {"id", id},
                      {"ts", middle},
                      {"pid", kProcess},
                      {"tid", edge.from}});
    trace->push_back({{"name", name},
                      {"cat", "message"},
                      {"ph", "f"},
                      {"bp", "e"},
                      {"id", id},
                      {"ts", Microseconds(arrow.consumer->start_ms)},
                      {"pid", kProcess},
                      {"tid", edge.to}});
}

}  // namespace

std::string ChromeTrace(const PipelineShape& shape, const Timeline& timeline) {
    CHECK_EQ(timeline.size(), static_cast<size_t>(shape.num_ranks)) << "ranks of the timeline";
    Json trace = Json::array();
    trace.push_back(
        Metadata("process_name", 0, {{"name", StrCat("pipeline, ", shape.num_microbatches, " micro-batches")}}));
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        trace.push_back(Metadata("thread_name", rank, {{"name", StrCat("rank ", rank)}}));
        trace.push_back(Metadata("thread_sort_index", rank, {{"sort_index", rank}}));
        for (const TimelineEvent& event : timeline[static_cast<size_t>(rank)]) {
            AddEvent(shape, rank, event, &trace);
        }
    }
    const std::vector<Arrow> arrows = ArrowsOf(shape, timeline);
    for (size_t id = 0; id < arrows.size(); ++id) {
        AddArrow(arrows[id], id, &trace);
    }
    return Json{{"displayTimeUnit", "ms"}, {"traceEvents", trace}}.dump();
}

}  // namespace infini_train::nn::parallel
