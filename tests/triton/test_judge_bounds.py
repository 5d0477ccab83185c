"""Bounds of errors: float32 keeps to them, and each rule is followed."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fragmenta.frontends.judge.libraries import bounded, composed
from fragmenta.frontends.judge.libraries.bounded import (
    ESTIMATED,
    Bounded,
    exact,
    use_format,
)

assert composed
LABELS = torch.arange(32)
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "matmul": lambda x: x @ x.t(),
    "linear": lambda x: F.linear(x, x, x[:, 0]),
    "einsum": lambda x: torch.einsum("bi,ci->bc", x, x),
    "bmm": lambda x: torch.bmm(x.view(4, 8, 64), x.view(4, 8, 64).transpose(1, 2)),
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "logsumexp": lambda x: torch.logsumexp(x, 1),
    "layer_norm": lambda x: F.layer_norm(x, (64,)),
    "group_norm": lambda x: F.group_norm(x.view(2, 8, 8, 16), 4),
    "batch_norm": lambda x: F.batch_norm(
        x.view(2, 8, 8, 16), None, None, training=True
    ),
    "instance_norm": lambda x: F.instance_norm(x.view(2, 8, 8, 16)),
    "rms": lambda x: x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + 1e-5),
    "frobenius": lambda x: x / torch.norm(x, p="fro"),
    "conv": lambda x: F.conv2d(x.view(2, 8, 8, 16), x.view(-1)[:576].view(8, 8, 3, 3)),
    "conv_transpose": lambda x: F.conv_transpose2d(
        x.view(2, 8, 8, 16), x.view(-1)[:576].view(8, 8, 3, 3), stride=2
    ),
    "max_pool": lambda x: F.max_pool2d(x.view(2, 8, 8, 16), 3, 2),
    "avg_pool": lambda x: F.avg_pool2d(x.view(2, 8, 8, 16), 3, 2),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "selu": F.selu,
    "elu": F.elu,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "hardsigmoid": F.hardsigmoid,
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "cumsum": lambda x: torch.cumsum(x, 1),
    "cumprod": lambda x: torch.cumprod(x, 1),
    "cross_entropy": lambda x: F.cross_entropy(x, LABELS),
    "mse": lambda x: F.mse_loss(x, x.flip(0)),
    "smooth_l1": lambda x: F.smooth_l1_loss(x, x.flip(0)),
    "huber": lambda x: F.huber_loss(x, x.flip(0)),
    "kl": lambda x: F.kl_div(
        F.log_softmax(x, -1), F.softmax(x.flip(0), -1), reduction="batchmean"
    ),
    "triplet": lambda x: F.triplet_margin_loss(x, x.flip(0), x.flip(1)),
    "cosine": lambda x: torch.mean(1 - F.cosine_similarity(x, x.flip(0), dim=1)),
    "attention": lambda x: F.scaled_dot_product_attention(
        x[None, None], x[None, None], x[None, None]
    ),
    "max": lambda x: torch.max(x, dim=1)[0],
    "sum": lambda x: torch.sum(x, dim=1, keepdim=True),
    "var": lambda x: torch.var(x, dim=1),
    "masked": lambda x: torch.cumsum(x * (x > 0), dim=1),
    "in place": lambda x: (x * 2).add_(1).relu_(),
}


def evaluated(function: Callable[[Any], Any], x: torch.Tensor) -> Bounded:
    with torch.no_grad():
        made = function(exact(x))
    assert isinstance(made, Bounded)
    return made


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("seed", range(2))
def test_float32_keeps_to_the_bounds(name: str, seed: int) -> None:
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(seed))
    use_format("float32")
    made = evaluated(FUNCTIONS[name], x)
    assert not ESTIMATED
    with torch.no_grad():
        found = FUNCTIONS[name](x).double()
        wanted = FUNCTIONS[name](x.double())
    assert torch.allclose(made.value, wanted, rtol=1e-12, atol=1e-14)
    off = (found - made.value).abs()
    assert (off <= made.most).all()
    likely = (off**2 / made.variance.clamp(min=1e-90)).mean().sqrt()
    assert likely < 2  # and the expected error is no guess either


@pytest.mark.parametrize("name", ["matmul", "softmax", "layer_norm", "conv", "gelu"])
def test_float16_does_not(name: str) -> None:
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(3))
    use_format("float32")
    made = evaluated(FUNCTIONS[name], x)
    with torch.no_grad():
        found = FUNCTIONS[name](x.half().float()).half().double()
    off = (found - made.value).abs()
    assert (off**2 / made.variance).median().sqrt() > 8
    use_format("float16")
    wide = evaluated(FUNCTIONS[name], x)
    assert (off <= wide.most).float().mean() > 0.99


def test_bounds_grow_with_the_length_of_a_sum() -> None:
    use_format("float32")
    bounds = [
        float(evaluated(lambda x: x.sum(), torch.ones(count)).most)
        for count in (64, 256, 1024)
    ]
    for short, long in pairwise(bounds):
        assert 8 < long / short < 20


def test_overflow_is_excused_and_nan_is_not() -> None:
    use_format("float32")
    large = evaluated(lambda x: (x * x).sum(), torch.full((4,), 1e30))
    assert math.isinf(float(large.most))
    lost = evaluated(torch.relu, torch.tensor([math.nan, 1.0]))
    assert not torch.isinf(lost.most).any()
    zero = evaluated(
        lambda x: torch.diag(x[:2]) @ x.view(2, 2), torch.tensor([1, 2, math.nan, 4.0])
    )
    assert torch.isinf(zero.most[0, 0])  # zero times NaN may be left out
    assert not torch.isinf(zero.most[1, 0])


def test_products_with_zero_are_not_counted() -> None:
    use_format("float32")
    evaluated(lambda x: x @ x, torch.ones(8, 8))
    assert bounded.PRODUCTS[0] == 512
    use_format("float32")
    evaluated(
        lambda x: torch.diag(x) @ torch.ones(8, 4, dtype=torch.float64), torch.ones(8)
    )
    assert bounded.PRODUCTS[0] == 32


def test_an_operator_without_a_rule_is_named() -> None:
    use_format("float32")
    made = evaluated(torch.lgamma, torch.rand(16) + 1)
    assert {"lgamma"} == ESTIMATED
    assert (made.most > 0).all()


def test_a_running_product_that_leaves_the_range_on_its_way_is_excused() -> None:
    use_format("float32")
    given = torch.tensor(
        [[2.0, 1e30, 1e30, 1e-30, 1e-30], [2.0, 3.0, 1e30, 1e-30, 5.0]]
    )
    made = torch.cumprod(exact(given), 1)
    assert isinstance(made, Bounded)
    assert made.most.isinf().tolist() == [[False, False, True, True, True], [False] * 5]


WHOLE = torch.arange(-32, 32).double().repeat(32, 1)
EXACT: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(1),
    "mean of a power of two": lambda x: x.mean(1),
    "matmul": lambda x: x @ x.t(),
    "linear": lambda x: F.linear(x, x, x[:, 0]),
    "conv": lambda x: F.conv2d(x.view(2, 8, 8, 16), x.view(-1)[:576].view(8, 8, 3, 3)),
    "squares": lambda x: ((x - x.flip(1)) ** 2).sum(1),
    "clamped": lambda x: torch.clamp(1 - x * x, min=0).sum(1),
    "cumsum": lambda x: torch.cumsum(x, 1),
    "largest": lambda x: x.amax(1),
}
INEXACT: dict[str, Callable[[Any], Any]] = {
    "mean of three": lambda x: x[:, :3].mean(1),
    "a slope": lambda x: F.leaky_relu(x, 0.01),
    "a function": lambda x: torch.exp(x).sum(1),
    "a quotient": lambda x: (x / 8).sum(1),
    "beyond the format": lambda x: (x * 2**20).sum(1),
    "halves": lambda x: (x + 0.5).sum(1),
}


@pytest.mark.parametrize("name", [*EXACT, *INEXACT])
def test_sums_of_whole_numbers_are_exact_if_that_is_proved(name: str) -> None:
    function = {**EXACT, **INEXACT}[name]
    use_format("float32", whole=True)
    made = function(exact(WHOLE))
    assert bool((made.most == 0).all()) == (name in EXACT)
    use_format("float32")
    ordinary = function(exact(WHOLE)).most
    assert name in ("squares", "clamped", "largest") or bool((ordinary > 0).any())
