"""The PyTorch operators: without a GPU they are the emulation."""

import copy
import pickle

import numpy as np
import pytest
import torch

import fragmenta as fm
import fragmenta.torch as ft
from fragmenta.hopper.kernels.packing import packed_shape
from fragmenta.hopper.torch import operators
from fragmenta.kernels import Kernel, Tile

# PyTorch's own, about what it calls itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.torch.jit:FutureWarning"),
]

KINDS = list(ft.TYPES)


def drawn(kind, rows, columns, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if kind in (torch.int8, torch.uint8):
        low = -100 if kind == torch.int8 else 0
        return torch.randint(low, 100, (rows, columns), generator=generator).to(kind)
    return torch.randn(rows, columns, generator=generator).to(kind)


def exact(x):
    return x.double() if x.dtype.itemsize > 1 or x.is_floating_point() else x.long()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_compress_keeps_the_largest(kind):
    weight = drawn(kind, 70, 96)
    sparse = ft.compress(weight)
    dense = sparse.to_dense()
    assert dense.dtype == kind
    assert dense.shape == weight.shape
    chunk = 2 if kind == torch.float32 else 4
    groups = (dense.float() != 0).reshape(70, -1, chunk).sum(-1)
    assert int(groups.max()) <= chunk // 2
    kept = dense.float() != 0
    assert torch.equal(dense.float()[kept], weight.float()[kept])
    again = ft.compress(dense, prune=False)
    assert torch.equal(again.data, sparse.data)


def test_what_is_not_sparse_is_refused():
    with pytest.raises(fm.errors.NotSparse):
        ft.compress(torch.ones(4, 8, dtype=torch.bfloat16), prune=False)
    with pytest.raises(
        fm.Error, match=r"a weight must be of float8_e4m3fn.*given.*float64"
    ):
        ft.compress(torch.ones(4, 8, dtype=torch.float64))
    with pytest.raises(fm.Error, match="a weight must"):
        ft.compress(torch.ones(4, 8, device="meta"))
    with pytest.raises(fm.Error, match="a weight must"):
        ft.compress(torch.ones(0, 8))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_sparse_mm(kind, transposed):
    a, b = ft.compress(drawn(kind, 20, 64)), drawn(kind, 9, 64, seed=1)
    found = ft.sparse_mm(a, b, transposed=transposed)
    want = a.to_dense().double() @ b.double().T
    want = want.T if transposed else want
    assert found.shape == want.shape
    assert torch.allclose(found.double(), want, atol=0.1, rtol=1e-3)


def test_epilogue_and_output_types():
    a, b = ft.compress(drawn(torch.int8, 8, 32)), drawn(torch.int8, 5, 32, seed=1)
    sums = ft.sparse_mm(a, b)
    assert sums.dtype == torch.int32
    scale, bias = torch.tensor([0.5]), torch.arange(8.0)
    found = ft.sparse_mm(a, b, scale=scale, bias=bias, out_dtype=torch.bfloat16)
    assert torch.equal(found, (sums * 0.5 + bias[:, None]).bfloat16())
    with pytest.raises(fm.Error, match="unless it is scaled"):
        ft.sparse_mm(a, b, out_dtype=torch.bfloat16)


def test_linear_like_torch():
    layer = torch.nn.Linear(64, 24).bfloat16()
    sparse = ft.SparseLinear.from_linear(layer, prune=True)
    x = drawn(torch.bfloat16, 6, 64).reshape(2, 3, 64)
    dense = torch.nn.functional.linear(
        x.float(), sparse.weight.to_dense().float(), layer.bias.float()
    )
    found = sparse(x)
    assert found.shape == (2, 3, 24)
    assert found.dtype == torch.bfloat16
    assert torch.allclose(found.float(), dense, atol=0.05)


def test_state_dict_round_trip(tmp_path):
    layer = ft.SparseLinear.from_linear(torch.nn.Linear(64, 24).half(), prune=True)
    torch.save(layer.state_dict(), tmp_path / "state")
    other = ft.SparseLinear(64, 24, dtype=torch.float16)
    other.load_state_dict(torch.load(tmp_path / "state"))
    x = drawn(torch.float16, 3, 64)
    assert torch.equal(layer(x), other(x))
    assert set(layer.state_dict()) == {"weight_packed", "bias", "_extra_state"}


@pytest.mark.parametrize(
    "other", [{"dtype": torch.bfloat16}, {"in_features": 63}, {"out_features": 23}]
)
def test_a_state_of_another_layer_is_refused(other):
    """The bytes alone would fit."""
    state = ft.SparseLinear.from_linear(
        torch.nn.Linear(64, 24).half(), prune=True
    ).state_dict()
    sizes = {"in_features": 64, "out_features": 24, "dtype": torch.float16, **other}
    layer = ft.SparseLinear(**sizes, bias=False)
    before = layer.weight_packed.clone()
    state.pop("bias")
    with pytest.raises(RuntimeError, match="the state is from a layer with"):
        layer.load_state_dict(state)
    assert torch.equal(layer.weight_packed, before)


def test_a_new_layer_is_zero():
    layer = ft.SparseLinear(64, 24)
    assert not layer.weight.to_dense().any()
    assert not layer(drawn(torch.bfloat16, 2, 64)).any()


def test_channels_last_moves_no_bytes():
    layer = ft.SparseLinear.from_linear(
        torch.nn.Linear(256, 512).bfloat16(), prune=True
    )
    x = drawn(torch.bfloat16, 2, 256)
    before = layer(x)
    assert torch.equal(layer.to(memory_format=torch.channels_last)(x), before)


def test_copies_and_files(tmp_path):
    sparse = ft.compress(drawn(torch.float16, 8, 32))
    torch.save(sparse, tmp_path / "matrix")
    assert torch.equal(torch.load(tmp_path / "matrix").data, sparse.data)
    layer = ft.SparseLinear.from_linear(torch.nn.Linear(64, 24).half(), prune=True)
    x = drawn(torch.float16, 3, 64)
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    assert torch.equal(layer(input=x), layer(x))


def test_the_element_type_keeps_its_older_name():
    weight = ft.compress(drawn(torch.bfloat16, 4, 8))
    assert weight.element_type == weight.a == "bf16"
    assert set(weight.__dict__) == {"data", "a", "shape"}  # as in saved files


def test_illegal_codes_are_refused():
    data = ft.compress(drawn(torch.bfloat16, 8, 32)).data.clone()
    data[..., -1] = 0
    with pytest.raises(fm.errors.BadMetadata, match="illegal codes"):
        ft.SparseMatrix(data, "bf16", (8, 32)).to_dense()


def test_autocast_as_in_torch():
    layer = ft.SparseLinear.from_linear(torch.nn.Linear(64, 24).bfloat16(), prune=True)
    x = drawn(torch.float32, 3, 64)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(x), layer(x.bfloat16()))
    with pytest.raises(
        fm.Error, match=r"the weight is torch.bfloat16 and x torch.float"
    ):
        layer(x)


