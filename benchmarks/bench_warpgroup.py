"""One warpgroup's multiplication in machine code, against whole matrices.

The products a second of a warpgroup function, which reads A and B from shared memory,
against those of :func:`fragmenta.matmul` on one core.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from repeating import TARGET, compiling, of_whole, one_core

import fragmenta as fm
from fragmenta.reference.execution import warpgroup
from fragmenta.reference.shared.tiles import tile as shared_tile

CALLS = 100
__all__ = ["one_core"]  # a fixture


def operands(op: fm.Instruction, major: Any) -> list[Any]:
    """D, no registers of A, descriptors, memory, no metadata, selectors, steps."""
    rng, (m, n, k) = np.random.default_rng(0), op.shape
    A, B = (rng.standard_normal(s).astype(np.float16) for s in ((m, k), (k, n)))
    image, a = shared_tile(op, "A", A, swizzle=32, major=major)
    image, b = shared_tile(op, "B", B, swizzle=32, major=major, image=image)
    d = np.zeros((op.d.registers, 128), np.uint32)
    words = np.array([a.encode(), b.encode()], np.uint64)
    nothing = np.zeros(1, np.uint32)
    chosen = np.array([1, 0])
    steps = warpgroup.IN_ORDER
    return [d, nothing, words, image, image.size, nothing, chosen, *steps]


@pytest.mark.parametrize("trans", [0, 1])
@pytest.mark.parametrize("n, least", [(8, 0.3), (128, 0.8), (256, 0.87)])
def test_f16_into_f32(benchmark: Any, n: int, least: float, trans: int) -> None:
    """About the products a second of whole matrices; with n = 8, packing A binds."""
    op = fm.wgmma(f"m64n{n}k16", a="f16", d="f32")
    run = warpgroup.warpgroup_function(op, TARGET, trans_a=trans, trans_b=trans)
    given = operands(op, ("k", "mn")[trans])
    assert of_whole(benchmark, run, given, CALLS) >= least


def test_compiling(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the cache, one function is ready in half a second.

    The kernels that it calls are compiled before, once for all functions of its types.
    """
    monkeypatch.setenv("FRAGMENTA_CACHE", "")
    op = fm.wgmma("m64n256k16", a="f16", d="f32")

    def ready() -> int:
        made = warpgroup._function.__wrapped__(op, TARGET, warpgroup.Ways())
        return int(made.address)

    assert compiling(benchmark, ready) < 0.5
