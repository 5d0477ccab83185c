"""The speed of whole kernels.

Scalar code is measured in warp instructions a second of one core; a Triton kernel that
multiplies matrices against :func:`fragmenta.matmul` of the same product; and how long
it takes until a kernel of 1,000 instructions has run once, new and from the cache.
Watched launches are measured against others.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from timing import least

import fragmenta as fm
from fragmenta import ptx

HERE = Path(__file__).resolve().parent
TARGET = "sm_90a"

FORMS = (
    "add.s32 %r{d}, %r{a}, %r{b};",
    "xor.b32 %r{d}, %r{a}, %r{b};",
    "mad.lo.s32 %r{d}, %r{a}, %r{b}, %r{c};",
    "shl.b32 %r{d}, %r{a}, 3;",
    "fma.rn.f32 %f{d}, %f{a}, %f{b}, %f{c};",
    "add.f32 %f{d}, %f{a}, %f{b};",
    "setp.lt.s32 %p1, %r{a}, %r{b};",
    "selp.b32 %r{d}, %r{a}, %r{b}, %p1;",
)


def scalar(count: int, seed: int = 0) -> str:
    """A kernel that repeats some instructions."""
    rng = random.Random(seed)
    body = "\n".join(
        rng.choice(FORMS).format(**{name: rng.randrange(1, 30) for name in "dabc"})
        for _ in range(count)
    )
    return f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry scalar(.param .u64 out, .param .u32 times)
{{
    .reg .b32 %r<40>;
    .reg .f32 %f<40>;
    .reg .b64 %rd<4>;
    .reg .pred %p<3>;
    ld.param.u32 %r31, [times];
    mov.u32 %r30, %tid.x;
    mov.u32 %r1, %tid.x;
    mov.u32 %r32, 0;
again:
{body}
    add.s32 %r32, %r32, 1;
    setp.lt.s32 %p2, %r32, %r31;
    @%p2 bra again;
    ld.param.u64 %rd1, [out];
    mad.wide.u32 %rd2, %r30, 4, %rd1;
    st.global.u32 [%rd2], %r5;
    ret;
}}"""


def test_scalar_code(benchmark: Any) -> None:
    """At least 100 million warp instructions a second and core."""
    kernel = ptx.parse(scalar(200)).kernels["scalar"]
    out = np.zeros(32, np.uint32)
    done = kernel.launch(1, 32, [out, 5000]).instructions

    def run() -> None:
        kernel.launch(1, 32, [out, 5000], watch=False)

    benchmark.pedantic(run, rounds=9, warmup_rounds=1)
    rate = done / benchmark.stats.stats.min / 1e6
    print(f"\n{rate:.0f} M warp instructions a second; the goal is 100")


