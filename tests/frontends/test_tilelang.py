"""Kernels of TileLang run here: mma, and wgmma with tensor maps."""

import numpy as np
import pytest
import tilelang
import tilelang.language as T

import fragmenta as fm
from fragmenta.frontends import tilelang as front


def matmul(m, n, k, side=64, depth=32):
    @T.prim_func
    def gemm(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, side), T.ceildiv(m, side), threads=128) as (x, y):
            left = T.alloc_shared((side, depth), "float16")
            right = T.alloc_shared((depth, side), "float16")
            total = T.alloc_fragment((side, side), "float32")
            T.clear(total)
            for step in T.Pipelined(T.ceildiv(k, depth), num_stages=2):
                T.copy(A[y * side, step * depth], left)
                T.copy(B[step * depth, x * side], right)
                T.gemm(left, right, total)
            T.copy(total, C[y * side, x * side])

    return gemm


@T.prim_func
def collide(out: T.Tensor((64,), "float32")):
    with T.Kernel(2, threads=32) as x:
        for i in T.Parallel(32):
            out[i] = T.Cast("float32", x * 32 + i)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_a_product(target):
    random = np.random.default_rng(1)
    a = random.standard_normal((128, 64)).astype(np.float16)
    b = random.standard_normal((64, 64)).astype(np.float16)
    with front.on_cpu(target) as cpu:
        kernel = tilelang.compile(matmul(128, 64, 64), out_idx=[2], target="cuda")
        c = kernel(a, b)
    assert np.allclose(c, a.astype(np.float32) @ b.astype(np.float32), atol=1e-3)
    unit = "wgmma" if target == "sm_90a" else "mma"
    assert any(each.startswith(unit) for each in cpu.last.counts)
    assert not [each for each in cpu.last.problems if each.severity == "error"]


def test_a_race_is_found():
    with front.on_cpu("sm_80") as cpu:
        kernel = tilelang.compile(collide)
        with pytest.raises(fm.errors.KernelHazard):
            kernel(np.zeros(64, np.float32))
    (problem,) = [each for each in cpu.last.problems if each.severity == "error"]
    assert problem.rule == "global-race"
    line = kernel.source.splitlines()[problem.source.frames[0].line - 1]
    assert "out[" in line
    assert "T.atomic_add" in problem.hint
    with pytest.raises(fm.errors.BadCall, match="takes 1 arguments; given 0"):
        kernel()