def test_fp8_layers_choose_their_result():
    kind = torch.float8_e4m3fn
    linear = torch.nn.Linear(64, 24, bias=False)
    linear.weight = torch.nn.Parameter(linear.weight.to(kind), requires_grad=False)
    layer = ft.SparseLinear.from_linear(
        linear, prune=True, out_dtype=torch.bfloat16, promote=True
    )
    x = drawn(kind, 3, 64)
    want = ft.sparse_linear(x, layer.weight, out_dtype=torch.bfloat16, promote=True)
    assert torch.equal(layer(x), want)


def test_linears_replaces_all():
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 8), torch.nn.Sequential(torch.nn.Linear(8, 64))
    ).bfloat16()
    ft.linears(model, prune=True, least=100)
    assert type(model[0]) is torch.nn.Linear
    assert type(model[1][0]) is ft.SparseLinear


def test_linears_of_odd_models():
    layer = torch.nn.Linear(8, 8).bfloat16()
    assert type(ft.linears(layer, prune=True)) is ft.SparseLinear
    twice = ft.linears(torch.nn.Sequential(layer, torch.nn.ReLU(), layer), prune=True)
    assert twice[0] is twice[2]
    assert type(twice[0]) is ft.SparseLinear
    half = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8).double())
    with pytest.raises(fm.Error, match="layer 1: a weight must be of"):
        ft.linears(half, prune=True)
    assert type(half[0]) is torch.nn.Linear


