"""Layers that are trained, on a Hopper GPU: the bits of the emulation."""

import copy

import pytest
import torch

import fragmenta.torch as ft
from fragmenta.hopper.torch.matrix import DTYPES
from tests.torch import test_torch_on_device
from tests.torch.test_pruning import bits
from tests.torch.test_training import TYPES, trained, whole

pytestmark = test_torch_on_device.pytestmark

SIZES = [(46, 22), (256, 384), (513, 130), (1024, 257)]


def random_layer(name, columns, rows, transposable):
    torch.manual_seed(columns)
    linear = torch.nn.Linear(columns, rows).to(DTYPES[name])
    return ft.SparseLinear.from_linear(
        linear, prune=True, train=True, transposable=transposable
    )


@pytest.mark.parametrize("columns, rows", SIZES)
@pytest.mark.parametrize("name", TYPES)
def test_the_bytes_of_the_emulation(name, columns, rows):
    """Packed, packed and transposed, dense, gathered; also masks chosen there."""
    ops = torch.ops.fragmenta
    for transposable in (False, True):
        here = random_layer(name, columns, rows, transposable)
        there = copy.deepcopy(here).cuda()
        kept = [
            (each.weight_values.detach(), each.weight_codes) for each in (here, there)
        ]
        for turned in (False, True) if transposable else (False,):
            mine, theirs = (ops.pack_kept(*k, name, columns, turned) for k in kept)
            assert torch.equal(mine, theirs.cpu())
        mine, theirs = (ops.kept_to_dense(*k, name, columns) for k in kept)
        assert torch.equal(bits(mine), bits(theirs.cpu()))
        dense = torch.randn(rows, columns).to(DTYPES[name])
        mine = ops.gather_kept(dense, here.weight_codes, name)
        theirs = ops.gather_kept(dense.cuda(), there.weight_codes, name)
        assert torch.equal(bits(mine), bits(theirs.cpu()))
    torch.manual_seed(columns)
    linear = torch.nn.Linear(columns, rows).to(DTYPES[name]).cuda()
    made = ft.SparseLinear.from_linear(
        linear, prune=True, train=True, transposable=True
    )
    assert torch.equal(made.weight_codes.cpu(), here.weight_codes)


@pytest.mark.parametrize("columns, rows", SIZES)
@pytest.mark.parametrize("name", TYPES)
def test_forward_and_backward_have_the_bits_of_the_emulation(name, columns, rows):
    """y and dX; dW is a product of PyTorch, which has its own order."""
    here = random_layer(name, columns, rows, True)
    there = copy.deepcopy(here).cuda()
    x = torch.randn(3, 29, columns).to(DTYPES[name])
    mine, theirs = x.clone().requires_grad_(), x.cuda().requires_grad_()
    y, other = here(mine), there(theirs)
    assert torch.equal(y, other.cpu())
    gradient = torch.randn(y.shape).to(DTYPES[name])
    y.backward(gradient)
    other.backward(gradient.cuda())
    assert torch.equal(mine.grad, theirs.grad.cpu())
    torch.testing.assert_close(
        here.weight_values.grad, there.weight_values.grad.cpu(), atol=0.1, rtol=0.02
    )
    torch.testing.assert_close(here.bias.grad, there.bias.grad.cpu())


@pytest.mark.parametrize("transposable", [False, True])
@pytest.mark.parametrize("name", TYPES)
def test_whole_numbers_are_exact_in_all_products(name, transposable):
    layer, _ = trained(name, 250, 96, transposable)
    there = copy.deepcopy(layer).cuda()
    found = []
    for each in (layer, there):
        x = whole(DTYPES[name], 2, 17, 250).to(each.bias.device).requires_grad_()
        y = each(x)
        y.backward(whole(DTYPES[name], *y.shape, most=1).to(y.device))
        found.append([y, x.grad, each.weight_values.grad, each.bias.grad])
    for mine, theirs in zip(*found, strict=True):
        assert torch.equal(mine, theirs.cpu())


def test_steps_compiled_and_in_a_graph():
    """Adam learns the same in eager steps, when compiled, and from a graph."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64)
    ).bfloat16()
    model = ft.linears(model, prune=True, train=True, transposable=True).cuda()
    x = torch.randn(96, 128, device="cuda").bfloat16()
    wanted = torch.randn(96, 64, device="cuda").bfloat16()
    losses = {}
    for way in ("eager", "compiled", "graph"):
        mine = copy.deepcopy(model)
        call = torch.compile(mine, fullgraph=True) if way == "compiled" else mine
        optimiser = torch.optim.Adam(mine.parameters(), 0.01, capturable=True)
        step = _step(call, optimiser, x, wanted)
        if way == "graph":
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                first = [step().item() for _ in range(3)]
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                loss = step()
            replays = []
            for _ in range(17):
                graph.replay()
                replays.append(loss.item())
            losses[way] = first + replays
        else:
            losses[way] = [step().item() for _ in range(20)]
    assert losses["eager"][-1] < 0.7 * losses["eager"][0]
    for way in ("compiled", "graph"):
        assert losses[way] == pytest.approx(losses["eager"], rel=0.1)


def _step(call, optimiser, x, wanted):
    def step():
        optimiser.zero_grad(set_to_none=True)
        loss = (call(x) - wanted).float().square().mean()
        loss.backward()
        optimiser.step()
        return loss.detach()

    return step
