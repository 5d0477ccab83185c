"""Threads that a block does not have, or that have ended, count for nothing."""

from __future__ import annotations

import numpy as np
import pytest

from fragmenta import ptx

SOURCE = """extern "C" __global__ void k(float *y, const float *x, int n)
{
    int t = threadIdx.x;
    if (t >= n) return;
    y[t] = x[t] * 1e-40f / (x[t] + x[t]);
}"""


@pytest.mark.parametrize(("block", "count"), [(16, 16), (32, 20), (48, 40), (32, 32)])
def test_only_threads_that_there_are_count(block: int, count: int) -> None:
    kernel = ptx.RawKernel(SOURCE, "k")
    y, x = np.zeros(block, np.float32), np.full(block, 1e-10, np.float32)
    found = kernel(1, block, [y, x, np.int32(count)], numerics=True).numerics
    assert not [each for each in found.problems if each.rule == "nan"]
    (product,) = [e for e in found.instructions if e.mnemonic == "mul.f32"]
    assert product.elements == product.counts["underflows"] == count
