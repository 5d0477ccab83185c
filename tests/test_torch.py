"""The PyTorch operators: without a GPU they are the emulation."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import fragmenta as fm  # noqa: E402
import fragmenta.torch as ft  # noqa: E402
from fragmenta.kernels import Kernel, Tile  # noqa: E402

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
    with pytest.raises(fm.NotSparse):
        ft.compress(torch.ones(4, 8, dtype=torch.bfloat16), prune=False)
    with pytest.raises(fm.Error, match="matrix of"):
        ft.compress(torch.ones(4, 8, dtype=torch.float64))


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
    sparse = ft.SparseLinear.from_linear(layer)
    x = drawn(torch.bfloat16, 6, 64).reshape(2, 3, 64)
    dense = torch.nn.functional.linear(
        x.float(), sparse.weight.to_dense().float(), layer.bias.float()
    )
    found = sparse(x)
    assert found.shape == (2, 3, 24)
    assert found.dtype == torch.bfloat16
    assert torch.allclose(found.float(), dense, atol=0.05)


def test_state_dict_round_trip(tmp_path):
    layer = ft.SparseLinear.from_linear(torch.nn.Linear(64, 24).half())
    torch.save(layer.state_dict(), tmp_path / "state")
    other = ft.SparseLinear(64, 24, dtype=torch.float16)
    other.load_state_dict(torch.load(tmp_path / "state"))
    x = drawn(torch.float16, 3, 64)
    assert torch.equal(layer(x), other(x))
    assert set(layer.state_dict()) == {"weight_packed", "bias"}


def test_linears_replaces_all():
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 8), torch.nn.Sequential(torch.nn.Linear(8, 64))
    ).bfloat16()
    ft.linears(model, least=100)
    assert type(model[0]) is torch.nn.Linear
    assert type(model[1][0]) is ft.SparseLinear


@pytest.mark.parametrize("op", ["and", "xor"])
def test_binary_mm(op):
    a, b = (drawn(torch.uint8, rows, 40, seed=rows) for rows in (7, 5))
    bits = [np.unpackbits(x.numpy(), axis=-1) for x in (a, b)]
    each = {"and": np.bitwise_and, "xor": np.bitwise_xor}[op](bits[0][:, None], bits[1])
    assert (ft.binary_mm(a, b, op=op).numpy() == each.sum(-1)).all()


def test_the_operators_are_well_formed():
    a, b = ft.compress(drawn(torch.bfloat16, 8, 32)), drawn(torch.bfloat16, 5, 32)
    arguments = (a.data, b, "bf16", 8, torch.bfloat16, None, None, None, None, True,
                 False, [])  # fmt: skip
    utilities = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(torch.ops.fragmenta.sparse_mm.default, arguments,
                          test_utils=utilities)  # fmt: skip
    arguments = (
        b,
        a.data,
        "bf16",
        8,
        torch.bfloat16,
        None,
        None,
        None,
        None,
        False,
        [],
    )
    torch.library.opcheck(torch.ops.fragmenta.sparse_linear.default, arguments,
                          test_utils=utilities)  # fmt: skip
    bits = drawn(torch.uint8, 4, 8)
    torch.library.opcheck(torch.ops.fragmenta.binary_mm.default, (bits, bits, True, []),
                          test_utils=utilities)  # fmt: skip


def test_no_gradient_is_told_so():
    layer = ft.SparseLinear.from_linear(torch.nn.Linear(64, 24).bfloat16())
    x = drawn(torch.bfloat16, 3, 64).requires_grad_()
    y = layer(x)  # an evaluation need not say no_grad
    assert torch.equal(y, layer(x.detach()))
    with pytest.raises(fm.Error, match="for inference"):
        y.sum().backward()


def test_wrong_bytes_and_shapes_are_refused():
    a, b = ft.compress(drawn(torch.bfloat16, 8, 32)), drawn(torch.bfloat16, 5, 64)
    rest = (torch.bfloat16, None, None, None, None, True, False, [])
    with pytest.raises(fm.ShapeError, match="bytes of shape"):
        torch.ops.fragmenta.sparse_mm(a.data[..., 1:], b, "bf16", 8, *rest)
    with pytest.raises(fm.ShapeError, match="does not end in 32"):
        ft.sparse_linear(b, a)
    with pytest.raises(fm.ShapeError, match="not n x k"):
        ft.sparse_mm(a, b)
    with pytest.raises(fm.ShapeError, match="bias has 8 numbers"):
        ft.sparse_mm(a, b[:, :32], bias=torch.ones(5))


def test_shapes_through_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    layer = ft.SparseLinear(64, 24)
    with FakeTensorMode(allow_non_fake_inputs=True):
        y = layer(torch.empty(7, 64, dtype=torch.bfloat16))
    assert y.shape == (7, 24)
    assert y.dtype == torch.bfloat16


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_without_a_break():
    model = ft.linears(torch.nn.Sequential(torch.nn.Linear(64, 24), torch.nn.GELU()))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = drawn(torch.float32, 3, 64)
    with torch.no_grad():
        assert torch.equal(compiled(x), model(x))
    bits = drawn(torch.uint8, 4, 8)
    product = torch.compile(ft.binary_mm, fullgraph=True, backend="aot_eager")
    assert torch.equal(product(bits, bits), ft.binary_mm(bits, bits))


def test_same_bits_as_the_emulation():
    from fragmenta.kernels.emulate import emulate

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
