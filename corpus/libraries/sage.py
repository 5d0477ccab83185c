"""SageAttention 1: attention with queries and keys of 8 bits."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from sageattention import sageattn, sageattn_varlen

from corpus.registry import case
from corpus.trial import Trial

EIGHT_BITS = 0.1
"""Queries and keys are rounded to 8 bits before their product."""


def _compare(trial: Trial, size: int, causal: bool, length: int = 256) -> None:
    trial.compare(
        lambda q, k, v: sageattn(q, k, v, is_causal=causal),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
        *(trial.floats(1, 2, length, size, dtype=torch.float16) for _ in range(3)),
        gradients=False,
        tolerance=EIGHT_BITS,
    )


@case()
def per_block(trial: Trial) -> None:
    _compare(trial, 64, False)


@case()
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
        trial.judge(made[first:last], want.transpose(0, 1), EIGHT_BITS)


@case()
def packed(trial: Trial) -> None:
    _packed(trial, False)


@case()
def packed_causal(trial: Trial) -> None:
    _packed(trial, True)
