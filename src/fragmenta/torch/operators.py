"""How does PyTorch know the products?

Each is a ``torch.library`` operator with an implementation for CUDA, one for the
CPU (the emulation), one for tensors without data, and a way back that is closed.
So are the ways into and out of a sparse matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fragmenta.errors import Error, ShapeError
from fragmenta.kernels.config import ALIGNMENT, Kernel
from fragmenta.kernels.emulate import emulate
from fragmenta.kernels.packing import Packed, packed_shape
from fragmenta.kernels.prepare import count_bits
from fragmenta.torch.matrix import (
    DTYPES,
    as_packed,
    bytes_of,
    dense_of,
    matrix_of,
    packed_of,
    rows_aligned,
    type_name,
    whole_sizes,
)
from fragmenta.torch.running import (
    Parts,
    Ready,
    check_depth,
    check_parts,
    check_tile,
    description,
    emulated,
    kernel_for,
    prepared,
    remembered,
    run,
    tiled,
)

Part: TypeAlias = Tensor | None

EPILOGUE = ("scale", "scale_m", "scale_n", "bias")
_ALIKE = ({"e4m3", "e5m2"}, {"s8", "u8"})  # types that may meet
_BITS = [Kernel("b1", sparse=False, xor=xor) for xor in (False, True)]
_FORWARD: Any = torch.autograd.forward_ad
_TORCH: Any = torch._C


def call(name: str, *arguments: Any) -> Tensor:
    """What the operator returns.

    Where nobody watches, its CUDA implementation is called directly: PyTorch's
    way there and back takes as long as a small product itself.
    """
    if not torch.compiler.is_compiling():
        if _FORWARD._current_level >= 0:
            _check_tangents(arguments)
        if _unwatched(arguments):
            return _OPERATORS[name].cuda(*arguments)
    operator: Callable[..., Tensor] = getattr(torch.ops.fragmenta, name)
    return operator(*arguments)


def _no_gradient(*_: Any) -> Any:
    """The way back, and the way forward beside the numbers."""
    raise Error("these products are for inference: they have no gradient")


def _check_tangents(arguments: tuple[Any, ...]) -> None:
    for x in arguments:
        if isinstance(x, Tensor) and _FORWARD.unpack_dual(x).tangent is not None:
            _no_gradient()


def _unwatched(arguments: tuple[Any, ...]) -> bool:
    """Whether these are plain CUDA tensors, and nobody traces, maps or stands in."""
    if (
        _TORCH._get_tracing_state() is not None
        or _TORCH._len_torch_dispatch_stack()
        or _TORCH._len_torch_function_stack()
        or _TORCH._functorch.peek_interpreter_stack() is not None
    ):
        return False
    graded = torch.is_grad_enabled()
    for x in arguments:
        if isinstance(x, Tensor) and (
            type(x) is not Tensor
            or not x.is_cuda
            or x.is_neg()
            or (graded and x.requires_grad)
        ):
            return False
    return True


# ── checks ──────────────────────────────────────────────────────────────────


class Words(NamedTuple):
    """What a message calls the operands."""

    a: str
    b: str
    parts: dict[str, str]


_MM = Words("A", "B", {})
_LINEAR = Words("the weight", "x", {"scale_m": "scale_weight", "scale_n": "scale_x"})


def _check(
    words: Words, a: str, matrix: Tensor, b: Tensor, m: int, parts: Parts
) -> None:
    """Refuse operands that no kernel multiplies."""
    other = type_name(b.dtype, words.b)
    if a != other and not any({a, other} <= group for group in _ALIKE):
        raise Error(
            f"{words.a} is {DTYPES[a]} and {words.b} {b.dtype}: operands are of one "
            f"type (or both fp8, or both 8-bit integers); "
            f"{words.b}.to({DTYPES[a]})?"
        )
    _check_places(words, matrix, b)
    check_depth(b)
    check_parts(parts, m, b, words.parts)


def _check_places(words: Words, a: Tensor, b: Tensor) -> None:
    if a.device != b.device:
        raise Error(
            f"{words.a} is on {a.device} and {words.b} on {b.device}; "
            f'{words.b}.to("{a.device}")?'
        )


def _packed(words: Words, packed: Tensor, a: str, b: Tensor, m: int) -> Tensor:
    """The bytes of a sparse A that goes with B, which a kernel trusts."""
    if b.ndim != 2:
        raise ShapeError(f"{words.b} is a matrix; given shape {tuple(b.shape)}")
    if not isinstance(b.shape[1], int):  # a size that stands for all
        return packed
    return as_packed(packed, a, whole_sizes((m, b.shape[1])))


def _dense_type(a: Tensor, b: Tensor) -> str:
    """The type of a dense A, which goes with B."""
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ShapeError(
            f"A is m x k and B n x k; given {tuple(a.shape)} and {tuple(b.shape)}"
        )
    return type_name(a.dtype, "A")


def _check_bits(a: Tensor, b: Tensor) -> None:
    kinds = (torch.uint8, torch.uint8)
    if (a.dtype, b.dtype) != kinds or a.shape[1:] != b.shape[1:] or a.ndim != 2:
        raise ShapeError(
            f"bits are uint8 matrices m x k/8 and n x k/8; given {a.dtype} "
            f"{tuple(a.shape)} and {b.dtype} {tuple(b.shape)}"
        )
    _check_places(_MM, a, b)
    check_depth(b)


def check_weight(weight: Tensor) -> None:
    """Refuse what is no matrix of numbers.

    >>> check_weight(torch.ones(8))
    Traceback (most recent call last):
    fragmenta.errors.ShapeError: a weight is a matrix; given shape (8,)
    """
    if weight.ndim != 2:
        raise ShapeError(f"a weight is a matrix; given shape {tuple(weight.shape)}")
    if not weight.numel() or weight.layout != torch.strided:
        raise Error(
            f"a weight has numbers, one for each place; given {weight.layout} on "
            f"{weight.device} of shape {tuple(weight.shape)}"
        )


# ── implementations ─────────────────────────────────────────────────────────


def _parts(given: Sequence[Part]) -> Parts:
    """The operands of the epilogue that there are, by name."""
    named = zip(EPILOGUE, given, strict=True)
    return {name: part for name, part in named if part is not None}


def _sparse_mm_cuda(
    words: Words, packed: Tensor, b: Tensor, a: str, m: int, *rest: Any
) -> Tensor:
    return _on_cuda(words, a, packed, b, m, True, *rest)


def _sparse_mm_cpu(
    words: Words, packed: Tensor, b: Tensor, a: str, m: int, *rest: Any
) -> Tensor:
    matrix = Packed(bytes_of(_packed(words, packed, a, b, m)), a, (m, b.shape[-1]))
    return _emulated(words, a, packed, matrix, b, m, True, *rest)


def _sparse_linear(product: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The implementation of sparse_linear from one of sparse_mm."""

    def linear(
        x: Tensor, packed: Tensor, a: str, m: int, out: torch.dtype, *rest: Any
    ) -> Tensor:
        *parts, promote, tile = rest
        if not x.ndim:
            raise ShapeError("x has rows to multiply; given a single number")
        flat = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
        y = product(_LINEAR, packed, flat, a, m, out, *parts, True, promote, tile)
        return y if x.ndim == 2 else y.reshape(*x.shape[:-1], m)

    return linear


