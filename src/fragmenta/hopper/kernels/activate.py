"""Turns activations into a packed sparse A on the GPU, in one pass.

``activate.cu`` reads rows of bf16 or f16, such as the result of an up-projection.  It
applies an activation, keeps two of each four, the greatest magnitudes, and rounds what
is left to e4m3.  Values and metadata are written in the order in which the product
reads them (:mod:`fragmenta.hopper.kernels.packing`).

The scale of a row is the least power of two with which no element is beyond 448: the
rule ``up`` of :mod:`fragmenta.reference.arithmetic.scale_rules`.  So the division is
exact, and each number is rounded once.  A row of zeros has the scale 1.  A row whose
activations have a NaN or an infinity has the scale NaN, and all its elements are zero.
"""

from __future__ import annotations

import ctypes
import math
from contextlib import nullcontext
from dataclasses import replace
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import Array, as_array
from fragmenta.cuda.tools.compiler import to_cubin
from fragmenta.errors import ShapeError, UnknownType, ValueRangeError, one_of
from fragmenta.hopper.kernels.config import (
    ACTIVATED,
    Kernel,
    Tile,
    activation_macros,
    check_activation,
)
from fragmenta.hopper.kernels.emulate import Epilogue, emulate
from fragmenta.hopper.kernels.packing import Packed, pack, packed_shape, places_macro
from fragmenta.hopper.kernels.quantize import ONE_NAN
from fragmenta.hopper.kernels.source import TARGET, text
from fragmenta.reference.arithmetic.rounding import largest_element, round_elements
from fragmenta.reference.arithmetic.scale_rules import block_scales
from fragmenta.reference.registers.dtype import dtype
from fragmenta.reference.sparse.compression import Compressed, compress, sparse
from fragmenta.reference.sparse.pruning import prune

if TYPE_CHECKING:
    from torch import Tensor

GIVEN = tuple(ACTIVATED)
"""The types that are read."""
ELEMENT = "e4m3"
"""The type that is written."""
THREADS = 512
ROWS = 4
"""Rows of a block of threads."""
_HELD = 7  # slabs of a warp in registers, at most


def entry_for(columns: int) -> str:
    """The kernel for rows of so many columns.

    >>> entry_for(4096), entry_for(4100)
    ('activate_rows', 'activate_ragged_rows')
    """
    return "activate_ragged_rows" if columns % 8 else "activate_rows"


