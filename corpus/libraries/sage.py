"""SageAttention 1: attention with queries and keys of 8 bits."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from sageattention import sageattn, sageattn_varlen

from corpus.bounds import of_softmax
from corpus.registry import case
from corpus.trial import Trial

QUERIES, KEYS = 128, 64
"""So many rows have one scale."""


def eight_bits(rows: torch.Tensor, many: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows as 8 bits hold them, and how far each number may be from that.

    The greatest number of a block is 127 steps.  What is between two steps may be
    rounded to either of them.
    """
    most = [
        part.abs().amax((-2, -1), keepdim=True).expand_as(part)
        for part in rows.split(many, -2)
    ]
    step = torch.cat(most, -2) / 127
    middle = (rows / step).abs().frac() - 0.5
    return (rows / step).round() * step, step * (middle.abs() < 2.0**-10)


def bound(q, k, v, smooth, causal):  # type: ignore[no-untyped-def]
    """How far the results may be from exact attention.

    Queries and keys, ``smooth`` without their mean, are rounded to 8 bits.  That moves
    each score by a known amount, and the shares as these allow.  The shares are rounded
    to f16, and products with values are added in f16, 16 keys at a time.
    """
    scale, half = q.shape[-1] ** -0.5, 2.0**-11
    near_q, of_q = eight_bits(q, QUERIES)
    near_k, of_k = eight_bits(smooth, KEYS)
    exact = q @ (k - k.mean(-2, keepdim=True)).mT
    moved = near_q @ near_k.mT - exact
    moved = moved - moved.mean(-1, keepdim=True)  # the same for all changes no share
    moved = moved.abs() + near_q.abs() @ of_k.mT + of_q @ near_k.abs().mT
    scores = exact * scale
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    shares = scores.softmax(-1)
    sums = k.shape[-2] / 16 + 2
    return (of_softmax(shares, moved * scale) + 2 * sums * half * shares) @ v.abs()


def without_mean(k: torch.Tensor, dim: int) -> torch.Tensor:
    """Keys in f16 without their mean, as the library computes it."""
    small = k.half()
    return (small - small.mean(dim, keepdim=True)).double()


def _compare(trial: Trial, size: int, causal: bool, length: int = 256) -> None:
    trial.compare(
        lambda q, k, v: sageattn(q, k, v, is_causal=causal),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
        *(trial.floats(1, 2, length, size, dtype=torch.float16) for _ in range(3)),
        gradients=False,
        bounds=lambda given, _: [bound(*given, without_mean(given[1], -2), causal)],
    )


@case()
def per_block(trial: Trial) -> None:
    _compare(trial, 64, False)


@case(small=True)
def per_block_causal(trial: Trial) -> None:
    _compare(trial, 64, True)


@case()
def per_block_ragged(trial: Trial) -> None:
    _compare(trial, 64, False, 130)


@case()
def per_block_causal_ragged(trial: Trial) -> None:
    _compare(trial, 64, True, 130)


@case()
def head_96(trial: Trial) -> None:
    _compare(trial, 96, False)


@case()
def head_96_causal(trial: Trial) -> None:
    _compare(trial, 96, True)


def _packed(trial: Trial, causal: bool) -> None:
    starts = torch.tensor([0, 64, 192], dtype=torch.int32)
    q, k, v = (trial.floats(192, 2, 64, dtype=torch.float16) for _ in range(3))
    made = trial.call(
        lambda: sageattn_varlen(
            q, k.clone(), v, starts, starts, 128, 128, is_causal=causal
        )
    )
    for first, last in ((0, 64), (64, 192)):
        part = [each[first:last].double().transpose(0, 1) for each in (q, k, v)]
        want = F.scaled_dot_product_attention(*part, is_causal=causal)
        smooth = without_mean(k, 0)[first:last].transpose(0, 1)
        moved = bound(*part, smooth, causal).transpose(0, 1)
        trial.judge(made[first:last], want.transpose(0, 1), bound=moved)


@case()
def packed(trial: Trial) -> None:
    _packed(trial, False)


@case()
def packed_causal(trial: Trial) -> None:
    _packed(trial, True)
