#include "infini_train/include/comm/process_place.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "infini_train/include/common/env.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::comm {
namespace {

constexpr int kMaxProcesses = 1 << 20;  // more is a slip of the keyboard
constexpr int kMaxPort = 65535;

std::optional<int64_t> ParseNumber(std::string_view text) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) {
        return std::nullopt;
    }
    return number;
}

/// The number of a variable, first <= number <= last; nothing when it is not set.
std::optional<int> FindNumber(const std::string& name, int first, int last) {
    const std::optional<std::string> value = ReadEnv(name);
    if (!value.has_value()) {
        return std::nullopt;
    }
    const std::optional<int64_t> number = ParseNumber(*value);
    if (!number.has_value() || *number < first || *number > last) {
        throw Error({.where = name,
                     .what = "the environment variable is out of range",
                     .got = *value,
                     .wanted = StrCat("a number from ", first, " to ", last)});
    }
    return static_cast<int>(*number);
}

Error Missing(const std::string& name, const std::string& because) {
    return Error({.where = name, .what = "the environment variable is not set; it is needed " + because});
}

int NeedNumber(const std::string& name, int first, int last, const std::string& because) {
    const std::optional<int> number = FindNumber(name, first, last);
    if (!number.has_value()) {
        throw Missing(name, because);
    }
    return *number;
}

bool IsSet(const std::string& name) {
    return ReadEnv(name).has_value();
}

/// A port that follows from the job's id (FNV-1a). Below the ports that Linux gives to outgoing connections (32768 on),
/// so that none of those holds it.
int PortOfJob(std::string_view job_id) {
    constexpr uint64_t kFirst = 12000;
    constexpr uint64_t kNum = 20000;
    uint64_t hash = 14695981039346656037ULL;
    for (const char c : job_id) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    }
    return static_cast<int>(kFirst + hash % kNum);
}

// --- torchrun

bool IsCompleteTorchrun() {
    return IsSet("RANK") && IsSet("WORLD_SIZE") &&
           (FindNumber("WORLD_SIZE", 1, kMaxProcesses) == 1 ||
            (IsSet("LOCAL_RANK") && IsSet("MASTER_ADDR") && IsSet("MASTER_PORT")));
}

bool IsAnyOfTorchrun() {
    return IsSet("RANK") || IsSet("WORLD_SIZE") || IsSet("LOCAL_RANK");
}

ProcessPlace ReadTorchrun() {
    ProcessPlace place = {.launcher = "torchrun"};
    const std::string because = "beside RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT";
    place.num_processes = NeedNumber("WORLD_SIZE", 1, kMaxProcesses, because);
    place.index = NeedNumber("RANK", 0, place.num_processes - 1, because);
    place.job_id = ReadEnv("TORCHELASTIC_RUN_ID").value_or("");
    if (place.num_processes == 1) {
        return place;
    }
    place.num_local = FindNumber("LOCAL_WORLD_SIZE", 1, place.num_processes).value_or(place.num_processes);
    place.local_index = NeedNumber("LOCAL_RANK", 0, place.num_local - 1, because);
    place.master_port = NeedNumber("MASTER_PORT", 1, kMaxPort, because);
    if (!IsSet("MASTER_ADDR")) {
        throw Missing("MASTER_ADDR", because);
    }
    place.master_address = *ReadEnv("MASTER_ADDR");
    if (ReadEnv("TORCHELASTIC_USE_AGENT_STORE") == "True") {
        // torchrun itself listens at MASTER_PORT then.
        place.master_port += place.master_port < kMaxPort ? 1 : -1;
    }
    return place;
}

// --- Open MPI

