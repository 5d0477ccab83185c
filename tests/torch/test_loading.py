"""Do checkpoints become the layers that they describe, and layers the same files?"""

import json
import struct

import numpy as np
import pytest
import torch

import fragmenta as fm
import fragmenta.torch as ft
from fragmenta.kernels import Kernel
from fragmenta.torch.safetensors import SafeTensors, write
from tests.weights.test_marlin import marlin

# PyTorch's own, on a CPU without bf16.
pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")

NAMES = {
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.float32: "F32",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.int64: "I64",
}


def raw(x):
    return x.contiguous().view(torch.uint8)


def by_hand(path, tensors):
    """A file without the project's own writer."""
    header, data = {}, b""
    for name, x in tensors.items():
        part = bytes(raw(x.reshape(-1)).tolist())
        places = [len(data), len(data) + len(part)]
        header[name] = {
            "dtype": NAMES[x.dtype],
            "shape": list(x.shape),
            "data_offsets": places,
        }
        data += part
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def sparse_weight(rows, columns, kind=torch.bfloat16, seed=0):
    """A 2:4 weight and its mask; some stored values are zeros, too."""
    generator = torch.Generator().manual_seed(seed)
    ranks = torch.rand(rows, columns // 4, 4, generator=generator).argsort(-1)
    mask = (ranks < 2).reshape(rows, columns)
    weight = 20 * torch.randn(rows, columns, generator=generator)
    weight[torch.rand(rows, columns, generator=generator) < 0.1] = 0
    return torch.where(mask, weight, torch.zeros(())).to(kind), mask


def bitmask(weight, mask):
    """compressed, bitmask and shape of a weight, element by element."""
    rows, columns = weight.shape
    bits = torch.zeros(rows, -(-columns // 8), dtype=torch.uint8)
    values = []
    for row, column in mask.nonzero().tolist():
        bits[row, column // 8] |= 1 << column % 8
        values.append(weight[row, column].reshape(1))
    return {
        "compressed": torch.cat(values).reshape(rows, columns // 2),
        "bitmask": bits,
        "shape": torch.tensor([[rows], [columns]]),
    }


class Small(torch.nn.Module):
    """Two linears, one of them not sparse, a norm, and a tied embedding."""

    def __init__(self, kind=torch.bfloat16):
        super().__init__()
        self.embed = torch.nn.Embedding(6, 16)
        self.up = torch.nn.Linear(16, 32)
        self.norm = torch.nn.LayerNorm(32)
        self.down = torch.nn.Linear(32, 16, bias=False)
        self.head = torch.nn.Linear(16, 6, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("steps", torch.arange(3))
        self.to(kind)

    def forward(self, tokens):
        return self.head(self.down(self.norm(self.up(self.embed(tokens)))))


def small_checkpoint(kind=torch.bfloat16):
    """Tensors of a Small, and the dense weight of ``up``."""
    model = Small(kind)
    dense, mask = sparse_weight(32, 16, kind)
    tensors = {n: x.detach().clone() for n, x in model.state_dict().items()}
    del tensors["up.weight"], tensors["head.weight"]
    tensors |= {f"up.{name}": x for name, x in bitmask(dense, mask).items()}
    return tensors, dense


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
    with pytest.raises(fm.NotSparse, match="1:2 stores 1"):
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
    assert {x.device.type for x in model.state_dict(keep_vars=True).values()
            if isinstance(x, torch.Tensor)} == {"cpu"}  # fmt: skip
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

    monkeypatch.setattr("fragmenta.torch.saving.write", stopped)
    with pytest.raises(KeyboardInterrupt):
        ft.save_sparse(model, path, largest=500, overwrite=True)
    with pytest.raises(fm.Error, match="is no checkpoint"):
        ft.load_sparse(Small(), path)


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


# ── quantised ───────────────────────────────────────────────────────────────

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
    how = {"strategy": "tensor", "dynamic": False} if static else {
        "strategy": "token", "dynamic": True}  # fmt: skip
    return {"group_0": {**GROUPS["group_0"],
                        "input_activations": {"num_bits": bits, **how}}}  # fmt: skip


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
    dense = fm.prune(rng.integers(-low, low, (64, columns)), op).astype(np.int8)
    groups = columns // 128 if columns > 128 else 1
    scales = rng.uniform(0.001, 0.002, (64, groups)).astype(np.float16)
    words, packed = marlin(fm.compress(dense, op).values, scales, bits)
    codes = fm.compress(dense.astype(np.float16), half)
    meta = fm.to_sparse_marlin(codes, half).meta.reshape(columns // 32, 128)
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
@pytest.mark.parametrize(("bits", "columns"), [(4, 64), (4, 384), (8, 384)])
def test_marlin_becomes_16_bit(tmp_path, bits, columns, kind):
    path, exact = marlin_folder(tmp_path, bits, columns)
    layer = torch.nn.Linear(columns, 64, bias=False).to(kind)
    found = ft.load_sparse(layer, path).weight.to_dense()
    assert torch.equal(found, exact.float().to(kind))  # exact in float32


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