def _dense_mm_cuda(a: Tensor, b: Tensor, *rest: Any) -> Tensor:
    name = _dense_type(a, b)
    return _on_cuda(_MM, name, a, b, a.shape[0], False, *rest)


def _dense_mm_cpu(a: Tensor, b: Tensor, *rest: Any) -> Tensor:
    name = _dense_type(a, b)
    matrix = matrix_of(a, name)
    return _emulated(_MM, name, a, matrix, b, a.shape[0], False, *rest)


def _kernel(
    words: Words, a: str, matrix: Tensor, b: Tensor, m: int, sparse: bool, *rest: Any
) -> Kernel:
    """The kernel for operands that go together, before its tile is chosen."""
    out, *given, transposed, promote, tile = rest
    parts = _parts(given)
    check_tile(tile)
    if sparse:
        _packed(words, matrix, a, b, m)
    _check(words, a, matrix, b, m, parts)
    return kernel_for(a, b.dtype, out, sparse=sparse, scaled=bool(parts),
                      transposed=transposed, promote=promote)  # fmt: skip


def _on_cuda(
    words: Words, a: str, matrix: Tensor, b: Tensor, m: int, sparse: bool, *rest: Any
) -> Tensor:
    out, *given, transposed, promote, tile = rest
    parts = _parts(given)

    def make() -> Ready:
        kernel = _kernel(words, a, matrix, b, m, sparse, *rest)
        if sparse and matrix.data_ptr() % ALIGNMENT:
            raise ShapeError(
                f"the bytes of a sparse matrix begin on a multiple of {ALIGNMENT}; "
                f"given address {matrix.data_ptr():#x}"
            )
        best = tiled(kernel, (m, *b.shape), tuple(tile), b.device.index)
        return prepared(best, matrix, b, m, parts)

    kinds = (a, m, sparse, out, transposed, promote, tuple(tile), *parts)
    tensors = [description(x) for x in (matrix, b, *parts.values())]
    return remembered((*kinds, *tensors), make).run(matrix, b, parts)


