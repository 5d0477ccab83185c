"""Lightning Attention 2: linear attention with a decay for each head."""

from __future__ import annotations

import torch
from lightning_attn.ops.triton import lightning_attn2, lightning_attn2_no_decay
from lightning_attn.ops.triton.srmsnorm import SimpleRMSNorm

from corpus.registry import case
from corpus.trial import Trial

WIDE = 2e-2
"""For sums of products in float16."""


def attention(q, k, v, slopes):  # type: ignore[no-untyped-def]
    """Products of queries and keys, weaker the farther apart they are."""
    place = torch.arange(q.shape[2])
    apart = place[:, None] - place
    weight = torch.exp(-slopes * apart).masked_fill(apart < 0, 0)
    return (q @ k.mT * weight) @ v


@case()
def with_decay(trial: Trial) -> None:
    slopes = torch.tensor([0.1, 0.3]).view(2, 1, 1)
    trial.compare(
        lambda q, k, v: lightning_attn2(q, k, v, slopes),
        lambda q, k, v: attention(q, k, v, slopes.double()),
        *(trial.floats(1, 2, 100, 32, dtype=torch.float16) for _ in range(3)),
        tolerance=WIDE,
    )


@case()
def without_decay(trial: Trial) -> None:
    trial.compare(
        lightning_attn2_no_decay,
        lambda q, k, v: attention(q, k, v, torch.zeros(2, 1, 1).double()),
        *(trial.floats(1, 2, 100, 32, dtype=torch.float16) for _ in range(3)),
        tolerance=WIDE,
    )


@case(small=True)
def simple_rms_norm(trial: Trial) -> None:
    trial.compare(
        SimpleRMSNorm(96),
        lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6),
        trial.floats(6, 96),
        tolerance=1e-4,
    )
