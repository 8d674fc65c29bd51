#!/usr/bin/env bash
# Builds the Python package's wheel once, installs it in a clean virtual environment, and runs its tests and its
# example there against the kintsu program (KINTSU_BIN, or a program that this script builds):
#
#   scripts/python-test.sh                  all of it
#   scripts/python-test.sh wheel FOLDER     only builds the wheel, into this folder
#   scripts/python-test.sh test FOLDER      the rest, with the wheel in this folder
set -euo pipefail
cd "$(dirname "$0")/.."
part=${1:-all} wheels=${2:-}

if ! python3 -c 'import sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    echo "SKIPPED: the tests of the Python package: no python3 of version 3.10 or later with venv"
    exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip() { "$folder/venv/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
if [ "$part" != test ]; then
    wheels=${wheels:-$folder/wheels}
    pip wheel --no-deps --wheel-dir "$wheels" ./python
    [ "$part" != wheel ] || exit 0
fi
target=${CARGO_TARGET_DIR:-target}
if [ -z "${KINTSU_BIN:-}" ]; then
    cargo build --locked --quiet -p kintsu
    KINTSU_BIN=$(realpath "$target/debug/kintsu")
fi
export KINTSU_BIN

pip install "$(echo "$wheels"/*.whl)[test]"
# In another folder, so that Python imports the installed package and not the sources.
cd "$folder"
# `-rs` lists what was skipped and why; in the form of the other tests, scripts/test.sh repeats it at the end.
"$folder/venv/bin/python" -m pytest -q -rs -p no:cacheprovider "$OLDPWD/python/tests" |
    sed -E 's/^SKIPPED \[[0-9]+\] ([^:]+):[0-9]+: /SKIPPED: \1: /'
"$folder/venv/bin/python" "$OLDPWD/python/examples/idea_to_repair.py"
