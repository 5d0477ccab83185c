"""Every table says what the fragment says."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from fragmenta import find
from fragmenta.errors import Error
from fragmenta.inspect.view.table import bits, name, spans, table
from fragmenta.reference.registers.fragment import Fragment
from fragmenta.reference.registers.tensor_fragment import TensorFragment

# One fragment of every kind: packed, wide, tall, sparse, with selectors, in
# containers, in copies, several matrices, a warpgroup, 64-bit registers.
FRAGMENTS = {
    f"{text} {operand}": find(text).fragments[operand]
    for text, operand in [
        ("mma.m16n8k64.s4.s4", "A"),
        ("mma.m16n8k64.s4.s4", "B"),
        ("mma.m16n8k256.b1.and.popc", "A"),
        ("mma.m16n8k16.f32.f16", "C"),
        ("mma.m8n8k4.f64", "A"),
        ("mma.m8n8k4.row.col.f32.f16.f16.f32", "D"),
        ("mma.sp.m16n8k64.s4.s4", "metadata"),
        ("mma.sp.m16n8k16.f32.f16.f16", "metadata"),
        ("mma.m16n8k32.kind::mxf8f6f4.e2m1.e2m1", "A"),
        ("mma.m16n8k32.kind::mxf8f6f4.e2m1.e2m1", "scale_A"),
        ("wmma.mma.row.col.m16n16k16.f16.f16", "A"),
        ("wgmma.m64n24k16.f32.f16", "D"),
        ("ldmatrix.m8n8.x4.b16", "D"),
    ]
}


@pytest.fixture(params=FRAGMENTS)
def fragment(request: pytest.FixtureRequest) -> Fragment:
    return FRAGMENTS[request.param]


def cells(fragment: Fragment) -> dict[tuple[int, ...], set[str]]:
    """What each element's cells must say, from the look-ups."""
    wanted: dict[tuple[int, ...], set[str]] = {}
    for record in fragment.rows():
        i = record["register"] * fragment.elements
        i += record["low"] // fragment.container.bits
        warp = f"W{record['warp']}." if "warp" in record else ""
        element = tuple(record[each] for each in fragment.layout.data)
        label = f"{warp}T{record['lane']}:{fragment.letter}{i}"
        wanted.setdefault(element, set()).add(label)
    return wanted


def spelled(cell: str) -> set[str]:
    """``T0:a0,a8/T1:a0`` as the places it names."""
    found = set()
    for lane in cell.split("/"):
        thread, _, held = lane.partition(":")
        found |= {f"{thread}:{each}" for each in held.split(",")}
    return found


