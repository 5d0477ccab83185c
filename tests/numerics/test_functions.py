"""Functions in double-double arithmetic, before decimal numbers of 60 digits."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from decimal import Decimal, localcontext

import numpy as np
import pytest
from numpy.typing import NDArray

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import F64, Code, Memory
from fragmenta.engine.simt.library import POINTER, Routine, addresses, define
from fragmenta.values.numerics.code import functions
from fragmenta.values.numerics.code.double import Double, over, plus, times

COUNT = 8


def _run(
    name: str,
    compute: Callable[[Code, Double, Double], Double],
    *given: NDArray[np.float64],
) -> list[Decimal]:
    """Results for numbers: rows of the upper and lower parts of two operands."""

    def trace(code: Code, at: Raw) -> None:
        b = code.builder
        memory = Memory(b, b.bitcast(at, F64.as_pointer()), F64)
        x, x_low, y, y_low = (memory.lanes(COUNT * i, COUNT) for i in range(4))
        found = compute(code, Double(x, x_low), Double(y, y_low))
        memory[4 * COUNT] = found.upper
        memory[5 * COUNT] = found.lower

    made = Routine(name, lambda module: define(module, name, [POINTER], trace))
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(addresses([made])[name])
    numbers = np.zeros((6, given[0].size))
    numbers[: len(given)] = given
    found = []
    for first in range(0, given[0].size, COUNT):
        part = np.ascontiguousarray(numbers[:, first : first + COUNT])
        call(part.ctypes.data)
        found += _values(part[4:])
    return found


def _numbers(low: float, high: float, log: bool = False) -> NDArray[np.float64]:
    """Double-double numbers in a range: upper and lower parts."""
    random = np.random.default_rng(1)
    upper = random.uniform(low, high, 64)
    if log:
        upper = np.exp2(upper)
    return np.stack([upper, upper * random.uniform(-1, 1, 64) * 2.0**-54])


def _values(x: NDArray[np.float64]) -> list[Decimal]:
    with localcontext() as context:
        context.prec = 70
        return [Decimal(u) + Decimal(v) for u, v in x.T]


def _tanh(x: Decimal) -> Decimal:
    e = (-2 * x).exp()
    return (1 - e) / (1 + e)


EXACT: dict[str, Callable[[Decimal], Decimal]] = {
    "ex2": lambda x: (x * functions._log_of_two()).exp(),
    "lg2": lambda x: x.ln() / functions._log_of_two(),
    "sin": functions._sine,
    "cos": lambda x: functions._sine(x + functions._pi() / 2),
    "tanh": _tanh,
    "rcp": lambda x: 1 / x,
    "sqrt": lambda x: x.sqrt(),
    "rsqrt": lambda x: 1 / x.sqrt(),
}
RANGES = {
    "ex2": [(-140, 127, False, 70), (-1e-3, 1e-3, False, 70)],
    "lg2": [(-149, 128, True, 65), (-0.04, 0.04, True, 65)],
    "sin": [(-10, 10, False, 62), (-1e-5, 1e-5, False, 62)],
    "cos": [(-10, 10, False, 62)],
    "tanh": [(-9, 9, False, 62), (-0.01, 0.01, False, 62)],
    "rcp": [(-120, 120, True, 100)],
    "sqrt": [(-120, 120, True, 100)],
    "rsqrt": [(-120, 120, True, 98)],
}
"""Ranges of arguments, of their logarithms if so, and the bits that are right."""


@pytest.mark.parametrize("name", EXACT)
def test_functions_have_many_bits(name: str) -> None:
    for low, high, log, bits in RANGES[name]:
        x = _numbers(low, high, log)
        found = _run(
            f"test.{name}", lambda c, x, y: functions.FUNCTIONS[name](c, x), *x
        )
        with localcontext() as context:
            context.prec = 70
            wanted = map(EXACT[name], _values(x))
            worst = max(abs(a - b) / abs(b) for a, b in zip(found, wanted, strict=True))
        assert worst < Decimal(2) ** -bits


@pytest.mark.parametrize("name", ["plus", "times", "over"])
def test_operations_have_a_hundred_bits(name: str) -> None:
    compute = {"plus": plus, "times": times, "over": over}[name]
    x, y = _numbers(-40, 40, log=True), _numbers(-3, 3)
    found = _run(f"test.{name}", lambda code, x, y: compute(x, y), *x, *y)
    with localcontext() as context:
        context.prec = 70
        for a, b, c in zip(_values(x), _values(y), found, strict=True):
            exact = {"plus": a + b, "times": a * b, "over": a / b}[name]
            assert abs(c - exact) <= abs(exact) * Decimal(2) ** -100


def test_special_values() -> None:
    inf, nan = float("inf"), float("nan")
    given = np.array([[inf, -inf, nan, 0.0, 1.0, 2000.0, -2000.0, -1.0], [0.0] * 8])

    def of(name: str) -> list[float]:
        made = _run(
            f"test.special.{name}",
            lambda c, x, y: functions.FUNCTIONS[name](c, x),
            *given,
        )
        return [float(each) for each in made]

    np.testing.assert_array_equal(of("ex2"), [inf, 0, nan, 1, 2, inf, 0, 0.5])
    assert of("rcp")[:5] == pytest.approx([0, 0, nan, inf, 1], nan_ok=True)
    assert of("lg2")[:5] == pytest.approx([inf, nan, nan, -inf, 0], nan_ok=True)
    assert of("tanh")[:4] == pytest.approx([1, -1, nan, 0], nan_ok=True)
