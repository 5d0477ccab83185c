"""Integers that stand for numbers, through bytes, words, products and sixteen bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx

SOURCE = Path(__file__).with_name("quantised.cu")
RANDOM = np.random.default_rng(7)
A, B = (RANDOM.uniform(0.2, 1.0, (32, 32)).astype(np.float32) for _ in range(2))
Y, Q = np.zeros(32, np.float32), np.zeros(128, np.int8)


def problems(entry: str, flags: list[str], given: list[Any]) -> list[Any]:
    """What is reported of a launch."""
    kernel = ptx.RawKernel(
        SOURCE.read_text(), entry, options=tuple(flags), path=str(SOURCE)
    )
    arguments = [each.copy() for each in given]
    made: list[Any] = kernel(1, 32, arguments, numerics=True).numerics.problems
    return made


def losses(entry: str, flags: list[str], given: list[Any]) -> list[Any]:
    """What is reported of a launch, of outputs."""
    found = problems(entry, flags, given)
    return [each for each in found if each.rule == "output-error"]


KERNELS = {
    "through_bytes": [Y, A, B],
    "through_words": [Y, A, B],
    "through_permutations": [Y, A, B],
    "stored": [Y, Q, A, B],
}


@pytest.mark.long
@pytest.mark.parametrize("entry", KERNELS)
def test_bytes_that_wrap_are_found_where_they_are_used(entry: str) -> None:
    """With twice the scale, half of the numbers need more than a byte."""
    assert not losses(entry, ["-DSTEPS=127.0f"], KERNELS[entry])
    assert losses(entry, ["-DSTEPS=254.0f"], KERNELS[entry])


def test_sixteen_bits_are_enough_for_two_products_and_not_for_eight() -> None:
    assert not losses("in_halves", ["-DCOUNT=2"], [Y, A, B])
    (found,) = losses("in_halves", ["-DCOUNT=8"], [Y, A, B])
    lines = SOURCE.read_text().splitlines()
    assert lines[found.source.line - 1].strip() == "sum += p * q;"


def test_a_zero_point_in_float_cuts_off() -> None:
    given = [Y, np.zeros(32, np.uint8), np.ascontiguousarray(A[0])]
    assert not problems("zero_point", ["-DZERO=10.0f"], given)
    (found,) = losses("zero_point", ["-DZERO=128.0f"], given)
    assert "fminf" in SOURCE.read_text().splitlines()[found.source.line - 1]


def line_of(found: Any) -> str:
    """The line of the source that a problem is at."""
    return SOURCE.read_text().splitlines()[found.source.line - 1].strip()


def test_sums_of_given_bytes_wrap_in_sixteen_bits() -> None:
    given = [Y, *(RANDOM.integers(80, 127, (2, 32, 32)).astype(np.int8))]
    assert not problems("given_bytes", ["-DSUM=int"], given)
    (found,) = losses("given_bytes", ["-DSUM=short"], given)
    assert "sum" in line_of(found) or "for" in line_of(found)
    small = [Y, *(RANDOM.integers(-8, 8, (2, 32, 32)).astype(np.int8))]
    assert not problems("given_bytes", ["-DSUM=short"], small)


def test_zero_points_that_are_cut() -> None:
    y, q = np.zeros(256, np.float32), RANDOM.integers(0, 2**32, 32, dtype=np.uint32)
    zero = RANDOM.uniform(4, 9, 32).astype(np.float32)
    (found,) = losses("codes", [], [y, q, zero])
    assert line_of(found) == "int z = zero[threadIdx.x];"
    assert not problems("codes", [], [y, q, np.rint(zero)])


def test_what_is_cut_on_purpose_is_no_zero_point() -> None:
    q = RANDOM.integers(0, 2**32, 32, dtype=np.uint32)
    at = RANDOM.uniform(4, 31, 32).astype(np.float32)
    assert not losses("places", [], [Y, q, at])


SUMS = RANDOM.integers(-3000, 3000, 32).astype(np.int32)
ROUNDED = ("rintf(x)", "__float2int_rn(x)", "roundf(x)", "floorf(x+0.5f)", "lrintf(x)")


def rounded(entry: str, way: str, given: list[Any]) -> list[Any]:
    """What is reported of a kernel that rounds so."""
    found = problems(entry, [f"-DROUND(x)={way}"], given)
    return [each for each in found if each.severity != "info"]


@pytest.mark.parametrize("entry", ["requantised", "as_bytes"])
def test_products_that_are_cut_to_bytes_are_no_rounding(entry: str) -> None:
    given = [np.zeros(32, np.int8), SUMS, np.float32(0.031)]
    (found,) = rounded(entry, "x", given)
    assert (found.rule, line_of(found)[:2]) == ("unrounded", "q[")
    product = SUMS * np.float32(0.031)
    near = np.abs(product - np.trunc(product)) > 0.5
    if entry == "as_bytes":  # what is positive may be a colour, or a place
        near &= SUMS < 0
    assert found.count == near.sum() > 4
    assert not rounded(entry, "x", [given[0], SUMS, np.float32(1)])


@pytest.mark.parametrize("way", ROUNDED)
def test_products_that_are_rounded_to_bytes(way: str) -> None:
    given = [np.zeros(32, np.int8), SUMS, np.float32(0.031)]
    assert not rounded("requantised", way, given)


def test_what_is_cut_to_a_place_or_a_colour_is_meant() -> None:
    x = np.linspace(-0.2, 1.1, 32, dtype=np.float32)
    assert not rounded("looked_up", "x", [Y.copy(), x, np.float32(16)])
    given = [np.zeros(32, np.uint8), np.abs(SUMS) // 16, np.float32(0.97)]
    assert not rounded("as_bytes", "x", given)
