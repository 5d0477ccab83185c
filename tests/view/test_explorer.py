"""The explorer page: up to date, small, well formed, and reached by a command."""

import hashlib
import json
import re
from html import escape
from html.parser import HTMLParser
from itertools import count, product
from pathlib import Path

import pytest

import fragmenta as fm
from fragmenta import catalogue
from fragmenta.cuda.source.emit import to_cuda, to_ptx
from fragmenta.inspect.view import explorer, explorer_data
from fragmenta.inspect.view.path import path_svg
from fragmenta.reference.isa.tcgen05_shapes import OF_KIND, sizes

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "explorer" / "src"
REBUILD = "run: node explorer/build.mjs"


@pytest.fixture(scope="module")
def page():
    return explorer.page()


@pytest.fixture(scope="module")
def records(page):
    return explorer_data.records_of(page)


def differences(kept, made, where="catalogue"):
    """Where two records first differ, in a line that one can read."""
    if isinstance(kept, dict) and isinstance(made, dict) and kept.keys() == made.keys():
        for key in kept:
            yield from differences(kept[key], made[key], f"{where}.{key}")
    elif isinstance(kept, list) and isinstance(made, list) and len(kept) == len(made):
        for index, (one, other) in enumerate(zip(kept, made, strict=True)):
            yield from differences(one, other, f"{where}[{index}]")
    elif kept != made:
        yield f"{where}: {str(kept)[:60]} is now {str(made)[:60]}"


@pytest.mark.long
def test_catalogue_is_up_to_date(records):
    made = json.loads(json.dumps(explorer_data.catalogue_record()))
    stale = next(differences(records["catalogue"], made), None)
    assert stale is None, (
        f"{stale}; run: python -m fragmenta.inspect.view.explorer_data"
    )


def test_sources_unfold_to_what_is_emitted(records):
    """If they do not, run: python -m fragmenta.inspect.view.explorer_data"""
    kept = records["sources"]

    def counted(lists):
        """What is new has the next number."""
        new = count()

        def number(item):
            if isinstance(item, list):
                return [number(each) for each in item]
            return next(new) if item == explorer_data.NEXT else item

        return number(lists)

    listed, texts = counted(kept["paragraphs"]), counted(kept["texts"])

    def unfold(paragraphs):
        lines = ("\n".join(kept["lines"][n] for n in listed[p]) for p in paragraphs)
        return "\n\n".join(lines) + "\n"

    ops = explorer_data.holding()
    assert len(texts) == len(ops)
    for number in range(0, len(ops), 23):
        cuda, ptx = texts[number]
        assert unfold(cuda) == to_cuda(ops[number]).rstrip("\n") + "\n"
        assert unfold(ptx) == to_ptx(ops[number]).rstrip("\n") + "\n"


@pytest.mark.skipif(not SOURCES.is_dir(), reason="no sources in an installed package")
def test_script_is_built_from_these_sources(page):
    digest = hashlib.sha256()
    files = {str(p.relative_to(SOURCES)): p for p in SOURCES.rglob("*") if p.is_file()}
    for name in sorted(files):
        digest.update(name.encode() + b"\0" + files[name].read_bytes() + b"\0")
    assert f'name="sources-digest" content="{digest.hexdigest()}"' in page, REBUILD


ROOMS = ["records", "numbers", "memory", "drawing", "page", "views"]
IMPORT = re.compile(r'(?m)^import (?!type )([^;]*?) from "([^"]+)"')


@pytest.mark.skipif(not SOURCES.is_dir(), reason="no sources in an installed package")
def test_each_room_of_the_script_imports_from_rooms_before_it():
    """Types do not count: they are gone when the script runs."""
    wrong = []
    assert {path.name for path in SOURCES.iterdir() if path.is_dir()} == set(ROOMS)
    for path in SOURCES.glob("*/*.ts"):
        for names, source in IMPORT.findall(path.read_text(encoding="utf-8")):
            if all(each.strip().startswith("type ") for each in names[1:-1].split(",")):
                continue
            room = (path.parent / source).resolve().parent.name
            if ROOMS.index(room) > ROOMS.index(path.parent.name):
                wrong.append(f"{path.name} imports {source}")
    assert not wrong


