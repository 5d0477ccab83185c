"""Layers of models by batch size: RMS norm, attention, the project's own kernels."""

from dataclasses import replace

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.cuda.tools.compiler import to_ptx
from fragmenta.hopper.kernels.config import Kernel, Tile
from tests.ptx.hopper import launching
from tests.ptx.hopper.gemms import Gemm
from tests.thinning import THOROUGH

SOURCE = r"""
__device__ float total(float x) {
    for (int step = 16; step; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
}

// One pass: a row stays in registers.
extern "C" __global__ void norm_once(const float *x, float *y) {
    const float *row = x + 128 * blockIdx.x;
    float held[4], sum = 0;
    for (int n = 0; n < 4; n++) held[n] = row[32 * n + threadIdx.x];
    for (int n = 0; n < 4; n++) sum += held[n] * held[n];
    float scale = rsqrtf(total(sum) / 128 + 1e-6f);
    for (int n = 0; n < 4; n++)
        y[128 * blockIdx.x + 32 * n + threadIdx.x] = held[n] * scale;
}

// Two passes: one sums, the other loads the row again.  LANE: neighbours are summed.
extern "C" __global__ void norm_twice(const float *x, float *y, int neighbours) {
    const float *row = x + 128 * blockIdx.x;
    int first = neighbours ? 4 * threadIdx.x : threadIdx.x, step = neighbours ? 1 : 32;
    float sum = 0;
    for (int n = 0; n < 4; n++) { float v = row[first + n * step]; sum += v * v; }
    float scale = rsqrtf(total(sum) / 128 + 1e-6f);
    for (int n = 0; n < 4; n++)
        y[128 * blockIdx.x + 32 * n + threadIdx.x] = row[32 * n + threadIdx.x] * scale;
}

// One query, 32 dimensions: a warp takes `keys` keys of its batch and its split.
extern "C" __global__ void attend(const float *q, const float *k, const float *v,
                                  float *most, float *sums, float *parts, int keys) {
    int batch = blockIdx.x, split = blockIdx.y, splits = gridDim.y, lane = threadIdx.x;
    const float *here = k + (batch * splits + split) * keys * 32;
    const float *there = v + (batch * splits + split) * keys * 32;
    float query = q[32 * batch + lane], m = -1e30f, l = 0, acc = 0;
    for (int n = 0; n < keys; n++) {
        float s = total(query * here[32 * n + lane]);
        float now = fmaxf(m, s), old = exp2f(m - now), p = exp2f(s - now);
        l = l * old + p; acc = acc * old + p * there[32 * n + lane]; m = now;
    }
    int at = batch * splits + split;
    most[at] = m; sums[at] = l; parts[32 * at + lane] = acc;
}

extern "C" __global__ void merge(const float *most, const float *sums,
                                 const float *parts, float *out, int splits) {
    int batch = blockIdx.x, lane = threadIdx.x;
    float m = -1e30f, l = 0, acc = 0;
    for (int n = 0; n < splits; n++) {
        int at = batch * splits + n;
        float now = fmaxf(m, most[at]), old = exp2f(m - now), p = exp2f(most[at] - now);
        l = l * old + sums[at] * p; acc = acc * old + parts[32 * at + lane] * p; m = now;
    }
    out[32 * batch + lane] = acc / l;
}
"""
KEYS = 32


@pytest.fixture(scope="module")
def kernels():
    found = ptx.parse(to_ptx(SOURCE, "sm_80", compiler="nvrtc")).kernels
    names = {
        "attend": ("q", "k", "v", "most", "sums", "parts", "keys"),
        "merge": ("most", "sums", "parts", "out", "splits"),
    }
    return {n: replace(each, names=names.get(n, ())) for n, each in found.items()}


