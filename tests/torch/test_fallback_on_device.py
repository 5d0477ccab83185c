"""4-bit layers with many rows of x on a Hopper GPU: the bits of the CPU."""

import pytest
import torch

import fragmenta.torch as ft

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
        reason="no Hopper GPU here",
    ),
]
KINDS = [("int4", 128), ("int4", 32), ("int4", 0), ("int4-fp8", 64), ("int4-fp8", 0)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("quantize", "group"), KINDS)
def test_wide_weights_and_products(quantize, group, dtype):
    torch.manual_seed(0)
    linear = torch.nn.Linear(712, 300).to(dtype)
    options = {"prune": True, "quantize": quantize, "group": group, "fallback": "kept"}
    here = ft.SparseLinear.from_linear(linear, **options)
    there = ft.SparseLinear.from_linear(linear.cuda(), **options)
    assert torch.equal(there.weight_wide.cpu(), here.weight_wide)
    for rows in (33, 160):
        x = torch.randn(rows, 712).to(dtype)
        assert torch.equal(there(x.cuda()).cpu(), here(x))


@pytest.mark.parametrize("fallback", ["made", "kept"])
def test_graphs_and_compiled(fallback):
    torch.manual_seed(0)
    linear = torch.nn.Linear(512, 256).bfloat16().cuda()
    options = {"prune": True, "quantize": "int4-fp8", "fallback": fallback}
    layer = ft.SparseLinear.from_linear(linear, **options)
    compiled = torch.compile(layer, dynamic=True, fullgraph=True)
    with torch.no_grad():
        for rows in (40, 1100, 7):
            x = torch.randn(rows, 512).bfloat16().cuda()
            wanted = layer(x)
            assert torch.equal(compiled(x), wanted)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = layer(x)
            y.zero_()
            graph.replay()
            assert torch.equal(y, wanted)
