"""How does a product of tensors run?

On a Hopper GPU as one launch on the current stream, without waiting; on the CPU
by emulation of the same kernel.  What a call needs beyond its pointers is worked
out once for each shape and remembered: the host has microseconds only.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from fragmenta.torch.matrix import OUTPUTS, TYPES, matrix_of, tensor_of

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
        raise Error(f"there is no kernel that multiplies {a} with {b} into {out}")
    return Kernel(
        a, TYPES[b], OUTPUTS[out], Tile(64, 64), sparse=sparse, promote=promote,
        scaled=scaled, transposed=transposed,
    )  # fmt: skip


def tiled(kernel: Kernel, shape: Shape, tile: Sequence[int], gpu: int) -> Kernel:
    """The kernel with the given tile, or with the best known for the shape."""
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


# ── on the GPU ──────────────────────────────────────────────────────────────


def run(
    kernel: Kernel,
    a: Tensor,
    b: Tensor,
    m: int,
    parts: Parts | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """One launch on the current stream; D is allocated unless ``out`` is given.

    ``parts`` are the operands of the epilogue.  The copy engine stores whole
    units of 16 bytes, so the rows of an ``out`` must be a whole number of them.
    """
    device = b.device
    b, (n, k) = rows_aligned(b), b.shape
    rows, columns = (n, m) if kernel.transposed else (m, n)
    if out is not None and columns * out.element_size() % ALIGNMENT:
        raise ShapeError(f"rows of D are multiples of {ALIGNMENT} bytes")
    d = _result(rows, columns, kernel, device) if out is None else out
    left = a if kernel.sparse else rows_aligned(a)
    held = {name: _checked(x, name, m, n) for name, x in (parts or {}).items()}
    planned = _planned(kernel, m, n, k * 8 if kernel.a == "b1" else k, device.index)
    if device.index != torch.cuda.current_device():
        with torch.cuda.device(device):
            _launch(planned, left, b, d, held)
    else:
        _launch(planned, left, b, d, held)
    return d if out is not None or d.is_contiguous() else d.contiguous()


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


def rows_aligned(x: Tensor) -> Tensor:
    """The matrix itself, or a copy whose rows begin on multiples of 16 bytes.

    >>> rows_aligned(torch.ones(2, 3, dtype=torch.int8)).stride()
    (16, 1)
    """
    size = x.element_size()
    along = x.shape[1] == 1 or x.stride(1) == 1
    if along and not x.data_ptr() % ALIGNMENT and not x.stride(0) * size % ALIGNMENT:
        return x
    per = ALIGNMENT // size
    padded = x.new_zeros((x.shape[0], -(-x.shape[1] // per) * per))
    padded[:, : x.shape[1]] = x
    return padded[:, : x.shape[1]]


def _described(x: Tensor) -> Matrix:
    size = x.element_size()
    return Matrix(x.data_ptr(), x.shape[0], x.shape[1] * size, x.stride(0) * size)


def _checked(part: Tensor, name: str, m: int, n: int) -> Tensor:
    """An operand of the epilogue, as the kernel reads it."""
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
    n = b.shape[0]
    given: dict[str, Any] = {
        name: _checked(part, name, m, n).detach().cpu().numpy().reshape(-1)
        for name, part in parts.items()
    }
    if "scale" in given:
        given["scale"] = given["scale"].reshape(())
    out = emulate(kernel, a, matrix_of(b, kernel.b), Epilogue(**given))
    return tensor_of(out, _RESULTS[kernel.out])
