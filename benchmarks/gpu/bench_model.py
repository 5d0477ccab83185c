"""Tokens per second of a whole decoder, with different linears.

A decoder with the shapes of an 8-billion-parameter model and random weights: dense
bf16, dense fp8, cuSPARSELt and this project's 2:4 layers (bf16, fp8, and 4-bit with
bf16 or fp8 activations), all of them compiled by torch.compile, each step one CUDA
graph.  The head is dense bf16 in all of them.

    python benchmarks/gpu/bench_model.py [--layers 4] [--out FOLDER] [--only dense]

Only some blocks are made and measured; the others would take the same time each:

    time = (embedding, norm, head) + 32 / layers * (time of the blocks)

Decoding: one token for each sequence, which attends to ``--context`` tokens.  Prefill:
one sequence of 2048 tokens; only its last token goes through the head.  Writes
model.json and model.md into the folder; docs/plots/make.py draws them.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from measuring import Call, captured, compile_all, in_turn, versions
from torch import Tensor, nn

from fragmenta.hopper.kernels.choosing import choose
from fragmenta.hopper.kernels.config import Kernel, Tile
from fragmenta.torch import compress, linears

BATCHES = (1, 4, 16, 64, 128, 256)
PREFILL = 2048
_FP8 = torch.float8_e4m3fn
_LARGEST = 448.0
_LEAST_ROWS = 16  # of torch._scaled_mm


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder; those of an 8-billion-parameter model."""

    hidden: int = 4096
    layers: int = 32
    heads: int = 32
    kv_heads: int = 8
    head: int = 128
    mlp: int = 14336
    vocabulary: int = 128256
    context: int = 1024

    @property
    def linears(self) -> dict[str, tuple[int, int]]:
        """Out and in of the linears of a block; q, k, v are one, gate and up, too."""
        wide = self.heads * self.head
        return {
            "qkv": (wide + 2 * self.kv_heads * self.head, self.hidden),
            "o": (self.hidden, wide),
            "gate_up": (2 * self.mlp, self.hidden),
            "down": (self.hidden, self.mlp),
        }


# ── the model ───────────────────────────────────────────────────────────────


class Block(nn.Module):
    """Attention and a gated MLP, each after a norm."""

    def __init__(self, shape: Shape, **options: Any) -> None:
        super().__init__()
        self.shape = shape
        for name, (out, depth) in shape.linears.items():
            setattr(self, name, nn.Linear(depth, out, bias=False, **options))
        self.norms = nn.Parameter(torch.ones(2, shape.hidden, **options))

    def forward(
        self, x: Tensor, at: Tensor, turn: Tensor, keys: Tensor, values: Tensor
    ) -> Tensor:
        """x is (batch, tokens, hidden); ``turn`` has cos and sin of the positions."""
        x = x + self.o(self.attend(_norm(x, self.norms[0]), at, turn, keys, values))
        gate, up = self.gate_up(_norm(x, self.norms[1])).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)

    def attend(
        self, x: Tensor, at: Tensor, turn: Tensor, keys: Tensor, values: Tensor
    ) -> Tensor:
        """One token: the last of the context.  Several: the first ones of it."""
        shape, (batch, tokens, _) = self.shape, x.shape
        parts = self.qkv(x).view(batch, tokens, -1, shape.head).transpose(1, 2)
        q, k, v = parts.split((shape.heads, shape.kv_heads, shape.kv_heads), 1)
        q, k = _turned(q, turn), _turned(k, turn)
        keys[:, :, at], values[:, :, at] = k, v
        if tokens == 1:
            # The heads that share keys become the rows of one product.
            q = q.reshape(batch, shape.kv_heads, -1, shape.head)
            y = F.scaled_dot_product_attention(q, keys, values)
            return y.reshape(batch, 1, -1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return y.transpose(1, 2).reshape(batch, tokens, -1)


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, weight.shape, weight, 1e-5)


