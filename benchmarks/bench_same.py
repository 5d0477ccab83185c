"""How much longer a launch takes with expressions, and how long classes take.

python -m benchmarks.bench_same [--targets] [--configurations]

The forty configurations of a matrix product need Triton.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fragmenta import ptx
from fragmenta.inspect.sameness.naming import name_roots, roots
from fragmenta.values.expressions.algebra import Expressions, Remembered

TEXT = Path(__file__).with_name("matmul_f16_sm80.ptx")
REPEATED = 5


def best(run: Callable[[], object]) -> float:
    """The least processor time of several runs, in seconds."""
    found = []
    for _ in range(REPEATED):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)


def sum_call() -> ptx.Call:
    """Sums of rows in one warp each: hashes beside every addition."""
    text = """
.version 8.0 .target sm_80 .address_size 64
.entry rows(.param .u64 x, .param .u64 y) {
    .reg .b32 %r<8>; .reg .b64 %rd<9>; .reg .f32 %f<8>; .reg .pred %p;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd3, %r1, 16384; mul.wide.u32 %rd4, %r2, 4;
    add.s64 %rd5, %rd1, %rd3; add.s64 %rd5, %rd5, %rd4;
    mov.f32 %f1, 0f00000000; mov.u32 %r3, 0;
again:
    ld.global.f32 %f2, [%rd5]; fma.rn.f32 %f1, %f2, %f2, %f1;
    add.s64 %rd5, %rd5, 128; add.u32 %r3, %r3, 1;
    setp.lt.u32 %p, %r3, 128; @%p bra again;
    mul.wide.u32 %rd6, %r1, 128; add.s64 %rd6, %rd2, %rd6; add.s64 %rd6, %rd6, %rd4;
    st.global.f32 [%rd6], %f1; ret;
}"""
    x = np.ones((64, 4096), np.float32)
    kernel = ptx.parse(text).kernels["rows"]
    return ptx.Call(kernel, 64, 32, [x, np.zeros((64, 32), np.float32)])


def factor(call: ptx.Call) -> tuple[float, float]:
    """The processor time of a launch, and how many times that expressions take."""
    memory = roots((call,))
    name_roots(memory)
    given = [Remembered.named(e.start, e.size, 4, e.named()) for e in memory]
    call.run()
    call.run(algebra=Expressions(given))
    plain = best(call.run)
    return plain, best(lambda: call.run(algebra=Expressions(given))) / plain


def configurations() -> None:
    """Print how long classes of forty configurations take, as a whole and on a core."""
    from tests.triton.configurations import CONFIGURATIONS, KINDS, proved

    for kind in KINDS:
        start, spent = time.perf_counter(), time.process_time()
        sizes = [len(names) for names in proved(kind, CONFIGURATIONS).members]
        seconds, spent = time.perf_counter() - start, time.process_time() - spent
        print(f"40 of {kind:11} {seconds:8.1f} s    {spent:5.1f} s of a core; {sizes}")


def main() -> None:
    """Print the factors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", action="store_true", help="also compare targets")
    parser.add_argument(
        "--configurations", action="store_true", help="also forty of a Triton kernel"
    )
    chosen = parser.parse_args()
    call = sum_call()
    plain, times = factor(call)
    print(
        f"sums of squares   {1e3 * plain:8.1f} ms   {times:5.1f} times with expressions"
    )
    if chosen.targets:
        start = time.perf_counter()
        found = ptx.targets(call, ["sm_80", "sm_90a", "sm_120a"])
        print(f"three targets     {time.perf_counter() - start:8.1f} s    {found}")
    if chosen.configurations:
        configurations()


if __name__ == "__main__":
    main()
