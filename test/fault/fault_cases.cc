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
constexpr double kBrokenS = 10.0;            // where a connection breaks
constexpr double kQuietS = kTimeoutS + 5.0;  // where none does

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

/// Nobody knows the host of the process yet.
bool IsUnknown(const FaultCase& fault) {
    return fault.phase == "start" || (fault.phase == "rendezvous" && fault.rank == 0);
}

double LimitS(const FaultCase& fault) {
    const bool is_quiet = IsOneOf(fault.kind, {"stop", "hang", "return"}) || IsUnknown(fault);
    return is_quiet ? kQuietS : kBrokenS;
}

int ExitCodeOfFaulty(const FaultCase& fault) {
    if (IsOneOf(fault.kind, {"return", "hang"})) {
        return 1;
    }
    if (fault.kind == "exit") {
        return 0;
    }
    if (IsOneOf(fault.kind, {"kill", "stop"})) {
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

/// The process whose line a user looks for: 0, and where that is lost another one.
int TellingProcess(const FaultCase& fault) {
    const bool is_there = IsThrown(fault) || IsOneOf(fault.kind, {"hang", "return"});
    return !is_there && fault.rank / fault.num_threads == 0 ? 1 : 0;
}

/// Before the loss is known somebody waits for the faulty rank in its plan. That is certain where the others have the
/// time to come to it. After its forwards nobody waits for rank 0.
bool ComesToAStandInThePlan(const FaultCase& fault) {
    return fault.kind == "stop" && fault.num_threads == 1 &&
           (IsOneOf(fault.phase, {"between_steps", "quarter_1", "quarter_2"}) ||
            (fault.phase == "quarter_3" && fault.rank > 0));
}

/// What the others have to say, in one line.
std::vector<std::string> WantedParts(const FaultCase& fault, int process) {
    const std::string faulty = StrCat("process ", fault.rank / fault.num_threads);
    const std::string faulty_on_host = StrCat(faulty, " (", comm::HostName(), ")");
    if (IsUnknown(fault)) {
        return {faulty};
    }
    if (IsThrown(fault)) {
        return {StrCat("[rank ", fault.rank, "] "), fault.kind == "throw" ? "thrown on purpose" : "no more memory"};
    }
    if (fault.kind == "return") {
        return {faulty_on_host};
    }
    if (fault.kind == "hang") {
        return process == 0 ? std::vector<std::string>{StrCat("rank ", fault.rank, " of ", faulty_on_host),
                                                       "waited 6 s", "of its plan"}
                            : std::vector<std::string>{"waited 6 s", "of its plan"};
    }
    std::vector<std::string> parts = {faulty_on_host};
    if (process == TellingProcess(fault)) {
        if (!IsOneOf(fault.phase, {"rendezvous", "connect", "commit", "exit"})) {
            parts.emplace_back(" while rank ");
        }
        if (ComesToAStandInThePlan(fault)) {
            parts.emplace_back(" of its plan");
        }
    }
    return parts;
}

/// What the faulty one has to say itself, in one line: empty where it cannot, or nobody catches what is thrown.
std::vector<std::string> OwnParts(const FaultCase& fault) {
    if (fault.phase == "start" && IsThrown(fault)) {
        return {fault.kind == "throw" ? "thrown on purpose" : "no more memory"};
    }
    const bool can_tell = IsThrown(fault) || IsOneOf(fault.kind, {"hang", "return"});
    return can_tell ? WantedParts(fault, fault.rank / fault.num_threads) : std::vector<std::string>{};
}

void ExpectOneLine(const std::vector<std::string>& wanted_parts, const FaultRun::Process& process) {
    const std::vector<std::string> lines = ErrorLines(process.err);
    ASSERT_EQ(lines.size(), 1u) << process.err;
    for (const std::string& part : wanted_parts) {
        EXPECT_NE(lines[0].find(part), std::string::npos) << "'" << lines[0] << "' without '" << part << "'";
    }
}

void ExpectThatTheLastCheckpointIsWhole(const FaultRun& run, bool was_written_meanwhile) {
    const std::string folder = checkpoint::FindCheckpoint(run.save_folder());
    checkpoint::VerifyChecksums(folder, 0, 1);
    EXPECT_GE(checkpoint::ReadTrainingState(folder).step, 1);
    if (was_written_meanwhile) {
        const ProgramResult gone_on = run.GoOn();
        EXPECT_EQ(gone_on.exit_code, 0) << gone_on.err;
    }
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
        const int middle = phase % 2 == 0 ? 1 : 2;
        for (const std::string& kind : kKinds) {
            for (const int rank : {0, middle, 3}) {
                cases.push_back({.phase = kPhases[phase], .kind = kind, .rank = rank});
            }
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
    run.Wait(limit_s + 5.0, /*without_the_faulty_one=*/fault.kind == "stop");
    if (fault.kind == "stop") {
        run.KillFaulty();
    }
    double seconds = 0.0;
    for (size_t process = 0; process < run.processes().size(); ++process) {
        const FaultRun::Process& p = run.processes()[process];
        ASSERT_TRUE(p.has_ended) << "process " << process << " hangs\n" << run.Errors();
        const bool is_faulty = static_cast<int>(process) == options.faulty_process();
        if (!is_faulty || fault.kind != "stop") {
            seconds = std::max(seconds, p.seconds);
            EXPECT_LT(p.seconds, limit_s) << run.Errors();
        }
        EXPECT_EQ(p.exit_code, is_faulty ? ExitCodeOfFaulty(fault) : 1) << run.Errors();
        if (!is_faulty) {
            ExpectOneLine(WantedParts(fault, static_cast<int>(process)), p);
        } else if (const std::vector<std::string> parts = OwnParts(fault); !parts.empty()) {
            ExpectOneLine(parts, p);
        }
    }
    EXPECT_EQ(run.LeftBehind(), "");
    if (HasCheckpoint(fault)) {
        ExpectThatTheLastCheckpointIsWhole(run, IsOneOf(fault.phase, {"save", "commit"}));
    }
    const std::vector<std::string> lines = ErrorLines(run.processes()[static_cast<size_t>(TellingProcess(fault))].err);
    std::printf("| %s | %s | %d | %.1f | %s |\n", fault.phase.c_str(), fault.kind.c_str(), fault.rank, seconds,
                lines.empty() ? "" : lines.back().c_str());
}

}  // namespace infini_train::test
