"""Warp: kernels of ours in its language, compiled to PTX by its compiler.

Each is launched forward; some are launched backward, too: Warp writes the kernel that
computes the gradients.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from itertools import zip_longest
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
import warp as wp

from corpus.registry import case
from corpus.trial import Trial
from fragmenta import ptx

wp.config.log_level = wp.LOG_ERROR

BLOCK = 128

# ── how a kernel is launched ────────────────────────────────────────────────


@cache
def compiled(kernel: Any) -> tuple[Any, dict[str, int]]:
    """The module of a kernel, and the bytes of shared memory of each entry."""
    with tempfile.TemporaryDirectory() as folder:
        (made,) = wp.compile_aot_module(
            kernel.module,
            arch=90,
            module_dir=folder,
            use_ptx=True,
        )
        (about,) = Path(folder).glob("*.meta")
        shared = json.loads(about.read_text())
        text = made.read_text()
    # Entries have a hash of the source in their names.
    text = re.sub(r"\b(\w+)_[0-9a-f]{8}_cuda_kernel_(\w+)", r"\1_\2", text)
    entries = {
        re.sub(r"_[0-9a-f]{8}_cuda_kernel", "", name.removesuffix("_smem_bytes")): size
        for name, size in shared.items()
    }
    return ptx.parse(text.rstrip("\0")), entries


def launch(
    kernel: Any,
    dim: tuple[int, ...],
    arguments: Sequence[Any],
    gradients: Sequence[Any] = (),
) -> None:
    """Launch a kernel; with the gradients of all arrays, launch it backward."""
    loaded, shared = compiled(kernel)
    passed = [_array(*each) for each in zip_longest(arguments, gradients)]
    name = f"{kernel.key}_{'backward' if gradients else 'forward'}"
    if gradients:  # they stand in the arrays, so those that follow are empty
        passed += [_array(np.zeros(0, np.float32), None)] * len(arguments)
    loaded.kernels[name].launch(
        -(-prod(dim) // BLOCK),
        BLOCK,
        [_bounds(dim, kernel.adj.kernel_dim), *passed],
        shared=shared[name],
        target="sm_90a",
    )


def _array(value: Any, gradient: Any) -> Any:
    """``wp::array_t``: two addresses, four sizes, four strides, axes and flags."""
    more = (0,) * (4 - value.ndim)
    numbers = np.int32((*value.shape, *more, *value.strides, *more))
    last = np.uint16((value.ndim, 0)).tobytes() + bytes(4)
    return ptx.struct(
        value if value.size else None, gradient, numbers.tobytes() + last, size=56
    )


def _bounds(dim: tuple[int, ...], axes: int) -> Any:
    """``wp::launch_bounds_t``: axes that a kernel does not ask for repeat it."""
    size, repeated = prod(dim), prod(dim[axes:])
    sizes = (np.uint32(each) for each in dim[:axes])
    return ptx.struct(*sizes, np.uint64(size), np.uint64(repeated))


# Of its own module each, so that only what a case needs is compiled.  Products and
# factorisations are Warp's own: cuBLASDx and cuSolverDx write machine code, not PTX.
made = wp.kernel(
    module="unique",
    module_options={
        "block_dim": BLOCK,
        "enable_mathdx_gemm": False,
        "enable_mathdx_solver": False,
        "enable_mathdx_fft": False,
    },
)
ROW = wp.constant(256)
TILE = wp.constant(32)
SIDE = wp.constant(16)
AXIS = wp.constant(wp.vec3(1.0, 2.0, 2.0))

# ── kernels of threads ──────────────────────────────────────────────────────


@made
def scaled_sum(
    x: wp.array(dtype=wp.float32),
    y: wp.array(dtype=wp.float32),
    out: wp.array(dtype=wp.float32),
):
    i = wp.tid()
    out[i] = 3.0 * x[i] + y[i]


@made
def wave_step(
    now: wp.array2d(dtype=wp.float32),
    before: wp.array2d(dtype=wp.float32),
    out: wp.array2d(dtype=wp.float32),
):
    i, j = wp.tid()
    up, down = wp.max(i - 1, 0), wp.min(i + 1, now.shape[0] - 1)
    left, right = wp.max(j - 1, 0), wp.min(j + 1, now.shape[1] - 1)
    around = now[up, j] + now[down, j] + now[i, left] + now[i, right]
    out[i, j] = 2.0 * now[i, j] - before[i, j] + 0.1 * (around - 4.0 * now[i, j])


@made
def springs(
    places: wp.array(dtype=wp.vec3),
    pairs: wp.array2d(dtype=wp.int32),
    forces: wp.array(dtype=wp.vec3),
):
    i = wp.tid()
    one, other = pairs[i, 0], pairs[i, 1]
    apart = places[one] - places[other]
    length = wp.length(apart)
    pull = apart * ((length - 1.0) / length)
    wp.atomic_sub(forces, one, pull)
    wp.atomic_add(forces, other, pull)


@made
def turned(
    angles: wp.array(dtype=wp.float32),
    points: wp.array(dtype=wp.vec3),
    out: wp.array(dtype=wp.vec3),
):
    i = wp.tid()
    turn = wp.quat_from_axis_angle(wp.normalize(AXIS), angles[i])
    out[i] = wp.quat_rotate(turn, points[i])


@made
def counted(x: wp.array(dtype=wp.int32), out: wp.array(dtype=wp.int32)):
    wp.atomic_add(out, x[wp.tid()], 1)


# ── kernels of tiles ────────────────────────────────────────────────────────


@made
def row_sums(x: wp.array2d(dtype=wp.float32), out: wp.array(dtype=wp.float32)):
    i = wp.tid()
    row = wp.tile_load(x[i], shape=ROW)
    wp.tile_store(out, wp.tile_sum(row), offset=i)


@made
def softmax(x: wp.array2d(dtype=wp.float32), out: wp.array2d(dtype=wp.float32)):
    i = wp.tid()
    row = wp.tile_load(x[i], shape=ROW)
    top = wp.tile_max(row)
    raised = wp.tile_map(wp.exp, row - wp.tile_broadcast(top, shape=(ROW,)))
    share = wp.tile_broadcast(wp.tile_sum(raised), shape=(ROW,))
    wp.tile_store(out[i], wp.tile_map(wp.div, raised, share))


@made
def running_sums(x: wp.array2d(dtype=wp.float32), out: wp.array2d(dtype=wp.float32)):
    i = wp.tid()
    row = wp.tile_load(x[i], shape=ROW)
    wp.tile_store(out[i], wp.tile_scan_inclusive(row))


@made
def ordered(
    keys: wp.array(dtype=wp.float32),
    values: wp.array(dtype=wp.int32),
    sorted_keys: wp.array(dtype=wp.float32),
    sorted_values: wp.array(dtype=wp.int32),
):
    one = wp.tile_load(keys, shape=ROW, storage="shared")
    other = wp.tile_load(values, shape=ROW, storage="shared")
    wp.tile_sort(one, other)
    wp.tile_store(sorted_keys, one)
    wp.tile_store(sorted_values, other)


@made
def transposed(x: wp.array2d(dtype=wp.float32), out: wp.array2d(dtype=wp.float32)):
    i, j = wp.tid()
    tile = wp.tile_load(
        x, shape=(TILE, TILE), offset=(i * TILE, j * TILE), storage="shared"
    )
    wp.tile_store(out, wp.tile_transpose(tile), offset=(j * TILE, i * TILE))


@made
def product(
    a: wp.array2d(dtype=wp.float32),
    b: wp.array2d(dtype=wp.float32),
    out: wp.array2d(dtype=wp.float32),
):
    i, j = wp.tid()
    total = wp.tile_zeros(shape=(SIDE, SIDE), dtype=wp.float32)
    for k in range(a.shape[1] // SIDE):
        left = wp.tile_load(a, shape=(SIDE, SIDE), offset=(i * SIDE, k * SIDE))
        right = wp.tile_load(b, shape=(SIDE, SIDE), offset=(k * SIDE, j * SIDE))
        wp.tile_matmul(left, right, total)
    wp.tile_store(out, total, offset=(i * SIDE, j * SIDE))


@made
def solved(
    a: wp.array2d(dtype=wp.float32),
    b: wp.array(dtype=wp.float32),
    out: wp.array(dtype=wp.float32),
):
    matrix = wp.tile_load(a, shape=(SIDE, SIDE), storage="shared")
    right = wp.tile_load(b, shape=SIDE, storage="shared")
    factor = wp.tile_cholesky(matrix)
    wp.tile_store(out, wp.tile_cholesky_solve(factor, right))


@made
def transform(x: wp.array2d(dtype=wp.vec2f), out: wp.array2d(dtype=wp.vec2f)):
    tile = wp.tile_load(x, shape=(SIDE, ROW))
    wp.tile_fft(tile)
    wp.tile_store(out, tile)


# ── cases ───────────────────────────────────────────────────────────────────


class _Launched(torch.autograd.Function):
    """A kernel whose last argument is the result, and its backward kernel."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, kernel: Any, dim: tuple[int, ...], shape: Any, *inputs: torch.Tensor
    ) -> torch.Tensor:
        ctx.kernel, ctx.dim, out = kernel, dim, torch.zeros(shape)
        ctx.save_for_backward(*inputs, out)
        launch(kernel, dim, [each.detach().numpy() for each in (*inputs, out)])
        return out

    @staticmethod
    def backward(ctx: Any, given: torch.Tensor) -> Any:  # type: ignore[override]
        arrays = [each.detach().numpy() for each in ctx.saved_tensors]
        gradients = [np.zeros_like(each) for each in arrays[:-1]]
        last = given.contiguous().clone().numpy()  # a store takes its gradient away
        launch(ctx.kernel, ctx.dim, arrays, [*gradients, last])
        return (None, None, None, *map(torch.from_numpy, gradients))


