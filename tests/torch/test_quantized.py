"""Quantised layers: their bits, their scales, and what they are made from."""

import copy
import io
import math
import warnings

import numpy as np
import pytest
import torch

import fragmenta as fm
import fragmenta.torch as ft
from fragmenta.hopper.torch.matrix import matrix_of
from tests.torch.test_pruning import bits, masked

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]

FLOATS = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
KINDS = {"fp8": torch.float8_e4m3fn, "int8": torch.int8}


@pytest.fixture
def linear():
    torch.manual_seed(0)
    return torch.nn.Linear(96, 40).bfloat16()


@pytest.fixture
def x():
    return torch.randn(2, 3, 96, generator=torch.Generator().manual_seed(1)).bfloat16()


def made(linear, quantize="fp8", **options):
    return ft.SparseLinear.from_linear(linear, prune=True, quantize=quantize, **options)


# ── rows ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("quantize", KINDS)
@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_rows_are_those_of_quantize(kind, quantize):
    x = torch.randn(5, 37, generator=torch.Generator().manual_seed(0)).to(kind)
    x[3] = 0
    values, scales = ft.quantize_rows(x, quantize)
    op = {"fp8": "e4m3", "int8": "s8"}[quantize]
    q = fm.quant.quantize(op, matrix_of(x, FLOATS[kind]), per="row")
    assert values.dtype == KINDS[quantize]
    assert values.stride() == (48, 1)  # a product reads it as it is
    np.testing.assert_array_equal(bits(values).numpy(), q.values.view(np.uint8))
    np.testing.assert_array_equal(scales.numpy(), q.scales[:, 0])
    assert scales[3] == 1


def test_rows_of_any_axes_and_none():
    x = torch.randn(2, 3, 16)
    values, scales = ft.quantize_rows(x)
    assert (values.shape, scales.shape) == ((2, 3, 16), (2, 3))
    flat, factors = ft.quantize_rows(x.reshape(6, 16))
    assert torch.equal(bits(values).reshape(6, 16), bits(flat))
    assert torch.equal(scales.reshape(6), factors)
    values, scales = ft.quantize_rows(x[:0].reshape(0, 16), "int8")
    assert (values.shape, scales.shape) == ((0, 16), (0,))


