"""Checks that the operators of PyTorch give the same bits on a GPU and on the CPU.

Compression, products, products of experts, activations alone and as the epilogue of a
product, kept values of weights that are trained, and 4-bit layers with few and many
rows.  ``check_gemm.py`` calls it.  Without a GPU:

    python benchmarks/gpu/check_library.py cpu

compares the CPU with itself: that shows only that the checks run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

import fragmenta.torch as ft
from fragmenta.hopper.kernels.config import ACTIVATIONS, Tile
from fragmenta.hopper.kernels.kept import TRAINED
from fragmenta.hopper.torch.matrix import DTYPES
from fragmenta.hopper.torch.quantizing import QUANTIZED
from fragmenta.reference.registers.dtype import dtype

DEVICE = "cuda"
"""Where the second result is computed."""
OPS = torch.ops.fragmenta


def drawn(
    of: str, rows: int, k: int, kind: str, rng: np.random.Generator
) -> np.ndarray:
    """A matrix of the element type."""
    dt = dtype(of)
    if of == "b1":
        return rng.integers(0, 2, (rows, k), np.uint8)
    if dt.is_integer:
        low, high = (int(end) for end in dt.limits)
        drawn = rng.integers(low, high + 1, (rows, k))
        if kind == "adversarial":
            drawn = np.where(rng.random((rows, k)) < 0.5, low, high)
        return drawn.astype(dt.storage)
    values = rng.normal(size=(rows, k)).astype(np.float32).astype(dt.storage)
    if kind == "random":
        return values
    bits = values.view(dt.bits_dtype)
    wild = rng.integers(0, 1 << dt.bits, (rows, k), np.uint64).astype(dt.bits_dtype)
    fraction = dt.bits - 1 - dt.exponent_bits
    exponents = ((1 << dt.exponent_bits) - 1) << fraction
    if dt.exponent_bits == 8:  # any exponent would overflow almost always
        spread = rng.integers(-40, 40, (rows, k)) + dt.bias << fraction
        some = rng.random((rows, k)) < 0.995
        wild = np.where(some, wild & ~dt.bits_dtype.type(exponents) | spread, wild)
        wild = wild.astype(dt.bits_dtype)
    special = (wild & exponents) == exponents
    # Specials spoil whole rows: let most rows be free of them.
    tame = special & (rng.random((rows, 1)) < 0.9)
    wild = np.where(tame, wild & dt.bits_dtype.type(1 << (dt.bits - 1)), wild)
    # Huge and tiny side by side, and neighbours that cancel.
    mixed = np.where(rng.random((rows, k)) < 0.5, wild, bits)
    half = k // 2
    sign = dt.bits_dtype.type(1 << (dt.bits - 1))
    mixed[rows // 2 :, half : 2 * half] = mixed[rows // 2 :, :half] ^ sign
    return mixed.astype(dt.bits_dtype).view(dt.storage)


def tensor(of: str, rows: int, columns: int, kind: str, seed: int) -> Tensor:
    """A tensor of an element type."""
    made = drawn(of, rows, columns, kind, np.random.default_rng(seed))
    flat = torch.from_numpy(np.ascontiguousarray(made).view(np.uint8).reshape(rows, -1))
    return flat.view(DTYPES[of]).reshape(rows, columns)


def apart(name: str, here: Tensor, there: Tensor) -> str:
    """What is wrong, if two results have other bytes; empty if nothing is."""
    ours, theirs = (x.contiguous().view(torch.uint8) for x in (here, there.cpu()))
    if torch.equal(ours, theirs):
        return ""
    return f"{name}: {int((ours != theirs).sum())} of {ours.numel()} bytes differ"


def first(found: Iterator[str]) -> str:
    """The first that is wrong."""
    return next((each for each in found if each), "")


def compression(a: str) -> str:
    """Check that compression on the GPU and on the CPU gives the same bytes."""
    for rows, k in ((64, 128), (300, 272), (1, 64), (1024, 4096)):
        for kind in ("random", "adversarial"):
            rng = np.random.default_rng(rows)
            made = drawn(a, rows, k, kind, rng)
            made[:, ::3] = 0  # chunks with room to spare
            flat = torch.from_numpy(made.view(np.uint8).reshape(rows, -1))
            weight = flat.view(DTYPES[a]).reshape(rows, k)
            here, there = ft.compress(weight), ft.compress(weight.to(DEVICE))
            if not torch.equal(here.data, there.data.cpu()):
                wrong = int((here.data != there.data.cpu()).sum())
                return f"{rows}x{k} {kind}: {wrong} bytes differ"
            back, dense = there.to_dense().cpu(), here.to_dense()
            if not torch.equal(back.view(torch.uint8), dense.view(torch.uint8)):
                return f"{rows}x{k}: to_dense differs"
    return ""


def operators(a: str) -> str:
    """Check that the operators on the GPU and on the CPU give the same bits."""
    rng = np.random.default_rng(7)
    weight, x = (
        torch.from_numpy(drawn(a, rows, 272, "random", rng).view(np.uint8))
        .view(DTYPES[a])
        .reshape(rows, 272)
        for rows in (200, 33)
    )
    sparse, bias = ft.compress(weight), torch.randn(200)
    scales = {"scale_weight": torch.rand(200), "scale_x": torch.rand(33)}
    on_gpu = {name: each.to(DEVICE) for name, each in scales.items()}
    here = ft.sparse_linear(x, sparse, bias, **scales)
    there = ft.sparse_linear(x.to(DEVICE), sparse.to(DEVICE), bias.to(DEVICE), **on_gpu)
    if not torch.equal(here, there.cpu()):
        return "sparse_linear differs"
    if not torch.equal(
        ft.dense_mm(weight, x), ft.dense_mm(weight.to(DEVICE), x.to(DEVICE)).cpu()
    ):
        return "dense_mm differs"
    held, given = sparse.to(DEVICE), x.to(DEVICE)
    wanted = ft.sparse_mm(held, given)
    if DEVICE != "cuda":
        return ""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ft.sparse_mm(held, given)
    out.zero_()
    graph.replay()
    if not torch.equal(out, wanted):
        return "differs in a CUDA graph"
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        out = ft.sparse_mm(held, given)
    stream.synchronize()
    return "" if torch.equal(out, wanted) else "differs on another stream"


def bits(_: str) -> str:
    """binary_mm on the GPU and on the CPU, ragged rows of bytes too."""
    for rows, others, width in ((70, 33, 48), (300, 260, 1024), (5, 9, 7)):
        a, b = (
            torch.randint(0, 256, (r, width)).to(torch.uint8) for r in (rows, others)
        )
        for op in ("and", "xor"):
            here, there = (
                ft.binary_mm(a, b, op=op),
                ft.binary_mm(a.to(DEVICE), b.to(DEVICE), op=op),
            )
            if not torch.equal(here, there.cpu()):
                return f"{op} of {rows}x{others}x{width} bytes differs"
    return ""


# ── experts ─────────────────────────────────────────────────────────────────

TILES = (
    Tile(64, 8),
    Tile(128, 32),
    Tile(64, 16, split=2),
    Tile(128, 128, 2),
    Tile(256, 64),
)
SHARES = ((3, 0, 5, 1, 0, 40), (0, 0, 0, 49, 0, 0), (8, 8, 8, 8, 8, 9), (0,) * 6)


def experts(a: str) -> str:
    """Products of experts: shares of every kind, few and many tokens, with scales."""

    def each() -> Iterator[str]:
        for m, k, times in ((200, 1040, 1), (64, 128, 1), (130, 400, 9)):
            weights = torch.stack([tensor(a, m, k, "random", 9 * x) for x in range(6)])
            here = ft.compress_experts(weights)
            there = here.to(DEVICE)
            for shares in SHARES:
                counts = times * torch.tensor(shares)
                x = tensor(a, 49 * times + 3, k, "random", sum(shares))
                offs = counts.cumsum(0).int()
                for tile in (None, *TILES) if m == 200 else (None,):
                    yield from _grouped(x, here, there, offs, tile)

    return first(each())


def _grouped(
    x: Tensor,
    here: ft.SparseStack,
    there: ft.SparseStack,
    offs: Tensor,
    tile: Tile | None,
) -> Iterator[str]:
    rows, m = int(offs[-1]), here.shape[1]
    scales = {
        "scale_weight": torch.rand(6, m) + 0.5,
        "scale_x": torch.rand(len(x)) + 0.5,
        "bias": torch.randn(6, m),
    }
    for given in ({}, scales):
        other = {name: each.to(DEVICE) for name, each in given.items()}
        moved = (x.to(DEVICE), there, offs.to(DEVICE))
        ours = ft.grouped_linear(x, here, offs, tile=tile, **given)
        theirs = ft.grouped_linear(*moved, tile=tile, **other)
        name = f"{tuple(here.shape)} {offs.tolist()} {tile} {[*given]}"
        yield apart(name, ours[:rows], theirs[:rows])


# ── activations ─────────────────────────────────────────────────────────────


def activations(a: str) -> str:
    """Activations that are packed, in rows that are held and rows that are not."""

    def each() -> Iterator[str]:
        for activation in ACTIVATIONS:
            for rows, columns in ((70, 520), (33, 133), (5, 14536), (260, 128)):
                for kind in ("random", "adversarial"):
                    x = tensor(a, rows, columns, kind, rows)
                    ours = ft.sparse_activations(x, activation)
                    theirs = ft.sparse_activations(x.to(DEVICE), activation)
                    name = f"{activation} {rows}x{columns} {kind}"
                    yield apart(name, ours[0].data, theirs[0].data)
                    yield apart(f"scales of {name}", ours[1], theirs[1])

    return first(each())


def fused(a: str) -> str:
    """Products that leave packed activations, with every tile."""

    def each() -> Iterator[str]:
        for number, (m, n, k) in enumerate(((300, 260, 272), (1024, 512, 256))):
            x, w = (tensor("e4m3", rows, k, "random", rows) for rows in (m, n))
            scales = torch.rand(m) + 0.5, torch.rand(n) / 8
            for activation in ACTIVATIONS:
                for tile in ((), (128, 256, 2, 0, 1), (64, 256, 2, 1, 1)):
                    power = torch.tensor([2.0 ** (number - 1)])
                    kind = DTYPES[a]
                    given = [x, w, activation, kind, *scales, power, tile]
                    moved = [
                        y.to(DEVICE) if isinstance(y, Tensor) else y for y in given
                    ]
                    ours, theirs = OPS.activated_mm(*given), OPS.activated_mm(*moved)
                    # Rows of the last 256 that no tile has are not defined.
                    whole = m // 256
                    name = f"{activation} {m}x{n}x{k} {tile}"
                    yield apart(name, ours[:whole], theirs[:whole])

    return first(each())


def blocks(_: str) -> str:
    """Feed-forward blocks, with a scale for each row and with one."""

    def each() -> Iterator[str]:
        torch.manual_seed(0)
        up = torch.nn.Linear(256, 640, bias=False)
        down = torch.nn.Linear(640, 200)
        for scale in (None, 0.25):
            for activation in ("relu", "relu2"):
                made = ft.SparseFeedForward.from_linears(
                    up, down, activation, hidden_scale=scale
                )
                x = torch.randn(300, 256).bfloat16()
                ours = made(x)
                theirs = made.to(DEVICE)(x.to(DEVICE))
                yield apart(f"{activation} {scale}", ours, theirs)
                made.to("cpu")

    return first(each())


# ── trained weights ─────────────────────────────────────────────────────────


def trained(a: str) -> str:
    """Kept values: packed both ways, made dense, and taken from a dense matrix."""

    def each() -> Iterator[str]:
        for rows, columns in ((64, 128), (300, 272), (70, 132), (6, 21)):
            weight = tensor(a, rows, columns, "random", rows)
            made = ft.SparseLinear(
                columns, rows, dtype=DTYPES[a], train=True, transposable=True
            )
            made._keep(weight, weight, True)
            values, codes = made.weight_values.detach(), made.weight_codes
            moved = values.to(DEVICE), codes.to(DEVICE)
            for name, rest in (
                ("pack_kept", (a, columns, False)),
                ("pack_kept", (a, columns, True)),
                ("kept_to_dense", (a, columns)),
            ):
                ours = getattr(OPS, name)(values, codes, *rest)
                theirs = getattr(OPS, name)(*moved, *rest)
                yield apart(f"{name} {rows}x{columns} {rest}", ours, theirs)
            ours = OPS.gather_kept(weight, codes, a)
            theirs = OPS.gather_kept(weight.to(DEVICE), moved[1], a)
            yield apart(f"gather_kept {rows}x{columns}", ours, theirs)
            x = tensor(a, 33, columns, "random", 1)
            with torch.no_grad():
                yield apart("kept_linear", made(x), made.to(DEVICE)(x.to(DEVICE)))

    return first(each())


# ── 4-bit weights ───────────────────────────────────────────────────────────


def four_bits(kind: str) -> str:
    """4-bit layers: their wide weights, and products with few and many rows."""

    def each() -> Iterator[str]:
        for group in (128, 64, 0) if kind == "int4-fp8" else (128, 64, 32, 0):
            for out, depth in ((300, 712), (64, 256), (130, 1024)):
                torch.manual_seed(group)
                linear = torch.nn.Linear(depth, out).bfloat16()
                options = {"prune": True, "quantize": kind, "group": group}
                here, there = (
                    ft.SparseLinear.from_linear(x, fallback="kept", **options)
                    for x in (linear, linear.to(DEVICE))
                )
                name = f"{out}x{depth} group {group}"
                yield apart(f"wide {name}", here.weight_wide, there.weight_wide)
                for rows in (1, 40, 200):
                    x = torch.randn(rows, depth).bfloat16()
                    yield apart(f"{name} {rows} rows", here(x), there(x.to(DEVICE)))

    return first(each())


def quantised(a: str) -> str:
    """Rows that are quantised to 8 bits."""

    def each() -> Iterator[str]:
        for rows, columns in ((33, 272), (5, 4100), (300, 64)):
            for kind in QUANTIZED:
                x = tensor(a, rows, columns, "random", rows)
                ours, theirs = (ft.quantize_rows(y, kind) for y in (x, x.to(DEVICE)))
                for one, two in zip(ours, theirs, strict=True):
                    yield apart(f"{kind} {rows}x{columns}", one, two)

    return first(each())


# ── all of it ───────────────────────────────────────────────────────────────

HALVES = ("bf16", "f16")
TASKS: list[tuple[str, Callable[[str], str], str]] = [
    *((f"compress {a}", compression, a) for a in DTYPES),
    *((f"operators {a}", operators, a) for a in DTYPES),
    ("binary_mm b1", bits, "b1"),
    *((f"experts {a}", experts, a) for a in ("bf16", "f16", "tf32", "e4m3", "s8")),
    *((f"activations {a}", activations, a) for a in HALVES),
    *((f"fused activations {a}", fused, a) for a in HALVES),
    ("feed-forward blocks", blocks, ""),
    *((f"trained {a}", trained, a) for a in TRAINED),
    *((f"4 bits {kind}", four_bits, kind) for kind in ("int4", "int4-fp8")),
    *((f"quantize_rows {a}", quantised, a) for a in HALVES),
]
"""The name of a check, what it calls, and with which type."""


def library(wanted: list[str]) -> int:
    """Everything above whose name has one of these parts; how many were wrong."""
    wrong = 0
    for name, task, a in TASKS:
        if any(each in name for each in wanted):
            try:
                said = task(a)
            except Exception as why:  # report it and go on
                said = f"{type(why).__name__}: {why}"
            wrong += bool(said)
            print(f"{'WRONG' if said else 'right'}  {name}  {said[:300]}", flush=True)
    return wrong


if __name__ == "__main__":
    DEVICE = sys.argv[1] if len(sys.argv) > 1 else DEVICE
    sys.exit(int(library([*sys.argv[2:]] or [""]) > 0))
