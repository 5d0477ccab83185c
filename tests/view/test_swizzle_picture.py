"""Swizzles as a picture: every unit in its bank, nothing clipped, bad input refused."""

import re
import xml.etree.ElementTree as ET

import pytest

import fragmenta as fm
from fragmenta.reference.shared.banks import RowTile, access_addresses, bank_conflicts
from fragmenta.reference.shared.swizzles import SWIZZLES

SPACE = "{http://www.w3.org/2000/svg}"
TEXT = re.compile(r"r?(\d+)\.(\d+)")


def drawn(picture):
    """Every element with its place in the whole picture: tag, x, y, element."""
    found = []

    def walk(element, x, y):
        moved = re.fullmatch(r"translate\((\S+) (\S+)\)", element.get("transform", ""))
        if moved:
            x, y = x + float(moved[1]), y + float(moved[2])
        place = x + float(element.get("x", 0)), y + float(element.get("y", 0))
        found.append((element.tag.removeprefix(SPACE), *place, element))
        for child in element:
            walk(child, x, y)

    walk(ET.fromstring(str(picture)), 0.0, 0.0)
    return found


@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_units_are_where_the_swizzle_puts_them(swizzle):
    (left,), (top,) = edges(picture := fm.shared.swizzle_picture(swizzle))
    seen = 0
    for tag, x, y, element in drawn(picture):
        match = TEXT.fullmatch(element.text or "") if tag == "text" else None
        if match:
            address = int((y - top) // 20 * 128 + (x - left) // 34 * 16)
            row, unit = map(int, match.groups())
            assert address == RowTile(8, 128, swizzle).address(row, unit)
            seen += 1
    assert seen == 64


def edges(picture):
    """Where the cells of each panel begin."""
    cells = [
        each
        for each in drawn(picture)
        if each[0] == "rect" and re.match("l|b q", each[3].get("class", ""))
    ]
    return {min(x for _, x, _, _ in cells)}, {min(y for _, _, y, _ in cells)}


@pytest.mark.parametrize("access", ["ldmatrix", "rows", "column"])
def test_the_cost_and_the_frames_are_those_of_the_first_phase(access):
    for swizzle in SWIZZLES:
        tile = RowTile(32, 64, swizzle, 80)
        cost = bank_conflicts(access_addresses(tile, access))
        picture = fm.shared.swizzle_picture(
            swizzle, rows=32, row_bytes=64, pitch=80, access=access
        )
        ways = f"{cost.degree}-way" if cost.degree > 1 else "free"
        assert f"swizzle: {ways}</text>" in str(picture)
        (frames,) = [e for *_, e in drawn(picture) if e.get("class") == "o f"]
        assert len(frames) == len({*access_addresses(tile, access)[:8].tolist()})


def test_nothing_is_clipped():
    for picture in (
        fm.shared.swizzle_picture(),
        fm.shared.swizzle_picture(
            *SWIZZLES, (2, 4, 4), rows=64, row_bytes=32, pitch=48
        ),
    ):
        size = [
            float(ET.fromstring(str(picture)).get(side)) for side in ("width", "height")
        ]
        for tag, x, y, element in drawn(picture):
            if tag == "rect" and element.get("width"):
                assert x + float(element.get("width")) <= size[0]
                assert y + float(element.get("height")) <= size[1]
            if tag == "text":
                assert 9 <= y <= size[1]
                anchored = "m " in element.get("class", "m ")
                wide = len(element.text) * 5.6 * (0.5 if anchored else 1)
                assert x + (0 if "r s" in element.get("class", "") else wide) <= size[0]


def test_a_notebook_shows_it_and_a_file_keeps_it(tmp_path):
    picture = fm.shared.swizzle_picture(0, 128)
    assert picture._repr_svg_() == str(picture)
    assert repr(picture).startswith("<a picture of swizzles: ")
    picture.save(tmp_path / "x.svg")
    assert (tmp_path / "x.svg").read_text() == str(picture)


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        ((16,), {}, "swizzle must be .*; given 16"),
        (((3, 3, 3),), {}, "separates 16 aligned bytes"),
        ((), {"rows": 8.5}, "rows must be a whole number; given 8.5"),
        ((), {"rows": 0}, "a tile must have rows .*; given 0 rows"),
        ((), {"row_bytes": 100}, "a multiple of 16 bytes"),
        ((), {"pitch": 64}, "given pitch 64"),
        ((), {"rows": 10**7}, "do not fit into shared memory"),
        (
            (),
            {"access": "diagonal"},
            "'ldmatrix', 'rows' or 'column'; given 'diagonal'",
        ),
    ],
)
def test_what_is_refused(given, options, said):
    with pytest.raises(fm.Error, match=said):
        fm.shared.swizzle_picture(*given, **options)
