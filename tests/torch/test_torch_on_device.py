"""The PyTorch operators on a Hopper GPU: the bits of the emulation, everywhere."""

import copy
import time

import numpy as np
import pytest
import torch

import fragmenta as fm
import fragmenta.torch as ft
from fragmenta.hopper.torch.matrix import tensor_of
from fragmenta.reference.registers.dtype import dtype
from tests.kernels.test_quantize import hostile
from tests.torch.test_pruning import bits, sparse_pattern

pytestmark = [
    pytest.mark.gpu,
    # What torch itself warns of when it compiles and records graphs.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty"),
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
        reason="no Hopper GPU here",
    ),
]


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return torch.nn.Linear(256, 384).bfloat16()


@pytest.fixture
def x():
    return torch.randn(5, 17, 256).bfloat16()


def test_the_bits_of_the_emulation(layer, x):
    here = ft.SparseLinear.from_linear(layer, prune=True)
    there = ft.SparseLinear.from_linear(layer.cuda(), prune=True)
    assert torch.equal(here.weight_packed, there.weight_packed.cpu())
    assert torch.equal(here(x), there(x.cuda()).cpu())


@pytest.mark.parametrize("kind", ft.TYPES, ids=str)
def test_a_sparse_weight_survives_bit_for_bit(kind):
    weight = sparse_pattern(kind)
    found = ft.compress(weight.cuda())
    assert torch.equal(bits(found.to_dense().cpu()), bits(weight))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_by_torch(layer, x, mode):
    """One graph without breaks; reduce-overhead replays it as a CUDA graph."""
    model = torch.nn.Sequential(layer, torch.nn.GELU(), torch.nn.Linear(384, 64))
    model = ft.linears(model.bfloat16().cuda(), prune=True)
    compiled = torch.compile(model, fullgraph=True, mode=mode)
    with torch.no_grad():
        for each in (x, x.flip(0), x.flip(1), -x, x[:2].contiguous(), x[2:4]):
            given = each.cuda()
            torch.testing.assert_close(compiled(given).clone(), model(given))


def test_bits_compiled_by_torch():
    a, b = (torch.randint(0, 256, (n, 64), device="cuda").byte() for n in (48, 33))
    compiled = torch.compile(lambda a, b: ft.binary_mm(a, b) + 1, fullgraph=True)
    assert torch.equal(compiled(a, b), ft.binary_mm(a, b) + 1)


def test_cupy_is_answered_in_kind(layer, x):
    cupy = pytest.importorskip("cupy", reason="CuPy, which needs a GPU")
    sparse = ft.compress(layer.weight.detach().half().cuda())
    b = x[0].half().cuda()
    found = ft.sparse_mm(sparse, cupy.from_dlpack(b))
    assert isinstance(found, cupy.ndarray)
    assert torch.equal(torch.from_dlpack(found), ft.sparse_mm(sparse, b))


def test_autotune_keeps_what_is_fastest(tmp_path, monkeypatch):
    from fragmenta.hopper.kernels import tuning

    monkeypatch.setenv("FRAGMENTA_CACHE", str(tmp_path))
    tuning._kept.cache_clear()
    weight = torch.randn(1024, 512, device="cuda").to(torch.float8_e4m3fn)
    x = torch.randn(40, 512, device="cuda").to(torch.float8_e4m3fn)
    packed, bias = ft.compress(weight), torch.randn(1024, device="cuda")
    before = ft.sparse_linear(x, packed, bias)
    tiles = ft.autotune(ft.sparse_linear, x, packed, bias)
    ((kernel, shape),) = tiles
    assert kernel == "e4m3 f32 sparse scaled transposed"
    assert shape == (1024, 40, 512)
    assert set(tiles.values()) == set(tuning._kept().values())
    assert torch.equal(ft.sparse_linear(x, packed, bias), before)
    assert len(ft.autotune(ft.dense_mm, weight, x)) == 1
    bits = weight.view(torch.uint8)
    assert len(ft.autotune(ft.binary_mm, bits, bits[:40])) == 1
    tuning._kept.cache_clear()


def test_autotune_of_a_model(layer, x, tmp_path, monkeypatch):
    from fragmenta.hopper.kernels import tuning

    monkeypatch.setenv("FRAGMENTA_CACHE", str(tmp_path))
    tuning._kept.cache_clear()
    model = torch.nn.Sequential(layer, torch.nn.GELU(), torch.nn.Linear(384, 64))
    model, given = ft.linears(model.bfloat16().cuda(), prune=True), x.cuda()
    before = model(given)
    assert len(ft.autotune(model, given)) == 2
    assert torch.equal(model(given), before)
    tuning._kept.cache_clear()


