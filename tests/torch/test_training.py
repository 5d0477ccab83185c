"""Layers whose kept values are trained: forward, backward, optimisers, files."""

import copy
import itertools
import warnings
from pathlib import Path

import pytest
import torch

import fragmenta as fm
import fragmenta.torch as ft
from fragmenta.hopper.torch.matrix import DTYPES, granularity_of
from fragmenta.hopper.torch.training import (
    gather_kept_on_cpu,
    kept_to_dense_on_cpu,
    transposable_mask,
    transposable_patterns,
)

TYPES = ("bf16", "f16", "tf32")


def whole(kind, *shape, most=3, seed=0):
    """Small whole numbers: every product and sum of them is exact."""
    draw = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randint(-most, most + 1, shape, generator=draw).to(kind)


def trained(name, columns=46, rows=22, transposable=False, **options):
    """A layer of whole numbers, and the mask of its kept places."""
    linear = torch.nn.Linear(columns, rows).to(DTYPES[name])
    with torch.no_grad():
        linear.weight.copy_(whole(DTYPES[name], rows, columns))
        linear.bias.copy_(whole(DTYPES[name], rows))
    layer = ft.SparseLinear.from_linear(
        linear, prune=True, train=True, transposable=transposable, **options
    )
    ones = torch.ones_like(layer.weight_values)
    mask = kept_to_dense_on_cpu(ones, layer.weight_codes, name, columns)
    return layer, mask.bool()


def dense_of(layer, values):
    """The kept values of a layer, or their gradients, at their places."""
    kind = DTYPES[layer.weight_type]
    return kept_to_dense_on_cpu(
        values.detach().to(kind),
        layer.weight_codes,
        layer.weight_type,
        layer.in_features,
    ).double()


# ── masks ───────────────────────────────────────────────────────────────────


