#pragma once

#include <string>

namespace infini_train::comm {

/// Which of a run's processes this one is, and where they meet. By default: the only one.
struct ProcessPlace {
    int index = 0;
    int num_processes = 1;
    int local_index = 0;              // among the processes of this host
    int num_local = 1;                // of this host; all of the run where a launcher does not say
    std::string master_address = {};  // where process 0 listens: a name or an address, version 4 or 6
    int master_port = 0;
    std::string launcher = {};  // "", "torchrun", "Open MPI", "Slurm"
    std::string job_id = {};    // the same for all processes of the run, another for another run; may be empty
    std::string note = {};      // what a user should be told of how it was started; may be empty
    int launcher_pid = 0;       // the process that started this one, which ends with it; 0: it may go
};

/// The place that the launcher put into the environment; of the first of these that started this process:
///   torchrun, or what sets its variables   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE (may be left out)
///   Open MPI (mpirun)                      OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
///   Slurm (srun)                           SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID and those of the job and the
///   nodes
/// MASTER_ADDR and MASTER_PORT say where process 0 listens. torchrun sets them. Without them it is this host where all
/// processes are on one, and the first node of the step for Slurm on several; the port then follows from the job's id,
/// so that two jobs of one host do not meet. So it does where torchrun listens at MASTER_PORT itself. INFINI_JOB_ID is
/// the job's id where it is set.
///
/// Variables that a user or a script has set are no launcher that a process should end with: launcher_pid is 0.
///
/// A shell or a batch script inside an allocation of Slurm, and a step of one task, are no launcher: one process.
///
/// Throws Error, one line that names the variable, what was found and what was wanted: for one that is missing, no
/// number, out of range, or says something else than another.
ProcessPlace ReadProcessPlace();

/// Whether the launcher has ended and left this process behind. A script between the two that does not end hides it.
bool IsLauncherGone(const ProcessPlace& place);

}  // namespace infini_train::comm
