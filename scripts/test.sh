#!/usr/bin/env bash
# Runs all tests, and lists at the end the tests that were skipped because this machine lacks something. Tests write
# `SKIPPED: why` directly to standard error, because cargo shows output of print macros only for failed tests.
set -euo pipefail
cd "$(dirname "$0")/.."

said=$(mktemp)
summary() {
    if grep -q 'SKIPPED: ' "$said"; then
        printf '\nnot tested here:\n'
        grep -o 'SKIPPED: .*' "$said" | sort -u
    fi
    rm -f "$said"
}
trap summary EXIT
{ cargo test --workspace --locked 2>&1 >&3 | tee "$said" >&2; } 3>&1
scripts/python-test.sh | tee -a "$said"
