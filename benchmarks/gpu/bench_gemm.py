"""The speed of the kernels, against what PyTorch offers on the same GPU.

One run, random data, CUDA-graph replays over several sets of operands, median of
many.  Dense: torch.matmul (cuBLAS), torch._scaled_mm, torch._int_mm; sparse:
cuSPARSELt with its tuned algorithm.  Rates count the full logical k.

    python benchmarks/gpu/bench_gemm.py [--out FOLDER] [--tiles] [--only e4m3]

Writes gemm.json and gemm.md into the folder.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from measuring import Call, captured, compile_all, in_turn, replayed, versions
from torch import Tensor

from fragmenta.hopper.kernels.choosing import choose, expected_time, tiles_for
from fragmenta.hopper.kernels.config import Kernel, Tile
from fragmenta.hopper.kernels.four_bits import Integers
from fragmenta.hopper.kernels.packing import VALUE_BYTES, packed_shape
from fragmenta.hopper.torch.matrix import DTYPES
from fragmenta.reference.registers.dtype import dtype
from fragmenta.torch import SparseLinear, binary_mm, compress, run

# m, n, k of D = A B: the weight is A, so that n is the batch.
SIZES = (
    (8192, 8192, 8192),
    (4096, 4096, 4096),
    (8192, 2048, 8192),
    (4096, 16384, 4096),
    (8192, 1, 8192),
    (8192, 16, 8192),
    (8192, 64, 8192),
    (8192, 256, 8192),
)
_L2 = 100 << 20  # operands rotate through more bytes than the L2 holds


@dataclass
class Row:
    """One measurement."""

    what: str
    type: str
    size: tuple[int, int, int]
    microseconds: float = float("nan")
    spread: float = float("nan")
    sustained: float = float("nan")
    """Microseconds of a call when the card has been busy for a while."""
    note: str = ""

    @property
    def rate(self) -> float:
        m, n, k = self.size
        return 2 * m * n * k / self.microseconds / 1e6

    def record(self) -> dict[str, object]:
        """What is kept: what was not measured is null."""
        kept = vars(self) | {"rate": self.rate}
        return {
            name: None if isinstance(x, float) and math.isnan(x) else x
            for name, x in kept.items()
        }


# ── operands ────────────────────────────────────────────────────────────────


def dense(of: str, rows: int, k: int) -> Tensor:
    """Random numbers of the type; b1 as packed bytes."""
    if of == "b1":
        return torch.randint(0, 256, (rows, k // 8), dtype=torch.uint8, device="cuda")
    if of in ("s8", "u8"):
        low, high = (-128, 128) if of == "s8" else (0, 256)
        return torch.randint(low, high, (rows, k), dtype=DTYPES[of], device="cuda")
    return torch.randn(rows, k, device="cuda").to(DTYPES[of])


def packed(of: str, m: int, k: int) -> Tensor:
    """A packed sparse A of random values and random legal codes.

    Any word of legal codes is legal, so the words are drawn, not packed.
    """
    shape = packed_shape(of, m, k)
    tall, slabs, blocks, size = shape
    data = torch.empty(shape, dtype=torch.uint8, device="cuda")
    values = dense(of, tall * slabs * blocks * 64, 64 * 8 // dtype(of).bits)
    data[..., :VALUE_BYTES] = values.view(torch.uint8).reshape(*shape[:3], -1)
    codes = Kernel(of, tile=Tile(64, 8)).instruction.granularity.codes()
    table = torch.tensor(codes, dtype=torch.uint8, device="cuda")
    pick = torch.randint(
        0, len(codes), (tall, slabs, blocks, size - VALUE_BYTES, 2), device="cuda"
    )
    both = table[pick]
    data[..., VALUE_BYTES:] = both[..., 0] | both[..., 1] << 4
    return data


# ── timing ──────────────────────────────────────────────────────────────────


def packed_integers(b: str, m: int, k: int, group: int = 128) -> Tensor:
    """Packed random 4-bit integers: all nibbles and all words of legal codes."""
    shape = Integers(b, group).packed_shape(m, k)
    data = torch.randint(0, 256, shape, dtype=torch.uint8, device="cuda")
    legal = Kernel("e4m3", tile=Tile(64, 8)).instruction.granularity.codes()
    codes = torch.tensor(legal, dtype=torch.uint8, device="cuda")
    pick = torch.randint(0, len(codes), (*shape[:3], 1024, 2), device="cuda")
    both = codes[pick]
    data[..., 2048:3072] = both[..., 0] | both[..., 1] << 4
    scales = torch.rand((*shape[:3], 64 * 128 // group), device="cuda")
    data[..., 3072:] = scales.mul_(0.01).half().view(torch.uint8)
    return data


def measure(calls: list[Call], seconds: float) -> tuple[float, float]:
    """Median and spread of one call in microseconds.

    A short measurement runs at the clock the card begins with, a long one at
    the clock its power limit allows.
    """
    graph = captured(calls)
    time.sleep(0.15 + 250e-6 * replayed(graph))  # what heats the card lets it cool
    (times,) = in_turn([graph], seconds, least=15)
    low, median, high = np.percentile(times, [25, 50, 75]) / len(calls)
    return float(median), float(high - low)


def sets(bytes_each: int) -> int:
    """How many sets of operands do not fit in the L2 together; at least two."""
    return max(2, min(16, -(-_L2 // max(1, bytes_each))))


def timed(row: Row, make: Callable[[], Call], bytes_each: int) -> Row:
    """Measure a call made anew for each set of operands."""
    try:
        calls = [make() for _ in range(sets(bytes_each))]
        row.microseconds, row.spread = measure(calls, 0.05)
        if row.size == SIZES[0]:
            row.sustained, _ = measure(calls, 0.6)
    except Exception as why:  # a library may not have the operation at all
        row.note = f"{type(why).__name__}: {str(why).splitlines()[0][:100]}"
    torch.cuda.empty_cache()
    rate = f"{row.rate:8.0f}" if row.microseconds == row.microseconds else "       -"
    size = "x".join(map(str, row.size))
    print(
        f"{row.what:42} {row.type:5} {size:17} {row.microseconds:9.1f} us {rate}  "
        f"sustained {row.sustained:.0f} {row.note}",
        flush=True,
    )
    return row


# ── ours ────────────────────────────────────────────────────────────────────


def bytes_of(kernel: Kernel, m: int, n: int, k: int) -> int:
    bits = dtype(kernel.a).bits
    return (m * k // (2 if kernel.sparse else 1) + n * k) * bits // 8


def operands(
    kernel: Kernel, m: int, n: int, k: int
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """A, B, and what the epilogue reads."""
    a = packed(kernel.a, m, k) if kernel.sparse else dense(kernel.a, m, k)
    parts: dict[str, Tensor] = {}
    if kernel.scaled:
        parts["scale"] = torch.rand(1, device="cuda")
    if kernel.xor:
        parts["count_m"] = torch.zeros(m, dtype=torch.int32, device="cuda")
        parts["count_n"] = torch.zeros(n, dtype=torch.int32, device="cuda")
    return a, dense(kernel.b, n, k), parts


def ours(kernel: Kernel, size: tuple[int, int, int], label: str) -> Row:
    m, n, k = size

    def make() -> Call:
        a, b, parts = operands(kernel, m, n, k)
        return lambda: run(kernel, a, b, m, parts)

    row = Row(f"{label} [{kernel.tile}]", kernel.a, size)
    return timed(row, make, bytes_of(kernel, m, n, k))


def bits(size: tuple[int, int, int]) -> Row:
    """binary_mm with xor as it is called: the bits of all rows are counted, too."""
    m, n, k = size

    def make() -> Call:
        a, b = dense("b1", m, k), dense("b1", n, k)
        return lambda: binary_mm(a, b, op="xor")

    return timed(Row("fragmenta binary_mm xor", "b1", size), make, (m + n) * k // 8)


def our_kernels() -> Iterator[tuple[Kernel, str]]:
    for sparse in (True, False):
        word = "2:4" if sparse else "dense"
        base = {"tile": Tile(64, 64), "sparse": sparse, "transposed": True}
        yield Kernel("e4m3", out="bf16", **base), f"fragmenta {word}"
        yield (
            Kernel("e4m3", out="bf16", scaled=True, **base),
            f"fragmenta {word} scaled",
        )
        plain = Kernel("e4m3", out="bf16", **{**base, "transposed": False})
        yield plain, f"fragmenta {word} untransposed"
        yield (
            Kernel("e4m3", out="bf16", promote=True, **base),
            f"fragmenta {word} promoted",
        )
        yield Kernel("s8", **base), f"fragmenta {word}"
        yield Kernel("bf16", out="bf16", **base), f"fragmenta {word}"
        yield Kernel("tf32", **base), f"fragmenta {word}"
    yield Kernel("b1", tile=Tile(64, 64), sparse=False), "fragmenta and"
    yield Kernel("b1", tile=Tile(64, 64), sparse=False, xor=True), "fragmenta xor"


# ── PyTorch's ───────────────────────────────────────────────────────────────


def theirs(size: tuple[int, int, int], only: str) -> Iterator[Row]:
    m, n, k = size
    whole = (m * k + n * k, 2 * (m * k + n * k))

    def linear(kind: str) -> Callable[[], Call]:
        def make() -> Call:
            w, x = dense(kind, m, k), dense(kind, n, k)
            return lambda: torch.matmul(x, w.t())

        return make

    def scaled() -> Call:
        w, x = dense("e4m3", m, k), dense("e4m3", max(16, n), k)
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(
            x, w.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True
        )

    def integers() -> Call:
        w, x = dense("s8", m, k), dense("s8", max(32, n), k)
        return lambda: torch._int_mm(x, w.t())

    def lt(kind: str, out: torch.dtype | None) -> Callable[[], Call]:
        found: dict[str, object] = {}

        def make() -> Call:
            w = dense(kind, m, k)
            order = torch.rand(m, k // 4, 4, device="cuda").argsort(-1)
            keep = (order < 2).reshape(m, k)
            w = torch.where(keep, w.float(), 0.0).to(w.dtype)
            x = dense(kind, max(16, n), k)
            compressed = torch._cslt_compress(w)
            dtype = {"out_dtype": out} if out is not None else {}
            if not found:
                found["id"] = torch._cslt_sparse_mm_search(compressed, x.t(), **dtype)
            return lambda: torch._cslt_sparse_mm(
                compressed, x.t(), alg_id=found["id"], **dtype
            )

        return make

    listed = [
        ("torch.matmul", "bf16", linear("bf16"), whole[1]),
        ("torch._scaled_mm", "e4m3", scaled, whole[0]),
        ("torch._int_mm", "s8", integers, whole[0]),
        ("cuSPARSELt tuned", "bf16", lt("bf16", None), whole[1]),
        ("cuSPARSELt tuned", "e4m3", lt("e4m3", torch.bfloat16), whole[0]),
        ("cuSPARSELt tuned", "s8", lt("s8", torch.int32), whole[0]),
        ("cuSPARSELt tuned", "tf32", lt("tf32", None), 2 * whole[1]),
    ]
    for what, kind, make, size_bytes in listed:
        if only in kind:
            yield timed(Row(what, kind, size), make, size_bytes)
    if only in "tf32":
        torch.backends.cuda.matmul.allow_tf32 = True
        yield timed(
            Row("torch.matmul tf32", "tf32", size), linear("tf32"), 2 * whole[1]
        )


# ── reports ─────────────────────────────────────────────────────────────────


def table(rows: list[Row], about: dict[str, str]) -> str:
    """Markdown: one table for each size, the fastest first within a type."""
    lines = [", ".join(f"{name} {value}" for name, value in about.items()), ""]
    for size in dict.fromkeys(row.size for row in rows):
        lines += [
            "### " + " x ".join(map(str, size)) + " (m n k)",
            "",
            "| type | what | us | spread | TFLOP/s | than dense | sustained us | |",
            "|---|---|---:|---:|---:|---:|---:|---|",
        ]
        here = [r for r in rows if r.size == size and r.microseconds == r.microseconds]
        base = {r.type: r for r in here if r.what.startswith("torch.")}
        for r in sorted(here, key=lambda r: (r.type, r.microseconds)):
            than = base.get(r.type)
            ratio = f"{than.microseconds / r.microseconds:.2f}x" if than else ""
            kept = f"{r.sustained:.1f}" if r.sustained == r.sustained else ""
            lines.append(
                f"| {r.type} | {r.what} | {r.microseconds:.1f} | {r.spread:.1f} | "
                f"{r.rate:.0f} | {ratio} | {kept} | {r.note} |"
            )
        lines.append("")
    return "\n".join(lines)


def copy_bandwidth() -> float:
    """Bytes read and written by a large copy, in TB/s: the best of several."""
    best = 0.0
    for size in (1 << 26, 1 << 28):
        source = torch.randint(0, 1 << 30, (size,), dtype=torch.int32, device="cuda")
        target = torch.empty_like(source)
        copy, add = partial(target.copy_, source), partial(torch.add, source, 1)
        for call in (copy, partial(add, out=target)):
            found, _ = measure([call, call], 0.05)
            best = max(best, 8 * size / found / 1e6)
    return best


def calls() -> dict[str, float]:
    """Microseconds that the host needs for a call of a layer, batch 1."""
    layer = torch.nn.Linear(8192, 8192, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(1, 8192, device="cuda", dtype=torch.bfloat16)
    found = {}
    for name, module in (
        ("torch.nn.Linear", layer),
        ("SparseLinear", SparseLinear.from_linear(layer, prune=True)),
    ):
        times = []
        with torch.no_grad():
            for _ in range(60):
                torch.cuda.synchronize()
                begun = time.perf_counter()
                for _ in range(10):
                    module(x)
                times.append((time.perf_counter() - begun) * 1e5)
        found[name] = round(statistics.median(times), 1)
    return found


def compression() -> Iterator[Row]:
    """Pruning and compressing an 8192 x 8192 matrix, and the bytes per second."""
    m = k = 8192
    for of in ("e4m3", "s8", "bf16", "tf32"):

        def make(of: str = of) -> Call:
            weight = dense(of, m, k)
            return lambda: compress(weight)

        row = timed(Row("prune and compress", of, (m, 1, k)), make, m * k)
        moved = m * k * dtype(of).bits // 8 + int(np.prod(packed_shape(of, m, k)))
        row.note = f"{moved / row.microseconds / 1e6:.2f} TB/s"
        print(f"    {row.note}", flush=True)
        yield row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--tiles", action="store_true", help="measure every tile")
    parser.add_argument("--only", default="", help="types whose name has this")
    parser.add_argument("--sizes", default="", help="numbers of the sizes, 0 to 7")
    parser.add_argument("--seconds", type=float, default=500.0, help="stop after")
    options = parser.parse_args()
    begun = time.time()
    sizes = [s for i, s in enumerate(SIZES) if str(i) in (options.sizes or "01234567")]
    work: list[tuple[Kernel, tuple[int, int, int], str]] = []
    for size in sizes:
        for kernel, label in our_kernels():
            if options.only not in kernel.a:
                continue
            best = choose(kernel, *size)
            work.append((best, size, label))
            if options.tiles:
                near = (replace(best, tile=tile) for tile in tiles_for(kernel))
                near = sorted(near, key=lambda k, s=size: expected_time(k, *s))[:6]
                work += [(k, size, label) for k in near if k != best]
    compile_all(list(dict.fromkeys(kernel for kernel, _, _ in work)))
    print(f"compiled in {time.time() - begun:.0f} s", flush=True)
    about = versions()
    about["copy"] = f"{copy_bandwidth():.2f} TB/s"
    for name, time_of_call in calls().items():
        about[f"host time of a {name}"] = f"{time_of_call} us"
    print(about, flush=True)
    rows: list[Row] = list(compression()) if not options.only else []
    for size in sizes:
        rows += theirs(size, options.only)
        if options.only in "b1":
            rows.append(bits(size))
        for kernel, its, label in work:
            if its == size and time.time() - begun < options.seconds:
                rows.append(ours(kernel, size, label))
        options.out.mkdir(parents=True, exist_ok=True)
        report = {"about": about, "rows": [row.record() for row in rows]}
        text = json.dumps(report, indent=1, allow_nan=False) + "\n"
        (options.out / "gemm.json").write_text(text)
        (options.out / "gemm.md").write_text(table(rows, about) + "\n")
    print(f"{len(rows)} measurements in {time.time() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
