"""Layers of 4-bit integers multiply many rows with weights of 8 or 16 bits."""

import copy

import pytest
import torch

import fragmenta.torch as ft
from fragmenta.errors import BadCall
from fragmenta.hopper.kernels.widening import FALLBACKS
from fragmenta.hopper.torch.weights import relative_error

FEW, MANY = 40, 150  # rows of x: below and above the limits of weights that are kept
KINDS = [("int4", 128), ("int4", 0), ("int4-fp8", 64), ("int4-fp8", 0)]


def linear(dtype=torch.bfloat16, bias=True):
    torch.manual_seed(0)
    return torch.nn.Linear(192, 70, bias=bias).to(dtype)


def layer(quantize, group, fallback, dtype=torch.bfloat16, **more):
    options = {"prune": True, "quantize": quantize, "group": group} | more
    return ft.SparseLinear.from_linear(linear(dtype), fallback=fallback, **options)


def rows(count, dtype=torch.bfloat16):
    torch.manual_seed(1)
    return torch.randn(count, 192).to(dtype)


@pytest.mark.parametrize(("quantize", "group"), KINDS)
def test_few_rows_have_the_bits_of_the_integers(quantize, group):
    x = rows(FEW)
    plain = layer(quantize, group, None)(x)
    for fallback in FALLBACKS:
        assert torch.equal(layer(quantize, group, fallback)(x), plain)


@pytest.mark.parametrize(("quantize", "group"), KINDS)
def test_many_rows_mean_the_same(quantize, group):
    x = rows(MANY)
    plain = layer(quantize, group, None)(x)
    kept = layer(quantize, group, "kept")
    assert kept.multiplied_as(x) == ("e4m3" if "fp8" in quantize else "bf16")
    y = kept(x)
    assert y.dtype == plain.dtype
    # bf16 results; e4m3 weights with scales have four bits.
    most = 0.03 if (quantize, bool(group)) == ("int4-fp8", True) else 0.004
    assert relative_error(y, plain) < most
    wanted = x.float() @ kept.dense_weight().T + kept.bias
    apart = relative_error(y, wanted), relative_error(plain, wanted)
    assert apart[0] < 1.1 * apart[1] + most


def test_integers_with_one_scale_are_exact():
    """What differs is what the tensor core cuts off, less if sums are promoted."""
    x = rows(MANY)
    options = {"out_dtype": torch.float32}
    four = layer("int4-fp8", 0, None, **options)(x)
    for promote in (False, True):
        kept = layer("int4-fp8", 0, "kept", promote=promote, **options)
        assert torch.equal(kept.dense_weight(), layer("int4", 0, None).dense_weight())
        assert 0 < relative_error(kept(x), four) < 2e-4
    bf16 = layer("int4", 0, "kept", **options)(x)
    assert relative_error(bf16, layer("int4", 0, None, **options)(x)) < 1e-6


@pytest.mark.parametrize(("quantize", "rest"), [("int4", 1600), ("int4-fp8", 1100)])
def test_made_or_kept_have_the_same_bits(quantize, rest):
    x = rows(rest)
    made, kept = (layer(quantize, 128, each) for each in FALLBACKS)
    assert made.multiplied_as(x) == kept.multiplied_as(x) != made.weight_type
    assert made.multiplied_as(x[:MANY]) == made.weight_type
    assert torch.equal(made(x), kept(x))


def test_weights_are_of_the_type_of_x():
    x = rows(MANY, torch.float16)
    halves = layer("int4", 64, "kept", torch.float16)
    assert halves._wide_type == "f16"
    others = layer("int4", 64, "kept")  # keeps bf16, so that f16 is made
    others.load_state_dict(halves.state_dict())
    assert others.multiplied_as(x) == "f16"
    assert torch.equal(others(x), halves(x))
    wide = layer("int4", 64, "kept", torch.float32)(rows(MANY, torch.float32))
    assert wide.dtype == torch.float32


def test_scales_that_are_large_do_not_overflow():
    x = rows(MANY, torch.float16)
    large = linear(torch.float16)
    large.weight.data *= 4e5
    made = [
        ft.SparseLinear.from_linear(
            large, prune=True, quantize="int4", out_dtype=torch.float32, fallback=each
        )
        for each in (None, "kept")
    ]
    assert relative_error(made[1](x), made[0](x)) < 1e-3


@pytest.mark.parametrize("fallback", FALLBACKS)
def test_compiled(fallback):
    torch._dynamo.reset()
    model = layer("int4-fp8", 64, fallback)
    many = MANY if fallback == "kept" else 1030
    compiled = torch.compile(model, backend="aot_eager", dynamic=True, fullgraph=True)
    for count in (FEW, many, 33):
        assert torch.equal(compiled(rows(count)), model(rows(count)))


def test_the_state_dict_has_the_integers_alone():
    kept = layer("int4", 128, "kept")
    state = kept.state_dict()
    assert not [name for name in state if "wide" in name]
    other = ft.SparseLinear(192, 70, quantize="int4", fallback="kept")
    x = rows(MANY)
    assert not torch.equal(other(x), kept(x))
    other.load_state_dict(state)
    assert torch.equal(other(x), kept(x))
    assert torch.equal(copy.deepcopy(other).bfloat16()(x), kept(x))


def test_bytes():
    """A weight takes 9 bits more in bf16, and 5 in fp8."""
    wide = torch.nn.Linear(512, 256)
    for quantize, bits in (("int4", 9), ("int4-fp8", 5)):
        options = {"prune": True, "quantize": quantize, "fallback": "kept"}
        kept = ft.SparseLinear.from_linear(wide, **options)
        assert 8 * kept.weight_wide.numel() == bits * 512 * 256
        assert kept.wide_powers.shape == (256,)


def test_loaded_layers_fall_back(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(384, 64).bfloat16())
    options = {"prune": True, "quantize": "int4", "fallback": "kept"}
    sparse = ft.linears(copy.deepcopy(model), **options)
    ft.save_sparse(sparse, tmp_path)
    x = torch.randn(MANY, 384).bfloat16()
    again = ft.load_sparse(copy.deepcopy(sparse), tmp_path)
    assert again[0].fallback == "kept"
    assert torch.equal(again(x), sparse(x))
    assert ft.load_sparse(model, tmp_path)[0].fallback == "made"


def test_the_report_has_the_tile_of_the_product():
    model = torch.nn.Sequential(layer("int4", 128, "kept"))
    none = torch.nn.Sequential(layer("int4", 128, None))
    tiles = [ft.report(x, rows(1000)).rows[0].tile for x in (model, none)]
    assert tiles[0] != tiles[1]


def test_what_is_refused():
    with pytest.raises(BadCall, match="'made' or 'kept', or None; given 'keep'"):
        layer("int4", 128, "keep")
    with pytest.raises(BadCall, match="fallback is for int4 or int4-fp8; given 'kept'"):
        ft.linears(linear(), prune=True, quantize="fp8", fallback="kept")
    with pytest.raises(BadCall, match="promotion is only for e4m3"):
        layer("int4", 128, "kept", promote=True)
    ops = torch.ops.fragmenta
    four = layer("int4", 128, "made")
    with pytest.raises(BadCall, match="s4-128 becomes bfloat16 or float16; given e4m3"):
        ops.widen(four.weight.data, "s4-128", 70, 192, "e4m3", None)
    with pytest.raises(BadCall, match="only 4-bit integers become wider"):
        ops.widen(four.weight.data, "bf16", 70, 192, "bf16", None)
