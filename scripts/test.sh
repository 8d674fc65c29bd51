#!/usr/bin/env bash
# Runs all tests. The last lines say what was compared with whose results, and what could not be tested because this
# machine lacks something. Tests write `COMPARED: what` and `SKIPPED: why` directly to standard error, because cargo shows
# output of print macros only for failed tests. With KINTSU_SKIP=never it is an error if something was skipped, except
# for instructions that this processor does not have.
set -euo pipefail
cd "$(dirname "$0")/.."

said=$(mktemp) beside=$(mktemp) hdfs=
summary() {
    local status=$?
    [ -z "$hdfs" ] || kill -- -"$hdfs" 2>/dev/null || true
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
    printf '\nnot run by this command:\n  beside a real HDFS what takes minutes (hazards of hand-overs and of waiting blocks, reported losses, the codec jar), the other release, the soak: make test-hdfs\n  the screenshots of the page: scripts/page.sh shots\n'
    rm -f "$said" "$beside"
    exit "$status"
}
trap summary EXIT
built=$(cargo test --workspace --locked --no-run --message-format=json-render-diagnostics)
suites=$(python3 -c '
import json, os, sys
for built in map(json.loads, sys.stdin):
    if built["reason"] == "compiler-artifact" and built["profile"]["test"] and built["executable"]:
        print(built["target"]["name"], os.path.dirname(built["manifest_path"]), built["executable"])' <<<"$built")
run() {
    local name folder program failed=0
    while read -r name folder program; do
        printf '\n     Running %s (%s)\n' "$name" "$program"
        (cd "$folder" && "$program" </dev/null) || failed=1
    done
    return "$failed"
}
others() {
    local failed=0
    grep -v '^hdfs ' <<<"$suites" | run || failed=1
    cargo test --workspace --locked --doc || failed=1
    return "$failed"
}
# The tests beside a stock HDFS wait for it half of the time, so they run beside all others: in a process group of their
# own, which ends with this script.
set -m
grep '^hdfs ' <<<"$suites" | run >"$beside" 2>&1 &
hdfs=$!
set +m
failed=0
{ others 2>&1 >&3 | tee "$said" >&2; } 3>&1 || failed=1
wait "$hdfs" || failed=1
hdfs=
tee -a "$said" <"$beside"
[ "$failed" = 0 ]
scripts/python-test.sh | tee -a "$said"
