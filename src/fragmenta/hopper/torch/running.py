"""Runs a product of tensors: one launch on a Hopper GPU, the emulation on the CPU.

A launch is on the current stream, and the host does not wait.  Everything but the
pointers is checked and planned once for operands of the same types, shapes and strides,
and kept, because a call may take the host only microseconds.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from fragmenta.base.arrays.checks import Array
from fragmenta.errors import ShapeError, UnknownType
from fragmenta.hopper.kernels.arguments import Matrix
from fragmenta.hopper.kernels.config import ALIGNMENT, Kernel, Tile
from fragmenta.hopper.kernels.emulate import Epilogue, emulate
from fragmenta.hopper.kernels.four_bits import Integers
from fragmenta.hopper.kernels.launch import LaunchPlan, launch, plan
from fragmenta.hopper.kernels.packing import Packed
from fragmenta.hopper.kernels.tuning import ProductShape, known
from fragmenta.hopper.torch.matrix import (
    OUTPUTS,
    RESULTS,
    TYPES,
    check_device,
    is_aligned,
    listed,
    matrix_of,
    rows_aligned,
    tensor_of,
)

EpilogueTensors: TypeAlias = dict[str, Tensor]
"""The tensors given for an epilogue, by name."""

_MOST = 4096  # entries to remember


# ── which kernel ────────────────────────────────────────────────────────────


def kernel_for(
    a: str,
    b: torch.dtype,
    out: torch.dtype,
    *,
    sparse: bool,
    scaled: bool = False,
    transposed: bool = False,
    promote: bool = False,
    grouped: bool = False,
) -> Kernel:
    """The kernel, before its tile is chosen.

    >>> str(kernel_for("bf16", torch.bfloat16, torch.float32, sparse=True))
    'bf16 f32 sparse 64x64'
    """
    if b not in TYPES or out not in OUTPUTS:
        raise UnknownType(
            f"the kernels multiply {listed(TYPES)} and return {listed(OUTPUTS)}; given "
            f"{b} and {out}"
        )
    integers = Integers.named(a)
    more: dict[str, Any] = {}
    if integers:
        a, more = "s4", {"group": integers.group, "scales": integers.scales}
    return Kernel(
        a,
        TYPES[b],
        OUTPUTS[out],
        Tile(64, 64),
        sparse=sparse,
        promote=promote,
        scaled=scaled,
        transposed=transposed,
        grouped=grouped,
        **more,
    )


@lru_cache(maxsize=_MOST)
def tiled(
    kernel: Kernel, shape: ProductShape, tile: tuple[int, ...], gpu: int | None = None
) -> Kernel:
    """The kernel with the given tile, or with the best known for the shape.

    What was measured on a GPU may be another tile than :func:`choose` expects to be
    best, but never one with another sum.

    >>> kernel = Kernel("bf16", out="bf16")
    >>> str(tiled(kernel, (64, 64, 64), (128, 64, 1, 0, 1)).tile)
    '128x64'
    """
    check_tile(tile)
    if tile:
        return replace(kernel, tile=tile_of(tile))
    return known(kernel, shape, torch.cuda.get_device_name(gpu))


@lru_cache(maxsize=_MOST)
def planned_on(
    kernel: Kernel, m: int, n: int, k: int, gpu: int, experts: int = 0
) -> LaunchPlan:
    """The plan of a launch on a GPU."""
    with torch.cuda.device(gpu):
        return plan(kernel, m, n, k, experts=experts)


def forget() -> None:
    """Forget all choices of tiles, because new ones were measured."""
    tiled.cache_clear()
    _READY.clear()


class TileSearch:
    """The products that a call consists of, and the tiles to try for them."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, ProductShape, torch.device], Kernel] = {}
        self.forced: dict[tuple[str, ProductShape], Tile] = {}

    def asked(
        self, kernel: Kernel, shape: ProductShape, device: torch.device
    ) -> Kernel:
        """Note a product, and return the kernel to run for it."""
        self.seen[kernel.kind, shape, device] = kernel
        tile = self.forced.get((kernel.kind, shape), kernel.tile)
        return replace(kernel, tile=tile)


SEARCHES: list[TileSearch] = []
"""The active searches; the last one sees every launch."""


# ── on the GPU ──────────────────────────────────────────────────────────────


