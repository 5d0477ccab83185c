"""Grouped products on a Hopper GPU: the bits of the emulation, in graphs and compiled."""

import pytest
import torch

import fragmenta.torch as ft

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
        reason="no Hopper GPU here",
    ),
]
SHARES = ((3, 0, 5, 1, 0, 40), (0, 0, 0, 49, 0, 0), (8, 8, 8, 8, 8, 9), (0,) * 6)


def ends(shares):
    return torch.tensor(shares).cumsum(0).int()


@pytest.fixture(scope="module")
def given():
    torch.manual_seed(0)
    return torch.randn(49, 264).bfloat16(), torch.randn(6, 200, 264).bfloat16()


@pytest.mark.parametrize("shares", SHARES, ids=str)
def test_the_bits_of_the_emulation(given, shares):
    x, weights = given
    offs, rows = ends(shares), sum(shares)
    here = ft.grouped_linear(x, ft.compress_experts(weights), offs)
    stack = ft.compress_experts(weights.cuda())
    there = ft.grouped_linear(x.cuda(), stack, offs.cuda())
    assert torch.equal(here[:rows], there[:rows].cpu())


@pytest.mark.parametrize("settled", [False, True])
def test_a_graph_is_replayed_with_other_shares(given, settled):
    x, weights = given
    stack, token = ft.compress_experts(weights.cuda()), x.cuda()
    offs = ends(SHARES[0]).cuda()
    for _ in range(2):
        ft.grouped_linear(token, stack, offs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        again = token + 0  # a kernel between the offsets and the product
        y = ft.grouped_linear(again, stack, offs, settled=settled)
    for shares in (*SHARES, *SHARES):
        offs.copy_(ends(shares))
        y.fill_(torch.nan)
        graph.replay()
        wanted = ft.grouped_linear(x, ft.compress_experts(weights), ends(shares))
        rows = sum(shares)
        assert torch.equal(y[:rows].cpu(), wanted[:rows])
        assert y[rows:].isnan().all()


def test_nobody_waits(given):
    x, weights = given
    stack, token = ft.compress_experts(weights.cuda()), x.cuda()
    layer = ft.SparseExperts.from_weights(
        torch.randn(6, 96, 264, device="cuda").bfloat16(),
        torch.randn(6, 264, 48, device="cuda").bfloat16(),
        prune=True,
        quantize="fp8",
    )
    index = torch.randint(0, 7, (49, 2), device="cuda")
    shares = torch.rand(49, 2, device="cuda")
    offs = ends(SHARES[0]).cuda()
    for mode in ("default", "error"):
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode(mode)
        try:
            ft.grouped_linear(token, stack, offs)
            layer(token, index, shares)
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("quantize", [None, "fp8"])
def test_experts_in_graphs_and_compiled(quantize):
    torch.manual_seed(1)
    gate_up, down = torch.randn(6, 128, 256), torch.randn(6, 256, 64)
    here = ft.SparseExperts.from_weights(
        gate_up.bfloat16(), down.bfloat16(), prune=True, quantize=quantize
    )
    there = ft.SparseExperts.from_weights(
        gate_up.cuda().bfloat16(), down.cuda().bfloat16(), prune=True, quantize=quantize
    )
    x = torch.randn(33, 256, device="cuda").bfloat16()
    index = torch.randint(0, 7, (33, 2), device="cuda")
    weights = torch.rand(33, 2, device="cuda")
    for _ in range(2):
        there(x, index, weights)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = there(x, index, weights)
    compiled = torch.compile(there, fullgraph=True)
    for _ in range(4):
        x.normal_()
        index.random_(0, 7)
        graph.replay()
        wanted = here(x.cpu(), index.cpu(), weights.cpu()).float()
        eager = there(x, index, weights)
        assert torch.equal(y, eager)
        found = (eager, compiled(x, index, weights))
        for each in found:
            error = (each.float().cpu() - wanted).norm() / wanted.norm()
            assert error < (0.02 if quantize is None else 0.05)


def test_autotune_keeps_the_bits(given, tmp_path, monkeypatch):
    from fragmenta.hopper.kernels import tuning

    monkeypatch.setenv("FRAGMENTA_CACHE", str(tmp_path))
    tuning._kept.cache_clear()
    x, weights = given
    stack, offs = ft.compress_experts(weights.cuda()), ends(SHARES[0]).cuda()
    call = (x.cuda(), stack, offs)
    before = ft.grouped_linear(*call)
    ((kind, shape),) = ft.autotune(ft.grouped_linear, *call)
    assert kind == "bf16 bf16 sparse transposed grouped"
    assert shape == (200, 49, 264, 6)
    assert torch.equal(ft.grouped_linear(*call), before)
    tuning._kept.cache_clear()
