#!/usr/bin/env bash
# Installs the libraries that tests and benchmarks compare with, and the tools for emulated clusters. Kintsu
# itself needs none of them. If one cannot be installed, this script says so, and tests that need it are skipped.
set -u

missing=()
ldconfig -p 2>/dev/null | grep -q 'libisal\.so\.2' || missing+=(libisal2)
[ -e /usr/include/jerasure.h ] || missing+=(libjerasure-dev)
command -v ip >/dev/null && command -v tc >/dev/null || missing+=(iproute2)
# Maven fetches the HDFS that tests run beside (scripts/hdfs.sh).
command -v java >/dev/null || missing+=(default-jre-headless)
command -v mvn >/dev/null || missing+=(maven)

if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing ${missing[*]} (for comparisons in tests and benchmarks, and for emulated hosts)"
        if ! { apt-get install -y -q "${missing[@]}" ||
            { apt-get update -q && apt-get install -y -q "${missing[@]}"; }; } >/tmp/kintsu-setup.log 2>&1; then
            echo "could not install ${missing[*]} (see /tmp/kintsu-setup.log): tests that need them are skipped"
        fi
    else
        echo "not installed, and this is not root with apt: ${missing[*]}; tests that need them are skipped"
        echo "(apt-get install ${missing[*]})"
    fi
fi
command -v mvn >/dev/null && command -v java >/dev/null ||
    echo "no Maven and Java: tests beside a real HDFS and comparisons with its coders are skipped"
exit 0
