"""Packed elements: sixteen at a time, in 8-bit integers, against eight at a time."""

import numpy as np
import pytest

from fragmenta.base.jit.compiler import type_of
from fragmenta.base.jit.trace import F64, LANES
from fragmenta.reference.arithmetic.constants import format_of
from fragmenta.reference.arithmetic.packing import (
    DEPTH,
    GROUP,
    Packing,
    column_packer,
    row_packer,
)
from fragmenta.reference.registers.dtype import dtype

# The second type is the one that elements are converted to first.
NARROW = [
    ("f16", None),
    ("e4m3", None),
    ("e4m3", "f16"),
    ("e5m2", None),
    ("e3m2", None),
    ("e2m3", None),
    ("e2m1", None),
]


def packings(name, operand):
    """How elements are packed: eight at a time, and sixteen."""
    source, form = type_of(dtype(name).bits_dtype), format_of(name, operand)
    return [
        Packing(source, form, F64, False, False, LANES, sixteens)
        for sixteens in (False, True)
    ]


def codes(name):
    """Every pattern of a type, in rows of as many elements as are packed at a time."""
    kind = dtype(name)
    every = np.arange(kind.mask + 1).astype(kind.bits_dtype)
    return np.resize(every, (-(-every.size // (GROUP * DEPTH)), GROUP, DEPTH))


def finite(values):
    """Values to compare: those of infinities and NaN are not used."""
    return np.where(np.isfinite(values), values, 0)


@pytest.mark.parametrize(("name", "operand"), NARROW)
def test_rows(name, operand):
    empty = np.zeros(1, np.uint8)
    for rows in codes(name):
        found = []
        for of in packings(name, operand):
            values, special = np.zeros(rows.shape), np.zeros(1, np.int32)
            bytes_ = [np.zeros(rows.size * LANES, np.int8) for _ in range(2)]
            signs, places = (np.zeros(rows.size, np.int32) for _ in range(2))
            base = np.zeros(GROUP, np.int16)
            to = (values, *bytes_, signs, places, base, special)
            sizes = (DEPTH, DEPTH, GROUP, 1, 0, DEPTH, DEPTH)
            row_packer(of)(rows, empty, empty, *to, *sizes)
            found.append((finite(values), *bytes_, signs, special))
        for eight, sixteen in zip(*found, strict=True):
            assert np.array_equal(eight, sixteen)


@pytest.mark.parametrize(("name", "operand"), NARROW)
def test_columns(name, operand):
    empty = np.zeros(1, np.uint8)
    for some in codes(name):
        panel = some.reshape(-1, LANES)
        for left in (LANES, 3):
            found = []
            for of in packings(name, operand):
                values, special = np.zeros(panel.shape), np.zeros(1, np.int32)
                powers = np.zeros(panel.size, np.int8)
                lows = np.zeros(panel.size * 4, np.int8)
                to = (values, powers, lows, np.zeros(LANES, np.int16), special)
                sizes = (len(panel), LANES, left, 1)
                column_packer(of)(panel, empty, *to, *sizes)
                found.append((finite(values), powers, lows, special))
            for eight, sixteen in zip(*found, strict=True):
                assert np.array_equal(eight, sixteen)
