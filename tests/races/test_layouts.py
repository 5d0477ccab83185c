"""Tiles that are read as they were copied are silent; wrong descriptors are not.

Every legal way to read boxes is a row of :data:`LEGAL`.  Of each of them, descriptors
with one wrong field are made.  Those that take other elements have to be found, apart
from what stays regular: a start at another line or unit that stays within the box.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.errors import Error
from fragmenta.reference.shared.box_layouts import BoxLayout
from fragmenta.reference.shared.copied_operands import (
    Box,
    SharedOperand,
    mismatch,
    repaired,
)
from fragmenta.reference.shared.descriptor import Descriptor, MajorAxis
from fragmenta.reference.shared.tensor_map import Im2col, TensorMap
from fragmenta.watch.races.layout_watch import is_watched

HALF = fm.wgmma("m64n128k16", a="f16", d="f32")
NARROW = fm.wgmma("m64n8k16", a="f16", d="f32")
BYTES = fm.wgmma("m64n64k32", a="e4m3", d="f32")
SPARSE = fm.wgmma("m64n64k32", a="f16", d="f32", sp="sp")
BLACKWELL = fm.tcgen05("m128n64k16", a="f16", d="f32")


def tile(*counts: int, swizzle: int = 128, dtype: str = "f16") -> BoxLayout:
    """Boxes of a tensor, the innermost dimension first."""
    return BoxLayout(dtype, counts, (1,) * len(counts), swizzle)


def row_of_boxes(layout: BoxLayout, count: int, at: int = 1024) -> list[Box]:
    """Boxes that follow each other in memory."""
    return [Box(layout, at + number * layout.bytes) for number in range(count)]


class Case(NamedTuple):
    """A legal way to read boxes."""

    name: str
    op: fm.Instruction
    operand: str
    descriptor: Descriptor
    boxes: list[Box]
    major: MajorAxis = "k"

    @property
    def reading(self) -> SharedOperand:
        return SharedOperand(self.op, self.operand, self.descriptor, self.major)


def given(start: int, leading: int, stride: int, swizzle: int) -> Descriptor:
    return Descriptor(start, leading, stride, swizzle)


WIDE = row_of_boxes(tile(64, 128), 1)
ANY_ROWS = BoxLayout("f16", (64, 4), (), 128)
LEGAL = [
    Case("k major", HALF, "A", given(1024, 16, 1024, 128), WIDE),
    Case("along k", HALF, "A", given(1024 + 96, 16, 1024, 128), WIDE),
    Case("lower rows", HALF, "A", given(1024 + 8192, 16, 1024, 128), WIDE),
    Case("leading is not used", HALF, "B", given(1024, 512, 1024, 128), WIDE),
    Case("any row", NARROW, "B", given(1024 + 3 * 128, 16, 1024, 128), WIDE),
    Case("mn major", HALF, "A", given(1024, 0, 1024, 128), WIDE, "mn"),
    Case("mn, along k", HALF, "A", given(1024 + 2048, 0, 1024, 128), WIDE, "mn"),
    Case(
        "two boxes side by side",
        HALF,
        "B",
        given(1024 + 2048, 8192, 1024, 128),
        row_of_boxes(tile(64, 64), 2),
        "mn",
    ),
    Case(
        "one box of three dimensions",
        HALF,
        "B",
        given(1024 + 2048, 8192, 1024, 128),
        row_of_boxes(tile(64, 64, 2), 1),
        "mn",
    ),
    Case(
        "rows of weights that were arranged before",
        HALF,
        "B",
        given(1024 + 2048, 8192, 1024, 128),
        row_of_boxes(tile(64, 128), 1),
        "mn",
    ),
    Case(
        "two boxes above each other",
        HALF,
        "B",
        given(1024 + 32, 16, 1024, 128),
        row_of_boxes(tile(64, 64), 2),
    ),
    Case(
        "boxes of four rows, as gather4 brings them",
        NARROW,
        "B",
        given(1024 + 64, 16, 1024, 128),
        row_of_boxes(ANY_ROWS, 2),
    ),
    Case(
        "boxes of eight rows",
        HALF,
        "A",
        given(1024, 16, 1024, 128),
        row_of_boxes(tile(64, 8), 8),
    ),
    Case(
        "atoms that follow each other along k",
        HALF,
        "A",
        given(1024, 16, 2048, 128),
        row_of_boxes(tile(64, 8, 2, 8), 1),
    ),
    Case(
        "windows of a larger image",
        HALF,
        "A",
        given(1024 + 128 * 11, 16, 1280, 128),
        row_of_boxes(tile(64, 10, 10), 1),
    ),
    Case(
        "broadcast rows",
        HALF,
        "A",
        given(1024, 16, 0, 128),
        row_of_boxes(tile(64, 8), 1),
    ),
    Case(
        "swizzle of 64 bytes",
        HALF,
        "A",
        given(1024 + 32, 16, 512, 64),
        row_of_boxes(tile(32, 64, swizzle=64), 1),
    ),
    Case(
        "swizzle of 32 bytes",
        HALF,
        "A",
        given(1024, 16, 256, 32),
        row_of_boxes(tile(16, 64, swizzle=32), 1),
    ),
    Case(
        "lines that are narrower than the swizzle",
        HALF,
        "A",
        given(1024, 16, 1024, 128),
        row_of_boxes(tile(16, 64), 1),
    ),
    Case(
        "no swizzle, boxes of a unit",
        HALF,
        "A",
        given(1024, 1024, 128, 0),
        row_of_boxes(tile(8, 64, swizzle=0), 2),
    ),
    Case(
        "no swizzle, one box of three dimensions",
        HALF,
        "A",
        given(1024 + 2048, 1024, 128, 0),
        row_of_boxes(tile(8, 64, 8, swizzle=0), 1),
    ),
    Case(
        "bytes",
        BYTES,
        "B",
        given(1024 + 64, 16, 1024, 128),
        row_of_boxes(tile(128, 64, dtype="u8"), 1),
    ),
    Case(
        "words that are pairs of elements",
        HALF,
        "A",
        given(1024, 16, 1024, 128),
        row_of_boxes(tile(32, 64, dtype="u32"), 1),
    ),
    Case(
        "a sparse A",
        SPARSE,
        "A",
        given(1024 + 32, 16, 1024, 128),
        row_of_boxes(tile(64, 64), 1),
    ),
    Case(
        "tcgen05",
        BLACKWELL,
        "A",
        given(1024 + 64, 16, 1024, 128).to_tcgen05(),
        row_of_boxes(tile(64, 128), 1),
    ),
]
CASES = {case.name: case for case in LEGAL}


@pytest.mark.parametrize("name", CASES)
def test_what_is_legal_is_silent(name: str) -> None:
    case = CASES[name]
    assert mismatch(case.reading, case.boxes) is None


@pytest.mark.parametrize("name", CASES)
def test_a_legal_descriptor_is_not_odd(name: str) -> None:
    """No part of an operand is another, and all parts begin at the same byte."""
    reading = CASES[name].reading
    assert reading.twice() is None
    assert not reading.uneven()


def test_odd_descriptors() -> None:
    """Offsets that are too small, or no whole lines of the swizzle."""
    found = {"twice": 0, "uneven": 0}
    for case in LEGAL:
        right = case.reading.addresses()
        for name, reading in wrong_readings(case):
            where = reading.addresses()
            of = reading.descriptor
            again = len(np.unique(where)) < where.size and 0 not in (
                of.leading,
                of.stride,
            )
            if again:
                one, other = reading.twice() or ((0, 0), (0, 0))
                assert one != other
                assert where[one] == where[other]
                found["twice"] += 1
            offset = getattr(reading.descriptor, name, 0)
            odd = name in ("stride", "leading") and bool(reading.descriptor.swizzle)
            odd = odd and not np.array_equal(where, right)
            line = {32: 32, 64: 64, 128: 128}.get(reading.descriptor.swizzle, 1)
            if odd and offset % line:
                assert reading.uneven() == name
                found["uneven"] += 1
        for name in ("stride", "leading"):  # parts are repeated on purpose
            same = replace(case.descriptor, **{name: 0})
            assert case.reading._replace(descriptor=same).twice() is None
    assert min(found.values()) > 20


@pytest.mark.parametrize("name", CASES)
def test_stages_and_neighbours_change_nothing(name: str) -> None:
    """The same boxes elsewhere, between others."""
    case = CASES[name]
    end = 1024 + sum(box.layout.bytes for box in case.boxes)
    step = -(-end // 1024) * 1024
    of = replace(case.descriptor, start=case.descriptor.start + step)
    later = [box._replace(at=box.at + step) for box in case.boxes]
    reading = case.reading._replace(descriptor=of)
    assert mismatch(reading, [*case.boxes, *later]) is None


def wrong_descriptors(of: Descriptor) -> list[tuple[str, Descriptor]]:
    """Descriptors with one other swizzle, offset or base offset."""
    changes: list[tuple[str, int]] = []
    changes += [("swizzle", each) for each in (0, 32, 64, 128)]
    for name in ("stride", "leading"):
        old = getattr(of, name)
        near = (2 * old, old // 32 * 16, old + 128, old + 16, old - 128)
        changes += [(name, value) for value in near if value > 0]
    changes += [("base_offset", 1), ("base_offset", 4)] if of.family == "wgmma" else []
    changes += [("start", of.start + 16 * more) for more in (1, 7, -1)]
    found = []
    for name, value in changes:
        if value != getattr(of, name):
            found.append((name, replace(of, **{name: value})))
    return found


def wrong_readings(case: Case) -> list[tuple[str, SharedOperand]]:
    """Those of them that take other elements."""
    right, found = case.reading.addresses(), []
    for name, descriptor in wrong_descriptors(case.descriptor):
        reading = case.reading._replace(descriptor=descriptor)
        try:
            other = reading.addresses()
        except Error:  # bad-descriptor says so
            continue
        if not np.array_equal(other, right):
            found.append((name, reading))
    return found


def all_in_boxes(reading: SharedOperand, boxes: list[Box]) -> bool:
    """Whether all that is read is in boxes: otherwise other rules may see it."""
    where = reading.addresses()
    return bool(sum(box.layout.find(box.at, where)[0] >= 0 for box in boxes).all())


def test_another_swizzle_is_always_found() -> None:
    for case in LEGAL:
        for name, reading in wrong_readings(case):
            if name == "swizzle" and all_in_boxes(reading, case.boxes):
                # Eight rows that are broadcast or one atom of lines may be alike.
                assert mismatch(reading, case.boxes) is not None, (case.name, reading)


def test_other_fields_are_found() -> None:
    """A start that only begins elsewhere is regular; nearly everything else is not."""
    seen, missed = 0, []
    for case in LEGAL:
        for name, reading in wrong_readings(case):
            if all_in_boxes(reading, case.boxes):
                seen += 1
                if mismatch(reading, case.boxes) is None and name != "start":
                    missed.append((case.name, name, str(reading.descriptor)))
    assert seen > 150
    assert len(missed) <= 0.03 * seen, missed


def test_one_wrong_field_is_the_one_to_repair() -> None:
    case = CASES["two boxes side by side"]
    for name, value in {"swizzle": 64, "stride": 512, "leading": 4096}.items():
        wrong = replace(case.descriptor, **{name: value})
        found = repaired(case.reading._replace(descriptor=wrong), case.boxes)
        assert found is not None
        assert found.fields == (name,)
        assert getattr(found.reading.descriptor, name) == getattr(case.descriptor, name)


def test_two_wrong_fields_are_repaired_together() -> None:
    case = CASES["k major"]
    wrong = replace(case.descriptor, swizzle=64, stride=512)
    found = repaired(case.reading._replace(descriptor=wrong), case.boxes)
    assert found is not None
    assert found.fields == ("swizzle", "stride")


def test_floats_of_another_width_are_found() -> None:
    boxes = row_of_boxes(tile(32, 64, dtype="f32"), 1)
    found = mismatch(CASES["k major"].reading, boxes)
    assert found is not None
    assert found.type


def test_a_late_start_is_found_if_the_operand_would_fit() -> None:
    boxes = row_of_boxes(tile(64, 64), 2)
    late = given(1024 + 1024, 16, 1024, 128)
    found = mismatch(SharedOperand(HALF, "A", late, "k"), boxes)
    assert found is not None
    assert found.leaves == 0


@pytest.mark.parametrize(
    ("map", "rows", "counts"),
    [
        (TensorMap("f16", (64, 64), (128,), (64, 8), swizzle=128), 1, (64, 8)),
        (TensorMap("f16", (64, 64), (128,), (64, 1), swizzle=128), 4, (64, 4)),
        (TensorMap("u8", (64, 64), (64,), (32, 9), (1, 2)), 1, (32, 5)),
        (
            TensorMap(
                "f16",
                (64, 8, 8, 1),
                (128, 1024, 8192),
                im2col=Im2col((0, 0), (0, 0), 64, 16),
            ),
            1,
            (64, 16),
        ),
    ],
)
def test_the_layout_of_a_map(
    map: TensorMap, rows: int, counts: tuple[int, ...]
) -> None:
    found = BoxLayout.of(map, rows)
    assert found is not None
    assert found.counts == counts
    assert found.bytes >= map.box_bytes * rows


def test_what_has_no_lines_has_no_layout() -> None:
    assert BoxLayout.of(TensorMap("u8", (64,), box=(16,))) is None
    sliced = TensorMap("f16", (8, 8, 8), (128, 1024), (8, 1, 1), interleave=16)
    assert BoxLayout.of(sliced) is None


def test_only_loads_are_watched() -> None:
    store = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
    assert not is_watched(tuple(store.split(".")))
