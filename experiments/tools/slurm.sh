#!/bin/sh
# A Slurm of one node with two slots on this host, for tests: `slurm.sh start FOLDER [PORT]`, `slurm.sh end FOLDER`.
#
# Everything (configuration, munge's key, state, logs, process numbers) lies in FOLDER; nothing of the system's own Slurm
# is read or written. After `start`, `export SLURM_CONF=FOLDER/slurm.conf` and sbatch, squeue, srun, scancel ... work.
# Both commands may be repeated: a cluster that runs is left running, one that has ended stays ended.
set -eu
PATH=$PATH:/usr/sbin:/sbin
usage() { echo "usage: $0 start FOLDER [PORT] | end FOLDER" >&2; exit 2; }
[ $# -ge 2 ] || usage
for tool in munged slurmctld slurmd sbatch; do
    command -v $tool >/dev/null || { echo "$tool is missing: apt-get install slurm-wlm munge (Debian)" >&2; exit 3; }
done

runs() { [ -f "$folder/$1.pid" ] && tr '\0' ' ' 2>/dev/null <"/proc/$(cat "$folder/$1.pid")/cmdline" | grep -q "$folder"; }

begin() {  # NAME COMMAND ...: a daemon that writes FOLDER/NAME.pid
    name=$1; shift
    runs "$name" || "$@" || { echo "$name does not start; see $folder/$name.log" >&2; exit 1; }
}

start() {
    mkdir -p "$folder/state" "$folder/spool"
    chmod 755 "$folder"
    [ -f "$folder/munge.key" ] || (umask 077; head -c 128 /dev/urandom >"$folder/munge.key")
    host=$(hostname -s)
    cat >"$folder/slurm.conf" <<END
ClusterName=fedwin
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthInfo=socket=$folder/munge.socket,cred_expire=10
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SchedulerParameters=sched_interval=1,batch_sched_delay=0
KillWait=10
MinJobAge=600
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 RealMemory=$(free -m | awk '/^Mem:/ { print $2 }') State=UNKNOWN
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP
END
    begin munged munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
        --pid-file="$folder/munged.pid" --log-file="$folder/munged.log" --seed-file="$folder/munge.seed"
    begin slurmctld slurmctld -f "$SLURM_CONF"
    begin slurmd slurmd -f "$SLURM_CONF"
    for _ in $(seq 60); do
        [ "$(sinfo -h -o %T 2>/dev/null)" = idle ] && { echo "export SLURM_CONF=$SLURM_CONF"; return; }
        sleep 0.5
    done
    echo "the node is $(sinfo -h -o '%T: %E' 2>&1), not idle; see $folder/*.log" >&2
    exit 1
}

end() {  # the jobs first, while there is somebody to end them
    if runs slurmctld; then
        scancel --user="$(id -un)" || true
        for _ in $(seq 30); do [ -z "$(squeue -h 2>/dev/null)" ] && break; sleep 0.5; done
    fi
    for name in slurmd slurmctld munged; do
        runs $name || continue
        number=$(cat "$folder/$name.pid")
        kill "$number"
        for _ in $(seq 40); do kill -0 "$number" 2>/dev/null || break; sleep 0.25; done
    done
}

mkdir -p "$2"
folder=$(cd "$2" && pwd -P) port=${3:-16817}
export SLURM_CONF="$folder/slurm.conf"
case $1 in start) start ;; end) end ;; *) usage ;; esac
