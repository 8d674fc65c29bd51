#!/usr/bin/env bash
# Installs what the tests and benchmarks compare against, and what emulated clusters are built with. Kintsu
# itself needs none of it: where it cannot be had, that is said here, and the tests that need it are skipped.
set -u

missing=()
ldconfig -p 2>/dev/null | grep -q 'libisal\.so\.2' || missing+=(libisal2)
[ -e /usr/include/jerasure.h ] || missing+=(libjerasure-dev)
command -v ip >/dev/null && command -v tc >/dev/null || missing+=(iproute2)

if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing ${missing[*]} (other sides of tests and benchmarks, emulated hosts)"
        if ! { apt-get install -y -q "${missing[@]}" ||
            { apt-get update -q && apt-get install -y -q "${missing[@]}"; }; } >/tmp/kintsu-setup.log 2>&1; then
            echo "could not install ${missing[*]} (see /tmp/kintsu-setup.log): what needs them is skipped"
        fi
    else
        echo "not installed, and this is not root with apt: ${missing[*]}; what needs them is skipped"
        echo "(apt-get install ${missing[*]})"
    fi
fi
command -v mvn >/dev/null && command -v java >/dev/null ||
    echo "no Maven and JDK: comparisons with HDFS's coders are skipped"
exit 0
