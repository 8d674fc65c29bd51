#!/usr/bin/env bash
# Installs what tests and benchmarks compare with (ISA-L, Jerasure, Maven and a JDK for HDFS's coders), the tools for
# emulated clusters, clients of NBD with the file systems that are put on volumes, and npm and Chromium for the page. Kintsu itself needs none of them. If
# one cannot be installed, this script says so, and tests that need it are skipped.
#
#   scripts/setup.sh         all of it
#   scripts/setup.sh demo    only what `make demo` shows a file system on a volume with
set -u

missing=() what="tests, benchmarks and emulated hosts"
command -v nbdcopy >/dev/null && command -v nbdfuse >/dev/null || missing+=(libnbd-bin fuse3)
command -v mke2fs >/dev/null || missing+=(e2fsprogs)
if [ "${1:-}" = demo ]; then
    what="the demo"
else
    ldconfig -p 2>/dev/null | grep -q 'libisal\.so\.2' || missing+=(libisal2)
    [ -e /usr/include/jerasure.h ] || missing+=(libjerasure-dev)
    command -v ip >/dev/null && command -v tc >/dev/null || missing+=(iproute2)
    command -v setpriv >/dev/null && command -v unshare >/dev/null || missing+=(util-linux)
    command -v cc >/dev/null || missing+=(gcc libc6-dev)
    command -v mvn >/dev/null || missing+=(maven)
    command -v qemu-io >/dev/null || missing+=(qemu-utils)
    command -v fio >/dev/null || missing+=(fio)
    command -v mkfs.xfs >/dev/null || missing+=(xfsprogs)
    command -v npm >/dev/null || missing+=(nodejs npm)
    command -v chromium >/dev/null || missing+=(chromium)
    command -v javac >/dev/null || missing+=(default-jdk-headless)
fi

if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing ${missing[*]} (for $what)"
        if ! { apt-get install -y -q "${missing[@]}" ||
            { apt-get update -q && apt-get install -y -q "${missing[@]}"; }; } >/tmp/kintsu-setup.log 2>&1; then
            echo "could not install ${missing[*]} (see /tmp/kintsu-setup.log): what needs them is skipped"
        fi
    else
        echo "not installed, and this is not root with apt: ${missing[*]}; what needs them is skipped"
        echo "(apt-get install ${missing[*]})"
    fi
fi
exit 0
