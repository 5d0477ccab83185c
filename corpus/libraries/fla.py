"""flash-linear-attention: attention with a state instead of a cache."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.nn.functional as F

# Where TileLang is installed, it would take kernels of TileLang in place of Triton's.
os.environ["FLA_TILELANG"] = "0"

from fla.modules import activations, token_shift
from fla.modules.causal_conv1d import causal_conv1d
from fla.modules.fused_cross_entropy.ops import cross_entropy_loss
from fla.modules.norm import fused_norm_gate, l2norm, layernorm
from fla.modules.rotary.ops import rotary_embedding
from fla.ops.attn import parallel as attn
from fla.ops.delta_rule import fused_recurrent_delta_rule
from fla.ops.gated_delta_rule import (
    chunk_gated_delta_rule,
    fused_recurrent_gated_delta_rule,
)
from fla.ops.gla import chunk_gla, fused_recurrent_gla
from fla.ops.hgrn import chunk_hgrn, fused_recurrent_hgrn
from fla.ops.kda import fused_recurrent_kda
from fla.ops.linear_attn import chunk_linear_attn, fused_chunk_linear_attn
from fla.ops.retention import chunk_retention, parallel_retention
from fla.ops.rwkv6 import fused_recurrent_rwkv6
from fla.ops.simple_gla import chunk_simple_gla, parallel_simple_gla
from fla.ops.utils.cumsum import chunk_global_cumsum, chunk_local_cumsum
from fla.ops.utils.matmul import matmul
from fla.ops.utils.pooling import mean_pooling
from fla.ops.utils.softmax import softmax_bwd, softmax_fwd
from fla.ops.utils.solve_tril import solve_tril

from corpus.references import layer_norm, rms_norm, rotated
from corpus.registry import case
from corpus.trial import TF32, Trial

TIME, HEADS, SIZE = 70, 2, 32
"""Two chunks of 64, the second one not full."""
WIDE = 1.2e-2
"""For results after several products in tf32."""


def recurrence(q, k, v, decay=None, beta=None, bonus=None, scale=None):  # type: ignore[no-untyped-def]
    """Linear attention, one step after the other.

    The state is a matrix.  Each step multiplies it by ``exp(decay)``, takes what it
    already has of the key (``beta``: the delta rule), and adds key times value.
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    state = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    rows = []
    for t in range(q.shape[1]):
        key, value = k[:, t], v[:, t]
        if bonus is not None:  # the step itself has a weight of its own
            now = state + bonus[..., None] * key[..., None] * value[:, :, None]
            rows.append(torch.einsum("bhk,bhkv->bhv", q[:, t] * scale, now))
        if decay is not None:
            state = state * decay[:, t].exp()[..., None]
        if beta is not None:
            value = value - torch.einsum("bhk,bhkv->bhv", key, state)
            value = value * beta[:, t, :, None]
        state = state + key[..., None] * value[:, :, None]
        if bonus is None:
            rows.append(torch.einsum("bhk,bhkv->bhv", q[:, t] * scale, state))
    return torch.stack(rows, 1)


def heads(trial: Trial, size: int = SIZE, **how: Any) -> torch.Tensor:
    """A tensor of one batch, with time, heads and elements."""
    return trial.floats(1, TIME, HEADS, size, **how)


def qkv(trial: Trial) -> tuple[torch.Tensor, ...]:
    """Queries, keys of length 1, values."""
    return heads(trial), F.normalize(heads(trial), dim=-1), heads(trial)


def attention(q, k, v, bias=0.0):  # type: ignore[no-untyped-def]
    """Causal attention with time before heads."""
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5 + bias
    later = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool).triu(1)
    shares = scores.masked_fill(later, float("-inf")).softmax(-1)
    return torch.einsum("bhij,bjhd->bihd", shares, v)


def halves(log: torch.Tensor) -> torch.Tensor:
    """A decay for each head as one for each row of the state."""
    return log[..., None]


