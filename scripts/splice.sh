#!/usr/bin/env bash
# Puts standard input between two lines of a page:
#
#   scripts/splice.sh PAGE BEGIN END < TEXT
#   scripts/splice.sh --check PAGE BEGIN END
#
# Fails, and leaves the page as it is, where these lines are not there one after the other. With --check nothing else is done.
set -euo pipefail
check=
[ "${1:-}" != --check ] || { check=yes; shift; }
usage="expected: scripts/splice.sh [--check] PAGE BEGIN END"
page=${1:?$usage} begin=${2:?$usage} end=${3:?$usage}
text=$(mktemp)
trap 'rm -f "$text" "$text.page"' EXIT
[ -n "$check" ] || cat >"$text"
awk -v begin="$begin" -v end="$end" -v text="$text" '
    inside && $0 == end { inside = 0 }
    !inside
    $0 == begin {
        inside = found = 1
        while ((getline line < text) > 0) print line
    }
    END { exit inside || !found }' "$page" >"$text.page" || {
    echo "splice.sh: expected the lines $begin and $end in $page" >&2
    exit 1
}
[ -n "$check" ] || cat "$text.page" >"$page"