ProcessPlace ReadOpenMpi() {
    ProcessPlace place = {.launcher = "Open MPI"};
    const std::string because = "beside the other OMPI_COMM_WORLD_ variables";
    place.num_processes = NeedNumber("OMPI_COMM_WORLD_SIZE", 1, kMaxProcesses, because);
    place.index = NeedNumber("OMPI_COMM_WORLD_RANK", 0, place.num_processes - 1, because);
    place.num_local = NeedNumber("OMPI_COMM_WORLD_LOCAL_SIZE", 1, place.num_processes, because);
    place.local_index = NeedNumber("OMPI_COMM_WORLD_LOCAL_RANK", 0, place.num_local - 1, because);
    place.job_id = ReadEnv("PMIX_NAMESPACE").value_or(ReadEnv("OMPI_MCA_ess_base_jobid").value_or(""));
    if (place.num_processes == 1) {
        return place;
    }
    if (!IsSet("MASTER_ADDR") && place.num_local < place.num_processes) {
        throw Missing("MASTER_ADDR", "with Open MPI on several hosts: mpirun -x MASTER_ADDR=<host of process 0> ...");
    }
    place.master_address = ReadEnv("MASTER_ADDR").value_or("127.0.0.1");
    if (!IsSet("MASTER_PORT") && place.job_id.empty()) {
        throw Missing("MASTER_PORT", "where Open MPI sets neither PMIX_NAMESPACE nor OMPI_MCA_ess_base_jobid");
    }
    place.master_port = FindNumber("MASTER_PORT", 1, kMaxPort).value_or(PortOfJob(place.job_id));
    return place;
}

// --- Slurm

/// The first of "node[03-05,9],other": node03. Several brackets in a name are several dimensions.
std::string FirstHost(const std::string& variable, const std::string& list) {
    std::string host;
    for (size_t i = 0; i < list.size() && list[i] != ',';) {
        if (list[i] != '[') {
            host += list[i++];
            continue;
        }
        const size_t end = list.find_first_of("-,]", i);
        const size_t close = list.find(']', i);
        if (close == std::string::npos || end == i + 1) {
            throw Error({.where = variable, .what = "is no list of hosts", .got = list, .wanted = "node[03-05,9]"});
        }
        host += list.substr(i + 1, end - i - 1);
        i = close + 1;
    }
    if (host.empty()) {
        throw Error({.where = variable, .what = "names no host", .got = list, .wanted = "node[03-05,9]"});
    }
    return host;
}

/// "2(x3),1": two on each of the first three nodes, one on the fourth. Nothing for a node that is not in it.
std::optional<int> TasksOfNode(std::string_view list, int node) {
    while (!list.empty()) {
        const std::string_view item = list.substr(0, list.find(','));
        list.remove_prefix(std::min(list.size(), item.size() + 1));
        const size_t open = item.find("(x");
        std::optional<int64_t> num_nodes = 1;
        if (open != std::string_view::npos && item.ends_with(')')) {
            num_nodes = ParseNumber(item.substr(open + 2, item.size() - open - 3));
        }
        const std::optional<int64_t> num_tasks = ParseNumber(item.substr(0, open));
        if (!num_nodes.has_value() || *num_nodes < 1 || !num_tasks.has_value() || *num_tasks > kMaxProcesses) {
            return std::nullopt;
        }
        if (node < *num_nodes) {
            return static_cast<int>(*num_tasks);
        }
        node -= static_cast<int>(*num_nodes);
    }
    return std::nullopt;
}

/// Of the first variable that is set its name; the first name if none is.
std::string FirstSet(std::initializer_list<const char*> names) {
    const auto* found = std::find_if(names.begin(), names.end(), [](const char* name) { return IsSet(name); });
    return found == names.end() ? *names.begin() : *found;
}

