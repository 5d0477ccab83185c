"""Every instruction that rounds, alone: its error is known from exact arithmetic."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from tests.numerics.planted import isolated, reading
from tests.numerics.test_planted import NEEDS

EACH = pytest.mark.parametrize(
    "number", range(len(isolated.ROWS)), ids=[row.name for row in isolated.ROWS]
)


@cache
def exact_results() -> Any:
    return isolated.results()


@cache
def left(numerics: bool) -> tuple[Any, Any]:
    """What a launch leaves, and the errors that it reports, if it is asked for them."""
    given = isolated.arguments()
    kernel = ptx.parse(isolated.text()).kernels["isolated"]
    options = {"numerics": True} if numerics else {}
    result = kernel.launch(1, isolated.LANES, given, **options)
    return given[3], reading.error_map(result, given[3]) if numerics else None


@EACH
def test_the_error_is_that_of_one_rounding(number: int) -> None:
    """So the exact results are those of the instructions, and each of them rounds."""
    found, meant = left(False)[0][number].astype(np.float64), exact_results()[number]
    errors = np.abs(found - meant) / np.abs(meant)
    assert 0 < errors.max() <= isolated.ROWS[number].most


@NEEDS
@EACH
def test_the_reported_error_is_the_exact_one(number: int) -> None:
    found, reported = left(True)
    assert found.tobytes() == left(False)[0].tobytes()
    expected = np.abs(found[number] - exact_results()[number])
    said = np.abs(reported.reshape(found.shape)[number])
    assert np.abs(said - expected).max() <= 0.01 * expected.max()
