"""The functions that users call: products, compression, quantisation.

These functions check their arguments, fill in what was left out, and call the
operators.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import astuple
from functools import wraps
from types import ModuleType
from typing import TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from fragmenta.errors import BadCall, ShapeError, UnknownType
from fragmenta.hopper.kernels.config import Tile
from fragmenta.hopper.torch.matrix import (
    OUTPUTS,
    SparseMatrix,
    is_semi_structured,
    listed,
    packed_of_pytorch,
    type_name,
)
from fragmenta.hopper.torch.operators import call, call_pair, check_weight
from fragmenta.hopper.torch.quantizing import quantized_type
from fragmenta.hopper.torch.stack import SparseStack, stacked

F = TypeVar("F", bound=Callable[..., Tensor])

_INTEGERS = ("s8", "u8")


# ── arrays of other libraries ───────────────────────────────────────────────


def _of_any_library(product: F) -> F:
    """Take CuPy and NumPy arrays too; the result is then such an array."""

    @wraps(product)
    def wrapped(a: object, b: object, **options: object) -> object:
        if isinstance(b, Tensor):
            return product(a, b, **options)
        if not hasattr(b, "__dlpack__"):
            raise BadCall(
                f"B must be a tensor, or an array that supports DLPack; given a "
                f"{type(b).__name__}"
            )
        library: ModuleType = np if isinstance(b, np.ndarray) else _library(b)
        if library.__name__ == "numpy" and options.get("out_dtype") is torch.bfloat16:
            raise BadCall(
                "NumPy has no bfloat16: give tensors, or out_dtype=torch.float32"
            )
        taken = {name: _taken(each) for name, each in options.items()}
        return library.from_dlpack(product(_taken(a), _taken(b), **taken).detach())

    return cast(F, wrapped)


def _taken(x: object) -> object:
    """An array of another library as a tensor, not copied; anything else unchanged."""
    if isinstance(x, Tensor) or not hasattr(x, "__dlpack__"):
        return x
    if any(stride < 0 for stride in getattr(x, "strides", None) or ()):
        raise BadCall(
            "an array has negative strides, which PyTorch does not take; copy it"
        )
    try:
        return from_dlpack(x)
    except (BufferError, TypeError, RuntimeError) as why:
        raise BadCall(f"this array does not convert through DLPack: {why}") from why


def _library(x: object) -> ModuleType:
    """The library of an array."""
    found = sys.modules[type(x).__module__.partition(".")[0]]
    if not hasattr(found, "from_dlpack"):
        raise BadCall(
            f"{found.__name__} has no from_dlpack, so it cannot take the result"
        )
    return found


# ── checks ──────────────────────────────────────────────────────────────────


def check_sparse(a: object, name: str) -> None:
    """Refuse what is not a SparseMatrix, such as a tensor.

    >>> check_sparse(3, "A")
    Traceback (most recent call last):
    fragmenta.errors.BadCall: A must be a SparseMatrix, as compress makes it; given \