def test_there_are_ninety_patterns():
    for chunk, count in ((4, 90), (2, 2)):
        patterns = transposable_patterns(chunk)
        assert len({tuple(each.flatten().tolist()) for each in patterns}) == count
        for axis in (1, 2):
            assert (patterns.sum(axis) == chunk // 2).all()


def test_the_mask_is_the_best_there_is():
    """Against every choice of two columns in each of four rows."""
    weight = torch.randn(12, 8, generator=torch.Generator().manual_seed(0))
    mask = transposable_mask(weight)
    pairs = list(itertools.combinations(range(4), 2))
    for top in range(0, 12, 4):
        for left in range(0, 8, 4):
            block = weight[top : top + 4, left : left + 4].abs().tolist()
            best = 0.0
            for rows in itertools.product(pairs, repeat=4):
                counts = [sum(c in row for row in rows) for c in range(4)]
                if counts == [2, 2, 2, 2]:
                    sums = (block[r][c] for r, row in enumerate(rows) for c in row)
                    best = max(best, sum(sums))
            kept = mask[top : top + 4, left : left + 4]
            found = weight[top : top + 4, left : left + 4].abs()[kept].sum().item()
            assert kept.sum(0).tolist() == kept.sum(1).tolist() == [2, 2, 2, 2]
            assert found == pytest.approx(best, rel=1e-6)


def test_a_mask_that_fits_is_kept():
    patterns = transposable_patterns(4)
    draw = torch.Generator().manual_seed(1)
    chosen = patterns[torch.randint(0, 90, (4, 5), generator=draw)]
    mask = chosen.swapaxes(1, 2).reshape(16, 20)
    linear = torch.nn.Linear(20, 16).bfloat16()
    linear.weight.data.mul_(mask)
    layer = ft.SparseLinear.from_linear(
        linear, prune=False, train=True, transposable=True
    )
    assert layer.pruning.state == "kept"
    assert torch.equal(layer.weight.to_dense(), linear.weight)
    linear.weight.data[0, :4] = torch.tensor([0, 1, 1, 0])
    linear.weight.data[1, :4] = torch.tensor([0, 1, 1, 0])
    linear.weight.data[2, :4] = torch.tensor([0, 1, 1, 0])
    with pytest.raises(fm.errors.NotSparse, match="2:4 in both directions"):
        ft.SparseLinear.from_linear(linear, prune=False, train=True, transposable=True)


def test_a_mask_needs_finite_weights():
    linear = torch.nn.Linear(8, 8).bfloat16()
    linear.weight.data[0, 0] = torch.inf
    with pytest.raises(fm.Error, match="NaN or infinity"):
        ft.SparseLinear.from_linear(linear, prune=True, train=True, transposable=True)


# ── gradients ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("transposable", [False, True])
@pytest.mark.parametrize("name", TYPES)
def test_both_products_of_the_backward_pass(name, transposable):
    """Exactly those of a dense layer with a mask, for whole numbers."""
    layer, mask = trained(name, transposable=transposable)
    kind = DTYPES[name]
    x = whole(kind, 2, 5, 46).requires_grad_()
    y = layer(x)
    gradient = whole(kind, *y.shape, most=2)
    y.backward(gradient)
    weight = dense_of(layer, layer.weight_values).requires_grad_()
    theirs = x.detach().double().requires_grad_()
    bias = layer.bias.detach().double().requires_grad_()
    wanted = torch.nn.functional.linear(theirs, weight * mask, bias)
    wanted.backward(gradient.double())
    assert torch.equal(y.double(), wanted)
    assert torch.equal(x.grad.double(), theirs.grad)
    assert torch.equal(layer.bias.grad.double(), bias.grad)
    assert torch.equal(dense_of(layer, layer.weight_values.grad), weight.grad)
    assert layer.weight_values.grad.dtype == kind
    if transposable:
        chunk = granularity_of(name).chunk
        blocks = mask[: 22 // chunk * chunk].T.reshape(46, -1, chunk)
        assert (blocks.sum(-1) <= chunk // 2).all()


def test_gradcheck():
    """The layer is linear, so that a difference of whole numbers is the gradient."""
    for transposable in (False, True):
        layer, _ = trained("tf32", 6, 4, transposable)
        inputs = (whole(torch.float32, 3, 6), layer.weight_values, layer.bias)

        def call(x, values, bias, layer=layer):
            state = {"weight_values": values, "bias": bias}
            return torch.func.functional_call(layer, state, (x,))

        given = tuple(each.detach().requires_grad_() for each in inputs)
        with warnings.catch_warnings(action="ignore"):  # they are not float64
            assert torch.autograd.gradcheck(call, given, eps=1.0, atol=0, rtol=0)


def test_only_what_is_asked_for():
    layer, _ = trained("bf16")
    x = whole(torch.bfloat16, 3, 46)
    layer(x).sum().backward()
    assert x.grad is None
    layer.requires_grad_(False)
    assert not layer(x).requires_grad
    with torch.no_grad():
        assert not layer(x).requires_grad
    frozen = torch.nn.Linear(8, 8).bfloat16().requires_grad_(False)
    frozen.bias.requires_grad_()
    made = ft.SparseLinear.from_linear(frozen, prune=True, train=True)
    assert not made.weight_values.requires_grad
    assert made.bias.requires_grad


def test_a_second_derivative_is_refused():
    layer, _ = trained("tf32", 8, 4, transposable=True)
    x = whole(torch.float32, 3, 8).requires_grad_()
    (first,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    with pytest.raises(fm.Error, match="no backward pass"):
        first.sum().backward()


@pytest.mark.parametrize("transposable", [False, True])
def test_compiled(transposable):
    layer, _ = trained("bf16", transposable=transposable)
    other = copy.deepcopy(layer)
    compiled = torch.compile(other, fullgraph=True, backend="aot_eager")
    for rows in (5, 9):
        x = whole(torch.bfloat16, rows, 46).requires_grad_()
        again = x.detach().clone().requires_grad_()
        y, wanted = compiled(again), layer(x)
        assert torch.equal(y, wanted)
        y.sum().backward()
        wanted.sum().backward()
        assert torch.equal(again.grad, x.grad)
        assert torch.equal(other.weight_values.grad, layer.weight_values.grad)


def test_the_operators_are_well_formed():
    layer, _ = trained("bf16", 48, 16)
    values, codes = layer.weight_values.detach(), layer.weight_codes
    dense, ops = whole(torch.bfloat16, 16, 48), torch.ops.fragmenta
    x, bias = whole(torch.bfloat16, 3, 48), layer.bias.detach()
    linear = (x, values, codes, bias, "bf16", torch.bfloat16, False, [])
    for each, given in (
        (ops.pack_kept, (values, codes, "bf16", 48, True)),
        (ops.kept_to_dense, (values, codes, "bf16", 48)),
        (ops.gather_kept, (dense, codes, "bf16")),
        (ops.kept_linear, linear),
    ):
        torch.library.opcheck(
            each.default,
            given,
            test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
        )
    with pytest.raises(fm.errors.ShapeError, match="the kept values of 48 columns"):
        ops.pack_kept(values[:, :-1], codes, "bf16", 48, False)
    with pytest.raises(fm.errors.ShapeError, match="their codes must be uint8"):
        ops.pack_kept(values, codes[:-1], "bf16", 48, False)


# ── training ────────────────────────────────────────────────────────────────


def test_an_optimiser_has_half_the_elements():
    layer, mask = trained("bf16", transposable=True)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.5)
    before = layer.weight.to_dense()
    layer(whole(torch.bfloat16, 9, 46)).float().square().sum().backward()
    optimiser.step()
    for parameter, state in optimiser.state.items():
        assert state["exp_avg"].shape == parameter.shape
    assert layer.weight_values.shape == (22, 24)  # 46 columns: the last two are padded
    after = layer.weight.to_dense()
    assert not torch.equal(before, after)
    assert not after[~mask].any()
    x = whole(torch.bfloat16, 3, 46)
    wanted = torch.nn.functional.linear(x.float(), after.float(), layer.bias)
    torch.testing.assert_close(layer(x).float(), wanted, atol=0.05, rtol=0.02)


def test_whoever_changes_the_values_is_seen():
    """Also those that PyTorch does not count."""
    layer, _ = trained("bf16")
    x = whole(torch.bfloat16, 3, 46)
    before = layer(x) - layer.bias
    layer.weight_values.data.mul_(2)
    assert torch.equal(layer(x) - layer.bias, 2 * before)


def test_a_model_learns():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)
    )
    model = ft.linears(model, prune=True, dtype=torch.bfloat16, train=True)
    assert model[0].weight_values.dtype == torch.float32
    x, wanted = torch.randn(64, 32), torch.randn(64, 8)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        loss = (model(x) - wanted).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("transposable", [False, True])
def test_state_dict_round_trip(tmp_path, transposable):
    layer, _ = trained("f16", transposable=transposable)
    torch.save(layer.state_dict(), tmp_path / "state")
    kind = {"dtype": torch.float16, "train": True, "transposable": transposable}
    other = ft.SparseLinear(46, 22, **kind)
    assert not other.weight.to_dense().any()
    other.load_state_dict(torch.load(tmp_path / "state"))
    x = whole(torch.float16, 3, 46)
    assert torch.equal(other(x), layer(x))
    names = {"weight_values", "weight_codes", "bias", "_extra_state"}
    assert set(layer.state_dict()) == names
    assert {name for name, _ in layer.named_parameters()} == {"weight_values", "bias"}
    kind["transposable"] = not transposable
    with pytest.raises(RuntimeError, match="the state is from a layer with"):
        ft.SparseLinear(46, 22, **kind).load_state_dict(layer.state_dict())
    state = layer.state_dict()
    state["weight_codes"] = torch.zeros_like(state["weight_codes"])
    with pytest.raises(RuntimeError, match="codes of a trained weight are illegal"):
        other.load_state_dict(state)
    assert torch.equal(other(x), layer(x))


def test_frozen_and_trained_again():
    model = torch.nn.Sequential(torch.nn.Linear(46, 22), torch.nn.Linear(22, 6))
    model = ft.linears(model.bfloat16(), prune=True, train=True, skip="1")
    x = whole(torch.bfloat16, 3, 46)
    wanted, report = model(x), str(ft.pruning_report(model))
    assert ft.freeze(model) is model
    assert not model[0].trained
    assert set(model[0].state_dict()) == {"weight_packed", "bias", "_extra_state"}
    assert torch.equal(model(x), wanted)
    assert str(ft.pruning_report(model)) == report
    with pytest.raises(fm.Error, match=r"linears\(model, train=True\)"):
        model[0](x.requires_grad_()).sum().backward()
    ft.linears(model, prune=False, train=True, skip="1")
    assert torch.equal(model(x), wanted)
    model(x).sum().backward()
    assert model[0].weight_values.grad.any()
    layer, _ = trained("tf32")
    assert torch.equal(ft.freeze(layer)(x.float()), layer(x.float()))


def test_files_of_trained_layers(tmp_path):
    model = torch.nn.Sequential(trained("bf16", 48)[0])
    ft.save_sparse(model, tmp_path / "model.safetensors")
    plain = torch.nn.Sequential(torch.nn.Linear(48, 22).bfloat16())
    again = ft.load_sparse(plain, tmp_path / "model.safetensors")
    assert torch.equal(again[0].weight.to_dense(), model[0].weight.to_dense())


def test_copies_and_names():
    layer, _ = trained("bf16", transposable=True)
    x = whole(torch.bfloat16, 3, 46)
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    assert layer.eval()(x).requires_grad
    assert repr(layer) == (
        "SparseLinear(in_features=46, out_features=22, bias=True, weight=bf16 2:4, "
        "train=True, transposable=True)"
    )
    traced = torch.fx.symbolic_trace(torch.nn.Sequential(layer))
    assert torch.equal(traced(x), layer(x))


def test_what_cannot_be_trained():
    linear = torch.nn.Linear(8, 8)
    with pytest.raises(fm.Error, match="quantised layer cannot be trained"):
        ft.linears(linear, prune=True, train=True, quantize="fp8")
    with pytest.raises(fm.Error, match="give train=True"):
        ft.linears(linear, prune=True, transposable=True)
    with pytest.raises(fm.Error, match="train must be True or False; given 1"):
        ft.linears(linear, prune=True, train=1)
    with pytest.raises(fm.Error, match="bf16, f16 or tf32 can be trained; given e4m3"):
        ft.SparseLinear(8, 8, dtype=torch.float8_e4m3fn, train=True)
    quantised = torch.nn.Sequential(ft.linears(linear, prune=True, quantize="fp8"))
    with pytest.raises(fm.Error, match=r"layer 0: .* can be trained; given e4m3"):
        ft.linears(quantised, train=True)


# ── types ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("train", [False, True])
def test_a_float32_model_with_weights_of_sixteen_bits(train):
    linear = torch.nn.Linear(48, 24)
    linear.weight.data.copy_(whole(torch.float32, 24, 48))
    linear.bias.data.zero_()
    layer = ft.SparseLinear.from_linear(
        linear, prune=True, dtype=torch.bfloat16, train=train
    )
    assert layer.weight_type == "bf16"
    assert str(layer.weight.granularity) == "2:4"
    x = whole(torch.float32, 5, 48)
    y = layer(x)
    assert y.dtype == torch.float32
    dense = layer.weight.to_dense().float()
    assert torch.equal(y, x @ dense.T)
    assert layer(x.half()).dtype == torch.float16
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    if train:
        assert layer.weight_values.dtype == torch.float32
        y.sum().backward()
        assert layer.weight_values.grad.dtype == torch.float32
        assert torch.equal(ft.freeze(layer)(x), y)
    kind = {"dtype": torch.bfloat16, "model_dtype": torch.float32, "train": train}
    other = ft.SparseLinear(48, 24, **kind)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), y)