def test_inside_a_transformer():
    """Its short cut for inference asks for weights that are tensors."""
    encoder = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    encoder = ft.linears(encoder.bfloat16().eval(), prune=True)
    with torch.no_grad():
        assert encoder(drawn(torch.bfloat16, 6, 16).reshape(2, 3, 16)).shape == (
            2,
            3,
            16,
        )


@pytest.mark.parametrize("op", ["and", "xor"])
def test_binary_mm(op):
    a, b = (drawn(torch.uint8, rows, 40, seed=rows) for rows in (7, 5))
    bits = [np.unpackbits(x.numpy(), axis=-1) for x in (a, b)]
    each = {"and": np.bitwise_and, "xor": np.bitwise_xor}[op](bits[0][:, None], bits[1])
    assert (ft.binary_mm(a, b, op=op).numpy() == each.sum(-1)).all()


def test_the_operators_are_well_formed():
    a, b = ft.compress(drawn(torch.bfloat16, 8, 32)), drawn(torch.bfloat16, 5, 32)
    bits, parts = drawn(torch.uint8, 4, 8), [None] * 4
    rest = ("bf16", 8, torch.bfloat16, *parts)
    for name, arguments in {
        "sparse_mm": (a.data, b, *rest, True, False, []),
        "sparse_linear": (b, a.data, *rest, False, []),
        "dense_mm": (b, b, torch.float32, *parts, False, False, []),
        "binary_mm": (bits, bits, True, []),
        "compress": (b, True),
        "quantize_rows": (b[:, :20], "e4m3", torch.tensor(0.5)),
        "to_dense": (a.data, "bf16", 8, 32),
    }.items():
        torch.library.opcheck(
            getattr(torch.ops.fragmenta, name).default,
            arguments,
            test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
        )


def test_no_gradient_is_told_so():
    layer = ft.SparseLinear.from_linear(torch.nn.Linear(64, 24).bfloat16(), prune=True)
    x = drawn(torch.bfloat16, 3, 64).requires_grad_()
    y = layer(x)  # an evaluation need not say no_grad
    assert torch.equal(y, layer(x.detach()))
    with pytest.raises(fm.Error, match="for inference"):
        y.sum().backward()
    with pytest.raises(fm.Error, match="for inference"):
        torch.func.jvp(layer, (x.detach(),), (x.detach(),))


def test_wrong_bytes_and_shapes_are_refused():
    a, b = ft.compress(drawn(torch.bfloat16, 8, 32)), drawn(torch.bfloat16, 5, 64)
    rest = (torch.bfloat16, None, None, None, None, True, False, [])
    with pytest.raises(fm.errors.ShapeError, match="bytes of shape"):
        torch.ops.fragmenta.sparse_mm(a.data[..., 1:], b, "bf16", 8, *rest)
    with pytest.raises(fm.errors.ShapeError, match="the last axis of x must be 32"):
        ft.sparse_linear(b, a)
    with pytest.raises(fm.errors.ShapeError, match="B must be n x 32"):
        ft.sparse_mm(a, b)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (
            {"bias": torch.ones(5)},
            r"bias must be a tensor of 8 float32 on cpu; given .* \(5,\)",
        ),
        ({"bias": torch.ones(2, 4)}, "bias must be a tensor of 8 float32"),
        ({"scale": 0.5}, "scale must be a tensor; given a float"),
        (
            {"scale_n": torch.ones(5, dtype=torch.half)},
            "scale_n must be a tensor of 5 float32",
        ),
        ({"bias": torch.ones(8, device="meta")}, "on cpu; given .* on meta"),
        ({"tile": (128, 128)}, r"such as Tile\(128, 128\); given \(128, 128\)"),
        ({"tile": Tile(100, 7)}, "no kernel for tiles of 100x7"),
        ({"tile": Tile(64, 44)}, "no kernel for tiles of 64x44"),
        ({"tile": Tile(256, 256)}, "more registers"),
        ({"tile": Tile(64, 64, 3)}, "no kernel for tiles"),
        ({"out_dtype": torch.float64}, "float32, bfloat16.*given.*float64"),
        ({"out_dtype": "bf16"}, "float32, bfloat16.*given 'bf16'"),
        ({"out_dtype": []}, r"float32, bfloat16.*given \[\]"),
        ({"promote": "no"}, "promote must be True or False; given 'no'"),
        ({"tile": Tile("a", 1)}, "sizes of a tile must be whole numbers"),
        ({"tile": Tile(64.5, 64)}, "sizes of a tile must be whole numbers"),
        ({"b": torch.ones(5, 32).bfloat16().to_sparse()}, "B must be a dense tensor"),
        ({"b": np.ones((5, 32), "f4")[::-1]}, "negative strides"),
        ({"b": np.ones((5, 32), ">f4")}, "does not convert through DLPack"),
        ({"b": [1, 2]}, "supports DLPack; given a list"),
        ({"b": torch.ones(5, 32)}, "A is torch.bfloat16 and B torch.float32"),
        (
            {"b": torch.ones(5, 32, device="meta").bfloat16()},
            "A is on cpu and B on meta",
        ),
        (
            {"b": torch.ones(5, 32).double()},
            "B must be of float8_e4m3fn.*given.*float64",
        ),
        ({"a": torch.ones(8, 32)}, "A must be a SparseMatrix.*given a Tensor"),
    ],
)
def test_what_is_wrong_is_told(arguments, said):
    a, b = ft.compress(drawn(torch.bfloat16, 8, 32)), drawn(torch.bfloat16, 5, 32)
    given = {"a": a, "b": b, **arguments}
    with pytest.raises(fm.Error, match=said):
        ft.sparse_mm(given.pop("a"), given.pop("b"), **given)