@pytest.mark.parametrize("quantize", KINDS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("static", [None, 0.02])
def test_a_bad_row_gives_nan_and_no_other_row_does(linear, quantize, bad, static):
    layer = made(linear, quantize, activation_scale=static)
    x = torch.randn(3, 96).bfloat16()
    good = layer(x)
    x[1, 50] = bad
    found = layer(x)
    assert found[1].isnan().all()
    assert torch.equal(found[::2], good[::2])


@pytest.mark.parametrize(
    "given, options, said",
    [
        (torch.ones(2, 4).double(), {}, "x must be float32, bfloat16 or float16"),
        (torch.ones(2, 4).to(torch.float8_e4m3fn), {}, "given torch.float8_e4m3fn"),
        (torch.ones(2, 0), {}, "a matrix with columns"),
        (torch.tensor(1.0), {}, "at least one axis"),
        ([1.0], {}, "x must be a tensor"),
        (torch.ones(2, 4), {"quantize": "int4"}, "quantize must be fp8 or int8"),
        (torch.ones(2, 4), {"scale": 0.5}, "scale must be a tensor; given a float"),
        (
            torch.ones(2, 4),
            {"scale": torch.ones(2)},
            "scale must be one float32 on cpu",
        ),
    ],
)
def test_rows_that_are_refused(given, options, said):
    with pytest.raises(fm.Error, match=said):
        ft.quantize_rows(given, **options)


# ── layers ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("quantize", KINDS)
@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_a_layer_is_a_product_of_quantised_rows(linear, x, quantize, kind):
    linear, x = linear.to(kind), x.to(kind)
    layer = made(linear, quantize)
    assert layer.weight.dtype == KINDS[quantize]
    values, scales = ft.quantize_rows(x, quantize)
    want = ft.sparse_linear(
        values,
        layer.weight,
        layer.bias,
        scale_x=scales.reshape(-1),
        scale_weight=layer.weight_scale,
        out_dtype=kind,
    )
    assert torch.equal(layer(x), want)
    dense = torch.nn.functional.linear(
        x.float(), layer.dense_weight(), linear.bias.float()
    )
    error = (layer(x).float() - dense).norm() / dense.norm()
    assert 0 < error < {"fp8": 0.05, "int8": 0.02}[quantize]


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_the_weight_is_pruned_before_it_is_rounded(kind):
    """1 and 1.01 become the same element; the larger one is kept, in a higher place."""
    weight = torch.zeros(2, 8)
    weight[0, :4] = torch.tensor([1.0, 1.01, -1.02, 0.0])
    weight[1] = torch.tensor([3.0, 0.0, 0.0, 0.0, 448.0, 1.0, 2.0, 1.0])
    linear = torch.nn.Linear(8, 2, bias=False)
    linear.weight.data = weight.to(kind)
    layer = made(linear, "fp8")
    assert (layer.weight.to_dense()[0, :4] != 0).tolist() == [False, True, True, False]
    assert layer.weight_scale.tolist() == [
        pytest.approx(1.02 / 448, rel=0.01),
        1.0,
    ]
    assert layer.weight.to_dense()[1].float().tolist() == [3, 0, 0, 0, 448, 0, 2, 0]
    assert layer.pruning.dropped == 3
    assert layer.pruning.state == "pruned"
    assert 0 <= layer.pruning.weight_error < 0.04


def test_float32_weights_are_2_of_4_and_not_1_of_2():
    linear = torch.nn.Linear(4, 1, bias=False)
    linear.weight.data = torch.tensor([[1.0, 2.0, 0.0, 0.0]])
    layer = ft.SparseLinear.from_linear(linear, prune=False, quantize="int8")
    assert layer.pruning.state == "kept"
    assert layer.weight.to_dense().tolist() == [[64, 127, 0, 0]]
    linear.weight.data = torch.ones(1, 4)
    with pytest.raises(fm.errors.NotSparse, match="2 elements are too many for 2:4"):
        ft.SparseLinear.from_linear(linear, prune=False, quantize="int8")


def test_small_weights_that_round_to_zero_are_not_pruned(linear):
    linear.weight.data = masked(linear.weight.data)
    linear.weight.data[:, 0] = 1000
    linear.weight.data[:, 1:4] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = ft.SparseLinear.from_linear(linear, quantize="int8")
    assert (layer.pruning.state, layer.pruning.dropped) == ("kept", 0)
    assert not layer.weight.to_dense()[:, 4:].any()
    assert layer.pruning.weight_error > 0


def test_one_scale_for_a_whole_weight(linear, x):
    layer = made(linear, "int8", scales="tensor")
    amax = layer.dense_weight().abs().max()
    assert layer.weight_scale.unique().numel() == 1
    assert torch.isclose(layer.weight_scale[0], amax / 127)
    rows = made(linear, "int8")
    assert rows.pruning.weight_error < layer.pruning.weight_error
    assert layer(x).shape == (2, 3, 40)


def test_a_static_scale(linear, x):
    layer = made(linear, activation_scale=0.02)
    values, scales = ft.quantize_rows(x, scale=torch.tensor(0.02))
    assert set(scales.reshape(-1).tolist()) == {np.float32(0.02).item()}
    want = ft.sparse_linear(
        values,
        layer.weight,
        layer.bias,
        scale_x=scales.reshape(-1),
        scale_weight=layer.weight_scale,
        out_dtype=torch.bfloat16,
    )
    assert torch.equal(layer(x), want)
    big = layer(1e4 * x)  # far beyond 448 * 0.02: the largest element, not NaN
    assert big.isfinite().all()


def test_the_output_type(linear, x):
    assert made(linear)(x.half()).dtype == torch.float16
    assert made(linear, out_dtype=torch.float32)(x).dtype == torch.float32
    layer = made(linear)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(x.float()), layer(x.float()).bfloat16())
    assert layer(x[:0]).shape == (0, 3, 40)
    assert layer(x[0, 0]).shape == (40,)
    with pytest.raises(fm.errors.ShapeError, match="the last axis of x must be 96"):
        layer(x[..., :64])
    with pytest.raises(fm.Error, match="x must be float32, bfloat16 or float16"):
        layer(x.to(torch.float8_e4m3fn))


