"""What can be called?

Functions in front of the operators, which check what they are given, complete it
and explain what is wrong with it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import astuple
from functools import wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from fragmenta.errors import Error, ShapeError
from fragmenta.kernels.config import Tile
from fragmenta.torch.matrix import OUTPUTS, TYPES, SparseMatrix, type_name
from fragmenta.torch.operators import Part, call

F = TypeVar("F", bound=Callable[..., Any])

_INTEGERS = ("s8", "u8")
_ALIKE = ({"e4m3", "e5m2"}, {"s8", "u8"})  # types that may meet


# ── arrays of other libraries ───────────────────────────────────────────────


def _of_any_library(product: F) -> F:
    """Take CuPy and NumPy arrays through DLPack, and answer in kind."""

    @wraps(product)
    def wrapped(a: Any, b: Any, **options: Any) -> Any:
        if isinstance(b, Tensor):
            return product(a, b, **options)
        if not hasattr(b, "__dlpack__"):
            raise Error(
                f"B is a tensor, or an array that DLPack carries; given a "
                f"{type(b).__name__}"
            )
        library = sys.modules[type(b).__module__.partition(".")[0]]
        if library.__name__ == "numpy" and options.get("out_dtype") is torch.bfloat16:
            raise Error("NumPy has no bfloat16: give tensors, or ask for float32")
        taken = {name: _taken(each) for name, each in options.items()}
        return library.from_dlpack(product(_taken(a), _taken(b), **taken))

    return cast(F, wrapped)


def _taken(x: Any) -> Any:
    """An array of another library, without a copy; anything else as it is."""
    foreign = hasattr(x, "__dlpack__") and not isinstance(x, Tensor)
    return from_dlpack(x) if foreign else x


# ── checks ──────────────────────────────────────────────────────────────────


# While PyTorch compiles, the operators' fakes check instead.


def _check_pair(first: Any, second: Any, names: tuple[str, str]) -> None:
    """Refuse two operands that no kernel multiplies."""
    if torch.compiler.is_compiling():
        return
    for each, name in zip((first, second), names, strict=True):
        if not isinstance(each, Tensor | SparseMatrix):
            raise Error(f"{name} is a tensor; given a {type(each).__name__}")
    if first.dtype == second.dtype in TYPES and first.device == second.device:
        return
    a, b = type_name(first.dtype, names[0]), type_name(second.dtype, names[1])
    if a != b and not any({a, b} <= group for group in _ALIKE):
        raise Error(
            f"{names[0]} is {first.dtype} and {names[1]} {second.dtype}: operands are "
            f"of one type (or both fp8, or both 8-bit integers); "
            f"{names[1]}.to({first.dtype})?"
        )
    _check_places(first, second, names)


def _check_places(first: Any, second: Any, names: tuple[str, str]) -> None:
    if first.device != second.device:
        raise Error(
            f"{names[0]} is on {first.device} and {names[1]} on {second.device}; "
            f'{names[1]}.to("{first.device}")?'
        )


def _check_sparse(a: Any, name: str) -> None:
    if not torch.compiler.is_compiling() and not isinstance(a, SparseMatrix):
        raise Error(f"{name} is a SparseMatrix, as compress makes it; given a "
                    f"{type(a).__name__}")  # fmt: skip


def _check_parts(like: Tensor, **parts: tuple[Any, int]) -> None:
    """Refuse operands of the epilogue that are not as many float32 as there must be."""
    if torch.compiler.is_compiling():
        return
    for name, (part, count) in parts.items():
        if part is None:
            continue
        given = f"a {type(part).__name__}"
        if isinstance(part, Tensor):
            one_axis = max(part.shape, default=1) == part.numel() == count
            if one_axis and part.dtype == torch.float32 and part.device == like.device:
                continue
            given = f"{part.dtype} of shape {tuple(part.shape)} on {part.device}"
        raise ShapeError(
            f"{name} is a tensor of {count} float32 on {like.device}; given {given}"
        )


# ── products ────────────────────────────────────────────────────────────────


@_of_any_library
def sparse_mm(
    a: SparseMatrix,
    b: Tensor,
    *,
    out_dtype: torch.dtype | None = None,
    scale: Part = None,
    scale_m: Part = None,
    scale_n: Part = None,
    bias: Part = None,
    transposed: bool = False,
    promote: bool = False,
    tile: Tile | None = None,
) -> Tensor:
    """D = A B for a sparse A (m x k) and B given as n x k: k along memory.

    ``scale`` (one), ``scale_m``, ``bias`` (one for each row of D) and
    ``scale_n`` (one for each column) are float32; D is ``sum * (scale *
    scale_m) * scale_n + bias``.  ``transposed`` returns n x m.  ``promote``
    adds fp8 products in f32 every 128 of k.  Integers give int32 unless they
    are scaled.  A B whose rows do not begin on multiples of 16 bytes is copied.

    CuPy and NumPy arrays are taken through DLPack and answered in kind.

    >>> from fragmenta.torch import compress
    >>> a = compress(torch.tensor([[0, 1, 2, 0]], dtype=torch.int8))
    >>> sparse_mm(a, torch.tensor([[5, 6, 7, 8], [1, 1, 1, 1]], dtype=torch.int8))
    tensor([[20,  3]], dtype=torch.int32)
    """
    _check_sparse(a, "A")
    _check_pair(a, b, ("A", "B"))
    m, k = a.shape
    if b.ndim != 2 or b.shape[1] != k:
        raise ShapeError(f"A is {m}x{k}; B {tuple(b.shape)} is not n x {k}")
    parts = (scale, scale_m, scale_n, bias)
    _check_parts(b, scale=(scale, 1), scale_m=(scale_m, m), bias=(bias, m),
                 scale_n=(scale_n, b.shape[0]))  # fmt: skip
    return call(
        "sparse_mm", a.data, b, a.a, m, out_dtype or _default(a.a, parts), *parts,
        transposed, promote, _sizes(tile),
    )  # fmt: skip


@_of_any_library
def dense_mm(
    a: Tensor,
    b: Tensor,
    *,
    out_dtype: torch.dtype | None = None,
    scale: Part = None,
    scale_m: Part = None,
    scale_n: Part = None,
    bias: Part = None,
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
    _check_pair(a, b, ("A", "B"))
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ShapeError(
            f"A is m x k and B n x k; given {tuple(a.shape)} and {tuple(b.shape)}"
        )
    parts = (scale, scale_m, scale_n, bias)
    m, n = a.shape[0], b.shape[0]
    _check_parts(b, scale=(scale, 1), scale_m=(scale_m, m), bias=(bias, m),
                 scale_n=(scale_n, n))  # fmt: skip
    return call(
        "dense_mm", a, b, out_dtype or _default(TYPES[a.dtype], parts),
        *parts, transposed, promote, _sizes(tile),
    )  # fmt: skip


def sparse_linear(
    x: Tensor,
    weight: SparseMatrix,
    bias: Part = None,
    *,
    out_dtype: torch.dtype | None = None,
    scale: Part = None,
    scale_x: Part = None,
    scale_weight: Part = None,
    promote: bool = False,
    tile: Tile | None = None,
) -> Tensor:
    """y = x W^T + bias with a sparse W (out x in); x is (…, in).

    The result has the type of x unless ``out_dtype`` is given or x is 8 bits
    wide.  ``scale_x`` is one number for each row of x, ``scale_weight`` one for
    each output.

    >>> from fragmenta.torch import compress
    >>> weight = compress(torch.tensor([[0, 1, 2, 0]] * 3, dtype=torch.bfloat16))
    >>> sparse_linear(torch.ones(2, 4, dtype=torch.bfloat16), weight)
    tensor([[3., 3., 3.],
            [3., 3., 3.]], dtype=torch.bfloat16)
    """
    _check_sparse(weight, "the weight")
    _check_pair(weight, x, ("the weight", "x"))
    m, k = weight.shape
    if not x.ndim or x.shape[-1] != k:
        raise ShapeError(f"W is {m}x{k}; x {tuple(x.shape)} does not end in {k}")
    if isinstance(bias, Tensor) and bias.is_floating_point():
        bias = bias.float()
    parts = (scale, scale_weight, scale_x, bias)
    _check_parts(x, scale=(scale, 1), scale_weight=(scale_weight, m),
                 scale_x=(scale_x, x.numel() // k), bias=(bias, m))  # fmt: skip
    kind = out_dtype or (x.dtype if x.dtype in OUTPUTS else _default(weight.a, parts))
    return call(
        "sparse_linear", x, weight.data, weight.a, m, kind, *parts, promote,
        _sizes(tile),
    )  # fmt: skip


@_of_any_library
def binary_mm(
    a: Tensor, b: Tensor, *, op: str = "xor", tile: Tile | None = None
) -> Tensor:
    """How many bits each row of A shares with ("and"), or differs in from ("xor"), B's.

    A (m x k/8) and B (n x k/8) are bits packed into uint8.

    >>> a = torch.tensor([[0b1100, 0]], dtype=torch.uint8)
    >>> b = torch.tensor([[0b1010, 1]], dtype=torch.uint8)
    >>> binary_mm(a, b, op="and").item(), binary_mm(a, b).item()
    (1, 3)
    """
    if op not in ("and", "xor"):
        raise Error(f"bits are multiplied by and, or compared by xor; given {op!r}")
    kinds = (torch.uint8, torch.uint8)
    if (a.dtype, b.dtype) != kinds or a.shape[1:] != b.shape[1:] or a.ndim != 2:
        raise ShapeError(
            f"bits are uint8 matrices m x k/8 and n x k/8; given {a.dtype} "
            f"{tuple(a.shape)} and {b.dtype} {tuple(b.shape)}"
        )
    _check_places(a, b, ("A", "B"))
    return call("binary_mm", a, b, op == "xor", _sizes(tile))


def _sizes(tile: Tile | None) -> list[int]:
    if tile is None:
        return []
    if not isinstance(tile, Tile):
        raise Error(f"a tile is a Tile, such as Tile(128, 128); given {tile!r}")
    return [int(size) for size in astuple(tile)]


def _default(a: str, parts: tuple[Part, ...]) -> torch.dtype:
    scaled = any(part is not None for part in parts)
    return torch.int32 if a in _INTEGERS and not scaled else torch.float32
