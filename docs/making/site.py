"""Turns the pages of docs/ into those of the site.

The pages are plain Markdown, readable on code hosts.  The site has more: a picture for
every set of operands, links into the explorer, charts, tables that filter, replays.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from html import escape

import fragmenta as fm
from fragmenta.inspect.view.palette import hex_colour
from making import (
    catalogue,
    charts,
    explorer,
    figures,
    gallery,
    labels,
    replays,
    widgets,
)
from making.markdown import DOCS, ROOT, anchor

BUILT = ROOT / "build" / "docs"
PICTURE = re.compile(r"<!-- picture: (.+) -->")
SHOW = re.compile(r"(?s)<!-- generated: gallery:(\w+) -->.*?<!-- /generated -->")
ROW = re.compile(r"(?m)^\| `([^`|]+)` \|(?= PTX)")
ELSEWHERE = "tests|src|examples"
OUTSIDE = re.compile(rf"\[([^\]]+)\]\((?:\.\./)+(?:{ELSEWHERE})/[^)]*\)")
EXAMPLE = re.compile(r"`(#(?:op|values)=[^`]+)`")
"""What follows the address of the explorer, as an example."""
HOSTS = re.compile(r"(?s)<!-- code hosts -->.*?<!-- /code hosts -->\n*")
"""Text that only code hosts show."""
LAYOUTS = re.compile(r"\[layouts\]\(#([^)]+)\)")
FRONT = {
    "index.md": "template: home.html\nhide: [navigation, toc]",
    "instructions.md": "hide: [toc]",
    "gallery.md": "hide: [toc]",
    "fragment.md": "hide: [toc]",
}
"""What only mkdocs reads, at the top of a page."""


def write(complete: Callable[[str], str]) -> None:
    """Write build/docs, from which mkdocs builds the site, of complete pages."""
    shutil.rmtree(BUILT, ignore_errors=True)
    ignored = shutil.ignore_patterns("*.py", "making", "theme", "__pycache__")
    shutil.copytree(DOCS, BUILT, ignore=ignored)
    (BUILT / explorer.PAGE).write_text(explorer.on_the_site(), encoding="utf-8")
    (BUILT / "look" / "palette.css").write_text(palette(), encoding="utf-8")
    (BUILT / "look" / "logo.svg").write_text(logo(), encoding="utf-8")
    (BUILT / "look" / "catalogue.js").write_text(catalogue.script(), encoding="utf-8")
    for path in sorted(BUILT.rglob("*.md")):
        text = complete(path.read_text(encoding="utf-8"))
        for name, svg in drawings(text):
            (BUILT / "pictures" / name).write_text(svg, encoding="utf-8")
        if path.parent.name == "benchmarks":
            text, drawn = charts.put(text)
            text = text.replace("](chart-", f"]({path.stem}-chart-")
            for number, svg in enumerate(drawn):
                name = f"{path.stem}-chart-{number}.svg"
                path.with_name(name).write_text(svg, encoding="utf-8")
        if path.parent.name == "hazards":
            name = replays.written(path.stem, path.parent)
            text = replays.linked(text, name) if name else text
        path.write_text(page(text, str(path.relative_to(BUILT))), encoding="utf-8")


def page(text: str, name: str) -> str:
    """A page of docs/ as mkdocs gets it; ``name`` is its path."""
    up = "../" * name.count("/")
    if name.startswith("instructions/"):
        text = ROW.sub(lambda row: _linked(row, up), text)
    if name == "index.md":
        text = _home(text)
    text = _tables(OUTSIDE.sub(r"\1", text), up)
    text = PICTURE.sub(lambda mark: _figure(mark, up), text)
    text = SHOW.sub(lambda mark: gallery.cards(mark[1]), text)
    text = EXAMPLE.sub(lambda link: _opened(link[1], up), HOSTS.sub("", text))
    text = labels.put(widgets.put(figures.put(text)))
    text = text.replace("<!-- catalogue -->", CATALOGUE)
    front = FRONT.get(name, "")
    if name.startswith("instructions/"):  # the table with the filter finds these
        front = "search: {exclude: true}"
    return f"---\n{front}\n---\n\n{text}" if front else text


CATALOGUE = """<div class="fm-catalogue"><noscript>Without scripts, the lists below have
every instruction.</noscript></div>
<script src="look/catalogue.js"></script>
"""


def palette() -> str:
    """The eight hues, and the colours of the lanes on light and on dark pages."""
    rules = []
    for scope, dark in ((":root", False), ('[data-md-color-scheme="slate"]', True)):
        lanes = " ".join(f"--l{n}: {hex_colour(n, dark)};" for n in range(32))
        rules.append(f"{scope} {{ {lanes} }}\n")
    hues = " ".join(f"--h{n}: {hex_colour(4 * n)};" for n in range(8))
    return "".join([f":root {{ {hues} }}\n", *rules])


def logo() -> str:
    """A small matrix in the colours of lanes: two of each group."""
    cells = "".join(
        f'<rect x="{6 * col}" y="{6 * row}" width="5" height="5" rx="1" '
        f'fill="{hex_colour(8 * row + 4 * (col // 2) + col % 2)}"/>'
        for row in range(4)
        for col in range(4)
    )
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 23 23">'
    return f"{head}{cells}</svg>\n"


# ── links into the explorer ─────────────────────────────────────────────────


def _linked(row: re.Match[str], up: str) -> str:
    to = explorer.link(fm.instruction(row[1]), up)
    return f"| [`{row[1]}`]({to}) |" if to else row[0]


def _opened(part: str, up: str) -> str:
    part = escape(part)
    return f'<a href="{up}{explorer.PAGE}{part}"><code>{part}</code></a>'


def _tables(text: str, up: str) -> str:
    """The tables of families: beside each link to a picture, one into the explorer."""
    drawn = {anchor(name): name for name in PICTURE.findall(text)}

    def both(found: re.Match[str]) -> str:
        to = explorer.link(fm.instruction(drawn[found[1]]), up)
        return f"{found[0]} [explorer]({to})"

    return LAYOUTS.sub(both, text)


# ── pictures ────────────────────────────────────────────────────────────────


def drawings(text: str) -> Iterator[tuple[str, str]]:
    """The file and the picture for each mark of a page, and for each card."""
    names = PICTURE.findall(text)
    shows = [each for show in SHOW.findall(text) for each in gallery.pictures(show)]
    for op in (*map(fm.instruction, names), *filter(None, (each.op for each in shows))):
        yield f"{anchor(str(op))}.svg", op.to_svg()


def _figure(mark: re.Match[str], up: str) -> str:
    op = fm.instruction(mark[1])
    shown = explorer.like(op)
    other = shown is not None and str(shown) != str(op)
    caption = f", as {labels.label(shown)}" if shown and other else ""
    file = f"{up}pictures/{anchor(mark[1])}.svg"
    return figures.shown(file, escape(mark[1]), explorer.link(op, up), caption)


# ── the first page ──────────────────────────────────────────────────────────


def _home(text: str) -> str:
    """The first page: its title and first words are in the template."""
    _, _, rest = text.partition("\n\n")  # the title
    _, _, rest = rest.partition("\n\n")  # what the template says
    words, after = rest.split("## Where to go")
    image = re.search(r"(?m)^!\[.*$", words)
    assert image is not None
    words = words.replace(image[0], "")
    split = f"<div markdown>\n\n{words}\n</div>\n<div markdown>\n\n{image[0]}\n\n</div>"
    cards = re.sub(r"(?s)\| you want to \|.*?\n(?=\n|\Z)", _cards, after)
    title = "<h1 hidden>fragmenta</h1>"  # else the theme writes one
    beside = f'<div class="fm-split" markdown>\n{split}\n</div>'
    return f"{title}\n\n{beside}\n\n## Where to go\n{cards}"


def _cards(table: re.Match[str]) -> str:
    _, rows = charts.rows_of(table[0])
    made = []
    for row in rows:
        found = re.search(r"\[(.+?)\]\((.+?)\)", row["read"])
        assert found is not None
        to = found[2].replace(".md", ".html")
        title = found[1][0].upper() + found[1][1:]
        about = re.sub(r"`(.+?)`", r"<code>\1</code>", row["you want to"])
        made.append(f'<a href="{to}"><b>{title}</b><span>{about}</span></a>')
    return f'<div class="fm-cards">\n{chr(10).join(made)}\n</div>\n'
