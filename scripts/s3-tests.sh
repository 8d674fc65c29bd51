#!/usr/bin/env bash
# Runs Ceph's s3-tests (https://github.com/ceph/s3-tests) against `kintsu s3` over a cluster of six nodes on this machine, and
# writes which tests pass. Not part of `make test`: it takes half an hour and fetches the tests.
#
#   scripts/s3-tests.sh [RESULT [pytest options, such as -k test_bucket_list]]
#
# RESULT is a folder for the results (s3-tests-result unless given): `list.md` (the names by outcome; docs/s3-tests.md is a copy),
# `report-*` (what pytest says) and the logs. The tests are those in S3_TESTS, or a clone that is made in RESULT. KINTSU_BIN is the
# program, or that of a release build. S3_PYTHON is a python with the tests' requirements, or a virtual environment is made in
# RESULT. WORKERS tests run at one time (3; needs pytest-xdist if it is more than 1).
#
# Two gateways serve the cluster: in the second one a day of lifecycle rules has ten seconds, as the tests of expiration want.
set -euo pipefail
repository=$(realpath "$(dirname "$0")/..")
program=$(realpath "${KINTSU_BIN:-$repository/${CARGO_TARGET_DIR:-target}/release/kintsu}")
result=${1:-s3-tests-result}
shift || true
mkdir -p "$result"
result=$(realpath "$result")
tests=${S3_TESTS:-$result/s3-tests}
if [ ! -d "$tests" ]; then git clone --depth 1 https://github.com/ceph/s3-tests "$tests"; fi
python=${S3_PYTHON:-$result/venv/bin/python}
if [ ! -x "$python" ]; then
    python3 -m venv "$result/venv"
    "$result/venv/bin/pip" install --quiet -r "$tests/requirements.txt" pytest-xdist
fi
workers=${WORKERS:-3}

folder=$(mktemp -d "${FOLDER:-/tmp}/kintsu-s3-XXXXXX")
pids=()
finish() {
    if [ ${#pids[@]} -gt 0 ]; then kill -KILL "${pids[@]}" 2>/dev/null || true; fi
    wait 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT
export KINTSU_LOG=${KINTSU_LOG:-error}

"$program" up --json --no-page --nodes 6 --racks 6 --dir "$folder/cluster" --listen 127.0.0.1:0 > "$folder/up" 2> "$result/cluster.log" &
pids+=($!)
until grep -q 127.0.0.1 "$folder/up"; do sleep 0.1; done
KINTSU_COORDINATOR=$(grep -o '127\.0\.0\.1:[0-9]*' "$folder/up" | head -1)
export KINTSU_COORDINATOR
users() {
    "$1" main 0555b35654ad1656d804 h7GhxuBLTrlhVUyxSPUKUV8r/2EI4ngqJxD7iBdBYLhwluN30JaT3Q==
    "$1" alt NOPQRSTUVWXYZABCDEFG nopqrstuvwxyzabcdefghijklmnabcdefghijklm
    "$1" tenant HIJKLMNOPQRSTUVWXYZA opqrstuvwxyzabcdefghijklmnopqrstuvwxyzab
}
key() { printf '[[key]]\nuser = "%s"\naccess = "%s"\nsecret = "%s"\nemail = "%s@example.com"\ncreate = true\n' "$1" "$2" "$3" "$1"; }
users key > "$folder/keys"
user() {
    printf '[s3 %s]\ndisplay_name = %s\nuser_id = %s\nemail = %s@example.com\napi_name = \naccess_key = %s\nsecret_key = %s\n' \
        "$1" "$1" "$1" "$1" "$2" "$3"
    if [ "$1" = tenant ]; then printf 'tenant = tenant\n'; fi
}
gateway() { # NAME OPTIONS...: a gateway, and how the tests find it
    local name=$1 port
    shift
    "$program" s3 --json --keys "$folder/keys" --listen 127.0.0.1:0 --code rs:n=4,k=2 "$@" > "$folder/$name" 2> "$result/$name.log" &
    pids+=($!)
    until grep -q listen "$folder/$name"; do
        kill -0 "${pids[-1]}" || { cat "$result/$name.log"; exit 1; }
        sleep 0.1
    done
    port=$(grep -o '127\.0\.0\.1:[0-9]*' "$folder/$name" | head -1 | cut -d: -f2)
    {
        printf '[DEFAULT]\nhost = 127.0.0.1\nport = %s\nis_secure = False\nssl_verify = False\n' "$port"
        printf '[fixtures]\nbucket prefix = %s-{random}-\niam name prefix = s3-tests-\niam path prefix = /s3-tests/\n' "$name"
        users user
        for section in iam 'iam root' 'iam alt root'; do
            printf '[%s]\ndisplay_name = iam\nuser_id = iam\nemail = iam@example.com\naccess_key = iam\nsecret_key = iam\n' "$section"
        done
        printf '[webidentity]\n'
    } > "$folder/$name.conf"
}
gateway gateway
gateway short --lifecycle-day 10s

# What the gateway does not offer at all is not asked for.
excluded='bucket_logging or encryption or sse_s3 or cloud_transition or cloud_restore or lifecycle_transition or iam_account or iam_user'
header='test_lifecycle_expiration_header or test_lifecycle_expiration_days0'
alone='test_list_buckets_paginated'
run() { # NAME GATEWAY WORKERS PYTEST-OPTIONS...
    local name=$1 gateway=$2 many=()
    if [ "$3" -gt 1 ]; then many=(-n "$3"); fi
    shift 3
    S3TEST_CONF=$folder/$gateway.conf "$python" -m pytest -q -p no:cacheprovider -rA --tb=line "${many[@]}" --junitxml="$result/$name.xml" "$@" \
        > "$result/report-$name" 2>&1 || true
}
cd "$tests"
rm -f "$result"/*.xml
if [ $# -gt 0 ]; then
    run asked gateway "$workers" s3tests/functional/test_s3.py s3tests/functional/test_headers.py "$@"
else
    # Tests of expiration mostly sleep.
    run expiry short 8 s3tests/functional/test_s3.py -m "lifecycle_expiration and not ($excluded)" -k "not ($header)" &
    expiry=$!
    run all gateway "$workers" s3tests/functional/test_s3.py s3tests/functional/test_headers.py \
        -m "not ($excluded) and not lifecycle_expiration" -k "not $alone"
    wait "$expiry"
    run header gateway 1 s3tests/functional/test_s3.py -m "lifecycle_expiration and not ($excluded)" -k "$header"
    run alone gateway 1 s3tests/functional/test_s3.py -k "$alone"
fi
# Which Kintsu it was, and when.
commit=$("$program" --version | sed -n 's/.*(\(.*\))$/\1/p')
"$python" "$repository/scripts/s3-tests-list.py" "$tests" "$result" "$excluded" "$commit" "$(date -u +%F)" > "$result/list.md"
head -14 "$result/list.md"
