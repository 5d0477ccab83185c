"""What second values cost that are only moved along: planes without an algebra.

A launch with planes is measured against one without, in seconds of the processor: code
that computes in registers, sums through shared memory, copies of memory, shuffles, and
products of matrices.  An algebra adds what it computes.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from bench_ptx import HERE, SUMS, scalar
from timing import least

from fragmenta import ptx
from fragmenta.engine.planes.algebra import Algebra

BODY = {
    "copies": "ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd3];"
    "st.shared.v4.f32 [%r4], {%f0, %f1, %f2, %f3};"
    "ld.shared.v4.f32 {%f4, %f5, %f6, %f7}, [%r4];"
    "st.global.v4.f32 [%rd4], {%f4, %f5, %f6, %f7};",
    "words": "ld.global.f32 %f0, [%rd1]; st.shared.f32 [%r5], %f0;"
    "ld.shared.f32 %f1, [%r5]; add.f32 %f1, %f1, %f0; st.global.f32 [%rd2], %f1;",
    "words far apart": "ld.global.f32 %f0, [%rd3]; st.shared.f32 [%r4], %f0;"
    "ld.shared.f32 %f1, [%r4]; add.f32 %f1, %f1, %f0; st.global.f32 [%rd4], %f1;",
    "shuffles": "".join(
        f"shfl.sync.bfly.b32 %r9, %r8, {1 << i}, 31, -1; mov.b32 %f1, %r9;"
        "add.f32 %f0, %f0, %f1; mov.b32 %r8, %f0;"
        for i in range(5)
    )
    + "st.global.f32 [%rd4], %f0;",
}
"""What kernels repeat; each thread has 16 bytes of global and of shared memory, and a
word of its own beside those of its neighbours."""


def repeated(body: str) -> str:
    """A kernel that repeats something 200 times."""
    return f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry f(.param .u64 in, .param .u64 out)
{{
    .shared .align 16 .b8 tile[4096];
    .reg .b32 %r<12>; .reg .f32 %f<9>; .reg .b64 %rd<6>; .reg .pred %p<3>;
    ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 256, %r1;
    mad.wide.u32 %rd3, %r3, 16, %rd1; mad.wide.u32 %rd4, %r3, 16, %rd2;
    mov.u32 %r4, tile; mad.lo.u32 %r5, %r1, 4, %r4; mad.lo.u32 %r4, %r1, 16, %r4;
    mad.wide.u32 %rd1, %r3, 4, %rd1; mad.wide.u32 %rd2, %r3, 4, %rd2;
    ld.global.f32 %f0, [%rd3]; mov.b32 %r8, %f0; mov.u32 %r6, 0;
again:
    {body}
    add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 200; @%p2 bra again;
    ret;
}}"""


def case(name: str) -> tuple[ptx.Kernel, int, int, list[Any]]:
    """A kernel, blocks, threads and arguments."""
    if name == "registers":
        kernel = ptx.parse(scalar(200)).kernels["scalar"]
        return kernel, 1, 32, [np.zeros(32, np.uint32), 5000]
    if name == "sums":
        arrays = [np.ones(64 * 256, np.float32), np.ones(64 * 256, np.float32)]
        return ptx.parse(SUMS).kernels["sums"], 64, 256, arrays
    kernel = ptx.parse(repeated(BODY[name])).kernels["f"]
    arrays = [np.ones(64 * 1024, np.float32), np.ones(64 * 1024, np.float32)]
    return kernel, 64, 256, arrays


def ratio(run: Any) -> float:
    """How many times as long a launch takes with planes as without."""
    plain = least(lambda: run(watch=False), clock=time.process_time)
    moved = least(lambda: run(algebra=Algebra()), clock=time.process_time)
    return moved / plain


@pytest.mark.parametrize("name", ["registers", "sums", *BODY])
def test_scalar_code(name: str) -> None:
    """At most 2.5 times as long."""
    kernel, blocks, threads, given = case(name)

    def run(**options: Any) -> None:
        kernel.launch(blocks, threads, given, **options)

    print(f"\n{name}: {ratio(run):.2f} times as long; the goal is 2.5")


def test_products() -> None:
    """A Triton kernel that multiplies matrices: moves by ldmatrix and cp.async."""
    (kernel,) = ptx.load(HERE / "matmul_f16_sm80.ptx").kernels.values()
    rng = np.random.default_rng(0)
    size = 512
    A, B = (rng.standard_normal((size, size)).astype(np.float16) for _ in "AB")
    given = [A, B, np.zeros((size, size), np.float32), *[np.int32(size)] * 3, 0, 0]

    def run(**options: Any) -> None:
        kernel.launch((4, 4), 256, given, shared=32768, target="sm_90a", **options)

    print(f"\nproducts of matrices: {ratio(run):.2f} times as long")


if __name__ == "__main__":
    for each in ["registers", "sums", *BODY]:
        test_scalar_code(each)
    test_products()