a int
    """
    if not isinstance(a, SparseMatrix):
        raise BadCall(
            f"{name} must be a SparseMatrix, as compress makes it; given a "
            f"{type(a).__name__}"
        )


def _tensors(**given: Tensor | None) -> tuple[Tensor | None, ...]:
    """The values of these arguments, each a tensor or None."""
    for name, each in given.items():
        if each is not None:
            _check_tensor(each, name)
    return tuple(given.values())


def _check_tensor(x: object, name: str) -> None:
    if not isinstance(x, Tensor):
        raise BadCall(f"{name} must be a tensor; given a {type(x).__name__}")
    if x.layout != torch.strided or x.is_nested:
        kind = "a nested one" if x.is_nested else f"one of layout {x.layout}"
        raise BadCall(f"{name} must be a dense tensor; given {kind}")


def check_input(x: Tensor, shape: tuple[int, int]) -> None:
    """Refuse an x that a weight of this shape, out x in, does not multiply.

    >>> check_input(torch.ones(2, 3), (8, 4))
    Traceback (most recent call last):
    fragmenta.errors.ShapeError: W is 8x4, so the last axis of x must be 4; given (2, 3)
    """
    _check_tensor(x, "x")
    m, k = shape
    if not x.ndim or x.shape[-1] != k:
        raise ShapeError(
            f"W is {m}x{k}, so the last axis of x must be {k}; given {tuple(x.shape)}"
        )


def check_options(out_dtype: object, **flags: object) -> None:
    """Refuse a type that no product has, and flags that are neither True nor False.

    >>> check_options(None, promote=1)
    Traceback (most recent call last):
    fragmenta.errors.BadCall: promote must be True or False; given 1
    """
    known = isinstance(out_dtype, torch.dtype) and out_dtype in OUTPUTS
    if out_dtype is not None and not known:
        raise UnknownType(f"out_dtype must be {listed(OUTPUTS)}; given {out_dtype!r}")
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise BadCall(f"{name} must be True or False; given {flag!r}")


def check_numbers(weight: Tensor) -> None:
    """Refuse a weight that is not a dense matrix with numbers.

    >>> check_numbers(torch.ones(8, 8, device="meta"))
    Traceback (most recent call last):
    fragmenta.errors.BadCall: a weight must have numbers; given a tensor on meta, \
which has none
    """
    check_weight(weight)
    if weight.is_meta:
        raise BadCall(
            "a weight must have numbers; given a tensor on meta, which has none"
        )


# ── sparse matrices ─────────────────────────────────────────────────────────


def compress(weight: Tensor, *, prune: bool = True) -> SparseMatrix:
    """A weight pruned to the largest magnitudes of each chunk, and packed.

    A weight that is sparse already keeps every value, bit for bit.  With
    ``prune=False`` it must be.  A ``torch.sparse.SparseSemiStructuredTensor`` is taken,
    too.

    >>> compress(torch.ones(4, 8, dtype=torch.bfloat16)).to_dense()[0]
    tensor([1., 1., 0., 0., 1., 1., 0., 0.], dtype=torch.bfloat16)
    """
    if not isinstance(weight, Tensor):
        raise BadCall(f"a weight must be a tensor; given a {type(weight).__name__}")
    element_type = type_name(weight.dtype, "a weight")
    check_numbers(weight)
    check_options(None, prune=prune)
    shape = (weight.shape[0], weight.shape[1])
    if is_semi_structured(weight):
        return SparseMatrix(
            packed_of_pytorch(weight, element_type), element_type, shape
        )
    with torch._C.DisableTorchFunctionSubclass():  # the bytes are a plain tensor
        data: Tensor = call("compress", weight.detach(), prune)
    return SparseMatrix(data, element_type, shape)


def quantize_rows(
    x: Tensor, quantize: str = "fp8", *, scale: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The 8-bit elements of x (…, k), and the float32 scale of each row.

    ``quantize`` is ``"fp8"`` (e4m3) or ``"int8"``.  A scale is the largest magnitude of
    its row / 448 (int8: 127) in float32, or 1 for a row of zeros.  Each x / scale is
    rounded once, to the nearest element, ties to even.  The rule, and so every bit, is
    that of :func:`fragmenta.quant.quantize`; on a GPU one kernel does it.

    ``scale`` is a tensor with one float32, which is then the scale of all rows; what is
    larger than the largest element becomes that.

    A row with NaN or an infinity has the scale NaN, so that its products are NaN.  Its
    elements are zeros; with a given ``scale``, only those that are not finite.

    >>> values, scales = quantize_rows(torch.tensor([[1.0, -2.0], [0.0, 0.0]]), "int8")
    >>> values, scales
    (tensor([[  64, -127],
            [   0,    0]], dtype=torch.int8), tensor([0.0157, 1.0000]))
    """
    _check_tensor(x, "x")
    _tensors(scale=scale)
    if not x.ndim:
        raise ShapeError("x must have at least one axis; given a single number")
    flat = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
    values, scales = call_pair("quantize_rows", flat, quantized_type(quantize), scale)
    if x.ndim == 2:
        return values, scales
    return values.reshape(x.shape), scales.reshape(x.shape[:-1])


