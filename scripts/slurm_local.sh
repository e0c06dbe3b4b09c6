#!/usr/bin/env bash
# A Slurm cluster of two nodes that are both this machine, for tests: scripts/slurm_local.sh start|stop DIR. Needs root, and munge and slurm-wlm.
# Programs find it with SLURM_CONF=DIR/slurm.conf; a run on both nodes needs MASTER_ADDR=127.0.0.1, too: nobody else knows their names.
# All that it has and writes is in DIR, which start makes anew.
set -euo pipefail

dir=$(realpath -m "${2:?"start|stop DIR"}")
ends() {
    local pid
    for file in "$dir"/*.pid; do
        pid=$(cat "$file" 2>/dev/null) || continue
        kill "$pid" 2>/dev/null || continue
        for _ in {1..100}; do  # with the others there: it tells them
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
    done
}
if [ "$1" = stop ]; then
    ends
    exit
fi
mkdir "$dir" "$dir"/{state,spool-node1,spool-node2,munge}
host=$(uname -n)
port=$((12000 + RANDOM % 20000))
cat >"$dir/slurm.conf" <<TEXT
ClusterName=local
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CryptoType=crypto/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool-%n
SlurmctldPidFile=$dir/1_slurmctld.pid
SlurmdPidFile=$dir/2_slurmd_%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=node1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=4
NodeName=node2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=4
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
TEXT
(umask 077 && head -c 128 /dev/urandom >"$dir/munge/key")
munged --force --key-file="$dir/munge/key" --socket="$dir/munge/socket" --pid-file="$dir/3_munged.pid" --log-file="$dir/munge/log" --seed-file="$dir/munge/seed"
export SLURM_CONF=$dir/slurm.conf
slurmctld -c
slurmd -N node1
slurmd -N node2
for _ in {1..100}; do
    [ "$(sinfo --noheader --states=idle --format=%D 2>/dev/null)" != 2 ] || exit 0
    sleep 0.2
done
echo "slurm_local: the nodes of the cluster do not come up; see the logs in $dir" >&2
ends
exit 1
