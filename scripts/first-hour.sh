#!/usr/bin/env bash
# Plays the first hour with Kintsu in an empty folder and prints it as the tutorial:
#
#   scripts/first-hour.sh > docs/first-hour.md
#
# The program is KINTSU_BIN, or the one of a debug build. Every command runs as it is printed; a command that fails ends
# the script. `text` prints prose from standard input. `run` prints a command and what it prints. `quietly` runs what
# the reader need not see. `steady` replaces what differs from run to run (times, rates, ports), so that the output is
# always the same.
set -euo pipefail
repository=$(realpath "$(dirname "$0")/..")
program=$(realpath "${KINTSU_BIN:-$repository/${CARGO_TARGET_DIR:-target}/debug/kintsu}")

folder=$(mktemp -d)
cluster=
stop_cluster() {
    if [ -n "$cluster" ] && kill "$cluster" 2>/dev/null; then wait "$cluster" || true; fi
    cluster=
}
finish() {
    stop_cluster
    rm -rf "$folder"
}
trap finish EXIT

mkdir "$folder/bin" "$folder/home"
ln -s "$program" "$folder/bin/kintsu"
export PATH="$folder/bin:$PATH" KINTSU_LOG=error LC_ALL=C
unset KINTSU_TOKEN KINTSU_COORDINATOR COLUMNS
cd "$folder/home"

steady() {
    sed -E \
        -e "s#$folder/home#/home/you#g" \
        -e 's/^(cluster +)[0-9a-f]{32}/\10123456789abcdef0123456789abcdef/' \
        -e 's/[0-9.]+ [KMG]i?B a second/100 MiB a second/g' \
        -e 's#http://127\.0\.0\.1:[0-9]+/#http://127.0.0.1@7480/#g' \
        -e 's/127\.0\.0\.1:[0-9]+/127.0.0.1:7400/g' \
        -e 's/127\.0\.0\.1@/127.0.0.1:/g' \
        -e 's/[0-9]+\.[0-9]+ (s|ms)\b/0.00 \1/g' \
        -e 's/[0-9.]+ [kKMG]i?B\/s/100 MB\/s/g' \
        -e 's/[0-9.]+ [KMGT]iB free/100 GiB free/g' \
        -e 's/[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} UTC/2026-01-01 12:00:00 UTC/g' \
        -e 's/begin in [0-9]+ s/begin in 60 s/' \
        -e 's/[0-9.]+ files\/s/100 files\/s/g' \
        -e 's/^(copy of the metadata +).*/\1none/' \
        -e 's/[[:space:]]+$//'
}

text() {
    echo
    cat
    echo
}

run() {
    printf '```\n$ %s\n' "$*"
    { eval "$*"; } > "$folder/said" 2>&1 || { cat "$folder/said" >&2; echo "failed: $*" >&2; exit 1; }
    steady < "$folder/said"
    printf '```\n'
}

quietly() {
    "$@" > "$folder/said" 2>&1 || { cat "$folder/said" >&2; echo "failed: $*" >&2; exit 1; }
}

# Repeats a command until it succeeds, for a minute at most.
until_true() {
    for _ in $(seq 300); do
        if eval "$*" > /dev/null 2>&1; then return; fi
        sleep 0.2
    done
    echo "gave up waiting for: $*" >&2
    exit 1
}

# Waits until deletes are done, and until every node has told that it holds as many blocks as the metadata say: what is
# placed next depends on it.
settled() {
    until_true "kintsu status | grep -q 'to be deleted  *0$'"
    until_true "kintsu nodes --json | tr '{' '\n' | sed -n 's/^\"blocks\":\([0-9]*\),.*\"placed_blocks\":\([0-9]*\),.*/\1 \2/p' |
        awk '\$1 != \$2 { exit 1 } END { exit NR == 0 }'"
}

# Starts a cluster on free ports, and shows it as if they were the default ones.
start_cluster() {
    printf '```\n$ kintsu up %s &\n' "$*"
    : > "$folder/up"
    kintsu up "$@" --listen 127.0.0.1:0 --page 127.0.0.1:0 > "$folder/up" 2> "$folder/log" &
    cluster=$!
    until_true "grep -q Ctrl-C '$folder/up'"
    KINTSU_COORDINATOR=$(sed -n 's/.*coordinator on //p' "$folder/up")
    export KINTSU_COORDINATOR
    grep -v '^export' "$folder/up" | steady
    printf '```\n'
}