# ── linear attention ────────────────────────────────────────────────────────


@case()
def linear_attention(trial: Trial) -> None:
    trial.compare(
        lambda q, k, v: chunk_linear_attn(q, k, v, normalize=False)[0],
        recurrence,
        *qkv(trial),
        tolerance=TF32,
    )


@case()
def linear_attention_fused(trial: Trial) -> None:
    trial.compare(
        lambda q, k, v: fused_chunk_linear_attn(q, k, v, normalize=False)[0],
        recurrence,
        *qkv(trial),
        tolerance=TF32,
    )


def _retained(q, k, v):  # type: ignore[no-untyped-def]
    log = torch.log(1 - torch.exp2(-5.0 - torch.arange(HEADS).double()))
    return recurrence(q, k, v, halves(log.expand(1, TIME, HEADS)))


@case()
def retention(trial: Trial) -> None:
    trial.compare(
        lambda q, k, v: chunk_retention(q, k, v)[0],
        _retained,
        *qkv(trial),
        tolerance=TF32,
    )


@case()
def retention_parallel(trial: Trial) -> None:
    trial.compare(
        lambda q, k, v: parallel_retention(q, k, v)[0],
        _retained,
        *qkv(trial),
        tolerance=TF32,
    )


@case()
def simple_gla(trial: Trial) -> None:
    trial.compare(
        lambda q, k, v, g: chunk_simple_gla(q, k, v, g)[0],
        lambda q, k, v, g: recurrence(q, k, v, halves(g)),
        *qkv(trial),
        F.logsigmoid(trial.floats(1, TIME, HEADS)),
        tolerance=WIDE,
    )


@case()
def simple_gla_parallel(trial: Trial) -> None:
    trial.compare(
        lambda q, k, v, g: parallel_simple_gla(q, k, v, g)[0],
        lambda q, k, v, g: recurrence(q, k, v, halves(g)),
        *qkv(trial),
        F.logsigmoid(trial.floats(1, TIME, HEADS)),
        tolerance=WIDE,
    )


@case()
def gla(trial: Trial) -> None:
    trial.compare(
        lambda q, k, v, g: chunk_gla(q, k, v, g)[0],
        recurrence,
        *qkv(trial),
        F.logsigmoid(heads(trial)) / 4,
        tolerance=WIDE,
    )


@case()
def gla_recurrent(trial: Trial) -> None:
    trial.compare(
        lambda q, k, v, g: fused_recurrent_gla(q, k, v, g)[0],
        recurrence,
        *qkv(trial),
        F.logsigmoid(heads(trial)),
        tolerance=1e-4,
    )


@case()
def delta_rule_recurrent(trial: Trial) -> None:
    trial.compare(
        lambda q, k, v, b: fused_recurrent_delta_rule(q, k, v, b)[0],
        lambda q, k, v, b: recurrence(q, k, v, beta=b),
        *qkv(trial),
        trial.uniform(1, TIME, HEADS),
        tolerance=1e-4,
    )


@case()
def gated_delta_rule(trial: Trial) -> None:
    trial.compare(
        lambda q, k, v, g, b: chunk_gated_delta_rule(q, k, v, g, b)[0],
        lambda q, k, v, g, b: recurrence(q, k, v, halves(g), b),
        *qkv(trial),
        F.logsigmoid(trial.floats(1, TIME, HEADS)),
        trial.uniform(1, TIME, HEADS),
        tolerance=WIDE,
    )


@case()
def gated_delta_rule_recurrent(trial: Trial) -> None:
    trial.compare(
        lambda q, k, v, g, b: fused_recurrent_gated_delta_rule(q, k, v, g, beta=b)[0],
        lambda q, k, v, g, b: recurrence(q, k, v, halves(g), b),
        *qkv(trial),
        F.logsigmoid(trial.floats(1, TIME, HEADS)),
        trial.uniform(1, TIME, HEADS),
        tolerance=1e-4,
        gradients=False,
    )


