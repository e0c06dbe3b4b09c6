#!/usr/bin/env bash
# Trains a small model under each launcher that is installed, and compares the losses with those of one process: scripts/test_launchers.sh --help
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

usage() {
    cat <<'TEXT'
scripts/test_launchers.sh [--build DIR] [--torchrun FILE]
Under run_local.sh, Open MPI (mpirun), torchrun and Slurm (srun, sbatch): four processes, and two processes of two ranks. The losses and the norms must be
those of one process, to the last bit. Then the launcher is killed: within 10 s no process may be left.
  --build DIR       where the programs are (default: INFINI_BUILD_DIR, else build)
  --torchrun FILE   PyTorch's torchrun (default: the one in PATH)
A launcher that is not there is left out, with a line that says so. For Slurm it uses the cluster that answers; without one and as root, a cluster
of this machine alone that scripts/slurm_local.sh starts (Debian's munge and slurm-wlm).
TEXT
}
build=${INFINI_BUILD_DIR:-$root/build}
torchrun=torchrun
while [ $# -gt 0 ]; do
    case $1 in
        --build) build=$2; shift 2 ;;
        --torchrun) torchrun=$2; shift 2 ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
done
gpt2=$(realpath "$build")/gpt2
work=$(mktemp -d)
own_cluster=
finish() {
    [ -z "$own_cluster" ] || "$root/scripts/slurm_local.sh" stop "$own_cluster"
    rm -rf "$work"
}
trap finish EXIT
export OMP_WAIT_POLICY=passive

failed=0
fail() {
    echo "test_launchers: $*" >&2
    failed=1
}
cp "$root/README.md" "$work/tokens.txt"
words=(--device cpu --model tiny --input_bin "$work/tokens.txt" --batch_size 2 --total_batch_size 1024 --timeout_s 30 --pipeline_parallel 4)
# Of a metrics file: step, loss and norm of each line.
numbers() { sed -E 's/.*"step":([0-9]+).*"loss":([^,]+).*"grad_norm":([^,]+).*/\1 \2 \3/' "$1"; }

# compare NAME COMMAND...: what the command, a launcher and its words, trains is what one process trains.
compare() {
    local name=$1 metrics=$work/metrics.jsonl
    shift
    rm -f "$metrics"
    if ! timeout 120 "$@" --num_iteration 4 --metrics_file "$metrics" >"$work/out" 2>&1; then
        cat "$work/out" >&2
        fail "$name: failed"
    elif [ "$(numbers "$metrics")" != "$(cat "$work/one")" ]; then
        fail "$name: other numbers than one process"
    else
        echo "$name: the losses of one process, to the last bit"
    fi
}
# killed NAME COMMAND...: nothing is left of it when it is killed.
killed() {
    local name=$1 metrics=$work/killed.jsonl launcher
    shift
    rm -f "$metrics"
    "$@" --num_iteration 1000000 --metrics_file "$metrics" >"$work/out" 2>&1 &
    launcher=$!
    for _ in {1..600}; do
        [ ! -s "$metrics" ] || break
        sleep 0.1
    done
    kill -KILL "$launcher"
    wait "$launcher" 2>/dev/null || true
    for tenths in {0..100}; do
        pgrep -f "^$gpt2 .*$metrics" >/dev/null || break
        sleep 0.1
    done
    if pgrep -f "^$gpt2 .*$metrics" >/dev/null; then
        fail "$name, killed: processes are left after 10 s"
        pkill -KILL -f "^$gpt2 .*$metrics" || true
    else
        echo "$name, killed: nobody is left after $((tenths / 10)).$((tenths % 10)) s"
    fi
}
# with NAME FLAG LAUNCHER...: all of it; the flag takes the number of processes.
with() {
    local name=$1 flag=$2
    shift 2
    compare "$name, 4 processes" "$@" "$flag" 4 "${end_of_words[@]}" "$gpt2" "${words[@]}"
    compare "$name, 2 processes of 2 ranks" "$@" "$flag" 2 "${end_of_words[@]}" "$gpt2" "${words[@]}" --nthread_per_process 2
    killed "$name" "$@" "$flag" 4 "${end_of_words[@]}" "$gpt2" "${words[@]}"
}

"$gpt2" "${words[@]}" --pipeline_parallel 1 --num_iteration 4 --metrics_file "$work/one.jsonl" >/dev/null
numbers "$work/one.jsonl" >"$work/one"

end_of_words=(--)
with run_local.sh -n "$root/scripts/run_local.sh"

end_of_words=()
if command -v mpirun >/dev/null; then
    mpirun=(mpirun --oversubscribe)
    [ "$(id -u)" -ne 0 ] || mpirun+=(--allow-run-as-root)
    with "Open MPI" -np "${mpirun[@]}"
else
    echo "Open MPI: left out, there is no mpirun (Debian: openmpi-bin)"
fi

if command -v "$torchrun" >/dev/null; then
    with torchrun --nproc_per_node "$torchrun" --no-python --standalone
else
    echo "torchrun: left out, there is none in PATH (pip install torch, or --torchrun FILE)"
fi

if command -v srun >/dev/null && ! timeout 20 sinfo >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ] && command -v slurmctld slurmd munged >/dev/null; then
    own_cluster=$work/slurm
    "$root/scripts/slurm_local.sh" start "$own_cluster"
    export SLURM_CONF=$own_cluster/slurm.conf
    export MASTER_ADDR=127.0.0.1  # its nodes have names that nobody else knows
fi
if ! command -v srun >/dev/null; then
    echo "Slurm: left out, there is no srun (Debian: slurm-wlm)"
elif ! timeout 20 sinfo >/dev/null 2>&1; then
    echo "Slurm: left out, no cluster answers, and one of this machine needs root, slurmctld, slurmd and munged"
else
    with Slurm -n srun
    with "Slurm, 2 nodes" -n srun -N 2
    cat >"$work/job.sh" <<'TEXT'
#!/bin/sh
exec srun "$@"
TEXT
    compare "Slurm, a batch job" sbatch --wait --output=/dev/null -N 2 -n 4 "$work/job.sh" "$gpt2" "${words[@]}"
fi
exit "$failed"
