"""Quantised weights of checkpoints keep their values and scales, or are rounded once."""

import json

import numpy as np
import pytest
import torch

import fragmenta as fm
import fragmenta.torch as ft
from fragmenta.hopper.torch.safetensors import SafeTensors, write
from fragmenta.kernels import Kernel
from tests.torch.checkpoints import Small, bitmask, by_hand, raw, sparse_weight
from tests.weights.test_marlin import marlin

# PyTorch's own, on a CPU without bf16.
pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")

GROUPS = {
    "group_0": {
        "targets": ["Linear"],
        "weights": {"num_bits": 8, "strategy": "channel"},
        "input_activations": {"num_bits": 8, "strategy": "token", "dynamic": True},
    }
}


def quantised(tmp_path, kind, groups=GROUPS, **scales):
    dense, mask = sparse_weight(32, 64, torch.float32)
    dense = (dense / 4).to(kind)
    parts = bitmask(dense, mask)
    parts["weight_scale"] = (torch.arange(32) + 1).reshape(32, 1) * 2.0**-8 + 2.0**-20
    parts |= scales
    path = tmp_path / "quantised"
    path.mkdir()
    by_hand(path / "model.safetensors", parts)
    config = {"format": "float-quantized", "config_groups": groups}
    (path / "config.json").write_text(json.dumps({"quantization_config": config}))
    return path, dense, parts


def activations(static, bits=8):
    how = (
        {"strategy": "tensor", "dynamic": False}
        if static
        else {"strategy": "token", "dynamic": True}
    )
    return {
        "group_0": {**GROUPS["group_0"], "input_activations": {"num_bits": bits, **how}}
    }


def linear_of(kind=torch.bfloat16):
    return torch.nn.Linear(64, 32, bias=False).to(kind)


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.int8], ids=str)
def test_quantised_weights_are_kept(tmp_path, kind, static):
    given = {"input_scale": torch.tensor([0.125])} if static else {}
    path, dense, parts = quantised(tmp_path, kind, activations(static), **given)
    layer = ft.load_sparse(linear_of(), path)
    assert torch.equal(raw(layer.weight.to_dense()), raw(dense))
    assert torch.equal(layer.weight_scale, parts["weight_scale"].flatten())
    assert (layer.input_scale is not None) == static
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    y = layer(x)
    exact = x.double() @ (dense.double() * parts["weight_scale"].double()).T
    assert y.dtype == torch.bfloat16
    assert (y.double() - exact).norm() < 0.1 * exact.norm()
    ft.save_sparse(layer, tmp_path / "again")
    again = SafeTensors(tmp_path / "again" / "model.safetensors")
    assert set(again) == set(parts)
    assert all(torch.equal(raw(again[name]), raw(parts[name])) for name in parts)
    assert torch.equal(ft.load_sparse(linear_of(), tmp_path / "again")(x), y)


@pytest.mark.parametrize("model", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.int8], ids=str)
def test_weights_alone_quantised_are_rounded_once(tmp_path, kind, model):
    groups = {"group_0": {**GROUPS["group_0"], "input_activations": None}}
    path, dense, parts = quantised(tmp_path, kind, groups)
    found = ft.load_sparse(linear_of(model), path).weight.to_dense()
    exact = dense.double() * parts["weight_scale"].double()
    assert found.dtype == model
    # The nearest: no neighbour is nearer.  A float32 in between would round twice.
    error = (found.double() - exact).abs()
    words = found.view(torch.int16)
    for step in (-1, 1):
        other = (words + step).view(model).double()
        nearer = ((other - exact).abs() < error) & (found != 0)
        assert not nearer.any()
    assert torch.equal(found == 0, dense.float() == 0)