# ── what is kept ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("static", [None, 0.02])
@pytest.mark.parametrize("quantize", KINDS)
def test_state_dict_round_trip(linear, x, quantize, static):
    layer = made(linear, quantize, activation_scale=static)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = ft.SparseLinear(96, 40, quantize=quantize, static=static is not None)
    other.load_state_dict(torch.load(file))
    assert torch.equal(other(x), layer(x))
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    keys = {"weight_packed", "bias", "_extra_state", "weight_scale"}
    assert set(layer.state_dict()) == keys | ({"input_scale"} if static else set())


def test_a_state_of_another_kind_is_refused(linear):
    state = made(linear, "fp8").state_dict()
    for options in (
        {"dtype": torch.float8_e4m3fn},
        {"quantize": "int8"},
        {"quantize": "fp8", "static": True},
    ):
        with pytest.raises(RuntimeError, match="the state is from a layer with"):
            ft.SparseLinear(96, 40, **options).load_state_dict(state)


def test_a_change_of_type_leaves_the_scales(linear, x):
    layer = made(linear, activation_scale=0.017)
    before = layer(x)
    layer.half()
    assert layer.weight_scale.dtype == layer.input_scale.dtype == torch.float32
    assert torch.allclose(layer(x), before, atol=0.01)  # the bias is rounded
    assert layer.to("meta").weight_scale.is_meta


def test_what_is_printed(linear):
    assert repr(made(linear, activation_scale=1)) == (
        "SparseLinear(in_features=96, out_features=40, bias=True, weight=e4m3 2:4, "
        "quantize=fp8, static=True)"
    )


@pytest.mark.parametrize(
    "options, said",
    [
        ({"quantize": "fp4"}, r"fp8, int8, int4 or int4-fp8; given 'fp4' \(did you"),
        ({"quantize": "fp8", "scales": "column"}, "scales must be row or tensor"),
        (
            {"scales": "tensor"},
            "give quantize='fp8', 'int8', 'int4' or 'int4-fp8', too",
        ),
        ({"activation_scale": 0.1}, "give quantize='fp8', 'int8', 'int4' or 'int4-"),
        ({"group": 64}, "give quantize='fp8', 'int8', 'int4' or 'int4-"),
        ({"quantize": "fp8", "group": 64}, "group is for int4 or int4-fp8"),
        ({"quantize": "int4", "group": 48}, "32, 64 or 128 columns .* or 0"),
        ({"quantize": "int4-fp8", "group": 32}, "group is 64 or 128 columns"),
        ({"quantize": "int4", "scales": "tensor"}, "scales for groups or rows"),
        ({"quantize": "int4", "activation_scale": 0.1}, "does not quantise x"),
        ({"quantize": "fp8", "activation_scale": 0.0}, "must be above 0 and finite"),
        ({"quantize": "fp8", "activation_scale": 1e-60}, "must be above 0 and finite"),
        ({"quantize": "fp8", "activation_scale": "1"}, "must be a number"),
    ],
)
def test_options_that_are_refused(linear, options, said):
    with pytest.raises(fm.Error, match=said):
        ft.SparseLinear.from_linear(linear, prune=True, **options)


def test_other_things_that_are_refused(linear):
    with pytest.raises(fm.Error, match=r"has a weight of torch.int8; given dtype"):
        ft.SparseLinear(8, 8, quantize="int8", dtype=torch.float16)
    with pytest.raises(fm.Error, match="static is for layers that are quantised"):
        ft.SparseLinear(8, 8, static=True)
    with pytest.raises(fm.Error, match="bfloat16, float16 or float32 is quantised"):
        made(linear.double())
    with pytest.raises(fm.Error, match="a weight must have numbers"):
        made(torch.nn.Linear(8, 8, device="meta"))
    linear.bfloat16().weight.data[0, 0] = math.inf
    with pytest.raises(fm.errors.ValueRangeError, match="must be finite"):
        made(linear)


