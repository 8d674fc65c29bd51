#!/usr/bin/env bash
# make hdfs-demo: a stock HDFS in network namespaces with shaped links. A DataNode is killed again and again, and its blocks are
# rebuilt by HDFS itself and by Kintsu's agents with several methods. Then a lost block is read by HDFS's own client, and by Kintsu.
# Prints tables. Ctrl-C leaves nothing.
#
#   scripts/hdfs-demo.sh KINTSU
#
# KINTSU is the program. Settings, with what they are by default: RATE=500Mb/s (each link, both ways), POLICY=RS-6-3-1024k,
# MIB=1536 (the file), BLOCK_MIB=64 (an internal block), RACKS=1, RACK_RATE (each rack's link to the core, both ways; unlimited),
# NODES (DataNodes; as many as the policy's blocks, and one more for each rack), RECHECK_MS=20000 (HDFS
# calls a DataNode dead after twice this and 30 s; its own default is 300000), METHODS="stock conventional ppr pipeline auto
# auto+report" (the last one tells the NameNode after 10 s of silence: --report-after).
#
# With RACKS=3 hosts are in three racks, which the NameNode has from a table, and Kintsu from the NameNode. The rows also tell what went
# out of racks, by the kernel's counters.
#
# With CODE (rs:n=9,k=6) the file is an object of `kintsu hdfs store` under this code. HDFS itself rebuilds nothing of it; the row "here" is
# `kintsu hdfs store repair`, one process on the NameNode's host that decodes (METHODS="here conventional ppr pipeline auto auto+report"). Then
# a client writes and reads a file of k blocks, whole and degraded, as HDFS's own under POLICY (here RS-k-m-1024k) and as an object, and a
# lost block of an encoded file is read (READS=no leaves out the reads).
#
# With PAGE (docs/hdfs.md) what is printed also goes into that page, between the lines <!-- hdfs-demo WHAT --> and <!-- end WHAT -->
# where WHAT is the policy or the code (and "in 3 racks"), if the run comes to its end. Without these lines it does not begin.
set -Eeuo pipefail

kintsu=$(realpath "${1:?expected the program kintsu}")
here=$(cd "$(dirname "$0")" && pwd)
if [ -n "${PAGE:-}" ]; then
    page=$PAGE what=${CODE:-${POLICY:-RS-6-3-1024k}} said=$(mktemp)
    [ "${RACKS:-1}" = 1 ] || what="$what in $RACKS racks"
    trap 'rm -f "$said"' EXIT
    unset PAGE
    lines=("<!-- hdfs-demo $what -->" "<!-- end $what -->")
    "$here/splice.sh" --check "$page" "${lines[@]}"
    {
        echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) processors; HDFS ${HDFS_VERSION:-3.4.3};" \
            "$("$kintsu" --version), $(date +%F)"
        "$0" "$@" 2>&1
    } | tee "$said"
    { echo '```text' && cat "$said" && echo '```'; } | "$here/splice.sh" "$page" "${lines[@]}"
    exit 0
fi
rate=${RATE:-500Mb/s} mib=${MIB:-1536} block_mib=${BLOCK_MIB:-64} code=${CODE:-} reads=${READS:-yes}
racks=${RACKS:-1} recheck_ms=${RECHECK_MS:-20000} methods=${METHODS:-stock conventional ppr pipeline auto auto+report}
if [ -n "$code" ]; then
    methods=${METHODS:-here conventional ppr pipeline auto auto+report}
    [[ $code =~ n=([0-9]+),k=([0-9]+) ]] || { echo "hdfs-demo.sh: expected a code like rs:n=9,k=6, got $code" >&2; exit 1; }
    POLICY=${POLICY:-RS-${BASH_REMATCH[2]}-$((BASH_REMATCH[1] - BASH_REMATCH[2]))-1024k}
fi
policy=${POLICY:-RS-6-3-1024k}
IFS=- read -r _ k m cell <<<"$policy"
nodes=${NODES:-$((k + m + racks))} cell_bytes=$((${cell%k} << 10))
token=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
lab=hdfs-demo-$$ namenode=10.77.1.1 work=$(mktemp -d)
root=$work/hdfs
# HDFS runs at its best here: all of Java's compilers.
export HDFS_JAVA=-XX:TieredStopAtLevel=4

