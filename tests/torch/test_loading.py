"""Checkpoints become the layers that they describe, and layers the same files."""

import json

import numpy as np
import pytest
import torch

import fragmenta as fm
import fragmenta.torch as ft
from fragmenta.hopper.torch.safetensors import SafeTensors, write
from tests.torch.checkpoints import (
    Small,
    bitmask,
    by_hand,
    raw,
    small_checkpoint,
    sparse_weight,
)

# PyTorch's own, on a CPU without bf16.
pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")

# ── the bitmask ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=str)
def test_a_model_is_loaded(tmp_path, kind):
    tensors, dense = small_checkpoint(kind)
    path = by_hand(tmp_path / "small.safetensors", tensors)
    model = Small(kind).eval()
    assert ft.load_sparse(model, path) is model
    assert isinstance(model.up, ft.SparseLinear)
    assert not model.up.training
    assert type(model.down) is torch.nn.Linear
    assert torch.equal(raw(model.up.weight.to_dense()), raw(dense))
    assert torch.equal(model.up.bias, tensors["up.bias"].float())
    assert torch.equal(model.embed.weight, tensors["embed.weight"])
    assert model.head.weight is model.embed.weight
    expected = Small(kind)
    with torch.no_grad():
        state = dict(tensors, **{"up.weight": dense})
        state["head.weight"] = state["embed.weight"]
        expected.load_state_dict({n: state[n] for n in expected.state_dict()})
    ft.linears(expected, prune=False, skip=["down", "head"])
    tokens = torch.tensor([[0, 3, 5]])
    assert torch.equal(model(tokens), expected(tokens))


@pytest.mark.parametrize("columns", [8, 12, 64])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.int8], ids=str)
def test_every_bit_of_a_weight_is_kept(kind, columns):
    _, mask = sparse_weight(70, columns)
    data = np.random.default_rng(0).bytes(70 * columns * kind.itemsize)
    any_bits = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(kind)
    parts = bitmask(any_bits.reshape(70, columns), mask)
    found = ft.from_bitmask(parts["compressed"], parts["bitmask"], columns)
    back = ft.to_bitmask(found)
    assert all(torch.equal(raw(back[name]), raw(parts[name])) for name in parts)


def test_float32_is_one_of_two(tmp_path):
    weight = torch.tensor([[1.5, 0, 0, 2], [0, 3, 4, 0]])
    parts = bitmask(weight, weight != 0)
    found = ft.from_bitmask(parts["compressed"], parts["bitmask"], 4)
    assert torch.equal(found.to_dense(), weight)
    assert torch.equal(ft.to_bitmask(found)["bitmask"], parts["bitmask"])
    mask = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 0]]) != 0  # a stored zero beside 1.5
    parts = bitmask(torch.tensor([[1.5, 0, 0, 0], [0, 3, 4, 0]]), mask)
    found = ft.from_bitmask(parts["compressed"], parts["bitmask"], 4)
    assert found.to_dense().tolist() == [[1.5, 0, 0, 0], [0, 3, 4, 0]]
    parts["compressed"][0, 1] = 1
    with pytest.raises(fm.errors.NotSparse, match="1:2 stores 1"):
        ft.from_bitmask(parts["compressed"], parts["bitmask"], 4)


def test_a_saved_model_is_the_same_file_again(tmp_path):
    tensors, _ = small_checkpoint()
    path = by_hand(tmp_path / "small.safetensors", tensors)
    model = ft.load_sparse(Small(), path)
    ft.save_sparse(model, tmp_path / "again.safetensors")
    again = SafeTensors(tmp_path / "again.safetensors")
    assert set(again) == set(tensors)
    for name, x in tensors.items():
        assert again[name].dtype == x.dtype
        assert again[name].shape == x.shape
        assert torch.equal(raw(again[name]), raw(x))


