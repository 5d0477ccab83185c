"""Triton kernels give the bits of a GPU when they are simply called.

The recordings were made on an H200, of PTX that another version of Triton had written;
here are those whose results do not depend on how the compiler orders the arithmetic.
"""

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import fragmenta as fm
from fragmenta.triton import on_cpu
from tests.ptx import recordings
from tests.ptx.corpus import triton_kernels as corpus

pytestmark = pytest.mark.triton

RECORDED = {each.row.name: each for each in recordings.of_source("triton")}
# An A100 adds products in another way than the H200, so these are for sm_90a only.
PRODUCTS = ["matmul-f16", "matmul-f32", "matmul_grouped"]
OTHERS = [
    "vector_add",
    "fused_softmax",
    "matmul-i8",
    "dropout",
    "random_normals",
    "reductions",
    "scans",
    "histogram",
    "atomics",
    "sort_rows",
    "gather_rows",
    "cached_copy",
    "top_values",
]


def called(name: str) -> tuple[Any, Any, int, dict[str, Any]]:
    """The kernel, grid, number of arguments and constants of a recording."""
    for function, grid, arguments, constants, tag in corpus.KERNELS:
        if name == "-".join(filter(None, [function.__name__, tag])):
            sizes = grid if isinstance(grid, tuple) else (grid,)
            return function, sizes, len(arguments), constants
    raise LookupError(name)


@pytest.mark.parametrize(
    "name, target",
    [
        *((name, "sm_80") for name in OTHERS),
        *((name, "sm_90a") for name in [*PRODUCTS, *OTHERS[:4]]),
    ],
)
def test_a_call_leaves_the_bytes_of_the_gpu(name: str, target: str) -> None:
    function, grid, count, constants = called(name)
    recorded = RECORDED[name]
    arguments = recorded.make_arguments()[:count]
    with on_cpu(target) as cpu:
        function[grid](*arguments, **constants)
    compared = 0
    for got, want in zip(arguments, recorded.expected(), strict=False):
        if isinstance(want, np.ndarray):
            fm.assert_same_bits(got, want)
            compared += 1
    assert compared
    assert cpu.last is not None
    assert cpu.instructions == cpu.last.instructions > 0


# ── against a second computation ────────────────────────────────────────────


def normal(*shape: int, kind: Any = np.float32, seed: int = 1) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(kind)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_a_product_is_a_chain_of_mma(target: str, kind: Any) -> None:
    a, b, c = (
        normal(64, 96, kind=kind),
        normal(96, 32, kind=kind, seed=2),
        np.zeros((64, 32), "f4"),
    )
    constants = {"M": 32, "N": 32, "K": 32, "SUM": tl.float32, "PRECISION": "ieee"}
    with on_cpu(target):
        corpus.matmul[2, 1](a, b, c, 64, 32, 96, **constants)
    word = "f16" if kind is np.float16 else "bf16"
    want = fm.matmul(fm.mma("m16n8k16", a=word, d="f32"), a, b, target=target)
    fm.assert_same_bits(c, want)


def test_softmax_and_layer_norm_are_near() -> None:
    x = normal(4, 200)
    out = np.empty_like(x)
    gain, bias = normal(200, seed=2), normal(200, seed=3)
    mean, scale, normed = np.zeros(4, "f4"), np.zeros(4, "f4"), np.empty_like(x)
    with on_cpu():
        corpus.fused_softmax[4,](x, out, 200, BLOCK=256)
        corpus.layer_norm[4,](x, gain, bias, normed, mean, scale, 200, 1e-5, BLOCK=256)
    wide = x.astype(np.float64)
    power = np.exp(wide)
    np.testing.assert_allclose(out, power / power.sum(1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(mean, wide.mean(1), atol=1e-6)
    want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(
        wide.var(1, keepdims=True) + 1e-5
    )
    np.testing.assert_allclose(normed, want * gain + bias, atol=1e-5)


@pytest.mark.parametrize("columns", [64, 128])
def test_a_norm_of_rows_with_a_number_for_each_thread(columns: int) -> None:
    """LLVM fuses the squares into the first step of the sum: lanes round differently.

    All lanes of a warp store their sum to one word.  The manual does not say whose
    stays, and Triton ships it: a warning.  All threads go on with the same one.
    """
    x = normal(16, columns)
    ones, zeros = np.ones(columns, "f4"), np.zeros(columns, "f4")
    mean, scale, normed = np.zeros(16, "f4"), np.zeros(16, "f4"), np.empty_like(x)
    outputs = normed, mean, scale
    with on_cpu() as cpu:
        corpus.layer_norm[16,](x, ones, zeros, *outputs, columns, 1e-5, BLOCK=columns)
    assert cpu.last is not None
    assert cpu.last.complete
    found = [each for each in cpu.last.problems if each.severity != "info"]
    assert [(each.rule, each.severity) for each in found] == [
        ("shared-race", "warning")
    ]
    assert "rounded in different ways" in found[0].message
    wide = x.astype(np.float64)
    np.testing.assert_allclose(scale, 1 / np.sqrt(wide.var(1) + 1e-5), rtol=1e-6)
    centred = x - mean[:, None]
    fm.assert_same_bits(normed, centred * scale[:, None])  # one sum for a whole row


def test_attention_with_tensors() -> None:
    q, k, v = (
        torch.randn(2, 128, 64, generator=torch.manual_seed(i)).half() for i in range(3)
    )
    out = torch.empty_like(q)
    scale = 1 / math.sqrt(64)
    with on_cpu("sm_80"):
        corpus.flash_attention[2, 2](
            q, k, v, out, 128, scale * math.log2(math.e), M=64, N=32, HEAD=64
        )
    score = torch.einsum("hid,hjd->hij", q.double(), k.double()) * scale
    score = score.masked_fill(torch.ones(128, 128).triu(1).bool(), -math.inf)
    want = score.softmax(2) @ v.double()
    torch.testing.assert_close(out.double(), want, atol=4e-3, rtol=4e-3)


@triton.jit
def _convert(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at, at < n, other=0.0).to(tl.float32)
    tl.store(out + at, (value * 2).to(out.dtype.element_ty), at < n)


@pytest.mark.parametrize(
    "kind", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16"]
)
def test_small_types_as_arrays_and_as_tensors(kind: str) -> None:
    values = np.arange(-8, 8) / 4
    x = values.astype(getattr(ml_dtypes, kind, np.float16))
    out = np.zeros_like(x)
    tensor = torch.tensor(values).to(getattr(torch, kind))
    other = torch.zeros_like(tensor)
    with on_cpu("sm_90a"):
        _convert[1,](x, out, 16, BLOCK=16)
        _convert[1,](tensor, other, 16, BLOCK=16)
    assert out.astype(float).tolist() == (2 * values).tolist()
    assert other.double().tolist() == (2 * values).tolist()


@triton.jit
def _random(out, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.rand(seed, at))


def test_random_numbers_are_uniform_and_repeatable() -> None:
    first, second, third = np.zeros((3, 4096), np.float32)
    with on_cpu():
        _random[16,](first, 7, BLOCK=256)
        _random[8,](second, 7, BLOCK=512)
        _random[16,](third, 8, BLOCK=256)
    fm.assert_same_bits(first, second)
    assert (first != third).any()
    counts, _ = np.histogram(first, 8, (0, 1))
    assert counts.sum() == 4096
    assert abs(counts - 512).max() < 100
