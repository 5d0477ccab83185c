"""Every operand of the catalogue has a picture, and the picture is right."""

from __future__ import annotations

import re
from functools import cache
from xml.etree import ElementTree

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.inspect.view.grid import grids
from fragmenta.inspect.view.svg import FORMATS, convert, fragment_svg, instruction_svg
from tests.clock import work
from tests.thinning import some

TITLE = re.compile(
    r"(\w+)\[([\d, ]+)\]: (?:warp (\d), )?lane (\d+), register (\d+), bits? ([\d:]+), "
)


def drawn(op: fm.Instruction) -> bool:
    """Of wgmma a few widths, of tcgen05.ld and .st a few counts."""
    if op.warpgroup:
        return op.shape.n in (8, 24, 256)
    if op.family in ("tcgen05.ld", "tcgen05.st"):
        return op.values["num"] in ("x1", "x4", "x32") and bool(op.fragments)
    return bool(op.fragments)


@cache
def fragments() -> list[fm.Fragment]:
    """Every kind of fragment of the catalogue, once."""
    found = {}
    for op in filter(drawn, fm.catalogue()):
        for part in op.fragments.values():
            found.setdefault((part.name, part.dtype, part.layout, part.stored), part)
    return list(found.values())


@cache
def instructions() -> list[fm.Instruction]:
    """One instruction for each set of fragments; of wgmma a few widths."""
    found = {}
    for op in filter(drawn, fm.catalogue()):
        key = tuple(
            (p.name, p.dtype, p.layout, p.stored) for p in op.fragments.values()
        )
        found.setdefault(key, op)
    return list(found.values())


def titles(picture: str) -> list[re.Match[str]]:
    root = ElementTree.fromstring(picture)
    texts = [node.text or "" for node in root.iter("{http://www.w3.org/2000/svg}title")]
    return [match for text in texts if (match := TITLE.match(text))]


def test_every_fragment() -> None:
    for part in some(fragments(), 5):
        check(part)


def check(part: fm.Fragment) -> None:
    """Well-formed, every lane there, and no element twice or in a wrong place."""
    found = titles(fragment_svg(part))
    shown = list(grids(part))
    lanes = {int(match[4]) for match in found}
    selected = any(part.layout.sizes[name] > 1 for name in part.layout.free)
    assert lanes == set(range(32)), (part, lanes)
    elements = [tuple(map(int, match[2].split(","))) for match in found]
    times = len(shown) if part.selectors else 1
    if not any(slot.hidden for slot in (*shown[0].rows, *shown[0].cols)):
        each = (
            part.shape
            if len(found[0][2].split(",")) == len(part.shape)
            else part.shape[1:]
        )
        size = 1
        for extent in each:
            size *= extent
        assert len(elements) == size * times, part
    assert len(set(elements)) * times == len(elements), part
    if not selected and len(elements[0]) == len(part.shape):
        for match, element in zip(found[::7], elements[::7], strict=True):
            place = part.where(*element)
            low, high = place.bits
            bits = f"{high}:{low}" if high > low else str(low)
            assert match[4] == str(place.lane)
            assert match[5] == str(place.register)
            assert match[6] == bits
            assert match[3] == (None if place.warp is None else str(place.warp))


def test_every_instruction() -> None:
    for op in some(instructions(), 13):
        picture = instruction_svg(op)
        names = {match[1] for match in titles(picture)}
        if {"C", "D"} <= set(op.fragments):
            names |= {"C", "D"} if names & {"C", "D"} else set()
        assert names == set(op.fragments), op
        if op.warpgroup:
            assert "in shared memory" in picture


def test_pictures_are_quick() -> None:
    op = fm.wgmma("m64n256k16", a="f16", d="f32")
    op.to_svg()
    start = work()
    op.d.to_svg()
    assert work() - start < 0.5  # it takes a tenth of this


def test_selectors_copies_chunks_and_warps_are_named() -> None:
    sparse = fm.mma("m16n8k64", a="s4", sp="sp")
    assert ">selector 1<" in sparse.metadata.to_svg()
    assert ">11:8<" in sparse.metadata.to_svg()
    assert "chunk 7: 4 of columns 56 to 63 are stored" in sparse.a.to_svg()
    assert "selector 1" not in sparse.to_svg()
    assert ">warp 3<" in fm.wgmma("m64n8k16", a="f16", d="f32").d.to_svg()
    copied = fm.instruction("wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32").a
    assert ">a0,8<" in copied.to_svg()
    assert "observed on sm_90" in copied.to_svg()


def test_large_operands_say_what_they_leave_out() -> None:
    d = fm.wgmma("m64n256k16", a="f16", d="f32").d.to_svg()
    assert "columns 8 to 247 repeat the pattern" in d
    assert "D[63, 255]: warp 3, lane 31, register 127" in d
    assert len(d) < 500_000
    b1 = fm.mma("m16n8k256", a="b1", bitop="and").a.to_svg()
    assert "leaves out columns of the same register" in b1


def test_notebooks_show_them() -> None:
    op = fm.mma("m16n8k16", a="f16", d="f32")
    assert op._repr_svg_() == op.to_svg()
    assert op.a._repr_svg_() == op.a.to_svg()


def test_style_stays_inside_and_knows_the_dark() -> None:
    picture = fm.mma("m16n8k16", a="f16", d="f32").c.to_svg()
    style = picture[picture.index("<style>") + 7 : picture.index("</style>")]
    rules = [line for line in style.splitlines() if "{" in line and line[0] != "@"]
    assert all(line.startswith("svg.fm ") for line in rules)
    assert "prefers-color-scheme: dark" in style


