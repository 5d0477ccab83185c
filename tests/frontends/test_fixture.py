"""The launcher of pytest's fixture ``gpu`` takes kernels of Numba."""

import numpy as np
import pytest
from numba import cuda

from fragmenta.commands.languages import LANGUAGES
from fragmenta.errors import BadCall
from fragmenta.inspect.evidence.testing import launcher


@cuda.jit
def double(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = 2 * x[i]


def test_a_kernel_of_numba() -> None:
    x, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    here = launcher("cpu", "sm_90a", LANGUAGES)
    here.launch(double, None, 2, 64, [x, out])
    assert (out == 2 * x).all()
    with pytest.raises(BadCall, match="needs block"):
        here.launch(double, None, 2, None, [x, out])