def numbers(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


# ── RMS norm ────────────────────────────────────────────────────────────────


def norm(kernel, batch, *more):
    x = numbers(8, 128)[:batch]
    return ptx.Call(kernel, batch, 32, [x, np.zeros((batch, 128), np.float32), *more])


def test_rms_norm_in_one_pass_and_in_two(kernels):
    once, twice = kernels["norm_once"], kernels["norm_twice"]
    assert ptx.same(norm(once, 2), norm(twice, 2, 0)).verdict == "same"
    assert (
        ptx.same(norm(once, 2), norm(twice, 2, 1), watch=False).verdict == "different"
    )


def test_a_block_for_each_row_is_batch_invariant(kernels):
    for name, more in (("norm_once", ()), ("norm_twice", (1,))):
        found = ptx.invariant(lambda n: norm(kernels[name], n, *more), [1, 3, 8])  # noqa: B023
        assert found.invariant


# ── attention ───────────────────────────────────────────────────────────────


def attention(kernels, batch, splits):
    q, k, v = numbers(4, 32)[:batch], numbers(4, KEYS, 32), numbers(4, KEYS, 32, 1)
    rooms = [np.zeros((batch, splits, n), np.float32) for n in (1, 1, 32)]
    out = np.zeros((batch, 32), np.float32)
    grid = batch, splits
    given = [q, k[:batch], v[:batch, :, :, 0], *rooms, KEYS // splits]
    return [
        ptx.Call(kernels["attend"], grid, 32, given),
        ptx.Call(kernels["merge"], batch, 32, [*rooms, out, splits]),
    ]


def by_batch(kernels, splits):
    return ptx.invariant(
        lambda batch: attention(kernels, batch, splits(batch)),
        [1, 2, 4],
        outputs=[("out", "out")],
    )


def test_attention_with_a_fixed_split_is_batch_invariant(kernels):
    found = by_batch(kernels, lambda _: 4)
    assert found.invariant
    assert not any(each.open for each in found.within.values())


def test_attention_that_splits_by_batch_is_caught(kernels):
    found = by_batch(kernels, lambda batch: 4 // batch)
    assert found.members == (("1",), ("2",), ("4",))
    assert {each.verdict for each in found.between.values()} == {"different"}


# ── the project's own kernels ───────────────────────────────────────────────


def gemm(kernel, batch, whole):
    """A launch on the first rows of a batch."""
    made = replace(whole, kernel=kernel, n=batch)
    made.__dict__["a"], made.__dict__["b"] = whole.a, whole.b[:batch]
    shape, memory = made.geometry, made.memory()
    return ptx.Call(
        ptx.parse(made.text).kernels[launching.ENTRY],
        shape.grid,
        shape.block,
        launching.given(made, memory),
        shared=shape.shared,
        cluster=shape.cluster,
    )


TILES = [Tile(64, 16), Tile(64, 16, split=2)]
if THOROUGH:
    TILES += [Tile(64, 32), Tile(64, 64), Tile(128, 64)]


@pytest.mark.long
def test_own_kernels_share_an_order_of_sums_unless_k_is_split():
    """As docs/kernels.md says: tiles and batches are one class, each split another."""
    kernels = [
        Kernel("bf16", out="bf16", transposed=True, sparse=False, tile=each)
        for each in TILES
    ]
    whole = Gemm(kernels[0], 64, 48, 512, 2)
    made = {
        f"{each.tile} {batch}": gemm(each, batch, whole)
        for each in kernels
        for batch in (8, 40)
    }
    types = dict.fromkeys(("param_0", "param_1", "param_2"), "bf16")
    found = ptx.classes(made, types=types, tries=10)
    split = tuple(f"{TILES[1]} {batch}" for batch in (8, 40))
    assert found.members == (tuple(each for each in made if each not in split), split)
    assert found.between[0, 1].verdict == "different"
    remarks = {each.kind for of in found.within.values() for each in of.conditions}
    assert remarks == {"infinite"}  # past the end of a tile are zeros
    assert not any(each.open for each in found.within.values())
