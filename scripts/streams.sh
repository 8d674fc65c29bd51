#!/usr/bin/env bash
# Measures what the tests do in small: a long stream through pipes in both directions, and a tree of small files with a
# node killed meanwhile. Coordinator and agents are processes of their own, so that the memory of each is known.
#
#   scripts/streams.sh stream [GIBIBYTES]    (10 unless given)
#   scripts/streams.sh tree [FILES]          (10000 unless given)
#
# A stream is measured beside a file, RUNS times in turns (once unless given): from tar, and from cat, which makes the same
# bytes with less work. All share the processors, so what tar and cat reach and use without a cluster is shown too, and at
# the end of each run the limit that follows from it: no program can be faster than its processors need for its own work,
# as with a file, and for that of tar alone. Where the machine is not quiet, compare the processor seconds for each GB.
#
# With RATE=500Mb/s the nodes are emulated hosts with links of this rate (`kintsu lab up`), so that a network is the limit and
# not the processors.
#
# The program is KINTSU_BIN, or that of a release build. The code is CODE (rs:n=4,k=2, which needs twice as much room as the
# stream is long), for five nodes. Their data are in a new folder in FOLDER (/tmp unless set), which is removed at the end.
set -euo pipefail
repository=$(realpath "$(dirname "$0")/..")
program=$(realpath "${KINTSU_BIN:-$repository/${CARGO_TARGET_DIR:-target}/release/kintsu}")
what=${1:-}
code=${CODE:-rs:n=4,k=2}
case $what in
    stream) count=${2:-10} ;;
    tree) count=${2:-10000} ;;
    *)
        sed -n '5,6s/^# *//p' "$0" >&2
        exit 2
        ;;
esac

