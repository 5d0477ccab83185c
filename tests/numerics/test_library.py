"""Functions of CUDA's library: what is reported about right functions is small.

They add and take away 2^23 to round, put exponents together from bits, and choose between
polynomials.  An engine that took such a rounding for an error would find large errors.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from tests.numerics.planted import reading, running
from tests.numerics.planted.cases import spread

KERNELS = {
    "library": (np.float32, 22, 2**-19),
    "library_of_halves": (np.float16, 8, 2**-8),
}
"""The type of elements, how many functions, and the largest error of one of them."""


@cache
def launched(name: str, numerics: bool) -> tuple[Any, Any]:
    """What a kernel leaves, and its result."""
    dtype, rows, _ = KERNELS[name]
    x = spread(32, low=0.6, high=2.9).astype(dtype)
    y = np.zeros((rows, 32), dtype)
    text = running.text("library", False, "sm_90a")
    options = {"numerics": True} if numerics else {}
    return y, ptx.parse(text).kernels[name].launch(1, 32, [x, y], **options)


@pytest.mark.parametrize("name", KERNELS)
def test_what_functions_leave_is_right(name: str) -> None:
    """Some of them against NumPy in f64, so that the test asks what it means to ask."""
    dtype, _, most = KERNELS[name]
    x = spread(32, low=0.6, high=2.9).astype(dtype).astype(np.float64)
    left = launched(name, False)[0].astype(np.float64)
    known = {0: np.exp(x), 3: np.log(x), 6: np.sin(x), 9: np.tanh(x), 12: x**2.5}
    if name != "library":
        known = {0: np.exp(x), 1: np.exp2(x), 3: np.sin(x), 5: 1 / x, 6: x**-0.5}
    for row, meant in known.items():
        assert np.abs(left[row] - meant).max() <= most * np.abs(meant).max()


@pytest.mark.parametrize(
    ("name", "row"),
    [(n, row) for n, (_, rows, _) in KERNELS.items() for row in range(rows)],
)
def test_no_large_error_is_reported(name: str, row: int) -> None:
    left, result = launched(name, True)
    said = np.abs(reading.error_map(result, left).reshape(left.shape)[row])
    assert said.max() <= KERNELS[name][2] * np.abs(left[row].astype(np.float64)).max()


@pytest.mark.parametrize("name", KERNELS)
def test_nothing_is_found(name: str) -> None:
    left, result = launched(name, True)
    assert left.tobytes() == launched(name, False)[0].tobytes()
    found = reading.findings(result, notes=False)
    assert not [each for each in found if each[0] != "error"]
