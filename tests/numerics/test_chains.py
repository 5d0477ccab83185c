"""Chains of Tensor Core instructions: their errors are known from exact sums."""

from __future__ import annotations

import numpy as np
import pytest

from fragmenta import ptx
from tests.numerics.planted import chains, exact, reading
from tests.numerics.planted.chains import CHAINS, Chain

EACH = pytest.mark.parametrize("chain", CHAINS, ids=[each.name for each in CHAINS])
MOST = {"half": 2**-8, "f64": 2**-51, "e4m3": 2**-11}
"""The largest error of a chain, as a part of its result; 2^-18 if not here."""


@EACH
def test_the_exact_sum_is_near(chain: Chain) -> None:
    """So the exact sum is that of the chain, and the chain loses something."""
    made = chains.made(chain)
    kernel = ptx.parse(made.text).kernels["chain"]
    kernel.launch(1, 32, made.arguments)
    found = exact.errors(made.arguments[-1], made.exact)
    errors = found / made.exact.astype(np.float64)
    assert 0 < errors.max() <= MOST.get(chain.name, 2**-18)


@EACH
def test_the_reported_error_is_the_exact_one(chain: Chain) -> None:
    plain, made = chains.made(chain), chains.made(chain)
    kernel = ptx.parse(made.text).kernels["chain"]
    kernel.launch(1, 32, plain.arguments)
    result = kernel.launch(1, 32, made.arguments, numerics=True)
    left = made.arguments[-1]
    assert left.tobytes() == plain.arguments[-1].tobytes()
    expected = exact.errors(left, made.exact)
    said = np.abs(reading.error_map(result, left).reshape(left.shape))
    assert np.abs(said - expected).max() <= 0.01 * expected.max()
