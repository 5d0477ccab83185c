"""GEMMs of CUTLASS give the bits of their arithmetic, in every schedule.

nvcc takes a minute or two for each of them.
"""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm
from corpus.host import prepared, text
from fragmenta import ptx

SCHEDULES = ("eager", "lazy", 1, 2)
ALPHA, BETA = np.float32(1.5), np.float32(-0.5)
WGMMA = "wgmma.mma_async.sync.aligned."
KINDS: dict[str, tuple[int, Any, str, tuple[int, int, int]]] = {
    "warp-specialised": (0, np.float16, "m64n128k16.f32.f16.f16", (192, 256, 192)),
    "pingpong": (1, ml_dtypes.bfloat16, "m64n64k16.f32.bf16.bf16", (256, 192, 320)),
    "cooperative": (
        2,
        ml_dtypes.float8_e4m3fn,
        "m64n64k32.f32.e4m3.e4m3",
        (256, 256, 384),
    ),
}


def product(a: Any, b: Any, op: str) -> Any:
    """What the mainloop computes: for 8-bit types, sums of 128 products are added."""
    step = 128 if a.dtype.itemsize == 1 else a.shape[1]
    total = np.float32(0)
    for i in range(0, a.shape[1], step):
        part = slice(i, i + step)
        total = total + fm.matmul(op, a[:, part], b[:, part].T, target="sm_90a")
    return total


@pytest.mark.parametrize("kind", KINDS)
def test_a_gemm_of_cutlass(kind: str) -> None:
    number, dtype, op, (m, n, k) = KINDS[kind]
    random = np.random.default_rng(3)
    a, b, c = (
        random.standard_normal(shape, np.float32).astype(of)
        for shape, of in [((m, k), dtype), ((n, k), dtype), ((m, n), np.float16)]
    )
    d = np.zeros((m, n), np.float16)
    kernel = ptx.parse(text("hopper", number), kind).kernels["cutlass_gemm"]
    made = prepared("hopper", number, m, n, k)
    result = kernel.launch(
        made.grid,
        made.block,
        [made.parameter([a, b, c, d])],
        cluster=made.cluster,
        shared=made.shared,
        watch="report",
        schedule=SCHEDULES,
    )
    assert [str(each) for each in result.problems if each.severity != "info"] == []
    total = product(a, b, WGMMA + op)
    # alpha times the sum plus (beta times C), the last two fused.
    wide = ALPHA.astype(float) * total + (BETA * c.astype(np.float32)).astype(float)
    fm.assert_same_bits(d, wide.astype(np.float32).astype(np.float16))
