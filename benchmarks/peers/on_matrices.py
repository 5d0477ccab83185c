"""Whole products: ``fm.matmul`` with the bits of an instruction, and NumPy in f32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fragmenta as fm
from peers.cases import NUMPY, Case


def inputs(case: Case, whole: bool) -> tuple[fm.Instruction, list[NDArray[Any]]]:
    """The instruction, A and B."""
    op, n, rng = fm.instruction(case.of), case.sizes["n"], np.random.default_rng(0)
    if op.types["a"].is_integer:
        return op, [rng.integers(-128, 128, (n, n), dtype=np.int8) for _ in "AB"]
    of = op.types["a"].storage
    if whole:
        return op, [rng.integers(-4, 5, (n, n)).astype(of) for _ in "AB"]
    return op, [rng.standard_normal((n, n), np.float32).astype(of) for _ in "AB"]


def prepare(
    case: Case, tool: str, whole: bool
) -> tuple[Callable[[], object], Callable[[], NDArray[Any]]]:
    """What is to be timed, and the result afterwards."""
    op, (a, b) = inputs(case, whole)
    if tool == NUMPY:
        x, y = a.astype(np.float32), b.astype(np.float32)
        return lambda: x @ y, lambda: (x @ y).astype(op.types["d"].storage)

    def call() -> NDArray[Any]:
        return np.asarray(fm.matmul(op, a, b))

    return call, call


def exact(case: Case, whole: bool) -> NDArray[np.float64]:
    """The result in f64."""
    _, (a, b) = inputs(case, whole)
    return np.asarray(a.astype(np.float64) @ b.astype(np.float64))