def test_names_of_a_layer_in_its_errors():
    weight, x = ft.compress(drawn(torch.float16, 8, 32)), drawn(torch.float16, 5, 32)
    with pytest.raises(
        fm.errors.ShapeError, match="scale_x must be a tensor of 5 float32"
    ):
        ft.sparse_linear(x, weight, scale_x=torch.ones(8))
    with pytest.raises(fm.Error, match="on a Hopper GPU"):
        ft.autotune(ft.sparse_linear, x, weight)


def test_nothing_in_nothing_out():
    weight, x = ft.compress(drawn(torch.float16, 8, 32)), drawn(torch.float16, 0, 32)
    assert ft.sparse_linear(x, weight).shape == (0, 8)
    assert ft.sparse_mm(weight, x).shape == (8, 0)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_compiled_layer_has_no_gradient_either():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 24))
    model[1] = ft.SparseLinear.from_linear(model[1], prune=True)
    compiled = torch.compile(model, backend="aot_eager")
    with pytest.raises(Exception, match="for inference"):
        compiled(drawn(torch.float32, 3, 64)).sum().backward()


def test_shapes_through_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    layer = ft.SparseLinear(64, 24)
    with FakeTensorMode(allow_non_fake_inputs=True):
        y = layer(torch.empty(7, 64, dtype=torch.bfloat16))
    assert y.shape == (7, 24)
    assert y.dtype == torch.bfloat16


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_compiled_without_a_break():
    model = ft.linears(
        torch.nn.Sequential(torch.nn.Linear(64, 24), torch.nn.GELU()), prune=True
    )
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = drawn(torch.float32, 3, 64)
    with torch.no_grad():
        assert torch.equal(compiled(x), model(x))
    bits = drawn(torch.uint8, 4, 8)
    product = torch.compile(ft.binary_mm, fullgraph=True, backend="aot_eager")
    assert torch.equal(product(bits, bits), ft.binary_mm(bits, bits))


@pytest.mark.parametrize("prune", [True, False])
def test_compression_is_compiled_without_a_break(prune):
    weight = ft.compress(drawn(torch.float16, 9, 48)).to_dense()
    x = drawn(torch.float16, 4, 48, seed=1)

    def there_and_back(weight, x):
        sparse = ft.compress(weight, prune=prune)
        return sparse.to_dense(), ft.sparse_linear(x, sparse)

    compiled = torch.compile(there_and_back, fullgraph=True, backend="aot_eager")
    dense, y = compiled(weight, x)
    assert torch.equal(dense, weight)
    assert torch.equal(y, there_and_back(weight, x)[1])


