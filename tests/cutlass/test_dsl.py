"""A GEMM of the CuTe DSL gives the bits of the instruction, in every schedule."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from tests.cutlass import dsl_gemm
from tests.cutlass.dsl_gemm import STAGES, K, M, N

SCHEDULES = ("eager", "lazy", 1, 2)
TYPES: dict[str, Any] = {"Float16": np.float16, "BFloat16": ml_dtypes.bfloat16}


def launch(kind: str, cluster: int, **options: Any) -> tuple[Any, Any, Any, Any]:
    """Launch the GEMM: the result, A, B and C."""
    m, n, k = 256, 128, 320
    random = np.random.default_rng(2)
    a, b = (
        random.standard_normal((rows, k), np.float32).astype(TYPES[kind])
        for rows in (m, n)
    )
    c = np.zeros((m, n), np.float32)
    (kernel,) = ptx.parse(dsl_gemm.text(kind, cluster, m, n, k)).kernels.values()
    maps = [
        ptx.tensor_map(a, (M, K), swizzle=128),
        # Each block of a cluster copies its part of B for all of them.
        ptx.tensor_map(b, (N // cluster, K), swizzle=128),
    ]
    result = kernel.launch(
        (m // M, n // N),
        160,
        [*maps, ptx.struct(c), b"\0"],
        cluster=cluster,
        shared=1024 + STAGES * (M + N) * K * 2,
        watch="report",
        **options,
    )
    return result, a, b, c


@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize("kind", TYPES)
def test_a_gemm_of_the_dsl(kind: str, cluster: int) -> None:
    result, a, b, c = launch(kind, cluster, schedule=SCHEDULES)
    assert [str(each) for each in result.problems if each.severity != "info"] == []
    short = {"Float16": "f16", "BFloat16": "bf16"}[kind]
    op = f"wgmma.mma_async.sync.aligned.m64n64k16.f32.{short}.{short}"
    fm.assert_same_bits(c, fm.matmul(op, a, b.T, target="sm_90a"))


def explored(kind: str, cluster: int, states: int) -> Any:
    """The GEMM with all of its orders."""
    return launch(kind, cluster, orders=states)[0]


@pytest.mark.parametrize("cluster", [1, 2])
def test_no_order_of_the_gemm_hangs_or_races(cluster: int) -> None:
    found = explored("Float16", cluster, 20_000).orders
    assert found.clean
    assert found.verdict == "all orders", found.reasons