def test_the_trained_values_of_a_float32_model_are_not_rounded():
    linear = torch.nn.Linear(16, 4)
    layer = ft.SparseLinear.from_linear(
        linear, prune=True, dtype=torch.float16, train=True
    )
    values = gather_kept_on_cpu(linear.weight.detach(), layer.weight_codes, "f16")
    assert torch.equal(layer.weight_values, values)
    assert not torch.equal(values, values.half().float())


def test_dtype_is_refused_where_it_makes_no_sense():
    linear = torch.nn.Linear(8, 8)
    for kind in (torch.float8_e4m3fn, torch.float64, "bf16"):
        with pytest.raises(fm.Error, match="bfloat16, float16 or float32"):
            ft.linears(linear, prune=True, dtype=kind)
    with pytest.raises(fm.Error, match="leave dtype out"):
        ft.linears(linear, prune=True, dtype=torch.bfloat16, quantize="int8")
    linear.weight.data[0, 0] = 1e6
    with pytest.raises(fm.errors.ValueRangeError, match=r"too large for torch.float16"):
        ft.linears(linear, prune=True, dtype=torch.float16)


def test_the_warning_says_what_becomes_of_float32():
    with pytest.warns(ft.PruningWarning, match=r"tf32, which is 1:2 .* dtype=torch"):
        ft.linears(torch.nn.Linear(8, 8))
    with pytest.warns(ft.PruningWarning) as said:
        ft.linears(torch.nn.Linear(8, 8), dtype=torch.bfloat16)
    assert "tf32" not in str(said[0].message)


