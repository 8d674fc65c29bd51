#!/usr/bin/env bash
# Measures `kintsu s3` beside `kintsu put|get` in one run, over a cluster of six nodes on loopback: objects of 4 KiB, 1 MiB and 64 MiB by
# 1 and 16 clients, and objects of 64 MiB by both ways, in turns; puts also by a server with `--etags crc64`. A machine for itself is needed
# for numbers that mean something.
#
#   scripts/s3-rates.sh [SECONDS]    (each point; 3 unless given)
#
# KINTSU_BIN is the program, or that of a release build. OTHER_S3=URL,REGION measures another server too, whose keys are in
# OTHER_ACCESS and OTHER_SECRET. Results in JSON go to standard output.
set -euo pipefail
repository=$(realpath "$(dirname "$0")/..")
program=$(realpath "${KINTSU_BIN:-$repository/${CARGO_TARGET_DIR:-target}/release/kintsu}")
seconds=${1:-3}
folder=$(mktemp -d "${FOLDER:-/tmp}/kintsu-s3-XXXXXX")
pids=()
finish() {
    if [ ${#pids[@]} -gt 0 ]; then kill -KILL "${pids[@]}" 2>/dev/null || true; fi
    wait 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT
export KINTSU_LOG=${KINTSU_LOG:-error}
"$program" up --json --no-page --nodes 6 --racks 6 --dir "$folder/cluster" --listen 127.0.0.1:0 > "$folder/up" &
pids+=($!)
until grep -q 127.0.0.1 "$folder/up"; do sleep 0.1; done
KINTSU_COORDINATOR=$(grep -o '127\.0\.0\.1:[0-9]*' "$folder/up" | head -1)
export KINTSU_COORDINATOR
export AWS_ACCESS_KEY_ID=AKIDRATES00001 AWS_SECRET_ACCESS_KEY=a-secret-of-rates
printf '[[key]]\naccess = "%s"\nsecret = "%s"\ncreate = true\n' "$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY" > "$folder/keys"
serve() {
    "$program" s3 --json --keys "$folder/keys" --listen 127.0.0.1:0 --code rs:n=6,k=4 --etags "$1" > "$folder/s3-$1" &
    pids+=($!)
    until grep -q listen "$folder/s3-$1"; do sleep 0.1; done
}
serve md5
serve crc64
url=http://$(grep -o '127\.0\.0\.1:[0-9]*' "$folder/s3-md5" | head -1)
light=http://$(grep -o '127\.0\.0\.1:[0-9]*' "$folder/s3-crc64" | head -1)

rates=$repository/scripts/s3-rates.py
# First, while nothing was deleted: some file systems make new files slowly for a minute after that.
python3 "$rates" "$url" us-east-1 "$seconds"

head -c 64M /dev/urandom > "$folder/large"
took() { local begun=$EPOCHREALTIME; "$@" > /dev/null; awk -v a="$begun" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.4f\n", b - a }'; }
target() { echo "$1$(python3 "$rates" "$1" us-east-1 --sign "$2" "$3")"; }
curl -fsS -X PUT "$(target "$url" PUT /large)"
put=$(target "$url" PUT /large/object) light=$(target "$light" PUT /large/light) get=$(target "$url" GET /large/object)
for turn in 1 2 3 4 5 6; do
    took curl -fsS -T "$folder/large" "$put" >> "$folder/s3-put"
    took curl -fsS -T "$folder/large" "$light" >> "$folder/light-put"
    took "$program" put --code rs:n=6,k=4 --replace "$folder/large" plain >> "$folder/plain-put"
    took curl -fsS -o "$folder/back" "$get" >> "$folder/s3-get"
    took "$program" get plain "$folder/back-plain" >> "$folder/plain-get"
done
cmp "$folder/large" "$folder/back"
cmp "$folder/large" "$folder/back-plain"
median() { sort -n "$1" | awk '{ t[NR] = $1 } END { print t[int((NR + 1) / 2)] }'; }
compare() {
    awk -v way="$1" -v s3="$(median "$folder/$2")" -v plain="$(median "$folder/$3")" \
        'BEGIN { printf "{\"way\": \"%s\", \"s3_s\": %s, \"plain_s\": %s, \"s3_rate_over_plain\": %.3f}\n", way, s3, plain, plain / s3 }'
}
compare "put of 64 MiB" s3-put plain-put
compare "put of 64 MiB, --etags crc64" light-put plain-put
compare "get of 64 MiB" s3-get plain-get
if [ -n "${OTHER_S3:-}" ]; then
    AWS_ACCESS_KEY_ID=$OTHER_ACCESS AWS_SECRET_ACCESS_KEY=$OTHER_SECRET python3 "$rates" "${OTHER_S3%,*}" "${OTHER_S3#*,}" "$seconds"
fi
