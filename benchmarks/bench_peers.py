"""Whole products beside NumPy in f32: what ``make bench-peers`` has without its peers.

CPU time is measured, of all threads together, after inputs with a known answer.
"""

from __future__ import annotations

import numpy as np
import pytest
from peers import on_matrices
from peers.cases import CASES, NUMPY, OURS, Case
from peers.measuring import measure

MATRICES = [each for each in CASES if each.kind == "on_matrices"]


@pytest.mark.parametrize("case", MATRICES, ids=[each.name for each in MATRICES])
def test_a_product(case: Case) -> None:
    """The known answer from both, and how long both take."""
    seconds = {}
    for tool in (OURS, NUMPY):
        _, result = on_matrices.prepare(case, tool, whole=True)
        assert np.array_equal(result(), on_matrices.exact(case, whole=True))
        call, _ = on_matrices.prepare(case, tool, whole=False)
        seconds[tool] = measure(call).cpu
    ours, theirs = seconds[OURS], seconds[NUMPY]
    print(
        f"\n{case.what}: {1e3 * ours:.1f} ms of CPU time, {ours / theirs:.2f} times "
        f"NumPy in f32; {case.sizes['n'] ** 3 / ours / 1e9:.2f} G products a second"
    )
