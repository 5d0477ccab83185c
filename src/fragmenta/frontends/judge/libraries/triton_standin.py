"""What Triton and a GPU are for a candidate: kernels compile to PTX and no further."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl
from triton.backends.nvidia.compiler import CUDABackend

from fragmenta.frontends.triton import driver


def install(target: str) -> None:
    """From now on, PyTorch has a GPU, and Triton's kernels run here.

    The assembler is not asked.
    """
    CUDABackend.make_cubin = _no_cubin
    driver.install(target, torch=True)


def _no_cubin(*_: object, **__: object) -> bytes:
    """PTX is all that is launched, and a candidate's process starts no other."""
    return b"none"


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _twice(x, n, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    value = tl.load(x + at, at < n)
    tl.store(x + at, tl.exp(value) + tl.sum(value, 0), at < n)


def warm_up(target: str) -> None:
    """Let Triton load its compiler and ask for the assembler's version."""
    given = CUDABackend.make_cubin
    CUDABackend.make_cubin = _no_cubin
    try:
        with driver.on_cpu(target, watch=False):
            _twice[1,](np.ones(32, np.float32), 32, SIZE=32)
    finally:
        CUDABackend.make_cubin = given
