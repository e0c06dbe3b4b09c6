#include "infini_train/include/comm/process_place.h"

#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"

extern char** environ;

namespace infini_train::comm {
namespace {

using Variables = std::map<std::string, std::string>;

/// The place with these variables and no others of any launcher.
ProcessPlace PlaceWith(const Variables& variables) {
    std::vector<std::string> names;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string name = std::string(*entry).substr(0, std::string(*entry).find('='));
        for (const char* prefix : {"RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_", "OMPI_", "PMIX_",
                                   "SLURM_", "INFINI_JOB_ID"}) {
            if (name.starts_with(prefix)) {
                names.push_back(name);
            }
        }
    }
    for (const std::string& name : names) {
        unsetenv(name.c_str());
    }
    for (const auto& [name, value] : variables) {
        setenv(name.c_str(), value.c_str(), 1);
    }
    return ReadProcessPlace();
}

std::string ErrorWith(const Variables& variables) {
    try {
        PlaceWith(variables);
    } catch (const Error& error) {
        EXPECT_EQ(error.exit_code(), 2);
        return error.what();
    }
    return "no error";
}

/// The variables with one of them changed.
Variables With(Variables variables, const Variables& others) {
    for (const auto& [name, value] : others) {
        variables[name] = value;
    }
    return variables;
}

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "node7"},
                             {"MASTER_PORT", "29500"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                            {"PMIX_NAMESPACE", "prterun-host-12@1"}};
