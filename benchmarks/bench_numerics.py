"""What numerics costs: exact values beside all floats.

A launch with ``numerics=True`` is measured against one without, in seconds of the
processor: sums in a loop, a softmax, a mix of all kinds of instructions, sums through
shared memory, and a Triton kernel that multiplies matrices.  The goals are at most 8
times as long for scalar code, and 6 times for products of matrices.

Memory is measured in processes of their own: how much more it grows with the data.  An
array that is written has four planes (or eight beside floats of 8 bits) and a copy of
what was left; one that is not all zeros has a copy of what it was, with which ``blame``
launches again.  So it is about 1 + 1 for an input, and 1 + 4 + 1 for an output.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_ptx import HERE, SUMS, TARGET

from fragmenta import ptx

SCALAR, PRODUCTS = 8, 6
"""The goals."""
MEMORY = 4
"""That of memory, on what grows with the data."""
SIZES = {"scalar": (256, 1 << 23), "matmul": (128, 2048)}
"""A small and a large launch: elements, and rows of a square matrix."""
ROUNDS = 9
_HEAD = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry f(.param .u64 in, .param .u64 out)
{
    .reg .b32 %r<12>; .reg .f32 %f<12>; .reg .b64 %rd<8>; .reg .pred %p<3>;
    ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 256, %r1;
    mad.wide.u32 %rd3, %r3, 4, %rd1; mad.wide.u32 %rd4, %r3, 4, %rd2;
    mov.f32 %f0, 0f00000000; mov.u32 %r6, 0; mov.f32 %f9, 0f3F800000;
again:
"""
_TAIL = """
    add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 200; @%p2 bra again;
    st.global.f32 [%rd4], %f0;
    ret;
}"""
BODY = {
    "a sum of products": "ld.global.f32 %f1, [%rd3]; fma.rn.f32 %f0, %f1, %f1, %f0;"
    "add.s64 %rd3, %rd3, 0;",
    "a softmax": "ld.global.f32 %f1, [%rd3]; sub.f32 %f2, %f1, %f9;"
    "mul.f32 %f3, %f2, 0f3FB8AA3B; ex2.approx.ftz.f32 %f4, %f3;"
    "add.f32 %f0, %f0, %f4; max.f32 %f9, %f9, %f1; add.s64 %rd3, %rd3, 0;",
    "halves": "ld.global.f32 %f1, [%rd3]; cvt.rn.f16x2.f32 %r7, %f1, %f0;"
    "add.f16x2 %r8, %r7, %r7; mov.b32 %r9, %r8; mov.b32 %f2, %r9;"
    "add.f32 %f0, %f0, %f1;",
}
"""What kernels repeat 200 times in 64 blocks of 256 threads."""


def case(name: str) -> tuple[ptx.Kernel, int, int, list[Any]]:
    """A kernel, blocks, threads and arguments."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(64 * 256).astype(np.float32)
    given = [x, np.zeros_like(x)]
    if name == "sums through shared memory":
        return ptx.parse(SUMS).kernels["sums"], 64, 256, given
    kernel = ptx.parse(_HEAD + BODY[name] + _TAIL).kernels["f"]
    return kernel, 64, 256, given


def ratio(run: Any) -> float:
    """How many times as long a launch takes with numerics as without.

    Both are measured in turns, so that a busy machine slows both.
    """
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(ROUNDS + 1):
        for exact, found in times.items():
            start = time.process_time()
            run(numerics=exact, watch=False)
            found.append(time.process_time() - start)
    plain, slow = (min(each[1:]) for each in times.values())  # the first warms up
    return slow / plain


@pytest.mark.parametrize("name", [*BODY, "sums through shared memory"])
def test_scalar_code(name: str) -> None:
    """At most 8 times as long."""
    kernel, blocks, threads, given = case(name)

    def run(**options: Any) -> None:
        kernel.launch(blocks, threads, given, **options)

    print(f"\n{name}: {ratio(run):.1f} times as long; the goal is {SCALAR}")


@pytest.mark.parametrize("size", [256])
def test_a_triton_matmul(size: int) -> None:
    """Products of f16 with sums in f32: at most 6 times as long."""
    rng = np.random.default_rng(0)
    A, B = (rng.standard_normal((size, size)).astype(np.float16) for _ in "AB")
    C = np.zeros((size, size), np.float32)
    (kernel,) = ptx.load(HERE / "matmul_f16_sm80.ptx").kernels.values()
    given = [A, B, C, *[np.int32(size)] * 3, 0, 0]

    def run(**options: Any) -> None:
        kernel.launch(
            (size // 128, size // 128),
            256,
            given,
            shared=32768,
            target=TARGET,
            **options,
        )

    print(f"\nmatmul of {size}: {ratio(run):.1f} times as long; the goal is {PRODUCTS}")


# ── memory ──────────────────────────────────────────────────────────────────


def sized(name: str, size: int) -> Any:
    """A launch on arrays of a size; what runs it."""
    rng = np.random.default_rng(0)
    if name == "scalar":
        x = rng.standard_normal(size, np.float32)
        text = _HEAD + BODY["a sum of products"] + _TAIL
        kernel = ptx.parse(text.replace("%r6, 200", "%r6, 1")).kernels["f"]
        given: list[Any] = [x, np.zeros_like(x)]
        return lambda **more: kernel.launch(size // 256, 256, given, **more)
    A, B = (rng.standard_normal((size, size)).astype(np.float16) for _ in "AB")
    C = np.zeros((size, size), np.float32)
    (kernel,) = ptx.load(HERE / "matmul_f16_sm80.ptx").kernels.values()
    given = [A, B, C, *[np.int32(size)] * 3, 0, 0]
    grid, how = (size // 128, size // 128), {"shared": 32768, "target": TARGET}
    return lambda **more: kernel.launch(grid, 256, given, **how, **more)


def peak() -> int:
    """The most bytes that this program had; ``ru_maxrss`` counts its parent's, too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (each for each in lines if each.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def growth(name: str, exact: bool) -> int:
    """How many bytes more the large launch takes than the small one, its arrays too."""
    options = {"numerics": exact, "watch": False}
    peaks = []
    for size in SIZES[name]:
        str(sized(name, size)(**options).numerics)  # the report is read, too
        peaks.append(peak())
    return peaks[1] - peaks[0]


@pytest.mark.parametrize("name", SIZES)
def test_memory(name: str) -> None:
    """At most 4 times as much, on what grows with the data."""
    found = []
    for exact in (False, True):
        call = f"import bench_numerics as b; print(b.growth({name!r}, {exact}))"
        told = subprocess.run(
            [sys.executable, "-c", call], capture_output=True, check=True, cwd=HERE
        )
        found.append(int(told.stdout))
    times = found[1] / found[0]
    print(f"\n{name}: {times:.1f} times the memory; the goal is {MEMORY}")


if __name__ == "__main__":
    for each in [*BODY, "sums through shared memory"]:
        test_scalar_code(each)
    test_a_triton_matmul(256)
    for each in SIZES:
        test_memory(each)
