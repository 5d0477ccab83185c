"""How does a product of tensors run?

On a Hopper GPU as one launch on the current stream, without waiting; on the CPU
by emulation of the same kernel.  What a call needs beyond its pointers is worked
out once for each shape and remembered: the host has microseconds only.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fragmenta.errors import Error, ShapeError
from fragmenta.kernels.config import ALIGNMENT, Kernel, Tile
from fragmenta.kernels.emulate import Epilogue, emulate
from fragmenta.kernels.launch import Matrix, Plan, launch, plan
from fragmenta.kernels.tuning import Shape, known
from fragmenta.torch.matrix import (
    OUTPUTS,
    TYPES,
    check_device,
    listed,
    matrix_of,
    rows_aligned,
    tensor_of,
)

Parts: TypeAlias = dict[str, Tensor]

_RESULTS = {name: kind for kind, name in OUTPUTS.items()}


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
) -> Kernel:
    """The kernel, before its tile is chosen.

    >>> str(kernel_for("bf16", torch.bfloat16, torch.float32, sparse=True))
    'bf16 f32 sparse 64x64'
    """
    if b not in TYPES or out not in OUTPUTS:
        raise Error(
            f"kernels multiply {listed(TYPES)} into {listed(OUTPUTS)}; given {b} and "
            f"{out}"
        )
    return Kernel(
        a, TYPES[b], OUTPUTS[out], Tile(64, 64), sparse=sparse, promote=promote,
        scaled=scaled, transposed=transposed,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def tiled(
    kernel: Kernel, shape: Shape, tile: tuple[int, ...], gpu: int | None = None
) -> Kernel:
    """The kernel with the given tile, or with the best known for the shape.

    >>> kernel = Kernel("bf16", out="bf16")
    >>> str(tiled(kernel, (64, 64, 64), (128, 64, 1, 0)).tile)
    '128x64'
    """
    if tile:
        m, n, cluster, turns = tile
        return replace(kernel, tile=Tile(m, n, cluster, bool(turns)))
    return known(kernel, shape, torch.cuda.get_device_name(gpu))


@lru_cache(maxsize=4096)
def chosen(
    a: str,
    b: torch.dtype,
    out: torch.dtype,
    sparse: bool,
    scaled: bool,
    transposed: bool,
    promote: bool,
    tile: tuple[int, ...],
    shape: Shape,
    gpu: int,
) -> Kernel:
    """The kernel for a product; what was chosen before is looked up."""
    kernel = kernel_for(a, b, out, sparse=sparse, scaled=scaled,
                        transposed=transposed, promote=promote)  # fmt: skip
    return tiled(kernel, shape, tile, gpu)


@lru_cache(maxsize=4096)
def _planned(kernel: Kernel, m: int, n: int, k: int, gpu: int) -> Plan:
    with torch.cuda.device(gpu):
        return plan(kernel, m, n, k)


def forget() -> None:
    """Choose anew from now on: other tiles are known."""
    tiled.cache_clear()
    chosen.cache_clear()


class Trial:
    """What products a call consists of, and with which tiles to try them."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, Shape], Kernel] = {}
        self.forced: dict[tuple[str, Shape], Tile] = {}

    def asked(self, kernel: Kernel, shape: Shape) -> Kernel:
        """The kernel to run instead."""
        key = kernel.kind, shape
        self.seen[key] = kernel
        return replace(kernel, tile=self.forced.get(key, kernel.tile))


TRIALS: list[Trial] = []
"""The last one listens to every launch."""


# ── on the GPU ──────────────────────────────────────────────────────────────


def run(
    kernel: Kernel, a: Tensor, b: Tensor, m: int, parts: Parts | None = None
) -> Tensor:
    """One launch on the current stream; ``parts`` are operands of the epilogue."""
    device, (n, k) = b.device, b.shape
    check_device(a, device, "A")
    shape = (m, n, k * 8 if kernel.a == "b1" else k)
    if TRIALS:
        kernel = TRIALS[-1].asked(kernel, shape)
    rows, columns = (n, m) if kernel.transposed else (m, n)
    d = _result(rows, columns, kernel, device)
    if not d.numel():
        return d
    held = {name: _checked(x, name, m, b) for name, x in (parts or {}).items()}
    left, right = a if kernel.sparse else rows_aligned(a), rows_aligned(b)
    planned = _planned(kernel, *shape, device.index)
    if device.index != torch.cuda.current_device():
        with torch.cuda.device(device):
            _launch(planned, left, right, d, held)
    else:
        _launch(planned, left, right, d, held)
    return d if d.is_contiguous() else d.contiguous()


def _launch(
    planned: Plan, a: Tensor, b: Tensor, d: Tensor, held: dict[str, Tensor]
) -> None:
    streams: Any = torch._C
    launch(
        planned,
        a.data_ptr() if planned.kernel.sparse else _described(a),
        _described(b),
        _described(d),
        stream=streams._cuda_getCurrentRawStream(b.device.index),
        epilogue={name: part.data_ptr() for name, part in held.items()},
    )


def _result(rows: int, columns: int, kernel: Kernel, device: torch.device) -> Tensor:
    """Room for D whose rows begin where the copy engine can write."""
    kind = _RESULTS[kernel.out]
    per = ALIGNMENT // kind.itemsize
    if not columns % per:
        return torch.empty((rows, columns), dtype=kind, device=device)
    pitch = -(-columns // per) * per
    return torch.empty((rows, pitch), dtype=kind, device=device)[:, :columns]


def _described(x: Tensor) -> Matrix:
    size = x.element_size()
    return Matrix(x.data_ptr(), x.shape[0], x.shape[1] * size, x.stride(0) * size)


def _checked(part: Tensor, name: str, m: int, b: Tensor) -> Tensor:
    """An operand of the epilogue, as the kernel reads it."""
    check_device(part, b.device, name)
    n = b.shape[0]
    wanted = {"scale": 1, "scale_n": n, "count_n": n}.get(name, m)
    kind = torch.int32 if name.startswith("count") else torch.float32
    if part.numel() != wanted or part.dtype != kind:
        raise ShapeError(
            f"{name} has {wanted} numbers of {kind}; given {part.dtype} of shape "
            f"{tuple(part.shape)}"
        )
    return part.contiguous()


# ── without a GPU ───────────────────────────────────────────────────────────


def emulated(kernel: Kernel, a: Any, b: Tensor, m: int, parts: Parts) -> Tensor:
    """The same bits from the CPU; ``a`` is an array, or packed."""
    if not b.numel():
        rows, columns = (len(b), m) if kernel.transposed else (m, len(b))
        return _result(rows, columns, kernel, b.device)
    given: dict[str, Any] = {
        name: _checked(part, name, m, b).detach().cpu().numpy().reshape(-1)
        for name, part in parts.items()
    }
    if "scale" in given:
        given["scale"] = given["scale"].reshape(())
    out = emulate(kernel, a, matrix_of(b, kernel.b), Epilogue(**given))
    return tensor_of(out, _RESULTS[kernel.out])
