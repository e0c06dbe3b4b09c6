#include "infini_train/include/comm/process_place.h"

#include <unistd.h>

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

/// What a variable may say.
struct Range {
    int first = 0;
    int last = 0;
    const char* of = "";  // the variable that the last number comes from
};

/// The number of a variable; nothing when it is not set.
std::optional<int> FindNumber(const std::string& name, const Range& range) {
    const std::optional<std::string> value = ReadEnv(name);
    if (!value.has_value()) {
        return std::nullopt;
    }
    const std::optional<int64_t> number = ParseNumber(*value);
    if (!number.has_value() || *number < range.first || *number > range.last) {
        const std::string why = *range.of == '\0' ? "" : StrCat(" by ", range.of);
        throw Error({.where = name,
                     .what = "the environment variable says what cannot be",
                     .got = *value,
                     .wanted = StrCat("a number from ", range.first, " to ", range.last, why)});
    }
    return static_cast<int>(*number);
}

constexpr Range kCountOfProcesses = {.first = 1, .last = kMaxProcesses};
constexpr Range kPort = {.first = 1, .last = kMaxPort};

Error Missing(const std::string& name, const std::string& because) {
    return Error({.where = name, .what = "the environment variable is not set; it is needed " + because});
}

int NeedNumber(const std::string& name, const Range& range, const std::string& because) {
    const std::optional<int> number = FindNumber(name, range);
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
           (FindNumber("WORLD_SIZE", kCountOfProcesses) == 1 ||
            (IsSet("LOCAL_RANK") && IsSet("MASTER_ADDR") && IsSet("MASTER_PORT")));
}

bool IsAnyOfTorchrun() {
    return IsSet("RANK") || IsSet("WORLD_SIZE") || IsSet("LOCAL_RANK");
}

ProcessPlace ReadTorchrun() {
    ProcessPlace place = {.launcher = "torchrun"};
    const std::string because = "beside RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT";
    place.num_processes = NeedNumber("WORLD_SIZE", kCountOfProcesses, because);
    place.index = NeedNumber("RANK", {.last = place.num_processes - 1, .of = "WORLD_SIZE"}, because);
    place.job_id = ReadEnv("TORCHELASTIC_RUN_ID").value_or("");
    if (place.num_processes == 1) {
        return place;
    }
    place.num_local = FindNumber("LOCAL_WORLD_SIZE", {.first = 1, .last = place.num_processes, .of = "WORLD_SIZE"})
                          .value_or(place.num_processes);
    place.local_index = NeedNumber("LOCAL_RANK", {.last = place.num_local - 1, .of = "LOCAL_WORLD_SIZE"}, because);
    place.master_port = NeedNumber("MASTER_PORT", kPort, because);
    if (!IsSet("MASTER_ADDR")) {
        throw Missing("MASTER_ADDR", because);
    }
    place.master_address = *ReadEnv("MASTER_ADDR");
    if (ReadEnv("TORCHELASTIC_USE_AGENT_STORE") == "True") {
        // torchrun itself listens at MASTER_PORT then, and another one perhaps at the next.
        place.master_port = PortOfJob(StrCat(place.job_id, " ", place.master_port));
    }
    return place;
}

// --- Open MPI

bool IsOpenMpi() {
    return IsSet("OMPI_COMM_WORLD_RANK") || IsSet("OMPI_COMM_WORLD_SIZE");
}

ProcessPlace ReadOpenMpi() {
    ProcessPlace place = {.launcher = "Open MPI"};
    const std::string because = "beside the other OMPI_COMM_WORLD_ variables";
    place.num_processes = NeedNumber("OMPI_COMM_WORLD_SIZE", kCountOfProcesses, because);
    place.index =
        NeedNumber("OMPI_COMM_WORLD_RANK", {.last = place.num_processes - 1, .of = "OMPI_COMM_WORLD_SIZE"}, because);
    place.num_local = NeedNumber("OMPI_COMM_WORLD_LOCAL_SIZE",
                                 {.first = 1, .last = place.num_processes, .of = "OMPI_COMM_WORLD_SIZE"}, because);
    place.local_index = NeedNumber("OMPI_COMM_WORLD_LOCAL_RANK",
                                   {.last = place.num_local - 1, .of = "OMPI_COMM_WORLD_LOCAL_SIZE"}, because);
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
    place.master_port = FindNumber("MASTER_PORT", kPort).value_or(PortOfJob(place.job_id));
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
        const std::optional<int> node = FindNumber("SLURM_NODEID", {.last = kMaxProcesses});
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
    const std::optional<int> limit = FindNumber("SLURM_NTASKS_PER_NODE", kCountOfProcesses);
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
    return FindNumber(NumTasksVariable(), kCountOfProcesses) != 1;
}

/// Of a process that nobody started as one of a step.
std::string NoteOnBatchScript() {
    const std::optional<int> num_tasks = FindNumber("SLURM_NTASKS", kCountOfProcesses);
    if (!IsSet("SLURM_JOB_ID") || IsSet("SLURM_STEP_NUM_TASKS") || num_tasks.value_or(1) == 1) {
        return "";
    }
    return StrCat("Slurm: the job has ", *num_tasks, " tasks, this process runs alone; srun starts one for each task");
}

