"""Hand-written GEMMs of another project run, and their synchronisation is right.

``pyptx`` has a bfloat16 GEMM for Hopper with clusters, multicast copies and
warpgroups that copy or multiply.  It gives the right bits on a GPU, and here.  Three
things in it are only right by luck; with a line or two for each, nothing is left.
Its grouped GEMM needs no repair.
"""

import sys
from collections import Counter
from importlib import import_module
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from pyptx.examples.hopper import gemm_highperf_hopper as gemm

import fragmenta as fm
from fragmenta import ptx
from fragmenta.engine.simt import layout
from fragmenta.reference.shared.tensor_map import TensorMap

M, N, K = 512, 256, 192
SCHEDULES = ("eager", "lazy", 1, 2)
FENCE, BARRIER, CLUSTER = "fence", "barrier", "cluster"


def repaired(*what: str) -> str:
    """The PTX with some of the repairs.

    Before the copy engine reads what threads wrote, a proxy fence is needed.  One
    thread waits until the engine has read a tile; the others must learn that.  A block
    must not end while others of its cluster arrive at its mbarriers.
    """
    made = []
    for line in gemm.gemm_warp_specialized.ptx(M=M, N=N, K=K).splitlines():
        if "bar.sync" in line and FENCE in what:
            made.append("fence.proxy.async.shared::cta;")
        if line.strip() == "ret;" and CLUSTER in what:
            made += ["barrier.cluster.arrive;", "barrier.cluster.wait;"]
        made.append(line)
        if "cp.async.bulk.wait_group 0" in line and BARRIER in what:
            made.append("bar.sync %r34, 128;")
    return "\n".join(made)


def address(number: int) -> int:
    """Where the array is that is the argument ``number``."""
    return (layout.FIRST_ARGUMENT + number) << layout.SLOT_BITS


def in_memory(made: TensorMap) -> Any:
    """A tensor map in global memory."""
    return np.frombuffer(made.encode(), np.uint8).copy()


def tensor_map(number: int, rows: int, columns: int, box: tuple[int, ...]) -> Any:
    """A tensor map as ``fast.cu`` makes it: columns of 64 elements, side by side."""
    swizzle = 128 if box[0] == 64 else 0  # the result has padded rows instead
    made = TensorMap(
        "bf16",
        (64, rows, columns // 64),
        (2 * columns, 128),
        box,
        swizzle=swizzle,
        address=address(number),
    )
    return in_memory(made)


def launched(text: str, schedules: Any = SCHEDULES) -> tuple[Any, Counter[str], bool]:
    """The problems by rule, and whether all bits are right."""
    random = np.random.default_rng(1)
    a, b = (
        random.standard_normal((rows, K), np.float32).astype(ml_dtypes.bfloat16)
        for rows in (M, N)
    )
    c = np.zeros((N, M), ml_dtypes.bfloat16)
    tiles = np.full(gemm.SCHEDULE_LEN, 0xFFFFFFFF, np.uint32)
    tiles[:2] = 0, 1 << 16  # the only cluster computes both tiles
    maps = [
        tensor_map(0, M, K, (64, 128, 1)),
        tensor_map(1, N, K, (64, 256, 1)),
        tensor_map(3, N, M, (72, 256, 1)),
    ]
    kernel = ptx.parse(text, "pyptx").kernels["gemm_warp_specialized"]
    result = kernel.launch(
        2,
        384,
        [a, b, tiles, c, M, N, K, *maps],
        shared=gemm.SMEM_TOTAL,
        target="sm_90a",
        watch="report",
        schedule=schedules,
    )
    op = "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16"
    want = fm.matmul(op, a, b.T, target="sm_90a").astype(ml_dtypes.bfloat16).T
    rules = Counter(each.rule for each in result.problems if each.severity != "info")
    return result, rules, c.tobytes() == want.tobytes()


def test_repaired_it_is_right_in_every_schedule() -> None:
    _, rules, right = launched(repaired(FENCE, BARRIER, CLUSTER))
    assert right
    assert not rules


@pytest.mark.parametrize(
    "repairs, rule",
    [
        ((BARRIER, CLUSTER), "missing-proxy-fence"),
        ((FENCE, CLUSTER), "overwrite-while-read"),
    ],
)
def test_without_a_repair_it_is_found(repairs: tuple[str, ...], rule: str) -> None:
    _, rules, right = launched(repaired(*repairs), ("eager",))
    assert right  # nobody would see it
    assert set(rules) == {rule}


def test_arrivals_at_a_block_that_has_ended_are_told_and_ignored() -> None:
    """A GPU goes on, too, and its result is right."""
    result, rules, right = launched(repaired(FENCE, BARRIER), ("eager",))
    assert right
    assert result.complete
    assert set(rules) == {"shared-race"}
    errors = [each for each in result.problems if each.severity == "error"]
    assert errors
    assert all("whose threads have all ended" in each.message for each in errors)


def test_a_grouped_gemm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("jax", "jax.numpy"):  # only its own checks need them
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    grouped = import_module("pyptx.examples.hopper.grouped_gemm")
    groups, m, n, k = 2, 128, 64, 192
    random = np.random.default_rng(2)
    a, b = (
        random.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16)
        for shape in [(groups * m, k), (groups * k, n)]
    )
    c = np.zeros((groups * m, n), np.float32)
    maps = [
        in_memory(
            TensorMap(
                "bf16",
                each.shape[::-1],
                (2 * each.shape[1],),
                (64, 64),
                swizzle=128,
                address=address(number),
            )
        )
        for number, each in enumerate([a, b])
    ]
    text = grouped.build_grouped_gemm(groups, m, n, k).ptx()
    result = (
        ptx.parse(text)
        .kernels["grouped_gemm"]
        .launch(
            (n // 64, m // 64, groups),
            128,
            [a, b, c, *maps],
            target="sm_90a",
            watch="report",
            schedule=SCHEDULES,
        )
    )
    assert [str(each) for each in result.problems if each.severity != "info"] == []
    op = "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16"
    for left, right, got in zip(
        np.split(a, groups), np.split(b, groups), np.split(c, groups), strict=True
    ):
        fm.assert_same_bits(got, fm.matmul(op, left, right, target="sm_90a"))
