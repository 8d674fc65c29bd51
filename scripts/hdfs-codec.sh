#!/usr/bin/env bash
# Builds the codec jar for a stock HDFS, with which it writes and reads linear codes of Kintsu:
#
#   scripts/hdfs-codec.sh OUT CODE...        OUT/kintsu-hdfs-codec.jar, and OUT/policies.xml for hdfs ec -addPolicies
#   scripts/hdfs-codec.sh --speed OUT        how fast the coders of the jar are here, and Hadoop's own in Java
#
# Needs a JDK. The jar goes onto the class paths of the NameNodes, DataNodes and clients (docs/hdfs.md). Settings: KINTSU_BIN (the
# program; by default that of a release build), HDFS_VERSION and HDFS_LIB as in hdfs.sh (the jar is the same for both releases).
set -euo pipefail
repository=$(realpath "$(dirname "$0")/..")
fail() { echo "hdfs-codec.sh: $*" >&2; exit 1; }

speed() {
    local out=$1 jars
    jars=$("$repository/scripts/hdfs.sh" fetch)
    sed -n 's|.*<schema id="\(.*\)">.*|\1|p; s|.*<[km]>\(.*\)</.*|\1|p' "$out/policies.xml" | while read -r codec && read -r k && read -r m; do
        for coder in "$codec kintsu" "rs rs_java"; do
            # shellcheck disable=SC2086 # two words
            java -Xmx512m -cp "$out/kintsu-hdfs-codec.jar:$jars/*" kintsu.hdfs.Speed $coder "$k" "$m" 2>/dev/null
        done
    done
}

[ $# -ge 2 ] || fail "expected OUT CODE..., or --speed OUT; see the head of this file"
if [ "$1" = --speed ]; then
    speed "$2"
    exit
fi
out=$1
shift
command -v javac >/dev/null && command -v jar >/dev/null || fail "no JDK here (javac, jar)"
program=${KINTSU_BIN:-$repository/${CARGO_TARGET_DIR:-target}/release/kintsu}
jars=$("$repository/scripts/hdfs.sh" fetch)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" "$work/classes"
"$program" hdfs codec "$@" --out "$work"
find "$repository/java/src" "$work/src" -name '*.java' >"$work/sources"
# Hadoop 3.4 also runs on Java 8.
javac -Xlint:all,-path,-options --release 8 -d "$work/classes" -cp "$jars/*" "@$work/sources"
cp -r "$work/src/META-INF" "$work/classes/"
jar --create --file "$out/kintsu-hdfs-codec.jar" -C "$work/classes" .
cp "$work/policies.xml" "$out/policies.xml"