@pytest.mark.parametrize(
    ("scale", "told"),
    [
        (torch.ones(3, 1), "each of 32 outputs"),
        (torch.ones(4, 8), "each of 32 outputs"),  # of blocks of 8 rows, 8 columns
        (torch.ones(1, 32), "each of 32 outputs"),
        (torch.zeros(32, 1), "positive"),
        (torch.full((1,), float("nan")), "finite"),
        (torch.ones(1).to(torch.int8), "one number, or one for each"),
    ],
)
def test_wrong_scales_are_refused(tmp_path, scale, told):
    path, _, _ = quantised(tmp_path, torch.int8, weight_scale=scale)
    with pytest.raises(fm.Error, match=told):
        ft.load_sparse(linear_of(), path)


@pytest.mark.parametrize(
    ("groups", "scale", "told"),
    [
        ({**GROUPS, "group_1": {"input_activations": None}}, 0, "ways, none and row"),
        ({"group_0": {"input_activations": {"symmetric": False}}}, 0, "zero points"),
        (activations(False, bits=4), 0, "given 4 bits, token, dynamic True"),
        (activations(True), 0, "are static, but input_scale is missing"),
        (activations(False), 1, "are row, but input_scale is given"),
        ([GROUPS], 0, "must be an object"),
    ],
)
def test_other_activations_are_refused(tmp_path, groups, scale, told):
    given = {"input_scale": torch.ones(1)} if scale else {}
    path, _, _ = quantised(tmp_path, torch.int8, groups, **given)
    with pytest.raises(fm.Error, match=told):
        ft.load_sparse(linear_of(), path)


def test_without_a_config_the_tensors_say_it(tmp_path):
    for number, given in enumerate(({}, {"input_scale": torch.ones(1)})):
        (tmp_path / str(number)).mkdir()
        path, *_ = quantised(tmp_path / str(number), torch.int8, **given)
        layer = ft.load_sparse(linear_of(), path / "model.safetensors")
        assert (layer.input_scale is not None) == bool(given)


@pytest.mark.parametrize("quantize", ["fp8", "int8"])
def test_quantised_models_are_saved(tmp_path, quantize):
    torch.manual_seed(0)
    model = ft.linears(Small(), prune=True, quantize=quantize, skip="head")
    ft.save_sparse(model, tmp_path / "x")
    config = json.loads((tmp_path / "x" / "config.json").read_text())
    (group,) = config["quantization_config"]["config_groups"].values()
    assert group["weights"]["type"] == {"fp8": "float", "int8": "int"}[quantize]
    assert group["input_activations"]["strategy"] == "token"
    again = ft.load_sparse(Small(), tmp_path / "x")
    assert again.up.quantize == quantize
    tokens = torch.tensor([0, 4])
    assert torch.equal(again(tokens), model(tokens))
    mixed = ft.linears(model, prune=True)  # the head, without scales
    with pytest.raises(fm.Error, match="layers with and without scales"):
        ft.save_sparse(mixed, tmp_path / "y")


# ── Marlin ──────────────────────────────────────────────────────────────────