# Also where the errors of something else go elsewhere.
exec 3>&2
say() { printf '%s\n' "$*" >&3; }
load() { cut -d' ' -f1-3 /proc/loadavg; }
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
# What fails unexpectedly says so, with what HDFS's client said last.
failed() {
    [ "$BASH_SUBSHELL" = 0 ] || return 0
    say "hdfs-demo.sh: line $1 failed: $2"
    [ ! -s "$work/client.err" ] || say "$(tail -n 5 "$work/client.err")"
}
trap 'failed "$LINENO" "$BASH_COMMAND"' ERR

hdfs() { on 0 "$here/hdfs.sh" "$@" 2>"$work/client.err"; }
look() { on 0 "$kintsu" hdfs --namenode "$namenode:9000" --user root "$@"; }
wait_for() {
    local i
    for ((i = 0; i < ${patience:-1500}; i++)); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.2
    done
    say "waited in vain for: $*"
    "$@" >&3 2>&1 || true
    say "$(find "$work" -maxdepth 1 \( -name '*.err' -o -name watch.out -o -name coordinator.out \) -size +0 -exec tail -v -n 3 {} \;)"
    exit 1
}
# The milliseconds at which the watch first told an event after its line number $1, or nothing.
at() { tail -n "+$(($1 + 1))" "$work/watch.out" | grep -m 1 "$2" | sed 's/.*"at_ms":\([0-9]*\).*/\1/'; }
lines() { wc -l <"$work/watch.out"; }
told() { [ -n "$(at "$1" "$2")" ]; }
staged() { [ "$(grep -c '"event":"staged"' "$work/coordinator.out")" -ge "$1" ]; }
seconds() { awk "BEGIN{printf \"%.1f s\", $1 / 1000}"; }
times() { awk "BEGIN{printf \"%.1f\", $1 / $2}"; }
live() { [ "$(look status / --json | grep -c '"silent":{}')" = 1 ] && [ "$(hdfs client "$root" admin -report -live 2>/dev/null | grep -c '^Name:')" -ge "$nodes" ]; }

"$here/hdfs.sh" fetch >/dev/null
where= links=() topology=()
[ -z "${RACK_RATE:-}" ] || links=(--rack-rate "$RACK_RATE")
if [ "$racks" != 1 ]; then
    where=" in $racks racks with links of ${RACK_RATE:-any rate}"
    topology=(net.topology.node.switch.mapping.impl=org.apache.hadoop.net.TableMapping "net.topology.table.file.name=$work/racks")
    # The lab deals hosts to racks in turn.
    for ((i = 0; i <= nodes; i++)); do echo "10.77.1.$((i + 1)) /rack$((i % racks))"; done >"$work/racks"