def test_a_model_on_meta_is_loaded(tmp_path):
    tensors, dense = small_checkpoint()
    path = by_hand(tmp_path / "small.safetensors", tensors)
    with torch.device("meta"):
        model = Small()
    assert model.head.weight is model.embed.weight
    ft.load_sparse(model, path)
    assert {
        x.device.type
        for x in model.state_dict(keep_vars=True).values()
        if isinstance(x, torch.Tensor)
    } == {"cpu"}
    assert model.head.weight is model.embed.weight
    assert isinstance(model.norm.weight, torch.nn.Parameter)
    assert torch.equal(model.up.weight.to_dense(), dense)
    path.unlink()
    assert torch.equal(model.steps, torch.arange(3))
    assert model(torch.tensor([1])).shape == (1, 6)


def test_a_layer_may_stay_dense(tmp_path):
    tensors, dense = small_checkpoint()
    path = by_hand(tmp_path / "small.safetensors", tensors)
    model = ft.load_sparse(Small(), path, skip="up")
    assert type(model.up) is torch.nn.Linear
    assert torch.equal(raw(model.up.weight.data), raw(dense))
    assert torch.equal(model.up.bias, tensors["up.bias"])
    with pytest.raises(fm.Error, match=r"skip='upp' fits no layer"):
        ft.load_sparse(Small(), path, skip="upp")


def test_a_single_layer_is_returned(tmp_path):
    dense, mask = sparse_weight(8, 16)
    path = by_hand(tmp_path / "x.safetensors", bitmask(dense, mask))
    layer = torch.nn.Linear(16, 8, bias=False).bfloat16()
    found = ft.load_sparse(layer, path)
    assert torch.equal(found.weight.to_dense(), dense)
    again = ft.load_sparse(found, path)  # into a layer that is sparse already
    assert torch.equal(again.weight.to_dense(), dense)


def test_a_layer_in_two_places_stays_one(tmp_path):
    dense, mask = sparse_weight(16, 16)
    parts = {f"0.{name}": x for name, x in bitmask(dense, mask).items()}
    parts["0.bias"] = torch.arange(16).bfloat16()
    path = by_hand(tmp_path / "x.safetensors", parts)
    layer = torch.nn.Linear(16, 16).bfloat16()
    model = ft.load_sparse(torch.nn.Sequential(layer, layer), path)
    assert model[0] is model[1]
    assert isinstance(model[0], ft.SparseLinear)
    ft.save_sparse(model, tmp_path / "again.safetensors")
    assert set(SafeTensors(tmp_path / "again.safetensors")) == set(parts)


# ── what does not fit ───────────────────────────────────────────────────────


def changed(**changes):
    def change(tensors):
        for name, x in changes.items():
            name = name.replace("__", ".")
            tensors[name] = x(tensors[name]) if callable(x) else x

    return change


def without(name):
    return lambda tensors: tensors.pop(name)


