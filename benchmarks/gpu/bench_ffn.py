"""A feed-forward block with squared ReLU: sparse activations beside dense fp8.

    y = relu(x U^T)^2 D^T

U is 14336 x 4096 and D is 4096 x 14336, both dense fp8 with a scale for each output.
x is bf16.  Rivals:

    dense_torch    torch._scaled_mm with row scales; torch.compile squares and quantises
    dense_triton   the same; a Triton kernel squares and quantises each row in one pass
    dense_ours     this project's dense product; the Triton kernel
    sparse         activations keep two of each four, and the second product is sparse
    sparse_torch   the same, with torch._scaled_mm for the first product
    fused          the first product leaves sparse activations itself, with one scale

    python benchmarks/gpu/bench_ffn.py [--tokens 512,1024] [--out FOLDER] [--seconds 90]

Rivals take turns, from CUDA graphs.  Writes ffn.json and ffn.md into the folder.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import triton
import triton.language as tl
from bench_model import scaled_mm
from measuring import Call, compile_all, medians_us, versions
from torch import Tensor

import fragmenta.torch as ft
from fragmenta.hopper.kernels.activate import emulate_activate
from fragmenta.hopper.kernels.choosing import choose
from fragmenta.hopper.kernels.config import Kernel, Tile
from fragmenta.hopper.torch.matrix import RESULTS, matrix_of
from fragmenta.hopper.torch.weights import relative_error

HIDDEN, WIDE = 4096, 14336
TOKENS = (512, 1024, 2048, 4096, 8192)
FUSED = (
    (128, 256, 2, 0, 1),
    (128, 128, 2, 1, 1),
    (64, 256, 2, 1, 1),
    (256, 128, 2, 0, 1),
)
"""Tiles of the product with an activation."""
_FP8 = torch.float8_e4m3fn
_LONG = 1500  # microseconds of a graph, so that its start does not count
_ROTATING = 400e6  # bytes, several times the L2


# ── the dense rival ─────────────────────────────────────────────────────────


def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    """Elements and row scales, for torch.compile."""
    scale = x.abs().amax(-1, keepdim=True).float().clamp_min(1e-12) / 448.0
    return (x.float() / scale).clamp(-448.0, 448.0).to(_FP8), scale


def squared(h: Tensor) -> tuple[Tensor, Tensor]:
    """The square of relu, quantised."""
    return quantised(torch.relu(h.float()).square())


@triton.jit
def square_rows(h, values, scales, columns, WIDTH: tl.constexpr):
    """Square and quantise one row, which stays in registers."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, WIDTH)
    x = tl.load(h + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    x = tl.maximum(x, 0.0)
    x = x * x
    scale = tl.maximum(tl.max(x, 0), 1e-12) / 448.0
    quotients = (x * (1.0 / scale)).to(tl.float8e4nv)
    tl.store(values + row * columns + at, quotients, mask=at < columns)
    tl.store(scales + row, scale)


def squared_by_triton(h: Tensor) -> tuple[Tensor, Tensor]:
    """The square of relu, quantised, in one pass."""
    rows, columns = h.shape
    values = torch.empty((rows, columns), dtype=_FP8, device=h.device)
    scales = torch.empty((rows, 1), device=h.device)
    width = triton.next_power_of_2(columns)
    square_rows[(rows,)](h, values, scales, columns, WIDTH=width, num_warps=16)
    return values, scales


class Block:
    """The weights, and all ways to compute the block."""

    def __init__(self, compiled: bool = True) -> None:
        options = {"device": "cuda", "dtype": torch.bfloat16}
        up = torch.randn(WIDE, HIDDEN, **options) / HIDDEN**0.5
        down = torch.randn(HIDDEN, WIDE, **options) / WIDE**0.5
        self.up, self.up_scale = ft.quantize_rows(up)
        self.down, self.down_scale = ft.quantize_rows(down)
        self.plain = up, down
        x = torch.randn(256, HIDDEN, **options)
        most = float(torch.relu(x @ up.t()).float().square().max())
        scale = 2.0 ** math.ceil(math.log2(2 * most / 448))
        self.hidden_scale = torch.tensor([scale], device="cuda")
        self.inverse = 1 / self.hidden_scale
        wrap: Callable = torch.compile if compiled else lambda f, **_: f
        self.quantised = wrap(quantised, dynamic=False)
        self.squared = wrap(squared, dynamic=False)

    # ── parts ───────────────────────────────────────────────────────────────

    def up_torch(self, x: Tensor, scale: Tensor) -> Tensor:
        return scaled_mm(x, self.up, scale, self.up_scale[None], torch.bfloat16)

    def down_torch(self, x: Tensor, scale: Tensor) -> Tensor:
        return scaled_mm(x, self.down, scale, self.down_scale[None], torch.bfloat16)

    def up_ours(self, x: Tensor, scale: Tensor) -> Tensor:
        return ft.dense_mm(
            x, self.up, scale_m=scale, scale_n=self.up_scale, out_dtype=torch.bfloat16
        )

    def down_ours(self, x: Tensor, scale: Tensor) -> Tensor:
        return ft.dense_mm(
            x,
            self.down,
            scale_m=scale,
            scale_n=self.down_scale,
            out_dtype=torch.bfloat16,
        )

    def down_sparse(self, a: ft.SparseMatrix, scale: Tensor) -> Tensor:
        return ft.sparse_mm(
            a,
            self.down,
            scale_m=scale,
            scale_n=self.down_scale,
            out_dtype=torch.bfloat16,
        )

    def up_fused(self, x: Tensor, scale: Tensor, tile: tuple[int, ...] = ()) -> Tensor:
        """The up-projection, whose epilogue leaves packed activations."""
        return torch.ops.fragmenta.activated_mm(
            x,
            self.up,
            "relu2",
            torch.bfloat16,
            scale,
            self.up_scale,
            self.inverse,
            tile,
        )

    def down_static(self, packed: Tensor) -> Tensor:
        shape = (packed.shape[0] * 256, WIDE)
        return ft.sparse_mm(
            ft.SparseMatrix(packed, "e4m3", shape),
            self.down,
            scale=self.hidden_scale,
            scale_n=self.down_scale,
            out_dtype=torch.bfloat16,
        )

    # ── whole blocks ────────────────────────────────────────────────────────

    def dense_torch(self, x: Tensor) -> Tensor:
        h = self.up_torch(*self.quantised(x))
        return self.down_torch(*self.squared(h))

    def dense_triton(self, x: Tensor) -> Tensor:
        values, scale = ft.quantize_rows(x)
        h = self.up_torch(values, scale[:, None])
        return self.down_torch(*squared_by_triton(h))

    def dense_ours(self, x: Tensor) -> Tensor:
        h = self.up_ours(*ft.quantize_rows(x))
        return self.down_ours(*squared_by_triton(h))

    def sparse(self, x: Tensor) -> Tensor:
        h = self.up_ours(*ft.quantize_rows(x))
        return self.down_sparse(*ft.sparse_activations(h))

    def sparse_torch(self, x: Tensor) -> Tensor:
        values, scale = ft.quantize_rows(x)
        h = self.up_torch(values, scale[:, None])
        return self.down_sparse(*ft.sparse_activations(h))

    def fused(self, x: Tensor) -> Tensor:
        return self.down_static(self.up_fused(*ft.quantize_rows(x)))

    def exact(self, x: Tensor) -> Tensor:
        """In float32, with the weights before they were quantised."""
        up, down = (each.float() for each in self.plain)
        return torch.relu(x.float() @ up.t()).square() @ down.t()

    WHOLE = (
        "dense_torch",
        "dense_triton",
        "dense_ours",
        "sparse",
        "sparse_torch",
        "fused",
    )
    DENSE, SPARSE = WHOLE[:3], WHOLE[3:]


def parts(block: Block, tokens: int) -> dict[str, list[Call]]:
    """Each part of a block by itself; operands of what memory limits rotate."""
    x = torch.randn(tokens, HIDDEN, device="cuda", dtype=torch.bfloat16)
    count = max(2, int(_ROTATING / (2 * tokens * WIDE)))
    x8, scale = ft.quantize_rows(x)
    h = block.up_ours(x8, scale)
    many = [h, *(h.clone() for _ in range(count - 1))]
    a, a_scale = ft.sparse_activations(h)
    y8, y_scale = block.squared(h)
    moved = (h.numel() * 2 + a.data.numel()) // 2 // 16 * 16
    bytes_ = [torch.empty(2, moved, dtype=torch.uint8, device="cuda") for _ in many]
    for each in bytes_:
        each.random_()
    return {
        "quantise x, torch": [lambda: block.quantised(x)],
        "quantise x": [lambda: ft.quantize_rows(x)],
        "up, torch": [lambda: block.up_torch(x8, scale[:, None])],
        "up": [lambda: block.up_ours(x8, scale)],
        **{
            f"up, fused {Tile(*tile)}": [lambda t=tile: block.up_fused(x8, scale, t)]
            for tile in FUSED
        },
        "square and quantise, torch": [lambda h=h: block.squared(h) for h in many],
        "square and quantise, Triton": [lambda h=h: squared_by_triton(h) for h in many],
        "activate and pack": [lambda h=h: ft.sparse_activations(h) for h in many],
        "copy of these bytes": [lambda b=b: b[0].copy_(b[1]) for b in bytes_],
        "down, torch": [lambda: block.down_torch(y8, y_scale)],
        "down": [lambda: block.down_ours(y8, y_scale)],
        "down, sparse": [lambda: block.down_sparse(a, a_scale)],
    }


# ── checks ──────────────────────────────────────────────────────────────────


CHECKED = [
    ("bf16", "relu2", (67, 14336)),
    ("bf16", "relu2", (5, 20001)),
    ("bf16", "relu", (260, 133)),
    ("bf16", "none", (70, 1000)),
    ("f16", "relu2", (70, 1000)),
    ("f16", "relu", (40, 4096)),
    ("f16", "none", (40, 14340)),
]
"""Type, activation and shape of what is compared bit by bit."""


def check(block: Block) -> None:
    """Every bit of packed activations, and the errors of the blocks."""
    for name, activation, shape in CHECKED:
        h = torch.randn(shape, device="cuda").to(RESULTS[name])
        h[:, ::7] = 0
        h[1, 3], h[2, 5], h[3, 0] = float("nan"), float("inf"), -float("inf")
        found, scales = ft.sparse_activations(h, activation)
        wanted = emulate_activate(matrix_of(h, name), activation)
        same = (found.data.cpu().numpy() == wanted[0].data).all()
        words = scales.cpu().numpy().view(np.uint32)
        if not same or (words != wanted[1].view(np.uint32)).any():
            raise SystemExit(f"{name} {activation} {shape}: bits differ")
    print(f"{len(CHECKED)} matrices of activations: no bit differs", flush=True)
    x8, scale = ft.quantize_rows(torch.randn(256, HIDDEN, device="cuda"))
    h = matrix_of(block.up_ours(x8, scale), "bf16")
    wanted, _ = emulate_activate(h, "relu2", float(block.hidden_scale))
    for tile in FUSED:
        found = block.up_fused(x8, scale, tile).cpu().numpy()
        if (found != wanted.data).any():
            raise SystemExit(f"fused {Tile(*tile)}: bits differ")
    print(f"{len(FUSED)} tiles of the fused product: no bit differs", flush=True)
    x = torch.randn(1024, HIDDEN, device="cuda", dtype=torch.bfloat16)
    wanted = block.exact(x)
    for name in Block.WHOLE:
        error = relative_error(getattr(block, name)(x), wanted)
        print(f"{name:14} error {error:.4f}", flush=True)


# ── measurements ────────────────────────────────────────────────────────────


def compile_kernels(counts: list[int]) -> None:
    """Compile this project's kernels before anything is measured."""
    plain = Kernel("e4m3", out="bf16", scaled=True)
    dense = Kernel("e4m3", out="bf16", scaled=True, sparse=False)
    fused = replace(dense, tile=Tile(64, 128), activation="relu2")
    compile_all(
        {
            *(choose(plain, t, HIDDEN, WIDE) for t in counts),
            *(choose(dense, t, HIDDEN, WIDE) for t in counts),
            *(choose(dense, t, WIDE, HIDDEN) for t in counts),
            *(replace(fused, tile=Tile(*each)) for each in FUSED),
        }
    )


Times = tuple[dict[str, float], dict[str, float]]
"""Microseconds of whole blocks, and of parts."""


def measure(block: Block, tokens: int, seconds: float) -> Times:
    """Microseconds of whole blocks, and of parts."""
    x = torch.randn(tokens, HIDDEN, device="cuda", dtype=torch.bfloat16)
    count = max(2, round(_LONG / 0.2 / tokens))
    calls = [[lambda n=name: getattr(block, n)(x)] * count for name in Block.WHOLE]
    whole = medians_us(calls, 0.1, seconds)
    single = parts(block, tokens)
    for name, each in single.items():
        single[name] = each * max(1, 2 * count // len(each))
    times = medians_us(list(single.values()), 0.05, seconds / 2)
    return (
        dict(zip(Block.WHOLE, whole, strict=True)),
        dict(zip(single, times, strict=True)),
    )


def _base(times: dict[str, float], name: str) -> float:
    return times[name] if name in times else min(times[x] for x in Block.DENSE)


NAMES = {
    "dense_torch": "torch, torch.compile between",
    "dense_triton": "torch, Triton between",
    "dense_ours": "fragmenta dense, Triton between",
    "sparse": "fragmenta 2:4",
    "sparse_torch": "fragmenta 2:4, up by torch",
    "fused": "fragmenta 2:4, fused",
}


def blocks_table(rows: dict[int, Times]) -> str:
    """Markdown: whole blocks, and how many times as fast as dense ones they are."""
    lines = [
        "| type | what | us | TFLOP/s | than dense | than the best dense |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for tokens, (times, _) in rows.items():
        for name, us in times.items():
            rate = 4 * tokens * HIDDEN * WIDE / us / 1e6
            against = [_base(times, x) / us for x in ("dense_torch", "the best dense")]
            ratios = " | ".join(f"{each:.2f}x" for each in against)
            what = NAMES[name]
            lines.append(
                f"| {tokens} tokens | {what} | {us:.1f} | {rate:.0f} | {ratios} |"
            )
    return "\n".join(lines)


def parts_table(rows: dict[int, Times]) -> str:
    """Markdown: microseconds of all parts."""
    titles = " | ".join(f"{tokens} tokens" for tokens in rows)
    lines = [f"| microseconds | {titles} |", "|---" + "|---:" * len(rows) + "|"]
    for name in next(iter(rows.values()))[1]:
        cells = [f"{parts[name]:.1f}" for _, parts in rows.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    for name, base in (
        ("activate and pack", "copy of these bytes"),
        ("down, torch", "down, sparse"),
    ):
        cells = [f"{parts[name] / parts[base]:.2f}" for _, parts in rows.values()]
        lines.append(f"| {name} / {base} | {' | '.join(cells)} |")
    return "\n".join(lines)


PAGE = """# A feed-forward block with sparse activations

Made by `python benchmarks/gpu/bench_ffn.py`. The block is y = relu(x U^T)^2 D^T; x is
bf16, U is 14336 x 4096 and D is 4096 x 14336, both fp8 (e4m3) with a scale for each
output. Calls are replayed from CUDA graphs in turn, times are medians. TFLOP/s count
zeros, too.

{about}.

- torch: `torch._scaled_mm` with scales by row. Between the products, a kernel of
  `torch.compile` squares and quantises, or a Triton kernel that reads each row once.
- fragmenta dense: this project's dense product, and the Triton kernel.
- fragmenta 2:4: activations keep two of each four (`ft.sparse_activations`), and the
  second product is sparse.
- fused: the first product leaves packed activations, with one scale that is known.

## Whole blocks

{blocks}

## Parts

Each by itself. Activations rotate through more memory than the L2 holds. The copy moves
as many bytes as the kernel that packs reads and writes.

{parts}
"""


def page(about: dict[str, str], rows: dict[int, Times]) -> str:
    """The page that is kept in docs/benchmarks."""
    said = ", ".join(f"{name} {value}" for name, value in about.items())
    return PAGE.format(about=said, blocks=blocks_table(rows), parts=parts_table(rows))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", default=",".join(map(str, TOKENS)))
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--seconds", type=float, default=0.3, help="busy, of a rival")
    options = parser.parse_args()
    begun = time.time()
    counts = [int(each) for each in options.tokens.split(",")]
    compile_kernels(counts)
    print(f"compiled in {time.time() - begun:.0f} s", flush=True)
    torch.manual_seed(0)
    block = Block()
    with torch.no_grad():
        check(block)
        print(f"checked after {time.time() - begun:.0f} s", flush=True)
        rows = {}
        for tokens in counts:
            rows[tokens] = measure(block, tokens, options.seconds)
            print(f"{tokens} tokens after {time.time() - begun:.0f} s", flush=True)
    print(blocks_table(rows), parts_table(rows), sep="\n\n", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    about = versions()
    report = {"about": about, "blocks": {t: r[0] for t, r in rows.items()}}
    report["parts"] = {t: r[1] for t, r in rows.items()}
    (options.out / "ffn.json").write_text(json.dumps(report, indent=1) + "\n")
    (options.out / "ffn.md").write_text(page(about, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