def _compare(
    trial: Trial,
    kernel: Any,
    dim: tuple[int, ...],
    reference: Callable[..., torch.Tensor],
    *inputs: torch.Tensor,
    gradients: bool = True,
) -> None:
    shape = reference(*inputs).shape
    trial.compare(
        lambda *given: _Launched.apply(kernel, dim, shape, *given),
        reference,
        *inputs,
        gradients=gradients,
    )


@case(small=True)
def adding(trial: Trial) -> None:
    x, y = trial.floats(300), trial.floats(300)
    _compare(trial, scaled_sum, (300,), lambda x, y: 3 * x + y, x, y)


@case()
def waves(trial: Trial) -> None:
    def reference(now: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        wide = torch.nn.functional.pad(now[None, None], (1, 1, 1, 1), mode="replicate")
        near = [wide[0, 0, :-2, 1:-1], wide[0, 0, 2:, 1:-1]]
        near += [wide[0, 0, 1:-1, :-2], wide[0, 0, 1:-1, 2:]]
        return 2 * now - before + 0.1 * (sum(near) - 4 * now)

    now, before = trial.floats(20, 30), trial.floats(20, 30)
    _compare(trial, wave_step, (20, 30), reference, now, before)


@case()
def forces(trial: Trial) -> None:
    places = trial.floats(40, 3).numpy()
    pairs = np.stack([trial.permutation(40).numpy() for _ in range(2)], 1)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]].astype(np.int32)
    out = np.zeros((40, 3), np.float32)
    arguments = [_vectors(places), pairs, _vectors(out)]
    trial.call(lambda: launch(springs, (len(pairs),), arguments))
    one, other = pairs.T
    apart = places[one].astype(float) - places[other]
    length = np.linalg.norm(apart, axis=1, keepdims=True)
    want = np.zeros((40, 3))
    np.subtract.at(want, one, apart * (length - 1) / length)
    np.add.at(want, other, apart * (length - 1) / length)
    trial.judge(out, 2 * want)  # of both calls