@case()
def kda_recurrent(trial: Trial) -> None:
    trial.compare(
        lambda q, k, v, g, b: fused_recurrent_kda(q, k, v, g, b)[0],
        recurrence,
        *qkv(trial),
        F.logsigmoid(heads(trial)) / 4,
        trial.uniform(1, TIME, HEADS),
        tolerance=1e-4,
        gradients=False,
    )


@case()
def rwkv6(trial: Trial) -> None:
    trial.compare(
        lambda q, k, v, w, u: fused_recurrent_rwkv6(q, k, v, w, u)[0],
        lambda q, k, v, w, u: recurrence(q, k, v, w, bonus=u),
        *qkv(trial),
        F.logsigmoid(heads(trial)),
        trial.floats(HEADS, SIZE),
        tolerance=1e-4,
    )


def _hgrn(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    state, rows = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        state = g[:, t].exp() * state + x[:, t]
        rows.append(state)
    return torch.stack(rows, 1)


@case()
def hgrn(trial: Trial) -> None:
    trial.compare(
        lambda x, g: chunk_hgrn(x, g)[0],
        _hgrn,
        trial.floats(2, 70, 64),
        F.logsigmoid(trial.floats(2, 70, 64)),
    )


@case(small=True)
def hgrn_recurrent(trial: Trial) -> None:
    trial.compare(
        lambda x, g: fused_recurrent_hgrn(x, g)[0],
        _hgrn,
        trial.floats(2, 40, 64),
        F.logsigmoid(trial.floats(2, 40, 64)),
    )


# ── attention ───────────────────────────────────────────────────────────────


@case()
def attention_parallel(trial: Trial) -> None:
    half = torch.float16
    trial.compare(
        attn.parallel_attn,
        attention,
        *(heads(trial, dtype=half) for _ in range(3)),
    )


# ── small operations ────────────────────────────────────────────────────────


@case()
def cumsum_local(trial: Trial) -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([each.cumsum(1) for each in x.split(32, dim=1)], 1)

    trial.compare(
        lambda x: chunk_local_cumsum(x, 32),
        reference,
        trial.floats(2, 70, 3),
        gradients=False,
    )
    trial.compare(
        lambda x: chunk_local_cumsum(x, 32),
        reference,
        trial.floats(2, 70, 3, 16),
        gradients=False,
    )


@case(small=True)
def cumsum_global(trial: Trial) -> None:
    for shape in ((2, 70, 3), (2, 70, 3, 16)):
        trial.compare(
            chunk_global_cumsum,
            lambda x: x.cumsum(1),
            trial.floats(*shape),
            gradients=False,
        )


@case()
def triangular_inverse(trial: Trial) -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        size = x.shape[-1]
        parts = x.unflatten(1, (-1, size)).transpose(2, 3)
        made = torch.linalg.inv(parts + torch.eye(size))
        return made.transpose(2, 3).flatten(1, 2)

    for size in (16, 32, 64):
        rows = torch.arange(64) % size
        low = (rows[:, None] > torch.arange(size))[None, :, None]
        given = trial.floats(1, 64, 2, size, scale=0.3) * low
        trial.compare(solve_tril, reference, given, gradients=False, tolerance=TF32)


@case()
def softmax_rows(trial: Trial) -> None:
    given, change = trial.floats(6, 100), trial.floats(6, 100)
    trial.compare(softmax_fwd, lambda x: x.softmax(-1), given, gradients=False)

    def reference(p: torch.Tensor, dp: torch.Tensor) -> torch.Tensor:
        return p * (dp - (p * dp).sum(-1, keepdim=True))

    trial.compare(softmax_bwd, reference, given.softmax(-1), change, gradients=False)


@case()
def pooled_means(trial: Trial) -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([each.mean(1) for each in x.split(32, dim=1)], 1)

    trial.compare(lambda x: mean_pooling(x, 32), reference, trial.floats(2, 70, 3, 16))


@case()
def matrix_product(trial: Trial) -> None:
    half = torch.float16
    trial.compare(
        matmul,
        torch.matmul,
        trial.floats(1, 70, 48, dtype=half),
        trial.floats(48, 40, dtype=half),
        gradients=False,
    )


# ── modules ─────────────────────────────────────────────────────────────────


@case()
def l2norm_(trial: Trial) -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)

    trial.compare(l2norm.l2norm, reference, trial.floats(6, 5, 64))
    trial.compare(l2norm.l2norm, reference, trial.floats(6, 5, 600))


