#!/usr/bin/env bash
# Upgrades a cluster of an earlier release to this one, process by process, and shows that it works all the time:
#
#   scripts/upgrade.sh [COMMIT]          the program of COMMIT (069b7cc if none is named) is the earlier release
#   ORDERS=coordinator scripts/upgrade.sh    only one of the orders `agents` and `coordinator`: who goes first
#
# The earlier program is built from git once (some minutes) and kept in target/upgrade/COMMIT. This release's is KINTSU_BIN, or that
# of a debug build. After each step: every object is read, also without another node, some are written (a large one, a small one alone,
# and small ones that share a stripe, if the program that stores them knows packs), and all blocks are verified. At the end the small
# objects are gathered (`kintsu repack`), and a node is lost for good and repaired. The first thing that is not as it should be ends the
# script.
set -euo pipefail
repository=$(realpath "$(dirname "$0")/..")
commit=${1:-069b7cc}
target=$repository/${CARGO_TARGET_DIR:-target}
[[ ${CARGO_TARGET_DIR:-} != /* ]] || target=$CARGO_TARGET_DIR
new=$(realpath "${KINTSU_BIN:-$target/debug/kintsu}")
kept=$target/upgrade/$commit
old=$kept/target/debug/kintsu
nodes=8

if [ ! -x "$old" ]; then
    echo "== building the program of $commit into $kept"
    mkdir -p "$kept/source"
    git -C "$repository" archive "$commit" | tar -x -C "$kept/source"
    (cd "$kept/source" && CARGO_TARGET_DIR=$kept/target cargo build --locked -p kintsu)
fi

export KINTSU_LOG=error LC_ALL=C
unset KINTSU_TOKEN KINTSU_COORDINATOR
folder=
declare -A pids programs
stop_all() {
    for who in "${!pids[@]}"; do kill -9 "${pids[$who]}" 2>/dev/null || true; done
    for who in "${!pids[@]}"; do wait "${pids[$who]}" 2>/dev/null || true; done
    pids=()
}
finish() {
    stop_all
    [ -z "$folder" ] || rm -rf "$folder"
}
trap finish EXIT

fail() {
    echo "FAILED: $*" >&2
    for log in "$folder"/*.log; do tail -n 5 "$log" | sed "s#^#$(basename "$log"): #" >&2; done
    exit 1
}

# Repeats a command until it succeeds, for two minutes at most.
until_true() {
    for _ in $(seq 600); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.2
    done
    fail "gave up waiting for: $*"
}

# The client of the coordinator's release: a newer one is refused.
client() { "${programs[coordinator]}" --coordinator "$address" "$@"; }

# What the coordinator says of a node, by a key of its JSON.
of_node() {
    client --json nodes | python3 -c "
import json, sys
node = next(node for node in json.load(sys.stdin) if node['id'] == $1)
print(node.get('$2', 'unknown'))"
}

is() { [ "$(of_node "$1" "$2")" = "$3" ]; }

start_coordinator() {
    programs[coordinator]=$1
    # Long enough that no node that is away for a step is repaired by itself.
    "$1" coordinator --dir "$folder/coordinator" --listen "$address" --grace 10m >>"$folder/coordinator.log" 2>&1 &
    pids[coordinator]=$!
}

start_agent() {
    programs[$1]=$2
    "$2" agent --dir "$folder/agent$1" --id "$1" --rack $(($1 % 3)) --coordinator "$address" >>"$folder/agent$1.log" 2>&1 &
    pids[$1]=$!
}

# Ends a process: by this signal.
end() {
    kill "-$2" "${pids[$1]}"
    wait "${pids[$1]}" 2>/dev/null || true
    unset "pids[$1]"
}

all_alive() {
    for node in $(seq 0 $((nodes - 1))); do is "$node" state "${1:-alive}" || return 1; done
}

read_all() {
    local name
    while read -r name; do
        client get "$name" "$folder/read" >"$folder/said" 2>&1 || fail "$1: reading $name: $(cat "$folder/said")"
        cmp "$folder/objects/${name//\//_}" "$folder/read" || fail "$1: $name has other bytes"
    done <"$folder/names"
}

store() {
    head -c "$3" /dev/urandom >"$folder/objects/$1"
    client put "$folder/objects/$1" "$1" --code "$2" "${@:4}" >"$folder/said" 2>&1 || fail "storing $1: $(cat "$folder/said")"
    echo "$1" >>"$folder/names"
}

# Stores a folder of small objects, which share a stripe. Programs before version 13 of the protocol do not know that.
store_packed() {
    [ "$protocol" -ge 13 ] || [ "${programs[coordinator]}" = "$new" ] || return 0
    local files=$folder/packed i
    rm -rf "$files"
    mkdir "$files"
    for i in $(seq 6); do
        head -c $((i * 700)) /dev/urandom >"$files/$i"
        cp "$files/$i" "$folder/objects/$1_$i"
    done
    client put "$files" "$1" --code rs:n=6,k=4 >"$folder/said" 2>&1 || fail "storing $1: $(cat "$folder/said")"
    for i in $(seq 6); do echo "$1/$i" >>"$folder/names"; done
}

# Small objects that lie alone become packs.
repack() {
    sleep 1
    client --json repack --older-than 1s --least 2 >"$folder/said" 2>&1 || fail "repack: $(cat "$folder/said")"
    python3 -c "
import json, sys
moved = json.load(open(sys.argv[1]))
assert moved['objects'] > 0 and not moved['failed'], moved
print('   gathered:', moved['objects'], 'small objects of', moved['stripes_freed'], 'stripes in', moved['packs'], 'packs')" "$folder/said" ||
        fail "repack: $(cat "$folder/said")"
    read_all repacked
}

# A volume is written and read where that is allowed, and refused in words where an older agent would misunderstand it.
try_volume() {
    local said=$folder/said older="" node
    for node in $(seq 0 $((nodes - 1))); do [ "${programs[$node]}" = "$new" ] || older=$protocol; done
    # Volumes of that release are not those of today.
    [ "$protocol" -ge 10 ] || [ "${programs[coordinator]}" = "$new" ] || return 0
    client volume create disk --size 1MiB --code rs:n=6,k=4 --block 4096 >"$said" 2>&1 || grep -q taken "$said" ||
        fail "making a volume: $(cat "$said")"
    head -c 65536 /dev/urandom >"$folder/part"
    if [ "${older:-10}" -ge 10 ]; then
        client volume write disk --offset 8192 --take <"$folder/part" >"$said" 2>&1 || fail "writing a volume: $(cat "$said")"
        read_volume "before a commit"
        client volume commit disk >"$said" 2>&1 || fail "committing a volume: $(cat "$said")"
        read_volume "after a commit"
        volumes="written and read"
    else
        ! client volume write disk --take <"$folder/part" >"$said" 2>&1 || fail "a volume was written beside agents of version $older"
        grep -q 'expected agents of version' "$said" || fail "no words for a volume beside older agents: $(cat "$said")"
        volumes="refused in words"
    fi
}

read_volume() {
    client volume read disk --offset 8192 --length 65536 >"$folder/read" 2>"$folder/said" ||
        fail "reading a volume $1: $(cat "$folder/said")"
    cmp "$folder/part" "$folder/read" || fail "$1 the volume has other bytes"
}

step=0
# All that must hold after a step.
check() {
    step=$((step + 1))
    volumes="not tried"
    until_true all_alive
    read_all "$1"
    store "during-$step" rs:n=6,k=4 300000
    store "alone-$step" rs:n=6,k=4 1000
    store_packed "packed-$step"
    # Without a node whose turn is another time.
    local without=$(((step + 3) % nodes))
    end "$without" KILL
    read_all "$1, without node $without"
    start_agent "$without" "${programs[$without]}"
    until_true all_alive
    client --json scrub >"$folder/said" 2>&1 || fail "$1: scrub: $(cat "$folder/said")"
    try_volume
    echo "   $1: $(wc -l <"$folder/names") objects read, also without node $without; scrubbed; volumes $volumes"
}

play() {
    folder=$(mktemp -d)
    mkdir "$folder/objects"
    address=127.0.0.1:$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    step=0
    echo "== $1 first: $commit to this release, $nodes nodes"
    start_coordinator "$old"
    for node in $(seq 0 $((nodes - 1))); do start_agent "$node" "$old"; done
    until_true all_alive
    store small rs:n=6,k=4 1000
    store large rs:n=6,k=4 5000000 --block 256KiB
    store local-groups azure-lrc:n=7,k=4,r=2 900000
    store sub-blocks clay:n=4,k=2,d=3 900000
    store offline rs:n=6,k=4 700000 --encode offline
    client encode offline >"$folder/said" 2>&1 || fail "encoding: $(cat "$folder/said")"
    ! "$new" --coordinator "$address" nodes >"$folder/said" 2>&1 || fail "a newer client was not refused"
    protocol=$(sed -n 's/.*another version of the protocol: expected .*\b\([0-9][0-9]*\), got .*/\1/p' "$folder/said")
    [ -n "$protocol" ] || fail "no words for a newer client: $(cat "$folder/said")"
    echo "   a client of this release is refused: version $protocol is expected"
    check "all of $commit"
    local first=("$1") rest=()
    if [ "$1" = agents ]; then
        first=($(seq 0 $((nodes - 1)))) rest=(coordinator)
    else
        rest=($(seq 0 $((nodes - 1))))
    fi
    for who in "${first[@]}" "${rest[@]}"; do
        end "$who" TERM
        if [ "$who" = coordinator ]; then
            start_coordinator "$new"
            check "coordinator upgraded"
        else
            start_agent "$who" "$new"
            check "agent $who upgraded"
        fi
    done
    for node in $(seq 0 $((nodes - 1))); do
        is "$node" protocol "$(of_node 0 protocol)" || fail "node $node: expected the newest protocol, got $(of_node "$node" protocol)"
    done
    repack
    end 2 KILL
    rm -rf "$folder/agent2"
    until_true is 2 state dead
    client repair --node 2 >"$folder/said" 2>&1 || fail "repair: $(cat "$folder/said")"
    read_all "repaired"
    client scrub >"$folder/said" 2>&1 || fail "scrub: $(cat "$folder/said")"
    echo "   node 2 lost and repaired: $(wc -l <"$folder/names") objects read and scrubbed"
    stop_all
    rm -rf "$folder"
    folder=
}

for order in ${ORDERS:-agents coordinator}; do play "$order"; done
echo "both orders hold: ${ORDERS:-agents coordinator}"
