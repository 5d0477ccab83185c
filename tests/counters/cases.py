"""The launches whose counts are compared with Nsight Compute's.

Small kernels with one pattern each (``kernels.cu``), kernels of the corpus with ``mma``,
``ldmatrix`` and ``cp.async``, Triton's kernels for Hopper, and the project's own.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fragmenta import ptx
from fragmenta.cuda.tools import compiler
from fragmenta.inspect.evidence.arguments import for_kernel
from fragmenta.kernels import Kernel, Tile
from fragmenta.launch.kernel import Kernel as Entry
from tests.ptx import recordings
from tests.ptx.hopper import launching
from tests.ptx.hopper.gemms import Gemm
from tests.ptx.test_triton_hopper import arrays_of, parameters

FOLDER = Path(__file__).parent
COUNTED = FOLDER.parent / "golden" / "counters" / "own.xz"
TARGET = "sm_90a"
BLOCKS = 8


class Case(NamedTuple):
    """One launch."""

    name: str
    kind: str
    """What it is about: ``global``, ``shared``, ``tensor`` ..."""
    kernel: Callable[[], Entry]
    grid: Any
    block: Any
    arguments: Callable[[], list[Any]]
    options: dict[str, Any]

    def launch(self, **options: Any) -> Any:
        """The result of the launch without a GPU."""
        chosen = {**self.options, **options}
        given = self.arguments()
        return self.kernel().launch(self.grid, self.block, given, **chosen)


# ── kernels.cu ──────────────────────────────────────────────────────────────


@cache
def module() -> Any:
    """The small kernels."""
    return ptx.parse(compiled(), "kernels.cu")


def compiled() -> str:
    """Their PTX."""
    return compiler.to_ptx((FOLDER / "kernels.cu").read_text(), TARGET)


def values(kind: Any, count: int, seed: int = 1) -> Any:
    """Numbers that are not special."""
    random = np.random.default_rng(seed)
    return random.integers(1, 100, count).astype(kind)


def indices(count: int, most: int, seed: int = 2) -> Any:
    """Where threads read or write."""
    return np.random.default_rng(seed).integers(0, most, count).astype(np.int32)


def _copies(
    names: str, kind: Any, each: int = 1, of: int = 1, to: int = 1, block: int = 256
) -> Iterator[Case]:
    """Kernels that take a result and a source.

    ``each`` is how many elements a thread has, ``of`` and ``to`` are steps.
    """
    threads = BLOCKS * block
    for name in names.split():
        yield _small(
            name,
            "shared" if name.startswith(("shared", "transp", "ldm")) else "global",
            block,
            lambda: [
                np.zeros(threads * each * to, kind),
                values(kind, (threads + 1) * each * of),
            ],
        )


def _small(
    name: str, kind: str, block: int, arguments: Callable[[], list[Any]]
) -> Case:
    return Case(
        name, kind, lambda: module().kernels[name], BLOCKS, block, arguments, {}
    )


def small_cases() -> Iterator[Case]:
    """The launches of ``kernels.cu``."""
    f, n = np.float32, BLOCKS * 256
    yield from _copies("copy_u8", np.uint8)
    yield from _copies("copy_u16", np.uint16)
    yield from _copies(
        "copy_f32 copy_shifted copy_volatile copy_nc load_reversed load_same "
        "load_odd_lanes read_twice shared_plain shared_same shared_pairs",
        f,
    )
    yield from _copies("copy_f32x2 shared_x2 load_turns_x2 shared_x2_halves", f, 2)
    yield from _copies(
        "copy_f32x4 copy_shifted_x4 load_same_x4 load_pairs_x4 load_turns_x4 shared_x4 "
        "shared_x4_same shared_x4_pairs shared_x4_turns",
        f,
        4,
    )
    yield from _copies("copy_f64", np.float64)
    yield from _copies("load_stride_2", f, of=2)
    yield from _copies("load_stride_8", f, of=8)
    yield from _copies("load_stride_33", f, of=33)
    yield from _copies("load_stride_2_x2", f, 2, of=2)
    yield from _copies("load_stride_2_x4", f, 4, of=2)
    yield from _copies("store_stride_8", f, to=8)
    yield from _copies("shared_stride_2 shared_stride_32", f)
    yield from _copies("shared_u8", np.uint8)
    yield from _copies("shared_u16_stride_2", np.uint16)
    yield from _copies("shared_x2_stride_2 shared_x2_stride_3", f, 2)
    yield from _copies("shared_x4_stride_2", f, 4)
    yield from _copies("shared_f64_stride_2", np.float64)
    yield from _copies("transpose_32 transpose_33", f, 4)
    yield from _copies(
        "ldmatrix_dense ldmatrix_rows ldmatrix_swizzled", np.uint32, 4, block=32
    )
    yield _small(
        "ldmatrix_x1",
        "shared",
        32,
        lambda: [np.zeros(n, np.uint32), values(np.uint32, 4 * n)],
    )
    yield _small(
        "copy_some",
        "global",
        80,
        lambda: [np.zeros(640, f), values(f, 640), np.int32(600)],
    )
    yield _small("store_same", "global", 256, lambda: [np.zeros(BLOCKS, np.int32)])
    yield _small(
        "sum_rows",
        "global",
        32,
        lambda: [np.zeros(BLOCKS, f), values(f, BLOCKS * 1000), np.int32(1000)],
    )
    for name, width in (("gather", 1), ("gather_x4", 4), ("scatter", 1)):
        yield _small(
            name,
            "global",
            256,
            lambda width=width: [
                np.zeros(n * width, f),
                values(f, n * width),
                np.random.default_rng(3).permutation(n).astype(np.int32),
            ],
        )
    yield _small(
        "scatter_x2",
        "global",
        256,
        lambda: [
            np.zeros(2 * n, f),
            values(f, 2 * n),
            np.random.default_rng(3).permutation(n).astype(np.int32),
        ],
    )
    yield _small(
        "shared_gather",
        "shared",
        256,
        lambda: [np.zeros(n, f), values(f, n), indices(n, 256)],
    )
    for name, width, step in (
        ("async_16", 16, 1),
        ("async_16_stride_2", 16, 2),
        ("async_4", 4, 1),
        ("async_4_stride_8", 4, 8),
    ):
        count = BLOCKS * 128 * width
        yield _small(
            name,
            "async",
            128,
            lambda count=count, step=step: [
                np.zeros(count, np.uint8),
                values(np.uint8, count * step),
            ],
        )
    yield _small(
        "bulk", "async", 256, lambda: [np.zeros(4 * n, np.uint32), values("u4", 4 * n)]
    )
    yield from _atomics(n)
    yield from _calculations(n)


def _atomics(n: int) -> Iterator[Case]:
    zeros = np.zeros
    i = np.int32
    yield _small("red_each", "atomic", 256, lambda: [zeros(n, i), values(i, n)])
    yield _small("red_bins", "atomic", 256, lambda: [zeros(64, i), indices(n, 64)])
    yield _small("red_float", "atomic", 256, lambda: [zeros(64, "f4"), indices(n, 64)])
    yield _small("red_max", "atomic", 256, lambda: [zeros(BLOCKS, i), values(i, n)])
    for name in ("atom_bins", "atom_cas"):
        yield _small(
            name, "atomic", 256, lambda: [zeros(64, i), indices(n, 64), zeros(n, i)]
        )
    yield _small(
        "atom_u64",
        "atomic",
        256,
        lambda: [zeros(64, "u8"), indices(n, 64), zeros(n, "u8")],
    )
    yield _small(
        "atom_shared", "atomic", 256, lambda: [zeros(64 * BLOCKS, i), indices(n, 1000)]
    )


def _calculations(n: int) -> Iterator[Case]:
    f, i = np.float32, np.int32
    for name in ("two_ways", "sines"):
        yield _small(
            name, "branches", 256, lambda: [np.zeros(n, f), values(f, n) / f(90)]
        )
    yield _small(
        "doubles", "branches", 256, lambda: [np.zeros(n, "f8"), values("f8", n) / 200]
    )
    yield _small("long_loops", "branches", 256, lambda: [np.zeros(n, i), values(i, n)])
    yield _small(
        "early_exit",
        "branches",
        256,
        lambda: [np.zeros(n, f), values(f, n) / f(200), i(n - 300)],
    )
    yield _small(
        "local_array", "branches", 256, lambda: [np.zeros(n, i), values(i, n), i(5)]
    )


# ── larger kernels ──────────────────────────────────────────────────────────

RECORDED = (
    "attention.sm_80-flash_attention-whole",
    "layers.sm_80-softmax",
    "layers.sm_80-layernorm",
    "memory.sm_80-transpose",
    "memory.sm_80-stencil_2d",
    "memory.sm_80-transpose_ldmatrix",
    "pipelines.sm_80-gemm_f16_3_stages",
    "pipelines.sm_80-gemm_s8_4_stages",
    "pipelines.sm_80-gemm_tf32_3_stages",
    "pipelines.sm_90a-gemm_e4m3",
    "pipelines.sm_90a-gemm_f64_split_k",
    "reduce.sm_80-reduce_shuffle",
    "scan.sm_80-scan_tree",
    "sort.sm_80-sort_bitonic",
    "sparse.sm_80-sparse_f16",
    "sparse.sm_80-sparse_s8",
    "wmma.sm_80-wmma_f16_f32",
    "wmma.sm_80-wmma_bf16",
    "triton.fused_softmax-fused_softmax",
    "triton.layer_norm-layer_norm",
    "triton.matmul-f16-matmul-f16",
    "triton.reductions-reductions",
)
"""Launches of the corpus."""
TRITON = (
    "matmul-f16",
    "matmul-e4m3",
    "matmul-i8",
    "matmul-f32",
    "matmul_made_here-f16",
    "matmul_persistent",
    "matmul_specialised",
    "attention_by_maps-whole-64",
)
"""Launches of Triton 3.6 for Hopper."""
OWN = (
    Kernel("e4m3", tile=Tile(64, 16), promote=True),
    Kernel("bf16", tile=Tile(64, 64, turns=True), sparse=False),
    Kernel("s8", "u8", tile=Tile(128, 16, 2)),
    Kernel("f16", out="bf16", tile=Tile(128, 64)),
)
"""The project's own kernels."""


