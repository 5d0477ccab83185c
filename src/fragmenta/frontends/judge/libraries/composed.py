"""Operators of ATen as other operators: bounds of their errors follow from those."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fragmenta.frontends.judge.libraries.bounded import RULES, Bounded, OperatorCall


def _composed(names: str) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Make a function the rule of operators with the same arguments."""

    def register(written: Callable[..., object]) -> Callable[..., object]:
        def rule(asked: OperatorCall) -> object:
            return written(*asked.args, **asked.named)

        for name in names.split():
            RULES[name] = rule
        return written

    return register


@_composed("_softmax softmax")
def _softmax(x: Tensor, axis: int, half: object = False) -> object:
    powers = (x - x.amax([axis], True)).exp()
    return powers / powers.sum([axis], True)


@_composed("_log_softmax log_softmax")
def _log_softmax(x: Tensor, axis: int, half: object = False) -> object:
    apart = x - x.amax([axis], True)
    return apart - apart.exp().sum([axis], True).log()


@_composed("logsumexp")
def _log_sum(x: Tensor, axes: list[int], keep: bool = False) -> object:
    most = x.amax(axes, True)
    most = torch.where(most.abs() == math.inf, torch.zeros_like(most), most)
    made = (x - most).exp().sum(axes, True).log() + most
    return made if keep else made.squeeze(axes)


@_composed("native_layer_norm")
def _layer_norm(
    x: Tensor, shape: list[int], weight: object, bias: object, epsilon: float
) -> object:
    axes = [*range(x.dim() - len(shape), x.dim())]
    return _normal(x, axes, weight, bias, epsilon)


def _normal(
    x: Tensor, axes: list[int], weight: object, bias: object, epsilon: float
) -> Any:
    middle = x.mean(axes, True)
    apart = x - middle
    scale = (apart.square().mean(axes, True) + epsilon).rsqrt()
    made = apart * scale
    if weight is not None:
        made = made * weight
    if bias is not None:
        made = made + bias
    return made, middle, scale


def _wide(value: object, axes: int) -> Any:
    if value is None:
        return None
    assert isinstance(value, Tensor)
    return value.reshape([1, -1, *[1] * (axes - 2)])


@_composed(
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional "
    "_native_batch_norm_legit_no_training cudnn_batch_norm _batch_norm_with_update"
)
def _batch_norm(
    x: Tensor,
    weight: object,
    bias: object,
    mean: object,
    variance: object = None,
    training: bool | float = False,
    momentum: float = 0.1,
    epsilon: float = 1e-5,
) -> object:
    weight, bias = _wide(weight, x.dim()), _wide(bias, x.dim())
    if training is True or mean is None:
        axes = [0, *range(2, x.dim())]
        return _normal(x, axes, weight, bias, epsilon)
    if not isinstance(training, bool):  # without training, it is not an argument
        momentum, epsilon = training, momentum
    middle, spread = _wide(mean, x.dim()), _wide(variance, x.dim())
    scale = (spread + epsilon).rsqrt()
    made = (x - middle) * scale
    if weight is not None:
        made = made * weight
    if bias is not None:
        made = made + bias
    return made, middle, scale


@_composed("native_group_norm")
def _group_norm(
    x: Tensor,
    weight: object,
    bias: object,
    count: int,
    channels: int,
    size: int,
    groups: int,
    epsilon: float,
) -> object:
    parts = x.reshape([count, groups, -1])
    made, middle, scale = _normal(parts, [2], None, None, epsilon)
    made = made.reshape(x.shape)
    if weight is not None:
        made = made * _wide(weight, x.dim())
    if bias is not None:
        made = made + _wide(bias, x.dim())
    return made, middle, scale