def _turned(x: Tensor, turn: Tensor) -> Tensor:
    """x turned by the angles of its positions."""
    low, high = x.chunk(2, -1)
    return x * turn[0] + torch.cat((-high, low), -1) * turn[1]


class Decoder(nn.Module):
    """Embedding, blocks, norm and head."""

    def __init__(self, shape: Shape, layers: int, **options: Any) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.hidden, **options)
        self.blocks = nn.ModuleList(Block(shape, **options) for _ in range(layers))
        self.norm = nn.Parameter(torch.ones(shape.hidden, **options))
        self.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False, **options)

    def positions(self, first: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Some positions, and their cos and sin, (2, tokens, head)."""
        half = torch.arange(0, self.shape.head, 2, device=self.norm.device)
        rates = 500_000.0 ** (-half.float() / self.shape.head)
        at = torch.arange(first, first + tokens, device=self.norm.device)
        angles = torch.outer(at.float(), rates).repeat(1, 2)
        return at, torch.stack((angles.cos(), angles.sin())).to(self.norm.dtype)

    def cache(self, batch: int, context: int) -> list[tuple[Tensor, Tensor]]:
        """Random keys and values of each block."""
        size = (batch, self.shape.kv_heads, context, self.shape.head)
        options = {"device": self.norm.device, "dtype": self.norm.dtype}
        return [
            (torch.randn(size, **options), torch.randn(size, **options))
            for _ in self.blocks
        ]

    def forward(
        self,
        tokens: Tensor,
        positions: tuple[Tensor, Tensor],
        cache: list[tuple[Tensor, Tensor]],
    ) -> Tensor:
        """Logits of the last token of each sequence."""
        x = self.embedding(tokens)
        for block, (keys, values) in zip(self.blocks, cache, strict=True):
            x = block(x, *positions, keys, values)
        return self.rest(x)

    def rest(self, x: Tensor) -> Tensor:
        return self.head(_norm(x[:, -1], self.norm))


# ── linears ─────────────────────────────────────────────────────────────────


class Fp8Linear(nn.Module):
    """torch._scaled_mm with a scale for each output and for each row of x.

    With ``per="tensor"`` one scale each, and that of x is known before.
    """

    def __init__(self, linear: nn.Linear, per: str) -> None:
        super().__init__()
        self.rows = per == "row"
        weight = linear.weight.detach().float()
        most = weight.abs().amax(1 if self.rows else None, keepdim=self.rows)
        scale = most.clamp_min(1e-12) / _LARGEST
        self.register_buffer("weight", (weight / scale).to(_FP8))
        self.register_buffer("scale", scale.t().contiguous() if self.rows else scale)
        self.register_buffer("static", torch.full_like(scale.flatten()[0], 0.02))

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        count = flat.shape[0]
        if count < _LEAST_ROWS:
            flat = F.pad(flat, (0, 0, 0, _LEAST_ROWS - count))
        scale = self.static
        if self.rows:
            most = flat.abs().amax(-1, keepdim=True).float()
            scale = most.clamp_min(1e-12) / _LARGEST
        values = (flat.float() / scale).clamp(-_LARGEST, _LARGEST).to(_FP8)
        y = scaled_mm(values, self.weight, scale, self.scale, x.dtype)
        return y[:count].reshape(*x.shape[:-1], -1)


def scaled_mm(
    x: Tensor, weight: Tensor, scale_x: Tensor, scale: Tensor, out: torch.dtype
) -> Tensor:
    if not x.is_cuda:  # the same, for tests
        return ((x.float() @ weight.float().t()) * scale_x * scale).to(out)
    return torch._scaled_mm(
        x, weight.t(), scale_x, scale, out_dtype=out, use_fast_accum=True
    )


def replaced(model: nn.Module, make: Callable[[nn.Linear], nn.Module]) -> nn.Module:
    """Every linear of the blocks replaced."""
    for block in model.blocks:
        for name in model.shape.linears:
            setattr(block, name, make(getattr(block, name)))
    return model


class SemiStructured(nn.Module):
    """PyTorch's own 2:4 tensor: cuSPARSELt, where PyTorch has it.

    It has products of two dimensions only.  The result has to be stored by rows: else
    attention, which needs that, falls back to a slow way.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        pruned = compress(linear.weight.detach()).to_dense()
        torch.sparse.SparseSemiStructuredTensor._FUSE_TRANSPOSE = True
        found = torch.sparse.to_sparse_semi_structured(pruned)
        self.weight = nn.Parameter(found, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.linear(x.reshape(-1, x.shape[-1]), self.weight)
        return y.reshape(*x.shape[:-1], -1)


def ours(model: nn.Module, **options: Any) -> nn.Module:
    return linears(model, prune=True, skip="head", **options)


VARIANTS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "dense bf16": lambda model: model,
    "dense fp8, scale per row": lambda m: replaced(m, partial(Fp8Linear, per="row")),
    "dense fp8, one scale": lambda m: replaced(m, partial(Fp8Linear, per="tensor")),
    "cuSPARSELt 2:4 bf16": lambda model: replaced(model, SemiStructured),
    "fragmenta 2:4 bf16": ours,
    "fragmenta 2:4 fp8": partial(ours, quantize="fp8"),
    "fragmenta 2:4 int4": partial(ours, quantize="int4", fallback="kept"),
    "fragmenta 2:4 int4 x fp8": partial(ours, quantize="int4-fp8", fallback="kept"),
    "fragmenta 2:4 int4 x fp8, made": partial(ours, quantize="int4-fp8"),
}
BASE = next(iter(VARIANTS))


def weight_bytes(module: nn.Module) -> int:
    """The bytes of all parameters and buffers, as they are stored."""
    total = 0
    for each in (*module.parameters(), *module.buffers()):
        stored = getattr(each, "packed", None)
        parts = [each] if stored is None else [stored, getattr(each, "meta", None)]
        total += sum(x.numel() * x.element_size() for x in parts if x is not None)
    return total


# ── measurements ────────────────────────────────────────────────────────────


@dataclass
class Row:
    """One measurement."""

    what: str
    phase: str
    """decode or prefill."""
    batch: int
    tokens: int
    """Tokens of each sequence in a call."""
    layers: int
    """Blocks that were measured."""
    of_layers: int
    """Blocks of the model."""
    microseconds: float = 0.0
    """Of a call with the blocks that were measured; 0 if it failed."""
    rest: float = 0.0
    """Of these: embedding, norm and head."""
    weights: int = 0
    """Bytes of all weights of the model."""
    cache: int = 0
    """Bytes of all keys and values."""
    note: str = ""

    @property
    def total(self) -> float:
        """Microseconds of a call of the whole model; 0 if it failed."""
        if not self.microseconds:
            return 0.0
        blocks = (self.microseconds - self.rest) * self.of_layers / self.layers
        return self.rest + blocks

    @property
    def rate(self) -> float:
        """Tokens per second of the whole model."""
        return self.batch * self.tokens / self.total * 1e6 if self.microseconds else 0.0

    def record(self) -> dict[str, object]:
        return asdict(self) | {"total": self.total, "rate": self.rate}


def measure(call: Call, seconds: float) -> float:
    """Microseconds of a call: the median of replays, without the first two."""
    (times,) = in_turn([captured([call], times=3)], seconds, most=500)
    return statistics.median(times[2:])


def measure_on_cpu(call: Call, seconds: float) -> float:
    """The same without a GPU: for tests."""
    begun = time.perf_counter()
    call()
    return (time.perf_counter() - begun) * 1e6


@dataclass
class Bench:
    """What is measured, and how."""

    shape: Shape
    layers: int
    device: str = "cuda"
    compiled: bool = True
    seconds: float = 0.15
    """For one measurement."""
    until: float = float("inf")
    """When to begin no further measurement."""

    def model(self, what: str, compiled: bool) -> Decoder:
        """A model with random weights and the linears of a variant."""
        options = {"device": self.device, "dtype": torch.bfloat16}
        with torch.no_grad():
            model = VARIANTS[what](Decoder(self.shape, self.layers, **options)).eval()
        if compiled:
            for block in model.blocks:  # one after the other: all share the code
                block.compile()
        return model

    def steps(self, batches: list[int], prefill: int) -> Iterator[tuple[str, int, int]]:
        """Phase, batch and tokens of each measurement."""
        yield from (("decode", batch, 1) for batch in batches)
        if prefill:
            yield "prefill", 1, prefill

    def rows(
        self, what: str, batches: list[int], prefill: int, rests: dict[Any, float]
    ) -> Iterator[Row]:
        """Measure a variant; ``rests`` keeps what is the same for all of them."""
        model, note = self.model(what, self.compiled), ""
        timed = measure if self.device == "cuda" else measure_on_cpu
        for phase, batch, tokens in self.steps(batches, prefill):
            if time.time() > self.until:
                return
            row = Row(what, phase, batch, tokens, self.layers, self.shape.layers)
            self.sizes(row, model)
            for _ in range(2):
                try:
                    call, rest = self.calls(model, row)
                    if (phase, batch) not in rests:
                        rests[phase, batch] = timed(rest, self.seconds)
                    row.rest = rests[phase, batch]
                    row.microseconds = timed(call, self.seconds)
                    row.note = note
                    break
                except Exception as why:  # a library may not have the operation at all
                    told = f"{type(why).__name__}: {str(why).splitlines()[0][:100]}"
                    row.note = told
                    if note or not self.compiled:
                        break
                    note = f"not compiled ({told})"
                    model = None
                    self.clean()
                    model = self.model(what, False)
            yield row
            self.clean()

    def calls(self, model: Decoder, row: Row) -> tuple[Call, ...]:
        """The whole call, and the call without its blocks."""
        context = self.shape.context if row.tokens == 1 else row.tokens
        cache = model.cache(row.batch, context)
        size = (row.batch, row.tokens)
        tokens = torch.randint(self.shape.vocabulary, size, device=self.device)
        positions = model.positions(context - row.tokens, row.tokens)

        def whole() -> object:
            with torch.no_grad():
                return model(tokens, positions, cache)

        def rest() -> object:
            with torch.no_grad():
                return model.rest(model.embedding(tokens))

        return whole, rest

    def sizes(self, row: Row, model: Decoder) -> None:
        blocks = weight_bytes(model.blocks)
        ratio = self.shape.layers / self.layers
        row.weights = round(weight_bytes(model) - blocks + ratio * blocks)
        context = self.shape.context if row.tokens == 1 else row.tokens
        of_token = 2 * self.shape.kv_heads * self.shape.head * 2
        row.cache = row.batch * context * of_token * self.shape.layers

    def clean(self) -> None:
        gc.collect()
        if self.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()


# ── reports ─────────────────────────────────────────────────────────────────


def table(rows: list[Row], about: dict[str, str], shape: Shape) -> str:
    """Markdown: tokens per second by variant and batch, and how many times the base."""
    lines = [", ".join(f"{name} {value}" for name, value in about.items()), ""]
    measured = rows[0].layers if rows else 0
    lines += [
        f"Tokens per second of {shape.layers} layers, {measured} of them measured.",
        f"Embedding, norm and head are counted once. Context {shape.context}.",
        "",
    ]
    for phase in ("decode", "prefill"):
        here = [row for row in rows if row.phase == phase]
        columns = sorted({(row.batch, row.tokens) for row in here})
        if not columns:
            continue
        titles = [
            f"batch {b}" if phase == "decode" else f"{t} tokens" for b, t in columns
        ]
        lines += [f"### {phase}", "", f"| linears | {' | '.join(titles)} | weights |"]
        lines.append("|---" + "|---:" * (len(columns) + 1) + "|")
        for what in dict.fromkeys(row.what for row in here):
            found = {(r.batch, r.tokens): r for r in here if r.what == what}
            cells = [_cell(found.get(each), here) for each in columns]
            size = next(iter(found.values())).weights / 1e9
            lines.append(f"| {what} | {' | '.join(cells)} | {size:.1f} GB |")
        lines.append("")
        notes = dict.fromkeys(f"{r.what}: {r.note}" for r in here if r.note)
        lines += [*notes, ""] if notes else []
    return "\n".join(lines)


def _cell(row: Row | None, rows: list[Row]) -> str:
    if row is None or not row.microseconds:
        return "-"
    base = [
        r for r in rows if (r.what, r.batch, r.tokens) == (BASE, row.batch, row.tokens)
    ]
    if not base or not base[0].rate:
        return f"{row.rate:,.0f}"
    return f"{row.rate:,.0f} ({row.rate / base[0].rate:.2f}x)"


def write(folder: Path, rows: list[Row], about: dict[str, str], shape: Shape) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    report = {
        "about": about,
        "shape": asdict(shape),
        "rows": [row.record() for row in rows],
    }
    text = json.dumps(report, indent=1, allow_nan=False) + "\n"
    (folder / "model.json").write_text(text, encoding="utf-8")
    (folder / "model.md").write_text(table(rows, about, shape) + "\n", encoding="utf-8")


def compile_kernels(shape: Shape, counts: list[int]) -> None:
    """Compile this project's kernels; what is missing is compiled when it is called."""
    base = Kernel("bf16", out="bf16", tile=Tile(64, 64), transposed=True)
    kinds = [base, replace(base, a="e4m3", b="e4m3", scaled=True)]
    kinds.append(replace(base, scaled=True))  # wide weights of 4-bit layers
    for b in ("bf16", "e4m3"):
        four = replace(base, a="s4", b=b, group=128)
        kinds.append(replace(four, scaled=b == "e4m3"))
    chosen = {
        choose(kind, m, n, k)
        for kind in kinds
        for m, k in shape.linears.values()
        for n in counts
    }
    compile_all(chosen)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--layers", type=int, default=4, help="blocks to measure")
    parser.add_argument("--context", type=int, default=1024, help="tokens in the cache")
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)))
    parser.add_argument("--prefill", type=int, default=PREFILL, help="0: none")
    parser.add_argument("--only", default="", help="variants whose name has this")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--seconds", type=float, default=230.0, help="stop after")
    options = parser.parse_args()
    begun = time.time()
    torch._dynamo.config.recompile_limit = 64
    shape = Shape(context=options.context)
    batches = [int(each) for each in options.batches.split(",") if each]
    try:
        compile_kernels(shape, [*batches, options.prefill or 1])
    except Exception as why:  # they are then compiled when they are called
        print(f"kernels were not compiled before: {why}", flush=True)
    print(f"kernels compiled in {time.time() - begun:.0f} s", flush=True)
    about, rows, rests = versions(), [], {}
    bench = Bench(
        shape,
        options.layers,
        compiled=not options.eager,
        until=begun + options.seconds,
    )
    for what in VARIANTS:
        if options.only not in what:
            continue
        try:
            for row in bench.rows(what, batches, options.prefill, rests):
                rows.append(row)
                print(
                    f"{time.time() - begun:5.0f} s  {row.what:26} {row.phase:8}"
                    f"{row.batch:5} x {row.tokens:<5}{row.total / 1e3:9.3f} ms "
                    f"{row.rate:12,.0f} tokens/s {row.note}",
                    flush=True,
                )
        except Exception as why:
            print(f"{what}: {type(why).__name__}: {why}", flush=True)
        torch.compiler.reset()
        write(options.out, rows, about, shape)
    print(f"{len(rows)} measurements in {time.time() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
