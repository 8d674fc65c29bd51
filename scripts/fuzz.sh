#!/usr/bin/env bash
# Fuzzes each parser for some time: scripts/fuzz.sh SECONDS [TARGET...]
# Needs a C++ compiler, and once the crate libfuzzer-sys. An input that fails is kept in fuzz/artifacts/TARGET; inputs that reach new code
# are kept in fuzz/corpus/TARGET. The parsers are safe Rust, so the coverage of libFuzzer is enough and the stable toolchain does.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
seconds=${1:?usage: scripts/fuzz.sh SECONDS [TARGET...]}
shift
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(frames messages badges copies definitions s3 nbd hdfs config traces)
host=$(rustc -vV | sed -n 's/^host: //p')
flags="--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1 -Cllvm-args=-sanitizer-coverage-level=4"
flags+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
flags+=" -Cllvm-args=-sanitizer-coverage-trace-compares"
# With a target, build scripts and macros are built without these flags.
RUSTFLAGS="$flags" cargo build --release --target "$host" "${targets[@]/#/--bin=}"
built=${CARGO_TARGET_DIR:-target}/$host/release
failed=()
for target in "${targets[@]}"; do
    mkdir -p "corpus/$target" "artifacts/$target"
    echo "== $target: $seconds s"
    log=$(mktemp)
    "$built/$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="artifacts/$target/" "corpus/$target" >"$log" 2>&1 || failed+=("$target")
    grep -E '^(SUMMARY|==|stat::number_of_executed)|DONE|panicked|artifact' "$log" || tail -20 "$log"
    rm "$log"
done
[ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]}"; exit 1; }
