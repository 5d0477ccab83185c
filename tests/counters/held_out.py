"""Launches whose counts were predicted before a GPU counted them.

The rules of counting were chosen with the launches of :mod:`cases` in view.  These show how
good they are elsewhere: ``nsight.py prepare`` wrote the predictions before Nsight Compute
ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from fragmenta import ptx
from fragmenta.cuda.tools import compiler
from fragmenta.kernels import Kernel, Tile
from tests.counters.cases import (
    BLOCKS,
    FOLDER,
    TARGET,
    Case,
    own_cases,
    recorded_cases,
    triton_cases,
    values,
)

RECORDED = (
    "attention.sm_80-flash_attention-causal",
    "layers.sm_80-rotary",
    "memory.sm_80-stencil_3d",
    "pipelines.sm_80-gemm_bf16_2_stages",
    "pipelines.sm_80-gemm_u8_s8",
    "pipelines.sm_80-gemm_f16_trans",
    "pipelines.sm_80-gemm_f16_ragged",
    "reduce.sm_80-reduce_tree",
    "simulation.sm_80-fft",
    "simulation.sm_80-spmv",
    "sort.sm_80-sort_radix",
    "wmma.sm_80-wmma_tf32",
    "triton.histogram-histogram",
    "triton.transpose_cast-transpose_cast",
)
TRITON = (
    "matmul-bf16",
    "matmul-e5m2",
    "matmul-f16-cluster",
    "matmul_ragged",
    "matmul_persistent-specialised",
    "matmul_added",
    "attention-causal-64-num_stages3",
)
OWN = (
    Kernel("s8", tile=Tile(64, 32)),
    Kernel("f16", tile=Tile(128, 32), sparse=False),
    Kernel("e5m2", "e4m3", tile=Tile(64, 64, turns=True)),
)


@cache
def module() -> Any:
    """The small kernels."""
    text = (FOLDER / "held_out.cu").read_text()
    return ptx.parse(compiler.to_ptx(text, TARGET), "held_out.cu")


def small_cases() -> Iterator[Case]:
    """The launches of ``held_out.cu``."""
    for name, (grid, block, arguments) in LAUNCHES.items():
        yield Case(
            name,
            "small",
            lambda name=name: module().kernels[name],
            grid,
            block,
            arguments,
            {},
        )


def _copy(
    kind: Any, each: int = 1, of: int = 1, to: int = 1, block: int = 256
) -> tuple[int, int, Callable[[], list[Any]]]:
    """Eight blocks that take a result and a source; ``each`` elements a thread."""
    count = BLOCKS * block * each
    return (
        BLOCKS,
        block,
        lambda: [np.zeros(count * to + each, kind), values(kind, count * of)],
    )


F, INT = np.float32, np.int32
LAUNCHES: dict[str, tuple[Any, Any, Callable[[], list[Any]]]] = {
    "every_third": _copy(F, of=3),
    "bytes_apart": _copy(np.uint8, of=16),
    "pairs_stored_off": _copy(F, 2),
    "wrapped": _copy(F),
    "triples": _copy(F, 3),
    "some_quads": _copy(F, 4),
    "crossed_pairs": _copy(np.uint32, 2),
    "quads_backwards": _copy(F, 4),
    "turned_naively": (
        (3, 9),
        (32, 8),
        lambda: [np.zeros(90 * 70, F), values(F, 90 * 70), INT(90), INT(70)],
    ),
    "narrow_rows": (
        BLOCKS,
        (24, 8),
        lambda: [np.zeros(64 * 24, F), values(F, 64 * 37), INT(37)],
    ),
    "shared_5": _copy(F),
    "shared_12": _copy(F),
    "shared_u16_3": _copy(np.uint16),
    "shared_quads_3": _copy(F, 4),
    "shared_quads_crossed": _copy(F, 4),
    "shared_f64_5": _copy(np.float64),
    "shared_fours": _copy(F),
    "turned_swizzled": (
        BLOCKS,
        (32, 8),
        lambda: [np.zeros(BLOCKS * 1024, F), values(F, BLOCKS * 1024)],
    ),
    "tree": (BLOCKS, 256, lambda: [np.zeros(BLOCKS, F), values(F, BLOCKS * 256)]),
    "added_apart": _copy(F, to=4),
    "least_of_pairs": _copy(np.uint64),
    "tickets": (BLOCKS, 256, lambda: [np.zeros(4, INT), np.zeros(BLOCKS * 256, INT)]),
    "shared_floats": (
        BLOCKS,
        256,
        lambda: [
            np.zeros(BLOCKS * 32, F),
            values(F, BLOCKS * 256),
            np.random.default_rng(5).integers(0, 32, BLOCKS * 256).astype(INT),
        ],
    ),
    "async_8": _copy(np.uint32, 2, block=128),
    "async_rows": _copy(np.uint32, 4, of=2, block=128),
    "async_filled": _copy(np.uint32, 4, block=128),
    "turned_matrices_5": (
        BLOCKS,
        32,
        lambda: [np.zeros(BLOCKS * 32, "u4"), values("u4", BLOCKS * 128)],
    ),
    "turned_matrices_4": (
        BLOCKS,
        32,
        lambda: [np.zeros(BLOCKS * 32, "u4"), values("u4", BLOCKS * 128)],
    ),
    "stored_matrices": _copy(np.uint32, 4, block=32),
    "bulk_off": (
        BLOCKS,
        256,
        lambda: [np.zeros(BLOCKS * 1024, "u1"), values("u1", BLOCKS * 1024)],
    ),
    "bulk_added": (
        BLOCKS,
        256,
        lambda: [np.zeros(BLOCKS * 128, INT), values(INT, BLOCKS * 256)],
    ),
}
"""Grid, block and arguments of each kernel of ``held_out.cu``."""


def cases() -> list[Case]:
    """All of them."""
    return [
        *small_cases(),
        *recorded_cases(RECORDED),
        *triton_cases(TRITON),
        *own_cases(OWN),
    ]
