"""Kernels of Helion run here, as it writes them for Triton."""

from __future__ import annotations

import helion
import helion.language as hl
import pytest
import torch

from fragmenta.errors import KernelFault
from fragmenta.triton import on_cpu

once = helion.kernel(autotune_effort="none", static_shapes=True)


@once
def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = torch.nn.functional.softmax(x[tile, :], dim=1)
    return out


@once
def chosen(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(index, dtype=x.dtype)
    for tile in hl.tile(index.size(0)):
        out[tile] = hl.load(x, [index[tile]])
    return out


def test_a_kernel_as_on_a_gpu() -> None:
    with on_cpu("sm_90a", torch=True) as cpu:
        x = torch.randn(16, 100, device="cuda")
        found = softmax(x)
        torch.testing.assert_close(found, torch.softmax(x, 1))
    assert cpu.last is not None
    assert [each for each in cpu.last.problems if each.severity != "info"] == []


def test_a_fault_names_the_program_first() -> None:
    with on_cpu("sm_90a", torch=True):
        x, index = torch.ones(8, device="cuda"), torch.arange(5, 37, device="cuda")
        with pytest.raises(KernelFault, match="past the end of") as why:
            chosen(x, index)
    said = str(why.value).splitlines()
    assert said[0].startswith("launched by ")
    assert "test_helion.py" in said[0]
