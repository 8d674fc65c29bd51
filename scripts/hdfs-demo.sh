#!/usr/bin/env bash
# make hdfs-demo: a stock HDFS in network namespaces with shaped links, a DataNode killed again and again, and its blocks
# rebuilt by HDFS itself and by Kintsu's agents with several methods. Prints a table. Ctrl-C leaves nothing.
#
#   scripts/hdfs-demo.sh KINTSU        the program; RATE=500Mb/s, MIB=384 (size of the file) and METHODS can be set
set -euo pipefail

kintsu=$(realpath "${1:?expected the program kintsu}")
here=$(cd "$(dirname "$0")" && pwd)
rate=${RATE:-500Mb/s} mib=${MIB:-384} methods=${METHODS:-stock conventional ppr pipeline auto}
lab=hdfs-demo-$$ nodes=10 root=/run/kintsu-lab/hdfs namenode=10.77.1.1 token=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
work=$(mktemp -d)

say() { printf '%s\n' "$*" >&2; }
# Runs something on a host of the lab.
on() { local node=$1; shift; "$kintsu" lab exec "$lab" --node "$node" -- env "HDFS_HOST=10.77.1.$((node + 1))" "$@"; }
# The same in the background; its process id inside goes into a file, its output into a log.
start() {
    local node=$1 name=$2
    shift 2
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
now() { date +%s.%N; }
# Waits until a command succeeds.
until_() { local i; for ((i = 0; i < 3000; i++)); do "$@" >/dev/null 2>&1 && return 0; sleep 0.2; done; say "waited in vain for: $*"; exit 1; }
whole() { look status /demo >/dev/null 2>&1; }
# Groups of the file with blocks that the NameNode reports missing.
missing() { look status /demo --json | grep -q '"missing":\[[0-9]'; }
not_missing() { ! missing; }
counted() { [ "$(grep -c '"event":"counted"' "$work/coordinator.out")" -ge "$1" ]; }
staged() { [ "$(grep -c '"event":"staged"' "$work/coordinator.out")" -ge "$1" ]; }

"$here/hdfs.sh" fetch >/dev/null
say "an HDFS with $nodes DataNodes on emulated hosts, links of $rate each"
"$kintsu" lab up --name "$lab" --nodes $((nodes + 1)) --racks 1 --rate "$rate" --detach >/dev/null
hdfs prepare "$root" 9000 dfs.namenode.heartbeat.recheck-interval=10000 >/dev/null
start 0 namenode "$here/hdfs.sh" namenode "$root"
datanode() { start "$1" "datanode$1" "$here/hdfs.sh" datanode "$root" 0 "dfs.datanode.data.dir=file://$root/data$1"; }
for ((i = 1; i <= nodes; i++)); do datanode "$i"; done
until_ look status /
live() { [ "$(hdfs client "$root" admin -report -live 2>/dev/null | grep -c '^Name:')" -ge "$nodes" ]; }
until_ live
head -c "$((mib << 20))" /dev/urandom >"$work/file"
hdfs client "$root" fs -mkdir /demo >/dev/null
hdfs client "$root" ec -enablePolicy -policy RS-6-3-1024k >/dev/null
hdfs client "$root" ec -setPolicy -path /demo -policy RS-6-3-1024k >/dev/null
hdfs client "$root" fs -Ddfs.blocksize=33554432 -put "$work/file" /demo/file
sum=$(sha256sum <"$work/file")
say "stored $mib MiB under RS-6-3-1024k in blocks of 32 MiB; the NameNode calls a DataNode dead after 2 x 10 s + 10 x 3 s"

blocks_on() { on 0 find "$root/data$1" -name 'blk_-*' ! -name '*.meta' 2>/dev/null | wc -l; }
agent() {
    start "$1" "agent$1" env "KINTSU_TOKEN=$token" "KINTSU_COORDINATOR=$namenode:7500" "$kintsu" hdfs agent \
        --dir "$root/agent$1" --datanode "10.77.1.$(($1 + 1)):9010" --data-dir "$root/data$1" \
        --listen "10.77.1.$(($1 + 1)):7501" --listen-data "10.77.1.$(($1 + 1)):7502" --trusted-network 10.77.0.0/16
}

printf '%-14s %8s %14s %14s %14s\n' method blocks 'rebuilt after' 'missing after' 'counted after'
for method in $methods; do
    until_ whole
    victim=1
    for ((i = 2; i <= nodes; i++)); do [ "$(blocks_on "$i")" -le "$(blocks_on "$victim")" ] || victim=$i; done
    lost=$(blocks_on "$victim")
    if [ "$method" != stock ]; then
        start 0 coordinator env "KINTSU_TOKEN=$token" "$kintsu" --json hdfs --namenode "$namenode:9000" --user root \
            coordinator /demo --listen "$namenode:7500" --trusted-network 10.77.0.0/16 --method "$method" --scan 2s
        for ((i = 1; i <= nodes; i++)); do agent "$i"; done
        for ((i = 1; i <= nodes; i++)); do until_ grep -q slices "$work/agent$i.out"; done
        sleep 3 # the first scan
    fi
    began=$(now)
    stop KILL "datanode$victim"
    rebuilt=-
    if [ "$method" != stock ]; then
        until_ staged "$lost"
        rebuilt=$(awk "BEGIN{printf \"%.1f s\", $(now) - $began}")
    fi
    until_ missing
    known=$(now)
    [ "$method" = stock ] || until_ counted "$lost"
    until_ not_missing
    ended=$(now)
    awk "BEGIN{printf \"%-14s %8d %14s %12.1f s %12.1f s\n\", \"$method\", $lost, \"$rebuilt\", $known - $began, $ended - $began}"
    if [ "$method" != stock ]; then
        for ((i = 1; i <= nodes; i++)); do stop TERM "agent$i"; done
        stop TERM coordinator
    fi
    datanode "$victim"
    until_ live
done
[ "$(look get /demo/file - | sha256sum)" = "$sum" ] || { say "the file was changed"; exit 1; }
say "the file is as it was: SHA-256 ${sum%% *}"