@pytest.mark.parametrize("train", [False, True])
def test_another_type_is_refused(train):
    layer = ft.SparseLinear(8, 4, train=train)
    for change in ("half", "float", "double"):
        with pytest.raises(fm.Error, match="has a weight of bf16, and cannot become"):
            getattr(layer, change)()
    with pytest.raises(fm.Error, match=r"linears\(model, dtype=torch.float16\)"):
        torch.nn.Sequential(layer).to(torch.float16)
    x = torch.ones(2, 8, dtype=torch.bfloat16)
    assert layer.bfloat16()(x).shape == (2, 4)
    assert layer.to("cpu", torch.bfloat16) is layer
    assert layer.to("meta")(x.to("meta")).is_meta


# ── the example ─────────────────────────────────────────────────────────────


def test_the_example_runs(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    import finetune_sparse
    import prune_model

    monkeypatch.setattr(prune_model, "TESTED", 64)
    scores = finetune_sparse.experiment(dense_steps=30, steps=2, batch=16)
    assert len(scores) == 7
    for name in ("rows", "both directions"):
        tuned, frozen = (
            scores[f"2:4 along {name}, {state}"] for state in ("fine-tuned", "frozen")
        )
        assert tuned == frozen
    assert "202,762 pairs of moments for 399,370 weights" in capsys.readouterr().out
