#!/usr/bin/env bash
# Writes and reads files of a stock HDFS for a while, while DataNodes are killed and come back, and Kintsu rebuilds their blocks:
#
#   scripts/hdfs-soak.sh MINUTES [SECONDS_BETWEEN_KILLS]
#
# A NameNode and 9 DataNodes on loopback, HDFS's own repair on as it always is; a coordinator of Kintsu, an agent beside each
# DataNode, and a watch. Two writers put files under RS-3-2-1024k, two readers take a random file by a stock client or by
# `kintsu hdfs get` and compare SHA-256. Each time a random DataNode is killed (SIGKILL) or one comes back; at most two are away. At
# the end all come back: no file may be lost or different, no internal block may be missing or on two disks, and
# `kintsu hdfs verify` must find nothing.
#
# The program is KINTSU_BIN, or the one of a release build; HDFS_VERSION chooses the release of HDFS. SOAK_SEED chooses sizes
# and DataNodes. Ends with 0 if all of that holds, and leaves nothing behind; else it keeps the folder with all logs. That of the NameNode
# (namenode.err) has the changes of blocks: what was reported, called excess, and deleted where.
set -euo pipefail
minutes=${1:?"expected: scripts/hdfs-soak.sh MINUTES [SECONDS_BETWEEN_KILLS]"}
every=${2:-20}
here=$(realpath "$(dirname "$0")")
program=$(realpath "${KINTSU_BIN:-$here/../${CARGO_TARGET_DIR:-target}/release/kintsu}")
nodes=9 policy=RS-3-2-1024k patience=600 users="writer1 writer2 reader1 reader2"
folder=$(mktemp -d)
root=$folder/hdfs
seed=${SOAK_SEED:-1}
RANDOM=$seed
HADOOP_USER_NAME=$(id -un)
export HADOOP_USER_NAME
unset KINTSU_TOKEN
declare -A pids=()

