#!/bin/bash
# book.sh FOLDER: makes a site of the pages with mdBook, which people can search.
set -euo pipefail
cd "$(dirname "$0")/.."
to=$(realpath -m "${1:?where to?}")
made=$(mktemp -d) && trap 'rm -rf "$made"' EXIT
mkdir -p "$made/src"
cp docs/book.toml docs/book.css "$made"
# Files that the pages link to keep their place.
cp --parents README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs/README.md docs/*/*.md docs/images/* LICENSE-* etc/scr.conf etc/modulefiles/scr \
    ffi/include/scr.h examples/heat2d.c examples/heat_recover.c examples/lammps/run.py examples/vendor-scheme/{README.md,*.toml,src/*.rs} "$made/src"
# A site has index files where the sources have READMEs and folders.
find "$made/src" -name README.md -execdir mv {} index.md \;
find "$made/src" -name '*.md' -exec sed -i -e 's|README\.md)|index.md)|g' \
    -e 's|\](\([./]*examples/vendor-scheme\))|](\1/index.md)|g' {} +
# The parts and the numbered links of docs/README.md, in their order.
{
    echo "[scr](index.md)"
    echo "[All pages](docs/index.md)"
    sed -nE -e 's/^## ([^:]*).*/\n# \1\n/p' -e 's/^[0-9]+\. \[([^]]*)\]\(([^)#]*)\).*/- [\1](docs\/\2)/p' docs/README.md |
        sed 's|(docs/\.\./|(|' | awk -F '[()]' '!/^- / || !seen[$(NF-1)]++' # a page has one place
    echo "- [An example of a scheme](examples/vendor-scheme/index.md)"
} >"$made/src/SUMMARY.md"
mdbook build "$made" --dest-dir "$made/html" >"$made/log" 2>&1 || { cat "$made/log" >&2 && exit 1; }
rm -rf "$to" && mkdir -p "$(dirname "$to")" && mv "$made/html" "$to"
