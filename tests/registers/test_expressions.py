"""Index expressions, evaluated as text at every place of every layout."""

from __future__ import annotations

import re
from math import prod
from typing import Any

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.errors import LayoutError
from fragmenta.reference.registers.expressions import Expressions
from fragmenta.reference.registers.fragment import Fragment
from fragmenta.reference.registers.layout import Layout
from tests.registers.expressions import OWN, every_layout, every_part, tensor_parts

LETTERS = {
    "cta": "P",
    "warp": "W",
    "column": "C",
    "register": "R",
    "reg": "R",
    "element": "E",
}


def evaluate(found: Expressions, scope: dict[str, Any]) -> dict[str, Any]:
    """What a program computes; C++ has other signs for two operations."""
    signs = [("/", "//"), ("&&", "&")] if found.language == "cuda" else []
    values = {}
    for name, text in found.items():
        for sign, other in signs:
            text = text.replace(sign, other)
        values[name] = eval(text, {}, dict(scope))
    return values


def letter(layout: Layout, name: str) -> str:
    """The axis or coordinate of a variable, by the rules of the documentation."""
    word = name.removeprefix("to_")
    known = dict(layout.axes) | layout.sizes
    if word == "tensor_lane" or (word == "lane" and "L" not in known):
        return "T" if "T" in known else word
    return {**LETTERS, "lane": "L"}.get(word, word)


def by_variable(layout: Layout, language: Any) -> tuple[list[str], list[str]]:
    """The variables of the axes, then those of the coordinates, in order."""
    axes = list(layout.to_cuda("where", language=language))
    coordinates = list(layout.to_cuda("holds", language=language))
    assert [letter(layout, each) for each in axes] == [axis for axis, _ in layout.axes]
    assert [letter(layout, each) for each in coordinates] == list(layout.sizes)
    return axes, coordinates


@pytest.mark.parametrize("language", ["cuda", "python"])
def test_every_layout_both_ways(language: Any) -> None:
    assert len(every_layout()) > 250
    for layout in every_layout()[:: 1 if language == "cuda" else 3]:
        axes, coordinates = by_variable(layout, language)
        places = dict(
            zip(axes, np.indices(layout.place_shape, sparse=True), strict=True)
        )
        held = evaluate(layout.to_cuda("holds", language=language), places)
        grid = layout.grid()
        for name, coordinate in zip(coordinates, layout.sizes, strict=True):
            assert (held[name] == grid[coordinate]).all(), (layout, name)
        shape = tuple(layout.sizes.values())
        elements = dict(zip(coordinates, np.indices(shape, sparse=True), strict=True))
        found = evaluate(layout.to_cuda("where", language=language), elements)
        flat = np.ravel_multi_index([found[name] for name in axes], layout.place_shape)
        assert (flat == layout.place_index()).all(), layout


@pytest.mark.parametrize("part", tensor_parts() + every_part()[::9], ids=repr)
def test_fragments_both_ways(part: Fragment) -> None:
    """Every record of ``rows``: places, bits and elements, windows included."""
    rows = list(part.rows())[:: 1 if part.shape[-1] < 64 else 13]
    records = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    skipped = getattr(part, "skipped", 0)
    element = (records["low"] - part.container.shift) // part.container.bits
    places = {**records, "reg": records.get("register"), "element": element}
    held = evaluate(part.to_cuda("holds"), places)
    assert np.all(held.pop("held", True))
    for name, value in held.items():
        assert (np.broadcast_to(value, element.shape) == records[name]).all(), name
    found = evaluate(part.to_cuda("where"), records)
    for name, value in found.items():
        expected = records["low"] if name == "bit" else places[name]
        assert (np.broadcast_to(value, element.shape) == expected).all(), name
    assert ("bit" in found) == (part.elements > 1 or part.container.shift > 0)
    assert skipped == 0 or records["column"].min() == skipped


def test_held_is_true_where_the_operand_has_an_element() -> None:
    partial = 0
    for part in tensor_parts():
        found = part.to_cuda("holds", language="python")
        if "held" not in found:
            continue
        partial += 1
        axes = [axis for axis, _ in part.layout.axes]
        names = {**{v: k for k, v in LETTERS.items()}, "T": "lane"}
        index = np.indices(part.layout.place_shape, dtype=np.uint32)  # as threadIdx.x
        scope = dict(zip((names[axis] for axis in axes), index, strict=True))
        scope["column"] = scope["column"] + part.skipped
        held = np.broadcast_to(evaluate(found, scope)["held"], index[0].shape)
        copies = prod(part.layout.sizes[name] for name in part.layout.free)
        assert held.sum() == prod(part.shape) * copies, part
        assert print_of(found).startswith("row = ")
    assert partial >= 8