def sparse_activations(
    x: Tensor, activation: str = "relu2"
) -> tuple[SparseMatrix, Tensor]:
    """The activations of x (rows x k) as a sparse matrix of e4m3, and row scales.

    ``activation`` is ``"relu2"`` (the square of relu), ``"relu"`` or ``"none"``.  Each
    four neighbours of a row keep the two greatest magnitudes; of equal ones, those in
    lower columns.  On a GPU one kernel reads x once and writes what
    :func:`sparse_mm` reads.

    A scale is the least power of two with which no element is beyond 448; 1 for a row
    of zeros.  A row with NaN or an infinity has the scale NaN, so that its products are
    NaN.

    >>> x = torch.tensor([[1.0, 2.0, 3.0, -4.0]], dtype=torch.bfloat16)
    >>> sparse, scales = sparse_activations(x)
    >>> sparse.to_dense().float() * scales[:, None]
    tensor([[0., 4., 9., 0.]])
    """
    _check_tensor(x, "x")
    packed, scales = call_pair("activate_rows", x, activation)
    return SparseMatrix(packed, "e4m3", (x.shape[0], x.shape[1])), scales


# ── products ────────────────────────────────────────────────────────────────


@_of_any_library
def sparse_mm(
    a: SparseMatrix,
    b: Tensor,
    *,
    out_dtype: torch.dtype | None = None,
    scale: Tensor | None = None,
    scale_m: Tensor | None = None,
    scale_n: Tensor | None = None,
    bias: Tensor | None = None,
    transposed: bool = False,
    promote: bool = False,
    tile: Tile | None = None,
) -> Tensor:
    """D = A B for a sparse A (m x k) and B given as n x k.

    D is ``sum * (scale * scale_m) * scale_n + bias``, all of them float32:
    ``scale`` is one number, ``scale_m`` and ``bias`` have one for each row of D,
    ``scale_n`` one for each column.  ``transposed`` returns D as n x m.  With
    ``promote``, fp8 products are added in f32 after every 128 of k.  The product of
    integers is int32, or float32 if it is scaled.  If the rows of B do not begin on
    multiples of 16 bytes, B is copied first.

    CuPy and NumPy arrays are taken too, through DLPack; D is then such an array.

    >>> a = compress(torch.tensor([[0, 1, 2, 0]], dtype=torch.int8))
    >>> sparse_mm(a, torch.tensor([[5, 6, 7, 8], [1, 1, 1, 1]], dtype=torch.int8))
    tensor([[20,  3]], dtype=torch.int32)
    """
    check_sparse(a, "A")
    _check_tensor(b, "B")
    check_options(out_dtype, transposed=transposed, promote=promote)
    m, k = a.shape
    if b.ndim != 2 or b.shape[1] != k:
        raise ShapeError(f"A is {m}x{k}, so B must be n x {k}; given {tuple(b.shape)}")
    parts = _tensors(scale=scale, scale_m=scale_m, scale_n=scale_n, bias=bias)
    kind = out_dtype or _default(a.element_type, parts)
    return call(
        "sparse_mm",
        a.data,
        b,
        a.element_type,
        m,
        kind,
        *parts,
        transposed,
        promote,
        _sizes(tile),
    )


@_of_any_library
def dense_mm(
    a: Tensor,
    b: Tensor,
    *,
    out_dtype: torch.dtype | None = None,
    scale: Tensor | None = None,
    scale_m: Tensor | None = None,
    scale_n: Tensor | None = None,
    bias: Tensor | None = None,
    transposed: bool = False,
    promote: bool = False,
    tile: Tile | None = None,
) -> Tensor:
    """D = A B for a dense A (m x k) and B given as n x k; see :func:`sparse_mm`.

    >>> one = torch.ones(2, 4, dtype=torch.int8)
    >>> dense_mm(one, 2 * one)
    tensor([[8, 8],
            [8, 8]], dtype=torch.int32)
    """
    _check_tensor(a, "A")
    _check_tensor(b, "B")
    check_options(out_dtype, transposed=transposed, promote=promote)
    parts = _tensors(scale=scale, scale_m=scale_m, scale_n=scale_n, bias=bias)
    return call(
        "dense_mm",
        a,
        b,
        out_dtype or _default(type_name(a.dtype, "A"), parts),
        *parts,
        transposed,
        promote,
        _sizes(tile),
    )


