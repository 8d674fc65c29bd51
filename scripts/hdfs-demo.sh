#!/usr/bin/env bash
# make hdfs-demo: a stock HDFS in network namespaces with shaped links. A DataNode is killed again and again, and its blocks are
# rebuilt by HDFS itself and by Kintsu's agents with several methods. Prints a table. Ctrl-C leaves nothing.
#
#   scripts/hdfs-demo.sh KINTSU
#
# KINTSU is the program. Settings, with what they are by default: RATE=500Mb/s (each link, both ways), MIB=768 (the file),
# BLOCK_MIB=64 (an internal block), POLICY=RS-6-3-1024k, NODES=10 (DataNodes), RECHECK_MS=10000 (HDFS calls a DataNode dead
# after twice this and 30 s; its own default is 300000), METHODS="stock conventional ppr pipeline auto".
set -euo pipefail

kintsu=$(realpath "${1:?expected the program kintsu}")
here=$(cd "$(dirname "$0")" && pwd)
rate=${RATE:-500Mb/s} mib=${MIB:-768} block_mib=${BLOCK_MIB:-64} policy=${POLICY:-RS-6-3-1024k} nodes=${NODES:-10}
recheck_ms=${RECHECK_MS:-10000} methods=${METHODS:-stock conventional ppr pipeline auto}
token=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
lab=hdfs-demo-$$ namenode=10.77.1.1 work=$(mktemp -d)
root=$work/hdfs

