"""What can be called?

Each product is a ``torch.library`` operator with one implementation for CUDA, one
for the CPU and one for tensors without data, and in front of it a function that
checks, completes and explains.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import astuple
from functools import wraps
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from fragmenta.errors import Error, ShapeError
from fragmenta.kernels.config import Kernel, Tile
from fragmenta.kernels.emulate import emulate
from fragmenta.kernels.packing import Packed
from fragmenta.kernels.prepare import count_bits
from fragmenta.kernels.tuning import tune
from fragmenta.torch.matrix import (
    OUTPUTS,
    TYPES,
    SparseMatrix,
    bytes_of,
    check_packed,
    matrix_of,
)
from fragmenta.torch.running import (
    Parts,
    chosen,
    emulated,
    kernel_for,
    rows_aligned,
    run,
    tiled,
)

Part: TypeAlias = Tensor | None
F = TypeVar("F", bound=Callable[..., Any])

_EPILOGUE = ("scale", "scale_m", "scale_n", "bias")
_INTEGERS = ("s8", "u8")
_BITS = [Kernel("b1", sparse=False, xor=xor) for xor in (False, True)]


# ── operators ───────────────────────────────────────────────────────────────


def _parts(*given: Part) -> Parts:
    """The operands of the epilogue that there are, by name."""
    named = zip(_EPILOGUE, given, strict=True)
    return {name: part for name, part in named if part is not None}


def _sparse_mm_cuda(
    packed: Tensor,
    b: Tensor,
    a: str,
    m: int,
    out: torch.dtype,
    scale: Part,
    scale_m: Part,
    scale_n: Part,
    bias: Part,
    transposed: bool,
    promote: bool,
    tile: Sequence[int],
) -> Tensor:
    n, k = b.shape
    check_packed(packed, a, (m, k))
    parts = _parts(scale, scale_m, scale_n, bias)
    kernel = chosen(
        a, b.dtype, out, True, bool(parts), transposed, promote, tuple(tile),
        (m, n, k), b.device.index,
    )  # fmt: skip
    return run(kernel, packed, b, m, parts)


def _sparse_mm_cpu(
    packed: Tensor, b: Tensor, a: str, m: int, out: torch.dtype, *rest: Any
) -> Tensor:
    shape = (m, b.shape[1])
    check_packed(packed, a, shape)
    matrix = Packed(bytes_of(packed), a, shape)
    return _emulated(a, matrix, b, m, out, True, *rest)


def _dense_mm_cuda(
    a: Tensor,
    b: Tensor,
    out: torch.dtype,
    scale: Part,
    scale_m: Part,
    scale_n: Part,
    bias: Part,
    transposed: bool,
    promote: bool,
    tile: Sequence[int],
) -> Tensor:
    (m, k), n = a.shape, b.shape[0]
    parts = _parts(scale, scale_m, scale_n, bias)
    kernel = chosen(
        TYPES[a.dtype], b.dtype, out, False, bool(parts), transposed, promote,
        tuple(tile), (m, n, k), b.device.index,
    )  # fmt: skip
    return run(kernel, a, b, m, parts)


def _dense_mm_cpu(a: Tensor, b: Tensor, out: torch.dtype, *rest: Any) -> Tensor:
    name = TYPES[a.dtype]
    return _emulated(name, matrix_of(a, name), b, a.shape[0], out, False, *rest)


def _emulated(
    a: str, matrix: Any, b: Tensor, m: int, out: torch.dtype, sparse: bool, *rest: Any
) -> Tensor:
    *given, transposed, promote, _ = rest
    parts = _parts(*given)
    kernel = kernel_for(a, b.dtype, out, sparse=sparse, scaled=bool(parts),
                        transposed=transposed, promote=promote)  # fmt: skip
    return emulated(kernel, matrix, b, m, parts)


def _sparse_linear(product: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The implementation of sparse_linear from one of sparse_mm."""

    def linear(
        x: Tensor, packed: Tensor, a: str, m: int, out: torch.dtype, *rest: Any
    ) -> Tensor:
        *parts, promote, tile = rest
        flat = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
        y = product(packed, flat, a, m, out, *parts, True, promote, tile)
        return y if x.ndim == 2 else y.reshape(*x.shape[:-1], m)

    return linear


def _binary_mm_cuda(a: Tensor, b: Tensor, xor: bool, tile: Sequence[int]) -> Tensor:
    m, n, k = a.shape[0], b.shape[0], 8 * b.shape[1]
    a, b = rows_aligned(a), rows_aligned(b)
    parts: Parts = {}
    if xor:
        parts = {"count_m": count_bits(a), "count_n": count_bits(b)}
    kernel = tiled(_BITS[xor], (m, n, k), tile, b.device.index)
    return run(kernel, a, b, m, parts)