def test_page_is_small(page):
    assert len(page.encode()) < 1_000_000


def test_page_asks_for_nothing(page):
    """It must work from the file system, offline."""
    text = re.sub(r"http://www\.w3\.org/\S+", "", page)
    assert not re.search(r"https?://", text)
    assert not re.search(r"<(script|img|iframe)[^>]*\ssrc=", text)
    assert "@import" not in text


class Nesting(HTMLParser):
    """Complains about tags that do not close each other."""

    VOID = frozenset({"meta", "link", "input", "br", "wbr", "hr", "img"})

    def __init__(self):
        super().__init__()
        self.open, self.ids = [], []

    def handle_starttag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_page_is_well_formed(page):
    nesting = Nesting()
    nesting.feed(page)
    nesting.close()
    assert nesting.open == []
    assert len(nesting.ids) == len(set(nesting.ids))


def test_refreshing_a_page_keeps_all_but_the_records(page):
    other = explorer_data.refreshed(page, [("catalogue", {"families": []})])
    assert explorer_data.records_of(other)["catalogue"] == {"families": []}
    kept = explorer_data.records_of(page)
    assert explorer_data.records_of(other)["sources"] == kept["sources"]
    with pytest.raises(fm.Error, match="no script for catalogue"):
        explorer_data.refreshed("<html>", [("catalogue", {})])
    with pytest.raises(fm.Error, match="no script for catalogue and sources"):
        explorer_data.records_of("<html>")


def test_every_operand_is_in_the_catalogue(records):
    kept = records["catalogue"]
    by_name = {each["name"]: each for each in kept["instructions"]}
    held = {str(op) for op in catalogue() if op.fragments}
    assert held <= set(by_name)
    assert set(by_name) == {str(op) for op in explorer_data.holding()}
    for op in explorer_data.holding():
        parts = by_name[str(op)]["parts"]
        assert set(parts) == set(op.fragments)
        for name, part in op.fragments.items():
            assert kept["parts"][parts[name]]["line"] == str(part.layout)
            assert kept["parts"][parts[name]]["axes"] == dict(part.layout.axes)


def test_multiplications_in_tensor_memory_are_a_fair_selection(records):
    """Every layout, kind, group and width, with scales and metadata; not millions."""
    found = [op for op in explorer_data.holding() if op.tensor_memory]
    assert {op.layout_letter for op in found} == set("ABDEFG")  # C: no metadata known
    assert {op.kind for op in found} == set(OF_KIND)
    assert {op.cta_group for op in found} == {1, 2}
    assert {name for op in found for name in op.fragments} == {
        "D",
        "A",
        "scale_A",
        "scale_B",
        "metadata",
    }
    for kind, group in product(OF_KIND, (1, 2)):
        drawn = {
            op.shape[:2]
            for op in found
            if op.family == "tcgen05.mma" and (op.kind, op.cta_group) == (kind, group)
        }
        legal = sizes(kind, group).items()
        assert drawn == {(m, n) for m, widths in legal for n in widths}
    assert len(found) < 1500
    kept = {each["name"]: each for each in records["catalogue"]["instructions"]}
    for op in found:
        told = kept[str(op)]["tensor"]
        assert (told["letter"], told["ctas"]) == (op.layout_letter, op.cta_group)


def test_the_path_is_told_in_the_words_of_the_picture(records):
    kept = records["catalogue"]
    by_name = {each["name"]: each for each in kept["instructions"]}
    for op in [op for op in explorer_data.holding() if op.tensor_memory][::67]:
        told, drawn = by_name[str(op)]["tensor"]["path"], path_svg(op)
        numbers = [
            told["registers"],
            *(word for cta in told["warps"] for _, word in cta),
        ]
        for stage in ("shared", "copies", "inputs", "multiplies", "result", "loaded"):
            numbers += told[stage]
        for number in numbers:
            assert escape(kept["words"][number]) in drawn
        # What a load's registers hold is known to the page.
        assert all(kept["words"][word] in by_name for word, _ in told["loads"])