say() { echo "$(date +%T) $*"; }
fail() { say "FAILED: $*" >&2; exit 1; }
# Starts a process in the background under a name; its output is appended to the name's logs.
start() {
    local name=$1
    shift
    "$@" >>"$folder/$name.out" 2>>"$folder/$name.err" </dev/null &
    pids[$name]=$!
}
# Ends a process by a signal, and waits for it.
end() {
    local name=$1 signal=$2
    [ -n "${pids[$name]:-}" ] || return 0
    kill "-$signal" "${pids[$name]}" 2>/dev/null || true
    wait "${pids[$name]}" 2>/dev/null || true
    unset "pids[$name]"
}
finish() {
    local status=$? name
    trap - EXIT
    touch "$folder/over"
    for name in $users; do end "$name" TERM; done
    for name in "${!pids[@]}"; do end "$name" KILL; done
    if [ "$status" = 0 ]; then rm -rf "$folder"; else echo "the logs are in $folder" >&2; fi
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

# Waits until a command succeeds.
until_done() {
    local what=$1 until=$((SECONDS + patience))
    shift
    while ! "$@" >"$folder/last" 2>&1; do
        [ "$SECONDS" -lt "$until" ] || fail "waited in vain for $what: $(tail -n 3 "$folder/last")"
        sleep 0.5
    done
}

hdfs() { "$here/hdfs.sh" client "$root" "$@"; }
kintsu() { "$program" hdfs --namenode "127.0.0.1:$port" "$@"; }
# HDFS does not know at once that one was killed, so each must listen too.
live() {
    local i
    [ "$(hdfs admin -report -live | grep -c '^Name:')" = "$nodes" ] || return 1
    for ((i = 0; i < nodes; i++)); do : </dev/tcp/127.0.0.1/$((port + 10 + 3 * i)) || return 1; done
}
datanode() { start "datanode$1" "$here/hdfs.sh" datanode "$root" "$1"; }
digest() { sha256sum | cut -d' ' -f1; }

# Puts one file after the other; the names and digests of those that HDFS has taken go to the list. Puts that fail because too
# many DataNodes went away under them are not on it. $1: the number of the writer.
write_files() {
    local name number=0 bytes new=$folder/new$1
    RANDOM=$((seed + $1))
    while [ ! -e "$folder/over" ]; do
        number=$((number + 1)) bytes=$((RANDOM * 500 + RANDOM)) name=$1-$number
        head -c "$bytes" /dev/urandom >"$new"
        if hdfs fs -Ddfs.blocksize=4194304 -put "$new" "/soak/$name"; then
            echo "$name $(digest <"$new")" >>"$folder/list"
        else
            echo "$name" >>"$folder/refused"
            hdfs fs -rm -f -skipTrash "/soak/$name" "/soak/$name._COPYING_" || true
        fi
    done
}

# Reads one random file after the other. A failed read is tried again, because a DataNode may go while it serves; what is
# delivered is never wrong. $1: the number of the reader.
read_files() {
    local name sum got try to=$folder/got$1
    while [ ! -e "$folder/over" ]; do
        read -r name sum < <(shuf -n 1 "$folder/list") || { sleep 1; continue; }
        for try in 1 2 3 4 5 6; do
            if [ $((RANDOM % 3)) = 0 ]; then
                hdfs fs -cat "/soak/$name" >"$to" && break
            else
                kintsu get "/soak/$name" "$to" >/dev/null && break
            fi
            echo "$name $try" >>"$folder/retries"
            [ "$try" -lt 6 ] || { echo "$name cannot be read" >>"$folder/wrong"; return 1; }
            sleep 2
        done
        got=$(digest <"$to")
        [ "$got" = "$sum" ] || { echo "$name: expected $sum, got $got" >>"$folder/wrong"; return 1; }
        echo "$name" >>"$folder/reads"
        rm -f "$to"
    done
}
count() { if [ -e "$folder/$1" ]; then wc -l <"$folder/$1"; else echo 0; fi; }
told() { grep -c "\"event\":\"$1\"" "$folder/coordinator.out" || true; }
block_files() { find "$root"/data* -path '*/finalized/*' -name 'blk_-*' ! -name '*.meta' -printf '%f\n' 2>/dev/null; }
once() { [ -z "$(block_files | sort | uniq -d)" ]; }
whole() { kintsu status /soak && once; }

"$here/hdfs.sh" fetch >/dev/null
# The first of enough ports that nobody listens on.
port=$(python3 - "$((12 + 3 * nodes))" <<'PYTHON'
import random, socket, sys
count = int(sys.argv[1])
while True:
    first = random.randrange(20000, 32000)
    try:
        held = [socket.create_server(("127.0.0.1", first + i)) for i in range(count)]
    except OSError:
        continue
    print(first)
    break
PYTHON
)
# HDFS forgets deletions that it had told a DataNode which was killed then, and tells them again after an hour (HDFS-17218); here it does so
# after 30 s, as its other times are shorter too.
"$here/hdfs.sh" prepare "$root" "$port" dfs.namenode.excess.redundancy.timeout-sec=30 \
    dfs.heartbeat.interval=1 dfs.namenode.heartbeat.recheck-interval=500 \
    dfs.namenode.redundancy.interval.seconds=1s dfs.blockreport.intervalMsec=10000 >/dev/null
# Its log explains a block that is on two disks. Only the NameNode logs under this name; what it calls excess and has deleted, it tells
# at this level only.
echo 'log4j.logger.BlockStateChange=DEBUG' >>"$root/conf/log4j.properties"
start namenode "$here/hdfs.sh" namenode "$root"
for ((i = 0; i < nodes; i++)); do datanode "$i"; done
until_done "the DataNodes" live
hdfs fs -mkdir /soak
hdfs ec -setPolicy -path /soak -policy "$policy" >/dev/null
touch "$folder/list"
start coordinator "$program" --json hdfs --namenode "127.0.0.1:$port" coordinator /soak --listen 127.0.0.1:0 --scan 2s
until_done "the coordinator" test -s "$folder/coordinator.out"
coordinator=$(sed -n '1s/.*"listen":"\([^"]*\)".*/\1/p' "$folder/coordinator.out")
for ((i = 0; i < nodes; i++)); do
    start "agent$i" "$program" --json --coordinator "$coordinator" hdfs agent --dir "$folder/agent$i" \
        --datanode "127.0.0.1:$((port + 10 + 3 * i))" --data-dir "$root/data$i"
done
for ((i = 0; i < nodes; i++)); do until_done "agent $i" test -s "$folder/agent$i.out"; done
start watch "$program" --json hdfs --namenode "127.0.0.1:$port" watch /soak --scan 5s
say "HDFS with $nodes DataNodes at 127.0.0.1:$port, an agent beside each; $minutes minutes"
for i in 1 2; do
    start "writer$i" write_files "$i"
    start "reader$i" read_files "$i"
done

ends=$((SECONDS + minutes * 60)) kills=0
away=()
while [ "$SECONDS" -lt "$ends" ]; do
    sleep $((every / 2 + RANDOM % every))
    [ ! -e "$folder/wrong" ] || fail "$(cat "$folder/wrong")"
    for name in coordinator watch namenode $users; do
        kill -0 "${pids[$name]}" 2>/dev/null || fail "$name has ended: $(tail -n 3 "$folder/$name.err")"
    done
    if [ "${#away[@]}" = 2 ] || { [ "${#away[@]}" = 1 ] && [ $((RANDOM % 2)) = 0 ]; }; then
        victim=${away[0]}
        away=("${away[@]:1}")
        datanode "$victim"
        say "DataNode $victim comes back; $(count list) files written, $(count reads) reads, $(told counted) blocks handed over"
    else
        victim=$((RANDOM % nodes))
        [[ " ${away[*]} " != *" $victim "* ]] || continue
        end "datanode$victim" KILL
        away+=("$victim")
        kills=$((kills + 1))
        say "DataNode $victim killed"
    fi
done

touch "$folder/over"
for name in $users; do
    wait "${pids[$name]}" || fail "$name: $(cat "$folder/wrong" 2>/dev/null) $(tail -n 3 "$folder/$name.err")"
    unset "pids[$name]"
done
for victim in "${away[@]}"; do datanode "$victim"; done
say "all come back"
until_done "all DataNodes" live
until_done "each internal block to be there once" whole
# Nothing may change that any more.
for ((i = 0; i < nodes; i++)); do end "agent$i" TERM; done
end coordinator TERM
until_done "each internal block to be there once, without Kintsu" whole
kintsu verify /soak >"$folder/verify" || fail "$(cat "$folder/verify")"
hdfs fsck /soak | grep -q 'is HEALTHY' || fail "fsck does not say HEALTHY"
mkdir "$folder/files"
hdfs fs -get '/soak/*' "$folder/files" 2>>"$folder/get.err" || true
while read -r name sum; do
    [ "$(digest <"$folder/files/$name")" = "$sum" ] || fail "/soak/$name is lost or different"
done <"$folder/list"
say "$minutes minutes, $kills kills, $(count list) files written ($(count refused) refused), $(count reads) reads ($(count retries) tried" \
    "again), $(told staged) blocks rebuilt and $(told counted) handed over by Kintsu: no file lost, no wrong byte, no index twice"