def marlin_folder(tmp_path, bits, columns, version="0.9.0"):
    op, half = (Kernel(name).instruction for name in ("s8", "f16"))
    rng = np.random.default_rng(bits)
    low = 1 << bits - 1
    dense = fm.sparse.prune(op, rng.integers(-low, low, (64, columns))).astype(np.int8)
    groups = columns // 128 if columns > 128 else 1
    scales = rng.uniform(0.001, 0.002, (64, groups)).astype(np.float16)
    words, packed = marlin(fm.sparse.compress(op, dense).values, scales, bits)
    codes = fm.sparse.compress(half, dense.astype(np.float16))
    meta = fm.sparse.to_marlin(half, codes).meta.reshape(columns // 32, 128)
    path = tmp_path / "marlin"
    path.mkdir()
    parts = {"weight_packed": words, "scale_packed": packed, "meta": meta}
    write(
        path / "model.safetensors", {n: torch.from_numpy(x) for n, x in parts.items()}
    )
    config = {"format": "marlin-24", "version": version}
    (path / "config.json").write_text(json.dumps({"quantization_config": config}))
    exact = dense * scales.astype(np.float64).repeat(columns // groups, axis=1)
    return path, torch.from_numpy(exact)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=str)
def test_marlin_of_8_bits_becomes_16_bit(tmp_path, kind):
    path, exact = marlin_folder(tmp_path, 8, 384)
    layer = torch.nn.Linear(384, 64, bias=False).to(kind)
    found = ft.load_sparse(layer, path).weight.to_dense()
    assert torch.equal(found, exact.float().to(kind))  # exact in float32


@pytest.mark.parametrize("columns", [64, 384])
def test_marlin_of_4_bits_stays_what_it_is(tmp_path, columns):
    path, exact = marlin_folder(tmp_path, 4, columns)
    layer = torch.nn.Linear(columns, 64, bias=False).half()
    found = ft.load_sparse(layer, path)
    assert found.quantize == "int4"
    assert torch.equal(found.dense_weight(), exact.float())
    x = torch.randn(3, columns).half()
    wanted = x.double() @ exact.T.double()
    assert (found(x).double() - wanted).abs().max() < 2e-3 * wanted.abs().max()
    ft.save_sparse(found, tmp_path / "again")
    again = ft.load_sparse(
        torch.nn.Linear(columns, 64, bias=False).half(), tmp_path / "again"
    )
    assert torch.equal(again.weight_packed, found.weight_packed)
    assert torch.equal(again(x), found(x))
    dense = ft.load_sparse(
        torch.nn.Sequential(layer), _renamed(path, tmp_path), skip="0"
    )
    assert torch.equal(dense[0].weight, exact.float().half())


def _renamed(path, tmp_path):
    """The same checkpoint for a model whose layer is called 0."""
    parts = SafeTensors(path / "model.safetensors")
    write(tmp_path / "0.safetensors", {f"0.{name}": parts[name] for name in parts})
    return tmp_path / "0.safetensors"


@pytest.mark.parametrize(("quantize", "group"), [("int4", 128), ("int4-fp8", 0)])
def test_models_of_4_bits_are_saved(tmp_path, quantize, group):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(384, 64)).bfloat16()
    made = ft.linears(model, prune=True, quantize=quantize, group=group)
    ft.save_sparse(made, tmp_path / "x")
    fresh = torch.nn.Sequential(torch.nn.Linear(384, 64)).bfloat16()
    again = ft.load_sparse(fresh, tmp_path / "x")
    assert (again[0].quantize, again[0].weight_type) == (quantize, made[0].weight_type)
    x = torch.randn(3, 384).bfloat16()
    assert torch.equal(again(x), made(x))
    other = ft.SparseLinear(384, 64, quantize="int4", group=64)
    with pytest.raises(fm.Error, match=r"groups of 128 columns.*s4-64"):
        ft.save_sparse(other, tmp_path / "y")


def test_marlin_that_cannot_be_right_is_refused(tmp_path):
    path, _ = marlin_folder(tmp_path, 4, 384, version="0.7.1")
    layer = torch.nn.Linear(384, 64, bias=False)
    with pytest.raises(fm.Error, match="float16 or bfloat16"):
        ft.load_sparse(layer, path)
    with pytest.raises(fm.Error, match=r"0.7.1, which stored the scales of groups"):
        ft.load_sparse(layer.half(), path)


# ── PyTorch's own ───────────────────────────────────────────────────────────


def test_semi_structured_tensors_are_saved(tmp_path):
    from torch.sparse import SparseSemiStructuredTensorCUTLASS as Cutlass
    from torch.sparse import _semi_structured_conversions as conversions

    dense, _ = sparse_weight(32, 64)
    packed, meta = conversions.sparse_semi_structured_from_dense_cutlass(dense)
    with pytest.warns(UserWarning, match="prototype"):
        theirs = Cutlass(dense.shape, packed, meta, None, None, None)
    layer = linear_of()
    layer.weight = torch.nn.Parameter(theirs, requires_grad=False)
    ft.save_sparse(ft.SparseLinear.from_linear(layer), tmp_path / "x.safetensors")
    found = ft.load_sparse(linear_of(), tmp_path / "x.safetensors")
    assert torch.equal(found.weight.to_dense(), dense)
