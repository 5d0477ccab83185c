"""Layouts: the line, the bijection, and the maps both ways."""

import re
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fragmenta.errors import LayoutError, ShapeError
from fragmenta.reference.registers import notation
from fragmenta.reference.registers.layout import Layout

A_INT4 = "row = L2 L3 L4 R0  col = E* L0 L1 R1*"


@st.composite
def layouts(draw):
    """Random digit permutations over W, L, R, E, with an odd rest now and then.

    Without such a rest, some digits are XORs: adding one to another keeps a bijection.
    """
    sizes = {"W": 4, "L": 32, "R": draw(st.sampled_from([4, 8, 12, 20])), "E": 4}
    tokens = ["W0", "W1", *(f"L{i}" for i in range(5)), "R0", "R1", "E0", "E1"]
    tokens += ["R2*"] if sizes["R"] > 4 else []
    tokens = draw(st.permutations(tokens))
    if sizes["R"] in (4, 8):
        bits = [{"R2" if token == "R2*" else token} for token in tokens]
        some = st.integers(0, len(bits) - 1)
        for to, by in draw(st.lists(st.tuples(some, some), max_size=8)):
            bits[to] = bits[to] ^ bits[by] if to != by else bits[to]
        tokens = ["^".join(draw(st.permutations(sorted(each)))) for each in bits]
    cut = sorted(draw(st.lists(st.integers(0, len(tokens)), min_size=2, max_size=2)))
    row, col, copy = tokens[: cut[0]], tokens[cut[0] : cut[1]], tokens[cut[1] :]
    line = f"row = {' '.join(row) or 0}  col = {' '.join(col) or 0}"
    line += f" | copy = {' '.join(copy)}" if copy else ""
    return Layout.parse(line, **sizes)


@settings(max_examples=60, deadline=None)
@given(layouts())
def test_places_and_elements_are_a_bijection(layout):
    assert prod(layout.shape) * layout.copies == prod(layout.place_shape)
    counts = np.bincount(layout.gather().ravel(), minlength=prod(layout.shape))
    assert (counts == layout.copies).all()


@settings(max_examples=60, deadline=None)
@given(layouts(), st.randoms(use_true_random=False))
def test_a_place_holds_what_is_found_there(layout, random):
    place = {name: random.randrange(size) for name, size in layout.axes}
    element = layout.element(**place)
    assert layout.places(**element) == [place]
    data = {name: element[name] for name in layout.data}
    found = layout.places(**data)
    assert place in found
    assert len(found) == layout.copies


@settings(max_examples=40, deadline=None)
@given(layouts())
def test_scatter_undoes_gather(layout):
    matrix = np.arange(prod(layout.shape)).reshape(layout.shape)
    packed = matrix.ravel()[layout.gather()]
    assert (packed.ravel()[layout.scatter()] == matrix).all()


@settings(max_examples=40, deadline=None)
@given(layouts())
def test_the_text_of_a_layout_reads_back(layout):
    assert Layout.parse(str(layout), **dict(layout.axes)) == layout


@settings(max_examples=40, deadline=None)
@given(layouts(), st.integers(1, 3), st.integers(1, 5))
def test_a_tiled_layout_is_the_layout_of_every_tile(layout, rows, cols):
    tiled = layout.tile(row=rows, col=cols)
    height, width = layout.shape
    matrix = np.arange(rows * height * cols * width)
    matrix = matrix.reshape(rows * height, cols * width)
    packed = matrix.ravel()[tiled.gather()].reshape(rows, cols, *layout.place_shape)
    for r in range(rows):
        for c in range(cols):
            tile = matrix[r * height :, c * width :][:height, :width]
            expected = np.ascontiguousarray(tile).ravel()[layout.gather()]
            assert (packed[r, c] == expected).all()


def test_a_rest_need_not_be_a_power_of_two():
    layout = Layout.parse("row = L*  col = R0 R1*", L=32, R=24)
    assert str(layout) == "row = L0 L1 L2 L3 L4  col = R0 R1*12"
    assert layout.element(L=5, R=23) == {"row": 5, "col": 23}


def test_joined_digits_follow_the_element_width():
    line = "row = L2 L3 L4 I1  col = I0 L0 L1"
    assert str(Layout.parse(line, L=32, R=4, E=1)).endswith("col = R0 L0 L1")
    assert str(Layout.parse(line, L=32, R=2, E=2)).endswith("col = E0 L0 L1")


