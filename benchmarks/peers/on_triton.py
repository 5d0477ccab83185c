"""Triton kernels: run by fragmenta, or by Triton's interpreter.

The kernels are those of the tests.  With ``TRITON_INTERPRET=1``, Triton's decorator
makes functions for its interpreter of them.  Both are called in the same way, with the
same CPU tensors of PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fragmenta.triton import install
from peers.cases import INTERPRETER, NUMPY, OURS, Case
from tests.ptx.corpus import triton_hopper, triton_kernels

TILE = {"M": 64, "N": 64, "K": 32}
MAPPED = {"M": 64, "N": 64, "K": 64}
"""Tiles for tensor maps: 128 bytes of f16 along k."""
LOG2_E = 1.4426950408889634


def numbers(seed: int, shape: tuple[int, ...], of: Any, whole: bool) -> NDArray[Any]:
    """Normal numbers, or whole ones from -4 to 4."""
    rng = np.random.default_rng(seed)
    if whole:
        return rng.integers(-4, 5, shape).astype(of)
    return rng.standard_normal(shape).astype(of)


def inputs(case: Case, whole: bool) -> list[NDArray[Any]]:
    """The arrays of a problem; the last one is the result."""
    size = case.sizes
    if case.name == "add":
        x, y = (numbers(i, (size["n"],), np.float32, whole) for i in range(2))
        return [x, y, np.zeros_like(x)]
    if case.name == "softmax":
        x = numbers(0, (size["rows"], size["columns"]), np.float32, whole)
        return [x, np.zeros_like(x)]
    if case.name == "attention":
        shape = size["heads"], size["length"], 64
        given = [numbers(i, shape, np.float16, whole) for i in range(3)]
        return [*given, np.zeros_like(given[0])]
    m, n, k = (size[name] for name in "mnk")
    a, b = numbers(0, (m, k), np.float16, whole), numbers(1, (k, n), np.float16, whole)
    if case.name == "matmul_by_maps":
        b = np.ascontiguousarray(b.T)
    return [a, b, np.zeros((m, n), np.float32)]


def launch(case: Case, given: list[Any]) -> None:
    """Call the kernel, as one does on a GPU."""
    size = case.sizes
    if case.name == "add":
        blocks = -(-size["n"] // 1024)
        triton_kernels.vector_add[blocks,](*given, size["n"], BLOCK=1024)
    elif case.name == "softmax":
        columns = size["columns"]
        triton_kernels.fused_softmax[size["rows"],](*given, columns, BLOCK=1024)
    elif case.name == "attention":
        grid = size["length"] // 64, size["heads"]
        scale = LOG2_E / 8
        kernel = triton_kernels.flash_attention[grid]
        kernel(*given, size["length"], scale, M=64, N=64, HEAD=64)
    else:
        m, n, k = (size[name] for name in "mnk")
        if case.name == "matmul":
            grid = m // TILE["M"], n // TILE["N"]
            more = {**TILE, "SUM": triton_kernels.tl.float32, "PRECISION": "ieee"}
            triton_kernels.matmul[grid](*given, m, n, k, **more)
        else:
            grid = m // MAPPED["M"], n // MAPPED["N"]
            triton_hopper.matmul_made_here[grid](*given, m, n, k, **MAPPED)


def in_numpy(case: Case, given: list[NDArray[Any]]) -> Callable[[], NDArray[Any]]:
    """The problem in f32; f64 arrays are computed in f64."""
    *operands, _ = given
    if case.name == "add":
        x, y = operands
        return lambda: x + y
    if case.name == "softmax":
        (x,) = operands

        def softmax() -> NDArray[Any]:
            exps = np.exp(x - x.max(1, keepdims=True))
            return exps / exps.sum(1, keepdims=True)

        return softmax
    if case.name == "attention":
        return lambda: attention(*operands)
    a, b = operands
    return lambda: a @ (b.T if case.name == "matmul_by_maps" else b)


def attention(q: Any, k: Any, v: Any) -> Any:
    """Causal attention."""
    score = q @ k.swapaxes(1, 2) / 8
    score = np.where(np.tri(q.shape[1], dtype=bool), score, -np.inf)
    weight = np.exp(score - score.max(-1, keepdims=True))
    return (weight / weight.sum(-1, keepdims=True)) @ v


def prepare(
    case: Case, tool: str, whole: bool
) -> tuple[Callable[[], object], Callable[[], NDArray[Any]]]:
    """What is to be timed, and the result afterwards."""
    given = inputs(case, whole)
    if tool == NUMPY:
        call = in_numpy(case, [each.astype(np.float32) for each in given])
        return call, lambda: call().astype(given[-1].dtype)
    tensors = [torch.from_numpy(each) for each in given]
    torch.set_num_threads(1)
    if tool == INTERPRETER:
        import triton

        triton.set_allocator(_allocate)
        return lambda: launch(case, tensors), lambda: given[-1]
    install("sm_90a", watch=tool != OURS)  # until the process ends
    return lambda: launch(case, tensors), lambda: given[-1]


def _allocate(size: int, alignment: int, stream: object) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.int8)


def exact(case: Case, whole: bool) -> NDArray[np.float64]:
    """The result in f64."""
    given = [each.astype(np.float64) for each in inputs(case, whole)]
    return np.asarray(in_numpy(case, given)(), np.float64)
