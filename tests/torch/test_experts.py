"""Mixtures of experts: grouped products, and the module around them."""

import pytest
import torch

import fragmenta.torch as ft
from fragmenta.errors import BadCall, NotSparse, ShapeError, ValueRangeError
from fragmenta.hopper.torch.stack import stacked
from fragmenta.hopper.torch.weights import integer_weight, relative_error
from fragmenta.kernels import Tile

SHARES = (3, 0, 5, 1)


def drawn(*shape):
    return torch.randn(*shape, dtype=torch.bfloat16)


@pytest.fixture(scope="module")
def given():
    """Tokens, weights and ends."""
    torch.manual_seed(0)
    offs = torch.tensor(SHARES).cumsum(0).int()
    return drawn(9, 72), drawn(4, 100, 72), offs


def test_each_expert_multiplies_its_own_rows(given):
    x, weights, offs = given
    tile = Tile(64, 8)
    y = ft.grouped_linear(x, ft.compress_experts(weights), offs, tile=tile)
    first = 0
    for weight, count in zip(weights, SHARES, strict=True):
        rows = slice(first, first + count)
        single = ft.sparse_linear(x[rows], ft.compress(weight), tile=tile)
        assert torch.equal(y[rows], single)
        first += count


def test_scales_and_biases_of_experts(given):
    x, weights, offs = given
    values, scales = ft.quantize_rows(x)
    eight = weights.to(torch.float8_e4m3fn)
    per_weight, bias = torch.rand(4, 100), torch.randn(4, 100)
    y = ft.grouped_linear(
        values,
        ft.compress_experts(eight),
        offs,
        bias,
        scale_x=scales,
        scale_weight=per_weight,
        out_dtype=torch.bfloat16,
    )
    single = ft.sparse_linear(
        values[3:8],
        ft.compress(eight[2]),
        bias[2],
        scale_x=scales[3:8],
        scale_weight=per_weight[2],
        out_dtype=torch.bfloat16,
        tile=Tile(64, 8),
    )
    assert torch.equal(y[3:8], single)


def test_nothing_at_all(given):
    _, weights, offs = given
    stack = ft.compress_experts(weights)
    y = ft.grouped_linear(drawn(0, 72), stack, torch.zeros_like(offs))
    assert y.shape == (0, 100)


def test_without_data_and_compiled(given):
    x, weights, offs = given
    stack = ft.compress_experts(weights)
    y = ft.grouped_linear(x, stack, offs)
    far = ft.SparseStack(stack.data.to("meta"), "bf16", stack.shape)
    made = ft.grouped_linear(x.to("meta"), far, offs.to("meta"))
    assert (made.shape, made.dtype) == (y.shape, y.dtype)

    @torch.compile(fullgraph=True, backend="eager")
    def compiled(x, offs):
        return ft.grouped_linear(x, stack, offs) + 1

    assert torch.equal(compiled(x, offs), y + 1)


def test_what_is_refused(given):
    x, weights, offs = given
    stack = ft.compress_experts(weights)
    with pytest.raises(BadCall, match="must be a SparseStack"):
        ft.grouped_linear(x, weights, offs)
    with pytest.raises(ShapeError, match="offs must be 4 int32"):
        ft.grouped_linear(x, stack, offs[:2])
    with pytest.raises(ShapeError, match="offs must be 4 int32"):
        ft.grouped_linear(x, stack, offs.long())
    with pytest.raises(ValueRangeError, match="offs must ascend from 0 to at most 9"):
        ft.grouped_linear(x, stack, offs + 1)
    with pytest.raises(BadCall, match="the weights are"):
        ft.grouped_linear(x.half(), stack, offs)
    with pytest.raises(ShapeError, match="bias must be float32 of shape"):
        ft.grouped_linear(x, stack, offs, torch.ones(100))
    with pytest.raises(ShapeError, match="experts x out x in"):
        ft.compress_experts(weights[0])
    with pytest.raises(NotSparse):
        ft.compress_experts(weights, prune=False)


# ── the module ──────────────────────────────────────────────────────────────


def reference(layer, x, index, weights):
    """The same by a loop, in float32 with the weights that the layer has."""
    gate_up, down = (
        stack.to_dense().float() * (1 if scale is None else scale[..., None])
        for stack, scale in (
            (layer.gate_up, layer.gate_up_scale),
            (layer.down, layer.down_scale),
        )
    )
    found = torch.zeros(x.shape)
    for token, (row, shares) in enumerate(zip(index, weights, strict=True)):
        for expert, share in zip(row.tolist(), shares.tolist(), strict=True):
            if expert < len(down):
                gate, up = (gate_up[expert] @ x[token].float()).chunk(2)
                h = torch.nn.functional.silu(gate) * up
                found[token] += share * (down[expert] @ h)
    return found