cat <<'END'
# The first hour

This page is the output of `scripts/first-hour.sh`, which runs every command below on a new cluster in an empty folder.
`make test` runs the script and compares its output with this page. Times, rates and ports are replaced by fixed ones.
You need the program (`cargo install --path crates/kintsu`), and no privileges.
END

text <<'END'
## A cluster

`kintsu up` runs a coordinator and, here, twelve nodes in four racks, all in one process. Each node has a folder of its
own, which stands for a disk. A browser on this machine shows the cluster at the address of the page.
END
start_cluster --nodes 12 --racks 4 --dir ./cluster

text <<'END'
## Store a file and read it back

The file is cut into stripes. With `rs:n=9,k=6` a stripe has six blocks of data and three of parity, on nine nodes. Any
six of the nine are enough to read it.
END
run "seq -w 1 1572864 > numbers.txt"
run "kintsu put numbers.txt numbers --code rs:n=9,k=6 --block 1MiB"
run "kintsu get numbers copy.txt && cmp numbers.txt copy.txt && echo the same bytes"
run "kintsu get numbers - --range 0-23"
run "kintsu ls"

settled
text <<'END'
`stat` shows where each block is.
END
run "kintsu stat numbers | sed -n 1,15p"

text <<'END'
## Lose a node

A node is stopped: its blocks cannot be read any more. The object still can; what is missing is decoded on the way.
END
run "kintsu node stop 2"
run "kintsu get numbers copy.txt && cmp numbers.txt copy.txt && echo the same bytes"

text <<'END'
`health` says what is wrong and what to do. Its exit code is 0 if the cluster is healthy, 1 for a warning, 2 for an
error. `status` begins with the same verdict.
END
run 'kintsu health || echo "exit code $?"'

text <<'END'
A node that stays away for a minute (`--grace`) is repaired by itself. `kintsu repair` does it at once: its blocks are
rebuilt on other nodes.
END
run "kintsu repair --node 2"
run "kintsu status"

text <<'END'
The node comes back. Its blocks have new homes by now, so the old ones are not needed any more.
END
run "kintsu node start 2"
settled

text <<'END'
## How would a repair go?

`explain` plans a repair without running it. In a pipelined repair every helper adds its block to what it receives and
sends the sum on, so that all links work at the same time.
END
run "kintsu explain numbers --lost 2"
text <<'END'
In a conventional repair one node fetches everything, and its link carries six blocks.
END
run "kintsu explain numbers --lost 2 --method conventional | grep -e busiest -e predicted"

text <<'END'
## Take a node away

A drain moves the blocks of a node elsewhere. Then the node can be switched off.
END
run "kintsu node drain 5"
# Where its block went depends on which nodes answered in time.
run "kintsu nodes | cut -c -31 | grep -e blocks -e draining"

text <<'END'
## Another code

Kintsu has a dozen families of codes (`kintsu code list`). `check` proves one and says what it costs.
END
run "kintsu code check azure-lrc:n=10,k=6,r=3"

text <<'END'
Your own code is data: a generator matrix, or graphs made in Python. The cluster proves it once and keeps it.
END
quietly cp "$repository/docs/examples/miser-4-2.json" .
run "kintsu code register miser-4-2.json"
run "kintsu put numbers.txt mine --code user:miser-4-2"
run "kintsu get mine copy.txt && cmp numbers.txt copy.txt && echo the same bytes"

text <<'END'
## Streams and folders

A stream is stored as it comes, without its size being known. A folder becomes an object for each of its files.
END
run "mkdir notes && echo one > notes/one && echo two > notes/two"
run "tar c --sort=name notes | kintsu put - notes.tar --meta made-by=tar && kintsu get notes.tar - | tar t"
run "kintsu put notes notes && kintsu ls --delimiter /"
run "kintsu get notes copy && diff -r notes copy && echo the same files"

text <<'END'
## Stop and continue

`kill %1` or Ctrl-C ends the cluster. The data stay in its folder, and `kintsu up` continues with them.
END
stop_cluster
start_cluster --dir ./cluster
run "kintsu get numbers copy.txt && cmp numbers.txt copy.txt && echo the same bytes"

text <<'END'
What next: `kintsu --help`; three hosts instead of one (`README.md`); a cluster with slow links on one machine (`kintsu
lab up --help`).
END