@_composed("linalg_vector_norm norm")
def _norm(
    x: Tensor,
    order: float | None = 2,
    axes: list[int] | None = None,
    keep: bool = False,
    **_: object,
) -> object:
    axes = [*range(x.dim())] if not axes else list(axes)
    order = 2.0 if order is None else order
    if order == 2:
        return x.square().sum(axes, keep).sqrt()
    if order == 1:
        return x.abs().sum(axes, keep)
    if order == math.inf:
        return x.abs().amax(axes, keep)
    return x.abs().pow(order).sum(axes, keep).pow(1 / order)


def _reduced(each: Tensor, how: int) -> object:
    return (each, each.mean(), each.sum())[how] if how else each


@_composed("mse_loss")
def _mse(x: Tensor, y: Tensor, how: int = 1) -> object:
    return _reduced((x - y).square(), how)


@_composed("l1_loss")
def _l1(x: Tensor, y: Tensor, how: int = 1) -> object:
    return _reduced((x - y).abs(), how)


@_composed("huber_loss")
def _huber(x: Tensor, y: Tensor, how: int = 1, delta: float = 1.0) -> object:
    apart = (x - y).abs()
    near = apart.clamp(max=delta)
    return _reduced(near * (apart - near * 0.5), how)


@_composed("smooth_l1_loss")
def _smooth_l1(x: Tensor, y: Tensor, how: int = 1, beta: float = 1.0) -> object:
    apart = (x - y).abs()
    near = apart.clamp(max=beta)
    return _reduced(near * (apart - near * 0.5) / beta, how)


@_composed("nll_loss_forward nll_loss2d_forward")
def _nll(x: Tensor, labels: Tensor, weight: object, how: int, ignored: int) -> object:
    if weight is not None:
        raise NotImplementedError("classes with weights")
    axis = 1 if x.dim() > 1 else 0
    kept = labels != ignored
    places = torch.where(kept, labels, 0).unsqueeze(axis)
    picked = -x.gather(axis, places).squeeze(axis)
    picked = torch.where(kept, picked, torch.zeros([], dtype=torch.float64))
    count = kept.sum().double()
    total = picked if how == 0 else picked.sum()
    return (total / count if how == 1 else total), count


@_composed("xlogy")
def _xlogy(x: Tensor, y: Tensor) -> object:
    found = x.value if isinstance(x, Bounded) else x
    zero = torch.zeros([], dtype=torch.float64)
    return torch.where(found == 0, zero, x * torch.log(y))


@_composed("binary_cross_entropy")
def _entropy(x: Tensor, y: Tensor, weight: object = None, how: int = 1) -> object:
    left = x.log().clamp(min=-100.0)
    right = (1 - x).log().clamp(min=-100.0)
    return _reduced(-(y * left + (1 - y) * right), how)


@_composed("var")
def _var(
    x: Tensor,
    axes: list[int] | None = None,
    *_: object,
    correction: float | None = 1,
    keepdim: bool = False,
) -> object:
    axes = [*range(x.dim())] if not axes else list(axes)
    count = math.prod(x.shape[each] for each in axes)
    apart = x - x.mean(axes, True)
    left = count - (1 if correction is None else correction)
    return apart.square().sum(axes, keepdim) / left


@_composed("std")
def _std(x: Tensor, axes: list[int] | None = None, **named: object) -> object:
    return torch.var(x, axes, **named).sqrt()


@_composed(
    "_scaled_dot_product_flash_attention_for_cpu scaled_dot_product_attention "
    "_scaled_dot_product_attention_math"
)
def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout: float = 0.0,
    causal: bool = False,
    *_: object,
    attn_mask: object = None,
    scale: float | None = None,
    **__: object,
) -> object:
    scores = torch.matmul(q, k.transpose(-2, -1)) * (scale or q.shape[-1] ** -0.5)
    if attn_mask is not None:
        scores = scores + attn_mask
    if causal:
        rows, columns = scores.shape[-2:]
        later = torch.ones(rows, columns, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    made = torch.matmul(torch.softmax(scores, -1), v)
    return made, None
