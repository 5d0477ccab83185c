"""The site shows what Python computes, and its check finds what is broken.

``make docs`` builds the site and follows every link.  Here is what needs no mkdocs.
"""

from __future__ import annotations

import json
import re
from functools import cache
from html import unescape
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import fragmenta as fm
from fragmenta.inspect.view import explorer as view
from fragmenta.inspect.view.explorer_data import holding
from fragmenta.reference.isa.matching import fits
from fragmenta.reference.isa.synonyms import vocabulary
from tests.test_docs import DOCS, PAGES, generator, name, prose, script, whole

ROWS = (
    "name",
    "family",
    "shape",
    "inputs",
    "result",
    "requires",
    "numbers",
    "targets",
    "words",
    "link",
)


@cache
def site() -> ModuleType:
    made: ModuleType = generator().site
    return made


@cache
def known() -> frozenset[str]:
    return frozenset(map(str, holding()))


def page(name: str) -> str:
    text: str = site().page(whole(DOCS / name), name)
    return text


def test_the_catalogue_has_every_instruction_and_where_it_is_shown() -> None:
    data = site().catalogue.data()
    rows = [dict(zip(ROWS, row, strict=True)) for row in data["rows"]]
    ops = {str(op): op for op in fm.catalogue()}
    assert sorted(row["name"] for row in rows) == sorted(ops)
    for row in rows[::7]:
        op, words = ops[row["name"]], data["wordsets"][row["words"]]
        assert data["targetsets"][row["targets"]] == list(op.requires.targets)
        assert ("hopper" in words) == op.supported_on("sm_90a")
        if "a" in op.values:
            types = {op.values["a"], op.values["b"]}
            assert ("fp8" in words) == (types <= {"e4m3", "e5m2"})
    for row in rows[::397]:  # words are asked of one of many alike
        said = [word for word in vocabulary() if fits(ops[row["name"]], [word])]
        assert sorted(data["wordsets"][row["words"]]) == sorted(said)
    for row in rows:
        shown = row["name"] if row["link"] == 1 else unquote(row["link"] or "")
        assert shown in known() or (row["link"] == 0 and row["name"] not in known())
    linked = {row["name"] for row in rows if row["link"]}
    for op in (ops[each] for each in ops.keys() - linked):
        # It only orders others, or has no layout, or is of a kind that no layout has.
        kind = op.values.get("kind", "")
        assert not op.fragments
        assert ".mma" not in op.family or kind in ("kind::ti16", "kind::i8"), op


def test_rows_and_pictures_lead_into_the_explorer() -> None:
    text = page("instructions/mma.md")
    links = re.findall(r"\| \[`(.+?)`\]\(\.\./explorer\.html#op=(.+?)\) \|", text)
    assert len(links) == len(list(fm.catalogue("mma")))
    assert all(unquote(to) == shown for shown, to in links)
    for family in ("mma_sp", "tcgen05"):
        text = page(f"families/{family}.md")
        figures = re.findall(r'<figure class="fm-picture">.*?</figure>', text)
        assert figures
        for each in figures:
            [to] = re.findall(r'href="\.\./explorer\.html#op=([^"]+)"', each)
            assert unquote(to) in known()


def test_examples_of_links_open_the_explorer() -> None:
    written = re.findall(
        r"`(#\w+=[^`]+)`", (DOCS / "using-the-explorer.md").read_text("utf-8")
    )
    links = re.findall(r'href="explorer\.html(#[^"]+)"', page("using-the-explorer.md"))
    assert len(links) > 8
    assert list(map(unescape, links)) == written


def test_the_explorer_leads_back_to_the_site() -> None:
    before, after = view.page(), site().explorer.on_the_site()
    assert '<h1><a href="index.html" target="_top"' in after
    assert re.sub(r"<h1><a .*?>(.*?)</a></h1>", r"<h1>\1</h1>", after) == before


def test_interactive_pictures_show_the_layouts() -> None:
    """Every element, in both directions, and the line that the wires are drawn from."""
    found = re.findall(r'(?s)application/json">(.*?)</script>', page("fragment.md"))
    assert len(found) == len(site().widgets.WIDGETS)
    op = fm.mma("m16n8k16", a="f16", d="f32")
    a, b, d = json.loads(found[0])["parts"]
    for shown, part in ((a, op.a), (b, op.b), (d, op.d)):
        rows, cols = part.shape
        assert (shown["rows"], shown["cols"]) == (rows, cols)
        for index in range(rows * cols):
            lane, register = shown["lanes"][index], shown["registers"][index]
            place = part.where(*divmod(index, cols))
            assert (place.lane, place.register) == (lane, register)
            assert shown["lows"][index] == place.bits[0]
    assert a["line"] == str(op.a.layout)