def test_strange_memory(layer):
    """Rows that lie apart, on top of one another, or not on multiples of 16 bytes."""
    sparse = ft.SparseLinear.from_linear(layer.cuda(), prune=True)
    wide = torch.randn(33, 300, device="cuda").bfloat16()
    for x in (wide[:, 3:259], wide[:1, :256].expand(7, 256), wide[:0, :256]):
        assert torch.equal(sparse(x), sparse(x.contiguous().clone()))
    assert torch.equal(sparse(wide.t()[:256].t()), sparse(wide[:, :256].contiguous()))
    odd = torch.nn.Linear(250, 96, bias=False).bfloat16()
    here, there = (ft.compress(odd.to(d).weight.detach()) for d in ("cpu", "cuda"))
    assert torch.equal(here.data, there.data.cpu())


def test_operands_elsewhere_are_refused(layer, x):
    sparse = ft.SparseLinear.from_linear(layer, prune=True)
    with pytest.raises(fm.Error, match="the weight is on cpu and x on cuda"):
        sparse(x.cuda())
    with pytest.raises(fm.Error, match="bias must be a tensor of 384 float32 on cuda"):
        ft.sparse_linear(x.cuda(), sparse.weight.to("cuda"), torch.ones(384))


def test_a_call_does_not_wait(layer):
    """The host is done long before the GPU, which was kept busy."""
    sparse = ft.SparseLinear.from_linear(layer.cuda(), prune=True)
    x = torch.randn(64, 256, device="cuda").bfloat16()
    sparse(x)
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)  # about a second
    begun = time.perf_counter()
    sparse(x)
    assert time.perf_counter() - begun < 0.5
    assert not torch.cuda.current_stream().query()
    torch.cuda.synchronize()


def test_memory_of_another_stream(layer, x):
    sparse, given = ft.SparseLinear.from_linear(layer.cuda(), prune=True), x.cuda()
    wanted = sparse(given)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        found = [sparse(given) for _ in range(20)]
    stream.synchronize()
    assert all(torch.equal(each, wanted) for each in found)


# ── quantised layers ────────────────────────────────────────────────────────

FLOATS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
ELEMENTS = {"fp8": "e4m3", "int8": "s8"}


@pytest.mark.parametrize("scale", [None, 0.01, 2.0**-149, 3.4e38, 0.0, float("nan")])
@pytest.mark.parametrize("quantize", ELEMENTS)
@pytest.mark.parametrize("given", FLOATS)
def test_rows_are_quantised_to_the_same_bits(given, quantize, scale):
    """Ties, subnormals, NaN, infinities, rows of zeros; columns of all kinds."""
    for columns in (1, 9, 500, 501, 4096, 20_001):
        drawn = hostile(given, dtype(ELEMENTS[quantize]), columns=max(columns, 8))
        x = tensor_of(drawn, FLOATS[given])[:, :columns]
        known = None if scale is None else torch.tensor(scale)
        here = ft.quantize_rows(x, quantize, scale=known)
        known = None if scale is None else known.cuda()
        there = ft.quantize_rows(x.cuda(), quantize, scale=known)
        for each, other in zip(here, there, strict=True):
            assert torch.equal(bits(each), bits(other.cpu()))


def test_many_rows_are_quantised_to_the_same_bits():
    x = torch.randn(3000, 1024, generator=torch.Generator().manual_seed(0)).bfloat16()
    for quantize in ELEMENTS:
        here, there = (ft.quantize_rows(each, quantize) for each in (x, x.cuda()))
        for each, other in zip(here, there, strict=True):
            assert torch.equal(bits(each), bits(other.cpu()))