def _binary_mm_cpu(a: Tensor, b: Tensor, xor: bool, tile: Sequence[int]) -> Tensor:
    left, right = (np.unpackbits(bytes_of(x), axis=-1) for x in (a, b))
    return torch.from_numpy(emulate(_BITS[xor], left, right))


def _empty(b: Tensor, m: int, out: torch.dtype, transposed: bool) -> Tensor:
    n = b.shape[0]
    return b.new_empty((n, m) if transposed else (m, n), dtype=out)


_ON_CUDA: dict[str, Callable[..., Tensor]] = {}


def _register() -> Any:
    """The operators, with what they return when nothing is computed."""
    make: Any = torch.library.Library  # which is not typed
    library = make("fragmenta", "DEF")
    parts = "".join(f"Tensor? {name}, " for name in _EPILOGUE)
    last = "bool promote, int[] tile) -> Tensor"
    rest = f"{parts}bool transposed, {last}"
    renamed = parts.replace("scale_m", "scale_weight").replace("scale_n", "scale_x")
    listed: tuple[tuple[str, str, Any, Any, Any], ...] = (
        (
            "sparse_mm",
            f"(Tensor packed, Tensor b, str a, int m, ScalarType out, {rest}",
            _sparse_mm_cuda,
            _sparse_mm_cpu,
            lambda packed, b, a, m, out, *rest: _empty(b, m, out, rest[4]),
        ),
        (
            "sparse_linear",
            f"(Tensor x, Tensor packed, str a, int m, ScalarType out, {renamed}{last}",
            _sparse_linear(_sparse_mm_cuda),
            _sparse_linear(_sparse_mm_cpu),
            lambda x, packed, a, m, out, *rest: x.new_empty(
                (*x.shape[:-1], m), dtype=out
            ),
        ),
        (
            "dense_mm",
            f"(Tensor a, Tensor b, ScalarType out, {rest}",
            _dense_mm_cuda,
            _dense_mm_cpu,
            lambda a, b, out, *rest: _empty(b, a.shape[0], out, rest[4]),
        ),
        (
            "binary_mm",
            "(Tensor a, Tensor b, bool xor, int[] tile) -> Tensor",
            _binary_mm_cuda,
            _binary_mm_cpu,
            lambda a, b, xor, tile: _empty(b, a.shape[0], torch.int32, False),
        ),
    )
    for name, schema, cuda, cpu, fake in listed:
        _ON_CUDA[name] = cuda
        library.define(name + schema)
        library.impl(name, cuda, "CUDA")
        library.impl(name, cpu, "CPU")
        torch.library.register_fake(f"fragmenta::{name}", fake, lib=library)
    return library


_LIBRARY = _register()  # the operators live as long as this


