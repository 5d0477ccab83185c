"""numba-cuda: kernels of ours in Python, compiled to PTX by its compiler."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda, float32, int32

from corpus.registry import case
from corpus.trial import Trial
from fragmenta import ptx

TYPES = {np.dtype("f4"): float32, np.dtype("i4"): int32}


def compiled(
    function: Callable[..., None], *arguments: Any
) -> tuple[ptx.Kernel, list[Any]]:
    """A kernel compiled for its arguments, and the arguments as numba passes them.

    An array is two objects, the number of elements, their size, the address, the shape
    and the strides.
    """
    kinds, given = [], []
    for each in arguments:
        if isinstance(each, np.ndarray):
            kinds.append(
                TYPES[each.dtype][
                    (slice(None),) * (each.ndim - 1) + (slice(None, None, 1),)
                ]
            )
            given += [0, 0, each.size, each.itemsize, each, *each.shape, *each.strides]
        else:
            kinds.append(int32)
            given.append(each)
    text, _ = cuda.compile(
        function,
        tuple(kinds),
        device=False,
        cc=(9, 0),
        output="ptx",
        lineinfo=True,
        abi="numba",
    )
    mangled = re.search(r"\.entry\s+(\w+)", text)
    assert mangled is not None
    text = text.replace(mangled[1], function.__name__)
    return ptx.parse(text).kernels[function.__name__], given


def launch(
    function: Callable[..., None], grid: Any, block: Any, *arguments: Any
) -> None:
    """Compile a kernel for its arguments, and launch it."""
    kernel, given = compiled(function, *arguments)
    kernel.launch(grid, block, given, target="sm_90a")


def saxpy(a, x, y, out, n):  # type: ignore[no-untyped-def]
    i = cuda.grid(1)
    if i < n:
        out[i] = a * x[i] + y[i]


def block_sums(x, out):  # type: ignore[no-untyped-def]
    room = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    room[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    step = 64
    while step > 0:
        if t < step:
            room[t] += room[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        out[cuda.blockIdx.x] = room[0]


def warp_sums(x, out):  # type: ignore[no-untyped-def]
    value = x[cuda.grid(1)]
    step = 16
    while step > 0:
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, step)
        step //= 2
    if cuda.laneid == 0:
        cuda.atomic.add(out, cuda.blockIdx.x, value)


def histogram(x, out, n):  # type: ignore[no-untyped-def]
    i = cuda.grid(1)
    while i < n:
        cuda.atomic.add(out, x[i], 1)
        i += cuda.gridsize(1)


def product(a, b, out, n):  # type: ignore[no-untyped-def]
    left, right = cuda.shared.array((8, 8), float32), cuda.shared.array((8, 8), float32)
    i, j = cuda.grid(2)
    ti, tj = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for k in range(0, n, 8):
        left[ti, tj] = a[i, k + tj]
        right[ti, tj] = b[k + ti, j]
        cuda.syncthreads()
        for m in range(8):
            total += left[ti, m] * right[m, tj]
        cuda.syncthreads()
    out[i, j] = total


def waves(x, out, n):  # type: ignore[no-untyped-def]
    i = cuda.grid(1)
    if i < n:
        out[i] = math.sin(x[i]) * math.exp(-x[i] * x[i]) + math.sqrt(abs(x[i]))


@case(small=True)
def scaled_sum(trial: Trial) -> None:
    x, y, out = (trial.floats(300).numpy() for _ in range(3))
    trial.call(lambda: launch(saxpy, 3, 128, 3, x, y, out, 300))
    trial.judge(out, 3 * x.astype(float) + y)


@case()
def sums_of_blocks(trial: Trial) -> None:
    x, out = trial.floats(384).numpy(), np.zeros(3, np.float32)
    trial.call(lambda: launch(block_sums, 3, 128, x, out))
    trial.judge(out, x.astype(float).reshape(3, 128).sum(1))


@case()
def sums_of_warps(trial: Trial) -> None:
    x, out = trial.whole(384).numpy().astype(np.int32), np.zeros(3, np.int32)
    trial.call(lambda: launch(warp_sums, 3, 128, x, out))
    trial.judge(out, 2 * x.reshape(3, 128).sum(1))  # of both calls


@case()
def counts(trial: Trial) -> None:
    x, out = trial.whole(1000, high=16).numpy().astype(np.int32), np.zeros(16, np.int32)
    trial.call(lambda: launch(histogram, 2, 128, x, out, 1000))
    trial.judge(out, 2 * np.bincount(x, minlength=16))


@case()
def matrix_product(trial: Trial) -> None:
    a, b = trial.floats(32, 32).numpy(), trial.floats(32, 32).numpy()
    out = np.zeros((32, 32), np.float32)
    trial.call(lambda: launch(product, (4, 4), (8, 8), a, b, out, 32))
    trial.judge(out, a.astype(float) @ b)


@case()
def functions(trial: Trial) -> None:
    x, out = trial.floats(300).numpy(), np.zeros(300, np.float32)
    trial.call(lambda: launch(waves, 3, 128, x, out, 300))
    wide = x.astype(float)
    trial.judge(out, np.sin(wide) * np.exp(-wide * wide) + np.sqrt(abs(wide)))