def sparse_linear(
    x: Tensor,
    weight: SparseMatrix,
    bias: Tensor | None = None,
    *,
    out_dtype: torch.dtype | None = None,
    scale: Tensor | None = None,
    scale_x: Tensor | None = None,
    scale_weight: Tensor | None = None,
    promote: bool = False,
    tile: Tile | None = None,
) -> Tensor:
    """y = x W^T + bias with a sparse W (out x in); x is (…, in).

    The result has the type of x, unless ``out_dtype`` is given or x has 8-bit
    elements; then it is float32, or int32 for integers that are not scaled.
    ``scale_x`` has one number for each row of x, ``scale_weight`` one for each
    output.

    >>> weight = compress(torch.tensor([[0, 1, 2, 0]] * 3, dtype=torch.bfloat16))
    >>> sparse_linear(torch.ones(2, 4, dtype=torch.bfloat16), weight)
    tensor([[3., 3., 3.],
            [3., 3., 3.]], dtype=torch.bfloat16)
    """
    check_sparse(weight, "the weight")
    return linear(
        x,
        weight.data,
        weight.element_type,
        weight.shape,
        bias,
        out_dtype=out_dtype,
        scale=scale,
        scale_x=scale_x,
        scale_weight=scale_weight,
        promote=promote,
        tile=tile,
    )


def linear(
    x: Tensor,
    packed: Tensor,
    element_type: str,
    shape: tuple[int, int],
    bias: Tensor | None = None,
    *,
    out_dtype: torch.dtype | None = None,
    scale: Tensor | None = None,
    scale_x: Tensor | None = None,
    scale_weight: Tensor | None = None,
    promote: bool = False,
    tile: Tile | None = None,
) -> Tensor:
    """``sparse_linear`` with the weight given as bytes, type and shape.

    >>> weight = compress(torch.tensor([[0, 1, 2, 0]] * 3, dtype=torch.int8))
    >>> linear(torch.ones(1, 4, dtype=torch.int8), weight.data, "s8", (3, 4))
    tensor([[3, 3, 3]], dtype=torch.int32)
    """
    check_input(x, shape)
    check_options(out_dtype, promote=promote)
    m, _ = shape
    parts = _tensors(scale=scale, scale_weight=scale_weight, scale_x=scale_x, bias=bias)
    if bias is not None and bias.dtype != torch.float32 and bias.is_floating_point():
        parts = (*parts[:-1], bias.float())
    kind = out_dtype or (
        x.dtype if x.dtype in OUTPUTS else _default(element_type, parts)
    )
    return call(
        "sparse_linear", x, packed, element_type, m, kind, *parts, promote, _sizes(tile)
    )


@_of_any_library
def binary_mm(
    a: Tensor, b: Tensor, *, op: str = "xor", tile: Tile | None = None
) -> Tensor:
    """Count bits for each row of A (m x k/8) and each row of B (n x k/8).

    ``op="and"`` counts the bits set in both rows, ``op="xor"`` those that differ.
    Eight bits are packed into each uint8.

    >>> a = torch.tensor([[0b1100, 0]], dtype=torch.uint8)
    >>> b = torch.tensor([[0b1010, 1]], dtype=torch.uint8)
    >>> binary_mm(a, b, op="and").item(), binary_mm(a, b).item()
    (1, 3)
    """
    if op not in ("and", "xor"):
        raise BadCall(f"op must be 'and' or 'xor'; given {op!r}")
    _check_tensor(a, "A")
    _check_tensor(b, "B")
    return call("binary_mm", a, b, op == "xor", _sizes(tile))


