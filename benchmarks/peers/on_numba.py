"""Kernels in Python for numba-cuda: its compiler and fragmenta, or its simulator.

With ``NUMBA_ENABLE_CUDASIM=1``, numba's decorator makes functions for its simulator.
Otherwise the kernel is compiled to PTX once, which needs no GPU, and fragmenta launches
that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import cuda, float32
from numpy.typing import NDArray

from corpus.libraries.numbacuda import compiled, saxpy
from peers.cases import NUMPY, OURS, SIMULATOR, Case

SIDE = 8


def product(a, b, out, n):  # type: ignore[no-untyped-def]
    """``out = a b``, by tiles in shared memory."""
    # The simulator takes two arrays that are made in one line for the same one.
    left = cuda.shared.array((SIDE, SIDE), float32)
    right = cuda.shared.array((SIDE, SIDE), float32)
    row, column = cuda.grid(2)
    y, x = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for first in range(0, n, SIDE):
        left[y, x] = a[row, first + x]
        right[y, x] = b[first + y, column]
        cuda.syncthreads()
        for inner in range(SIDE):
            total += left[y, inner] * right[inner, x]
        cuda.syncthreads()
    out[row, column] = total


def block_sums(x, out):  # type: ignore[no-untyped-def]
    """The sum of each block, by halves, in shared memory."""
    room = cuda.shared.array(1024, float32)
    t = cuda.threadIdx.x
    room[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    step = cuda.blockDim.x // 2
    while step > 0:
        if t < step:
            room[t] += room[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        out[cuda.blockIdx.x] = room[0]


KERNELS = {each.__name__: each for each in (saxpy, product, block_sums)}


def inputs(case: Case, whole: bool) -> tuple[Any, Any, list[Any]]:
    """The grid, the block, and the arguments; the last array is the result."""
    rng = np.random.default_rng(0)

    def numbers(*shape: int) -> NDArray[np.float32]:
        if whole:
            return rng.integers(-4, 5, shape).astype(np.float32)
        return rng.standard_normal(shape, np.float32)

    if case.name == "saxpy":
        n = case.sizes["n"]
        return n // 128, 128, [3, numbers(n), numbers(n), np.zeros(n, np.float32), n]
    if case.name == "block_sums":
        threads = case.sizes["threads"]
        return 1, threads, [numbers(threads), np.zeros(1, np.float32)]
    n = case.sizes["n"]
    grid = n // SIDE, n // SIDE
    out = np.zeros((n, n), np.float32)
    return grid, (SIDE, SIDE), [numbers(n, n), numbers(n, n), out, n]


def in_numpy(case: Case, given: list[Any]) -> Any:
    """The result as NumPy computes it."""
    if case.name == "saxpy":
        a, x, y = given[:3]
        return x.dtype.type(a) * x + y
    if case.name == "block_sums":
        return given[0].sum(keepdims=True)
    return given[0] @ given[1]


def prepare(
    case: Case, tool: str, whole: bool
) -> tuple[Callable[[], object], Callable[[], NDArray[Any]]]:
    """What is to be timed, and the result afterwards."""
    grid, block, given = inputs(case, whole)
    result = [each for each in given if isinstance(each, np.ndarray)][-1]
    if tool == NUMPY:
        return lambda: in_numpy(case, given), lambda: np.asarray(in_numpy(case, given))
    if tool == SIMULATOR:
        kernel = cuda.jit(KERNELS[case.name])
        return lambda: kernel[grid, block](*given), lambda: result
    # The first call compiles.
    ready = cache(lambda: compiled(KERNELS[case.name], *given))

    def call() -> None:
        made, passed = ready()
        made.launch(grid, block, passed, target="sm_90a", watch=tool != OURS)

    return call, lambda: result


def exact(case: Case, whole: bool) -> NDArray[np.float64]:
    """The result in f64."""
    _, _, given = inputs(case, whole)
    wide = [e.astype(np.float64) if isinstance(e, np.ndarray) else e for e in given]
    return np.asarray(in_numpy(case, wide), np.float64)
