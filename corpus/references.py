"""What the functions of libraries compute, written plainly, in double precision."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Any, epsilon: float) -> Tensor:
    """Rows divided by their root mean square."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight


def layer_norm(x: Tensor, weight: Any, bias: Any, epsilon: float) -> Tensor:
    """Rows with mean 0 and variance 1."""
    apart = x - x.mean(-1, keepdim=True)
    spread = apart.square().mean(-1, keepdim=True)
    return apart * torch.rsqrt(spread + epsilon) * weight + bias


def group_norm(
    x: Tensor, weight: Tensor, bias: Tensor, groups: int, epsilon: float
) -> Tensor:
    """Groups of channels with mean 0 and variance 1."""
    parts = x.unflatten(1, (groups, -1)).flatten(2)
    made = layer_norm(parts, 1.0, 0.0, epsilon).reshape(x.shape)
    wide = [1, -1, *(1 for _ in x.shape[2:])]
    return made * weight.view(wide) + bias.view(wide)


def cross_entropy(
    x: Tensor, labels: Tensor, smoothing: float = 0.0, square: float = 0.0
) -> Tensor:
    """The mean over the labels that are not -100."""
    kept = labels != -100
    logs = x[kept].log_softmax(-1)
    right = logs.gather(-1, labels[kept][:, None])[:, 0]
    losses = -(1 - smoothing) * right - smoothing * logs.mean(-1)
    return (losses + square * x[kept].logsumexp(-1).square()).mean()


def jsd(x: Tensor, y: Tensor, beta: float) -> Tensor:
    """The generalised Jensen-Shannon divergence of log-probabilities."""
    p, q = x.exp(), y.exp()
    middle = (beta * q + (1 - beta) * p).log()
    both = beta * (q * (y - middle)) + (1 - beta) * (p * (x - middle))
    return both.sum() / x.shape[0]


def rotated(x: Tensor, angle: Tensor) -> Tensor:
    """Rotary embedding of halves: each element is turned with the one half a row on."""
    one, other = x.chunk(2, dim=-1)
    return x * angle.cos() + torch.cat([-other, one], -1) * angle.sin()


def sparsemax(x: Tensor) -> Tensor:
    """The point of the simplex that is nearest to each row."""
    ordered = x.sort(-1, descending=True).values
    count = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    sums = ordered.cumsum(-1)
    kept = (1 + count * ordered > sums).sum(-1, keepdim=True)
    threshold = (sums.gather(-1, kept - 1) - 1) / kept
    return (x - threshold).clamp(min=0)
