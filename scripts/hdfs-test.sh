#!/usr/bin/env bash
# make test-hdfs: all tests beside a stock HDFS, with all their scenes, on one release after the other. As `hdfs-test.sh quick`, a
# part of make test: those that take no minutes, several at once, on one release. `hdfs-test.sh build` prints where the test program is.
# Settings:
#
#   HDFS_VERSION   the releases ("3.4.3 3.5.0")
#   ROUNDS         how often each passes, one after the other (1)
#   TESTS          only tests whose names contain this (all)
#   SOAK           minutes of scripts/hdfs-soak.sh afterwards, on the last release (0)
#   HDFS_TEST      the test program, if it is built already (cargo builds it)
#
# Ends at the first failure; says after each round how long it took.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${ROUNDS:-1} soak=${SOAK:-0}

program=${HDFS_TEST:-}
if [ -z "$program" ]; then
    built=$(cargo test --locked --workspace --test hdfs --no-run --message-format json-render-diagnostics)
    program=$(sed -n 's/.*"name":"hdfs".*"executable":"\([^"]*\)".*/\1/p' <<<"$built" | tail -n 1)
fi
[ -x "$program" ] || { echo "hdfs-test.sh: expected a test program, got '$program'" >&2; exit 1; }
program=$(realpath "$program")
case "${1:-}" in
    build)
        echo "$program"
        exit
        ;;
    quick)
        cd crates/kintsu
        exec "$program"
        ;;
esac
for version in ${HDFS_VERSION:-3.4.3 3.5.0}; do
    export HDFS_VERSION=$version
    for ((round = 1; round <= rounds; round++)); do
        began=$SECONDS
        echo "beside HDFS $version, round $round of $rounds"
        (cd crates/kintsu && "$program" --include-ignored --test-threads 1 ${TESTS:+"$TESTS"})
        echo "beside HDFS $version, round $round of $rounds: passed in $((SECONDS - began)) s"
    done
done
if [ "$soak" != 0 ]; then
    KINTSU_BIN=${KINTSU_BIN:-$(dirname "$program")/../kintsu} scripts/hdfs-soak.sh "$soak"
fi
