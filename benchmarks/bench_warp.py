"""One warp's multiplication in machine code, against whole matrices.

The products a second of a warp function, called again and again by machine code as an
engine would call it, against those of :func:`fragmenta.matmul` on one core.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from llvmlite import ir
from timing import least

import fragmenta as fm
from fragmenta.arrays import threads
from fragmenta.execution.warp import WarpFunction, warp_function
from fragmenta.machine.compiler import Traced
from fragmenta.machine.trace import I32, I64, Code

SIZE, CALLS, ROUNDS = 512, 4000, 9
TARGET = "sm_90a"


@pytest.fixture(autouse=True)
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "cores", lambda: 1)


def repeated(run: WarpFunction) -> Traced:
    """A kernel that calls the function many times, by its address."""

    def trace(code: Code, *given: Any) -> None:
        *memory, count = given
        pointers = [each.raw for each in memory]
        kind = ir.FunctionType(I32, [each.type for each in pointers]).as_pointer()
        function = code.builder.inttoptr(ir.Constant(I64, run.address), kind)
        with code.loop(count):
            code.builder.call(function, pointers)

    return Traced("repeated", {**run.traced.parameters, "count": I64}, trace)


def registers(op: fm.Instruction) -> list[Any]:
    """D, A, B, C, no more registers, no selectors; values around one."""
    rng = np.random.default_rng(0)
    d = np.zeros((op.d.registers, 32), np.uint32)
    found = [
        part.pack(rng.standard_normal(part.shape).astype(part.dtype.storage)).T.copy()
        for part in (op.a, op.b, op.c)
    ]
    return [d, *found, np.zeros((3, 32), np.uint32), np.zeros(5, np.int64)]


def whole(op: fm.Instruction) -> float:
    """Products a second of whole matrices."""
    rng = np.random.default_rng(0)
    A, B = (rng.standard_normal((SIZE, SIZE)).astype(np.float16) for _ in "AB")
    return SIZE**3 / least(lambda: fm.matmul(A, B, op, target=TARGET), ROUNDS)


def test_f16_into_f32(benchmark: Any) -> None:
    """m16n8k16: at least 0.6 of the products a second of whole matrices."""
    op = fm.mma("m16n8k16", a="f16", d="f32")
    call, given = repeated(warp_function(op, TARGET)), registers(op)
    before = whole(op)
    benchmark.pedantic(lambda: call(*given, CALLS), rounds=ROUNDS, warmup_rounds=1)
    seconds = benchmark.stats.stats.min / CALLS
    m, n, k = op.shape
    ratio = m * n * k / seconds / max(before, whole(op))
    benchmark.extra_info["of whole matrices"] = ratio
    print(f"\nm16n8k16 f16: {1e6 * seconds:.2f} us, {ratio:.2f} of whole matrices")
    assert ratio >= 0.6


def test_compiling(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the cache, one function is ready in half a second."""
    monkeypatch.setenv("FRAGMENTA_CACHE", "")
    op = fm.mma("m16n8k16", a="f16", d="f32")

    def ready() -> int:
        return warp_function.__wrapped__(op, TARGET).address

    benchmark.pedantic(ready, rounds=5, warmup_rounds=1)
    print(f"\ncompiling: {benchmark.stats.stats.min:.2f} s")
    assert benchmark.stats.stats.min < 0.5