fi
say "an HDFS with $nodes DataNodes on emulated hosts$where, links of $rate each (load of this machine: $(load))"
"$kintsu" lab up --name "$lab" --nodes $((nodes + 1)) --racks "$racks" --rate "$rate" "${links[@]}" --detach >/dev/null
hdfs prepare "$root" 9000 "dfs.namenode.heartbeat.recheck-interval=$recheck_ms" "${topology[@]}" >/dev/null
start 0 namenode "$here/hdfs.sh" namenode "$root"
datanode() { start "$1" "datanode$1" "$here/hdfs.sh" datanode "$root" 0 "dfs.datanode.data.dir=file://$root/data$1"; }
for ((i = 1; i <= nodes; i++)); do datanode "$i"; done
wait_for look status /
wait_for live
head -c "$((mib << 20))" /dev/urandom >"$work/file"
# A folder for files under the policy. HDFS warns that full placement wants more racks; that goes with the output.
striped() {
    hdfs client "$root" fs -mkdir "$1"
    hdfs client "$root" ec -enablePolicy -policy "$policy" >/dev/null
    hdfs client "$root" ec -setPolicy -path "$1" -policy "$policy" >/dev/null
}
[ -n "$code" ] || striped /demo
# Stores the file, in the place of the one before: HDFS chooses anew which DataNode is left over for each group.
store() {
    local blocks=$(((mib + k * block_mib - 1) / (k * block_mib) * (k + m)))
    if [ -n "$code" ]; then
        look store put "$work/file" /demo/file --code "$code" --block "${block_mib}MiB" >/dev/null
    else
        hdfs client "$root" fs "-Ddfs.blocksize=$((block_mib << 20))" -put "$work/file" /demo/file
    fi
    wait_for stored "$blocks"
}
all_files() { for ((i = 1; i <= nodes; i++)); do block_files "$i"; done; }
stored() { [ "$(all_files | wc -l)" = "$1" ] && look status /demo; }
again() {
    hdfs client "$root" fs -rm -r -skipTrash /demo/file >/dev/null
    wait_for stored 0
    store
    sleep 7 # the watch scans
}
# Records of objects are smaller.
block_files() { find "$root/data$1" -path '*/finalized/*' -name 'blk_*' ! -name '*.meta' -size +900k 2>/dev/null; }
blocks_on() { block_files "$1" | wc -l; }
store
sum=$(sha256sum <"$work/file")
say "stored $mib MiB under ${code:-$policy}, internal blocks of at most $block_mib MiB; HDFS calls a DataNode dead after $((recheck_ms / 500 + 30)) s"
start 0 watch "$kintsu" --json hdfs --namenode "$namenode:9000" --user root watch /demo --scan 5s
wait_for told 0 '"event":"at-risk"'

# Whether no block is there twice.
trimmed() {
    local twice
    twice=$(all_files | sed 's|.*/||' | sort | uniq -d)
    [ -z "$twice" ] || { echo "there twice:" $twice; return 1; }
    look status /demo
}
agent() {
    start "$1" "agent$1" env "KINTSU_TOKEN=$token" "KINTSU_COORDINATOR=$namenode:7500" "$kintsu" --json hdfs agent \
        --dir "$root/agent$1" --datanode "10.77.1.$(($1 + 1)):9010" --data-dir "$root/data$1" \
        --listen "10.77.1.$(($1 + 1)):7501" --listen-data "10.77.1.$(($1 + 1)):7502" --trusted-network 10.77.0.0/16
}
# A coordinator for a method (and a folder), and an agent beside each DataNode.
agents() {
    local more=()
    [ "${1%+report}" = "$1" ] || more=(--report-after 10s)
    start 0 coordinator env "KINTSU_TOKEN=$token" "$kintsu" --json hdfs --namenode "$namenode:9000" --user root \
        coordinator "${2:-/demo}" --listen "$namenode:7500" --trusted-network 10.77.0.0/16 --method "${1%+report}" --scan 2s "${more[@]}"
    wait_for test -s "$work/coordinator.out"
    for ((i = 1; i <= nodes; i++)); do agent "$i"; done
    for ((i = 1; i <= nodes; i++)); do wait_for test -s "$work/agent$i.out"; done
    sleep 6 # the coordinator waits for agents, and scans
}
# Bytes that each host has received and sent, a line a host, and what went out of all racks; and what was moved since: MiB in all, the
# most on one link one way, and out of racks. Some programs awk print at most 2 GiB with %d.
traffic() {
    local i
    # shellcheck disable=SC2016
    for ((i = 0; i <= nodes; i++)); do
        on "$i" awk 'NR > 2 && $1 != "lo:" { in_bytes += $2; out += $10 } END { printf "%.0f %.0f\n", in_bytes, out }' /proc/net/dev
    done >"$work/traffic$1"
    # shellcheck disable=SC2016
    "$kintsu" lab exec "$lab" -- awk '$1 ~ /^r[0-9]+up:$/ { out += $10 } END { printf "%.0f\n", out }' /proc/net/dev >"$work/between$1"
}
moved() {
    paste "$work/traffic0" "$work/traffic1" | awk -v between=$(($(cat "$work/between1") - $(cat "$work/between0"))) '
        { got = $3 - $1; sent = $4 - $2; sum += got; if (got > most) most = got; if (sent > most) most = sent }
        END { printf "%.0f %.0f %.0f\n", sum / 1048576, most / 1048576, between / 1048576 }'
}
no_agents() {
    for ((i = 1; i <= nodes; i++)); do stop TERM "agent$i"; done
    stop TERM coordinator
    sleep 1
    : >"$work/coordinator.out"
    for ((i = 1; i <= nodes; i++)); do : >"$work/agent$i.out"; done
}
# The DataNode $1 comes back, and HDFS drops one of each two copies.
back() {
    datanode "$1"
    wait_for live
    wait_for trimmed
}

