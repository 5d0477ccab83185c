"""Follows every link of the built site.

    python docs/check.py             # make docs does this after mkdocs
    python docs/check.py FOLDER

Files and anchors of the site must exist, the explorer must have the instruction that a
link names, and other addresses must be well formed; they are not opened.  Nothing may
be loaded from other sites, and no directive of doctest may be visible.  Problems are
printed, and the exit status is 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import fragmenta as fm

sys.path.insert(0, str(Path(__file__).resolve().parent))

from making.explorer import PAGE, known
from making.markdown import ROOT

SITE = ROOT / "build" / "site"
LINKS = {"a": "href", "link": "href", "img": "src", "script": "src", "iframe": "src"}
"""The elements with links; all but the first load what the link names."""


class Page(HTMLParser):
    """The names, the links and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[tuple[str, str]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep anchors and links."""
        given = dict(attrs)
        self.names |= {given[key] or "" for key in ("id", "name") if key in given}
        to = given.get(LINKS.get(tag, ""))
        if to and given.get("rel") not in ("canonical", "next", "prev"):
            self.links.append((tag, to))

    def handle_data(self, data: str) -> None:
        """Keep the text."""
        self.text.append(data)


def problems(site: Path) -> Iterator[str]:
    """What is wrong in a folder of pages."""
    pages = {
        path: Page(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
        if path != site / PAGE
    }
    for path, page in pages.items():
        where = path.relative_to(site)
        if any("<BLANKLINE>" in text for text in page.text):
            yield f"{where}: shows <BLANKLINE>"
        if where.name == "404.html":  # its links are relative to the root of a server
            continue
        for tag, to in dict.fromkeys(page.links):
            if why := _wrong(tag, to, path, pages):
                yield f"{where}: {to}: {why}"


def _wrong(tag: str, to: str, path: Path, pages: dict[Path, Page]) -> str:
    """What is wrong with a link; empty if it is right."""
    parts = urlsplit(to)
    if parts.scheme == "data":
        return ""
    if parts.scheme or parts.netloc:
        if tag != "a":
            return "is loaded from another site"
        fine = parts.scheme in ("http", "https", "mailto") and (
            "." in parts.netloc or parts.scheme == "mailto"
        )
        return "" if fine else "is no address"
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_file():
        return "there is no such file"
    name = unquote(parts.fragment)
    if target.name == PAGE:
        fields = parse_qs(parts.fragment)
        if name and not fields:
            return "the explorer has no such anchor"
        known_to_it = all(map(_opens, fields.get("op", [])))
        return "" if known_to_it else "the explorer has no such instruction"
    if name and target in pages and name not in pages[target].names:
        return "there is no such anchor"
    return ""


def _opens(asked: str) -> bool:
    """Whether the explorer has an instruction of this name, or for these words."""
    try:
        return asked in known() or str(fm.find(asked)) in known()
    except fm.Error:
        return False


def main() -> int:
    """Print what is wrong."""
    site = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else SITE
    found = list(problems(site))
    print("\n".join(found) or "every link leads somewhere")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
