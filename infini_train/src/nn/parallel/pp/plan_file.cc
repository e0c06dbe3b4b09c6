#include "infini_train/include/nn/parallel/pp/plan_file.h"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "nlohmann/json.hpp"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/file.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::nn::parallel {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr uint64_t kMaxFileBytes = 16 << 20;  // more than a million actions
constexpr int kMaxDepth = 8;                  // ours has 3
constexpr int kMaxStages = 1024;              // more than models have layers
constexpr int kMaxMicrobatches = 1 << 20;     // more than fit the file

[[noreturn]] void Refuse(const std::string& path, const std::string& what, const std::string& got,
                         const std::string& wanted) {
    throw Error({.where = path, .what = what, .got = got, .wanted = wanted});
}

/// The beginning of what a file holds, quoted and in ASCII.
std::string Shown(const std::string& text) {
    constexpr size_t kMaxShown = 80;
    return json(text.substr(0, kMaxShown)).dump(-1, ' ', true, json::error_handler_t::replace);
}

json ParsePlan(const std::string& path) {
    const ReadOnlyFile file(path);
    if (file.size_bytes() > kMaxFileBytes) {
        Refuse(path, "too large for a plan", StrCat(file.size_bytes(), " bytes"), StrCat("at most ", kMaxFileBytes));
    }
    std::string text(file.size_bytes(), '\0');
    file.Read(0, text.data(), text.size());
    if (text.find('\0') != std::string::npos) {  // nlohmann-json takes it for the end of the text
        Refuse(path, "the plan is not JSON", "a NUL", "text");
    }
    std::set<std::string> names;
    const auto check = [&](int depth, json::parse_event_t event, json& value) {
        if (depth > kMaxDepth) {
            Refuse(path, "the plan is nested too deeply", "", StrCat("at most ", kMaxDepth, " levels"));
        }
        if (event == json::parse_event_t::key && depth == 1 && !names.insert(value.get<std::string>()).second) {
            Refuse(path, "the plan has a field twice", Shown(value.get<std::string>()), "");
        }
        return true;
    };
    json plan;
    try {
        plan = json::parse(text, check);
    } catch (const json::exception& exception) {
        Refuse(path, "the plan is not JSON", Shown(exception.what()), "");
    }
    if (!plan.is_object()) {
        Refuse(path, "the plan is not a JSON object", plan.type_name(), "");
    }
    return plan;
}

/// null where the plan has none.
const json& FieldOf(const json& plan, const std::string& name) {
    static const json kNone;
    const auto field = plan.find(name);
    return field == plan.end() ? kNone : *field;
}

int ReadNumber(const std::string& path, const json& plan, const std::string& name, int largest) {
    const json& field = FieldOf(plan, name);
    const uint64_t number = field.is_number_unsigned() ? field.get<uint64_t>() : 0;
    if (number < 1 || number > static_cast<uint64_t>(largest)) {
        Refuse(path, StrCat("the plan's ", name), field.is_number() ? field.dump() : field.type_name(),
               StrCat("a whole number from 1 to ", largest));
    }
    return static_cast<int>(number);
}

/// An action as a file has it.
struct Token {
    ActionKind kind = ActionKind::kForward;
    int stage = 0;
    int microbatch = 0;
};

/// Reads digits, and nothing but digits, of a number below limit.
bool ParseNumber(std::string_view text, int limit, int* number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
    return error == std::errc() && end == text.data() + text.size() && text[0] != '-' && *number < limit;
}

bool ParseToken(std::string_view text, const PipelineShape& shape, Token* token) {
    constexpr std::string_view kLetters = "FDBW";  // in the order of ActionKind
    const size_t kind = text.empty() ? std::string_view::npos : kLetters.find(text[0]);
    const size_t dot = text.find('.');
    if (kind == std::string_view::npos || dot == std::string_view::npos) {
        return false;
    }
    token->kind = static_cast<ActionKind>(kind);
    return ParseNumber(text.substr(1, dot - 1), shape.num_stages(), &token->stage) &&
           ParseNumber(text.substr(dot + 1), shape.num_microbatches, &token->microbatch);
}

std::vector<Token> ReadRank(const std::string& path, const json& list, const PipelineShape& shape, int rank) {
    if (!list.is_string()) {
        Refuse(path, StrCat("the plan's order of rank ", rank), list.type_name(), "a string of actions");
    }
    std::vector<Token> tokens;
    std::istringstream words(list.get_ref<const std::string&>());
    for (std::string word; words >> word;) {
        if (!ParseToken(word, shape, &tokens.emplace_back())) {
            Refuse(path, StrCat("the plan's order of rank ", rank, ", action ", tokens.size()), Shown(word),
                   StrCat("F, D, B or W, a stage below ", shape.num_stages(), ", '.' and a micro-batch below ",
                          shape.num_microbatches));
        }
    }
    return tokens;
}

std::vector<std::vector<Token>> ReadOrder(const std::string& path, const json& plan, const PipelineShape& shape) {
    const json& order = FieldOf(plan, "order");
    if (!order.is_array() || order.size() != static_cast<size_t>(shape.num_ranks)) {
        Refuse(path, "the plan's order", order.is_array() ? StrCat(order.size(), " lists") : order.type_name(),
               StrCat("a list of ", shape.num_ranks, " lists, as P says"));
    }
    std::vector<std::vector<Token>> ranks;
    uint64_t num_actions = 0;
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        ranks.push_back(ReadRank(path, order[static_cast<size_t>(rank)], shape, rank));
        num_actions += ranks.back().size();
    }
    // From here on memory may follow P, V and M: the file is not shorter than what they ask for.
    const uint64_t num_wanted =
        2 * static_cast<uint64_t>(shape.num_stages()) * static_cast<uint64_t>(shape.num_microbatches);
    if (num_actions < num_wanted) {
        Refuse(path, "the plan has too few actions for its P, V and M", StrCat(num_actions),
               StrCat("at least ", num_wanted));
    }
    return ranks;
}

