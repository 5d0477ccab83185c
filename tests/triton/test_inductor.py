"""``torch.compile`` makes Triton kernels, which run here and are watched."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
import triton
import triton.language as tl
from torch._dynamo import device_interface

from fragmenta.errors import KernelFault, KernelHazard
from fragmenta.triton import inductor

# PyTorch's compiler uses what Python has deprecated.
pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore")]
HERE = Path(__file__).name


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, at < n), at < n)


@triton.jit
def collide(x, BLOCK: tl.constexpr):
    tl.store(x + tl.program_id(0) // 2, tl.program_id(0))


def softmax(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 2 + bias, -1).sum(-1)


def mine(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out + 1


def racing(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    collide[(4,)](out, BLOCK=1)
    return out + 1


def gathered(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return x[index] * 2  # the line of the fault


def test_forward_and_backward() -> None:
    x, bias = torch.randn(5, 70), torch.randn(70)
    given = [x.clone().requires_grad_() for _ in range(2)]
    with inductor("sm_90a") as cpu:
        got = torch.compile(softmax)(given[0], bias)
        forward = cpu.instructions
        got.square().sum().backward()
        assert 0 < forward < cpu.instructions
    want = softmax(given[1], bias)
    want.square().sum().backward()
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(given[0].grad, given[1].grad)


def test_a_kernel_of_the_user_in_a_compiled_function() -> None:
    x = torch.arange(100.0)
    with inductor("sm_90a") as cpu:
        got = torch.compile(mine)(x)
        assert cpu.last is not None
        with pytest.raises(KernelHazard, match="global-race") as caught:
            torch.compile(racing)(torch.zeros(4))
    assert torch.equal(got, 2 * x + 1)
    first = str(caught.value).splitlines()[0]
    assert first.startswith("launched by")
    assert f"{HERE}:" in first


def test_a_report_names_the_users_line_and_inductors() -> None:
    with inductor("sm_90a"), pytest.raises(KernelFault) as caught:
        torch.compile(gathered)(torch.ones(5), torch.tensor([1, 7]))
    first, _, second, code, fault, *_ = str(caught.value).splitlines()
    assert first.startswith("launched by")
    assert HERE in first
    number = gathered.__code__.co_firstlineno + 1
    assert second.startswith("triton_poi_fused_index_mul_0 computes ")
    assert second.endswith(f"{HERE}:{number}, in gathered")
    assert code == "    return x[index] * 2  # the line of the fault"
    assert ".py:" in fault  # of the file that Inductor wrote
    assert "index out of bounds" in fault


def test_with_a_gpu_that_is_seen() -> None:
    def added(x: torch.Tensor) -> torch.Tensor:
        assert x.is_cuda
        more = torch.ones(x.shape, device=x.device)
        return x + more + torch.ones(3, device="cuda").to("cuda:0")

    with inductor("sm_90a", torch=True):
        got = torch.compile(added, fullgraph=True)(torch.zeros(3, device="cuda"))
        assert got.is_cuda
        assert got.tolist() == [2, 2, 2]


def test_everything_is_as_before() -> None:
    places: list[Any] = [inductor_config, device_interface, torch.backends.cuda]
    before = [dict(vars(each)) for each in places]
    told = inductor_config.save_config()
    with pytest.raises(ZeroDivisionError), inductor("sm_80", torch=True):
        _ = 1 / 0
    assert inductor_config.save_config() == told
    for place, old in zip(places[1:], before[1:], strict=True):
        assert {n for n in old if vars(place).get(n) is not old[n]} == set()