class Settled:
    """The packed weights that were read by a launch before, and not changed since.

    A kernel may read such a weight before the previous kernel has ended, because that
    kernel cannot have written it.  So the first launch after a change waits, and later
    ones may start early.

    >>> settled, weight = Settled(), torch.zeros(4)
    >>> settled.has(weight), settled.has(weight), settled.has(weight.add_(1))
    (False, True, False)
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Tensor], int]] = {}

    def has(self, weight: Tensor) -> bool:
        """Whether it is settled; from now on it is."""
        if weight.is_inference():  # PyTorch does not count its changes
            return False
        name, version = id(weight), weight._version
        known = self._known.get(name)
        if known is not None and known[0]() is weight and known[1] == version:
            return True
        if len(self._known) >= _MOST:
            self._known = {x: y for x, y in self._known.items() if y[0]() is not None}
        self._known[name] = weakref.ref(weight), version
        return False


SETTLED = Settled()


class Ready(NamedTuple):
    """A checked and planned product; only the pointers are missing."""

    planned: LaunchPlan | None
    """None if the result is empty."""
    rows: int
    columns: int
    pitch: int
    """Columns of the buffer for D, so that the copy engine can write every row."""
    kind: torch.dtype
    device: torch.device
    copies: tuple[bool, bool, bool]
    """Whether A, B and the epilogue's tensors are copied for the kernel to read."""

    def run(
        self,
        a: Tensor,
        b: Tensor,
        parts: EpilogueTensors,
        ends: Tensor | None = None,
        settled: bool = False,
    ) -> Tensor:
        """One launch on the current stream; a grouped one needs its experts' ends.

        They are ``settled`` if the kernel before this one does not write them.
        """
        shape = (self.rows, self.pitch)
        d = torch.empty(shape, dtype=self.kind, device=self.device)
        if self.planned is not None:
            copy_a, copy_b, copy_parts = self.copies
            left = rows_aligned(a) if copy_a else a
            right = rows_aligned(b) if copy_b else b
            if copy_parts:
                parts = {name: part.contiguous() for name, part in parts.items()}
            if self.device.index == _TORCH._cuda_getDevice():
                self._launch(self.planned, left, right, d, parts, ends, settled)
            else:
                with torch.cuda.device(self.device):
                    self._launch(self.planned, left, right, d, parts, ends, settled)
        return d if self.columns == self.pitch else d[:, : self.columns].contiguous()

    def _launch(
        self,
        planned: LaunchPlan,
        a: Tensor,
        b: Tensor,
        d: Tensor,
        parts: EpilogueTensors,
        ends: Tensor | None,
        settled: bool,
    ) -> None:
        size, kernel = self.kind.itemsize, planned.kernel
        known = kernel.sparse and SETTLED.has(a)
        launch(
            planned,
            a.data_ptr() if kernel.sparse else rows_of(a),
            rows_of(b),
            Matrix(d.data_ptr(), self.rows, self.columns * size, self.pitch * size),
            stream=_TORCH._cuda_getCurrentRawStream(self.device.index),
            epilogue={name: part.data_ptr() for name, part in parts.items()},
            # A grouped kernel that is not settled waits before it reads anything.
            early=(known or kernel.grouped) and _captured(),
            ends=None if ends is None else ends.data_ptr(),
            settled=settled and known,
        )


def _captured() -> bool:
    """Whether the launch goes into a CUDA graph.

    An early start is used in graphs only.  It saves the GPU a microsecond, but outside
    of graphs the host is slower than small kernels, and weights may be changed there
    in ways that PyTorch does not count.
    """
    return bool(_TORCH._cuda_isCurrentStreamCapturing())


_READY: dict[Hashable, Ready] = {}
_TORCH: ModuleType = torch._C


def remembered(key: Hashable, make: Callable[[], Ready]) -> Ready:
    """The entry for a key; it is made at first use.

    During a search for tiles, nothing is kept.
    """
    if SEARCHES:
        return make()
    ready = _READY.get(key)
    if ready is None:
        if len(_READY) >= _MOST:
            _READY.clear()
        ready = _READY[key] = make()
    return ready


def description(x: Tensor) -> Hashable:
    """What a launch depends on: all of a tensor but its data and its address.

    Of the address only the alignment counts.

    >>> description(torch.zeros(2, 16))
    (torch.float32, torch.Size([2, 16]), (16, 1), device(type='cpu'), 0)
    """
    return x.dtype, x.shape, x.stride(), x.device, x.data_ptr() % ALIGNMENT