def _emulated(
    words: Words,
    a: str,
    data: Tensor,
    matrix: Any,
    b: Tensor,
    m: int,
    sparse: bool,
    *rest: Any,
) -> Tensor:
    _, *given, _, _, tile = rest
    kernel = _kernel(words, a, data, b, m, sparse, *rest)
    if tile:  # changes no bit, but must be one
        kernel = tiled(kernel, (m, *b.shape), tuple(tile))
    return emulated(kernel, matrix, b, m, _parts(given))


def _binary_mm_cuda(a: Tensor, b: Tensor, xor: bool, tile: Sequence[int]) -> Tensor:
    _check_bits(a, b)
    m, n, k = a.shape[0], b.shape[0], 8 * b.shape[1]
    a, b = rows_aligned(a), rows_aligned(b)
    parts: Parts = {}
    if xor:
        parts = {"count_m": count_bits(a), "count_n": count_bits(b)}
    kernel = tiled(_BITS[xor], (m, n, k), tuple(tile), b.device.index)
    return run(kernel, a, b, m, parts)


def _binary_mm_cpu(a: Tensor, b: Tensor, xor: bool, tile: Sequence[int]) -> Tensor:
    _check_bits(a, b)
    left, right = (np.unpackbits(bytes_of(x), axis=-1) for x in (a, b))
    kernel = _BITS[xor]
    if tile:
        kernel = tiled(kernel, (len(left), *right.shape), tuple(tile))
    return torch.from_numpy(emulate(kernel, left, right))


def _compress(weight: Tensor, prune: bool) -> Tensor:
    check_weight(weight)
    return packed_of(weight.detach(), type_name(weight.dtype, "a weight"), prune)


def _to_dense(packed: Tensor, a: str, m: int, k: int) -> Tensor:
    return dense_of(as_packed(packed, a, whole_sizes((m, k))), a, m, k)


# ── without data ────────────────────────────────────────────────────────────


def _compress_fake(weight: Tensor, prune: bool) -> Tensor:
    check_weight(weight)
    shape = packed_shape(type_name(weight.dtype, "a weight"), *weight.shape)
    return weight.new_empty(shape, dtype=torch.uint8)


def _to_dense_fake(packed: Tensor, a: str, m: int, k: int) -> Tensor:
    return packed.new_empty((m, k), dtype=DTYPES[a])