void CheckUnique(const std::string& path, const std::vector<std::vector<Token>>& ranks, const PipelineShape& shape) {
    const size_t num_stages = static_cast<size_t>(shape.num_stages());
    const size_t num_microbatches = static_cast<size_t>(shape.num_microbatches);
    std::vector<bool> is_there(4 * num_stages * num_microbatches, false);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
        for (size_t i = 0; i < ranks[rank].size(); ++i) {
            const Token& token = ranks[rank][i];
            const size_t row = static_cast<size_t>(token.kind) * num_stages + static_cast<size_t>(token.stage);
            const size_t place = row * num_microbatches + static_cast<size_t>(token.microbatch);
            if (is_there[place]) {
                Refuse(path, StrCat("the plan's order of rank ", rank, ", action ", i + 1, ": comes a second time"), "",
                       "");
            }
            is_there[place] = true;
        }
    }
}

/// Who holds a stage: empty for a loop.
std::vector<int> FindRanks(const std::string& path, const std::vector<std::vector<Token>>& ranks,
                           const PipelineShape& shape) {
    std::vector<int> rank_of_stage(static_cast<size_t>(shape.num_stages()), -1);
    std::vector<int> num_held(ranks.size(), 0);
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        for (const Token& token : ranks[static_cast<size_t>(rank)]) {
            int& holder = rank_of_stage[static_cast<size_t>(token.stage)];
            if (holder >= 0 && holder != rank) {
                Refuse(path, StrCat("stage ", token.stage, " of the plan is on two ranks"),
                       StrCat(holder, " and ", rank), "");
            }
            num_held[static_cast<size_t>(rank)] += holder < 0 ? 1 : 0;
            holder = rank;
        }
    }
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        if (num_held[static_cast<size_t>(rank)] != shape.num_chunks) {
            Refuse(path, StrCat("rank ", rank, " of the plan holds another number of stages than V says"),
                   StrCat(num_held[static_cast<size_t>(rank)]), StrCat(shape.num_chunks));
        }
    }
    bool is_loop = true;
    for (int stage = 0; stage < shape.num_stages(); ++stage) {
        is_loop = is_loop && rank_of_stage[static_cast<size_t>(stage)] == stage % shape.num_ranks;
    }
    return is_loop ? std::vector<int>() : rank_of_stage;
}

/// Whole numbers without a point, as the costs are that a plan is drawn with.
ordered_json NumberJson(double number) {
    return number == std::floor(number) ? ordered_json(static_cast<int64_t>(number)) : ordered_json(number);
}

double RoundTo6(double number) {
    return std::round(number * 1e6) / 1e6;
}

}  // namespace

std::string PlanJson(const PipelineShape& shape, const std::vector<ActionList>& plans,
                     const std::vector<int64_t>& predicted_bytes) {
    const Simulation simulation = Simulate(shape, plans, {});
    ordered_json order = ordered_json::array();
    ordered_json start = ordered_json::array();
    ordered_json peak_stage = ordered_json::array();
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        std::string tokens;
        ordered_json& starts = start.emplace_back(ordered_json::array());
        for (const SimulatedAction& each : simulation.ranks[static_cast<size_t>(rank)]) {
            tokens += (tokens.empty() ? "" : " ") + ToString(each.action, shape, rank);
            starts.push_back(NumberJson(each.start));
        }
        order.push_back(tokens);
        peak_stage.push_back(static_cast<double>(simulation.peak_chunks[static_cast<size_t>(rank)]) / shape.num_chunks);
    }
    ordered_json plan = {{"P", shape.num_ranks},
                         {"M", shape.num_microbatches},
                         {"V", shape.num_chunks},
                         {"makespan", NumberJson(simulation.makespan)},
                         {"bubble_makespan_f", RoundTo6(simulation.bubble_makespan)},
                         {"peak_stage", peak_stage},
                         {"recv_slots_max", simulation.recv_slots_max},
                         {"order", order},
                         {"start", start}};
    if (!predicted_bytes.empty()) {
        plan["predicted_bytes"] = predicted_bytes;
    }
    return plan.dump();
}

PlanFile ReadPlanFile(const std::string& path) {
    const json plan = ParsePlan(path);
    PlanFile file;
    PipelineShape& shape = file.shape;
    shape.num_ranks = ReadNumber(path, plan, "P", kMaxStages);
    shape.num_chunks = ReadNumber(path, plan, "V", kMaxStages / shape.num_ranks);
    shape.num_microbatches = ReadNumber(path, plan, "M", kMaxMicrobatches);
    const std::vector<std::vector<Token>> ranks = ReadOrder(path, plan, shape);
    shape.rank_of_stage = FindRanks(path, ranks, shape);
    CheckUnique(path, ranks, shape);
    for (const std::vector<Token>& tokens : ranks) {
        ActionList& actions = file.plans.emplace_back();
        for (const Token& token : tokens) {
            const int chunk = shape.ChunkOf(token.stage);
            actions.push_back({.kind = token.kind, .chunk = chunk, .microbatch = token.microbatch});
        }
    }
    return file;
}

}  // namespace infini_train::nn::parallel