# ── whole models ────────────────────────────────────────────────────────────


@pytest.fixture
def model():
    torch.manual_seed(0)
    layers = (torch.nn.Linear(64, 96), torch.nn.GELU(), torch.nn.Linear(96, 32))
    return torch.nn.Sequential(*layers).bfloat16()


def test_linears_quantises_all_but_what_is_skipped(model):
    ft.linears(model, prune=True, quantize="int8", skip="2")
    assert model[0].quantize == "int8"
    assert type(model[2]) is torch.nn.Linear


def test_pruning_is_told_as_without_quantisation(model):
    with pytest.warns(ft.PruningWarning, match="2 of 2 sparse layers were pruned"):
        ft.linears(model, quantize="fp8")


def test_the_report_has_a_column_for_rounding(model):
    ft.linears(model, prune=True, quantize="fp8", skip="2")
    report = ft.pruning_report(model)
    titles, first, second, _ = str(report).splitlines()
    assert titles.split()[5] == "rounding"
    assert first.split()[4] == f"{report.layers[0].weight_error:.4f}"
    assert second.split()[4:6] == ["bf16", "2:4"]
    assert report.to_dict()["layers"][0]["weight_error"] > 0.01
    assert "lost by rounding" in str(report.layers[0])


def test_calibrated_scales(model):
    model = model.float().requires_grad_(False)
    batches = [torch.randn(4, 64) for _ in range(3)]
    scales = ft.calibrate(model, iter(batches))
    assert list(scales) == ["0", "2"]
    most = max(float(x.abs().max()) for x in batches)
    assert scales["0"] == float(np.float32(most) / np.float32(448))
    inner = max(float(model[:2](x).abs().max()) for x in batches)
    assert scales["2"] == float(np.float32(inner) / np.float32(448))
    assert not model[0]._forward_pre_hooks
    dynamic = ft.linears(copy.deepcopy(model), prune=True, quantize="fp8")
    static = ft.linears(model, prune=True, quantize="fp8", activation_scales=scales)
    assert float(static[0].input_scale) == scales["0"]
    x = batches[0]
    assert torch.allclose(static(x), dynamic(x), atol=0.1)


