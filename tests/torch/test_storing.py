"""Experts, feed-forward blocks and trained layers are saved and loaded."""

import copy

import pytest
import torch

import fragmenta.torch as ft
from fragmenta.errors import BadCall, BadFile, NotSparse, ShapeError
from fragmenta.hopper.torch.safetensors import SafeTensors, write


class Experts(torch.nn.Module):
    def __init__(self, experts=3, hidden=16, wide=8, kind=torch.bfloat16):
        super().__init__()
        torch.manual_seed(0)
        made = (
            torch.randn(experts, 2 * wide, hidden),
            torch.randn(experts, hidden, wide),
        )
        self.gate_up_proj, self.down_proj = (
            torch.nn.Parameter(x.to(kind)) for x in made
        )
        self.act_fn = torch.nn.SiLU()


class Model(torch.nn.Module):
    def __init__(self, kind=torch.bfloat16):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(16, 16).to(kind)
        self.experts = Experts(kind=kind)
        self.norm = torch.nn.LayerNorm(16).to(kind)


ROUTED = torch.tensor([[0, 2], [1, 0], [2, 1]]), torch.rand(3, 2)


def of_experts(model, x):
    return model.experts(x, *ROUTED)


@pytest.mark.parametrize("quantize", [None, "fp8", "int8"])
@pytest.mark.parametrize("sparse", [False, True])
def test_experts_are_loaded_as_they_were_saved(tmp_path, quantize, sparse):
    options = {"prune": True, "quantize": quantize}
    saved = ft.experts(ft.linears(Model(), **options), **options)
    ft.save_sparse(saved, tmp_path)
    model = Model()
    if sparse:
        model = ft.experts(model, prune=True, quantize=quantize)
        model.experts.down_packed.zero_()
    found = ft.load_sparse(model, tmp_path)
    x = torch.randn(3, 16).bfloat16()
    assert isinstance(found.experts, ft.SparseExperts)
    assert found.experts.quantize == quantize
    assert torch.equal(of_experts(found, x), of_experts(saved, x))
    assert torch.equal(found.first(x), saved.first(x))
    again = tmp_path / "again"
    ft.save_sparse(found, again)
    one, two = (SafeTensors(each / "model.safetensors") for each in (tmp_path, again))
    assert list(one) == list(two)
    assert all(
        torch.equal(one[x].view(torch.uint8), two[x].view(torch.uint8)) for x in one
    )


@pytest.mark.parametrize(
    "quantize, group, kind",
    [
        ("int4", 128, torch.bfloat16),
        ("int4", 0, torch.float16),
        ("int4-fp8", 128, torch.bfloat16),
    ],
)
@pytest.mark.parametrize("sparse", [False, True])
def test_experts_of_4_bit_integers(tmp_path, quantize, group, kind, sparse):
    def made():
        found = Experts(hidden=384, wide=384, kind=kind)
        return torch.nn.ModuleDict({"experts": found})

    x = torch.randn(3, 384).to(kind)
    saved = ft.experts(made(), prune=True, quantize=quantize, group=group)
    if group == 0:  # marlin-24 has float16 scales of rows
        for name in ("gate_up_scale", "down_scale"):
            scale = getattr(saved.experts, name)
            scale.copy_(scale.half().float())
    ft.save_sparse(saved, tmp_path)
    model = made()
    if sparse:
        model = ft.experts(model, prune=True, quantize="int4")
        model.experts.down_packed.zero_()
    found = ft.load_sparse(model, tmp_path)
    assert found.experts.quantize == quantize
    assert found.experts.weight_type == saved.experts.weight_type
    ours, theirs = (each.experts(x, *ROUTED) for each in (found, saved))
    assert torch.equal(ours, theirs)
    with pytest.raises(BadFile, match="cannot leave it dense"):
        ft.load_sparse(made(), tmp_path, skip="experts")


def test_wrong_experts_of_4_bit_integers_are_refused(tmp_path):
    def made(wide=384):
        return torch.nn.ModuleDict({"experts": Experts(hidden=384, wide=wide)})

    ft.save_sparse(ft.experts(made(), prune=True, quantize="int4"), tmp_path)
    path = tmp_path / "model.safetensors"
    good = {name: SafeTensors(path)[name] for name in SafeTensors(path)}
    name = "experts.down_proj.meta"
    cut = {x: y for x, y in good.items() if x != name}
    few = {**good, name: good[name][:2].clone()}
    for tensors, told in ((cut, "meta is missing"), (few, "as its first axis")):
        write(path, tensors, overwrite=True)
        with pytest.raises((BadFile, ShapeError), match=told):
            ft.load_sparse(made(), tmp_path)
    write(path, good, overwrite=True)
    with pytest.raises(ShapeError, match="experts x hidden x intermediate"):
        ft.load_sparse(made(wide=128), tmp_path)


def test_experts_on_meta_and_skipped_ones(tmp_path):
    saved = ft.experts(Model(), prune=True)
    ft.save_sparse(saved, tmp_path)
    with torch.device("meta"):
        empty = Model()
    found = ft.load_sparse(empty, tmp_path)
    x = torch.randn(3, 16).bfloat16()
    assert torch.equal(of_experts(found, x), of_experts(saved, x))
    dense = ft.load_sparse(Model(), tmp_path, skip="experts")
    assert torch.equal(dense.experts.down_proj, saved.experts.down.to_dense())