def held_slabs(columns: int) -> int:
    """The slabs that a warp keeps in registers, if a row has so many columns.

    >>> held_slabs(4096), held_slabs(14336), held_slabs(28672)
    (2, 7, 7)
    """
    slabs = packed_shape(ELEMENT, 1, columns)[1]
    return min(-(-slabs // (THREADS // 32)), _HELD)


@lru_cache(maxsize=64)
def activate_source(given: str, activation: str, held: int) -> str:
    """The CUDA C++ source of ``activate.cu``; a warp holds ``held`` slabs.

    >>> "#define ACTIVATION 2" in activate_source("bf16", "relu2", 7)
    True
    """
    macros = {
        **activation_macros(given, activation),
        "THREADS": THREADS,
        "HELD": held,
        "BLOCK_BYTES": Kernel(ELEMENT, tile=Tile(64, 8)).block_bytes,
        "PLACES": places_macro(ELEMENT),
    }
    lines = (f"#define {name} {value}\n" for name, value in macros.items())
    return "".join(lines) + text("activate.cu")


@lru_cache(maxsize=64)
def activate_cubin(given: str, activation: str, held: int) -> bytes:
    """The machine code.

    >>> activate_cubin("bf16", "relu2", 7)[1:4]
    b'ELF'
    """
    return to_cubin(activate_source(given, activation, held), TARGET)


def blocks_for(rows: int) -> int:
    """Blocks of threads: all rows of the packed A are written, in groups of 256.

    >>> blocks_for(1), blocks_for(257)
    (64, 128)
    """
    return packed_shape(ELEMENT, rows, 1)[0] * 256 // ROWS


# ── without a GPU ───────────────────────────────────────────────────────────


def activated(X: ArrayLike, activation: str) -> NDArray[np.float32]:
    """The activations in float32, each rounded once.

    >>> activated([[-2.0, 3.0]], "relu2")
    array([[0., 9.]], dtype=float32)
    """
    with np.errstate(all="ignore"):
        wide = as_array(X).astype(np.float32)
        if check_activation(activation) == "none":
            return wide
        found = np.where(wide <= 0, np.float32(0), wide)
        return found * found if activation == "relu2" else found


def kept_places(X: ArrayLike, activation: str) -> Compressed:
    """Which two of each four are kept, as a compressed matrix of ones and zeros.

    They are the greatest magnitudes; of equal ones, those in lower columns.  NaN are
    ranked by their bits.

    >>> import ml_dtypes
    >>> kept_places(np.array([[1, -9, 2, 3]], ml_dtypes.bfloat16), "relu").columns()
    array([[2, 3]], dtype=int32)
    """
    given = as_array(X)
    bits = given.view(np.int16)
    magnitudes = np.maximum(bits, 0) if activation != "none" else bits & 0x7FFF
    op = Kernel(ELEMENT, tile=Tile(64, 8)).instruction
    kept = prune(op, magnitudes, pad=True)[:, : given.shape[1]] != 0
    return compress(op, kept.astype(dtype(ELEMENT).storage), pad=True)


def emulate_activate(
    X: ArrayLike, activation: str, scale: float | None = None
) -> tuple[Packed, NDArray[np.float32]]:
    """The packed A and the scale of each row, as the kernel computes them.

    With ``scale``, a power of two, that is the scale of every row, and what is beyond
    448 times as much becomes that.  NaN stay, as in the epilogue of a product.

    >>> import ml_dtypes
    >>> X = np.array([[1, 2, 3, -4, 0, 0, 5, 0]], ml_dtypes.bfloat16)
    >>> packed, scales = emulate_activate(X, "relu2")
    >>> packed, scales
    (<Packed 1x8 e4m3, 20480 bytes>, array([0.0625], dtype=float32))
    >>> from fragmenta.kernels import unpack
    >>> stored = unpack(packed)
    >>> stored.columns(), stored.values.astype(float) * scales[:, None]
    (array([[1, 2, 6, 7]], dtype=int32), array([[ 4.,  9., 24.,  0.]]))
    """
    given = as_array(X)
    if given.ndim != 2 or not given.size:
        raise ShapeError(f"X must be a matrix with elements; given {given.shape}")
    if given.dtype not in [dtype(name).storage for name in GIVEN]:
        raise UnknownType(f"activations must be {one_of(GIVEN)}; given {given.dtype}")
    places = kept_places(given, activation)
    numbers = activated(given, activation)
    padded = np.zeros((len(given), 4 * places.indices.shape[1]), np.float32)
    padded[:, : given.shape[1]] = numbers
    stored = np.take_along_axis(padded, places.columns(), axis=1)
    if scale is None:
        finite = np.isfinite(numbers).all(axis=1)
        stored[~finite] = 0
        scales = _row_scales(stored)
    else:
        finite = np.ones(len(given), np.bool_)
        scales = np.full(len(given), checked_power(scale), np.float64)
    op, granularity = sparse(Kernel(ELEMENT, tile=Tile(64, 8)).instruction)
    values = _elements(stored / scales[:, None])
    made = Compressed(values, places.indices, granularity, given.shape[1])
    single = scales.astype(np.float32)
    single[~finite] = ONE_NAN
    return pack(op, made), single


def _row_scales(stored: NDArray[np.float32]) -> NDArray[np.float64]:
    amax = np.abs(stored).max(axis=1).astype(np.float64)
    scales = block_scales(amax, dtype(ELEMENT), dtype("ue8m0"), "up")
    return np.where(amax == 0, 1.0, scales)


def _elements(quotients: NDArray[np.float64]) -> Array:
    """Numbers as e4m3, each rounded once; NaN stay."""
    of = dtype(ELEMENT)
    nan = np.isnan(quotients)
    most = largest_element(of)
    within = np.clip(np.where(nan, 0.0, quotients), -most, most)
    values: Array = round_elements(within, of).astype(of.storage)
    values[nan] = np.nan
    return values


def checked_power(scale: float) -> float:
    """A scale that is a power of two between 2^-126 and 2^126; refuses any other.

    >>> checked_power(0.25)
    0.25
    >>> checked_power(0.3)
    Traceback (most recent call last):
    fragmenta.errors.ValueRangeError: the scale of activations must be a power of two \
from 2^-126 to 2^126; given 0.3 (the next one is 0.5)
    """
    part, exponent = math.frexp(scale) if math.isfinite(scale) else (0.0, 0)
    if part != 0.5 or not -126 <= exponent - 1 <= 126:
        hint = f" (the next one is {2.0**exponent})" if part > 0 else ""
        raise ValueRangeError(
            "the scale of activations must be a power of two from 2^-126 to 2^126; "
            f"given {scale}{hint}"
        )
    return float(scale)


def emulate_activated(
    kernel: Kernel, A: ArrayLike, B: ArrayLike, epilogue: Epilogue, scale: float
) -> Packed:
    """What a kernel with an activation leaves: D as a packed sparse A.

    ``scale`` is that of the elements of e4m3, a power of two.

    >>> kernel = Kernel("s8", out="bf16", sparse=False, scaled=True,
    ...                 tile=Tile(64, 128), activation="relu")
    >>> one = np.ones((1, 32), np.int8)
    >>> emulate_activated(kernel, one, one.repeat(4, 0), Epilogue(scale=1.0), 0.5)
    <Packed 1x4 e4m3, 20480 bytes>
    """
    plain = replace(kernel, activation="")
    d = emulate(plain, A, B, epilogue)
    return emulate_activate(d, kernel.activation, scale)[0]


# ── on a GPU ────────────────────────────────────────────────────────────────


def activate_on_device(
    x: Tensor, given: str, activation: str, packed: Tensor, scales: Tensor
) -> None:
    """One launch on the current stream; rows of x begin on multiples of 16 bytes."""
    import torch

    from fragmenta.hopper.kernels.launch import load, start

    rows, columns = x.shape
    arguments: list[ctypes.c_void_p | ctypes.c_longlong | ctypes.c_int] = [
        ctypes.c_void_p(x.data_ptr()),
        ctypes.c_longlong(x.stride(0) * x.element_size()),
        ctypes.c_int(rows),
        ctypes.c_int(columns),
        ctypes.c_void_p(packed.data_ptr()),
        ctypes.c_void_p(scales.data_ptr()),
    ]
    raw: ModuleType = torch._C
    here = x.device.index == raw._cuda_getDevice()  # changing the device takes time
    with nullcontext() if here else torch.cuda.device(x.device):
        stream = raw._cuda_getCurrentRawStream(x.device.index)
        code = activate_cubin(given, activation, held_slabs(columns))
        handle = load(code, entry_for(columns))
        addresses = [ctypes.addressof(each) for each in arguments]
        start(handle, (blocks_for(rows), 1), THREADS, 0, stream, addresses)