def print_of(found: Expressions) -> str:
    """The statements, which must run as they are printed."""
    scope = dict.fromkeys(["cta", "lane", "column", "element"], 1)
    exec(str(found), {}, scope)
    assert max(map(len, str(found).splitlines())) <= 80
    return str(found)


def test_long_statements_are_folded() -> None:
    bits = [f"{letter}{bit}" for bit in range(4) for letter in "ABDFGH"]
    layout = Layout.parse(f"x = {' '.join(bits)}", **dict.fromkeys("ABDFGH", 16))
    for language in ("cuda", "python"):
        found = layout.to_cuda("holds", language=language)  # type: ignore[arg-type]
        text = str(found)
        assert max(map(len, text.splitlines())) <= 80 < len(text)
        assert re.sub(r"\s+|^\w+|[();=]", "", text) in re.sub(
            r"\s+|[()]", "", f"x{found['x']}"
        )
    scope = dict.fromkeys("ABDFGH", 15)
    exec(text, {}, scope)
    assert scope["x"] == (1 << 24) - 1


def test_only_powers_of_two_are_shifted_and_masked() -> None:
    layout = Layout.parse("row = B*  col = L* R*", B=4, L=6, R=8)
    assert layout.to_cuda("where") == {
        "B": "row",
        "lane": "col % 6",
        "reg": "col / 6",
    }
    assert layout.to_cuda("holds")["col"] == "lane + 6 * reg"


# ── names ───────────────────────────────────────────────────────────────────

MMA = Layout.parse("row = L2 L3 L4 R1  col = R0 L0 L1 | copy = W0", W=2, L=32, R=4)


def test_names_may_be_given_by_letter_and_by_word() -> None:
    by_letter = MMA.to_cuda("holds", L="threadIdx.x", R="i", row="m", col="n")
    assert str(by_letter) == (
        "int m = (threadIdx.x >> 2) + 8 * (i >> 1);\n"
        "int n = 2 * (threadIdx.x & 3) + (i & 1);\n"
        "int copy = warp;"
    )
    by_word = MMA.to_cuda("holds", lane="threadIdx.x", register="i", row="m", col="n")
    assert by_word == by_letter
    assert MMA.to_cuda("holds", reg="i")["col"] == "2 * (lane & 3) + (i & 1)"
    assert list(MMA.to_cuda("where", W="w")) == ["w", "lane", "reg"]


def test_numbers_are_folded_into_the_expressions() -> None:
    found = MMA.to_cuda("where", row=9, copy=1)
    assert found == {"warp": "1", "lane": "(col >> 1) + 4", "reg": "(col & 1) + 2"}
    op = fm.tcgen05("m128n48k64", a="e2m1", kind="mxf4", cta_group=2)
    part = op.fragments["scale_B"]
    found = part.to_cuda("where", col=30, copy=0)
    cell = part.where(0, 30)
    assert (found["lane"], found["column"]) == (str(cell.lane), str(cell.column))


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        ({"lanes": "x"}, "given a name for 'lanes' .did you mean lane"),
        ({"row": "int"}, "row is called 'int', which is no name"),
        ({"row": "a b"}, "no name of a variable; give row= an identifier"),
        ({"row": "m.x"}, "identifier$"),
        ({"lane": "2x"}, "an identifier, a member of one, or a number"),
        ({"lane": 32}, "L 32 is out of range; it is 0 to 31"),
        ({"row": 3}, "row is called 3"),
        ({"row": "lane"}, "two variables are called lane"),
        ({"lane": 1.5}, "no name of a variable"),
        ({"L": "a", "lane": "b"}, "L and lane are one variable; .* 'a' and 'b'"),
        ({"reg": "a", "register": "a"}, "reg and register are one variable"),
    ],
)
def test_wrong_names_are_refused(names: dict[str, Any], complaint: str) -> None:
    with pytest.raises(LayoutError, match=complaint):
        MMA.to_cuda("holds", **names)


def test_wrong_questions_are_refused() -> None:
    with pytest.raises(LayoutError, match=r"where or holds; given 'hold'.*mean holds"):
        MMA.to_cuda("hold")  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match="cuda or python; given 'numpy'"):
        MMA.to_cuda("holds", language="numpy")  # type: ignore[arg-type]
    wide = Layout.parse("row = L*", L=32).tile(row=1 << 30)
    with pytest.raises(LayoutError, match="an int of CUDA has values up to 2147483647"):
        wide.to_cuda("holds")
    assert wide.to_cuda("holds", language="python")["row"] == "32 * Y + lane"
    assert Layout.parse("lambda = L*", L=32).to_cuda("holds") == {"lambda": "lane"}
    with pytest.raises(LayoutError, match="lambda is called 'lambda'"):
        Layout.parse("lambda = L*", L=32).to_cuda("holds", language="python")


