"""Conch: kernels for inference and vision."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from conch.ops.activation.gelu_tanh_and_mul import gelu_tanh_and_mul
from conch.ops.activation.silu_and_mul import silu_and_mul
from conch.ops.attention.paged_attention import paged_attention
from conch.ops.attention.varlen_attention import varlen_attention
from conch.ops.embedding.rotary_embedding import rotary_embedding
from conch.ops.normalization.gemma_rms_norm import gemma_rms_norm
from conch.ops.normalization.rms_norm import fused_add_rms_norm, rms_norm
from conch.ops.quantization.fp8 import scaled_fp8_quant
from conch.ops.quantization.gemm import mixed_precision_gemm, scaled_gemm
from conch.ops.quantization.int8 import scaled_int8_quant
from conch.ops.vision.bev_pool import bev_pool, bev_pool_backward
from conch.ops.vision.nms import nms
from conch.ops.vllm.copy_blocks import copy_blocks
from conch.ops.vllm.reshape_and_cache import reshape_and_cache

from corpus import references
from corpus.registry import case
from corpus.trial import Trial

HALF = torch.float16


def _halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    one, other = x.chunk(2, dim=-1)
    return one, other


@case(small=True)
def silu_and_mul_(trial: Trial) -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        return F.silu(_halves(x)[0]) * _halves(x)[1]

    trial.compare(silu_and_mul, reference, trial.floats(6, 200), gradients=False)


@case()
def gelu_tanh_and_mul_(trial: Trial) -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(_halves(x)[0], approximate="tanh") * _halves(x)[1]

    trial.compare(gelu_tanh_and_mul, reference, trial.floats(6, 200), gradients=False)


@case()
def rms_norms(trial: Trial) -> None:
    x, r, w = trial.floats(6, 200), trial.floats(6, 200), trial.floats(200)
    norm = references.rms_norm
    trial.compare(
        lambda x, w: rms_norm(x, w, 1e-6),
        lambda x, w: norm(x, w, 1e-6),
        x,
        w,
        gradients=False,
    )
    trial.compare(
        lambda x, r, w: fused_add_rms_norm(x, r, w, 1e-6),
        lambda x, r, w: (norm(x + r, w, 1e-6), x + r),
        x,
        r,
        w,
        gradients=False,
    )
    trial.compare(
        lambda x, w: gemma_rms_norm(x, w, 1e-6),
        lambda x, w: norm(x, w + 1, 1e-6),
        x,
        w,
        gradients=False,
    )


@case()
def rotary(trial: Trial) -> None:
    angle = trial.uniform(20, 16, high=6.0)
    place = trial.whole(7, high=20)
    table = torch.cat([angle.cos(), angle.sin()], -1)

    def reference(q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, ...]:
        turn = angle.double()[place].repeat(1, 2)[:, None]
        return tuple(
            references.rotated(x.unflatten(-1, (-1, 32)), turn).flatten(1)
            for x in (q, k)
        )

    trial.compare(
        lambda q, k: rotary_embedding(place, q, k, 32, table),
        reference,
        trial.floats(7, 128),
        trial.floats(7, 64),
        gradients=False,
    )


@case()
def quantized(trial: Trial) -> None:
    given, scale = trial.floats(6, 200), torch.tensor([0.02])
    made = trial.call(lambda: scaled_int8_quant(given, scale))[0]
    # It cuts the fraction off.
    trial.judge(made, (given * (1 / scale)).clamp(-128, 127).to(torch.int8))
    made = trial.call(lambda: scaled_fp8_quant(given, scale))[0]
    want = (given.double() / scale.double()).clamp(-448, 448)
    trial.judge(made.double(), want, 0.07)


def _cached(trial: Trial, heads: int) -> tuple[torch.Tensor, ...]:
    """Keys and values in blocks, and where each sequence has its blocks."""
    shape = 8, 16, heads, 64
    table = torch.tensor([[3, 0, 5], [1, 7, 2]], dtype=torch.int32)
    lengths = torch.tensor([37, 20], dtype=torch.int32)
    return (
        trial.floats(*shape, dtype=HALF),
        trial.floats(*shape, dtype=HALF),
        table,
        lengths,
    )


def _gathered(cache: torch.Tensor, table: torch.Tensor, length: int) -> torch.Tensor:
    return cache[table.long()].flatten(0, 1)[:length].double()


@case()
def paged(trial: Trial) -> None:
    keys, values, table, lengths = _cached(trial, 2)
    q = trial.floats(2, 4, 64, dtype=HALF)
    made = trial.call(lambda: paged_attention(q, keys, values, table, lengths))
    for i, length in enumerate(lengths.tolist()):
        k, v = (_gathered(each, table[i], length) for each in (keys, values))
        k, v = (each.repeat_interleave(2, 1) for each in (k, v))
        shares = (torch.einsum("hd,thd->ht", q[i].double(), k) / 8).softmax(-1)
        trial.judge(made[i], torch.einsum("ht,thd->hd", shares, v))


@case()
def varlen(trial: Trial) -> None:
    keys, values, table, lengths = _cached(trial, 2)
    q = trial.floats(9, 4, 64, dtype=HALF)
    starts = torch.tensor([0, 4, 9], dtype=torch.int32)
    made = trial.call(
        lambda: varlen_attention(
            q, keys, values, starts, 5, lengths, 37, table, causal=True
        )
    )
    for i, length in enumerate(lengths.tolist()):
        first, last = int(starts[i]), int(starts[i + 1])
        k, v = (_gathered(each, table[i], length) for each in (keys, values))
        k, v = (each.repeat_interleave(2, 1) for each in (k, v))
        scores = torch.einsum("qhd,thd->hqt", q[first:last].double(), k) / 8
        later = torch.arange(length) > torch.arange(last - first)[:, None]
        shares = scores.masked_fill(later, float("-inf")).softmax(-1)
        trial.judge(made[first:last], torch.einsum("hqt,thd->qhd", shares, v))


@case()
def cache_blocks(trial: Trial) -> None:
    keys, values = trial.floats(8, 96), trial.floats(8, 96)
    pairs = torch.tensor([[0, 4], [1, 6]])
    want = [each.clone() for each in (keys, values)]
    for each in want:
        each[pairs[:, 1]] = each[pairs[:, 0]]
    trial.call(lambda: copy_blocks([keys], [values], pairs))
    trial.judge(keys, want[0])
    trial.judge(values, want[1])


@case()
def cache_rows(trial: Trial) -> None:
    keys, values = (
        trial.floats(7, 2, 32, dtype=HALF),
        trial.floats(7, 2, 32, dtype=HALF),
    )
    caches = [torch.zeros(4, 8, 2, 32, dtype=HALF) for _ in range(2)]
    slots = torch.tensor([3, 9, 31, 0, 16, 17, 18])
    trial.call(lambda: reshape_and_cache(keys, values, *caches, slots))
    for cache, rows in zip(caches, (keys, values), strict=True):
        want = torch.zeros(32, 2, 32, dtype=HALF)
        want[slots] = rows
        trial.judge(cache.flatten(0, 1), want)


@case()
def scaled_product(trial: Trial) -> None:
    _scaled(trial, 128)


@case()
def scaled_product_ragged(trial: Trial) -> None:
    _scaled(trial, 48)


def _scaled(trial: Trial, columns: int) -> None:
    a, b = (
        trial.whole(*s, low=-127, high=128).to(torch.int8)
        for s in ((40, 64), (64, columns))
    )
    one, two = trial.uniform(40, 1), trial.uniform(columns, 1)
    made = trial.call(lambda: scaled_gemm(a, b, one, two, torch.float32))
    trial.judge(made, (a.double() @ b.double()) * one.double() * two.double().T, 1e-5)


@case()
def mixed_product(trial: Trial) -> None:
    x, codes = trial.floats(40, 128, dtype=HALF), trial.whole(128, 128, high=16)
    packed = torch.zeros(16, 128, dtype=torch.int32)
    for i in range(8):
        packed |= (codes.unflatten(0, (16, 8))[:, i] << 4 * i).to(torch.int32)
    scales = trial.uniform(1, 128, dtype=HALF)
    made = trial.call(lambda: mixed_precision_gemm(x, packed, scales, None, 4, 8, 128))
    weights = (codes.double() - 8) * scales.double()
    trial.judge(made, x.double() @ weights, 2e-2)


@case()
def boxes(trial: Trial) -> None:
    corner, size = (
        trial.uniform(40, 2, high=50.0),
        trial.uniform(40, 2, low=5, high=30.0),
    )
    given, scores = torch.cat([corner, corner + size], 1), trial.uniform(40)
    made = trial.call(lambda: nms(given, scores, 0.4))
    kept: list[int] = []
    area = size.prod(1)
    for i in scores.argsort(descending=True).tolist():
        low = torch.maximum(given[i, :2], given[kept, :2])
        high = torch.minimum(given[i, 2:], given[kept, 2:])
        both = (high - low).clamp(min=0).prod(-1)
        if not (both / (area[i] + area[kept] - both) > 0.4).any():
            kept.append(i)
    trial.judge(made, torch.tensor(kept))


@case()
def pooling(trial: Trial) -> None:
    features = trial.floats(10, 16)
    lengths, starts = torch.tensor([3, 1, 6]).int(), torch.tensor([0, 3, 4]).int()
    cell = torch.tensor([[1, 0, 0, 0], [0, 2, 0, 0], [3, 1, 0, 0]]).int()
    places = cell.repeat_interleave(lengths.long(), 0)
    made = trial.call(lambda: bev_pool(features, places, starts, lengths, 1, 1, 4, 3))
    want = torch.zeros(1, 1, 4, 3, 16).double()
    for (x, y, _, _), start, length in zip(cell.tolist(), starts, lengths, strict=True):
        want[0, 0, x, y] = features[start : start + length].double().sum(0)
    trial.judge(made, want)
    change = trial.floats(1, 1, 4, 3, 16)
    back = trial.call(lambda: bev_pool_backward(change, places, starts, lengths))
    trial.judge(back, change[0, 0, places[:, 0].long(), places[:, 1].long()])
