"""Sums of bytes that wrap, and go on as numbers; those that are meant to wrap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx

RANDOM = np.random.default_rng(5)
LARGE = RANDOM.integers(100, 256, 68, dtype=np.uint8)
SMALL = RANDOM.integers(0, 64, 68, dtype=np.uint8)
RISING = np.sort(LARGE)
HEAD = """extern "C" __global__ void k(float *y, unsigned char *b, const unsigned char *x,
                             unsigned *w, unsigned char zero)
{
    const int t = threadIdx.x;
"""


def found(body: str, x: Any, zero: int = 0) -> list[Any]:
    """What is reported of a kernel, but for what is only told."""
    kernel = ptx.RawKernel(f"{HEAD}{body}\n}}", "k")
    y, bytes_, words = (
        np.zeros(64, each) for each in (np.float32, np.uint8, np.uint32)
    )
    given = [y, bytes_, x, words, np.uint8(zero)]
    made = kernel(1, 64, given, numerics=True).numerics.problems
    return [each for each in made if each.severity != "info"]


DIFFERENCE = "{kind} d = x[t] - x[t + 1];\ny[t] = d * 0.25f;"
ZERO_POINT = "{kind} d = x[t] - zero;\ny[t] = 0.25f * d;"
SUM = "{kind} s = x[t] + x[t + 1] + x[t + 2] + x[t + 3];\n"
ENDS = ("b[t] = (s + 2) >> 2;", "b[t] = s / 4;", "y[t] = s / 4.0f;", "w[t] = s >> 1;")


@pytest.mark.parametrize("way", [DIFFERENCE, ZERO_POINT])
def test_a_difference_of_bytes_becomes_a_float(way: str) -> None:
    falling = RISING[::-1].copy()
    body = way.format(kind="unsigned char")
    (problem,) = found(body, RISING, 150)
    assert (problem.rule, problem.severity) == ("output-error", "error")
    assert problem.source.line == 5
    assert not found(way.format(kind="int"), RISING, 150)
    assert not found(body, falling, 100)


@pytest.mark.parametrize("end", ENDS)
def test_a_sum_of_bytes_is_divided(end: str) -> None:
    body = SUM.format(kind="unsigned char") + end
    (problem,) = found(body, LARGE)
    rule, severity = ("wrapped", "warning")
    if "f" in end:
        rule, severity = ("output-error", "error")
    assert (problem.rule, problem.severity) == (rule, severity)
    assert problem.source.line in (5, 6)
    if rule == "wrapped":
        exact = sum(LARGE[i : i + 64].astype(int) for i in range(4))
        assert problem.count == (exact > 255).sum() == 64
    assert not found(SUM.format(kind="unsigned") + end, LARGE)
    assert not found(body, SMALL)


MEANT = {
    "checksum": SUM + "b[t] = s;",
    "checksum that is compared": SUM + "w[t] = s == x[0];",
    "complement": SUM + "b[t] = ~s;",
    "hash": SUM + "w[t] = (s ^ (s << 3)) >> 2;",
    "multiplied hash": SUM + "w[t] = s * 2654435761u >> 24;",
    "random": SUM + "s ^= s >> 3; s ^= s << 5; y[t] = s / 256.0f;",
    "place": SUM + "b[t] = x[s >> 2];",
    "fletcher": "unsigned s = x[t] + x[t + 1];\nb[t] = (s & 255) + (s >> 8);",
    "running": "{kind} s = 0;\nfor (int i = t; i < zero; i++) s += x[i];\nb[t] = s >> 1;",
    "sign": "{kind} s = x[t] + 128;\ny[t] = s;",
    "filter": "b[t] = x[t] - x[t + 1];\n",
    "half of a byte": "b[t] = x[t] >> 1;\ny[t] = (x[t + 1] & 255) * 0.5f;",
}


@pytest.mark.parametrize("name", MEANT)
def test_what_is_meant_to_wrap(name: str) -> None:
    assert not found(MEANT[name].replace("{kind}", "unsigned char"), LARGE, 40)