def _sparse_mm_fake(
    words: Words, packed: Tensor, b: Tensor, a: str, m: int, *rest: Any
) -> Tensor:
    return _empty(words, a, packed, b, m, True, *rest)


def _dense_mm_fake(a: Tensor, b: Tensor, *rest: Any) -> Tensor:
    return _empty(_MM, _dense_type(a, b), a, b, a.shape[0], False, *rest)


def _binary_mm_fake(a: Tensor, b: Tensor, xor: bool, tile: Sequence[int]) -> Tensor:
    _check_bits(a, b)
    return b.new_empty((a.shape[0], b.shape[0]), dtype=torch.int32)


def _empty(
    words: Words, a: str, matrix: Tensor, b: Tensor, m: int, sparse: bool, *rest: Any
) -> Tensor:
    """A result without numbers, of a product that there is."""
    kernel = _kernel(words, a, matrix, b, m, sparse, *rest)
    out, n = rest[0], b.shape[0]
    return b.new_empty((n, m) if kernel.transposed else (m, n), dtype=out)


# ── registration ────────────────────────────────────────────────────────────


class Operator(NamedTuple):
    """What PyTorch is told of one operator."""

    schema: str
    cuda: Callable[..., Tensor]
    cpu: Callable[..., Tensor]
    fake: Callable[..., Tensor]
    tags: tuple[Any, ...] = ()


_PARTS = "".join(f"Tensor? {name}, " for name in EPILOGUE)
_LAST = "bool promote, int[] tile) -> Tensor"
_REST = f"ScalarType out, {_PARTS}bool transposed, {_LAST}"
_RENAMED = _PARTS.replace("scale_m", "scale_weight").replace("scale_n", "scale_x")
# These may wait for the device, which the recording of a graph forbids.
_UNSAFE: Any = getattr(torch.Tag, "cudagraph_unsafe", None)  # older ones have none
_WAITS = () if _UNSAFE is None else (_UNSAFE,)

_OPERATORS = {
    "sparse_mm": Operator(
        f"(Tensor packed, Tensor b, str a, int m, {_REST}",
        partial(_sparse_mm_cuda, _MM),
        partial(_sparse_mm_cpu, _MM),
        partial(_sparse_mm_fake, _MM),
    ),
    "sparse_linear": Operator(
        f"(Tensor x, Tensor packed, str a, int m, ScalarType out, {_RENAMED}{_LAST}",
        _sparse_linear(_sparse_mm_cuda),
        _sparse_linear(_sparse_mm_cpu),
        _sparse_linear(_sparse_mm_fake),
    ),
    "dense_mm": Operator(
        f"(Tensor a, Tensor b, {_REST}", _dense_mm_cuda, _dense_mm_cpu, _dense_mm_fake
    ),
    "binary_mm": Operator(
        "(Tensor a, Tensor b, bool xor, int[] tile) -> Tensor",
        _binary_mm_cuda,
        _binary_mm_cpu,
        _binary_mm_fake,
    ),
    "compress": Operator(
        "(Tensor weight, bool prune) -> Tensor",
        _compress,
        _compress,
        _compress_fake,
        _WAITS,
    ),
    "to_dense": Operator(
        "(Tensor packed, str a, SymInt m, SymInt k) -> Tensor",
        _to_dense,
        _to_dense,
        _to_dense_fake,
        _WAITS,
    ),
}


def _register() -> Any:
    make: Any = torch.library.Library  # which is not typed
    library = make("fragmenta", "DEF")
    for name, each in _OPERATORS.items():
        library.define(name + each.schema, tags=each.tags)
        library.impl(name, each.cuda, "CUDA")
        library.impl(name, each.cpu, "CPU")
        full = f"fragmenta::{name}"
        torch.library.register_fake(full, each.fake, lib=library)
        torch.library.register_autograd(full, _no_gradient, lib=library)
    return library


_LIBRARY = _register()  # the operators live as long as this
