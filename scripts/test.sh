#!/usr/bin/env bash
# Runs all tests, and says at the end which were skipped for what this machine lacks. Tests write `SKIPPED: why` to
# standard error itself: what they print with macros is shown only when they fail.
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
