"""A range that cuts off many numbers is found, also if only the codes are stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx

RANDOM = np.random.default_rng(3)
EVEN = RANDOM.uniform(-1, 1, (8, 64)).astype(np.float32)
NORMAL = RANDOM.normal(size=(8, 64)).astype(np.float32)
HEAD = """extern "C" __global__ void k(signed char *q, const float *x, const float *s)
{
    int c = threadIdx.x, r = blockIdx.x, i = r * 64 + c;
"""
FLOATS = "q[i] = (signed char)fminf(fmaxf(rintf(x[i] / s[{at}]), {low}.f), {high}.f);"
INTS = "q[i] = min(max(__float2int_rn(x[i] / s[{at}]), {low}), {high});"
BEFORE = "q[i] = (signed char)rintf(fminf(fmaxf(x[i] / s[{at}], {low}.f), {high}.f));"
WAYS = [FLOATS, INTS, BEFORE]


def found(way: str, x: Any, scale: Any, **options: Any) -> list[Any]:
    """What is reported of a kernel that quantises so, but for what is only told."""
    body = way.format(**{"at": "r", "low": -127, "high": 127, **options})
    scales = np.resize(np.asarray(scale, np.float32), 64)
    given = [np.zeros(x.shape, np.int8), x, scales]
    made = ptx.RawKernel(f"{HEAD}{body}\n}}", "k")(8, 64, given, numerics=True)
    return [each for each in made.numerics.problems if each.severity != "info"]


def clipped(problems: list[Any]) -> int:
    """How many numbers are said to be cut off, below and above, in line 4."""
    (one,) = problems
    assert (one.rule, one.severity, one.source.line) == ("clipped", "warning", 4)
    return int(one.count)


@pytest.mark.parametrize("way", WAYS)
def test_a_scale_of_twice_as_many_codes(way: str) -> None:
    assert not found(way, EVEN, 1 / 127)
    codes = EVEN / np.float32(1 / 255)
    large = (np.abs(codes) >= 127 + 254 / 16).sum()
    assert abs(clipped(found(way, EVEN, 1 / 255)) - large) < 4


def test_a_scale_of_twice_as_many_codes_of_a_normal_distribution() -> None:
    most = np.abs(NORMAL).max()
    assert not found(FLOATS, NORMAL, most / 127)
    assert clipped(found(FLOATS, NORMAL, most / 255))


@pytest.mark.parametrize("way", WAYS)
def test_a_scale_of_the_wrong_axis(way: str) -> None:
    sizes = 4.0 ** np.arange(8, dtype=np.float32)
    x = EVEN * sizes[:, None]
    assert not found(way, x, sizes / 127)
    assert clipped(found(way, x, sizes / 127, at="c"))


def test_outliers_are_cut_off_on_purpose() -> None:
    x = NORMAL.copy()
    x[:, ::64] *= 100
    assert not found(FLOATS, x, np.percentile(np.abs(NORMAL), 99) / 127)
    assert not found(FLOATS, NORMAL, 2.55 / 7, low=-8, high=7)


def test_the_last_code_of_a_range_that_is_not_symmetric() -> None:
    assert not found(INTS, np.sign(EVEN), 1 / 8, low=-8, high=7)


def test_what_is_below_zero_may_be_cut_off_on_purpose() -> None:
    assert not found(FLOATS, EVEN, 1 / 127, low=0, high=127)