folder=$(mktemp -d "${FOLDER:-/tmp}/kintsu-streams-XXXXXX")
lab=streams-$$
nodes=5
pids=()
kintsu=("$program")
finish() {
    # At once, because nothing is kept.
    if [ -n "${RATE:-}" ]; then
        "$program" lab down "$lab" > /dev/null || true
    elif [ ${#pids[@]} -gt 0 ]; then
        kill -KILL "${pids[@]}" 2>/dev/null || true
    fi
    wait 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT
export KINTSU_LOG=error

if [ -n "${RATE:-}" ]; then
    "$program" lab up --name "$lab" --nodes $nodes --racks $nodes --rate "$RATE" --dir "$folder" --detach
    kintsu+=(lab exec "$lab" -- "$program")
    inside=$("$program" lab list --json | grep -o "\"name\":\"$lab\".*" | sed 's/[^}]*"inside":\([0-9]*\).*/\1/')
    mapfile -t pids < <(pgrep -P "$inside")
else
    "$program" coordinator --json --listen 127.0.0.1:0 --grace 1h --dir "$folder/coordinator" > "$folder/ready" &
    pids+=($!)
    until grep -q listen "$folder/ready"; do sleep 0.1; done
    KINTSU_COORDINATOR=$(grep -o '127\.0\.0\.1:[0-9]*' "$folder/ready" | head -1)
    export KINTSU_COORDINATOR
    for node in $(seq 0 $((nodes - 1))); do
        "$program" agent --json --id "$node" --rack "$node" --dir "$folder/node$node" > "$folder/ready$node" &
        pids+=($!)
        until grep -q node "$folder/ready$node"; do sleep 0.1; done
    done
fi

peak() { awk '/VmHWM/ { printf "%d", $2 / 1024 }' "/proc/$1/status"; }
peaks() {
    printf '%s: peak memory in MiB: coordinator %s; agents' "$1" "$(peak "${pids[0]}")"
    for pid in "${pids[@]:1}"; do printf ' %s' "$(peak "$pid")"; done
    printf '\n'
}
# Hundredths of a second that coordinator and agents have used.
used() { for pid in "${pids[@]}"; do sed 's/.*) //' "/proc/$pid/stat"; done | awk '{ sum += $12 + $13 } END { print sum }'; }
# Runs a command; writes its peak memory in MiB, and the processor seconds it used, to a file.
counted() { python3 -c '
import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_maxrss // 1024, used.ru_utime + used.ru_stime, file=open(sys.argv[1], "w"))
sys.exit(code)' "$@"; }
# A client, and what works at the other end of its pipe.
client() { counted "$folder/client" "${kintsu[@]}" "$@"; }
beside() { counted "$folder/beside" "$@"; }
# Runs a command that moves $bytes, and says how fast it was, and what its processes used. A line of $folder/figures keeps
# its label, seconds, and processor seconds of the cluster with its client and of what worked beside them.
timed() {
    local label=$1 from before
    shift
    rm -f "$folder/client" "$folder/beside"
    before=$(used)
    from=$(date +%s.%N)
    "$@"
    awk -v label="$label" -v from="$from" -v to="$(date +%s.%N)" -v bytes="$bytes" -v ticks=$(($(used) - before)) \
        -v client="$(cat "$folder/client" 2>/dev/null || true)" -v beside="$(cat "$folder/beside" 2>/dev/null || true)" \
        -v figures="$folder/figures" 'BEGIN {
            gb = bytes / 1e9
            printf "%s: %.1f s, %.0f MB/s", label, to - from, 1e3 * gb / (to - from)
            with_client = split(client, of, " ") == 2
            with_other = split(beside, other, " ") == 2
            if (with_client || with_other) printf "; processor seconds for each GB:"
            if (with_client) printf " client %.2f, nodes %.2f", of[2] / gb, ticks / 100 / gb
            if (with_other) printf "%s %s %.2f", with_client ? "," : "", label ~ /tar/ ? "tar" : "cat", other[2] / gb
            if (with_client) printf "; the peak of the client is %d MiB", of[1]
            printf "\n"
            printf "%s\t%f\t%f\t%f\n", label, to - from, of[2] + ticks / 100, other[2] >> figures
        }'
}
# The least time for a stream is that of a file, or what the processors need for the work of a file and of what is beside
# it alone. Arguments: the labels of the stream, the file, and what is beside.
limit() {
    awk -F '\t' -v stream="$1" -v file="$2" -v alone="$3" -v bytes="$bytes" -v processors="$(nproc)" '
        { seconds[$1] = $2; work[$1] = $3; other[$1] = $4 }
        END {
            least = (work[file] + other[alone]) / processors
            if (least < seconds[file]) least = seconds[file]
            gb = bytes / 1e9
            printf "%s: %.2f of a file'\''s speed; %d processors allow %.2f (%.0f MB/s)", stream,
                seconds[file] / seconds[stream], processors, seconds[file] / least, bytes / 1e6 / least
            printf "; processor seconds for each GB: %.2f, a file and what is beside it alone use %.2f\n",
                (work[stream] + other[stream]) / gb, (work[file] + other[alone]) / gb
        }' "$folder/figures"
}
# Removes an object, and waits until its blocks are gone.
removed() {
    "${kintsu[@]}" rm "$1" > /dev/null
    until "${kintsu[@]}" status --json | grep -q '"garbage": *0,'; do sleep 0.2; done
}

if [ "$what" = stream ]; then
    # A folder of links to one file in memory, which tar follows. For comparison, the same bytes as one file, also in
    # memory.
    ram=$(mktemp -d /dev/shm/kintsu-streams-XXXXXX)
    trap 'rm -rf "$ram"; finish' EXIT
    head -c $((64 << 20)) /dev/urandom > "$ram/part"
    mkdir "$ram/tree"
    for i in $(seq $((16 * count))); do ln -s ../part "$ram/tree/$i"; done
    archive() { beside tar ch --hard-dereference -C "$ram" tree; }
    archive > "$ram/file"
    bytes=$(stat -c %s "$ram/file")
    put() { client put "$1" "$2" --code "$code" > /dev/null; }
    get() { client get backup "$1"; }
    peaks "before"
    # The first put is slower: the memory of a virtual machine that was idle may be lent to others.
    put "$ram/file" file
    removed file
    for run in $(seq "${RUNS:-1}"); do
        rm -f "$folder/figures"
        tar_alone() { archive | dd of=/dev/null bs=1M status=none; }
        timed "tar | dd bs=1M" tar_alone
        cat_alone() { beside cat "$ram/file" | dd of=/dev/null bs=1M status=none; }
        timed "cat FILE | dd bs=1M" cat_alone
        list_alone() { cat "$ram/file" | beside tar t > /dev/null; }
        timed "cat FILE | tar t" list_alone
        into_cat_alone() { dd if="$ram/file" bs=1M status=none | beside cat > /dev/null; }
        timed "dd bs=1M | cat" into_cat_alone
        timed "kintsu put FILE" put "$ram/file" file
        removed file
        put_from_cat() { beside cat "$ram/file" | put - cat; }
        timed "cat FILE | kintsu put -" put_from_cat
        removed cat
        put_from_tar() { archive | put - backup; }
        timed "tar | kintsu put -" put_from_tar
        peaks "after the puts"
        rm "$ram/file"
        get_file() { get "$ram/file" > /dev/null; }
        timed "kintsu get FILE" get_file
        get_to_cat() { get - | beside cat > /dev/null; }
        timed "kintsu get - | cat" get_to_cat
        get_to_tar() { get - | beside tar t | grep -c 'tree/[0-9]' > "$folder/files"; }
        timed "kintsu get - | tar t" get_to_tar
        peaks "after the gets"
        limit "cat FILE | kintsu put -" "kintsu put FILE" "cat FILE | dd bs=1M"
        limit "tar | kintsu put -" "kintsu put FILE" "tar | dd bs=1M"
        limit "kintsu get - | cat" "kintsu get FILE" "dd bs=1M | cat"
        limit "kintsu get - | tar t" "kintsu get FILE" "cat FILE | tar t"
        echo "files: $(cat "$folder/files") of $((16 * count))"
        archive | cmp - "$ram/file"
        get - | cmp - "$ram/file"
        echo "all bytes are the same"
        removed backup
    done
else
    python3 - "$folder/tree" "$count" <<'PYTHON'
import os, random, sys
random.seed(1)
for i in range(int(sys.argv[2])):
    folder = f"{sys.argv[1]}/d{i % 100}"
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/f{i}", "wb") as file:
        file.write(random.randbytes(random.randrange(8192)))
PYTHON
    "${kintsu[@]}" put "$folder/tree" t --code "$code" &
    putting=$!
    objects() { "${kintsu[@]}" status --json | grep -o '"objects": *[0-9]*' | grep -o '[0-9]*$'; }
    until [ "$(objects)" -gt $((count / 3)) ]; do sleep 0.1; done
    kill -KILL "${pids[3]}"
    echo "node 2 killed after $(objects) files"
    wait $putting
    "${kintsu[@]}" get t "$folder/copy"
    diff -r "$folder/tree" "$folder/copy"
    echo "every byte is back"
fi
