#!/usr/bin/env bash
# Measures `kintsu s3` beside Garage (three nodes on loopback, three copies) in one run: scripts/s3-bench.sh [SECONDS]
# GARAGE is the program; unless given it is built once: cargo install garage --locked. What is printed: scripts/s3-rates.sh.
# Garage syncs nothing by default (`metadata_fsync`, `data_fsync`), Kintsu syncs before it answers. GARAGE_SYNC=true makes Garage sync too.
set -euo pipefail
cd "$(dirname "$0")/.."
garage=${GARAGE:-${CARGO_HOME:-$HOME/.cargo}/bin/garage}
[ -x "$garage" ] || cargo install garage --version '^2.5' --locked
folder=$(mktemp -d "${FOLDER:-/tmp}/garage-XXXXXX")
pids=()
finish() {
    if [ ${#pids[@]} -gt 0 ]; then kill "${pids[@]}" 2>/dev/null || true; fi
    wait 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
random() { od -An -tx1 -N"$1" /dev/urandom | tr -d ' \n'; }
secret=$(random 32)
region=garage
export RUST_LOG=${RUST_LOG:-garage=error}
for node in 1 2 3; do
    mkdir "$folder/$node"
    rpc=$(port) api=$(port)
    [ "$node" != 1 ] || url=http://127.0.0.1:$api
    cat >"$folder/$node.toml" <<TOML
metadata_dir = "$folder/$node/meta"
data_dir = "$folder/$node/data"
db_engine = "lmdb"
replication_factor = 3
metadata_fsync = ${GARAGE_SYNC:-false}
data_fsync = ${GARAGE_SYNC:-false}
rpc_bind_addr = "127.0.0.1:$rpc"
rpc_public_addr = "127.0.0.1:$rpc"
rpc_secret = "$secret"
[s3_api]
s3_region = "$region"
api_bind_addr = "127.0.0.1:$api"
TOML
    "$garage" -c "$folder/$node.toml" server >"$folder/$node.log" 2>&1 &
    pids+=($!)
done
of() { local node=$1; shift; "$garage" -c "$folder/$node.toml" "$@"; }
until ids=$(for node in 1 2 3; do of $node node id -q; done) 2>/dev/null && of 1 status >/dev/null 2>&1; do sleep 0.3; done
for id in $ids; do
    until of 1 node connect "$id" >/dev/null 2>&1; do sleep 0.3; done
    of 1 layout assign "${id%%@*}" -z "zone-${id:0:4}" -c 10G >/dev/null
done
of 1 layout apply --version 1 >/dev/null
access=GK$(random 12) key=$(random 32)
of 1 key import --yes "$access" "$key" -n rates >/dev/null
until of 1 key allow --create-bucket "$access" >/dev/null 2>&1; do sleep 0.3; done
OTHER_S3=$url,$region OTHER_ACCESS=$access OTHER_SECRET=$key scripts/s3-rates.sh "${1:-3}"
