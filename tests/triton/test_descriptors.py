"""The rarer tensor descriptors of Triton and Gluon move the right elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptorIm2Col
from triton.tools.tensor_descriptor import TensorDescriptor

import fragmenta as fm
from fragmenta.frontends.triton.arguments import _tensor_map
from fragmenta.triton import on_cpu

pytestmark = pytest.mark.triton


@gluon.jit
def column(
    given,
    out,
    n,
    y,
    x,
    down: gl.constexpr,
    right: gl.constexpr,
    PIXELS: gl.constexpr,
    CHANNELS: gl.constexpr,
):
    place = gl.allocate_shared_memory(gl.float32, [PIXELS, CHANNELS], given.layout)
    ready = mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    mbarrier.expect(ready, PIXELS * CHANNELS * 4)
    tma.async_load_im2col(given, [n, y, x, 0], [down, right], ready, place)
    mbarrier.wait(ready, 0)
    lanes: gl.constexpr = gl.BlockedLayout([1, 1], [4, 8], [4, 1], [1, 0])
    value = place.load(lanes)
    i = gl.arange(0, PIXELS, gl.SliceLayout(1, lanes))[:, None]
    j = gl.arange(0, CHANNELS, gl.SliceLayout(0, lanes))[None, :]
    gl.store(out + i * CHANNELS + j, value)


def pixels(
    data: Any, start: Any, offsets: Any, lower: Any, upper: Any, steps: Any
) -> Any:
    """The pixels of a column, one after the other, as the manual describes them."""
    found = []
    n, y, x = start
    for _ in range(32):
        at = y + offsets[0], x + offsets[1]
        inside = all(
            0 <= a < size for a, size in zip((n, *at), data.shape, strict=False)
        )
        found.append(data[n, at[0], at[1]] if inside else np.zeros_like(data[0, 0, 0]))
        x += steps[1]
        if x >= data.shape[2] + upper[1]:
            x, y = lower[1], y + steps[0]
        if y >= data.shape[1] + upper[0]:
            y, n = lower[0], n + 1
    return np.stack(found)


@pytest.mark.parametrize(
    ("lower", "upper", "steps", "start", "offsets"),
    [
        ((-1, -1), (-1, -1), (1, 1), (0, -1, -1), (0, 0)),
        ((-1, -1), (-1, -1), (1, 1), (1, 2, 3), (2, 1)),
        ((0, -2), (-2, 0), (1, 1), (0, 0, -2), (1, 2)),
        ((0, 0), (0, 0), (2, 2), (0, 2, 4), (0, 1)),
    ],
)
def test_a_column_of_pixels(
    lower: Any, upper: Any, steps: Any, start: Any, offsets: Any
) -> None:
    data = np.random.default_rng(4).normal(size=(3, 6, 7, 16)).astype(np.float32)
    tensor, out = torch.from_numpy(data), torch.zeros(32, 16)
    given = TensorDescriptorIm2Col(
        tensor,
        list(tensor.shape),
        list(tensor.stride()),
        [32, 16],
        gl.NVMMASharedLayout(64, 32, 2),
        element_strides=[1, *steps, 1],
        pixel_box_lower_corner=list(lower),
        pixel_box_upper_corner=list(upper),
    )
    with on_cpu("sm_90a"):
        kernel = column[1,](given, out, *start, *offsets, 32, 16)
    assert ".im2col." in kernel.asm["ptx"]
    want = pixels(data, start, offsets, lower, upper, steps)
    fm.assert_same_bits(out, torch.from_numpy(want))


@triton.jit
def gathered(given, rows, out, column, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    value = given.gather(tl.load(rows + tl.arange(0, ROWS)), column)
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    tl.store(out + i * COLUMNS + j, value)


@triton.jit
def scattered(given, rows, x, column, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    value = tl.load(x + i * COLUMNS + j)
    given.scatter(value, tl.load(rows + tl.arange(0, ROWS)), column)


ROWS_ = torch.tensor([3, 19, 0, 7, 7, 25, 4, 11], dtype=torch.int32)
"""One of them is outside the tensor."""


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_rows_are_gathered_and_scattered_on_blackwell(dtype: torch.dtype) -> None:
    tensor = torch.arange(20 * 64).reshape(20, 64).to(dtype)
    given = TensorDescriptor(tensor, [20, 64], [64, 1], [1, 32])
    out = torch.zeros(8, 32, dtype=dtype)
    inside = ROWS_ < 20
    with on_cpu("sm_100a"):
        kernel = gathered[1,](given, ROWS_, out, 32, ROWS=8, COLUMNS=32)
        assert "tile::gather4" in kernel.asm["ptx"]
        want = torch.zeros_like(out)
        want[inside] = tensor[ROWS_[inside].long(), 32:]
        fm.assert_same_bits(out, want)
        goal = torch.zeros_like(tensor)
        once = torch.tensor([3, 19, 0, 7, 8, 25, 4, 11], dtype=torch.int32)
        to = TensorDescriptor(goal, [20, 64], [64, 1], [1, 32])
        kernel = scattered[1,](to, once, out, 0, ROWS=8, COLUMNS=32)
        assert "tile::scatter4" in kernel.asm["ptx"]
    expected = torch.zeros_like(tensor)
    expected[once[inside].long(), :32] = out[inside]
    fm.assert_same_bits(goal, expected)


def test_padded_elements_of_four_bits_are_refused() -> None:
    given = TensorDescriptor(
        torch.zeros(8, 64, dtype=torch.uint8), [8, 64], [64, 1], [8, 64]
    )
    about = {
        "fp4_padded": True,
        "elem_type": 14,
        "elem_size": 1,
        "swizzle": 3,
        "block_size": [8, 64],
    }
    with pytest.raises(fm.Error, match=r"x has elements of 4 bits.* do not run here"):
        _tensor_map("x", "tensordesc<u8[8, 64]>", given, about)
