#!/usr/bin/env bash
# Builds the page and shows what it looks like. Kintsu itself needs none of this: the built files are kept in
# crates/web/dist.
#   scripts/page.sh build            types are checked, crates/web/dist is built (npm)
#   scripts/page.sh shots [FOLDER]   screenshots of every view into docs/page (npm, Chromium, a built kintsu)
set -euo pipefail
cd "$(dirname "$0")/.."

npm ci --prefix crates/web/page --no-audit --no-fund --silent
case "${1:-}" in
build)
    npm run --prefix crates/web/page --silent check
    npm run --prefix crates/web/page --silent build
    ;;
shots)
    cargo test -p kintsu-web --test suite --locked -- --ignored --exact views::screenshots
    ;;
*)
    sed -n 2,5p "$0" >&2
    exit 2
    ;;
esac