declare -A after=() since=() needed=() counted=()
own_ms=630000
# What all rows end with where there are racks.
out_of_racks() { if [ "$racks" = 1 ]; then echo; else printf ' %12s\n' "$1"; fi; }
printf '%-14s %7s %12s %14s %14s %14s %20s %10s %12s' "${code:-$policy}" blocks 'seen after' 'rebuilt after' 'HDFS knows' \
    'all counted' 'counted since known' 'MiB moved' 'on one link'
out_of_racks 'out of racks'
for method in $methods; do
    [ "$method" = "${methods%% *}" ] || again
    victim=1
    for ((i = 2; i <= nodes; i++)); do [ "$(blocks_on "$i")" -le "$(blocks_on "$victim")" ] || victim=$i; done
    lost=$(blocks_on "$victim")
    alone=
    [ "$method" != stock ] && [ "$method" != here ] || alone=yes
    [ -n "$alone" ] || agents "$method"
    # The watch began at its start; what the clock said then is found from a first event.
    from=$(lines)
    traffic 0
    stop KILL "datanode$victim"
    killed=$(date +%s%3N)
    wait_for told "$from" '"event":"gone"'
    seen=$(date +%s%3N) seen_at=$(at "$from" '"event":"gone"')
    killed_at=$((seen_at - (seen - killed)))
    rebuilt=-
    if [ -z "$alone" ]; then
        wait_for staged "$lost"
        after[$method]=$(($(date +%s%3N) - killed))
        rebuilt=$(seconds "${after[$method]}")
        traffic 1
    elif [ "$method" = here ]; then
        patience=$((recheck_ms / 50 + 3000)) wait_for told "$from" '"missing":[1-9]'
        traffic 0
        look store repair /demo >/dev/null
        traffic 1
    fi
    patience=$((recheck_ms / 50 + 3000)) wait_for told "$from" '"event":"whole"'
    counted[$method]=$(($(at "$from" '"event":"whole"') - killed_at)) knows=- took=-
    if told "$from" '"missing":[1-9]'; then
        knows=$(($(at "$from" '"missing":[1-9]') - killed_at))
        since[$method]=$((counted[$method] - knows))
        knows=$(seconds "$knows") took=$(seconds "${since[$method]}")
    elif [ "${method%+report}" = "$method" ]; then
        # All of it between two looks of the watch, which are a second apart and take less than another one.
        since[$method]=2000 took='< 2.0 s'
    fi
    needed[$method]=$took
    [ "$method" != stock ] || traffic 1
    read -r all most between < <(moved)
    printf '%-14s %7d %12s %14s %14s %14s %20s %10d %12d' "$method" "$lost" "$(seconds $((seen_at - killed_at)))" "$rebuilt" \
        "$knows" "$(seconds "${counted[$method]}")" "$took" "$all" "$most"
    out_of_racks "$between"
    [ -n "$alone" ] || no_agents
    back "$victim"
done
rm "$work/file"
if [ -n "${since[stock]:-}" ] && [ -n "${since[auto]:-}" ]; then
    say "from the moment when HDFS knows until all are counted: HDFS ${needed[stock]}, auto ${needed[auto]}," \
        "$(times "${since[stock]}" "${since[auto]}") times"
fi
if [ -n "${since[stock]:-}" ]; then
    # A DataNode that HDFS calls dead after its own interval takes HDFS as long to repair as one that it calls dead earlier.
    stock=$((own_ms + since[stock])) how="$((own_ms / 1000)) s and what it took here"
    [ "$recheck_ms" != 300000 ] || stock=${counted[stock]} how='measured'
    say "from the kill, with HDFS's own interval: HDFS has all blocks after $(seconds "$stock") ($how)"
    for method in auto auto+report; do
        [ -n "${after[$method]:-}" ] || continue
        say "  $method has them after $(seconds "${after[$method]}"), $(times "$stock" "${after[$method]}") times earlier"
    done
    [ -z "${counted[auto+report]:-}" ] || say "  auto+report: and HDFS counts them after $(seconds "${counted[auto+report]}")," \
        "$(times "$stock" "${counted[auto+report]}") times earlier"