say() { printf '%s\n' "$*" >&2; }
# Runs something on a host of the lab.
on() {
    local node=$1
    shift
    "$kintsu" lab exec "$lab" --node "$node" -- env "HDFS_HOST=10.77.1.$((node + 1))" "$@"
}
# The same in the background; its process id inside goes into a file, its output into a log.
start() {
    local node=$1 name=$2
    shift 2
    # shellcheck disable=SC2016
    on "$node" bash -c 'echo $$ >"$0"; exec "$@"' "$work/$name.pid" "$@" >"$work/$name.out" 2>"$work/$name.err" </dev/null &
}
stop() { on 0 kill -"$1" "$(cat "$work/$2.pid")" 2>/dev/null || true; }
cleanup() {
    trap - EXIT INT TERM
    "$kintsu" lab down "$lab" >/dev/null 2>&1 || true
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

hdfs() { on 0 "$here/hdfs.sh" "$@"; }
look() { on 0 "$kintsu" hdfs --namenode "$namenode:9000" --user root "$@"; }
wait_for() {
    local i
    for ((i = 0; i < 1500; i++)); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.2
    done
    say "waited in vain for: $*"
    say "$(tail -n 5 "$work"/*.err)"
    exit 1
}
# The milliseconds at which the watch first told an event after its line number $1, or nothing.
at() { tail -n "+$(($1 + 1))" "$work/watch.out" | grep -m 1 "$2" | sed 's/.*"at_ms":\([0-9]*\).*/\1/'; }
lines() { wc -l <"$work/watch.out"; }
told() { [ -n "$(at "$1" "$2")" ]; }
staged() { [ "$(grep -c '"event":"staged"' "$work/coordinator.out")" -ge "$1" ]; }
seconds() { awk "BEGIN{printf \"%.1f s\", ($2 - $1) / 1000}"; }
live() { [ "$(look status / --json | grep -c '"silent":{}')" = 1 ] && [ "$(hdfs client "$root" admin -report -live 2>/dev/null | grep -c '^Name:')" -ge "$nodes" ]; }

"$here/hdfs.sh" fetch >/dev/null
say "an HDFS with $nodes DataNodes on emulated hosts, links of $rate each (load of this machine: $(cut -d' ' -f1-3 /proc/loadavg))"
"$kintsu" lab up --name "$lab" --nodes $((nodes + 1)) --racks 1 --rate "$rate" --detach >/dev/null
hdfs prepare "$root" 9000 "dfs.namenode.heartbeat.recheck-interval=$recheck_ms" >/dev/null
start 0 namenode "$here/hdfs.sh" namenode "$root"
datanode() { start "$1" "datanode$1" "$here/hdfs.sh" datanode "$root" 0 "dfs.datanode.data.dir=file://$root/data$1"; }
for ((i = 1; i <= nodes; i++)); do datanode "$i"; done
wait_for look status /
wait_for live
head -c "$((mib << 20))" /dev/urandom >"$work/file"
hdfs client "$root" fs -mkdir /demo >/dev/null
hdfs client "$root" ec -enablePolicy -policy "$policy" >/dev/null
hdfs client "$root" ec -setPolicy -path /demo -policy "$policy" >/dev/null
hdfs client "$root" fs "-Ddfs.blocksize=$((block_mib << 20))" -put "$work/file" /demo/file
sum=$(sha256sum <"$work/file")
rm "$work/file"
say "stored $mib MiB under $policy, internal blocks of at most $block_mib MiB; HDFS calls a DataNode dead after $((recheck_ms / 500 + 30)) s"
start 0 watch "$kintsu" --json hdfs --namenode "$namenode:9000" --user root watch /demo --scan 5s
wait_for told 0 '"event":"at-risk"'

blocks_on() { find "$root/data$1" -path '*/finalized/*' -name 'blk_-*' ! -name '*.meta' 2>/dev/null | wc -l; }
all_blocks() { local i sum=0; for ((i = 1; i <= nodes; i++)); do sum=$((sum + $(blocks_on "$i"))); done; echo "$sum"; }
stored=$(all_blocks)
trimmed() { [ "$(all_blocks)" = "$stored" ] && look status /demo; }
agent() {
    start "$1" "agent$1" env "KINTSU_TOKEN=$token" "KINTSU_COORDINATOR=$namenode:7500" "$kintsu" --json hdfs agent \
        --dir "$root/agent$1" --datanode "10.77.1.$(($1 + 1)):9010" --data-dir "$root/data$1" \
        --listen "10.77.1.$(($1 + 1)):7501" --listen-data "10.77.1.$(($1 + 1)):7502" --trusted-network 10.77.0.0/16
}

printf '%-14s %7s %12s %14s %14s %14s\n' method blocks 'seen after' 'rebuilt after' 'HDFS knows' 'all counted'
for method in $methods; do
    victim=1
    for ((i = 2; i <= nodes; i++)); do [ "$(blocks_on "$i")" -le "$(blocks_on "$victim")" ] || victim=$i; done
    lost=$(blocks_on "$victim")
    if [ "$method" != stock ]; then
        start 0 coordinator env "KINTSU_TOKEN=$token" "$kintsu" --json hdfs --namenode "$namenode:9000" --user root \
            coordinator /demo --listen "$namenode:7500" --trusted-network 10.77.0.0/16 --method "$method" --scan 2s
        wait_for test -s "$work/coordinator.out"
        for ((i = 1; i <= nodes; i++)); do agent "$i"; done
        for ((i = 1; i <= nodes; i++)); do wait_for test -s "$work/agent$i.out"; done
        sleep 6 # the coordinator waits for agents, and scans
    fi
    # The watch began at its start; what the clock said then is found from a first event.
    from=$(lines)
    stop KILL "datanode$victim"
    killed=$(date +%s%3N)
    wait_for told "$from" '"event":"gone"'
    seen=$(date +%s%3N) seen_at=$(at "$from" '"event":"gone"')
    killed_at=$((seen_at - (seen - killed)))
    rebuilt=-
    if [ "$method" != stock ]; then
        wait_for staged "$lost"
        rebuilt=$(seconds "$killed" "$(date +%s%3N)")
    fi
    wait_for told "$from" '"missing":[1-9]'
    wait_for told "$from" '"event":"whole"'
    printf '%-14s %7d %12s %14s %14s %14s\n' "$method" "$lost" "$(seconds "$killed_at" "$seen_at")" "$rebuilt" \
        "$(seconds "$killed_at" "$(at "$from" '"missing":[1-9]')")" "$(seconds "$killed_at" "$(at "$from" '"event":"whole"')")"
    if [ "$method" != stock ]; then
        for ((i = 1; i <= nodes; i++)); do stop TERM "agent$i"; done
        stop TERM coordinator
        sleep 1
        : >"$work/coordinator.out"
        for ((i = 1; i <= nodes; i++)); do : >"$work/agent$i.out"; done
    fi
    datanode "$victim"
    wait_for live
    wait_for trimmed # HDFS drops one of each two copies
done
got=$(hdfs client "$root" fs -cat /demo/file | sha256sum)
[ "$got" = "$sum" ] || { say "the file was changed"; exit 1; }
hdfs client "$root" fsck /demo | grep -q 'is HEALTHY' || { say "fsck does not say HEALTHY"; exit 1; }
say "the file is as it was by a stock client (SHA-256 ${sum%% *}), fsck says HEALTHY; load of this machine: $(cut -d' ' -f1-3 /proc/loadavg)"
