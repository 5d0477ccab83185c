"""The speed of a compiled instruction, against whole matrices on one core.

The function is called again and again by machine code, as an engine would call it.  The
time is that of this process, so that other work on the machine counts little.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from llvmlite import ir
from timing import least

import fragmenta as fm
from fragmenta.base.arrays import threads
from fragmenta.base.jit.compiler import Traced
from fragmenta.base.jit.trace import I32, I64, Code

SIZE, ROUNDS = 512, 9
TARGET = "sm_90a"


@pytest.fixture(autouse=True)
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole matrices on one core; for the module that imports it."""
    monkeypatch.setattr(threads, "cores", lambda: 1)


def repeated(run: Any) -> Traced:
    """A kernel that calls a function many times, by its address."""

    def trace(code: Code, *given: Any) -> None:
        *operands, _ = (each.raw for each in given)
        kind = ir.FunctionType(I32, [each.type for each in operands]).as_pointer()
        function = code.builder.inttoptr(ir.Constant(I64, run.address), kind)
        with code.loop(given[-1]):
            code.builder.call(function, operands)

    return Traced("repeated", {**run.traced.parameters, "count": I64}, trace)


def whole(op: fm.Instruction) -> float:
    """Products a second of whole matrices."""
    rng = np.random.default_rng(0)
    A, B = (rng.standard_normal((SIZE, SIZE)).astype(np.float16) for _ in "AB")
    spent = least(lambda: fm.matmul(op, A, B, target=TARGET), ROUNDS, time.process_time)
    return SIZE**3 / spent


def of_whole(benchmark: Any, run: Any, given: list[Any], calls: int) -> float:
    """The products a second of a function, by those of whole matrices; printed."""
    call, op = repeated(run), run.op
    before = whole(op)
    seconds = least(lambda: call(*given, calls), ROUNDS, time.process_time) / calls
    benchmark.pedantic(lambda: call(*given, calls), rounds=1)
    m, n, k = op.shape
    speed = m * n * k / seconds
    ratio = speed / max(before, whole(op))
    benchmark.extra_info["of whole matrices"] = ratio
    print(
        f"\nm{m}n{n}k{k} f16: {1e6 * seconds:.2f} us, {speed / 1e9:.2f} G products/s, "
        f"{ratio:.2f} of whole matrices"
    )
    return ratio


def compiling(benchmark: Any, ready: Callable[[], object]) -> float:
    """The CPU time in seconds until a function is ready; printed."""
    seconds = least(ready, 5, time.process_time)
    benchmark.pedantic(ready, rounds=1)
    print(f"\ncompiling: {seconds:.2f} s")
    return seconds
