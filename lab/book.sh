#!/usr/bin/env bash
# Builds the documentation book in target/book; fails on broken links and anchors. Installs MkDocs Material if it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

requirements=lab/book/requirements.txt
# The name changes with the versions.
venv=target/mkdocs-$(sha256sum "$requirements" | cut -c1-12)

if [ ! -x "$venv/bin/mkdocs" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --requirement "$requirements"
fi
# The variable turns off a notice about other versions.
NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" build --strict --clean
echo "The book is in target/book: $(find target/book -name '*.html' | wc -l) pages"