def test_wrong_experts_are_refused(tmp_path):
    ft.save_sparse(ft.experts(Model(), prune=True), tmp_path)
    path = tmp_path / "model.safetensors"
    good = {name: SafeTensors(path)[name] for name in SafeTensors(path)}
    cut = {x: y for x, y in good.items() if x != "experts.down_proj.shape"}
    shape = {**good, "experts.down_proj.shape": torch.tensor([2, 16, 8])}
    for tensors, told in ((cut, "shape is missing"), (shape, "experts x outputs x")):
        write(path, tensors, overwrite=True)
        with pytest.raises((BadFile, ShapeError), match=told):
            ft.load_sparse(Model(), tmp_path)
    write(path, good, overwrite=True)
    with pytest.raises(BadFile, match=r"use model.to\(torch.bfloat16\)"):
        ft.load_sparse(Model(torch.float16), tmp_path)
    other = Model()
    other.experts = Experts(experts=4)
    with pytest.raises(ShapeError, match="experts x hidden x intermediate"):
        ft.load_sparse(other, tmp_path)


def block(bias=False):
    torch.manual_seed(0)
    layers = torch.nn.Linear(16, 64, bias=bias), torch.nn.Linear(64, 16)
    return torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1]).bfloat16()


@pytest.mark.parametrize("bias", [False, True])
def test_blocks_are_loaded_as_they_were_saved(tmp_path, bias):
    x = torch.randn(5, 16).bfloat16()
    dense = torch.nn.ModuleDict({"mlp": block(bias), "head": torch.nn.Linear(16, 4)})
    saved = ft.feed_forwards(copy.deepcopy(dense), batches=None)
    if not bias:
        saved["mlp"].fix_scale(0.25)
    ft.save_sparse(saved, tmp_path)
    found = ft.load_sparse(dense, tmp_path)
    assert isinstance(found["mlp"], ft.SparseFeedForward)
    assert found["mlp"].activation == "relu"
    assert torch.equal(found["mlp"](x), saved["mlp"](x))
    again = ft.load_sparse(copy.deepcopy(found), tmp_path)
    assert torch.equal(again["mlp"](x), saved["mlp"](x))


def test_a_block_by_itself_and_a_wrong_one(tmp_path):
    saved = ft.feed_forwards(block())
    ft.save_sparse(saved, tmp_path)
    found = ft.load_sparse(block(), tmp_path)
    x = torch.randn(5, 16).bfloat16()
    assert torch.equal(found(x), saved(x))
    with pytest.raises(ShapeError, match=r"weights of \(64, 16\) and \(16, 64\)"):
        ft.load_sparse(torch.nn.Sequential(torch.nn.Linear(16, 8)), tmp_path)
    with pytest.raises(BadFile, match="skip= cannot leave it dense"):
        ft.load_sparse(block(), tmp_path, skip="")
    with pytest.raises(BadCall, match="no SparseLinear, SparseExperts or SparseFeed"):
        ft.save_sparse(block(), tmp_path / "none")


@pytest.mark.parametrize("transposable", [False, True])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
def test_a_trained_layer_stays_trained(tmp_path, kind, transposable):
    torch.manual_seed(0)
    options = {"prune": True, "train": True, "transposable": transposable}
    options["dtype"] = torch.bfloat16
    saved = ft.linears(torch.nn.Sequential(torch.nn.Linear(24, 12)).to(kind), **options)
    ft.save_sparse(saved, tmp_path)
    fresh = torch.nn.Sequential(torch.nn.Linear(24, 12)).to(kind)
    other = ft.linears(fresh, **options)
    values, x = other[0].weight_values, torch.randn(3, 24).to(kind)
    assert ft.load_sparse(other, tmp_path)[0].weight_values is values
    assert values.dtype == kind
    assert torch.equal(other(x), saved(x))
    other(x).sum().backward()
    assert values.grad is not None
    dense = ft.load_sparse(
        torch.nn.Sequential(torch.nn.Linear(24, 12)).bfloat16(), tmp_path
    )
    assert not dense[0].trained


def test_what_a_trained_layer_does_not_take(tmp_path):
    torch.manual_seed(0)
    dense = torch.nn.Sequential(torch.nn.Linear(24, 12)).bfloat16()
    trained = {"prune": True, "train": True}
    ft.save_sparse(ft.linears(copy.deepcopy(dense), prune=True), tmp_path / "rows")
    both = ft.linears(copy.deepcopy(dense), **trained, transposable=True)
    before = both[0].weight_values.clone()
    with pytest.raises(NotSparse, match=r"layer 0: .* sparse in both directions"):
        ft.load_sparse(both, tmp_path / "rows")
    assert torch.equal(both[0].weight_values, before)
    eight = ft.linears(copy.deepcopy(dense), prune=True, quantize="fp8")
    ft.save_sparse(eight, tmp_path / "fp8")
    with pytest.raises(BadFile, match="it is quantised, and the layer is trained"):
        ft.load_sparse(ft.linears(dense, **trained), tmp_path / "fp8")