int NumLocalOfSlurm(int num_processes) {
    const std::string variable = FirstSet({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
    if (IsSet(variable)) {
        const std::optional<int> node = FindNumber("SLURM_NODEID", 0, kMaxProcesses);
        const std::optional<int> num_tasks = TasksOfNode(*ReadEnv(variable), node.value_or(0));
        if (!num_tasks.has_value() || *num_tasks < 1 || *num_tasks > num_processes) {
            throw Error({.where = variable,
                         .what = StrCat("does not say how many of ", num_processes, " tasks run on node ",
                                        node.value_or(0), " of the step"),
                         .got = *ReadEnv(variable),
                         .wanted = "2(x3),1"});
        }
        return *num_tasks;
    }
    // A limit, not a count: a step may have fewer.
    const std::optional<int> limit = FindNumber("SLURM_NTASKS_PER_NODE", 1, kMaxProcesses);
    return std::min(limit.value_or(num_processes), num_processes);
}

std::string NumTasksVariable() {
    // That of the step: an allocation may be for more tasks than this srun starts.
    return FirstSet({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
}

/// Whether srun started this process, with others.
bool IsSlurmStep() {
    // The step ids of shells (a batch script, an interactive allocation) are the last of 32 bits.
    constexpr int64_t kFirstSpecialStep = 0xfffffff0;
    const std::optional<std::string> step = ReadEnv("SLURM_STEP_ID");
    if (!IsSet("SLURM_PROCID") || !step.has_value() || ParseNumber(*step).value_or(0) >= kFirstSpecialStep) {
        return false;
    }
    return FindNumber(NumTasksVariable(), 1, kMaxProcesses) != 1;
}

ProcessPlace ReadSlurm() {
    ProcessPlace place = {.launcher = "Slurm"};
    const std::string because = "in a step of Slurm";
    place.num_processes = NeedNumber(NumTasksVariable(), 1, kMaxProcesses, because);
    place.index = NeedNumber("SLURM_PROCID", 0, place.num_processes - 1, because);
    place.num_local = NumLocalOfSlurm(place.num_processes);
    place.local_index = NeedNumber("SLURM_LOCALID", 0, place.num_local - 1, because);
    if (IsSet("MASTER_ADDR")) {
        place.master_address = *ReadEnv("MASTER_ADDR");
    } else {
        const std::string variable = FirstSet({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
        if (!IsSet(variable)) {
            throw Missing(variable, "to find process 0, or MASTER_ADDR");
        }
        place.master_address = FirstHost(variable, *ReadEnv(variable));
    }
    if (!IsSet("SLURM_JOB_ID") && !IsSet("MASTER_PORT")) {
        throw Missing("SLURM_JOB_ID", "for the port of process 0, or MASTER_PORT");
    }
    place.job_id = StrCat(ReadEnv("SLURM_JOB_ID").value_or(""), ".", *ReadEnv("SLURM_STEP_ID"));
    place.master_port = FindNumber("MASTER_PORT", 1, kMaxPort).value_or(PortOfJob(place.job_id));
    return place;
}

/// A variable of torchrun's that is set without the others must say what the launcher says.
void CheckAgrees(const std::string& name, int value, const ProcessPlace& place) {
    const std::optional<int> found = FindNumber(name, 0, std::numeric_limits<int>::max());
    if (found.has_value() && *found != value) {
        throw Error({.where = name,
                     .what = "the environment variable says something else than " + place.launcher,
                     .got = StrCat(*found),
                     .wanted = StrCat(value, ", or not set")});
    }
}

ProcessPlace ReadPlaceOfLauncher() {
    if (IsCompleteTorchrun()) {
        return ReadTorchrun();
    }
    // mpirun starts its helpers with srun inside an allocation, and they hand on the helper's variables.
    const bool is_open_mpi = IsSet("OMPI_COMM_WORLD_RANK") || IsSet("OMPI_COMM_WORLD_SIZE");
    if (is_open_mpi || IsSlurmStep()) {
        const ProcessPlace place = is_open_mpi ? ReadOpenMpi() : ReadSlurm();
        CheckAgrees("RANK", place.index, place);
        CheckAgrees("WORLD_SIZE", place.num_processes, place);
        CheckAgrees("LOCAL_RANK", place.local_index, place);
        return place;
    }
    // Names what is missing.
    return IsAnyOfTorchrun() ? ReadTorchrun() : ProcessPlace();
}

}  // namespace

ProcessPlace ReadProcessPlace() {
    ProcessPlace place = ReadPlaceOfLauncher();
    place.job_id = ReadEnv("INFINI_JOB_ID").value_or(place.job_id);
    return place;
}

}  // namespace infini_train::comm