fi

if [ -n "$code" ] && [ -n "${after[conventional]:-}" ] && [ -n "${after[pipeline]:-}" ]; then
    say "rebuilt after the kill: pipeline $(times "${after[conventional]}" "${after[pipeline]}") times as fast as conventional, of which" \
        "the detection is a part. Published: OpenEC on a changed HDFS 3, full-node recovery by pipelines 1.8 to 2.3 times as fast as without" \
        "(Fig. 11b: RS(8,6) to RS(12,10), three racks)"
fi
healthy() {
    hdfs client "$root" fsck /demo | grep -q 'is HEALTHY' || { say "fsck does not say HEALTHY"; exit 1; }
    say "$1 (SHA-256 ${sum%% *}), fsck says HEALTHY; load of this machine: $(load)"
}
if [ -n "$code" ] && [ "$reads" = no ]; then
    [ "$(look store get /demo/file - | sha256sum)" = "$sum" ] || { say "the object was changed"; exit 1; }
    healthy "the object is as it was"
    exit 0
fi

# Degraded reads. Neither side may rebuild what is lost before both have read it: HDFS goes on with its own interval, and calls the
# DataNode dead after 630 s. The coordinator repairs nothing: it looks at an empty folder.
stop KILL namenode
# It begins as HDFS's own NameNodes do, 30 s after enough blocks are known: one that does not wait rebuilds what a DataNode reports last.
start 0 namenode "$here/hdfs.sh" namenode "$root" 1 dfs.namenode.heartbeat.recheck-interval=300000 dfs.namenode.safemode.extension=30000
wait_for live
hdfs client "$root" admin -safemode wait >/dev/null
wait_for trimmed
hdfs client "$root" fs -mkdir /empty
agents auto /empty