def recorded_cases(names: Iterable[str] = RECORDED) -> Iterator[Case]:
    """Launches of the corpus."""
    every = {each.identity: each for each in recordings.every_launch()}
    for name in names:
        found = every[name]
        row = found.row
        yield Case(
            name,
            "corpus",
            lambda found=found, row=row: found.file.kernel(row),
            row.grid,
            row.block,
            lambda found=found: for_kernel(found.make_arguments()),
            {"shared": row.shared, "target": TARGET},
        )


@cache
def _triton() -> dict[str, Any]:
    path = FOLDER.parent / "golden" / "triton" / "3.6.0.xz"
    read = json.loads(lzma.decompress(path.read_bytes()))
    return {each["name"]: each for each in read["launches"]}


def triton_cases(names: Iterable[str] = TRITON) -> Iterator[Case]:
    """Launches of Triton's kernels."""
    for name in names:
        row = _triton()[name]
        yield Case(
            f"triton.hopper-{name}",
            "triton",
            lambda row=row: ptx.parse(row["text"], row["name"]).kernels[row["entry"]],
            row["grid"],
            row["block"],
            lambda row=row: parameters(row, arrays_of(row)),
            {"shared": row["shared"], "target": TARGET, "cluster": row["cluster"]},
        )


def own_gemm(kernel: Kernel) -> Gemm:
    """The launch of one of the project's own kernels."""
    tile = kernel.tile
    return Gemm(kernel, tile.m * tile.cluster * 2, tile.n * 3, kernel.slab_k * 6, 2)


@cache
def _own() -> dict[str, str]:
    """Their PTX when a GPU counted them: the kernels of today have other counts."""
    found: dict[str, str] = json.loads(lzma.decompress(COUNTED.read_bytes()))
    return found


def own_cases(kernels: Iterable[Kernel] = OWN) -> Iterator[Case]:
    """Launches of the project's own kernels."""
    for kernel in kernels:
        gemm, name = own_gemm(kernel), f"own {kernel}"
        made = gemm.geometry
        yield Case(
            name,
            "own",
            lambda name=name: ptx.parse(_own()[name]).kernels[launching.ENTRY],
            made.grid,
            made.block,
            lambda gemm=gemm: launching.given(gemm, gemm.memory()),
            {"shared": made.shared, "cluster": made.cluster, "target": TARGET},
        )


def cases() -> list[Case]:
    """All of them."""
    return [*small_cases(), *recorded_cases(), *triton_cases(), *own_cases()]