def test_other_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    picture = fm.mma("m8n8k4", a="f64").c.to_svg()
    assert FORMATS == ("svg", "png", "pdf")
    with pytest.raises(fm.Error, match="svg, png or pdf"):
        convert(picture, "gif")
    monkeypatch.setitem(__import__("sys").modules, "cairosvg", None)
    with pytest.raises(
        fm.Error, match=r"pip install 'fragmenta\[pictures\]'; SVG does not need it"
    ):
        convert(picture, "png")


def test_png_and_pdf() -> None:
    try:
        import cairosvg  # noqa: F401
    except OSError as missing:  # the system's library
        pytest.skip(f"CairoSVG: {missing}")
    picture = fm.mma("m8n8k4", a="f64").c.to_svg()
    assert convert(picture, "png")[:8] == b"\x89PNG\r\n\x1a\n"
    assert convert(picture, "pdf")[:5] == b"%PDF-"


def test_a_picture_says_what_it_leaves_out():
    picture = instruction_svg(fm.find("mma.sp.m16n8k64.s4.s4"))
    assert "metadata is drawn for selector 0, which may be up to 1" in picture
    observed = instruction_svg(fm.find("wmma.mma.m8n8k32.s4"))
    assert "observed on sm_90 (H200)" in observed
    plain = instruction_svg(fm.find("mma.m16n8k64.s4.s4"))
    assert "drawn for" not in plain
    assert "observed on" not in plain


COLUMN = re.compile(r"(\w+)(?: \d+)?\[(?:\d+, )?\d+, (\d+)\]")


def right_edges(picture: str) -> dict[str, dict[int, set[float]]]:
    """By operand and column: where its cells end, in the whole picture."""
    found: dict[str, dict[int, set[float]]] = {}

    def walk(node: ElementTree.Element, x: float) -> None:
        if moved := re.match(r"translate\((\S+)", node.get("transform", "")):
            x += float(moved[1])
        named = COLUMN.match(node[0].text or "") if len(node) else None
        if named and node.tag.endswith("rect"):
            end = x + float(node.get("x", 0)) + float(node.get("width", 0))
            columns = found.setdefault(named[1], {})
            columns.setdefault(int(named[2]), set()).add(round(end, 2))
        for child in node:
            walk(child, x)

    walk(ElementTree.fromstring(picture), 0.0)
    return found


def test_columns_of_d_stand_below_those_of_b() -> None:
    seen = 0
    for op in some(instructions(), 40):
        if not {"A", "B", "C", "D"} <= set(op.fragments):
            continue
        edges = right_edges(op.to_svg())
        alike = op.c.layout == op.d.layout and op.c.dtype == op.d.dtype
        below = edges["C" if alike else "D"]
        assert edges["B"] == below, str(op)
        if "scale_B" in op.fragments:
            assert edges["scale_B"] == below, str(op)
        seen += 1
    assert seen > 5


def test_scales_have_names_of_their_own() -> None:
    op = fm.find("mma.m16n8k64.kind::mxf4nvf4.scale_vec::4X.f32.e2m1.ue4m3")
    picture = op.to_svg()
    for name, letter in (("scale_A", "sa"), ("scale_B", "sb"), ("A", "a"), ("B", "b")):
        assert re.search(rf"{name}\[0, 0\]: lane 0, .*, {letter}0<", picture), name
    assert op.fragments["scale_A"].letter == "sa"


@pytest.mark.parametrize(
    "text",
    [
        "mma.m16n8k16.f32.f16",
        "mma.m16n8k64.s4.s4",
        "mma.sp.m16n8k64.s4.s4",
        "mma.m8n8k4.f64",
        "wgmma.m64n8k32.f32.e4m3.e4m3",
        "mma.m8n8k128.s32.b1.b1.s32.and.popc",
        "tcgen05.m128n32k16.f32.f16",
    ],
)
def test_values_are_drawn_where_they_are(text: str) -> None:
    """Every value once in each matrix, in the cell of its place; nothing is left out."""
    rng = np.random.default_rng(0)
    for name, part in fm.find(text).fragments.items():
        whole = rng.integers(0, 2, part.shape)
        picture = fragment_svg(part, whole)
        told = re.findall(
            rf"<title>{name}\[([\d, ]+)\]: [^<]* = ([^<]+)</title>", picture
        )
        copies = np.prod([part.layout.sizes[each] for each in part.selectors])
        assert len(told) == whole.size * copies
        for index, value in told:
            at = tuple(map(int, index.split(",")))
            code = name == "metadata"
            assert float(int(value, 2) if code else value) == whole[at]
        assert "⋯" not in picture
        wrong = whole[..., :-1]
        with pytest.raises(fm.errors.ShapeError, match="given values of shape"):
            fragment_svg(part, wrong)


def test_values_that_an_operand_cannot_hold_are_refused() -> None:
    part = fm.find("mma.m16n8k64.s4.s4").a
    with pytest.raises(fm.errors.ValueRangeError, match="s4 holds integers"):
        fragment_svg(part, np.full(part.shape, 9))


def test_the_free_corner_has_the_layouts() -> None:
    """As in the explorer; a sparse A stands there as it multiplies, too."""
    dense = fm.mma("m16n8k16", a="f16", d="f32")
    assert f">A  {dense.a.layout}<" in dense.to_svg()
    sparse = fm.mma("m16n8k32", a="f16", d="f32", sp="sp")
    said = sparse.to_svg()
    assert f">metadata  {sparse.metadata.layout}<" in said
    assert "A: f16 16 x 32 as it multiplies, example codes" in said
    cells = re.findall(r'<rect class="l(\d+) h" x="([\d.]+)" y="(\d+)"', said)
    assert len(cells) == 16 * 16  # half of 16 x 32
    first = [int(lane) for lane, _, y in cells if y == "40"]
    assert first == [sparse.a.where(0, column).lane for column in range(16)]
