"""One warp's multiplication in machine code, against whole matrices.

The products a second of a warp function, called again and again by machine code as an
engine would call it, against those of :func:`fragmenta.matmul` on one core.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from repeating import TARGET, compiling, of_whole, one_core

import fragmenta as fm
from fragmenta.reference.execution.warp import warp_function

CALLS = 4000
__all__ = ["one_core"]  # a fixture


def registers(op: fm.Instruction) -> list[Any]:
    """D, A, B, C, no more registers, no selectors; values around one."""
    rng = np.random.default_rng(0)
    d = np.zeros((op.d.registers, 32), np.uint32)
    found = [
        part.pack(rng.standard_normal(part.shape).astype(part.dtype.storage)).T.copy()
        for part in (op.a, op.b, op.c)
    ]
    return [d, *found, np.zeros((3, 32), np.uint32), np.zeros(5, np.int64)]


def test_f16_into_f32(benchmark: Any) -> None:
    """m16n8k16: at least a fifth of the products a second of whole matrices.

    Whole matrices are chains of fused multiply-adds, which one tile does not pay for.
    """
    op = fm.mma("m16n8k16", a="f16", d="f32")
    ratio = of_whole(benchmark, warp_function(op, TARGET), registers(op), CALLS)
    assert ratio >= 0.2


def test_compiling(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the cache, one function is ready in half a second."""
    monkeypatch.setenv("FRAGMENTA_CACHE", "")
    op = fm.mma("m16n8k16", a="f16", d="f32")

    def ready() -> int:
        return warp_function.__wrapped__(op, TARGET).address

    assert compiling(benchmark, ready) < 0.5
