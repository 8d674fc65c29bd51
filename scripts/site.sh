#!/usr/bin/env bash
# Builds the documents as a site in target/site: scripts/site.sh [OUT]
#
# The pages are the documents of this tree as they are, in the order of docs/SUMMARY.md, then the decisions (docs/adr) and
# a reference of all commands, made from the program (KINTSU_BIN, or a debug build). Where a page names another one in a
# code span, the site has a link. mdBook is taken from PATH, or built once from crates.io into target/mdbook.
# Every link within the site is followed at the end; one that leads nowhere ends the script with an error.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.5.4
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out=$(realpath -m "${1:-$target/site}")
program=$(realpath "${KINTSU_BIN:-$target/debug/kintsu}")
mdbook=$(command -v mdbook || echo "$target/mdbook/bin/mdbook")
if [ ! -x "$mdbook" ]; then
    echo "== building mdBook $version"
    cargo install mdbook --version "$version" --locked --quiet --no-default-features --features search \
        --root "$target/mdbook" --target-dir "$target/mdbook/build"
fi
book=$(mktemp -d)
trap 'rm -rf "$book"' EXIT
mkdir "$book/src"
git ls-files -z '*.md' docs | grep -zv '^docs/SUMMARY.md$' | xargs -0 cp --parents -t "$book/src"
"$program" man "$book/src/docs" --markdown
python3 - "$book/src" <<'PYTHON'
"""Writes the table of contents, and makes links of the documents that code spans name."""
import pathlib, re, sys

src = pathlib.Path(sys.argv[1])
summary = pathlib.Path("docs/SUMMARY.md").read_text()
# The site begins one folder above docs.
summary = re.sub(r"\]\((?!\.\./)(?=[^)])", "](docs/", summary).replace("](../", "](")
lines = ["", "- [Commands](docs/commands.md)", "- [Decisions](docs/adr/README.md)"]
(src / "docs/adr/README.md").write_text("# Decisions\n\nOne page for each that would be dear to turn round.\n")
for decision in sorted((src / "docs/adr").glob("0*.md")):
    title = decision.read_text().splitlines()[0].lstrip("# ")
    lines.append(f"    - [{title}](docs/adr/{decision.name})")
(src / "SUMMARY.md").write_text(summary.rstrip() + "\n".join(lines) + "\n")

named = set(re.findall(r"\]\(([^)]+)\)", (src / "SUMMARY.md").read_text()))
pages = {str(page.relative_to(src)) for page in src.rglob("*.md")} - {"SUMMARY.md"}
if missing := sorted(pages - named):
    sys.exit(f"docs/SUMMARY.md does not name {', '.join(missing)}")
for page in pages:
    path = src / page
    up = "../" * page.count("/")
    fenced, out = False, []
    for line in path.read_text().splitlines():
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        if not fenced and not fence:
            link = lambda m: f"[{m[0]}]({up}{m[1]})" if m[1] in pages and m[1] != page else m[0]
            line = re.sub(r"(?<!\[)`([A-Za-z0-9_./-]+\.md)`", link, line)
        out.append(line)
    path.write_text("\n".join(out) + "\n")
PYTHON
cat >"$book/book.toml" <<TOML
[book]
title = "Kintsu"
language = "en"
src = "src"
[build]
build-dir = "$out"
create-missing = false
# README.md keeps its name, since other pages link to it.
use-default-preprocessors = false
[output.html]
no-section-label = true
TOML
rm -rf "$out"
"$mdbook" build "$book" 2>&1 | grep -v INFO || true
[ -f "$out/index.html" ] || { echo "mdBook made no page" >&2; exit 1; }
python3 - "$out" <<'PYTHON'
"""Follows every link within the site."""
import html.parser, pathlib, sys, urllib.parse

root = pathlib.Path(sys.argv[1])

class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids.add(attributes.get("id"))
        self.links += [attributes[key] for key in ("href", "src") if attributes.get(key)]

pages = {path: Page(path.read_text()) for path in root.rglob("*.html")}
links, broken = 0, []
for path, page in pages.items():
    if path.name in ("404.html", "toc.html"):
        continue
    for link in page.links:
        parts = urllib.parse.urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        links += 1
        to = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
        anchor = urllib.parse.unquote(parts.fragment)
        if not to.exists():
            broken.append(f"{path.relative_to(root)}: {link}: no such file")
        elif anchor and to in pages and anchor not in pages[to].ids:
            broken.append(f"{path.relative_to(root)}: {link}: no such heading")
if broken:
    sys.exit("links that lead nowhere:\n  " + "\n  ".join(broken))
print(f"{len(pages)} pages, {links} links, all lead somewhere: {root}/index.html")
PYTHON