def test_the_manuals_accumulator() -> None:
    """Lane 4 * (row % 8) + col / 2 holds c(col % 2), eight rows down two more."""
    c = find("mma.m16n8k16.f32.f16").c
    _, *rows = csv.reader(io.StringIO(c.table(format="csv")))
    for r, (label, *held) in enumerate(rows):
        assert label == str(r)
        for col, cell in enumerate(held):
            i = col % 2 + 2 * (r // 8)
            assert cell == f"T{4 * (r % 8) + col // 2}:c{i}"


def test_csv_by_matrix_says_every_place(fragment: Fragment) -> None:
    rows = list(csv.DictReader(io.StringIO(fragment.table(format="csv"))))
    *outer, row, _ = fragment.layout.data
    found: dict[tuple[int, ...], set[str]] = {}
    for line in rows:
        before = [int(line.get(each, 0)) for each in outer]
        for col in range(fragment.shape[-1]):
            at = (*before, int(line[row]), col)
            found.setdefault(at, set()).update(spelled(line[str(col)]))
    assert found == cells(fragment)


def test_json_by_matrix_says_every_place(fragment: Fragment) -> None:
    parsed = json.loads(fragment.table(format="json"))
    assert parsed["fragment"] == fragment.name
    assert tuple(parsed["shape"]) == fragment.shape
    assert len(parsed["elements"]) == len(cells(fragment))
    for element in parsed["elements"]:
        index = [element[each] for each in fragment.layout.data]
        place = fragment.where(*index)
        wanted = {(p.warp, p.lane, p.register, *p.bits) for p in (place, *place.copies)}
        found = {
            (p.get("warp"), p["lane"], p["register"], *p["bits"])
            for p in element["places"]
        }
        assert found == wanted


def test_json_by_lane_says_what_each_lane_holds(fragment: Fragment) -> None:
    parsed = json.loads(fragment.table(by="lane", format="json"))
    assert len(parsed["registers"]) == fragment.lanes * fragment.registers
    for line in parsed["registers"]:
        held = fragment.holds(
            line["lane"], register=line["register"], warp=line.get("warp")
        )
        found = [tuple(e[c] for c in fragment.layout.data) for e in line["elements"]]
        assert found == held
        assert [e["bits"] for e in line["elements"]] == sorted(
            e["bits"] for e in line["elements"]
        )


def test_csv_by_lane_has_a_cell_for_every_element(fragment: Fragment) -> None:
    head, *rows = csv.reader(io.StringIO(fragment.table(by="lane", format="csv")))
    assert len(rows) == fragment.lanes * fragment.registers
    assert len(head) - head.index("register") - 1 == fragment.elements
    assert all(len(row) == len(head) for row in rows)


@pytest.mark.parametrize("by", ["matrix", "lane"])
@pytest.mark.parametrize("width", [80, 60, 120])
def test_text_fits(fragment: Fragment, by: str, width: int) -> None:
    text = table(fragment, by, width=width)
    assert max(map(len, text.splitlines())) <= width


def test_text_by_matrix_cuts_but_loses_nothing(fragment: Fragment) -> None:
    text = fragment.table().split("\n", 2)[2]  # without the legend
    words = re.findall(r"\S*T\d+:\S+", text)
    assert {place for word in words for place in spelled(word)} == {
        place for held in cells(fragment).values() for place in held
    }


def test_markdown_is_a_grid(fragment: Fragment) -> None:
    for by in ("matrix", "lane"):
        blocks = fragment.table(by=by, format="markdown").split("\n\n")
        grids = [block for block in blocks if block.startswith("|")]
        for grid in grids:
            assert len({line.count("|") for line in grid.splitlines()}) == 1


def test_selectors_and_matrices_are_named() -> None:
    metadata = FRAGMENTS["mma.sp.m16n8k64.s4.s4 metadata"]
    assert "\nselector 0\n" in metadata.table()
    assert "**selector 1**" in metadata.table(format="markdown")
    assert metadata.table(format="csv").startswith("selector,row,0,")
    quad = FRAGMENTS["mma.m8n8k4.row.col.f32.f16.f16.f32 D"]
    assert quad.table().count("\nmatrix ") == 4


def test_copies_share_a_cell() -> None:
    a = FRAGMENTS["wmma.mma.row.col.m16n16k16.f16.f16 A"]
    _, first, *_ = csv.reader(io.StringIO(a.table(format="csv")))
    assert first[1] == "T0:a0,a8"


def test_spans_join_neighbours_only() -> None:
    b = FRAGMENTS["mma.m16n8k64.s4.s4 B"]
    lane = [record for record in b.rows() if record["lane"] == 13]
    assert [name(b, span) for span in spans(b, lane)] == ["B[8..15, 3]", "B[40..47, 3]"]
    apart = [record for record in lane if record["row"] % 2]
    assert [bits(b, span) for span in spans(b, apart)][:2] == ["bits 7:4", "bits 15:12"]


def test_padded_elements_say_which_bits_of_their_byte() -> None:
    a = FRAGMENTS["mma.m16n8k32.kind::mxf8f6f4.e2m1.e2m1 A"]
    first = next(spans(a, a.rows()))
    assert bits(a, first) == "bits 5:2 of bytes 3:0"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"by": "lanes"}, r"by='lanes' is not one of matrix or lane \(did you mean"),
        ({"format": "html"}, "format='html' is not one of text, csv, markdown or json"),
    ],
)
def test_refusals(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(Error, match=message):
        FRAGMENTS["mma.m8n8k4.f64 A"].table(**wrong)


# ── tensor memory ───────────────────────────────────────────────────────────

TENSOR = {
    f"{text} {operand}": find(text).fragments[operand]
    for text, operand in [
        ("tcgen05.m64n8k16.f32.f16", "D"),
        ("tcgen05.cta_group::2.m128n32k16.f32.f16", "A"),
        ("tcgen05.kind::mxf4.m128n24k64", "scale_B"),
        ("tcgen05.mma.ws.sp.m32n64k32.f32.f16", "metadata"),
        ("tcgen05.m128n16k32.f32.e2m1", "A"),
    ]
}


@pytest.fixture(params=TENSOR)
def tensor(request: pytest.FixtureRequest) -> Fragment:
    return TENSOR[request.param]


def cells_of(text: str) -> set[tuple[int | None, int, int, int]]:
    """``P0,1.T0,32:C0E1/…`` as CTA, lane, column and element."""
    found = set()
    for place in text.split("/"):
        match = re.fullmatch(r"(?:P([\d,]+)\.)?T([\d,]+):C(\d+)(?:E(\d))?", place)
        assert match
        for cta in (match[1] or "-1").split(","):
            for lane in match[2].split(","):
                at = (int(lane), int(match[3]), int(match[4] or 0))
                found.add((None if cta == "-1" else int(cta), *at))
    return found


def test_tensor_memory_by_matrix(tensor: Fragment) -> None:
    """Every cell of the table names all places that ``where`` knows."""
    assert isinstance(tensor, TensorFragment)
    _, *rows = csv.reader(io.StringIO(tensor.table(format="csv")))
    assert (len(rows), len(rows[0]) - 1) == tensor.shape
    for r, row in enumerate(rows[::5]):
        for c, cell in enumerate(row[1:]):
            first = tensor.where(5 * r, c)
            wanted = {
                (
                    each.cta,
                    each.lane,
                    each.column,
                    each.bits[0] // tensor.container.bits,
                )
                for each in (first, *first.copies)
            }
            assert cells_of(cell) == wanted


def test_tensor_memory_by_lane(tensor: Fragment) -> None:
    """Each element is in as many lines as it has places."""
    text = tensor.table("lane")
    pattern = r"\[(\d+)(?:\.\.(\d+))?, (\d+)(?:\.\.(\d+))?\]"
    counted: dict[tuple[int, int], int] = {}
    for match in re.finditer(pattern, text):
        rows = range(int(match[1]), int(match[2] or match[1]) + 1)
        cols = range(int(match[3]), int(match[4] or match[3]) + 1)
        for at in ((r, c) for r in rows for c in cols):
            counted[at] = counted.get(at, 0) + 1
    copies = 1 + len(tensor.where(0, 0).copies)
    assert set(counted.values()) == {copies}
    assert len(counted) == tensor.shape[0] * tensor.shape[1]


def test_tensor_memory_as_json_at_an_address() -> None:
    d = TENSOR["tcgen05.m64n8k16.f32.f16 D"]
    told = json.loads(table(d, format="json", address=16 << 16 | 100))
    assert told["elements"][9] == {
        "row": 1,
        "col": 1,
        "places": [{"lane": 17, "column": 101, "bits": [0, 31]}],
    }
    by_lane = json.loads(d.table("lane", "json"))
    assert by_lane["columns"][0]["elements"] == [{"bits": [0, 31], "row": 0, "col": 0}]