def test_the_gallery_shows_what_it_lists() -> None:
    made = site().gallery
    text = page("gallery.md")
    for show in made.SHOWS:
        for each in made.pictures(show):
            assert f'src="{each.file}"' in text
            assert (DOCS / each.page).exists()
            assert each.op or (DOCS / each.file).exists()
            assert not each.op or site().explorer.link(each.op)
    files = {
        file
        for file, _ in site().drawings(
            "<!-- generated: gallery:moves -->\n<!-- /generated -->"
        )
    }
    assert {Path(each.file).name for each in made.pictures("moves")} == files


def test_long_headings_have_short_names() -> None:
    """A name for a heading that is gone is dead; names are short."""
    made = site().labels
    titles = {
        title
        for each in PAGES
        if each.parent.name != "reference"
        for title in re.findall(r"(?m)^##+ (.+)$", prose(each))
    }
    assert set(made.LABELS) <= titles
    assert max(map(len, made.LABELS.values())) <= 24
    long = {t for t in titles if len(t) > 30 and not t.startswith("`")}
    assert long <= set(made.LABELS), "give it a short name in docs/making/labels.py"
    for each in fm.catalogue("mma"):
        assert len(made.label(each)) <= 32
    text = page("families/mma.md")
    assert '{ data-toc-label="m16n8k16 f16 → f32" }' in text


def test_charts_stand_before_the_numbers() -> None:
    for each in (DOCS / "benchmarks").glob("*.md"):
        text = each.read_text("utf-8")
        shown, drawn = site().charts.put(text)
        tables = site().charts.TABLE.findall(text)
        assert shown.count("<details markdown>") == len(drawn) > 0
        assert all(table in shown for table in tables)
        for number in range(len(drawn)):
            assert f"](chart-{number}.svg)" in shown
    table = "### s\n\n| type | what | TFLOP/s |\n|---|---|---|\n| s8 | torch | 7 |\n"
    _, [chart] = site().charts.put(table)
    assert ">torch</text>" in chart
    assert ">7</text>" in chart
    plain = "| a | b |\n|---|---|\n| 1 | 2 |\n"
    assert site().charts.put(plain) == (plain, [])


def test_no_page_has_what_only_mkdocs_reads() -> None:
    """What is shown of the pages where the code is stays plain Markdown."""
    for each in PAGES:
        text = each.read_text("utf-8")
        assert not text.startswith("---"), name(each)
        assert "data-toc-label" not in text


BROKEN = {
    "gone.html": "there is no such file",
    "index.html#gone": "there is no such anchor",
    "#gone": "there is no such anchor",
    "explorer.html#op=nonsense": "the explorer has no such instruction",
    "explorer.html#nonsense": "the explorer has no such anchor",
    "https://nowhere": "is no address",
    "folder": "there is no such file",
}


def test_the_check_finds_broken_links(tmp_path: Path) -> None:
    check = script("check.py")
    (tmp_path / "folder").mkdir()
    (tmp_path / "explorer.html").write_text("<a href='not looked at'>", "utf-8")
    right = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    fine = f'<p id="here">&lt;<a href="#here"><a href="explorer.html#op={right}">'
    fine += '<a href="explorer.html#op=sparse+int8+16x8x64&amp;at=A[3][1]">'
    index = tmp_path / "index.html"
    index.write_text(f"{fine}<a href='https://a.example/b'>", "utf-8")
    assert list(check.problems(tmp_path)) == []
    index.write_text(fine + "".join(f"<a href='{to}'>" for to in BROKEN), "utf-8")
    found = [f"index.html: {to}: {why}" for to, why in BROKEN.items()]
    assert list(check.problems(tmp_path)) == found


def test_the_check_finds_what_is_loaded_and_marks_of_doctest(tmp_path: Path) -> None:
    check = script("check.py")
    text = "<script src='https://a.example/x.js'></script>&lt;BLANKLINE&gt;"
    (tmp_path / "index.html").write_text(text, "utf-8")
    assert list(check.problems(tmp_path)) == [
        "index.html: shows <BLANKLINE>",
        "index.html: https://a.example/x.js: is loaded from another site",
    ]