# ── inversion and composition ───────────────────────────────────────────────


def test_the_inverse_is_the_place_of_each_element() -> None:
    for layout in (*(part.layout for part in every_part()[::5]), *OWN):
        inverse = layout.inverse()
        places = inverse.grid()
        index = [places[axis] for axis, _ in layout.axes]
        flat = np.ravel_multi_index(index, layout.place_shape)
        assert (flat == layout.place_index()).all()
        assert Layout.parse(str(inverse), **dict(inverse.axes)) == inverse
        again = inverse.inverse()
        assert (again.coordinates, again.axes) == (layout.coordinates, layout.axes)


def test_a_layout_and_its_inverse_change_nothing() -> None:
    for layout in (*(part.layout for part in every_part()[::5]), *OWN):
        same = layout.to(layout)
        for axis, size in layout.axes:
            digits = dict.fromkeys(digit for digit, _, _ in layout.weights(axis))
            assert dict(same.coordinates)[axis] == tuple(digits), (axis, size)


def test_from_one_fragment_to_another() -> None:
    """The value of a place goes to the place that holds the same element."""
    pairs = [
        (fm.mma("m16n8k16", a="f16", d="f32").a, fm.mma("m16n8k8", a="f16", d="f32").a),
        (fm.mma("m16n8k16", a="f16", d="f32").c, fm.mma("m16n8k32", a="s8").c),
        (fm.mma("m16n8k32", a="s8").a, fm.mma("m16n8k16", a="f16", d="f32").a),
    ]
    for one, other in pairs:
        tiles = (a // b for a, b in zip(one.shape, other.shape, strict=True))
        count = dict(zip(("row", "col"), tiles, strict=True))
        far = other.layout.tile(**{k: v for k, v in count.items() if v > 1})
        matrix = np.arange(prod(one.shape))
        moved = np.empty(matrix.size, int)
        joined = one.layout.to(far)
        index = [joined.grid()[axis] for axis, _ in far.axes]
        moved[np.ravel_multi_index(index, far.place_shape)] = matrix[
            one.layout.gather()
        ]
        assert (moved.reshape(far.place_shape) == matrix[far.gather()]).all()


def test_sizes_that_are_no_powers_of_two_are_joined_where_they_nest() -> None:
    one = Layout.parse("col = R0 L0 L1 R1*", L=4, R=6)
    other = Layout.parse("col = L* R*", L=8, R=3)
    assert str(one.to(other)) == "L = R0 L0 L1  R = R1*3"
    assert one.to(other).to_cuda("holds") == {
        "to_lane": "2 * lane + (reg & 1)",
        "to_reg": "reg >> 1",
    }
    with pytest.raises(LayoutError, match="is no digit of"):
        one.to(Layout.parse("col = R* L*", L=8, R=3))


def test_what_cannot_be_joined_is_refused() -> None:
    with pytest.raises(LayoutError, match=r"row=16.*are not the places with row=8"):
        MMA.to(Layout.parse("row = L0 L1 L2  col = L3 L4 R0", L=32, R=2))
    with pytest.raises(LayoutError, match="names and sizes must be equal"):
        MMA.to(Layout.parse("m = L*", L=32))
    one = Layout.parse("M = L*  page = R*", L=4, R=2)
    with pytest.raises(LayoutError, match="page would be there twice"):
        one.then(Layout.parse("page = M*", M=4))
    with pytest.raises(LayoutError, match=r"of another layout.*given <Fragment C"):
        MMA.to(fm.mma("m16n8k16", a="f16", d="f32").c)  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match="given 'row = L0'"):
        MMA.then("row = L0")  # type: ignore[arg-type]


def test_free_coordinates_stay() -> None:
    plain = Layout.parse("row = L0 L1 L2 L3  col = R0 R1 L4", L=32, R=4)
    assert str(MMA.to(plain)).endswith("| copy = W0")
    back = plain.to(MMA)
    assert dict(back.axes) == {"copy": 2, "L": 32, "R": 4}
    assert dict(back.coordinates)["W"][0].axis == "copy"


def test_a_tiled_layout_may_be_tiled_again() -> None:
    twice = Layout.parse("row = L1  col = L0", L=4).tile(row=2).tile(row=3, col=2)
    assert str(twice) == "row = L1 Y0 X0*3  col = L0 Z0"
    assert sorted(twice.gather().ravel()) == list(range(48))
    with pytest.raises(LayoutError, match="six times in all; given row and col"):
        twice.tile(row=2).tile(row=2, col=2).tile(row=2, col=2)