def prepared(
    kernel: Kernel,
    a: Tensor,
    b: Tensor,
    m: int,
    parts: EpilogueTensors,
    experts: int = 0,
) -> Ready:
    """The plan for a product of operands that were checked."""
    device, (n, k) = b.device, b.shape
    shape = (m, n, k * 8 if kernel.a == "b1" else k)
    if SEARCHES:
        whole = (*shape, experts) if kernel.grouped else shape
        kernel = SEARCHES[-1].asked(kernel, whole, device)
    rows, columns = (n, m) if kernel.transposed else (m, n)
    kind = RESULTS[kernel.out]
    per = ALIGNMENT // kind.itemsize
    scattered = not all(part.is_contiguous() for part in parts.values())
    return Ready(
        planned_on(kernel, *shape, device.index, experts) if m and n else None,
        rows,
        columns,
        -(-columns // per) * per,
        kind,
        device,
        (not kernel.sparse and not is_aligned(a), not is_aligned(b), scattered),
    )


def run(
    kernel: Kernel, a: Tensor, b: Tensor, m: int, parts: EpilogueTensors | None = None
) -> Tensor:
    """One launch on the current stream; ``parts`` are the epilogue's tensors."""
    given = parts or {}
    check_device(a, b.device, "A")
    check_depth(b)
    check_epilogue(given, m, b)
    return prepared(kernel, a, b, m, given).run(a, b, given)


def rows_of(x: Tensor) -> Matrix[int]:
    """Where the rows of a matrix are.

    >>> rows_of(torch.zeros(4, 32)[:, :8])[1:]
    (4, 32, 128)
    """
    size = x.element_size()
    return Matrix(x.data_ptr(), x.shape[0], x.shape[1] * size, x.stride(0) * size)


# ── checks ──────────────────────────────────────────────────────────────────


def check_depth(b: Tensor) -> None:
    """Refuse k = 0.

    >>> check_depth(torch.ones(3, 0))
    Traceback (most recent call last):
    fragmenta.errors.ShapeError: k must be at least 1; given B (3, 0)
    """
    if not b.shape[1]:
        raise ShapeError(f"k must be at least 1; given B {tuple(b.shape)}")


def check_tile(tile: Sequence[int]) -> None:
    """Refuse a tile that does not have five sizes.

    >>> check_tile([64, 64])
    Traceback (most recent call last):
    fragmenta.errors.ShapeError: a tile must be m, n, cluster, turns and split, or \
empty; given [64, 64]
    """
    if len(tile) not in (0, 5):
        raise ShapeError(
            "a tile must be m, n, cluster, turns and split, or empty; "
            f"given {list(tile)}"
        )


def tile_of(sizes: Sequence[int]) -> Tile:
    """The tile with these sizes.

    >>> str(tile_of([64, 8, 1, 0, 2]))
    '64x8 k/2'
    """
    m, n, cluster, turns, split = sizes
    return Tile(m, n, cluster, bool(turns), split)


def check_epilogue(
    parts: EpilogueTensors, m: int, b: Tensor, names: dict[str, str] | None = None
) -> None:
    """Refuse tensors of an epilogue with the wrong size, type or device.

    >>> check_epilogue({"scale": torch.ones(2)}, 4, torch.ones(3, 8))
    Traceback (most recent call last):
    fragmenta.errors.ShapeError: scale must be a tensor of 1 float32 on cpu; given \
torch.float32 of shape (2,) on cpu
    """
    n = b.shape[0]
    for name, part in parts.items():
        count = {"scale": 1, "scale_n": n, "count_n": n}.get(name, m)
        kind = torch.int32 if name.startswith("count") else torch.float32
        one_axis = max(part.shape, default=1) == part.numel() == count
        if not one_axis or part.dtype != kind or part.device != b.device:
            called = (names or {}).get(name, name)
            raise ShapeError(
                f"{called} must be a tensor of {count} {listed([kind])} on {b.device}; "
                f"given {part.dtype} of shape {tuple(part.shape)} on {part.device}"
            )


# ── without a GPU ───────────────────────────────────────────────────────────


def emulated(
    kernel: Kernel, a: Array | Packed, b: Tensor, m: int, parts: EpilogueTensors
) -> Tensor:
    """The product computed by the CPU, with the same bits.

    ``a`` is an array, or packed.
    """
    n, kind = b.shape[0], RESULTS[kernel.out]
    if not m or not n:
        return torch.empty((n, m) if kernel.transposed else (m, n), dtype=kind)
    given: dict[str, Array] = {
        name: part.detach().cpu().numpy().reshape(-1) for name, part in parts.items()
    }
    if "scale" in given:
        given["scale"] = given["scale"].reshape(())
    out = emulate(kernel, a, matrix_of(b, kernel.b), Epilogue(**given))
    return tensor_of(out, kind)
