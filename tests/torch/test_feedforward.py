"""Blocks with sparse activations, without a GPU."""

import copy
import json

import pytest
import torch

import fragmenta as fm
import fragmenta.torch as ft
from fragmenta.hopper.torch.feedforward import block_of


class SquaredReLU(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) ** 2


class Mlp(torch.nn.Module):
    """As models write it: the layer that comes last is listed first."""

    def __init__(self, act, bias=False, residual=False):
        super().__init__()
        self.down_proj = torch.nn.Linear(256, 64, bias=bias)
        self.up_proj = torch.nn.Linear(64, 256, bias=bias)
        self.act, self.residual = act, residual

    def forward(self, x):
        y = self.down_proj(self.act(self.up_proj(x)))
        return x + y if self.residual else y


@pytest.fixture
def dense():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 64), Mlp(SquaredReLU()), Mlp(torch.nn.ReLU(), bias=True)
    ).bfloat16()


@pytest.fixture
def x():
    torch.manual_seed(1)
    return torch.randn(2, 9, 64).bfloat16()


def stepwise(block, x):
    """The same result from the functions for single steps."""
    flat = x.reshape(-1, x.shape[-1])
    values, scales = ft.quantize_rows(flat)
    h = ft.dense_mm(
        values,
        block.up_weight,
        scale_m=scales,
        scale_n=block.up_scale,
        out_dtype=x.dtype,
    )
    if block.up_bias is not None:
        h = h + block.up_bias.to(h.dtype)
    sparse, rows = ft.sparse_activations(h, block.activation)
    y = ft.sparse_mm(
        sparse,
        block.down_weight,
        scale_m=rows,
        scale_n=block.down_scale,
        out_dtype=x.dtype,
    )
    if block.down_bias is not None:
        y = y + block.down_bias.to(y.dtype)
    return y.reshape(*x.shape[:-1], -1)


def test_blocks_are_found_by_what_they_compute(dense, x):
    model = ft.feed_forwards(copy.deepcopy(dense))
    assert [type(each).__name__ for each in model] == [
        "Linear",
        "SparseFeedForward",
        "SparseFeedForward",
    ]
    assert [each.activation for each in model[1:]] == ["relu2", "relu"]
    for block in model[1:]:
        assert torch.equal(block(x), stepwise(block, x))
    error = (model[1](x) - dense[1](x)).float().norm() / dense[1](x).float().norm()
    assert (
        0.03 < error < 0.2
    )  # half of the activations are zero, many chunks have three


@pytest.mark.parametrize(
    "module",
    [
        Mlp(torch.nn.GELU()),
        Mlp(torch.nn.ReLU(), residual=True),
        torch.nn.Sequential(Mlp(torch.nn.ReLU()), torch.nn.LayerNorm(64)),
        torch.nn.Linear(4, 4),
        torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(8, 4)),
    ],
)
def test_other_modules_are_no_blocks(module):
    assert block_of(module) is None


def test_a_model_without_blocks_gets_a_warning():
    with pytest.warns(UserWarning, match="no feed-forward block"):
        ft.feed_forwards(torch.nn.Sequential(torch.nn.Linear(4, 4)))


def test_skipped_blocks_stay(dense):
    model = ft.feed_forwards(dense, skip="1")
    assert isinstance(model[1], Mlp)
    assert isinstance(model[2], ft.SparseFeedForward)


def test_a_known_scale_fuses_the_activation(dense, x):
    own = ft.feed_forwards(copy.deepcopy(dense))
    static = ft.feed_forwards(copy.deepcopy(dense), batches=[x, x + 1])
    assert static[1].hidden_scale is not None
    assert static[2].hidden_scale is None  # its first layer has a bias
    hidden = own[0](x).detach().reshape(-1, 64)
    rows = own[1].hidden(hidden).scales
    assert float(static[1].hidden_scale) >= float(rows.max())
    # With the greatest of its own scales, a row has the same elements.
    static[1].fix_scale(float(rows.max()))
    same = (rows == rows.max()).nonzero().flatten()
    ours, theirs = own[1](hidden), static[1](hidden)
    assert torch.equal(ours[same], theirs[same])
    assert torch.allclose(ours.float(), theirs.float(), rtol=0.05, atol=0.02)


@pytest.mark.parametrize("static", [False, True])
def test_compiled_with_batches_of_any_size(dense, x, static):
    model = ft.feed_forwards(dense, batches=[x] if static else None)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    with torch.no_grad():
        for rows in (9, 5, 1):
            assert torch.equal(compiled(x[:, :rows]), model(x[:, :rows]))


@pytest.mark.parametrize("static", [False, True])
def test_the_state_dict_and_half(dense, x, static):
    block = ft.feed_forwards(dense, batches=[x] if static else None)[1]
    other = ft.SparseFeedForward(64, 256)
    other.load_state_dict(block.state_dict())
    assert (other.hidden_scale is not None) == static
    assert torch.equal(block(x), other(x))
    assert torch.equal(block.half()(x), other(x))
    assert block.up_scale.dtype == torch.float32


