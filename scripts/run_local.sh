#!/usr/bin/env bash
# Runs a program as several processes of this machine that find each other: scripts/run_local.sh --help
set -u

usage() {
    cat <<'TEXT'
scripts/run_local.sh -n P [--threads T] -- PROGRAM [WORD...]
Starts PROGRAM P times on this machine, as the processes 0 .. P-1 of one run.
  -n P           processes
  --threads T    OpenMP threads of each (default: OMP_NUM_THREADS, else its share of the cores)
Process 0 writes straight to where this script writes, so that its output is that of a run without the script, progress on a
terminal included. A line of another process, of either stream, gets its number in front: "[2] ...". Nobody has an input.
Each gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT (a free one; yours if it is set) and
INFINI_JOB_ID. With fewer GPUs than processes each gets an NCCL_HOSTID of its own, too: NCCL takes several processes on one GPU
only as different hosts, which is slow. CUDA_VISIBLE_DEVICES stays as it is.
When one fails, the others get SIGTERM, and SIGKILL after 5 s. SIGINT, SIGTERM, SIGHUP and SIGUSR1 are handed on: the processes
end after their step, however long that is; a second one of the first three kills them. The exit code is that of the first that failed (128 + the signal that ended it), 128 + the
signal that was handed on, but SIGUSR1), or 0. No process stays behind.
TEXT
}
refuse() {
    echo "run_local: $* (--help shows how it is used)" >&2
    exit 2
}
is_count() {
    [[ $1 =~ ^[1-9][0-9]{0,4}$ ]]
}

num_processes=
threads=
while [ $# -gt 0 ]; do
    case $1 in
        -n | --threads)
            is_count "${2:-}" || refuse "$1 wants a number from 1 on, got '${2:-}'"
            if [ "$1" = -n ]; then num_processes=$2; else threads=$2; fi
            shift 2
            ;;
        -h | --help) usage; exit 0 ;;
        --) shift; break ;;
        -*) refuse "no option $1" ;;
        *) break ;;
    esac
done
[ -n "$num_processes" ] || refuse "-n P is missing"
[ $# -gt 0 ] || refuse "the program is missing"
command -v -- "$1" >/dev/null || refuse "there is no program $1"

# A port that nobody listens at: below those that Linux gives to outgoing connections.
free_port() {
    local port
    while true; do
        port=$((12000 + (RANDOM * 32768 + RANDOM) % 20000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
    done
    echo "$port"
}
num_gpus() {
    if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
        local devices
        IFS=, read -ra devices <<<"$CUDA_VISIBLE_DEVICES"
        echo "${#devices[@]}"
    else
        nvidia-smi -L 2>/dev/null | grep -c '^GPU '
    fi
}

export WORLD_SIZE=$num_processes LOCAL_WORLD_SIZE=$num_processes MASTER_ADDR=127.0.0.1
export MASTER_PORT=${MASTER_PORT:-$(free_port)}
export INFINI_JOB_ID=${INFINI_JOB_ID:-$HOSTNAME-$$-$RANDOM}
unset TORCHELASTIC_USE_AGENT_STORE  # an outer launcher's
shares_gpus=false
if command -v nvidia-smi >/dev/null; then
    gpus=$(num_gpus)
    if [ "$gpus" -gt 0 ] && [ "$gpus" -lt "$num_processes" ]; then
        shares_gpus=true
        echo "run_local: $num_processes processes share $gpus GPU(s): NCCL takes each for a host of its own, which is slow" >&2
    fi
fi
cores=$(env -u OMP_NUM_THREADS nproc)

# Each process leads a session of its own, which can be ended whole. A shell lets its background processes ignore SIGINT and
# SIGQUIT: not these. And they end with this script, even if it is killed.
wrap=(setsid)
env --default-signal=INT true 2>/dev/null && wrap+=(env --default-signal=INT --default-signal=QUIT)
setpriv --pdeathsig KILL true 2>/dev/null && wrap+=(setpriv --pdeathsig KILL --)
prefix() {
    trap '' INT TERM HUP USR1  # the last lines come through
    local line
    while IFS= read -r line || [ -n "$line" ]; do
        printf '[%s] %s\n' "$1" "$line"
    done
}

pids=()                # by process; in the session of one that has ended there may be others
declare -A running=()  # by pid; of those that have not ended
readers=()
kill_at_us=  # once somebody is to end
code=0
signaled=false

now_us() {
    echo "${EPOCHREALTIME/[.,]/}"
}
signal_all() {
    local pid
    for pid in "${pids[@]}"; do
        kill -"$1" -- "-$pid" 2>/dev/null || { [ -n "${running[$pid]:-}" ] && kill -"$1" "$pid" 2>/dev/null; }
    done
}
# Whoever is left in 5 s is killed.
stop_all() {
    signal_all "$1"
    [ -n "$kill_at_us" ] || kill_at_us=$(($(now_us) + 5000000))
}
# shellcheck disable=SC2317  # the traps call it
on_signal() {
    [ "$code" -ne 0 ] || code=$((128 + $2))
    if $signaled; then
        signal_all KILL
    else
        signaled=true
        signal_all "$1"
    fi
}
trap 'on_signal INT 2' INT
trap 'on_signal TERM 15' TERM
trap 'on_signal HUP 1' HUP
trap 'signal_all USR1' USR1

start() {
    local process=$1
    shift
    export RANK=$process LOCAL_RANK=$process
    if [ -n "$threads" ]; then
        export OMP_NUM_THREADS=$threads
    elif [ -z "${given_threads:-}" ]; then
        local share=$((cores / num_processes + (process < cores % num_processes ? 1 : 0)))
        export OMP_NUM_THREADS=$((share > 0 ? share : 1))
    fi
    if $shares_gpus; then
        export NCCL_HOSTID=$INFINI_JOB_ID-$process
    fi
    if [ "$process" -eq 0 ]; then
        "${wrap[@]}" "$@" </dev/null &
    else
        # The readers end when all who write have ended.
        local out err
        exec {out}> >(prefix "$process"); readers+=($!)
        exec {err}> >(prefix "$process" >&2); readers+=($!)
        "${wrap[@]}" "$@" </dev/null >&"$out" 2>&"$err" {out}>&- {err}>&- &
        exec {out}>&- {err}>&-
    fi
    pids[process]=$!
    running[$!]=$process
}
given_threads=${OMP_NUM_THREADS:-}
for ((process = 0; process < num_processes; ++process)); do
    start "$process" "$@"
done

# Looks 20 times a second: bash's wait -n does not return for a process that ended just before it.
exec {idle}<> <(:)  # has nothing to read, ever
while [ ${#running[@]} -gt 0 ]; do
    read -r -t 0.05 -u "$idle"
    # Of several that end between two looks the one that a signal ended was the first: the others follow it within moments. So
    # twice, for one that has ended behind the first look's back.
    failed=0
    for pid in "${!running[@]}" "${!running[@]}"; do
        [ -z "${running[$pid]:-}" ] && continue
        kill -0 "$pid" 2>/dev/null && continue
        wait "$pid" 2>/dev/null
        status=$?
        unset "running[$pid]"
        [ "$status" -le "$failed" ] || failed=$status
    done
    if [ "$failed" -ne 0 ] && [ "$code" -eq 0 ]; then
        code=$failed
        stop_all TERM
    fi
    if [ -n "$kill_at_us" ] && [ "$(now_us)" -ge "$kill_at_us" ]; then
        signal_all KILL
    fi
done
signal_all KILL  # what a process has started and left behind
wait "${readers[@]}" 2>/dev/null
exit "$code"
