#!/usr/bin/env bash
# Installs what the tests and benchmarks compare against. Kintsu itself needs none of it: where
# it cannot be had, the tests that need it say that they are skipped.
set -u

if ldconfig -p 2>/dev/null | grep -q 'libisal\.so\.2'; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing libisal2 (ISA-L, the other side of the kernel's tests and benchmark)"
    if ! { apt-get install -y -q libisal2 || { apt-get update -q && apt-get install -y -q libisal2; }; } \
        >/tmp/kintsu-setup.log 2>&1; then
        echo "libisal2 could not be installed (see /tmp/kintsu-setup.log): comparisons with it are skipped"
    fi
else
    echo "libisal2 is not installed and this is not root with apt: comparisons with it are skipped"
    echo "(apt-get install libisal2)"
fi
exit 0