def compress_experts(weights: Tensor, *, prune: bool = True) -> SparseStack:
    """The weights of experts (experts x out x in), each pruned and packed.

    Each of them is stored as :func:`compress` stores it.

    >>> compress_experts(torch.ones(4, 8, 16, dtype=torch.bfloat16))
    <SparseStack 4x8x16 bf16 on cpu, 73728 bytes>
    """
    _check_tensor(weights, "the weights")
    if weights.ndim != 3 or not len(weights):
        raise ShapeError(
            "the weights of experts must be experts x out x in; given shape "
            f"{tuple(weights.shape)}"
        )
    return stacked([compress(each, prune=prune) for each in weights])


def grouped_linear(
    x: Tensor,
    weights: SparseStack,
    offs: Tensor,
    bias: Tensor | None = None,
    *,
    out_dtype: torch.dtype | None = None,
    scale: Tensor | None = None,
    scale_x: Tensor | None = None,
    scale_weight: Tensor | None = None,
    promote: bool = False,
    tile: Tile | None = None,
    settled: bool = False,
) -> Tensor:
    """y = x W^T + bias with a W and a bias for each expert, in one launch.

    The rows of x (tokens x in) are sorted by expert.  ``offs`` has the number of rows
    up to and with each expert, int32 on the device of x; the host never reads it, so
    that a CUDA graph may change it.  Experts may have no rows.  Rows after the last
    expert's belong to none, and what y holds there is not defined.

    ``scale_weight`` and ``bias`` are experts x out; the other options are those of
    :func:`sparse_linear`.  The order of the sum depends on the number of rows of x, the
    number of experts and the shape of their weights, not on ``offs``.

    With ``settled`` you promise that the kernel before this one does not write
    ``offs``.  Then, in a CUDA graph, they and weights are read before it has ended.

    >>> weights = torch.tensor([[[1, 0, 0, 1]], [[0, 2, 2, 0]]], dtype=torch.bfloat16)
    >>> x = torch.ones(3, 4, dtype=torch.bfloat16)
    >>> offs = torch.tensor([1, 3], dtype=torch.int32)
    >>> grouped_linear(x, compress_experts(weights), offs)
    tensor([[2.],
            [4.],
            [4.]], dtype=torch.bfloat16)
    """
    if not isinstance(weights, SparseStack):
        raise BadCall(
            "the weights must be a SparseStack, as compress_experts makes it; given a "
            f"{type(weights).__name__}"
        )
    _, m, k = weights.shape
    check_input(x, (m, k))
    _check_tensor(offs, "offs")
    check_options(out_dtype, promote=promote, settled=settled)
    parts = _tensors(scale=scale, scale_weight=scale_weight, scale_x=scale_x, bias=bias)
    if bias is not None and bias.dtype != torch.float32 and bias.is_floating_point():
        parts = (*parts[:-1], bias.float())
    kind = out_dtype or (
        x.dtype if x.dtype in OUTPUTS else _default(weights.element_type, parts)
    )
    options = (kind, *parts, promote, _sizes(tile))
    return call(
        "grouped_linear",
        x,
        weights.data,
        offs,
        settled,
        weights.element_type,
        m,
        *options,
    )


def _sizes(tile: Tile | None) -> tuple[int, ...]:
    if tile is None:
        return ()
    if not isinstance(tile, Tile):
        raise BadCall(f"tile must be a Tile, such as Tile(128, 128); given {tile!r}")
    sizes = astuple(tile)
    if not all(isinstance(size, int) and 0 <= size < 1 << 16 for size in sizes):
        raise BadCall(f"the sizes of a tile must be whole numbers; given {tile!r}")
    return tuple(int(size) for size in sizes)


def _default(element_type: str, parts: tuple[Tensor | None, ...]) -> torch.dtype:
    """The default type of a result."""
    scaled = any(part is not None for part in parts)
    return torch.int32 if element_type in _INTEGERS and not scaled else torch.float32
