#!/usr/bin/env bash
# Runs all tests. The last lines say what was compared with whose results, what could not be tested because this
# machine lacks something, and how long the tests beside a real HDFS took. Tests write `COMPARED: what` and `SKIPPED: why`
# directly to standard error, because cargo shows output of print macros only for failed tests. With KINTSU_SKIP=never it is an
# error if something was skipped, except for instructions that this processor does not have.
set -euo pipefail
cd "$(dirname "$0")/.."

said=$(mktemp) results=$(mktemp) beside=$(mktemp)
wheels=$(mktemp -d) building= watching= hdfs=
summary() {
    local status=$?
    [ -z "$building" ] || kill -- "-$building" 2>/dev/null || true
    [ -z "$hdfs" ] || kill -- "-$hdfs" 2>/dev/null || true
    [ -z "$watching" ] || kill "$watching" || true
    if grep -q 'COMPARED: ' "$said"; then
        printf '\ncompared here:\n'
        grep -o 'COMPARED: .*' "$said" | sort -u | sed 's/^COMPARED: /  /'
    fi
    if grep -q 'SKIPPED: ' "$said"; then
        printf '\nnot tested here:\n'
        grep -o 'SKIPPED: .*' "$said" | sort -u | sed 's/^SKIPPED: /  /'
        if [ "${KINTSU_SKIP:-}" = never ] && grep -o 'SKIPPED: .*' "$said" | grep -qv 'SKIPPED: this processor has no '; then
            echo "this machine can install what is missing, so nothing may be skipped (scripts/setup.sh says what it could not install)"
            [ "$status" != 0 ] || status=1
        fi
    fi
    sed -n 's/^test result: .*finished in /\nbeside a real HDFS: /p' "$beside" | sed 's/s$/s, of 480 s at most/'
    printf '\nnot run by this command:\n  beside a real HDFS what takes minutes (hazards of hand-overs, of waiting blocks, of other copies and of blocks that HDFS brings late, reported losses, maintenance, odd files, racks, the codec jar), the other release, the soak: make test-hdfs\n  the screenshots of the page: scripts/page.sh shots\n'
    rm -rf "$said" "$results" "$beside" "$wheels"
    exit "$status"
}
trap summary EXIT
# Many tests wait for most of their time, so there are more of them at once than processors.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((2 * $(nproc)))}
# The tests beside HDFS wait for most of theirs, so the others are built meanwhile; the Python package then, with what the tests leave of
# the processors. Each is a process group of its own, which ends with this script.
program=$(scripts/hdfs-test.sh build)
set -m
HDFS_TEST=$program scripts/hdfs-test.sh quick >"$beside" 2>>"$said" &
hdfs=$!
set +m
nice -n 19 cargo test --workspace --locked --no-run
set -m
nice -n 19 scripts/python-test.sh wheel "$wheels" >"$wheels/log" 2>&1 &
building=$!
set +m
# Their output goes into files, from which it is shown: a process that a failed test has left would keep a pipe open, and this script
# would wait for its end.
(while kill -0 $$; do sleep 1; done) >/dev/null 2>&1 &
watching=$!
tail -n +1 -s 0.2 -f --pid="$watching" "$said" >&2 &
showing=$!
tail -n +1 -s 0.2 -f --pid="$watching" "$results" &
showing="$showing $!"
tested=0
cargo test --workspace --locked >>"$results" 2>>"$said" || tested=$?
kill "$watching"
wait "$watching" 2>/dev/null || true
watching=
# shellcheck disable=SC2086
wait $showing || true
wait "$hdfs" || tested=$?
hdfs=
cat "$beside"
[ "$tested" = 0 ] || exit "$tested"
wait "$building" || { cat "$wheels/log" >&2; exit 1; }
building=
scripts/python-test.sh test "$wheels" | tee -a "$said"