# Milliseconds that something takes.
took() {
    local began
    began=$(date +%s%3N)
    "$@" >/dev/null 2>"$work/took.err" || { say "$*: $(cat "$work/took.err")"; exit 1; }
    echo $(($(date +%s%3N) - began))
}
# A row: HDFS's own client, without its start, and Kintsu's whole process.
beside() {
    local own=$(($2 - start_ms))
    printf '%-44s %10s %10s %8.2f %10s\n' "$1" "$(seconds "$own")" "$(seconds "$3")" "$(awk "BEGIN{print $own / $3}")" "$4"
}
reading() { took on 0 env "KINTSU_TOKEN=$token" "KINTSU_COORDINATOR=$namenode:7500" "$kintsu" hdfs --namenode "$namenode:9000" --user root store get "$@"; }
same() { [ "$(sha256sum <"$work/got")" = "$right" ] || { say "other bytes were read"; exit 1; }; rm "$work/got"; }
# The hosts of the first blocks of an object.
hosts() { look --json store stat "$1" | grep -o '"places":.*' | grep -o '10\.77\.1\.[0-9]*:' | head -n "$2" | sed 's/.*\.\([0-9]*\):/\1/'; }
lose() {
    from=$(lines)
    stop KILL "datanode$1"
    wait_for told "$from" '"event":"gone"'
}
objects() {
    local bytes=$((k * (block_mib << 20))) i victim own_put own_get own_lost put got lost here_ms chain_ms
    head -c "$bytes" /dev/urandom >"$work/one"
    right=$(sha256sum <"$work/one")
    hdfs client "$root" fs -mkdir /logs
    striped /own
    start_ms=$(took hdfs client "$root" fs -ls /)
    own_put=$(took hdfs client "$root" fs "-Ddfs.blocksize=$((block_mib << 20))" -put "$work/one" /own/one)
    put=$(took look store put "$work/one" /one --code "$code" --block "${block_mib}MiB")
    own_get=$(took hdfs client "$root" fs -get /own/one "$work/got") && same
    got=$(reading /one "$work/got") && same
    hdfs client "$root" fs "-Ddfs.blocksize=$((block_mib << 20))" -put "$work/one" /logs/one
    look store encode /logs/one --code "$code" >/dev/null
    wait_for trimmed
    # A DataNode with a data block of both.
    victim=
    for i in $(hosts /one "$k"); do
        while read -r file; do
            [ $((${file##*/blk_} & 15)) -ge "$k" ] || victim=$((i - 1))
        done < <(block_files $((i - 1)) | grep 'blk_-')
    done
    lose "$victim"
    own_lost=$(took hdfs client "$root" fs -get /own/one "$work/got") && same
    lost=$(reading /one "$work/got") && same
    printf '%-44s %10s %10s %8s %10s\n' "one client, a file of $((bytes >> 20)) MiB" "HDFS" "object" "times" "OpenEC"
    beside write "$own_put" "$put" 0.98
    beside read "$own_get" "$got" 1.03
    beside 'read without one DataNode' "$own_lost" "$lost" 1.04
    say "times: as fast as HDFS's own client under $policy (without its start; Kintsu's whole process). OpenEC: the published rates of one client" \
        "beside HDFS 3's (Fig. 7a: RS(9,6), 384 MiB, 10 Gb/s, a changed HDFS)"
    back "$victim"
    victim=$(($(hosts /logs/one 1) - 1))
    right=$(head -c "$((block_mib << 20))" "$work/one" | sha256sum)
    lose "$victim"
    here_ms=$(reading /logs/one "$work/got" --range "0-$(((block_mib << 20) - 1))") && same
    chain_ms=$(reading /logs/one "$work/got" --range "0-$(((block_mib << 20) - 1))" --agents) && same
    printf '%-58s %10s\n' "$code: a lost block of $block_mib MiB of an encoded file" time \
        'kintsu hdfs store get, which decodes (whole process)' "$(seconds "$here_ms")" \
        'kintsu hdfs store get --agents (whole process)' "$(seconds "$chain_ms")"
    say "$(times "$here_ms" "$chain_ms") times faster. Published: OpenEC's repair pipelining for RS(9,6), theory 6 times, measured slightly less" \
        "(Table 2, Fig. 10c, 1 Gb/s)"
    no_agents
    back "$victim"
    [ "$(look store get /demo/file - | sha256sum)" = "$sum" ] || { say "the object was changed"; exit 1; }
    healthy "the object is as it was"
}
if [ -n "$code" ]; then
    objects
    exit 0
fi
find "$root" -path '*/finalized/*' -name 'blk_-*' ! -name '*.meta' -size "+$(((block_mib << 10) - 1))k" >"$work/blocks"
first=$(sed 's|.*/blk_||' "$work/blocks" | sort -n | head -n 1)
first=$((first & ~15))
while read -r lost; do
    id=${lost##*/blk_}
    [ $((id & 15)) -ge "$k" ] || break
done <"$work/blocks"
victim=${lost#"$root/data"}
victim=${victim%%/*}
group=$((((id & ~15) - first) / 16)) index=$((id & 15)) bytes=$(stat -c %s "$lost")
right=$(sha256sum <"$lost")
from=$(lines)
stop KILL "datanode$victim"
wait_for told "$from" '"event":"gone"'
# HDFS's own client: a block that is there as a warm-up, then the lost one; four cells at once, and one after the other.
stock_ms=999999999
on 0 "$here/hdfs.sh" client "$root" "$here/HdfsReadBlock.java" /demo/file "$cell_bytes" "$k" "$group" $(((index + 1) % k)) "$bytes" 4 \
    "$group" "$index" "$bytes" 4 "$group" "$index" "$bytes" 1 >"$work/read.out" 2>"$work/read.err" || true
while read -r ms got; do
    [ "$got" = "${right%% *}" ] || { say "HDFS's own client read other bytes than those of the lost block"; exit 1; }
    [ "$ms" -ge "$stock_ms" ] || stock_ms=$ms
done < <(tail -n +2 "$work/read.out")
[ "$(wc -l <"$work/read.out")" = 3 ] || { say "HDFS's own client did not read the lost block: $(tail -n 3 "$work/read.err")"; exit 1; }
# Kintsu: the whole process.
kintsu_read() {
    local ms
    # shellcheck disable=SC2016
    ms=$(on 0 env "KINTSU_TOKEN=$token" "KINTSU_COORDINATOR=$namenode:7500" bash -c \
        'began=$(date +%s%3N); "$@" >&2; echo $(($(date +%s%3N) - began))' - "$kintsu" hdfs --namenode "$namenode:9000" --user root \
        get /demo/file "$work/block" --block "blk_$id" "$@" 2>"$work/read.err") || { say "$(cat "$work/read.err")"; exit 1; }
    [ "$(sha256sum <"$work/block")" = "$right" ] || { say "the block that was read is wrong: $(cat "$work/read.err")"; exit 1; }
    grep -q "$expected" "$work/read.err" || { say "expected $expected, got $(cat "$work/read.err")"; exit 1; }
    rm "$work/block"
    echo "$ms"
}
chain_ms=$(expected='1 of 1 block groups read degraded, 1 by agents' kintsu_read --agents)
here_ms=$(expected='1 of 1 block groups read degraded, 0 by agents' kintsu_read)
if told "$from" '"missing":[1-9]'; then
    say "HDFS knew of the loss before the reads were over, so they were not all degraded: this machine is too busy"
    exit 1
fi
printf '%-58s %10s\n' "$policy: a lost block of $((bytes >> 20)) MiB, read degraded" time
printf '%-58s %10s\n' "HDFS's own client (best of 2; without its start)" "$(seconds "$stock_ms")" \
    'kintsu hdfs get, which decodes (whole process)' "$(seconds "$here_ms")" \
    'kintsu hdfs get --agents (whole process)' "$(seconds "$chain_ms")"
say "$(times "$stock_ms" "$chain_ms") times faster; the bytes are equal"
no_agents
back "$victim"

got=$(hdfs client "$root" fs -cat /demo/file | sha256sum)
[ "$got" = "$sum" ] || { say "the file was changed"; exit 1; }
healthy "the file is as it was by a stock client"

# Ours beside what was published, as ratios: other machines, with faster links.
compare() { printf '%-66s %8s   %s\n' "$@"; }
link_ms=$(awk -v rate="$rate" -v bytes="$bytes" 'BEGIN { unit["K"] = 1e3; unit["M"] = 1e6; unit["G"] = 1e9
    match(rate, /[KMG]/); print bytes * 8000 / (rate * unit[substr(rate, RSTART, 1)]) }')
compare "$policy, links of $rate, this HDFS unchanged" ours 'published (a changed HDFS; 1 Gb/s, 64 MiB)'
if [ -n "${since[stock]:-}" ] && [ -n "${since[auto]:-}" ]; then
    compare 'a DataNode, from when HDFS knows: HDFS / auto' "$(times "${since[stock]}" "${since[auto]}")" \
        "5.1 to 16.0: ECPipe, full-node recovery, HDFS 3.1.1 (TOS'21, section 6.3)"
fi
if [ -n "${after[conventional]:-}" ] && [ -n "${after[pipeline]:-}" ]; then
    compare 'a DataNode, from the kill until rebuilt: conventional / pipeline' "$(times "${after[conventional]}" "${after[pipeline]}")" \
        "1.8 to 2.3: OpenEC, full-node recovery, HDFS 3, three racks (FAST'19, Fig. 11b)"
fi
compare "a lost block: HDFS's client / get --agents" "$(times "$stock_ms" "$chain_ms")" \
    "5.8 to 11.4: ECPipe, HDFS-RAID, whose times were like HDFS 3's (TOS'21, section 6.3)"
compare 'a lost block: get (decodes) / get --agents' "$(times "$here_ms" "$chain_ms")" \
    "nearly 6 with k = 6: OpenEC, HDFS 3 (FAST'19, Fig. 10c, Table 2)"
compare 'a lost block: get --agents / its bits at the rate of a link' "$(times "$chain_ms" "$link_ms")" \
    "1.15: ECPipe alone, k = 10 (TOS'21, Fig. 8a: 8.8% above 0.57 s)"
