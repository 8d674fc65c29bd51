#!/usr/bin/env bash
# Measures what the tests do in small: a long stream through pipes in both directions, and a tree of small files with a
# node killed meanwhile. Coordinator and agents are processes of their own, so that the memory of each is known.
#
#   scripts/streams.sh stream [GIBIBYTES]    (10 unless given)
#   scripts/streams.sh tree [FILES]          (10000 unless given)
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
pids=()
finish() {
    # At once, because nothing is kept.
    if [ ${#pids[@]} -gt 0 ]; then kill -KILL "${pids[@]}" 2>/dev/null || true; fi
    wait 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT
export KINTSU_LOG=error

"$program" coordinator --json --listen 127.0.0.1:0 --grace 1h --dir "$folder/coordinator" > "$folder/ready" &
pids+=($!)
until grep -q listen "$folder/ready"; do sleep 0.1; done
KINTSU_COORDINATOR=$(grep -o '127\.0\.0\.1:[0-9]*' "$folder/ready" | head -1)
export KINTSU_COORDINATOR
nodes=5
for node in $(seq 0 $((nodes - 1))); do
    "$program" agent --json --id "$node" --rack "$node" --dir "$folder/node$node" > "$folder/ready$node" &
    pids+=($!)
    until grep -q node "$folder/ready$node"; do sleep 0.1; done
done

peak() { awk '/VmHWM/ { printf "%d", $2 / 1024 }' "/proc/$1/status"; }
peaks() {
    printf '%s: peak memory in MiB: coordinator %s; agents' "$1" "$(peak "${pids[0]}")"
    for pid in "${pids[@]:1}"; do printf ' %s' "$(peak "$pid")"; done
    printf '\n'
}
seconds() { awk -v from="$1" -v to="$(date +%s.%N)" -v bytes="$2" \
    'BEGIN { printf "%.1f s, %.0f MB/s", to - from, bytes / 1e6 / (to - from) }'; }
# Runs a client, and writes its peak memory to a file.
client() { python3 -c '
import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024, file=open(sys.argv[1], "w"))
sys.exit(code)' "$folder/peak" "$program" "$@"; }

if [ "$what" = stream ]; then
    # A folder of links to one file in memory, which tar follows. For comparison, the same bytes as one file, also in
    # memory.
    ram=$(mktemp -d /dev/shm/kintsu-streams-XXXXXX)
    trap 'rm -rf "$ram"; finish' EXIT
    head -c $((64 << 20)) /dev/urandom > "$ram/part"
    mkdir "$ram/tree"
    for i in $(seq $((16 * count))); do ln -s ../part "$ram/tree/$i"; done
    bytes=$((count << 30))
    tar chf "$ram/file" --hard-dereference -C "$ram" tree
    peaks "before"
    from=$(date +%s.%N)
    client put "$ram/file" file --code "$code" > /dev/null
    echo "kintsu put FILE: $(seconds "$from" $bytes); the client's peak is $(cat "$folder/peak") MiB"
    rm "$ram/file"
    from=$(date +%s.%N)
    client get file "$ram/file" > /dev/null
    echo "kintsu get FILE: $(seconds "$from" $bytes); the client's peak is $(cat "$folder/peak") MiB"
    rm "$ram/file"
    "$program" rm file > /dev/null
    peaks "after both"
    from=$(date +%s.%N)
    tar ch --hard-dereference -C "$ram" tree | client put - backup --code "$code" > /dev/null
    echo "tar | kintsu put -: $(seconds "$from" $bytes); the client's peak is $(cat "$folder/peak") MiB"
    peaks "after the put"
    from=$(date +%s.%N)
    files=$(client get backup - | tar t | grep -c 'tree/[0-9]')
    echo "kintsu get - | tar t: $(seconds "$from" $bytes); the client's peak is $(cat "$folder/peak") MiB; $files files"
    peaks "after the get"
    client get backup - | cmp - <(tar ch --hard-dereference -C "$ram" tree)
    echo "all bytes are the same"
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
    "$program" put "$folder/tree" t --code "$code" &
    putting=$!
    objects() { "$program" status --json | grep -o '"objects": *[0-9]*' | grep -o '[0-9]*$'; }
    until [ "$(objects)" -gt $((count / 3)) ]; do sleep 0.1; done
    kill -KILL "${pids[3]}"
    echo "node 2 killed after $(objects) files"
    wait $putting
    "$program" get t "$folder/copy"
    diff -r "$folder/tree" "$folder/copy"
    echo "every byte is back"
fi
