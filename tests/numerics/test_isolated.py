"""Every instruction that rounds, alone, and every move: errors are known exactly."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from tests.numerics.planted import isolated, reading
from tests.thinning import some

KERNELS = isolated.KERNELS
PLACES = [
    (kind, number) for kind, rows in KERNELS.items() for number in range(len(rows))
]
CHOSEN = some(PLACES, 2)
SOME = pytest.mark.parametrize(
    ("kind", "number"), CHOSEN, ids=[f"{k}-{KERNELS[k][n].name}" for k, n in CHOSEN]
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
    return given[-1], result


@cache
def reported(kind: str) -> Any:
    """The error of each element that a launch with numerics reports."""
    found, result = left(kind, True)
    return reading.error_map(result, found)


@cache
def lines_of(kind: str) -> list[range]:
    """The PTX lines of each row."""
    stores = [
        number
        for number, line in enumerate(isolated.text(KERNELS[kind]).splitlines(), 1)
        if "st.global.f32 [%py+" in line
    ]
    return [range(a, b) for a, b in pairwise([0, *stores])]


@SOME
def test_the_error_is_that_of_one_rounding(kind: str, number: int) -> None:
    """So the exact results are those of the instructions, and each of them rounds."""
    found = left(kind, False)[0][number].astype(np.float64)
    meant = exact_results(kind)[number]
    errors = np.abs(found - meant) / np.abs(meant)
    assert 0 < errors.max() <= KERNELS[kind][number].most


@pytest.mark.long
@SOME
def test_the_reported_error_is_the_exact_one(kind: str, number: int) -> None:
    found, result = left(kind, True)
    assert found.tobytes() == left(kind, False)[0].tobytes()
    expected = np.abs(found[number] - exact_results(kind)[number])
    said = np.abs(reported(kind).reshape(found.shape)[number])
    if KERNELS[kind][number].pieces and not said.any():
        anew = {site.line for site in result.numerics.restarts}
        assert anew & {*lines_of(kind)[number]}
        return
    assert np.abs(said - expected).max() <= 0.01 * expected.max()


@pytest.mark.long
@pytest.mark.parametrize("kind", KERNELS)
def test_special_operands_leave_the_same_bits(kind: str) -> None:
    """Infinities, NaN, subnormals: what is beside them changes nothing.

    In a process of its own: a crash is a failure of this test alone.
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.numerics.planted.isolated", kind],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "same"), done.stderr