SUMS = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry sums(.param .u64 in, .param .u64 out)
{
    .shared .align 16 .b8 tile[1024];
    .reg .b32 %r<12>; .reg .f32 %f<6>; .reg .b64 %rd<6>; .reg .pred %p<3>;
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd2, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r3, %r2, 256, %r1;
    mad.wide.u32 %rd3, %r3, 4, %rd1;
    mad.wide.u32 %rd4, %r3, 4, %rd2;
    mov.u32 %r4, tile;
    mad.lo.u32 %r5, %r1, 4, %r4;
    mov.u32 %r6, 0;
again:
    ld.global.f32 %f1, [%rd3];
    st.shared.f32 [%r5], %f1;
    bar.sync 0;
    mov.u32 %r7, 128;
half:
    xor.b32 %r8, %r1, %r7;
    mad.lo.u32 %r9, %r8, 4, %r4;
    ld.shared.f32 %f2, [%r9];
    ld.shared.f32 %f3, [%r5];
    fma.rn.f32 %f4, %f2, %f3, %f1;
    add.f32 %f3, %f3, %f4;
    bar.sync 0;
    st.shared.f32 [%r5], %f3;
    bar.sync 0;
    shr.u32 %r7, %r7, 1;
    setp.ne.u32 %p1, %r7, 0;
    @%p1 bra half;
    st.global.f32 [%rd4], %f3;
    add.u32 %r6, %r6, 1;
    setp.lt.u32 %p2, %r6, 8;
    @%p2 bra again;
    ret;
}"""


@pytest.mark.parametrize("code", ["registers", "shared memory", "many blocks"])
def test_watching(code: str) -> None:
    """Watched launches of scalar code take at most 5 times as long as others."""
    if code == "registers":
        kernel, blocks, threads = ptx.parse(scalar(200)).kernels["scalar"], 1, 32
        given: list[Any] = [np.zeros(32, np.uint32), 5000]
    else:
        kernel, threads = ptx.parse(SUMS).kernels["sums"], 256
        blocks = 64 if code == "shared memory" else 2048
        x = np.zeros(256 * blocks, np.float32)
        given = [x, np.zeros_like(x)]
    plain, watched = (
        least(lambda on=on: kernel.launch(blocks, threads, given, watch=on), 3)  # type: ignore[misc]
        for on in (False, True)
    )
    print(
        f"\n{code}: watched {watched:.3f} s, not watched {plain:.3f} s: "
        f"{watched / plain:.1f} times as long; the goal is at most 5"
    )


def test_a_triton_matmul(benchmark: Any) -> None:
    """1024 x 1024 x 1024 in f16: at most 3 times as long as fm.matmul."""
    size = 1024
    rng = np.random.default_rng(0)
    A, B = (rng.standard_normal((size, size)).astype(np.float16) for _ in "AB")
    C = np.zeros((size, size), np.float32)
    (kernel,) = ptx.load(HERE / "matmul_f16_sm80.ptx").kernels.values()
    given = [A, B, C, *[np.int32(size)] * 3, 0, 0]
    op = fm.mma("m16n8k16", a="f16", d="f32")

    def run() -> None:
        kernel.launch((8, 8), 256, given, shared=32768, target=TARGET, watch=False)

    D = fm.matmul(op, A, B, target=TARGET)
    whole = least(lambda: fm.matmul(op, A, B, target=TARGET), 3)
    benchmark.pedantic(run, rounds=3, warmup_rounds=1)
    assert np.array_equal(C.view(np.uint32), D.view(np.uint32))
    seconds = benchmark.stats.stats.min
    print(
        f"\nthe kernel {seconds:.2f} s, fm.matmul {whole:.2f} s, the same bits: "
        f"{seconds / whole:.2f} times as long; the goal is at most 3"
    )


START = """
import json, sys, time
import numpy as np
from fragmenta import ptx
text = open(sys.argv[1]).read()
kernel = ptx.parse(text).kernels["scalar"]
out = np.zeros(32, np.uint32)
start = time.perf_counter()
kernel.launch(1, 32, [out, 1], watch=False)
print(json.dumps(time.perf_counter() - start))
"""


@pytest.mark.parametrize("routines", ["compiled", "new"])
def test_the_first_launch(tmp_path: Path, routines: str) -> None:
    """1,000 instructions: 1 s if the kernel is new, 50 ms if it is in the cache."""
    cache = tmp_path / "cache"
    if routines == "compiled":  # another kernel has used the same instructions
        _start(tmp_path, scalar(300, seed=1), cache)
    new, kept = (_start(tmp_path, scalar(1000), cache) for _ in range(2))
    print(
        f"\n1,000 instructions, their routines {routines}: {new * 1e3:.0f} ms new (the "
        f"goal is 1,000), {kept * 1e3:.0f} ms from the cache (the goal is 50)"
    )


def _start(folder: Path, text: str, cache: Path) -> float:
    path = folder / "kernel.ptx"
    path.write_text(text)
    environment = {**os.environ, "FRAGMENTA_CACHE": str(cache)}
    command = [sys.executable, "-c", START, str(path)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    )
    return float(json.loads(done.stdout))