@pytest.mark.parametrize("static", [None, 0.01])
@pytest.mark.parametrize("scales", ["row", "tensor"])
@pytest.mark.parametrize("quantize", ELEMENTS)
@pytest.mark.parametrize("kind", FLOATS.values(), ids=str)
def test_a_quantised_layer_has_the_bits_of_the_emulation(
    kind, quantize, scales, static
):
    torch.manual_seed(0)
    layer = torch.nn.Linear(250, 96).to(kind)
    x = torch.randn(3, 11, 250).to(kind)
    options = {"quantize": quantize, "scales": scales, "activation_scale": static}
    here = ft.SparseLinear.from_linear(layer, prune=True, **options)
    there = ft.SparseLinear.from_linear(layer.cuda(), prune=True, **options)
    assert torch.equal(here.weight_packed, there.weight_packed.cpu())
    assert torch.equal(here.weight_scale, there.weight_scale.cpu())
    assert torch.equal(here(x), there(x.cuda()).cpu())


@pytest.mark.parametrize("quantize", ELEMENTS)
def test_quantised_layers_compiled_and_in_a_graph(layer, x, quantize):
    model = torch.nn.Sequential(layer, torch.nn.GELU(), torch.nn.Linear(384, 64))
    model, given = model.bfloat16().cuda(), x.cuda()
    scales = ft.calibrate(model, [given], quantize=quantize)
    del scales["2"]  # one layer is static, one is not
    model = ft.linears(model, prune=True, quantize=quantize, activation_scales=scales)
    compiled = torch.compile(model, fullgraph=True, mode="reduce-overhead")
    with torch.no_grad():
        for each in (given, given.flip(0), -given, given.flip(1)):
            torch.testing.assert_close(
                compiled(each).clone(), model(each), atol=0.05, rtol=0.05
            )
        wanted = model(given)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = model(given)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(found, wanted)


def test_a_quantised_call_does_not_wait(layer):
    sparse = ft.SparseLinear.from_linear(layer.cuda(), prune=True, quantize="fp8")
    x = torch.randn(64, 256, device="cuda").bfloat16()
    sparse(x)
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)  # about a second
    begun = time.perf_counter()
    sparse(x)
    assert time.perf_counter() - begun < 0.5
    assert not torch.cuda.current_stream().query()
    torch.cuda.synchronize()


def test_a_report_has_times(layer, x):
    dense = torch.nn.Sequential(layer, torch.nn.GELU(), torch.nn.Linear(384, 64))
    dense = dense.bfloat16().cuda()
    for quantize in (None, "fp8", "int8"):
        model = ft.linears(copy.deepcopy(dense), prune=True, quantize=quantize)
        found = ft.report(model, x.cuda(), reference=dense)
        assert [row.batch for row in found.rows] == [85, 85]
        for row in found.rows:
            assert 0 < row.time_us < 1000
            assert row.ratio == row.dense_us / row.time_us
            assert 0.1 < row.error < 0.8
            assert row.tile
        assert max(map(len, str(found).splitlines())) <= 80
        own = ft.report(model, x.cuda())
        here = ft.report(copy.deepcopy(model).cpu(), x)
        np.testing.assert_allclose(
            [row.error for row in own.rows], [row.error for row in here.rows], rtol=0.01
        )


# ── sparse activations ──────────────────────────────────────────────────────


@pytest.fixture
def feed_forward():
    torch.manual_seed(0)
    up, down = (
        torch.nn.Linear(*sizes, bias=False) for sizes in ((200, 520), (520, 72))
    )
    return ft.SparseFeedForward.from_linears(up, down, "relu2")


@pytest.mark.parametrize("scale", [None, 0.125])
@pytest.mark.parametrize("tokens", [1, 37, 256, 300])
def test_blocks_with_sparse_activations(feed_forward, scale, tokens):
    feed_forward.fix_scale(scale)
    x = torch.randn(tokens, 200).bfloat16()
    there = copy.deepcopy(feed_forward).cuda()
    with torch.no_grad():
        assert torch.equal(feed_forward(x), there(x.cuda()).cpu())


@pytest.mark.parametrize("scale", [None, 0.125])
def test_compiled_blocks_in_cuda_graphs(feed_forward, scale):
    feed_forward.fix_scale(scale)
    model = torch.nn.Sequential(feed_forward, torch.nn.Linear(72, 200).bfloat16())
    model = torch.nn.Sequential(model, copy.deepcopy(feed_forward)).cuda()
    compiled = torch.compile(model, fullgraph=True, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(300, 200, device="cuda").bfloat16()
            assert torch.equal(compiled(x).clone(), model(x))


def test_the_report_of_a_block_has_times(feed_forward):
    x = torch.randn(256, 200, device="cuda").bfloat16()
    found = ft.report(feed_forward.cuda(), x).blocks[0]
    assert found.time_us > 0
    assert found.ratio > 0