class _NoGradient(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """A result that says why it has no gradient, if one is asked for."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, *given: Tensor) -> Tensor:
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise Error("these products are for inference: they have no gradient")


def _called(name: str, *arguments: Any) -> Tensor:
    """What the operator returns; the way back is closed.

    Where nobody watches, its CUDA implementation is called directly: PyTorch's
    way there and back takes as long as a small product itself.
    """
    operator: Callable[..., Tensor] = getattr(torch.ops.fragmenta, name)
    if torch.compiler.is_compiling():
        return operator(*arguments)
    tensors = [x for x in arguments if isinstance(x, Tensor)]
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        plain = (x.detach() if isinstance(x, Tensor) else x for x in arguments)
        close: Callable[..., Tensor] = _NoGradient.apply
        return close(operator(*plain), *tensors)
    if tensors[0].is_cuda and not _watched(tensors):
        return _ON_CUDA[name](*arguments)
    return operator(*arguments)


def _watched(tensors: list[Tensor]) -> bool:
    """Whether someone traces, maps or stands in for calls of operators."""
    inside: Any = torch._C
    return bool(
        inside._len_torch_dispatch_stack()
        or inside._len_torch_function_stack()
        or inside._functorch.peek_interpreter_stack() is not None
        or any(type(x) is not Tensor for x in tensors)
    )


# ── arrays of other libraries ───────────────────────────────────────────────


def _of_any_library(product: F) -> F:
    """Take CuPy and NumPy arrays through DLPack, and answer in kind."""

    @wraps(product)
    def wrapped(a: Any, b: Any, **options: Any) -> Any:
        if isinstance(b, Tensor):
            return product(a, b, **options)
        taken = {name: _taken(each) for name, each in options.items()}
        library = sys.modules[type(b).__module__.partition(".")[0]]
        return library.from_dlpack(product(_taken(a), _taken(b), **taken))

    return cast(F, wrapped)


def _taken(x: Any) -> Any:
    """An array of another library, without a copy; anything else as it is."""
    foreign = hasattr(x, "__dlpack__") and not isinstance(x, Tensor)
    return from_dlpack(x) if foreign else x


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
    if b.ndim != 2 or b.shape[1] != a.shape[1]:
        raise ShapeError(
            f"A is {a.shape[0]}x{a.shape[1]}; B {tuple(b.shape)}, not n x k"
        )
    parts = (scale, scale_m, scale_n, bias)
    return _called(
        "sparse_mm", a.data, b, a.a, a.shape[0],
        out_dtype or _default(a.a, parts), *parts, transposed, promote, _sizes(tile),
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
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ShapeError(f"A {tuple(a.shape)} and B {tuple(b.shape)} share no k")
    parts = (scale, scale_m, scale_n, bias)
    return _called(
        "dense_mm", a, b, out_dtype or _default(_name(a), parts),
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
    if bias is not None and bias.dtype != torch.float32:
        bias = bias.float()
    parts = (scale, scale_weight, scale_x, bias)
    return packed_linear(
        x, weight.data, weight.a, weight.shape, parts, out_dtype, promote, tile
    )


def packed_linear(
    x: Tensor,
    packed: Tensor,
    a: str,
    shape: tuple[int, int],
    parts: tuple[Part, ...],
    out: torch.dtype | None = None,
    promote: bool = False,
    tile: Tile | None = None,
) -> Tensor:
    """:func:`sparse_linear` for the bytes of a weight."""
    m, k = shape
    if not x.ndim or x.shape[-1] != k:
        raise ShapeError(f"W is {m}x{k}; x {tuple(x.shape)} does not end in {k}")
    kind = out or (x.dtype if x.dtype in OUTPUTS else _default(a, parts))
    return _called("sparse_linear", x, packed, a, m, kind, *parts, promote,
                   _sizes(tile))  # fmt: skip


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
    return _called("binary_mm", a, b, op == "xor", _sizes(tile))


def _name(x: Tensor) -> str:
    if x.dtype not in TYPES:
        raise Error(f"there is no kernel that multiplies {x.dtype}")
    return TYPES[x.dtype]


def _sizes(tile: Tile | None) -> list[int]:
    return [] if tile is None else [int(size) for size in astuple(tile)]


def _default(a: str, parts: tuple[Part, ...]) -> torch.dtype:
    scaled = any(part is not None for part in parts)
    return torch.int32 if a in _INTEGERS and not scaled else torch.float32


# ── which tile ──────────────────────────────────────────────────────────────


def autotune(
    a: SparseMatrix | Tensor,
    b: Tensor,
    *,
    out_dtype: torch.dtype | None = None,
    transposed: bool = True,
    scaled: bool = False,
    promote: bool = False,
    op: str | None = None,
) -> Tile:
    """Measure the promising tiles of a product on this GPU, and keep the best.

    A is sparse, dense, or (with ``op`` "and" or "xor") bits.  Later calls with
    the same types and sizes use the tile, in other processes too.
    """
    parts: Parts = {"scale": torch.ones(1, device=b.device)} if scaled else {}
    data = a.data if isinstance(a, SparseMatrix) else a
    m, n, k = a.shape[0], b.shape[0], b.shape[1]
    if op is None:
        name = a.a if isinstance(a, SparseMatrix) else _name(a)
        kernel = kernel_for(
            name, b.dtype, out_dtype or _default(name, tuple(parts.values())),
            sparse=isinstance(a, SparseMatrix), scaled=scaled, transposed=transposed,
            promote=promote,
        )  # fmt: skip
    else:
        kernel, k = _BITS[op == "xor"], 8 * k
        if kernel.xor:
            parts = {"count_m": count_bits(data), "count_n": count_bits(b)}
    gpu = torch.cuda.get_device_name(b.device)
    best = tune(kernel, (m, n, k), gpu, lambda each: _timed(each, data, b, m, parts))
    chosen.cache_clear()
    return best.tile


def _timed(kernel: Kernel, a: Tensor, b: Tensor, m: int, parts: Parts) -> float:
    """Milliseconds of a call: the median of ten."""
    event: Any = torch.cuda.Event
    times: list[float] = []
    for _ in range(12):
        before, after = (event(enable_timing=True) for _ in range(2))
        before.record()
        run(kernel, a, b, m, parts)
        after.record()
        after.synchronize()
        times.append(before.elapsed_time(after))
    return sorted(times[2:])[5]
