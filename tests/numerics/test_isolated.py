"""Every instruction that rounds, alone, and every move: errors are known exactly."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from tests.numerics.planted import isolated, reading
from tests.numerics.test_planted import NEEDS

KERNELS = {"rounded": isolated.ROWS, "moved": isolated.MOVED}
PLACES = [
    (kind, number) for kind, rows in KERNELS.items() for number in range(len(rows))
]
EACH = pytest.mark.parametrize(
    ("kind", "number"), PLACES, ids=[f"{k}-{KERNELS[k][n].name}" for k, n in PLACES]
)


@cache
def exact_results(kind: str) -> Any:
    return isolated.results(KERNELS[kind])


@cache
def left(kind: str, numerics: bool) -> tuple[Any, Any]:
    """What a launch leaves, and the errors that it reports, if it is asked for them."""
    given = isolated.arguments(KERNELS[kind])
    kernel = ptx.parse(isolated.text(KERNELS[kind])).kernels["isolated"]
    options = {"numerics": True} if numerics else {}
    result = kernel.launch(1, isolated.LANES, given, **options)
    return given[-1], reading.error_map(result, given[-1]) if numerics else None


@EACH
def test_the_error_is_that_of_one_rounding(kind: str, number: int) -> None:
    """So the exact results are those of the instructions, and each of them rounds."""
    found = left(kind, False)[0][number].astype(np.float64)
    meant = exact_results(kind)[number]
    errors = np.abs(found - meant) / np.abs(meant)
    assert 0 < errors.max() <= KERNELS[kind][number].most


@NEEDS
@EACH
def test_the_reported_error_is_the_exact_one(kind: str, number: int) -> None:
    found, reported = left(kind, True)
    assert found.tobytes() == left(kind, False)[0].tobytes()
    expected = np.abs(found[number] - exact_results(kind)[number])
    said = np.abs(reported.reshape(found.shape)[number])
    assert np.abs(said - expected).max() <= 0.01 * expected.max()