def test_compression_is_compiled_once_for_all_shapes():
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    compiled = torch.compile(
        lambda w: ft.compress(w).to_dense(), fullgraph=True, backend=backend
    )
    for rows, columns in [(9, 48), (17, 80), (300, 36), (5, 20), (64, 64), (2, 12)]:
        weight = ft.compress(drawn(torch.float16, rows, columns)).to_dense()
        assert torch.equal(compiled(weight), weight)
    assert len(graphs) == 2  # one for the first shape, one for all others


def test_a_subclass_leaves_no_trace():
    class Marked(torch.Tensor):
        pass

    weight = drawn(torch.float16, 9, 48).as_subclass(Marked)
    assert type(ft.compress(weight).data) is torch.Tensor


def test_compression_without_data():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        sparse = ft.compress(torch.empty(9, 48, dtype=torch.bfloat16))
        dense = sparse.to_dense()
    assert sparse.data.shape == packed_shape("bf16", 9, 48)
    assert (dense.shape, dense.dtype) == ((9, 48), torch.bfloat16)


def test_a_weight_that_wants_gradients_is_compressed_without():
    layer = torch.nn.Linear(48, 9)
    sparse = ft.compress(layer.weight)
    assert not sparse.data.requires_grad
    assert not sparse.to_dense().requires_grad


def test_same_bits_as_the_emulation():
    from fragmenta.hopper.kernels.emulate import emulate

    weight, x = drawn(torch.float16, 9, 48), drawn(torch.float16, 4, 48, seed=1)
    sparse = ft.compress(weight)
    kernel = Kernel("f16", out="f16", tile=Tile(64, 8), transposed=True)
    want = emulate(kernel, sparse.to_dense().numpy(), x.numpy())
    found = ft.sparse_linear(x, sparse)
    assert (found.numpy().view(np.uint16) == want.view(np.uint16)).all()


def test_other_arrays_are_answered_in_kind():
    a, b = ft.compress(drawn(torch.float16, 8, 32)), drawn(torch.float16, 5, 32)
    found = ft.sparse_mm(a, b.numpy(), bias=np.ones(8, np.float32))
    assert isinstance(found, np.ndarray)
    assert (found == ft.sparse_mm(a, b, bias=torch.ones(8)).numpy()).all()
    bits = drawn(torch.uint8, 4, 8)
    assert isinstance(ft.binary_mm(bits.numpy(), bits.numpy()), np.ndarray)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_sums_of_nothing_are_refused(device):
    a, b = (torch.ones(rows, 0, device=device).bfloat16() for rows in (4, 3))
    with pytest.raises(fm.errors.ShapeError, match="k must be at least 1"):
        ft.dense_mm(a, b)
    bits = torch.zeros(4, 0, dtype=torch.uint8, device=device)
    with pytest.raises(fm.errors.ShapeError, match="k must be at least 1"):
        ft.binary_mm(bits, bits)


