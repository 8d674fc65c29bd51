#!/usr/bin/env bash
# Runs all tests. The last lines say what was compared with whose results, what could not be tested because this
# machine lacks something, and how long the tests beside a real HDFS took. Tests write `COMPARED: what` and `SKIPPED: why`
# directly to standard error, because cargo shows output of print macros only for failed tests. With KINTSU_SKIP=never it is an
# error if something was skipped, except for instructions that this processor does not have.
set -euo pipefail
cd "$(dirname "$0")/.."

said=$(mktemp) results=$(mktemp)
wheels=$(mktemp -d) building=
summary() {
    local status=$?
    [ -z "$building" ] || kill -- "-$building" 2>/dev/null || true
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
    # The results of test programs, on standard output, are in the order in which cargo says that they run.
    awk 'FNR == NR { if (/^ *(Running|Doc-tests) /) { n++; if (/ tests\/hdfs\/main\.rs /) hdfs = n }; next }
        /^test result: / && ++m == hdfs { sub(/.*finished in /, ""); print "\nbeside a real HDFS: " $0 ", of 480 s at most" }' "$said" "$results"
    printf '\nnot run by this command:\n  beside a real HDFS what takes minutes (hazards of hand-overs, of waiting blocks and of other copies, reported losses, racks, the codec jar), the other release, the soak: make test-hdfs\n  the screenshots of the page: scripts/page.sh shots\n'
    rm -rf "$said" "$results" "$wheels"
    exit "$status"
}
trap summary EXIT
# Many tests wait for most of their time, so there are more of them at once than processors.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((2 * $(nproc)))}
cargo test --workspace --locked --no-run
# The Python package is built with what they leave of the processors.
set -m
nice -n 19 scripts/python-test.sh wheel "$wheels" >"$wheels/log" 2>&1 &
building=$!
set +m
{ cargo test --workspace --locked 2>&1 >&3 | tee "$said" >&2; } 3>&1 | tee "$results"
wait "$building" || { cat "$wheels/log" >&2; exit 1; }
building=
scripts/python-test.sh test "$wheels" | tee -a "$said"
