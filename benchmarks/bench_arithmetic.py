"""Products a second of each numeric model.

All limits are ratios but for the one call that must feel instant.  The ratio to
MMA-Sim is printed by ``make published``, which has it installed.
"""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import numpy as np
import pytest
from timing import least

from fragmenta.reference.arithmetic import Model, model, multiply
from fragmenta.reference.registers.dtype import dtype

TILES = 4096
F32, F16 = ("f32", "f32"), ("f16", "f16")

# name: model, and by how much a product may be slower than one of plain f16.  Where
# each step rounds to f16, or fp8 is expanded to f16, plain f16 gained more.
CASES: dict[str, tuple[Model, float]] = {
    "f16": (model("sm_90", "f16", "f16", *F32, 16), 1),
    "f16 into f16": (model("sm_90", "f16", "f16", *F16, 16), 3),
    "f16, sm_80": (model("sm_80", "f16", "f16", *F32, 16), 2),
    "bf16": (model("sm_90", "bf16", "bf16", *F32, 16), 2),
    "tf32": (model("sm_90", "tf32", "tf32", *F32, 8), 3),
    "e4m3": (model("sm_90", "e4m3", "e4m3", *F32, 32), 3),
    "e4m3, sm_89": (model("sm_89", "e4m3", "e4m3", *F32, 32), 2),
    "f16 sparse": (model("sm_90", "f16", "f16", *F32, 32, sparse=True), 2),
    "e4m3 sparse": (model("sm_90", "e4m3", "e4m3", *F32, 64, sparse=True), 4),
    "s8": (model("sm_90", "s8", "s8", "s32", "s32", 32), 2),
}


def operands(how: Model, batch: int, rows: int, columns: int, chained: int = 1) -> Any:
    """Values around one, and every second k where A is sparse."""
    rng = np.random.default_rng(0)

    def raw(name: str, *shape: int) -> Any:
        of = dtype(name)
        if of.is_integer:
            return rng.integers(0, of.mask + 1, shape).astype(of.bits_dtype)
        values = rng.standard_normal(shape).astype(np.float32)
        return values.astype(of.storage).view(of.bits_dtype)

    a = raw(how.a, batch, rows, how.stored * chained)
    b = raw(how.b, batch, how.k * chained, columns)
    c = raw(how.c, batch, rows, columns)
    more = {}
    if how.sparse:
        index = np.arange(0, how.k, 2, dtype=np.uint8)
        more["index"] = np.broadcast_to(index, (batch, rows, how.stored)).copy()
    return a, b, c, more


def rate(name: str, rounds: int = 15) -> float:
    """Products a second over many tiles."""
    how, _ = CASES[name]
    a, b, c, more = operands(how, TILES, 16, 8)
    seconds = least(lambda: multiply(a, b, c, how, **more), rounds)
    return products(how) / seconds


def products(how: Model) -> int:
    return TILES * 16 * 8 * how.stored


@pytest.mark.parametrize("name", CASES)
def test_tiles(benchmark: Any, name: str) -> None:
    how, limit = CASES[name]
    plain, _ = CASES["f16"]
    a, b, c, more = operands(how, TILES, 16, 8)
    x, y, z, _ = operands(plain, TILES, 16, 8)
    times = []

    def turn() -> tuple[tuple[()], dict[str, Any]]:
        """Plain f16 right before every round: both see the same busy machine."""
        start = time.perf_counter()
        multiply(x, y, z, plain)
        times.append(time.perf_counter() - start)
        return (), {}

    benchmark.pedantic(
        lambda: multiply(a, b, c, how, **more), setup=turn, rounds=25, warmup_rounds=2
    )
    per_second = products(how) / benchmark.stats.stats.min
    slower = products(plain) / min(times) / per_second
    benchmark.extra_info["products per second"] = per_second
    print(f"\n{name}: {per_second / 1e9:.2f}e9 products a second, f16 x {slower:.2f}")
    assert slower <= limit * 1.25  # and a little for noise


def test_one_tile(benchmark: Any) -> None:
    how, _ = CASES["f16"]
    a, b, c, _ = operands(how, 1, 16, 8)
    benchmark.pedantic(lambda: multiply(a, b, c, how), rounds=2000, warmup_rounds=10)
    assert benchmark.stats.stats.min < 125e-6


@pytest.mark.parametrize("name", ["f16", "bf16", "e4m3"])
def test_large_matrices(benchmark: Any, name: str) -> None:
    """512 cubed is faster than as many products in tiles; the limit allows noise."""
    how, _ = CASES[name]
    a, b, c, _ = operands(how, 1, 512, 512, 512 // how.k)
    benchmark.pedantic(lambda: multiply(a, b, c, how), rounds=5, warmup_rounds=1)
    per_second = 512**3 / benchmark.stats.stats.min
    print(f"\n{name} 512^3: {per_second / 1e9:.2f}e9 products a second")
    assert per_second >= rate(name) / 2


@pytest.mark.parametrize("name", CASES)
def test_memory(name: str) -> None:
    """Beside the result, no more than a few times the operands."""
    how, _ = CASES[name]
    a, b, c, more = operands(how, TILES, 16, 8)
    given = a.nbytes + b.nbytes + c.nbytes
    multiply(a, b, c, how, **more)
    tracemalloc.start()
    multiply(a, b, c, how, **more)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 4 * given