@pytest.mark.parametrize(
    "carried",
    [
        lambda model, x: torch.fx.symbolic_trace(model),
        lambda model, x: torch.export.export(model, (x,)).module(),
    ],
    ids=["torch.fx", "torch.export"],
)
def test_a_model_is_carried_elsewhere(carried):
    layers = torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16)
    model = ft.linears(torch.nn.Sequential(*layers).bfloat16(), prune=True).eval()
    x = drawn(torch.bfloat16, 5, 64)
    with torch.no_grad():
        assert torch.equal(carried(model, x)(x), model(x))


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: ft.compress(None), "a weight must be a tensor; given a NoneType"),
        (lambda: ft.binary_mm(None, torch.ones(1, 1)), "A must be a tensor"),
        (lambda: ft.SparseLinear(8, 4)(None), "x must be a tensor; given a NoneType"),
        (
            lambda: ft.SparseLinear(8.0, 4),
            r"rows and columns must be .* given \(4, 8.0\)",
        ),
        (lambda: ft.SparseLinear(0, 4), "rows and columns"),
        (
            lambda: ft.SparseLinear.from_linear(torch.nn.ReLU()),
            "takes a torch.nn.Linear; given a ReLU",
        ),
        (lambda: ft.SparseLinear.from_linear(torch.nn.LazyLinear(4)), "it is lazy"),
        (lambda: ft.SparseMatrix(None, "bf16", (4, 8)), "a tensor of bytes"),
        (lambda: ft.SparseMatrix(torch.ones(1), "zz", (4, 8)), "given a Tensor of zz"),
        (lambda: ft.SparseMatrix(torch.ones(1), "s8", 24), "rows and columns"),
    ],
)
def test_what_is_nothing_of_the_kind_is_told(call, said):
    with pytest.raises(fm.Error, match=said):
        call()
    assert ft.SparseLinear(8, 4).weight.shape == (4, 8)  # and nothing stays of it


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    "name, shapes, said",
    [
        ("dense_mm", ((4, 16), (3, 32)), "A must be m x k and B n x k"),
        ("dense_mm", ((16,), (3, 16)), "A must be m x k and B n x k"),
        ("dense_mm", ((4, 16), (2, 3, 16)), "A must be m x k and B n x k"),
        ("sparse_linear", ((), (1, 1, 4, 4608)), "given a single number"),
    ],
)
def test_operators_refuse_by_themselves(name, shapes, said, device):
    first, second = (torch.ones(shape, device=device) for shape in shapes)
    rest = (None, None, None, None)
    given = (first, second, torch.float32, *rest, False, False, [])
    if name == "sparse_linear":
        given = (first, second.byte(), "bf16", 4, torch.float32, *rest, False, [])
    with pytest.raises(fm.errors.ShapeError, match=said):
        getattr(torch.ops.fragmenta, name)(*given)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_operators_trust_no_bytes(device):
    x = torch.ones(2, 64, device=device).bfloat16()
    good = ft.compress(drawn(torch.bfloat16, 24, 64)).data.to(device)
    parts = (None, None, None, None, False)
    call = torch.ops.fragmenta.sparse_linear
    wrong = (
        (good, "zz", 24),
        (good.float(), "bf16", 24),
        (good, "bf16", 300),
        (good, "bf16", -1),
    )
    for packed, a, m in wrong:
        with pytest.raises(fm.errors.ShapeError):
            call(x, packed, a, m, torch.bfloat16, *parts, [])
    with pytest.raises(fm.errors.ShapeError, match="m, n, cluster, turns and split"):
        call(x, good, "bf16", 24, torch.bfloat16, *parts, [64, 64])


@pytest.mark.parametrize("kind", [torch.int8, torch.float8_e4m3fn])
def test_autocast_rounds_nothing_to_eight_bits(kind):
    made = torch.nn.Linear(64, 24, bias=False)
    weight = drawn(torch.int8, 24, 64).to(kind)
    made.weight = torch.nn.Parameter(weight, requires_grad=False)
    sparse = ft.SparseLinear.from_linear(made, prune=True)
    x = torch.full((2, 64), 0.5)
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(fm.Error, match="x torch"),
    ):
        sparse(x)


def test_new_bytes_are_seen():
    first, second = (
        ft.SparseLinear.from_linear(torch.nn.Linear(32, 8).bfloat16(), prune=True)
        for _ in range(2)
    )
    x = drawn(torch.bfloat16, 3, 32)
    again = pickle.loads(pickle.dumps(first))
    again(x)
    again.load_state_dict(second.state_dict())
    assert torch.equal(again(x), second(x))
    again.weight_packed.data = first.weight_packed.clone()
    again.bias.data = first.bias.clone()
    assert torch.equal(again(x), first(x))


def test_a_bias_is_float32_whatever_the_default():
    made = torch.nn.Linear(32, 8)
    try:
        torch.set_default_dtype(torch.bfloat16)
        sparse = ft.SparseLinear.from_linear(made, prune=True)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(sparse.bias, made.bias)


def test_an_encoder_is_compiled_whole():
    torch.manual_seed(0)
    encoder = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    ft.linears(encoder, prune=True)
    x = torch.randn(2, 3, 16)
    with torch.no_grad():
        compiled = torch.compile(encoder, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x), encoder(x))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_trace_records_the_product():
    weight = ft.compress(drawn(torch.bfloat16, 8, 32))
    x = drawn(torch.bfloat16, 3, 32)
    direct = []

    def product(x):
        direct.append(operators._direct(()))
        return ft.sparse_linear(x, weight)

    traced = torch.jit.trace(product, x, check_trace=False)
    assert "fragmenta::sparse_linear" in str(traced.graph)
    assert direct == [False]
    assert operators._direct(())