def test_calibration_takes_all_kinds_of_batches(model):
    class Named(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.unused = model[0], torch.nn.Linear(4, 4)

        def forward(self, a, b):
            return self.inner(input=a + b)

    one, two = torch.ones(1, 64).bfloat16(), 2 * torch.ones(1, 64).bfloat16()
    found = ft.calibrate(Named(), [(one, one), {"a": one, "b": two}], quantize="int8")
    assert found == {"inner": float(np.float32(3) / np.float32(127))}


def test_calibration_that_is_refused(model):
    with pytest.raises(fm.Error, match="put it in a list"):
        ft.calibrate(model, torch.ones(1, 64))
    with pytest.raises(fm.Error, match="at least one batch"):
        ft.calibrate(model, [])
    with pytest.raises(fm.Error, match="no layers to calibrate"):
        ft.calibrate(torch.nn.GELU(), [torch.ones(1)])
    bad = torch.full((1, 64), math.nan).bfloat16()
    with pytest.raises(
        fm.errors.ValueRangeError, match="layer 0 has an input with NaN"
    ):
        ft.calibrate(model, [bad])
    for scales, said in (
        ({"0.weight": 1.0}, "there is no Linear 0.weight"),
        ([1.0], "must be a dict"),
        ({"0": -1.0}, "the activation scale of 0 must be above 0"),
    ):
        with pytest.raises(fm.Error, match=said):
            ft.linears(model, prune=True, quantize="fp8", activation_scales=scales)
    with pytest.raises(fm.Error, match="give quantize"):
        ft.linears(model, prune=True, activation_scales={"0": 1.0})
    assert type(model[0]) is torch.nn.Linear


@pytest.mark.parametrize(
    "options, said",
    [
        ({"quantize": "fp8", "out_dtype": torch.int8}, "layer 0: out_dtype must be"),
        ({"quantize": "int8", "out_dtype": torch.int32}, "layer 0: .* if it is scaled"),
        ({"quantize": "int8", "promote": True}, "layer 0: promotion is only for"),
        ({"quantize": "fp8", "promote": "x"}, "layer 0: promote must be True or False"),
        ({"quantize": "fp8", "activation_scales": 0.0}, "must be a dict"),
        ({"quantize": "fp8", "activation_scales": []}, "must be a dict"),
        ({"skip": None}, "skip must be names .* given None"),
        ({"skip": 3}, "skip must be names .* given 3"),
        ({"least": -1}, "least must be a number of weights"),
        ({"least": math.nan}, "least must be a number of weights"),
        ({"least": None}, "least must be a number of weights"),
    ],
)
def test_an_option_is_refused_before_a_layer_is_made(model, options, said):
    with pytest.raises(fm.Error, match=said):
        ft.linears(model, prune=True, **options)
    assert type(model[0]) is torch.nn.Linear


def test_what_is_no_model_and_no_batches(model):
    for name, rest in (
        ("linears", ()),
        ("pruning_report", ()),
        ("report", (1,)),
        ("calibrate", ([],)),
    ):
        with pytest.raises(fm.Error, match=f"{name} takes a model; given a int"):
            getattr(ft, name)(3, *rest)
    with pytest.raises(fm.Error, match="iterable of batches; given a int"):
        ft.calibrate(model, 3)

    class Data(torch.utils.data.Dataset):
        def __getitem__(self, at):
            return [torch.ones(1, 64).bfloat16()][at]

    assert ft.calibrate(model, Data())["0"] == float(np.float32(1) / np.float32(448))


@pytest.mark.parametrize("quantize", [None, "fp8", "int8"])
def test_shapes_are_known_without_memory(model, quantize):
    x = torch.empty(5, 64, dtype=torch.bfloat16)
    layers = ft.linears(model, prune=True, quantize=quantize)
    with pytest.raises(fm.Error, match="the weight is on cpu and x on meta"):
        layers(x.to("meta"))
    found = layers.to("meta")(x.to("meta"))
    assert (found.shape, found.dtype) == ((5, *model[-1].bias.shape), torch.bfloat16)


# ── compilers of PyTorch ────────────────────────────────────────────────────


def test_compiled_exported_and_traced(model):
    scales = {"0": 0.01}
    ft.linears(model, prune=True, quantize="fp8", activation_scales=scales)
    x = torch.randn(3, 64).bfloat16()
    with torch.no_grad():
        want = model(x)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(x), want)
        dynamic = torch.export.Dim("n", min=2, max=64)
        program = torch.export.export(model, (x,), dynamic_shapes=({0: dynamic},))
        assert torch.equal(program.module()(x), want)
        longer = torch.randn(9, 64).bfloat16()
        assert torch.equal(program.module()(longer), model(longer))
        assert torch.equal(torch.fx.symbolic_trace(model)(x), want)


def test_names_do_not_depend_on_compilation(model, tmp_path):
    x = torch.randn(3, 64).bfloat16()
    dense = copy.deepcopy(model)
    compiled = torch.compile(model, backend="eager")
    scales = ft.calibrate(compiled, [x])
    ft.linears(compiled, prune=True, quantize="fp8", activation_scales=scales)
    assert [each.name for each in ft.pruning_report(compiled).layers] == ["0", "2"]
    want = model(x)
    assert torch.equal(compiled(x), want)
    ft.save_sparse(compiled, tmp_path)
    assert torch.equal(ft.load_sparse(copy.deepcopy(dense), tmp_path)(x), want)
    again = ft.load_sparse(torch.compile(dense, backend="eager"), tmp_path)
    assert torch.equal(again(x), want)


