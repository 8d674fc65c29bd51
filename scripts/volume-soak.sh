#!/usr/bin/env bash
# Writes to a volume for a while and verifies each byte, while something is killed each minute:
#
#   scripts/volume-soak.sh MINUTES [SECONDS_BETWEEN_KILLS]
#
# A coordinator and 9 agents run in processes of their own, and `kintsu nbd` serves a volume. fio writes 4 to 256 KiB at random
# offsets with checksums and reads everything back, pass after pass. Between fio and `kintsu nbd` stands qemu-nbd, which
# connects again when its server was killed and then repeats what was not answered, as a virtual machine's disk does.
# Killed (SIGKILL) in turn: an agent, the NBD server, the coordinator; each is started again after some seconds. At the end all is
# committed, and what the last pass wrote is verified again without each agent in turn, so that parities are needed.
# The program is KINTSU_BIN, or the one of a release build. SOAK_SEED chooses the agents and fio's offsets. Ends with 0 if no
# pass had an error, no process panicked or ended by itself, and all was over ten minutes after its time; then it leaves nothing
# behind. Otherwise it ends with 1, keeps the folder with all logs and says where it is.
set -euo pipefail
minutes=${1:?"expected: scripts/volume-soak.sh MINUTES [SECONDS_BETWEEN_KILLS]"}
every=${2:-60}
repository=$(realpath "$(dirname "$0")/..")
program=$(realpath "${KINTSU_BIN:-$repository/${CARGO_TARGET_DIR:-target}/release/kintsu}")
for tool in fio qemu-nbd python3; do
    command -v "$tool" >/dev/null || { echo "expected $tool to be installed (scripts/setup.sh)" >&2; exit 1; }
done
fio --enghelp | grep -qw nbd || { echo "expected a fio with the nbd engine" >&2; exit 1; }

nodes=9 racks=3 size=256M
RANDOM=${SOAK_SEED:-1}
folder=$(mktemp -d)
export KINTSU_LOG=warn
unset KINTSU_TOKEN
declare -A pids=()

# Starts a process in the background under a name; its output is appended to the name's log.
start() {
    local name=$1
    shift
    "$@" >>"$folder/$name.log" 2>&1 </dev/null &
    pids[$name]=$!
}

# Ends a process by a signal, and waits for it.
end() {
    local name=$1 signal=$2
    [ -n "${pids[$name]:-}" ] || return 0
    kill "-$signal" "${pids[$name]}" 2>/dev/null || true
    wait "${pids[$name]}" 2>/dev/null || true
    unset "pids[$name]"
}

finish() {
    local status=$?
    trap - EXIT
    end fio KILL
    end qemu TERM
    end nbd TERM
    for ((node = 0; node < nodes; node++)); do end "agent-$node" TERM; done
    end coordinator KILL
    if [ "$status" = 0 ]; then
        rm -rf "$folder"
    else
        echo "the logs are in $folder" >&2
    fi
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

# Waits until a command succeeds, a minute at most.
until_done() {
    local what=$1
    shift
    for ((i = 0; i < 600; i++)); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.1
    done
    echo "gave up waiting for $what" >&2
    exit 1
}

coordinator() { start coordinator "$program" coordinator --dir "$folder/coordinator" --listen "$KINTSU_COORDINATOR" --grace 1h; }
agent() { start "agent-$1" "$program" agent --dir "$folder/node-$1" --id "$1" --rack $(($1 % racks)); }
server() { start nbd "$program" nbd soak --unix "$folder/nbd.sock" --take; }
all_alive() { [ "$("$program" nodes | grep -c ' alive')" = "$nodes" ]; }

# A port that is free now.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export KINTSU_COORDINATOR=127.0.0.1:$port
coordinator
until_done "the coordinator" "$program" nodes
for ((node = 0; node < nodes; node++)); do agent "$node"; done
until_done "all agents" all_alive
"$program" volume create soak --size 256MiB --code rs:n=6,k=4
server
until_done "the NBD server" test -S "$folder/nbd.sock"
start qemu qemu-nbd --persistent --shared=0 --socket "$folder/front.sock" --export-name soak --image-opts \
    "driver=raw,file.driver=nbd,file.server.type=unix,file.server.path=$folder/nbd.sock,file.export=soak,file.reconnect-delay=300"
until_done "qemu-nbd" test -S "$folder/front.sock"

# Nobody ends but by our hand, and nothing hangs.
watch_over() {
    local name
    for name in "${!pids[@]}"; do
        [ "$name" = fio ] || kill -0 "${pids[$name]}" 2>/dev/null || {
            echo "$name ended by itself:" >&2
            tail -n 20 "$folder/$name.log" >&2
            exit 1
        }
    done
    [ "$SECONDS" -lt $((ends + 600)) ] || { echo "pass $pass did not end" >&2; exit 1; }
}
# Starts a pass of fio; with --verify_only it reads what the same pass wrote.
pass_of_fio() {
    start fio fio --name=soak --ioengine=nbd "--uri=nbd+unix:///soak?socket=$folder/front.sock" --rw=randwrite \
        --bsrange=4k-256k --size="$size" --iodepth=32 --fsync=64 --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_state_save=0 \
        --randseed="$seed" --output="$folder/fio.json" --output-format=json "$@"
}
# Its verdict.
fio_ended() {
    if ! wait "${pids[fio]}"; then
        echo "pass $pass: fio found an error:" >&2
        tail -n 20 "$folder/fio.log" >&2
        exit 1
    fi
    unset "pids[fio]"
}

ends=$((SECONDS + minutes * 60)) next=$((SECONDS + every)) pass=0 kills=0 written=0
while [ "$SECONDS" -lt "$ends" ]; do
    pass=$((pass + 1)) seed=$((RANDOM * 32768 + RANDOM))
    pass_of_fio
    while kill -0 "${pids[fio]}" 2>/dev/null; do
        sleep 0.2
        watch_over
        [ "$SECONDS" -ge "$next" ] || continue
        next=$((SECONDS + every))
        case $((kills % 3)) in
        0) victim=agent-$((RANDOM % nodes)) ;;
        1) victim=nbd ;;
        *) victim=coordinator ;;
        esac
        end "$victim" KILL
        kills=$((kills + 1))
        echo "$(date +%T) pass $pass: killed $victim"
        sleep $((1 + RANDOM % 5))
        case $victim in
        agent-*) agent "${victim#agent-}" ;;
        nbd) server ;;
        coordinator) coordinator ;;
        esac
    done
    fio_ended
    written=$((written + 256))
    echo "$(date +%T) pass $pass: 256 MiB written and verified"
done
until_done "all agents" all_alive
until_done "a commit of all" "$program" volume commit soak
for ((node = 0; node < nodes; node++)); do
    end "agent-$node" KILL
    pass_of_fio --verify_only=1
    while kill -0 "${pids[fio]}" 2>/dev/null; do
        sleep 0.2
        watch_over
    done
    fio_ended
    echo "$(date +%T) verified without agent-$node"
    agent "$node"
    until_done "all agents" all_alive
done
if grep -l 'panicked at' "$folder"/*.log >&2; then
    echo "these panicked" >&2
    exit 1
fi
echo "$minutes minutes, $pass passes, $written MiB written and verified, $kills kills: no error, no wrong byte"
