"""Hooks of the documentation book (mkdocs.yml).

- Directories in the navigation are replaced by their pages.
- The pages in the root of the repository become pages of the book.
- Links that leave docs/ are checked and become plain text, because the book does not contain source files.
- A page that loads anything from another server fails the build.
"""

import logging
import os
import re
from pathlib import Path, PurePosixPath

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

# Pages of the root, and their places in the book.
ROOT_PAGES = {
    "ARCHITECTURE.md": "contributing/architecture.md",
    "CONTRIBUTING.md": "contributing/contributing.md",
    "SECURITY.md": "contributing/security.md",
    "CHANGELOG.md": "contributing/changelog.md",
}

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\]\([^)]*\))*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
# Elements that make a browser load something, with a URL of another server.
EXTERNAL = re.compile(r"<(?:script|link|img|iframe|source|video|audio)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^\s\"'>]*")

# A warning of this logger fails a strict build.
log = logging.getLogger("mkdocs.hooks.book")


def on_config(config):
    listed = set(pages_of(config.nav))
    config.nav = expand(config.nav, listed)
    return config


def pages_of(nav):
    """Yields the pages that the navigation names."""
    for item in nav:
        for value in item.values() if isinstance(item, dict) else [item]:
            yield from pages_of(value) if isinstance(value, list) else [value]


def expand(nav, listed):
    """Replaces each directory by its pages that are not listed."""
    result = []
    for item in nav:
        if isinstance(item, dict):
            result.append({key: expand(value, listed) if isinstance(value, list) else value for key, value in item.items()})
        elif item.endswith("/"):
            pages = sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / item).glob("*.md"))
            result.extend(page for page in pages if page not in listed)
        else:
            result.append(item)
    return result


def on_files(files, config):
    for source, place in ROOT_PAGES.items():
        content = rewritten((ROOT / source).read_text(encoding="utf-8"), source, place)
        files.append(File.generated(config, place, content=content))
    return files


def on_page_markdown(markdown, page, config, files):
    place = page.file.src_uri
    if place in ROOT_PAGES.values():
        return markdown
    return rewritten(markdown, f"docs/{place}", place)


def rewritten(markdown, source, place):
    """Returns a page with the links of the repository as links of the book; `place` is its path in the book."""
    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [rewritten_links(markdown[end : fence.start()], source, place), fence.group(0)]
        end = fence.end()
    return "".join([*parts, rewritten_links(markdown[end:], source, place)])


def rewritten_links(text, source, place):
    def replace(match):
        image, label, target = match.groups()
        if target.startswith("#") or re.match(r"[a-z]+:", target):
            return match.group(0)
        # The label may be an image with a link of its own.
        label = rewritten_links(label, source, place)
        path, _, anchor = target.partition("#")
        path = os.path.normpath(PurePosixPath(source).parent / path)
        if path in ROOT_PAGES:
            inside = ROOT_PAGES[path]
        elif path.startswith("docs/"):
            inside = path.removeprefix("docs/")
        else:
            if not (ROOT / path).exists():
                log.warning("%s links to %s, which does not exist", source, target)
            return label
        relative = os.path.relpath(inside, PurePosixPath(place).parent)
        return f"{image}[{label}]({relative}{'#' + anchor if anchor else ''})"

    return LINK.sub(replace, text)


def on_post_page(output, page, config):
    if external := EXTERNAL.findall(output):
        raise PluginError(f"{page.file.src_uri} loads from another server: {external[0]}")
    return output