ProcessPlace ReadSlurm() {
    ProcessPlace place = {.launcher = "Slurm"};
    const std::string because = "in a step of Slurm";
    place.num_processes = NeedNumber(NumTasksVariable(), kCountOfProcesses, because);
    place.index = NeedNumber("SLURM_PROCID", {.last = place.num_processes - 1, .of = "the number of tasks"}, because);
    place.num_local = NumLocalOfSlurm(place.num_processes);
    place.local_index =
        NeedNumber("SLURM_LOCALID", {.last = place.num_local - 1, .of = "the tasks of this node"}, because);
    if (IsSet("MASTER_ADDR")) {
        place.master_address = *ReadEnv("MASTER_ADDR");
    } else {
        const std::string variable = FirstSet({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
        if (!IsSet(variable)) {
            throw Missing(variable, "to find process 0, or MASTER_ADDR");
        }
        const std::string host = FirstHost(variable, *ReadEnv(variable));
        // The only one: Slurm's name of it need not be one that is found.
        place.master_address = host == *ReadEnv(variable) ? "127.0.0.1" : host;
    }
    if (!IsSet("SLURM_JOB_ID") && !IsSet("MASTER_PORT")) {
        throw Missing("SLURM_JOB_ID", "for the port of process 0, or MASTER_PORT");
    }
    place.job_id = StrCat(ReadEnv("SLURM_JOB_ID").value_or(""), ".", *ReadEnv("SLURM_STEP_ID"));
    place.master_port = FindNumber("MASTER_PORT", kPort).value_or(PortOfJob(place.job_id));
    return place;
}

/// A variable of torchrun's that is set, too, must say what the launcher says.
void CheckAgrees(const std::string& name, int value, const std::string& launcher) {
    const std::optional<int> found = FindNumber(name, {.last = std::numeric_limits<int>::max()});
    if (found.has_value() && *found != value) {
        throw Error({.where = name,
                     .what = "the environment variable says something else than " + launcher,
                     .got = StrCat(*found),
                     .wanted = StrCat(value, ", or not set")});
    }
}

/// RANK and the others in a process that another launcher started. torchrun and run_local.sh in there start a run of
/// their own, which they name; without a name they are what a shell or a script exported for all processes alike, who
/// would then all be the same one. More processes than the launcher's may be a launcher of the user's in each of them.
void CheckAgreesWithOuterLauncher(const ProcessPlace& place) {
    const bool is_open_mpi = IsOpenMpi();
    if (IsSet("TORCHELASTIC_RUN_ID") || IsSet("INFINI_JOB_ID") || !(is_open_mpi || IsSlurmStep())) {
        return;
    }
    const std::string launcher = is_open_mpi ? "Open MPI" : "Slurm";
    const std::string size = is_open_mpi ? "OMPI_COMM_WORLD_SIZE" : NumTasksVariable();
    const std::string rank = is_open_mpi ? "OMPI_COMM_WORLD_RANK" : "SLURM_PROCID";
    const int num_outer = FindNumber(size, kCountOfProcesses).value_or(1);
    if (place.num_processes < num_outer) {
        CheckAgrees("WORLD_SIZE", num_outer, launcher);
    } else if (place.num_processes == num_outer) {
        CheckAgrees("RANK", FindNumber(rank, {.last = kMaxProcesses}).value_or(0), launcher);
    }
}

ProcessPlace ReadPlaceOfLauncher() {
    if (IsCompleteTorchrun()) {
        const ProcessPlace place = ReadTorchrun();
        CheckAgreesWithOuterLauncher(place);
        return place;
    }
    // mpirun starts its helpers with srun inside an allocation, and they hand on the helper's variables.
    const bool is_open_mpi = IsOpenMpi();
    if (is_open_mpi || IsSlurmStep()) {
        const ProcessPlace place = is_open_mpi ? ReadOpenMpi() : ReadSlurm();
        CheckAgrees("RANK", place.index, place.launcher);
        CheckAgrees("WORLD_SIZE", place.num_processes, place.launcher);
        CheckAgrees("LOCAL_RANK", place.local_index, place.launcher);
        return place;
    }
    if (IsAnyOfTorchrun()) {
        return ReadTorchrun();  // names what is missing
    }
    return {.note = NoteOnBatchScript()};
}

}  // namespace

ProcessPlace ReadProcessPlace() {
    ProcessPlace place = ReadPlaceOfLauncher();
    place.job_id = ReadEnv("INFINI_JOB_ID").value_or(place.job_id);
    const bool is_launched = place.launcher == "torchrun" ? IsSet("TORCHELASTIC_RUN_ID") : !place.launcher.empty();
    if (is_launched) {
        place.launcher_pid = getppid();
    }
    return place;
}

bool IsLauncherGone(const ProcessPlace& place) {
    return place.launcher_pid != 0 && getppid() != place.launcher_pid;
}

}  // namespace infini_train::comm
