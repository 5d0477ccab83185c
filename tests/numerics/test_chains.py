"""Chains of Tensor Core instructions: their errors are known from exact sums."""

from __future__ import annotations

import numpy as np
import pytest

from fragmenta import ptx
from tests.numerics.planted import chains, reading
from tests.numerics.planted.chains import CHAINS, Chain
from tests.numerics.test_planted import NEEDS

EACH = pytest.mark.parametrize("chain", CHAINS, ids=[each.name for each in CHAINS])
MOST = {"half": 2**-8, "f64": 2**-51, "e4m3": 2**-11}
"""The largest error of a chain, as a part of its result; 2^-18 if not here."""


@EACH
def test_the_exact_sum_is_near(chain: Chain) -> None:
    """So the exact sum is that of the chain, and the chain loses something."""
    made = chains.made(chain)
    kernel = ptx.parse(made.text).kernels["chain"]
    kernel.launch(1, 32, made.arguments)
    left = made.arguments[-1].astype(np.float64)
    errors = np.abs(left - made.exact) / made.exact
    assert 0 < errors.max() <= MOST.get(chain.name, 2**-18)


@NEEDS
@EACH
def test_the_reported_error_is_the_exact_one(chain: Chain) -> None:
    plain, made = chains.made(chain), chains.made(chain)
    kernel = ptx.parse(made.text).kernels["chain"]
    kernel.launch(1, 32, plain.arguments)
    result = kernel.launch(1, 32, made.arguments, numerics=True)
    left = made.arguments[-1]
    assert left.tobytes() == plain.arguments[-1].tobytes()
    expected = np.abs(left.astype(np.float64) - made.exact)
    said = np.abs(reading.error_map(result, left).reshape(left.shape))
    assert np.abs(said - expected).max() <= 0.01 * expected.max()