def test_each_expert_multiplies_its_own_4_bit_integers(given):
    x, weights, offs = given
    tile = Tile(64, 8)
    for name, rows in (("s4-64", x), ("s4-128-e4m3", x.to(torch.float8_e4m3fn))):
        matrices = [integer_weight(each, name).sparse for each in weights]
        options = {"tile": tile, "out_dtype": torch.bfloat16}
        y = ft.grouped_linear(rows, stacked(matrices), offs, **options)
        single = ft.sparse_linear(rows[3:8], matrices[2], **options)
        assert torch.equal(y[3:8], single)
    with pytest.raises(BadCall, match="multiplied with float8_e4m3fn, and x is"):
        ft.grouped_linear(x, stacked(matrices), offs)


@pytest.mark.parametrize(
    "group, name", [(None, "s4-128"), (32, "s4-32"), (0, "s4-row")]
)
def test_experts_of_4_bit_integers(group, name):
    torch.manual_seed(1)
    layer = ft.SparseExperts.from_weights(
        drawn(4, 64, 48), drawn(4, 48, 32), prune=True, quantize="int4", group=group
    )
    assert layer.weight_type == name
    assert (layer.gate_up_scale is None) == (group != 0)
    index, x = torch.randint(0, 4, (7, 2)), drawn(7, 48)
    weights = torch.rand(7, 2)
    found, wanted = layer(x, index, weights), reference(layer, x, index, weights)
    assert relative_error(found, wanted) < 0.01
    if group == 32:
        with pytest.raises(ShapeError, match="groups of 128 columns, or for rows"):
            ft.save_sparse(torch.nn.ModuleDict({"experts": layer}), "nowhere")


def test_groups_of_experts_that_are_refused():
    weights = drawn(2, 32, 24), drawn(2, 24, 16)
    with pytest.raises(BadCall, match="group is for int4 or int4-fp8; given 64 with"):
        ft.SparseExperts.from_weights(*weights, quantize="fp8", group=64)
    with pytest.raises(BadCall, match="given 64 without quantize"):
        ft.SparseExperts.from_weights(*weights, group=64)


@pytest.mark.parametrize(
    "quantize, error", [(None, 0.01), ("fp8", 0.06), ("int4-fp8", 0.06)]
)
def test_experts_are_those_of_a_loop(quantize, error):
    torch.manual_seed(1)
    made = ft.SparseExperts.from_weights(
        drawn(6, 64, 48), drawn(6, 48, 32), prune=True, quantize=quantize
    )
    x, index, weights = drawn(7, 48), torch.randint(0, 7, (7, 2)), torch.rand(7, 2)
    wanted = reference(made, x, index, weights)
    found = made(x, index, weights).float()
    assert (found - wanted).norm() < error * wanted.norm()


def test_experts_are_one_graph():
    torch.manual_seed(3)
    made = ft.SparseExperts.from_weights(
        drawn(3, 32, 24), drawn(3, 24, 16), prune=True, quantize="fp8"
    )
    given = drawn(5, 24), torch.randint(0, 4, (5, 2)), torch.rand(5, 2)
    compiled = torch.compile(made, fullgraph=True, backend="eager")
    assert torch.equal(compiled(*given), made(*given))


class Stacked(torch.nn.Module):
    """What transformers calls the experts of a layer."""

    def __init__(self, experts=4, hidden=16, intermediate=32):
        super().__init__()
        shapes = ((2 * intermediate, hidden), (hidden, intermediate))
        gate_up, down = (torch.nn.Parameter(drawn(experts, *x)) for x in shapes)
        self.gate_up_proj, self.down_proj = gate_up, down
        self.act_fn = torch.nn.SiLU()


def test_a_model_gets_sparse_experts():
    torch.manual_seed(2)
    model = torch.nn.ModuleDict({"a": Stacked(), "b": Stacked()})
    with pytest.warns(ft.PruningWarning):
        ft.experts(model, skip="b", quantize="fp8")
    assert isinstance(model["a"], ft.SparseExperts)
    assert isinstance(model["b"], Stacked)
    names = [each.name for each in ft.pruning_report(model).layers]
    assert names == ["a.gate_up_proj", "a.down_proj"]
    scale = model["a"].gate_up_scale
    assert torch.equal(model.half()["a"].gate_up_scale, scale)
    state = model["a"].state_dict()
    assert {"gate_up_packed", "down_packed", "down_scale"} <= set(state)


def test_what_is_no_expert():
    with pytest.raises(BadCall, match="no stacked experts"):
        ft.experts(torch.nn.Sequential(torch.nn.Linear(4, 4)))
    with pytest.raises(ShapeError, match="so gate_up must be"):
        ft.SparseExperts.from_weights(drawn(2, 8, 64), drawn(2, 8, 64))
    wrong = Stacked()
    wrong.down_proj = torch.nn.Parameter(drawn(4, 16, 8))
    with pytest.raises(ShapeError, match="experts a: down is"):
        ft.experts(torch.nn.ModuleDict({"a": wrong}))