@case()
def rotation(trial: Trial) -> None:
    angles, points = trial.floats(100).numpy(), trial.floats(100, 3).numpy()
    out = np.zeros_like(points)
    arguments = [angles, _vectors(points), _vectors(out)]
    trial.call(lambda: launch(turned, (100,), arguments))
    axis, wide = np.array([1, 2, 2]) / 3, points.astype(float)
    cosine, sine = (f(angles.astype(float))[:, None] for f in (np.cos, np.sin))
    along = axis * (wide @ axis)[:, None]
    trial.judge(out, along + (wide - along) * cosine + np.cross(axis, wide) * sine)


@case()
def histogram(trial: Trial) -> None:
    x, out = trial.whole(500, high=16).numpy().astype(np.int32), np.zeros(16, np.int32)
    trial.call(lambda: launch(counted, (500,), [x, out]))
    trial.judge(out, 2 * np.bincount(x, minlength=16))


@case(small=True)
def sums_of_rows(trial: Trial) -> None:
    x = trial.floats(5, 256)
    _compare(trial, row_sums, (5, BLOCK), lambda x: x.sum(-1), x)


@case()
def softmax_of_rows(trial: Trial) -> None:
    x = trial.floats(5, 256)
    _compare(trial, softmax, (5, BLOCK), lambda x: x.softmax(-1), x)


@case()
def scans_of_rows(trial: Trial) -> None:
    x = trial.floats(5, 256)
    _compare(
        trial, running_sums, (5, BLOCK), lambda x: x.cumsum(-1), x, gradients=False
    )


@case()
def sorting(trial: Trial) -> None:
    keys = trial.floats(256).numpy()
    values = np.arange(256, dtype=np.int32)
    left, right = np.zeros_like(keys), np.zeros_like(values)
    trial.call(lambda: launch(ordered, (1, BLOCK), [keys, values, left, right]))
    order = np.argsort(keys, kind="stable")
    trial.judge(left, keys[order])
    trial.judge(right, order)


@case()
def transposition(trial: Trial) -> None:
    _compare(trial, transposed, (2, 3, BLOCK), lambda x: x.mT, trial.floats(64, 96))


@case()
def matrix_product(trial: Trial) -> None:
    a, b = trial.floats(32, 48), trial.floats(48, 64)
    _compare(trial, product, (2, 4, BLOCK), torch.matmul, a, b)


@case()
def linear_system(trial: Trial) -> None:
    root = trial.floats(16, 16)
    a = root @ root.mT + 16 * torch.eye(16)
    b = trial.floats(16)
    _compare(trial, solved, (1, BLOCK), torch.linalg.solve, a, b, gradients=False)


@case()
def fourier(trial: Trial) -> None:
    x = trial.floats(16, 256, 2).numpy()
    out = np.zeros_like(x)
    trial.call(lambda: launch(transform, (1, BLOCK), [_vectors(x), _vectors(out)]))
    want = np.fft.fft(x[..., 0].astype(float) + 1j * x[..., 1])
    trial.judge(out, np.stack([want.real, want.imag], -1))


def _vectors(array: Any) -> Any:
    """An array of the vectors that its last axis has."""
    kind = np.dtype((np.void, array.shape[-1] * array.itemsize))
    return array.view(kind)[..., 0]
