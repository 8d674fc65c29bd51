#!/usr/bin/env bash
# make updates: repeats the experiments of CAU ("Cross-Rack-Aware Updates in Erasure-Coded Data Centers", ICPP'18) with traces of writes, and prints
# their tables in Markdown. An hour at most on two processors.
#
#   scripts/updates.sh KINTSU TRACES [PART...]
#
# KINTSU is the program. TRACES is a folder with traces (*.csv, packed or not) that `kintsu lab replay` reads: all are analysed, and
# replayed on emulated hosts by uplinks; the writes of those called msr_* are replayed by the other parts too. PARTs are names of the list below; without any, all of them.
#
# With PAGE=docs/updates.md each table also goes into that page as soon as it is there, between the lines <!-- results PART --> and <!-- end -->.
# DISK is a folder on a disk, for cau-12 (/var/tmp). A part that fails does not keep the others from running; then this ends with 1.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
usage="expected: scripts/updates.sh KINTSU TRACES [PART...]"
kintsu=$(realpath "${1:?$usage}")
traces=${2:?$usage}
shift 2
parts=(cau-5 cau-8 cau-8-by-turns cau-10 uplinks cau-11 cau-12 cau-13 cau-14)
disk=${DISK:-/var/tmp} page=${PAGE:-}
fail() { echo "updates.sh: $*" >&2; exit 1; }
shopt -s nullglob
all=("$traces"/*.csv*) msr=("$traces"/msr_*.csv*)
[ ${#msr[@]} -gt 0 ] || fail "expected files msr_*.csv* in $traces"
for part in "$@"; do
    [[ " ${parts[*]} " == *" $part "* ]] || fail "expected some of ${parts[*]}, got $part"
done
[ $# = 0 ] || parts=("$@")
said=$(mktemp)
trap 'rm -f "$said"' EXIT
# Puts standard input into the place of a part; with --check before the part only says whether there is one.
splice() {
    local check=()
    [ "$1" != --check ] || { check=(--check); shift; }
    "$here/splice.sh" "${check[@]}" "$page" "<!-- results $1 -->" "<!-- end -->"
}
for part in "${parts[@]}"; do
    [ -z "$page" ] || splice --check "$part"
    [ "$part" != cau-12 ] || [ "$(stat -f -c %T "$disk")" != tmpfs ] || fail "expected DISK to be a folder on a disk, got $disk, which is in memory"
done

replay() { "$kintsu" lab replay "$@" --markdown; }
# For both settings of the paper.
both() { replay "$@" --code rs:n=9,k=6 --racks 3 && echo && replay "$@" --code rs:n=16,k=12 --racks 4; }
# The paper's cluster with blocks and links an eighth of the paper's: 62.5 Mb/s stand for 0.5 Gb/s.
cluster=("${msr[@]}" --writes 300 --whole-blocks --block 128KiB)
schemes=(--scheme baseline,parix,cau,optimal)
losses() {
    local hours
    echo "| hours | at once | no copy | node | rack | parity |"
    echo "|---|---|---|---|---|---|"
    for hours in 1 3 6 9 12 15 18; do
        "$kintsu" code reliability rs:n=9,k=6 --racks 3 --updates --window "${hours}h" |
            awk -v hours=$hours '$1 == "rs:n=9,k=6" { print "| " hours " | " $3 " | " $4 " | " $5 " | " $6 " | " $7 " |"; n++ } END { exit n != 1 }' || return 1
    done
}
# The table of a part.
table() {
    case $1 in
    cau-5) losses ;;
    cau-8) both "${all[@]}" --analyse ;;
    cau-8-by-turns) both "${all[@]}" --analyse --by-turns ;;
    cau-10)
        replay "${all[@]}" --analyse --by-turns --code rs:n=16,k=12 --racks 4 --us 2,20,100 --scheme cau-nogroup,cau |
            sed -n '/^| data grouping saves/,$p'
        ;;
    uplinks)
        echo "Whole blocks, 60 writes of each trace:" && echo &&
            replay "${all[@]}" --writes 60 --whole-blocks && echo &&
            replay "${msr[-1]}" --writes 60 --whole-blocks --code rs:n=16,k=12 --racks 4 && echo &&
            echo "Changed ranges, 300 writes of each trace:" && echo &&
            replay "${all[@]}" --writes 300 && echo &&
            replay "${msr[-1]}" --writes 300 --code rs:n=16,k=12 --racks 4
        ;;
    cau-11) replay "${cluster[@]}" "${schemes[@]}" --at-once 8,16,32,64 --rack-rate 62.5Mb/s,125Mb/s,250Mb/s ;;
    cau-12)
        echo "Data on a disk ($(stat -f -c %T "$disk")):" && echo &&
            replay "${cluster[@]}" "${schemes[@]}" --at-once 16,64 --rack-rate 62.5Mb/s,250Mb/s --dir "$disk"
        ;;
    cau-13) replay "${cluster[@]}" --scheme cau --us 2,5,10,20,50,100 --at-once 16,64 --rack-rate 62.5Mb/s ;;
    cau-14)
        local regions=("${msr[@]}" --writes 300 --whole-blocks --block 64KiB --code rs:n=16,k=12 --racks 4 "${schemes[@]}" --node-rate 113Mb/s)
        echo "A link between every two nodes:" && echo &&
            replay "${regions[@]}" --pair-rate 10Mb/s --at-once 8,16,32,64 && echo &&
            echo "A link that the nodes of a region share, for all three others:" && echo &&
            replay "${regions[@]}" --rack-rate 30Mb/s --at-once 16,64
        ;;
    esac
}

model=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
by="$model, $(nproc) processors; $("$kintsu" --version), $(date +%F)"
failed=()
for part in "${parts[@]}"; do
    began=$SECONDS
    echo "updates.sh: $part" >&2
    if ! table "$part" >"$said"; then
        failed+=("$part")
        continue
    fi
    printf '\n%s, %s s.\n' "$by" $((SECONDS - began)) >>"$said"
    printf '\n### %s\n\n' "$part"
    cat "$said"
    [ -z "$page" ] || splice "$part" <"$said"
done
echo "updates.sh: $((SECONDS / 60)) minutes" >&2
[ ${#failed[@]} = 0 ] || fail "failed: ${failed[*]}"
