"""The time of tcgen05.mma, against wgmma of the same shape.

Both have the same numbers of products, and both are timed in the same run.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from timing import least

import fragmenta as fm

TILES = 16
SIZE = 512
ROUNDS = 5
CASES = {
    "f16": ("m64n256k16", "f32"),
    "tf32": ("m64n256k8", "f32"),
    "s8": ("m64n256k32", "s32"),
    "e4m3": ("m64n256k32", "f32"),
}
every_type = pytest.mark.parametrize("name", CASES)


def pair(name: str) -> tuple[fm.Instruction, fm.Instruction]:
    """The same product by both families."""
    shape, d = CASES[name]
    return fm.tcgen05(shape, a=name, d=d), fm.wgmma(shape, a=name, d=d)


def matrices(op: fm.Instruction, m: int, n: int, k: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 8, shape) for shape in ((m, k), (k, n)))
    return a.astype(op.types["a"].storage), b.astype(op.types["b"].storage)


def compare(benchmark: Any, ours: Any, theirs: Any, name: str, limit: float) -> None:
    """Print how often as long the first takes, and refuse more than the limit.

    The time is that of this process, so that other work on the machine counts little.
    """
    clock = time.process_time
    benchmark.pedantic(lambda: None)
    other = least(theirs, ROUNDS, clock)
    ratio = least(ours, ROUNDS, clock) / min(other, least(theirs, ROUNDS, clock))
    benchmark.extra_info["wgmma"] = ratio
    print(f"\n{name}: {ratio:.2f} times the time of wgmma")
    assert ratio <= limit


@every_type
def test_execute(benchmark: Any, name: str) -> None:
    """A batch of tiles in images of both memories.

    An image of tensor memory is four times as large as D, and is copied whole.  It
    shows with integers, whose sums are fast.
    """
    new, old = pair(name)
    A, B = matrices(new, *new.shape)
    images, words = {}, {}
    for op in (new, old):
        image, a = fm.shared.tile(op, "A", A, swizzle=32)
        image, b = fm.shared.tile(op, "B", B, swizzle=32, image=image)
        images[op], words[op] = np.broadcast_to(image, (TILES, *image.shape)), (a, b)
    tmem = np.zeros((TILES, 128, 512), np.uint32)
    registers = np.zeros((TILES, 128, new.shape.n // 2), np.uint32)
    compare(
        benchmark,
        lambda: new.execute(tmem, *words[new], smem=images[new]),
        lambda: old.execute(registers, *words[old], smem=images[old]),
        f"execute {name}",
        3 if name == "s8" else 2,
    )


@every_type
def test_matmul(benchmark: Any, name: str) -> None:
    """Whole matrices: the same loops, so the same time."""
    new, old = pair(name)
    A, B = matrices(new, SIZE, SIZE, SIZE)
    compare(
        benchmark,
        lambda: fm.matmul(new, A, B),
        lambda: fm.matmul(old, A, B),
        f"matmul {name}",
        2 if name == "s8" else 1.25,  # BLAS, whose threads wait for each other
    )