const Variables kSlurm = {{"SLURM_PROCID", "3"},
                          {"SLURM_NTASKS", "5"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_TASKS_PER_NODE", "2(x2),1"},
                          {"SLURM_JOB_ID", "77"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_STEP_NODELIST", "node[03-05,9]"}};

TEST(ReadProcessPlace, IsTheOnlyProcessWithoutALauncher) {
    for (const Variables& variables : {Variables(), Variables({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}),
                                       Variables({{"RANK", ""}, {"WORLD_SIZE", ""}})}) {
        const ProcessPlace place = PlaceWith(variables);
        EXPECT_EQ(place.index, 0);
        EXPECT_EQ(place.num_processes, 1);
        EXPECT_EQ(place.num_local, 1);
        EXPECT_EQ(place.launcher, "");
    }
}

TEST(ReadProcessPlace, ReadsTheVariablesOfTorchrun) {
    const ProcessPlace place = PlaceWith(With(kTorchrun, {{"TORCHELASTIC_RUN_ID", "run"}}));
    EXPECT_EQ(place.index, 5);
    EXPECT_EQ(place.num_processes, 8);
    EXPECT_EQ(place.local_index, 1);
    EXPECT_EQ(place.num_local, 4);
    EXPECT_EQ(place.master_address, "node7");
    EXPECT_EQ(place.master_port, 29500);
    EXPECT_EQ(place.launcher, "torchrun");
    EXPECT_EQ(place.job_id, "run");
}

TEST(ReadProcessPlace, CountsAllProcessesAsLocalWhereTorchrunsVariablesDoNotSay) {
    const ProcessPlace place = PlaceWith(With(kTorchrun, {{"LOCAL_WORLD_SIZE", ""}}));
    EXPECT_EQ(place.num_local, 8);
    EXPECT_EQ(place.local_index, 1);
}

TEST(ReadProcessPlace, LeavesThePortToTorchrunWhereThatListensItself) {
    const Variables variables =
        With(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RUN_ID", "none"}});
    const int port = PlaceWith(variables).master_port;
    // Two jobs of one host take 29500 and 29501: nobody's agent is met.
    const int other_port = PlaceWith(With(variables, {{"MASTER_PORT", "29501"}})).master_port;
    for (const int taken : {29500, 29501}) {
        EXPECT_NE(port, taken);
        EXPECT_NE(other_port, taken);
    }
    EXPECT_NE(port, other_port);
    EXPECT_EQ(PlaceWith(With(variables, {{"RANK", "2"}, {"LOCAL_RANK", "2"}})).master_port, port);
    EXPECT_NE(PlaceWith(With(variables, {{"TORCHELASTIC_RUN_ID", "other"}})).master_port, port);
    EXPECT_EQ(PlaceWith(With(variables, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).master_port, 29500);
}

// The agents of two hosts count a restart differently: only the one whose process failed does.
TEST(ReadProcessPlace, MeetsAgainAfterARestartByTorchrun) {
    const Variables variables =
        With(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RUN_ID", "run"}});
    const ProcessPlace first = PlaceWith(With(variables, {{"TORCHELASTIC_RESTART_COUNT", "0"}}));
    const ProcessPlace second = PlaceWith(With(variables, {{"TORCHELASTIC_RESTART_COUNT", "1"}}));
    EXPECT_EQ(first.job_id, second.job_id);
    EXPECT_EQ(first.master_port, second.master_port);
}

TEST(ReadProcessPlace, NeedsNoAddressForOneProcess) {
    EXPECT_EQ(PlaceWith({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).launcher, "torchrun");
    EXPECT_EQ(PlaceWith({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).num_processes, 1);
}

TEST(ReadProcessPlace, TakesTheJobsIdFromTheUser) {
    EXPECT_EQ(PlaceWith(With(kTorchrun, {{"INFINI_JOB_ID", "mine"}})).job_id, "mine");
    EXPECT_EQ(PlaceWith(With(kSlurm, {{"INFINI_JOB_ID", "mine"}})).job_id, "mine");
}

TEST(ReadProcessPlace, NamesAVariableOfTorchrunThatIsMissingOrWrong) {
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
        EXPECT_EQ(ErrorWith(With(kTorchrun, {{name, ""}})),
                  std::string(name) +
                      ": the environment variable is not set; it is needed beside RANK, WORLD_SIZE, "
                      "LOCAL_RANK, MASTER_ADDR and MASTER_PORT");
    }
    EXPECT_EQ(ErrorWith(With(kTorchrun, {{"RANK", "8"}})),
              "RANK: the environment variable says what cannot be (got 8, wanted a number from 0 to 7 by WORLD_SIZE)");
    for (const char* value : {"x", "1x", " 1", "-1", "+1", "1.0", "99999999999999999999"}) {
        EXPECT_EQ(ErrorWith(With(kTorchrun, {{"RANK", value}})),
                  "RANK: the environment variable says what cannot be (got " + std::string(value) +
                      ", wanted a number from 0 to 7 by WORLD_SIZE)");
    }
    const std::string what = ": the environment variable says what cannot be (got ";
    EXPECT_EQ(ErrorWith(With(kTorchrun, {{"WORLD_SIZE", "0"}})),
              "WORLD_SIZE" + what + "0, wanted a number from 1 to 1048576)");
    EXPECT_EQ(ErrorWith(With(kTorchrun, {{"LOCAL_RANK", "4"}})),
              "LOCAL_RANK" + what + "4, wanted a number from 0 to 3 by LOCAL_WORLD_SIZE)");
    EXPECT_EQ(ErrorWith(With(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}})),
              "LOCAL_WORLD_SIZE" + what + "9, wanted a number from 1 to 8 by WORLD_SIZE)");
    for (const char* port : {"0", "65536", "http"}) {
        EXPECT_EQ(ErrorWith(With(kTorchrun, {{"MASTER_PORT", port}})),
                  "MASTER_PORT" + what + port + ", wanted a number from 1 to 65535)");
    }
}

TEST(ReadProcessPlace, ReadsTheVariablesOfOpenMpi) {
    const ProcessPlace place = PlaceWith(kOpenMpi);
    EXPECT_EQ(place.index, 1);
    EXPECT_EQ(place.num_processes, 4);
    EXPECT_EQ(place.local_index, 1);
    EXPECT_EQ(place.num_local, 4);
    EXPECT_EQ(place.master_address, "127.0.0.1");
    EXPECT_EQ(place.launcher, "Open MPI");
}

TEST(ReadProcessPlace, GivesEachJobOfAHostAPortOfItsOwn) {
    const int port = PlaceWith(kOpenMpi).master_port;
    EXPECT_GE(port, 1024);
    EXPECT_LT(port, 32768);  // where Linux begins with outgoing connections
    EXPECT_EQ(PlaceWith(With(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "2"}})).master_port, port);
    EXPECT_NE(PlaceWith(With(kOpenMpi, {{"PMIX_NAMESPACE", "prterun-host-13@1"}})).master_port, port);
    const Variables older = With(kOpenMpi, {{"PMIX_NAMESPACE", ""}, {"OMPI_MCA_ess_base_jobid", "99"}});
    EXPECT_NE(PlaceWith(older).master_port, port);
    EXPECT_EQ(PlaceWith(With(kOpenMpi, {{"MASTER_PORT", "5"}})).master_port, 5);
    EXPECT_NE(PlaceWith(With(kSlurm, {{"SLURM_JOB_ID", "78"}})).master_port, PlaceWith(kSlurm).master_port);
    EXPECT_NE(PlaceWith(With(kSlurm, {{"SLURM_STEP_ID", "1"}})).master_port, PlaceWith(kSlurm).master_port);
}

TEST(ReadProcessPlace, NeedsAnAddressForOpenMpiOnSeveralHosts) {
    const Variables two_hosts = With(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
    EXPECT_EQ(
        ErrorWith(two_hosts),
        "MASTER_ADDR: the environment variable is not set; it is needed with Open MPI on several hosts: mpirun -x "
        "MASTER_ADDR=<host of process 0> ...");
    EXPECT_EQ(PlaceWith(With(two_hosts, {{"MASTER_ADDR", "node1"}})).master_address, "node1");
    EXPECT_EQ(ErrorWith(With(kOpenMpi, {{"PMIX_NAMESPACE", ""}})).substr(0, 12), "MASTER_PORT:");
}

TEST(ReadProcessPlace, NamesAVariableOfOpenMpiThatIsMissing) {
    for (const char* name :
         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"}) {
        EXPECT_EQ(ErrorWith(With(kOpenMpi, {{name, ""}})).substr(0, std::string(name).size()), name);
    }
}

TEST(ReadProcessPlace, ReadsTheVariablesOfSlurm) {
    const ProcessPlace place = PlaceWith(kSlurm);
    EXPECT_EQ(place.index, 3);
    EXPECT_EQ(place.num_processes, 5);
    EXPECT_EQ(place.local_index, 1);
    EXPECT_EQ(place.num_local, 2);
    EXPECT_EQ(place.master_address, "node03");
    EXPECT_EQ(place.launcher, "Slurm");
    EXPECT_EQ(PlaceWith(With(kSlurm, {{"MASTER_ADDR", "other"}, {"MASTER_PORT", "9"}})).master_address, "other");
    const Variables last = {{"SLURM_PROCID", "4"}, {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "2"}};
    EXPECT_EQ(PlaceWith(With(kSlurm, last)).num_local, 1);
    const Variables limit = {{"SLURM_TASKS_PER_NODE", ""}, {"SLURM_NTASKS_PER_NODE", "4"}};
    EXPECT_EQ(PlaceWith(With(kSlurm, limit)).num_local, 4);
}

TEST(ReadProcessPlace, FindsTheFirstHostOfASlurmList) {
    const Variables lists = {{"a-1,b", "a-1"},
                             {"node[03-05,9],x", "node03"},
                             {"n[7]", "n7"},
                             {"rack[1-2]n[10-12].x,y", "rack1n10.x"},
                             {"n[2,1-5]", "n2"}};
    for (const auto& [list, host] : lists) {
        EXPECT_EQ(PlaceWith(With(kSlurm, {{"SLURM_STEP_NODELIST", list}})).master_address, host) << list;
    }
    for (const char* list : {"n[", "n[1", "n[]", ",n"}) {
        EXPECT_EQ(ErrorWith(With(kSlurm, {{"SLURM_STEP_NODELIST", list}})).substr(0, 20), "SLURM_STEP_NODELIST:")
            << list;
    }
    const Variables of_the_job = {{"SLURM_STEP_NODELIST", ""}, {"SLURM_NODELIST", "z[1-2]"}};
    EXPECT_EQ(PlaceWith(With(kSlurm, of_the_job)).master_address, "z1");
}

// Slurm's name of a node need not be one that is found.
TEST(ReadProcessPlace, MeetsOnThisHostWhereItIsTheOnlyOneOfAStepOfSlurm) {
    EXPECT_EQ(PlaceWith(With(kSlurm, {{"SLURM_STEP_NODELIST", "n-1"}})).master_address, "127.0.0.1");
    EXPECT_EQ(PlaceWith(With(kSlurm, {{"SLURM_STEP_NODELIST", "n-1"}, {"MASTER_ADDR", "a"}})).master_address, "a");
}

TEST(ReadProcessPlace, RefusesListsOfTasksThatDoNotFit) {
    for (const char* list : {"x", "2(x", "2(x1)", "0(x3)", "9(x3)", "2(x-1),2"}) {
        EXPECT_EQ(ErrorWith(With(kSlurm, {{"SLURM_TASKS_PER_NODE", list}})).substr(0, 21), "SLURM_TASKS_PER_NODE:")
            << list;
    }
}

TEST(ReadProcessPlace, DoesNotWaitForOthersInAShellOfAnAllocation) {
    const Variables shell = With(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}});
    for (const Variables& change : {Variables({{"SLURM_STEP_ID", ""}}), Variables({{"SLURM_STEP_ID", "4294967290"}}),
                                    Variables({{"SLURM_NTASKS", "1"}}), Variables({{"SLURM_STEP_NUM_TASKS", "1"}}),
                                    Variables({{"SLURM_PROCID", ""}})}) {
        EXPECT_EQ(PlaceWith(With(shell, change)).num_processes, 1);
        EXPECT_EQ(PlaceWith(With(shell, change)).launcher, "");
    }
    EXPECT_EQ(PlaceWith(shell).num_processes, 5);
}

TEST(ReadProcessPlace, SaysThatABatchScriptRunsAlone) {
    const Variables script = {{"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}};
    EXPECT_EQ(PlaceWith(script).note,
              "Slurm: the job has 4 tasks, this process runs alone; srun starts one for each task");
    EXPECT_EQ(PlaceWith(With(script, {{"SLURM_NTASKS", "1"}})).note, "");
    EXPECT_EQ(PlaceWith(With(script, {{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}})).note, "");
    EXPECT_EQ(PlaceWith(kSlurm).note, "");
}

TEST(ReadProcessPlace, TakesTheInnermostLauncherThatIsComplete) {
    EXPECT_EQ(PlaceWith(With(With(kSlurm, kOpenMpi), kTorchrun)).launcher, "torchrun");
    EXPECT_EQ(PlaceWith(With(kSlurm, kOpenMpi)).launcher, "Open MPI");
    // Set for the whole job, and right.
    EXPECT_EQ(PlaceWith(With(kSlurm, {{"WORLD_SIZE", "5"}, {"MASTER_ADDR", "a"}})).launcher, "Slurm");
}

// torchrun or scripts/run_local.sh in each task of srun, which name their runs; or one of the user's for several
// processes.
TEST(ReadProcessPlace, LetsATaskOfAnotherLauncherStartARunOfItsOwn) {
    const Variables one = {{"RANK", "0"}, {"WORLD_SIZE", "1"}};
    for (const Variables& outer : {kSlurm, kOpenMpi}) {
        EXPECT_EQ(PlaceWith(With(With(outer, one), {{"TORCHELASTIC_RUN_ID", "run"}})).num_processes, 1);
        EXPECT_EQ(PlaceWith(With(With(outer, one), {{"INFINI_JOB_ID", "run"}})).num_processes, 1);
        EXPECT_EQ(PlaceWith(With(outer, kTorchrun)).num_processes, 8);
    }
}

// A script may start processes by hand and go.
TEST(ReadProcessPlace, EndsWithALauncherAndNotWithWhoeverSetTheVariables) {
    EXPECT_EQ(PlaceWith(kTorchrun).launcher_pid, 0);
    EXPECT_EQ(PlaceWith({}).launcher_pid, 0);
    for (const Variables& launched : {With(kTorchrun, {{"TORCHELASTIC_RUN_ID", "run"}}), kOpenMpi, kSlurm}) {
        ProcessPlace place = PlaceWith(launched);
        EXPECT_EQ(place.launcher_pid, getppid());
        EXPECT_FALSE(IsLauncherGone(place));
        place.launcher_pid = getpid();  // not our parent any more
        EXPECT_TRUE(IsLauncherGone(place));
        place.launcher_pid = 0;
        EXPECT_FALSE(IsLauncherGone(place));
    }
}

// They would all train, each alone, and write over each other's files.
TEST(ReadProcessPlace, RefusesLeftOverVariablesThatMakeAllProcessesTheSameOne) {
    const Variables one = {{"RANK", "0"}, {"WORLD_SIZE", "1"}};
    EXPECT_EQ(ErrorWith(With(kSlurm, one)),
              "WORLD_SIZE: the environment variable says something else than Slurm (got 1, wanted 5, or not set)");
    EXPECT_EQ(ErrorWith(With(kOpenMpi, one)),
              "WORLD_SIZE: the environment variable says something else than Open MPI (got 1, wanted 4, or not set)");
    const Variables same = With(kTorchrun, {{"RANK", "0"}, {"LOCAL_RANK", "0"}, {"WORLD_SIZE", "5"}});
    EXPECT_EQ(ErrorWith(With(kSlurm, same)),
              "RANK: the environment variable says something else than Slurm (got 0, wanted 3, or not set)");
    EXPECT_EQ(PlaceWith(With(kSlurm, With(same, {{"RANK", "3"}}))).index, 3);
}

TEST(ReadProcessPlace, RefusesVariablesThatContradictTheLauncher) {
    EXPECT_EQ(ErrorWith(With(kSlurm, {{"WORLD_SIZE", "8"}})),
              "WORLD_SIZE: the environment variable says something else than Slurm (got 8, wanted 5, or not set)");
    EXPECT_EQ(ErrorWith(With(kOpenMpi, {{"RANK", "0"}})),
              "RANK: the environment variable says something else than Open MPI (got 0, wanted 1, or not set)");
}

}  // namespace
}  // namespace infini_train::comm
