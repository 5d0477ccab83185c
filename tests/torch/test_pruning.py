"""Pruning: which weights survive, what is lost, and what is left as it is."""

import copy
import itertools
import math
import pickle
import warnings

import numpy as np
import pytest
import torch
from torch.sparse import SparseSemiStructuredTensorCUSPARSELT as CuSparseLt
from torch.sparse import SparseSemiStructuredTensorCUTLASS as Cutlass
from torch.sparse import _semi_structured_conversions as conversions

import fragmenta as fm
import fragmenta.torch as ft

KINDS = list(ft.TYPES)
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def chunk_of(kind):
    return 2 if kind == torch.float32 else 4


def bits(x):
    return x.contiguous().view(WORDS[x.dtype.itemsize])


def masked(weight, seed=0):
    """The weight with half of every chunk set to zero, at random places."""
    size = chunk_of(weight.dtype)
    generator = torch.Generator().manual_seed(seed)
    ranks = torch.rand(*weight.shape, generator=generator)
    ranks = ranks.reshape(len(weight), -1, size).argsort(-1).argsort(-1)
    keep = (ranks < size // 2).reshape(weight.shape)
    words = bits(weight)
    return torch.where(keep, words, torch.zeros_like(words)).view(weight.dtype)


def any_bits(kind, rows, columns, seed=0):
    """Every pattern: NaN with all payloads, infinities, subnormals."""
    raw = np.random.default_rng(seed).bytes(rows * columns * kind.itemsize)
    flat = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(kind)
    return flat.reshape(rows, columns)


def sparse_pattern(kind, rows=64, columns=256):
    """A sparse weight of any bits, in which stored zeros are +0: others read as +0."""
    weight = masked(any_bits(kind, rows, columns))
    words = bits(weight).clone()
    words[weight.float() == 0] = 0
    return words.view(kind)


# ── a weight that is sparse already ─────────────────────────────────────────


@pytest.mark.parametrize("prune", [True, False])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_sparse_weight_survives_bit_for_bit(kind, prune):
    weight = sparse_pattern(kind)
    stored = ft.compress(weight, prune=prune)
    assert torch.equal(bits(stored.to_dense()), bits(weight))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_equal_magnitudes_survive(kind):
    ones = masked(torch.ones(32, 64).to(kind), seed=3)
    if kind != torch.uint8:
        ones = torch.where(torch.rand(32, 64) < 0.5, -ones.float(), ones.float()).to(
            kind
        )
    found = ft.compress(ones).to_dense()
    assert torch.equal(found.float(), ones.float())
    some = ones.float() != 0
    assert torch.equal(bits(found)[some], bits(ones)[some])


@pytest.mark.parametrize(
    "kind", [torch.bfloat16, torch.float16, torch.float32], ids=str
)
def test_negative_zeros_become_zeros_and_change_no_product(kind):
    """A mask leaves -0 where a negative weight was; there is no room for it."""
    weight = torch.randn(32, 64).to(kind)
    weight = weight * (masked(weight, seed=5).float() != 0).to(kind)
    assert (bits(weight)[weight == 0] != 0).any()
    layer = torch.nn.Linear(64, 32, dtype=kind)
    layer.weight.data = weight
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sparse = ft.SparseLinear.from_linear(layer)
    assert sparse.pruning.state == "kept"
    assert torch.equal(sparse.weight.to_dense(), weight)
    x = torch.randn(5, 64).to(kind)
    plain = ft.sparse_linear(x, ft.compress(weight + 0), layer.bias)
    assert torch.equal(bits(sparse(x)), bits(plain))


def test_float32_is_one_of_two():
    """2:4 is not enough for tf32: two neighbours cannot both be stored."""
    layer = _layer(torch.tensor([[1.0, 2.0, 0.0, 0.0]] * 8))
    with pytest.warns(ft.PruningWarning, match=r"0\.4472 of the norm"):
        found = ft.SparseLinear.from_linear(layer)
    assert found.pruning.granularity == "1:2"
    assert found.weight.to_dense()[0].tolist() == [0.0, 2.0, 0.0, 0.0]
    half = ft.SparseLinear.from_linear(layer.half(), prune=False)
    assert half.pruning.state == "kept"


def test_a_width_that_is_not_whole_chunks_survives():
    weight = torch.tensor([[0, 3, 0, 4, 5, 0]] * 8, dtype=torch.int8)
    assert torch.equal(ft.compress(weight).to_dense(), weight)


# ── what is lost is told ────────────────────────────────────────────────────


def model_of(*sizes, kind=torch.bfloat16, seed=0):
    torch.manual_seed(seed)
    pairs = itertools.pairwise(sizes)
    return torch.nn.Sequential(*(torch.nn.Linear(*pair) for pair in pairs)).to(kind)


def test_pruning_is_never_silent():
    with pytest.warns(
        ft.PruningWarning, match=r"2 of 2 sparse layers were pruned: 0\."
    ) as one:
        ft.linears(model_of(64, 32, 16))
    assert one[0].filename == __file__
    with pytest.warns(
        ft.PruningWarning, match=r"1 of 1 sparse layers was pruned"
    ) as two:
        ft.SparseLinear.from_linear(model_of(64, 32)[0])
    assert two[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ft.linears(model_of(64, 32), prune=True)  # it is meant
    before = model_of(64, 32)
    with pytest.raises(fm.errors.NotSparse, match=r"layer 0: .*chunks are too full"):
        ft.linears(before, prune=False)
    assert type(before[0]) is torch.nn.Linear


def test_a_report_counts_what_was_lost():
    model = model_of(64, 32, 16, 8)
    model[1].weight.data = masked(model[1].weight.data)
    weight = model[0].weight.detach().clone()
    expected = ft.pruning_report(model)
    assert [each.state for each in expected.layers] == ["dense"] * 3
    report = ft.pruning_report(ft.linears(model, prune=True, skip="2"))
    assert [each.state for each in report.layers] == ["pruned", "kept", "dense"]
    first, second, third = report.layers
    lost = weight.double() - model[0].weight.to_dense().double()
    assert first.dropped == int((lost != 0).sum()) == 64 * 32 // 2
    assert math.isclose(first.share, float(lost.norm() / weight.double().norm()))
    assert (second.dropped, second.share) == (0, 0.0)
    assert third == expected.layers[2]
    assert first.share == expected.layers[0].share
    assert [each.name for each in report.pruned] == ["0"]
    whole = math.hypot(first.norm, second.norm)
    assert math.isclose(report.share, first.lost / whole)
    assert report.to_dict()["layers"][0]["dropped"] == first.dropped


def test_a_report_is_a_table_of_80_columns():
    model = ft.linears(model_of(64, 32, 16), prune=True)
    text = str(ft.pruning_report(torch.nn.ModuleDict({"body": model})))
    assert max(map(len, text.splitlines())) <= 80
    titles, first, second, summary = text.splitlines()
    assert " ".join(titles.split()) == "state zeroed weights norm lost type shape layer"
    assert first.split()[0] == "pruned"
    assert first.split()[-1] == "body.0"
    assert second.split()[:3] == ["pruned", "256", "512"]
    assert summary.startswith("2 of 2 sparse layers were pruned: 0.")
    assert str(model[0].pruning).startswith(
        "0: bf16 2:4, 32x64: pruned, 1,024 of 2,048"
    )


def test_a_report_of_what_cannot_be_told():
    model = torch.nn.ModuleList([ft.SparseLinear(8, 4), torch.nn.Linear(8, 4).double()])
    loaded, double = ft.pruning_report(model).layers
    assert (loaded.state, double.state, double.element_type) == ("loaded", "dense", "")
    assert "?" in str(ft.pruning_report(model))
    assert not ft.pruning_report(torch.nn.ReLU()).layers
    weight = torch.full((4, 8), torch.inf, dtype=torch.half)
    assert math.isnan(ft.pruning_report(_layer(weight)).layers[0].share)


def test_nothing_is_lost_of_a_sparse_weight_with_nan():
    weight = torch.tensor([[torch.nan, 1, 0, 0], [0, 0, torch.inf, 2]]).half()
    model = ft.linears(torch.nn.Sequential(_layer(weight)), prune=False)
    report = ft.pruning_report(model)
    assert report.layers[0].state == "kept"
    assert report.layers[0].share == report.share == 0
    assert "nan" not in str(report)


def _layer(weight):
    layer = torch.nn.Linear(
        weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype
    )
    layer.weight.data = weight
    return layer


def test_a_layer_keeps_what_it_lost():
    layer = ft.SparseLinear.from_linear(model_of(64, 32)[0], prune=True)
    assert copy.deepcopy(layer).pruning == layer.pruning
    assert pickle.loads(pickle.dumps(layer)).pruning == layer.pruning
    assert not any("pruning" in key for key in layer.state_dict())


# ── layers that are left alone ──────────────────────────────────────────────


def nested():
    torch.manual_seed(0)
    block = {"up": torch.nn.Linear(16, 32), "down": torch.nn.Linear(32, 16)}
    parts = {
        "blocks": torch.nn.ModuleList([torch.nn.ModuleDict(block)]),
        "head": torch.nn.Linear(16, 4),
    }
    return torch.nn.ModuleDict(parts).bfloat16()


@pytest.mark.parametrize(
    "options, left",
    [
        ({}, []),
        ({"skip": "head"}, ["head"]),
        ({"skip": ["head", "*.down"]}, ["blocks.0.down", "head"]),
        ({"skip": "blocks"}, ["blocks.0.up", "blocks.0.down"]),
        ({"skip": "blocks.*"}, ["blocks.0.up", "blocks.0.down"]),
        ({"skip": lambda name, layer: layer.out_features < 16}, ["head"]),
        ({"least": 65}, ["head"]),
        ({"least": 65, "skip": "*.up"}, ["blocks.0.up", "head"]),
    ],
)
def test_layers_can_be_left_alone(options, left):
    model = nested()
    weights = {name: each.clone() for name, each in model.state_dict().items()}
    ft.linears(model, prune=True, **options)
    dense = [n for n, m in model.named_modules() if type(m) is torch.nn.Linear]
    assert dense == left
    for name in left:
        found = model.get_submodule(name).weight
        assert torch.equal(found, weights[f"{name}.weight"])


def test_a_name_that_fits_nothing_is_refused():
    model = nested()
    with pytest.raises(
        fm.Error, match=r"skip='haed' fits no layer \(did you mean head\?\)"
    ):
        ft.linears(model, prune=True, skip=["head", "haed"])
    with pytest.raises(fm.Error, match=r"fits no layer; there are blocks\.0\.up, "):
        ft.linears(model, prune=True, skip="xyz")
    with pytest.raises(fm.Error, match=r"names or patterns .*; given 3"):
        ft.linears(model, prune=True, skip=[3])
    assert type(model["head"]) is torch.nn.Linear


# ── PyTorch's own sparse tensors ────────────────────────────────────────────


@pytest.fixture
def quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", ".*SparseSemiStructuredTensor is in prototype"
        )
        yield


def as_cutlass(weight):
    """What to_sparse_semi_structured makes; it refuses tensors of the CPU."""
    packed, meta = conversions.sparse_semi_structured_from_dense_cutlass(weight)
    return Cutlass(weight.shape, packed, meta, None, None, None)


@pytest.mark.parametrize(
    "kind", [torch.float16, torch.bfloat16, torch.float32, torch.int8], ids=str
)
def test_a_semi_structured_tensor_is_taken_as_it_is(kind, quiet, monkeypatch):
    weight = sparse_pattern(kind)
    if kind != torch.int8:  # PyTorch changes NaN; to what depends on the processor
        weight = torch.where(weight.isnan(), torch.inf, weight)
    given = as_cutlass(weight)
    monkeypatch.setattr(Cutlass, "to_dense", None)  # it is not made dense
    found = ft.compress(given)
    assert torch.equal(bits(found.to_dense()), bits(weight))
    same = ft.compress(given, prune=False)
    assert torch.equal(same.data, found.data)
    x = torch.ones(4, 256).to(kind)
    if kind != torch.int8:
        x = x * 0  # NaN and infinities: the product is defined, but says little
    assert ft.sparse_linear(x, found).shape == (4, 64)


def test_a_layer_with_a_semi_structured_weight(quiet):
    torch.manual_seed(0)
    weight = masked(torch.randn(64, 128).half())
    layer = _layer(weight)
    layer.weight = torch.nn.Parameter(as_cutlass(weight), requires_grad=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ft.linears(torch.nn.Sequential(layer))
    assert torch.equal(model[0].weight.to_dense(), weight)
    assert model[0].pruning.state == "kept"
    x = torch.randn(3, 128).half()
    assert torch.equal(model(x), ft.sparse_linear(x, ft.compress(weight)))


def test_what_cusparselt_stores_is_made_dense_by_pytorch(quiet, monkeypatch):
    """Its order is not documented; multiplying by one needs a GPU, so it stands in."""
    weight = masked(torch.randn(64, 128).half())
    given = CuSparseLt(
        weight.shape, weight.flatten()[: 64 * 72], None, None, None, None
    )
    monkeypatch.setattr(CuSparseLt, "to_dense", lambda self: weight)
    assert torch.equal(ft.compress(given).to_dense(), weight)
    monkeypatch.setattr(CuSparseLt, "to_dense", lambda self: torch.ones_like(weight))
    with pytest.raises(fm.errors.NotSparse):
        ft.compress(given)


def test_a_transposed_semi_structured_tensor_is_refused(quiet):
    packed, meta = conversions.sparse_semi_structured_from_dense_cutlass(
        masked(torch.randn(64, 128).half())
    )
    given = Cutlass(torch.Size([128, 64]), None, None, packed, meta, None)
    with pytest.raises(fm.Error, match="give the weight itself"):
        ft.compress(given)


def test_a_model_without_linears_is_told():
    attention = torch.nn.MultiheadAttention(16, 2)
    with pytest.warns(UserWarning, match=r"itself \(MultiheadAttention\), out_proj"):
        ft.linears(attention, prune=True)
    turned = torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear(8, 8))
    with pytest.warns(UserWarning, match=r"0 \(ParametrizedLinear\)$"):
        ft.linears(torch.nn.Sequential(turned), prune=True)
    with pytest.warns(UserWarning, match="nothing was replaced$"):
        ft.linears(torch.nn.Sequential(torch.nn.ReLU()))


def test_linears_again_is_no_reason_to_warn():
    model = torch.nn.Sequential(torch.nn.Linear(8, 4).bfloat16())
    ft.linears(model, prune=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ft.linears(model) is model