def test_types_and_shapes_of_x(dense):
    block = ft.feed_forwards(dense)[1]
    for kind in (torch.float32, torch.float16, torch.bfloat16):
        assert block(torch.ones(3, 64, dtype=kind)).dtype == kind
    assert block(torch.ones(64).half()).shape == (64,)
    assert block(torch.ones(0, 64).half()).shape == (0, 64)
    nan = torch.ones(2, 64).half()
    nan[1, 5] = float("nan")
    y = block(nan)
    assert y[0].isfinite().all()
    assert y[1].isnan().all()


def test_the_report_says_what_was_lost(dense, x):
    model = ft.feed_forwards(copy.deepcopy(dense))
    found = ft.report(model, x)
    assert [each.name for each in found.blocks] == ["1", "2"]
    block = found.blocks[0]
    h = model[1].dense_activations(model[0](x))
    assert block.tokens == 18
    assert (block.zeros, block.values) == (int((h == 0).sum()), int((h != 0).sum()))
    chunks = (h != 0).reshape(18, -1, 4).sum(-1)
    assert block.lost == int((chunks - 2).clamp_min(0).sum())
    assert 0.03 < block.error < 0.2
    assert block.norm_lost < block.error + 0.05
    assert block.time_us is None
    text = str(found)
    assert "norm lost" in text
    assert max(map(len, text.splitlines())) <= 80
    assert json.loads(found.to_json())["blocks"][0]["lost"] == block.lost


def test_the_reference_has_the_weights_before_they_were_rounded(dense, x):
    model = ft.feed_forwards(copy.deepcopy(dense))
    own, both = (ft.report(model, x, reference=each) for each in (None, dense))
    for ours, theirs in zip(own.blocks, both.blocks, strict=True):
        assert ours.lost == theirs.lost
        assert ours.error != theirs.error
    hidden = model[0](x).detach()
    block = copy.deepcopy(dense[1]).float().requires_grad_(False)
    wanted = block(hidden.float())
    apart = (model[1](hidden).float() - wanted).norm() / wanted.norm()
    assert abs(both.blocks[0].error - apart.item()) < 1e-5
    assert "the reference's weights" in str(both)
    assert max(map(len, str(both).splitlines())) <= 80
    with pytest.raises(
        fm.errors.BadCall, match="reference has no feed-forward block 1"
    ):
        ft.report(model, x, reference=model)


class Gated(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Linear(16, 64)
        self.up = torch.nn.Linear(16, 64)
        self.down = torch.nn.Linear(64, 16)

    def forward(self, x):
        return self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))


def test_gated_blocks_are_left_and_it_is_said_why():
    model = torch.nn.Sequential(Gated(), Gated())
    with pytest.warns(
        UserWarning, match="0 and 1 more are gated, .* lose half of them"
    ):
        assert ft.feed_forwards(model) is model
    assert isinstance(model[0], Gated)
    for name in ("swiglu", "SiLU", "geglu"):
        with pytest.raises(fm.errors.BadCall, match="two of four would lose half"):
            ft.SparseFeedForward(16, 64, activation=name)


def test_activations_that_are_sparse_lose_nothing():
    """Chunks with at most two values: only rounding is left."""
    up = torch.nn.Linear(64, 256, bias=False)
    torch.manual_seed(0)
    up.weight.data[2::4] = -up.weight.data[0::4]
    up.weight.data[3::4] = -up.weight.data[1::4]
    block = ft.SparseFeedForward.from_linears(
        up, torch.nn.Linear(256, 64, bias=False), "relu2"
    )
    found = ft.report(block, torch.randn(50, 64))
    assert found.blocks[0].lost == 0
    assert 0 < found.blocks[0].error < 0.05


def test_what_is_refused():
    linear = torch.nn.Linear(8, 16)
    with pytest.raises(fm.errors.ShapeError, match="up has 16 outputs, and down 8"):
        ft.SparseFeedForward.from_linears(linear, linear)
    with pytest.raises(fm.errors.BadCall, match="an activation must be none, relu or"):
        ft.SparseFeedForward(8, 16, activation="silu")
    with pytest.raises(fm.errors.ValueRangeError, match="must be a power of two"):
        ft.SparseFeedForward(8, 16, hidden_scale=0.3)
    with pytest.raises(fm.errors.BadCall, match="needs a scale for each row"):
        ft.SparseFeedForward(8, 16, up_bias=True, hidden_scale=0.5)
    block = ft.SparseFeedForward(8, 16)
    with pytest.raises(fm.errors.ShapeError, match="last axis of x must be 8"):
        block(torch.ones(2, 9))
    with pytest.raises(fm.errors.UnknownType, match=r"given torch\.int32"):
        block(torch.ones(2, 8, dtype=torch.int32))
    with pytest.raises(fm.errors.UnknownType, match=r"use x.to\(torch.bfloat16\)"):
        ft.sparse_activations(torch.ones(2, 8))
