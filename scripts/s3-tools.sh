#!/usr/bin/env bash
# Uses `kintsu s3` as its users do, over a cluster of six nodes on this machine: rclone syncs a tree while a node is killed, and checks it after that came
# back; s3cmd puts and gets; restic backs up while a node is killed, and restores with another one dead; boto3 and pyarrow read and write in Python; Hadoop's S3A moves folders. What a
# tool reads back is compared. Needs rclone, s3cmd and restic (Debian has them), boto3 and pyarrow in S3_PYTHON (python3), and Java and Maven, which fetches
# S3A once (700 MB). One that is missing is skipped, and then this fails at its end, unless KINTSU_SKIP=allow.
#
#   scripts/s3-tools.sh [FILES]    (1000 unless given)
#
# KINTSU_BIN is the program, or that of a release build.
set -euo pipefail
repository=$(realpath "$(dirname "$0")/..")
program=$(realpath "${KINTSU_BIN:-$repository/${CARGO_TARGET_DIR:-target}/release/kintsu}")
files=${1:-1000}
skipped=()
skip() { echo "SKIPPED: no $1"; skipped+=("$1"); }
folder=$(mktemp -d "${FOLDER:-/tmp}/kintsu-s3-XXXXXX")
pids=()
finish() {
    if [ ${#pids[@]} -gt 0 ]; then kill -KILL "${pids[@]}" 2>/dev/null || true; fi
    wait 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT
export KINTSU_LOG=${KINTSU_LOG:-error}
# The gateway speaks plain HTTP on loopback; rclone refuses to start beside a bundle of certificates.
unset AWS_CA_BUNDLE

"$program" coordinator --json --no-page --listen 127.0.0.1:0 --grace 1h --dir "$folder/coordinator" > "$folder/ready" &
pids+=($!)
until grep -q listen "$folder/ready"; do sleep 0.1; done
KINTSU_COORDINATOR=$(grep -o '127\.0\.0\.1:[0-9]*' "$folder/ready" | head -1)
export KINTSU_COORDINATOR
agent() {
    : > "$folder/ready$1"
    "$program" agent --json --id "$1" --rack "$1" --dir "$folder/node$1" > "$folder/ready$1" &
    agents[$1]=$!
    pids+=($!)
    until grep -q node "$folder/ready$1" 2> /dev/null; do sleep 0.1; done
}
declare -A agents
for node in 0 1 2 3 4 5; do agent "$node"; done
export AWS_ACCESS_KEY_ID=AKIDTOOLS00001 AWS_SECRET_ACCESS_KEY=a-secret-of-tools
printf '[[key]]\naccess = "%s"\nsecret = "%s"\ncreate = true\n' "$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY" > "$folder/keys"
"$program" s3 --json --keys "$folder/keys" --listen 127.0.0.1:0 --code rs:n=5,k=3 > "$folder/s3" &
pids+=($!)
until grep -q listen "$folder/s3"; do sleep 0.1; done
address=$(grep -o '127\.0\.0\.1:[0-9]*' "$folder/s3" | head -1)
# Kibibytes in the folders that match a pattern, 0 if none does.
kib() { { du --apparent-size -sck $1 2> /dev/null || true; } | tail -1 | cut -f1; }
# kill_during NODE FOLDERS COMMAND...: kills a node when the folders have grown by 1 MiB while the command runs (what
# was deleted before it began may still make them smaller). The command stands still for that moment, so it surely
# runs; if it has ended by then, this fails.
kill_during() {
    local node=$1 folders=$2 least now running
    shift 2
    least=$(kib "$folders")
    "$@" &
    running=$!
    pids+=("$running")
    until now=$(kib "$folders"); [ "$now" -ge $((least + 1024)) ]; do
        if [ "$now" -lt "$least" ]; then least=$now; fi
        if ! kill -0 "$running" 2> /dev/null; then echo "$1 ended before a node was killed" >&2; exit 1; fi
        sleep 0.02
    done
    kill -STOP "$running" 2> /dev/null || true
    until grep -q '^State:.T' "/proc/$running/status" 2> /dev/null; do
        if ! grep -q '^State:.[RSD]' "/proc/$running/status" 2> /dev/null; then echo "$1 ended before a node was killed" >&2; exit 1; fi
    done
    kill -KILL "${agents[$node]}"
    kill -CONT "$running"
    wait "$running"
}
seconds() { local begun=$EPOCHREALTIME; "$@"; awk -v a="$begun" -v b="$EPOCHREALTIME" 'BEGIN { printf "  %.1f s\n", b - a }'; }

mkdir -p "$folder/tree"
for i in $(seq 1 "$files"); do
    mkdir -p "$folder/tree/$((i % 37))"
    head -c $((i * 7919 % 20000)) /dev/urandom > "$folder/tree/$((i % 37))/file $i"
done
head -c 40000000 /dev/urandom > "$folder/tree/large"
: > "$folder/tree/0/empty"

if command -v rclone > /dev/null; then
    echo "rclone: sync $files files and one of 40 MB, while a node is killed; check them after it came back"
    remote=":s3,provider=Other,env_auth=true,endpoint='http://$address':tools-rclone"
    export RCLONE_CONFIG=/dev/null
    rclone mkdir "$remote"
    # At full speed it may end before a node is dead; restic too.
    seconds kill_during 3 "$folder/node?" rclone sync --bwlimit 20M --transfers 8 --checkers 16 "$folder/tree" "$remote"
    agent 3
    seconds rclone check --download "$folder/tree" "$remote"
else
    skip rclone
fi

if command -v s3cmd > /dev/null; then
    echo "s3cmd: put and get, whole and in parts"
    s3() { s3cmd --no-ssl --region=us-east-1 --host="$address" --host-bucket="$address" --access_key="$AWS_ACCESS_KEY_ID" --secret_key="$AWS_SECRET_ACCESS_KEY" --config=/dev/null --quiet "$@"; }
    s3 mb s3://tools-s3cmd
    s3 put --multipart-chunk-size-mb=5 "$folder/tree/large" s3://tools-s3cmd/large
    s3 get s3://tools-s3cmd/large "$folder/large"
    cmp "$folder/large" "$folder/tree/large"
    s3 del --recursive --force s3://tools-s3cmd
    s3 rb s3://tools-s3cmd
else
    skip s3cmd
fi

if command -v restic > /dev/null; then
    echo "restic: backup while a node is killed, check after it came back, restore with another one dead"
    export RESTIC_PASSWORD=x RESTIC_REPOSITORY=s3:http://$address/tools-restic RESTIC_CACHE_DIR=$folder/cache
    restic init --quiet
    seconds kill_during 2 "$folder/node?" restic backup --quiet --limit-upload 20000 "$folder/tree"
    agent 2
    seconds restic check --quiet --read-data
    kill -KILL "${agents[4]}"
    seconds restic restore --quiet latest --target "$folder/restored"
    diff -r "$folder/tree" "$folder/restored$folder/tree"
else
    skip restic
fi
python=${S3_PYTHON:-python3}
if "$python" -c 'import boto3, pyarrow' 2> /dev/null; then
    echo "boto3: a file in parts, a range, a copy; pyarrow: Parquet, of which a column and a few rows are read, with a node dead"
    seconds "$python" - "$address" "$folder/tree/large" << 'END'
import hashlib, sys, boto3, pyarrow as pa, pyarrow.fs, pyarrow.parquet as pq, pyarrow.dataset as ds, os
address, large = sys.argv[1:]
s3 = boto3.client("s3", endpoint_url=f"http://{address}", region_name="us-east-1")
s3.create_bucket(Bucket="tools-python")
for body in (b"", b"some", b"", b"", b"more"):
    s3.put_object(Bucket="tools-python", Key="short", Body=body)
    assert s3.get_object(Bucket="tools-python", Key="short")["Body"].read() == body
s3.upload_file(large, "tools-python", "large")
bytes_ = open(large, "rb").read()
assert s3.get_object(Bucket="tools-python", Key="large")["Body"].read() == bytes_
part = s3.get_object(Bucket="tools-python", Key="large", Range="bytes=7000000-17000000")["Body"].read()
assert part == bytes_[7000000:17000001]
s3.copy({"Bucket": "tools-python", "Key": "large"}, "tools-python", "copy")
assert s3.head_object(Bucket="tools-python", Key="copy")["ContentLength"] == len(bytes_)
fs = pa.fs.S3FileSystem(endpoint_override=address, scheme="http", region="us-east-1",
    access_key=os.environ["AWS_ACCESS_KEY_ID"], secret_key=os.environ["AWS_SECRET_ACCESS_KEY"])
rows = 1_000_000
table = pa.table({"id": range(rows), "text": [hashlib.md5(str(i).encode()).hexdigest() for i in range(rows)]})
pq.write_table(table, "tools-python/table.parquet", filesystem=fs, row_group_size=50_000)
found = ds.dataset("tools-python/table.parquet", filesystem=fs).to_table(columns=["text"], filter=ds.field("id") == 777_777)
assert found.to_pylist() == [{"text": hashlib.md5(b"777777").hexdigest()}]
assert pq.read_table("tools-python/table.parquet", filesystem=fs).equals(table)
END
else
    skip "boto3 and pyarrow in $python"
fi
if command -v java > /dev/null && command -v mvn > /dev/null; then
    echo "S3A of Hadoop: a folder is put, moved, read and removed, with a node dead"
    jars=$(HDFS_LIB="${XDG_CACHE_HOME:-$HOME/.cache}/kintsu/s3a" HDFS_MORE=hadoop-aws "$repository/scripts/hdfs.sh" fetch)
    mkdir "$folder/conf"
    echo '<configuration></configuration>' > "$folder/conf/core-site.xml"
    s3a() {
        java -cp "$folder/conf:$jars/*" org.apache.hadoop.fs.FsShell -D "fs.s3a.endpoint=http://$address" -D fs.s3a.endpoint.region=us-east-1 \
            -D fs.s3a.path.style.access=true -D "fs.s3a.access.key=$AWS_ACCESS_KEY_ID" -D "fs.s3a.secret.key=$AWS_SECRET_ACCESS_KEY" "$@" 2> "$folder/s3a" ||
            { cat "$folder/s3a" >&2; return 1; }
    }
    curl -fsS -X PUT "http://$address$(python3 "$repository/scripts/s3-rates.py" "http://$address" us-east-1 --sign PUT /tools-hadoop)"
    moved() {
        s3a -put "$folder/tree/0" "$folder/tree/large" s3a://tools-hadoop/
        s3a -mkdir -p s3a://tools-hadoop/to/here
        s3a -mv s3a://tools-hadoop/0 s3a://tools-hadoop/large s3a://tools-hadoop/to/here
        s3a -get s3a://tools-hadoop/to/here "$folder/hadoop"
        s3a -rm -r -skipTrash s3a://tools-hadoop/to > /dev/null
        [ -z "$(s3a -ls -R s3a://tools-hadoop/)" ]
    }
    seconds moved
    diff -r "$folder/tree/0" "$folder/hadoop/0"
    cmp "$folder/tree/large" "$folder/hadoop/large"
else
    skip "Java and Maven, for S3A"
fi

if [ ${#skipped[@]} -eq 0 ]; then
    echo "all as it was"
    exit
fi
missing=$(printf ', %s' "${skipped[@]}")
echo "not tried: ${missing:2}"
if [ ${#skipped[@]} -eq 5 ]; then echo "nothing was tried"; else echo "what the others read is as it was"; fi
[ "${KINTSU_SKIP:-}" = allow ]