def test_a_compiled_linear_is_not_replaced(tmp_path):
    """It would show a sparse layer and go on to call the dense one."""
    compiled = torch.compile(torch.nn.Linear(8, 4), backend="eager")
    with pytest.raises(fm.Error, match="linears cannot replace a Linear that is comp"):
        ft.linears(compiled, prune=True, quantize="fp8")
    with pytest.raises(fm.Error, match="load_sparse cannot replace a Linear that"):
        ft.load_sparse(compiled, tmp_path)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_named_as_such(linear):
    with pytest.raises(fm.Error, match="x must be a dense tensor; given a nested one"):
        made(linear)(torch.nested.nested_tensor([torch.ones(2, 96)]))


def test_no_gradient_is_told_so(linear, x):
    layer = made(linear)
    with pytest.raises(fm.Error, match="for inference"):
        layer(x.requires_grad_()).sum().backward()


# ── 4-bit integers ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("group", [0, 32, 64, 128])
@pytest.mark.parametrize(
    "kind", [torch.bfloat16, torch.float16, torch.float32], ids=str
)
def test_layers_of_4_bits_multiply_what_they_say(group, kind):
    torch.manual_seed(group)
    linear = torch.nn.Linear(200, 72).to(kind)
    layer = ft.SparseLinear.from_linear(
        linear, prune=True, quantize="int4", group=group
    )
    dense = layer.dense_weight()
    kept = dense != 0
    assert (kept.reshape(72, 50, 4).sum(-1) <= 2).all()
    left = torch.where(kept, linear.weight.float(), 0)
    width = group or 200
    for at in range(0, 200, width):  # half a step of the group's scale, at most
        part = left[:, at : at + width]
        step = part.abs().amax(1, keepdim=True) / 7
        wrong = (dense[:, at : at + width] - part).abs()
        assert (wrong <= 0.502 * step + 1e-6).all()
    x = torch.randn(3, 200).to(kind)
    y = layer(x)
    assert y.dtype == kind
    given = x.to(torch.bfloat16) if kind == torch.float32 else x
    wanted = given.double() @ dense.double().T + linear.bias.double()
    assert (y.double() - wanted).abs().max() < 0.01 * wanted.abs().max()


def test_a_row_of_fp8_has_its_scale_beside_those_of_the_groups():
    torch.manual_seed(0)
    linear = torch.nn.Linear(256, 64).bfloat16()
    made = {"prune": True, "quantize": "int4-fp8"}
    layer = ft.SparseLinear.from_linear(linear, **made)
    x = torch.randn(2, 256).bfloat16()
    values, scales = ft.quantize_rows(x)
    wanted = values.float() @ layer.dense_weight().T * scales[:, None] + layer.bias
    assert (layer(x).float() - wanted).abs().max() < 0.01 * wanted.abs().max()
    x[0, 3] = torch.inf
    y = layer(x)
    assert y[0].isnan().all()
    assert y[1].isfinite().all()
    static = ft.SparseLinear.from_linear(linear, activation_scale=0.01, **made)
    assert static(x[1:]).isfinite().all()


def test_the_state_of_4_bits_is_loaded():
    torch.manual_seed(0)
    linear = torch.nn.Linear(256, 64).bfloat16()
    layer = ft.SparseLinear.from_linear(linear, prune=True, quantize="int4", group=64)
    again = ft.SparseLinear(256, 64, quantize="int4", group=64)
    again.load_state_dict(layer.state_dict())
    x = torch.randn(2, 256).bfloat16()
    assert torch.equal(again(x), layer(x))
    other = ft.SparseLinear(256, 64, quantize="int4")
    with pytest.raises(RuntimeError, match="s4-64"):
        other.load_state_dict(layer.state_dict())
    linear.weight.data[0, 0] = torch.inf
    with pytest.raises(fm.Error, match="must be finite"):
        ft.SparseLinear.from_linear(linear, prune=True, quantize="int4")
