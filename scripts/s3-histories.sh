#!/usr/bin/env bash
# Many users change and read the same keys through two gateways of `kintsu s3` while agents, coordinator and a gateway are killed and come
# back; their histories are checked (scripts/s3-histories.py says how): scripts/s3-histories.sh [SECONDS [SEED]]    (60 and 1 unless given)
#
# Seven agents and all others are processes of their own, in mutual TLS. At the end all blocks are verified. Needs boto3 in S3_PYTHON
# (python3). KINTSU_BIN is the program, or that of a release build. KILLS=no kills nobody.
set -euo pipefail
repository=$(realpath "$(dirname "$0")/..")
program=$(realpath "${KINTSU_BIN:-$repository/${CARGO_TARGET_DIR:-target}/release/kintsu}")
folder=$(mktemp -d "${FOLDER:-/tmp}/kintsu-s3-XXXXXX")
killing=
finish() {
    [ -z "$killing" ] || kill "$killing" 2>/dev/null || true
    for pid in "$folder"/pid/*; do kill -KILL "$(cat "$pid")" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT
export KINTSU_LOG=${KINTSU_LOG:-error}
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
mkdir "$folder/pid"
"$program" ca init "$folder/ca" >/dev/null
agents=(0 1 2 3 4 5 6)
for role in coordinator client/s3 operator/checks "${agents[@]/#/agent/}"; do
    "$program" ca issue "$folder/ca" --role "$role" --out "$folder/tls-${role#*/}" >/dev/null
done
export AWS_ACCESS_KEY_ID=AKIDHISTORIES01 AWS_SECRET_ACCESS_KEY=a-secret-of-histories
printf '[[key]]\naccess = "%s"\nsecret = "%s"\ncreate = true\n' "$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY" >"$folder/keys"
KINTSU_COORDINATOR=127.0.0.1:$(port)
export KINTSU_COORDINATOR
declare -A ports
for who in "${agents[@]}" s3-a s3-b; do ports[$who]="$(port) $(port)"; done
start() {
    local who=$1 listen
    read -ra listen <<<"${ports[$who]:-}"
    case $who in
    coordinator) set -- coordinator --dir "$folder/coordinator" --listen "$KINTSU_COORDINATOR" --tls "$folder/tls-coordinator" ;;
    s3-*) set -- s3 --http --no-metrics --tls "$folder/tls-s3" --keys "$folder/keys" --listen "127.0.0.1:${listen[0]}" --code rs:n=6,k=4 ;;
    *) set -- agent --dir "$folder/$who" --rack "$who" --listen "127.0.0.1:${listen[0]}" --listen-data "127.0.0.1:${listen[1]}" --tls "$folder/tls-$who" ;;
    esac
    "$program" "$@" >>"$folder/$who.log" 2>&1 &
    echo $! >"$folder/pid/$who"
}
operator() { "$program" --tls "$folder/tls-checks" "$@"; }
# Repeats a command until it succeeds, for two minutes at most.
until_true() {
    for _ in $(seq 600); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.2
    done
    echo "gave up waiting for: $*" >&2
    exit 1
}
start coordinator
until_true operator nodes
for agent in "${agents[@]}"; do start "$agent"; done
all_alive() { [ "$(operator nodes | grep -c ' alive ')" = ${#agents[@]} ]; }
until_true all_alive
urls=
for gateway in s3-a s3-b; do
    start $gateway
    urls+=,http://127.0.0.1:${ports[$gateway]% *}
done
if [ "${KILLS:-}" != no ]; then
    (
        trap 'exit' TERM
        victims=("${agents[@]}" coordinator s3-b)
        while sleep 2; do
            victim=${victims[RANDOM % ${#victims[@]}]}
            kill -KILL "$(cat "$folder/pid/$victim")"
            sleep $((1 + RANDOM % 3))
            start "$victim"
        done
    ) 2>/dev/null &
    killing=$!
fi
right=0
"${S3_PYTHON:-python3}" "$repository/scripts/s3-histories.py" "${urls:1}" "${1:-60}" "${2:-1}" || right=$?
if [ -n "$killing" ]; then
    kill "$killing" && wait "$killing" 2>/dev/null || true
    for who in coordinator "${agents[@]}"; do kill -0 "$(cat "$folder/pid/$who")" 2>/dev/null || start "$who"; done
fi
for agent in "${agents[@]}"; do until_true bash -c ": </dev/tcp/127.0.0.1/${ports[$agent]% *}"; done
until_true all_alive
operator scrub
exit "$right"