@pytest.mark.parametrize(
    ("line", "sizes", "complaint"),
    [
        ("row = L0 L1  col = L1 L2", {"L": 8}, "L1 is used twice"),
        ("row = L0  col = L2", {"L": 8}, "L1 of L=8 is not used"),
        ("row = L0 L1 L2 L3", {"L": 8}, "no digit L3"),
        ("row = L0 R0", {"L": 2}, "no size is given for axis R"),
        ("row = L0 l1", {"L": 4}, "no size is given for axis l"),
        ("row = L0 1", {"L": 4}, "expected 'name = digits"),
        ("row = L0  row = L1", {"L": 4}, "row is given twice"),
        ("row = L0 | row = L1", {"L": 4}, "row is given twice"),
        ("row = L/3*2", {"L": 8}, "L/3*2 does not fit L=8"),
        ("row = L/0*2", {"L": 8}, "L/0*2 does not fit L=8"),
        ("row = L99999999999*2", {"L": 8}, "does not fit L=8"),
        ("row = L/2*2", {"L": 8}, "L0 of L=8 is not used"),
        ("row = L1*", {"L": 3}, "does not divide"),
        ("row = L0*3", {"L": 4}, "does not fit"),
        ("row = L*", {"L": "8"}, "size of axis L is a whole number from 1 on"),
        ("row = L*", {"L": 0}, "whole number from 1 on; given 0"),
        ("row = L0^L1 L0^L1", {"L": 4}, "L0^L1 is used twice, or is the XOR of others"),
        ("row = L0^L1 L1^L2 L0^L2", {"L": 8}, "L0^L2 is used twice, or is the XOR of"),
        ("row = L0^L1 L2", {"L": 8}, "L0 is only in XORs, and does not follow"),
        ("row = L0^L1 L0", {"L": 8}, "L2 of L=8 is not used"),
        ("row = L0 L0^L0", {"L": 4}, "L0^L0 has a bit twice"),
        ("row = L0 L1^R0", {"L": 4}, "no size is given for axis R"),
        ("row = L0 L1^L2", {"L": 4}, "no digit L2"),
        ("row = L0^L1* L1 L2", {"L": 8}, "L0^L1* is an XOR of bits, such as A4^A7"),
        ("row = L0* ^L1", {"L": 8}, "expected 'name = digits"),
        ("row = L0^", {"L": 2}, "expected 'name = digits"),
        (
            "row = R* L0^L1 L1",
            {"R": 3, "L": 4},
            "L0^L1 counts steps of 3; an XOR needs",
        ),
        ("row = L0^R/3*2 R*3 R/3*2", {"R": 6, "L": 2}, "is not an XOR of bits"),
    ],
)
def test_what_is_not_a_bijection_is_refused(line, sizes, complaint):
    with pytest.raises(LayoutError, match=re.escape(complaint)):
        Layout.parse(line, **sizes)


def test_indices_out_of_range_are_named():
    layout = Layout.parse(A_INT4, L=32, R=4, E=8)
    with pytest.raises(ShapeError, match="row -1 is out of range; row is 0 to 15"):
        layout.places(row=-1, col=0)
    with pytest.raises(ShapeError, match="L 32 is out of range; L is 0 to 31"):
        layout.element(L=32, R=0, E=0)
    with pytest.raises(ShapeError, match="must be a whole number"):
        layout.places(row=1.5, col=0)
    with pytest.raises(LayoutError, match="coordinates row and col; given row"):
        layout.places(row=1)


@settings(max_examples=40, deadline=None)
@given(layouts(), layouts(), st.randoms(use_true_random=False))
def test_composition_and_inverse_are_those_of_the_maps(one, other, random):
    """Also of digits that are XORs: first one layout, then the other way round."""
    again = one.inverse().inverse()
    assert (again.coordinates, again.axes) == (one.coordinates, one.axes)
    axes = dict(one.axes)
    if axes != dict(other.axes):
        return
    both = one.inverse().then(other)
    for _ in range(20):
        place = {axis: random.randrange(size) for axis, size in axes.items()}
        assert both.element(**one.element(**place)) == other.element(**place)


@pytest.mark.parametrize(
    "line", ["row = L0^E0 L1  col = E0", "row = E0 L1  col = E0^L0"]
)
def test_an_axis_in_an_xor_cannot_be_left_out(line):
    layout = Layout.parse(line, L=4, E=2)
    assert layout.low_run("E") is None
    with pytest.raises(LayoutError, match="needs axis E; it cannot be left out"):
        layout.without("E")
    with pytest.raises(LayoutError, match="shape:stride has no XOR"):
        notation.cute(layout, ("row", "col"))