@case(small=True)
def layer_norm_(trial: Trial) -> None:
    trial.compare(
        lambda x, w, b: layernorm.layer_norm(x, w, b, eps=1e-5),
        lambda x, w, b: layer_norm(x, w, b, 1e-5),
        trial.floats(6, 100),
        trial.floats(100),
        trial.floats(100),
    )


@case()
def rms_norm_wide(trial: Trial) -> None:
    trial.compare(
        lambda x, w, b: layernorm.rms_norm(x, w, b, eps=1e-5),
        lambda x, w, b: rms_norm(x, w, 1e-5) + b,
        trial.floats(6, 1000),
        trial.floats(1000),
        trial.floats(1000),
    )


@case()
def layer_norm_gate(trial: Trial) -> None:
    for width in (100, 1000):
        trial.compare(
            lambda x, g, w, b: fused_norm_gate.layer_norm_gated(x, g, w, b),
            lambda x, g, w, b: layer_norm(x, w, b, 1e-6) * F.silu(g),
            trial.floats(6, width),
            trial.floats(6, width),
            trial.floats(width),
            trial.floats(width),
            tolerance=1e-4,
        )


@case()
def activations_(trial: Trial) -> None:
    one = trial.floats(6, 100)
    trial.compare(activations.sigmoid, torch.sigmoid, one)
    trial.compare(activations.swish, F.silu, one)
    trial.compare(
        lambda x: activations.logsigmoid(x, 2.0), lambda x: F.logsigmoid(x) / 2, one
    )


@case()
def gated_units(trial: Trial) -> None:
    pair = trial.floats(6, 100), trial.floats(6, 100)
    trial.compare(activations.swiglu, lambda x, y: F.silu(x) * y, *pair)
    trial.compare(activations.sigmoidglu, lambda x, y: x.sigmoid() * y, *pair)


@case()
def causal_convolution(trial: Trial) -> None:
    def reference(x, w, b):  # type: ignore[no-untyped-def]
        wide = F.pad(x.mT, (w.shape[1] - 1, 0))
        return F.silu(F.conv1d(wide, w[:, None], b, groups=w.shape[0])).mT

    trial.compare(
        lambda x, w, b: causal_conv1d(x, w, b, activation="silu")[0],
        reference,
        trial.floats(2, 20, 32),
        trial.floats(32, 4),
        trial.floats(32),
    )


@case()
def token_shift_(trial: Trial) -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, (0, 0, 1, 0))[:, :-1] - x

    for time in (20, 5000):
        trial.compare(token_shift.token_shift, reference, trial.floats(1, time, 16))


@case()
def rotary(trial: Trial) -> None:
    angle = trial.uniform(20, 16, high=6.0)
    trial.compare(
        lambda x: rotary_embedding(x, angle.cos(), angle.sin()),
        lambda x: rotated(x, angle.double().repeat(1, 2)[:, None]),
        trial.floats(2, 20, 3, 32),
    )


@case()
def cross_entropy_(trial: Trial) -> None:
    labels = trial.whole(8, high=200)
    trial.compare(
        lambda x: cross_entropy_loss(x, labels)[0],
        lambda x: F.cross_entropy(x, labels, reduction="none"),
        trial.floats(8, 200),
    )
