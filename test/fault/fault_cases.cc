#include "test/fault/fault_cases.h"

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <optional>
#include <set>
#include <sstream>

#include "gtest/gtest.h"

#include "infini_train/include/checkpoint/checkpoint_reader.h"
#include "infini_train/include/checkpoint/training_state.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/socket.h"
#include "test/fault/fault_run.h"

namespace infini_train::test {
namespace {

constexpr double kTimeoutS = 6.0;
constexpr double kBrokenS = 10.0;             // where a connection breaks
constexpr double kSilentS = kTimeoutS + 5.0;  // where none does

const std::vector<std::string> kPhases = {
    "start",     "rendezvous", "connect",    "build",         "load", "quarter_1", "quarter_2", "quarter_3",
    "quarter_4", "evaluation", "generation", "between_steps", "save", "commit",    "last_step", "exit"};
const std::vector<std::string> kKinds = {"kill", "stop", "throw", "exit", "memory"};

bool IsOneOf(const std::string& word, const std::set<std::string>& words) {
    return words.contains(word);
}

/// The fault comes from a thread, or a destructor, whose exceptions nobody catches: they end the process.
bool ThrowsWhereNobodyCatches(const FaultCase& fault) {
    return IsOneOf(fault.phase, {"rendezvous", "connect", "commit", "exit"});
}

bool HasCheckpoint(const FaultCase& fault) {
    return !IsOneOf(fault.phase, {"start", "rendezvous", "connect", "build", "load", "any"});
}

bool IsThrown(const FaultCase& fault) {
    return IsOneOf(fault.kind, {"throw", "memory"}) && !ThrowsWhereNobodyCatches(fault);
}

double LimitS(const FaultCase& fault) {
    const bool is_silent = IsOneOf(fault.kind, {"stop", "hang", "return"}) || fault.phase == "start";
    return is_silent ? kSilentS : kBrokenS;
}

int ExitCodeOfFaulty(const FaultCase& fault) {
    if (fault.kind == "return") {
        return 1;
    }
    if (fault.kind == "exit") {
        return 0;
    }
    if (IsOneOf(fault.kind, {"kill", "stop", "hang"})) {
        return 128 + SIGKILL;
    }
    return ThrowsWhereNobodyCatches(fault) ? 128 + SIGABRT : 1;
}

/// What is not a line of the log.
std::vector<std::string> ErrorLines(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
        const bool is_log = line.size() > 1 && (line[0] == 'W' || line[0] == 'I') && std::isdigit(line[1]);
        if (!is_log) {
            lines.push_back(line);
        }
    }
    return lines;
}

/// What every process that is left has to say, in one line.
std::vector<std::string> WantedParts(const FaultCase& fault) {
    const std::string process = StrCat("process ", fault.rank / fault.num_threads);
    if (fault.phase == "start") {
        // Nobody knows its host yet.
        return {process};
    }
    if (IsThrown(fault)) {
        return {StrCat("[rank ", fault.rank, "] "), fault.kind == "throw" ? "thrown on purpose" : "memory"};
    }
    if (IsOneOf(fault.kind, {"hang", "return"})) {
        return {StrCat("rank ", fault.rank)};
    }
    return {StrCat(process, " (", comm::HostName(), ")")};
}

void ExpectOneLine(const FaultCase& fault, const FaultRun::Process& process) {
    const std::vector<std::string> lines = ErrorLines(process.err);
    ASSERT_EQ(lines.size(), 1u) << process.err;
    for (const std::string& part : WantedParts(fault)) {
        EXPECT_NE(lines[0].find(part), std::string::npos) << "'" << lines[0] << "' without '" << part << "'";
    }
}

void ExpectThatTheLastCheckpointIsWhole(const std::string& run) {
    const std::string folder = checkpoint::FindCheckpoint(run);
    checkpoint::VerifyChecksums(folder, 0, 1);
    EXPECT_GE(checkpoint::ReadTrainingState(folder).step, 1);
}

}  // namespace

std::string NameOf(const FaultCase& fault) {
    return StrCat(fault.phase, "_", fault.kind, "_", fault.rank, fault.num_threads == 1 ? "" : "_2x2");
}

void PrintTo(const FaultCase& fault, std::ostream* out) {
    *out << NameOf(fault);
}

std::vector<FaultCase> AllFaultCases() {
    std::vector<FaultCase> cases;
    for (size_t phase = 0; phase < kPhases.size(); ++phase) {
        for (size_t kind = 0; kind < kKinds.size(); ++kind) {
            const int middle = phase % 2 == 0 ? 1 : 2;
            const std::vector<int> ranks = {0, middle, 3};
            cases.push_back({.phase = kPhases[phase], .kind = kKinds[kind], .rank = ranks[(phase + kind) % 3]});
        }
    }
    for (const int rank : {0, 1, 3}) {
        cases.push_back({.phase = "quarter_2", .kind = "hang", .rank = rank});
        cases.push_back({.phase = "any", .kind = "return", .rank = rank});
    }
    for (const std::string& kind : kKinds) {
        cases.push_back({.phase = "quarter_3", .kind = kind, .rank = 1, .num_threads = 2});
        cases.push_back({.phase = "evaluation", .kind = kind, .rank = 2, .num_threads = 2});
    }
    return cases;
}

void ExpectThatAllEnd(const FaultCase& fault) {
    std::optional<WholeRun> before;
    FaultRunOptions options = {.num_processes = 4 / fault.num_threads,
                               .num_threads = fault.num_threads,
                               .phase = fault.phase,
                               .kind = fault.kind,
                               .rank = fault.rank,
                               .timeout_s = kTimeoutS,
                               .words = {"--on_save_error", "stop"}};
    if (fault.phase == "load") {
        options.load = before.emplace().checkpoint();
    }
    FaultRun run(options);
    ASSERT_TRUE(run.has_happened()) << run.Errors();
    const double limit_s = LimitS(fault);
    run.Wait(limit_s + 5.0, /*without_the_faulty_one=*/fault.kind == "stop" || fault.kind == "hang");
    run.KillFaulty();
    double seconds = 0.0;
    for (size_t process = 0; process < run.processes().size(); ++process) {
        const FaultRun::Process& p = run.processes()[process];
        ASSERT_TRUE(p.has_ended) << "process " << process << " hangs\n" << run.Errors();
        if (static_cast<int>(process) == options.faulty_process()) {
            EXPECT_EQ(p.exit_code, ExitCodeOfFaulty(fault)) << run.Errors();
            continue;
        }
        seconds = std::max(seconds, p.seconds);
        EXPECT_LT(p.seconds, limit_s) << run.Errors();
        EXPECT_EQ(p.exit_code, 1) << run.Errors();
        ExpectOneLine(fault, p);
    }
    EXPECT_EQ(run.LeftBehind(), "");
    if (HasCheckpoint(fault)) {
        ExpectThatTheLastCheckpointIsWhole(run.save_folder());
    }
    const size_t told = options.faulty_process() == 0 ? 1 : 0;
    const std::vector<std::string> lines = ErrorLines(run.processes()[told].err);
    std::printf("| %s | %s | %d | %.1f | %s |\n", fault.phase.c_str(), fault.kind.c_str(), fault.rank, seconds,
                lines.empty() ? "" : lines.back().c_str());
}

}  // namespace infini_train::test
