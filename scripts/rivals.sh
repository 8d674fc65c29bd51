#!/usr/bin/env bash
# Builds what `kintsu bench kernel` compares with, from published sources, into target/rivals: ISA-L 2.31 (the sources in
# crate isal-sys; needs nasm, make and a C compiler) and klauspost/reedsolomon 1.12.4 (needs Go and a C compiler). What cannot
# be built is left out, and the benchmark says so; it then uses the system's ISA-L, if there is one.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$(realpath -m "${CARGO_TARGET_DIR:-target}/rivals")
mkdir -p "$out"
log=$out/build.log
: >"$log"

isal() {
    local crate=isal-sys-0.5.3+496255c sum=aefc9239959a60eaba201ccdd99897b5270be98d01f561c2166f5e3343e5a29b
    command -v nasm >/dev/null || { [ "$(id -u)" = 0 ] && apt-get install -y -q nasm; } || return 1
    rm -rf "$out/isal"
    mkdir "$out/isal"
    curl -fsSL "https://static.crates.io/crates/isal-sys/$crate.crate" -o "$out/isal.crate" || return 1
    echo "$sum  $out/isal.crate" | sha256sum -c - || return 1
    tar xzf "$out/isal.crate" -C "$out/isal" --strip-components=1 || return 1
    make -C "$out/isal/isa-l" -f Makefile.unx slib units=erasure_code -j2 || return 1
    cp "$out/isal/isa-l/bin/libisal.so.2" "$out/libisal.so.2"
}

klauspost() {
    command -v go >/dev/null || return 1
    (cd crates/experiments/rivals/klauspost && go build -buildmode=c-shared -o "$out/libklauspost.so" .)
}

for rival in isal klauspost; do
    if "$rival" >>"$log" 2>&1; then
        echo "built: $rival"
    else
        echo "not built: $rival (see $log)"
    fi
done