WRONG = {
    "a missing part": (without("up.shape"), r"layer up: .* shape is missing"),
    "no bias": (without("up.bias"), "1 tensors of the model are missing.*'up.bias'"),
    "no norm": (without("norm.weight"), "'norm.weight'"),
    "one more": (changed(norm__wieght=torch.ones(1)), "no place.*'norm.wieght'"),
    "row offsets": (changed(up__row_offsets=torch.ones(1)), "has 'row_offsets', too"),
    "two weights": (changed(up__weight=torch.ones(1)), "has 'weight', too"),
    "a wrong shape": (changed(norm__weight=lambda x: x[:5]), r"\(32,\).*\(5,\)"),
    "a wrong type": (changed(norm__weight=lambda x: x.half()), "model.to.torch.float1"),
    "weights of f16": (
        changed(up__compressed=lambda x: x.half()),
        "layer up: .*bfloat",
    ),
    "flat values": (changed(up__compressed=lambda x: x.flatten()), "must be a matrix"),
    "few values": (changed(up__compressed=lambda x: x[:, 1:]), r"\(32, 8\)"),
    "few bits": (changed(up__bitmask=lambda x: x[:, 1:]), r"bitmask of a 32x16"),
    "other bits": (changed(up__bitmask=lambda x: x ^ 1), "layer up: row 0, columns 0"),
    "another shape": (
        changed(
            up__shape=torch.tensor([[32], [12]]),
            up__compressed=lambda x: x[:, :6],
            up__bitmask=lambda x: x & torch.tensor([255, 15]).byte(),
        ),
        "the model has 32x16 weights, and the checkpoint 32x12",
    ),
    "no whole shape": (changed(up__shape=torch.ones(2)), "two int64"),
    "a scale": (changed(up__weight_scale=torch.ones(1)), "only weights of float8"),
    "a scale of x": (changed(up__input_scale=torch.ones(1)), "without a weight_scale"),
    "a zero point": (
        changed(up__weight_zero_point=torch.ones(1).to(torch.int8)),
        "symmetric",
    ),
    "8 bits, no scale": (
        changed(up__compressed=lambda x: x.to(torch.int8)),
        "weight_scale is missing",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_checkpoint_changes_nothing(tmp_path, what):
    change, told = WRONG[what]
    tensors, _ = small_checkpoint()
    change(tensors)
    path = by_hand(tmp_path / "small.safetensors", tensors)
    model = Small()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    with pytest.raises(fm.Error, match=told):
        ft.load_sparse(model, path)
    assert type(model.up) is torch.nn.Linear
    after = model.state_dict()
    assert all(torch.equal(after[name], x) for name, x in before.items())


def test_not_strict_says_what_differs(tmp_path):
    tensors, dense = small_checkpoint()
    del tensors["norm.weight"], tensors["up.bias"]
    tensors["more"] = torch.ones(2)
    path = by_hand(tmp_path / "small.safetensors", tensors)
    model = Small()
    bias = model.up.bias.detach().clone()
    with pytest.warns(ft.CheckpointWarning, match=r"'more'; 2 tensors of the model"):
        ft.load_sparse(model, path, strict=False)
    by_hand(path, {**tensors, "up.weight_g_idx": torch.ones(2)})
    with pytest.raises(fm.Error, match=r"layer up: .* has 'weight_g_idx', too"):
        ft.load_sparse(Small(), path, strict=False)
    assert torch.equal(model.up.weight.to_dense(), dense)
    assert torch.equal(model.up.bias, bias.float())


def test_what_is_no_model_or_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(fm.Error, match="does not exist"):
        ft.load_sparse(Small(), tmp_path / "none")
    with pytest.raises(fm.Error, match="takes a model; given a int"):
        ft.load_sparse(5, tmp_path)
    with pytest.raises(fm.Error, match="takes a model; given a int"):
        ft.save_sparse(5, tmp_path)
    with pytest.raises(fm.Error, match="no SparseLinear"):
        ft.save_sparse(Small(), tmp_path)
    with pytest.raises(fm.Error, match=r"it has no .safetensors file"):
        ft.load_sparse(Small(), tmp_path)


# ── folders ─────────────────────────────────────────────────────────────────


def folder(tmp_path, largest=500):
    tensors, dense = small_checkpoint()
    model = ft.load_sparse(Small(), by_hand(tmp_path / "x.safetensors", tensors))
    ft.save_sparse(model, tmp_path / "folder", largest=largest)
    return tmp_path / "folder", dense, model


def test_a_folder_of_several_files(tmp_path):
    path, dense, model = folder(tmp_path)
    index = json.loads((path / "model.safetensors.index.json").read_text())
    files = set(index["weight_map"].values())
    assert len(files) > 2
    assert files < {each.name for each in path.iterdir()}
    config = json.loads((path / "config.json").read_text())["quantization_config"]
    assert config["quant_method"] == "compressed-tensors"
    assert config["sparsity_config"]["format"] == "sparse-24-bitmask"
    assert config["sparsity_config"]["ignore"] == ["down", "head"]
    found = ft.load_sparse(Small(), path)
    assert torch.equal(found.up.weight.to_dense(), dense)
    tokens = torch.tensor([2, 4])
    assert torch.equal(found(tokens), model(tokens))


def test_half_an_overwritten_folder_is_no_checkpoint(tmp_path, monkeypatch):
    path, _, model = folder(tmp_path)
    written = []

    def stopped(*given, **options):
        written.append(given)
        if len(written) > 1:
            raise KeyboardInterrupt
        write(*given, **options)

    monkeypatch.setattr("fragmenta.hopper.torch.saving.write", stopped)
    with pytest.raises(KeyboardInterrupt):
        ft.save_sparse(model, path, largest=500, overwrite=True)
    with pytest.raises(fm.Error, match="is no checkpoint"):
        ft.load_sparse(Small(), path)


def test_arguments_of_a_bitmask_that_were_swapped():
    weight = torch.tensor([[0, 1, 2, 0] * 2]).bfloat16()
    stored = ft.to_bitmask(ft.compress(weight))
    with pytest.raises(fm.Error, match="bitmask must be of uint8; given"):
        ft.from_bitmask(stored["bitmask"], stored["compressed"], 8)
    with pytest.raises(fm.Error, match="must be a SparseMatrix, as compress makes"):
        ft.to_bitmask(weight)


def test_a_folder_without_a_checkpoint(tmp_path):
    with pytest.raises(fm.Error, match=r"no checkpoint: it has no \.safetensors file$"):
        ft.load_sparse(Small(), tmp_path)


def test_a_wrong_index_is_refused(tmp_path):
    path, _, _ = folder(tmp_path)
    index = path / "model.safetensors.index.json"
    good = json.loads(index.read_text())
    places = good["weight_map"]
    for wrong, told in [
        ({**places, "more": places["steps"]}, "'more' is in the index, but not in"),
        ({n: f for n, f in places.items() if n != "steps"}, "'steps' is in model-"),
        ({**places, "steps": "../x.safetensors"}, "file of the same folder"),
        ({**places, "steps": 5}, "file of the same folder"),
        ({**places, "more": "none.safetensors"}, "cannot be read"),
        ({}, "must have a weight_map"),
        ([], "must have a weight_map"),
    ]:
        index.write_text(json.dumps({"weight_map": wrong}))
        with pytest.raises(fm.Error, match=told):
            ft.load_sparse(Small(), path)
    index.write_text("[]")
    with pytest.raises(fm.Error, match="must be a JSON object"):
        ft.load_sparse(Small(), path)
    index.write_text("{")
    with pytest.raises(fm.Error, match="is not JSON"):
        ft.load_sparse(Small(), path)
    write(path / "model.safetensors", {})
    index.write_text(json.dumps(good))
    with pytest.raises(fm.Error, match="has both"):
        ft.load_sparse(Small(), path)


def test_a_folder_keeps_what_it_has(tmp_path):
    path, _, model = folder(tmp_path, largest=10**9)
    assert sorted(x.name for x in path.iterdir()) == [
        "config.json",
        "model.safetensors",
    ]
    before = (path / "model.safetensors").read_bytes()
    with pytest.raises(fm.Error, match="exists already"):
        ft.save_sparse(model, path)
    with pytest.raises(fm.Error, match=r"another checkpoint, model.safetensors"):
        ft.save_sparse(model, path, largest=500, overwrite=True)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({"hidden_size": 16, **config}))
    ft.save_sparse(model, path, overwrite=True)
    assert (path / "model.safetensors").read_bytes() == before
    again = json.loads((path / "config.json").read_text())
    assert again == {"hidden_size": 16, **config}
    (tmp_path / "new").mkdir()
    other = {"quantization_config": {"quant_method": "gptq"}}
    (tmp_path / "new" / "config.json").write_text(json.dumps(other))
    with pytest.raises(fm.Error, match="another quantization_config"):
        ft.save_sparse(model, tmp_path / "new")
    assert [x.name for x in (tmp_path / "new").iterdir()] == ["config.json"]
    with pytest.raises(fm.Error, match="largest must be"):
        ft.save_sparse(model, tmp_path / "new", largest=0)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"format": "pack-quantized"}, "'pack-quantized' of config is not read"),
        ({"sparsity_config": {"format": "sparse-bitmask"}}, "sparse-bitmask"),
        ({"transform_config": {"config_groups": {"u": 1}}}, "must be rotated"),
        ("gptq", "must be an object"),
    ],
)
def test_other_formats_are_refused(tmp_path, config, told):
    path, _, _ = folder(tmp_path)
    (path / "config.json").write_text(json.dumps({"quantization_config": config}))
    with pytest.raises(fm.Error, match=told):
        ft.load_sparse(Small(), path)
