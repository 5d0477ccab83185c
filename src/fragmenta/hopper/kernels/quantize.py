"""Quantises rows to 8-bit elements and scales on the GPU, at the speed of memory.

``quantize.cu`` reads a matrix of f32, bf16 or f16 and writes elements of e4m3 or s8,
and one f32 scale for each row.  The rule is that of :func:`fragmenta.quant.quantize`.
The scale is the largest magnitude / 448 (s8: 127), rounded to f32.  Each number is
divided by it and rounded once, to the nearest element, ties to even, as if the
quotient was exact.

A row with a NaN or an infinity has the scale NaN.
"""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import Array, as_array
from fragmenta.cuda.tools.compiler import to_cubin
from fragmenta.errors import ShapeError, UnknownType, one_of
from fragmenta.hopper.kernels.source import TARGET, text
from fragmenta.reference.arithmetic.rounding import largest_element
from fragmenta.reference.quant.quantization import quantize, scaled_elements
from fragmenta.reference.registers.dtype import DType, dtype

if TYPE_CHECKING:
    from torch import Tensor

ELEMENTS = ("e4m3", "s8")
"""The types that rows are quantised to."""
FLOATS = {"f32": "32", "f16": "16", "bf16": "0xB16"}
"""The types that are quantised, as ``quantize.cu`` calls them."""
THREADS = 256
ROOM = 16
"""Rows of elements are padded to a multiple of this many bytes."""
ONE_NAN = np.uint32(0x7FFFFFFF).view(np.float32)
"""The scale of a row that is not finite."""


def check_types(given: str, element_type: str) -> None:
    """Refuse types that the kernel does not convert.

    >>> check_types("f64", "s8")
    Traceback (most recent call last):
    fragmenta.errors.UnknownType: rows of f32, f16 or bf16 are quantised to e4m3 or \
s8; given f64 to s8
    """
    if given not in FLOATS or element_type not in ELEMENTS:
        raise UnknownType(
            f"rows of {one_of(FLOATS)} are quantised to {one_of(ELEMENTS)}; given "
            f"{given} to {element_type}"
        )


@lru_cache(maxsize=16)
def quantize_source(given: str, element_type: str) -> str:
    """The CUDA C++ source of the kernels in ``quantize.cu``, for two types.

    >>> "#define LARGEST 448.0f" in quantize_source("bf16", "e4m3")
    True
    """
    check_types(given, element_type)
    of = dtype(element_type)
    macros = {
        "FLOATS": FLOATS[given],
        "E4M3": int(element_type == "e4m3"),
        "LARGEST": f"{largest_element(of)}f",
        "THREADS": THREADS,
        "DIGITS": _digits(of),
    }
    lines = (f"#define {name} {value}\n" for name, value in macros.items())
    return "".join(lines) + text("quantize.cu")


def _digits(of: DType) -> int:
    """The significant bits of the numbers half way between two elements."""
    if of.is_integer:
        return int(2 * largest_element(of) + 1).bit_length()
    return of.fraction_bits + 2


@lru_cache(maxsize=16)
def quantize_cubin(given: str, element_type: str) -> bytes:
    """The machine code for two types.

    >>> quantize_cubin("bf16", "e4m3")[1:4]
    b'ELF'
    """
    return to_cubin(quantize_source(given, element_type), TARGET)


# ── without a GPU ───────────────────────────────────────────────────────────


def emulate_quantize(
    X: ArrayLike, element_type: str, scale: float | None = None
) -> tuple[Array, NDArray[np.float32]]:
    """The elements and the scale of each row, as the kernel computes them.

    With ``scale``, that is the scale of every row.

    >>> values, scales = emulate_quantize([[1.0, -3.0], [0.0, 0.0]], "s8")
    >>> values, scales
    (array([[  42, -127],
           [   0,    0]], dtype=int8), array([0.02362205, 1.        ], dtype=float32))
    >>> emulate_quantize([[1.0, np.inf]], "s8")
    (array([[0, 0]], dtype=int8), array([nan], dtype=float32))
    """
    given = as_array(X)
    if given.ndim != 2 or not given.shape[1]:
        raise ShapeError(f"X must be a matrix with columns; given shape {given.shape}")
    of = dtype(element_type)
    with np.errstate(invalid="ignore"):  # a signalling NaN
        wide = given.astype(np.float64)
    finite = np.isfinite(wide)
    rows = finite.all(axis=1)
    values = np.zeros(given.shape, of.storage)
    scales = np.full(len(wide), ONE_NAN)
    if scale is not None:
        one = np.float32(scale)
        if 0 < one < np.inf:
            parts = np.where(finite, wide, 0.0)[:, None]
            by = np.full(parts.shape[:2], one, np.float64)
            values = scaled_elements(parts, by, of)[:, 0] if len(wide) else values
            scales[rows] = one
    elif rows.any():
        q = quantize(of, wide[rows])
        values[rows], scales[rows] = q.values, q.scales[:, 0]
    return values, scales


# ── on a GPU ────────────────────────────────────────────────────────────────


def quantize_on_device(
    x: Tensor,
    given: str,
    element_type: str,
    values: Tensor,
    scales: Tensor,
    scale: Tensor | None = None,
) -> None:
    """Quantise a CUDA tensor, in one launch on the current stream.

    The rows of ``x`` and of ``values`` begin on multiples of 16 bytes.  ``scale`` is a
    tensor with one float32, on the same device.
    """
    import torch

    from fragmenta.hopper.kernels.launch import load, start

    rows, columns = x.shape
    arguments: list[ctypes.c_void_p | ctypes.c_longlong] = [
        ctypes.c_void_p(x.data_ptr()),
        ctypes.c_longlong(x.stride(0) * x.element_size()),
        ctypes.c_longlong(columns),
        ctypes.c_void_p(values.data_ptr()),
        ctypes.c_longlong(values.stride(0)),
        ctypes.c_void_p(scales.data_ptr()),
    ]
    name = "quantize_rows"
    if scale is not None:
        arguments.append(ctypes.c_void_p(scale.data_ptr()))
        name = "quantize_rows_by"
    raw: ModuleType = torch._C
    here = x.device.index == raw._cuda_getDevice()  # changing the device takes time
    with nullcontext() if here else torch.cuda.device(x.device):
        stream = raw._cuda_getCurrentRawStream(x.device.index)
        handle = load(quantize_cubin(given, element_type), name)
        addresses = [ctypes.addressof(each) for each in arguments]
        start(handle, (rows, 1), THREADS, 0, stream, addresses)
