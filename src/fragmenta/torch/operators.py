"""How does PyTorch know the products?

Each is a ``torch.library`` operator with an implementation for CUDA, one for the
CPU (the emulation), one for tensors without data, and a way back that is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fragmenta.errors import Error
from fragmenta.kernels.config import Kernel
from fragmenta.kernels.emulate import emulate
from fragmenta.kernels.packing import Packed
from fragmenta.kernels.prepare import count_bits
from fragmenta.torch.matrix import (
    TYPES,
    bytes_of,
    check_device,
    check_packed,
    matrix_of,
    rows_aligned,
)
from fragmenta.torch.running import Parts, chosen, emulated, kernel_for, run, tiled

Part: TypeAlias = Tensor | None

EPILOGUE = ("scale", "scale_m", "scale_n", "bias")
_BITS = [Kernel("b1", sparse=False, xor=xor) for xor in (False, True)]
_ON_CUDA: dict[str, Callable[..., Tensor]] = {}
_FORWARD: Any = torch.autograd.forward_ad


def call(name: str, *arguments: Any) -> Tensor:
    """What the operator returns.

    Where nobody watches, its CUDA implementation is called directly: PyTorch's
    way there and back takes as long as a small product itself.
    """
    operator: Callable[..., Tensor] = getattr(torch.ops.fragmenta, name)
    if torch.compiler.is_compiling():
        return operator(*arguments)
    tensors = [x for x in arguments if isinstance(x, Tensor)]
    if _FORWARD._current_level >= 0 and any(
        _FORWARD.unpack_dual(x).tangent is not None for x in tensors
    ):
        _no_gradient()
    graded = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    if not graded and tensors[0].is_cuda and not _watched(tensors):
        return _ON_CUDA[name](*arguments)
    return operator(*arguments)


def _no_gradient(*_: Any) -> Any:
    """The way back, and the way forward beside the numbers."""
    raise Error("these products are for inference: they have no gradient")


def _watched(tensors: list[Tensor]) -> bool:
    """Whether someone traces, maps or stands in for calls of operators."""
    inside: Any = torch._C
    return bool(
        inside._len_torch_dispatch_stack()
        or inside._len_torch_function_stack()
        or inside._functorch.peek_interpreter_stack() is not None
        or any(type(x) is not Tensor for x in tensors)
    )


# ── implementations ─────────────────────────────────────────────────────────


def _parts(*given: Part) -> Parts:
    """The operands of the epilogue that there are, by name."""
    named = zip(EPILOGUE, given, strict=True)
    return {name: part for name, part in named if part is not None}


def _sparse_mm_cuda(
    packed: Tensor, b: Tensor, a: str, m: int, out: torch.dtype, *rest: Any
) -> Tensor:
    check_packed(packed, a, (m, b.shape[1]))
    return _on_cuda(a, packed, b, m, out, True, *rest)


def _sparse_mm_cpu(
    packed: Tensor, b: Tensor, a: str, m: int, out: torch.dtype, *rest: Any
) -> Tensor:
    shape = (m, b.shape[1])
    check_packed(packed, a, shape)
    check_device(packed, b.device, "A")
    matrix = Packed(bytes_of(packed), a, shape)
    return _emulated(a, matrix, b, m, out, True, *rest)


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


def _dense_mm_cuda(a: Tensor, b: Tensor, out: torch.dtype, *rest: Any) -> Tensor:
    return _on_cuda(TYPES[a.dtype], a, b, a.shape[0], out, False, *rest)


def _dense_mm_cpu(a: Tensor, b: Tensor, out: torch.dtype, *rest: Any) -> Tensor:
    check_device(a, b.device, "A")
    name = TYPES[a.dtype]
    return _emulated(name, matrix_of(a, name), b, a.shape[0], out, False, *rest)


def _on_cuda(
    a: str,
    matrix: Tensor,
    b: Tensor,
    m: int,
    out: torch.dtype,
    sparse: bool,
    *rest: Any,
) -> Tensor:
    *given, transposed, promote, tile = rest
    parts = _parts(*given)
    kernel = chosen(
        a, b.dtype, out, sparse, bool(parts), transposed, promote, tuple(tile),
        (m, *b.shape), b.device.index,
    )  # fmt: skip
    return run(kernel, matrix, b, m, parts)


def _emulated(
    a: str, matrix: Any, b: Tensor, m: int, out: torch.dtype, sparse: bool, *rest: Any
) -> Tensor:
    *given, transposed, promote, tile = rest
    parts = _parts(*given)
    kernel = kernel_for(a, b.dtype, out, sparse=sparse, scaled=bool(parts),
                        transposed=transposed, promote=promote)  # fmt: skip
    if tile:  # changes no bit, but must be one
        kernel = tiled(kernel, (m, *b.shape), tuple(tile))
    return emulated(kernel, matrix, b, m, parts)


def _binary_mm_cuda(a: Tensor, b: Tensor, xor: bool, tile: Sequence[int]) -> Tensor:
    m, n, k = a.shape[0], b.shape[0], 8 * b.shape[1]
    check_device(a, b.device, "A")
    a, b = rows_aligned(a), rows_aligned(b)
    parts: Parts = {}
    if xor:
        parts = {"count_m": count_bits(a), "count_n": count_bits(b)}
    kernel = tiled(_BITS[xor], (m, n, k), tuple(tile), b.device.index)
    return run(kernel, a, b, m, parts)


def _binary_mm_cpu(a: Tensor, b: Tensor, xor: bool, tile: Sequence[int]) -> Tensor:
    check_device(a, b.device, "A")
    left, right = (np.unpackbits(bytes_of(x), axis=-1) for x in (a, b))
    kernel = _BITS[xor]
    if tile:
        kernel = tiled(kernel, (len(left), *right.shape), tuple(tile))
    return torch.from_numpy(emulate(kernel, left, right))


# ── without data ────────────────────────────────────────────────────────────


def _sparse_mm_fake(
    packed: Tensor, b: Tensor, a: str, m: int, out: torch.dtype, *rest: Any
) -> Tensor:
    check_device(packed, b.device, "A")
    return _empty(a, b, m, out, True, *rest)


def _sparse_linear_fake(
    x: Tensor, packed: Tensor, a: str, m: int, out: torch.dtype, *rest: Any
) -> Tensor:
    check_device(packed, x.device, "the weight")
    *parts, promote, tile = rest
    _empty(a, x, m, out, True, *parts, True, promote, tile)
    return x.new_empty((*x.shape[:-1], m), dtype=out)


def _dense_mm_fake(a: Tensor, b: Tensor, out: torch.dtype, *rest: Any) -> Tensor:
    check_device(a, b.device, "A")
    return _empty(TYPES[a.dtype], b, a.shape[0], out, False, *rest)


def _binary_mm_fake(a: Tensor, b: Tensor, xor: bool, tile: Sequence[int]) -> Tensor:
    check_device(a, b.device, "A")
    return b.new_empty((a.shape[0], b.shape[0]), dtype=torch.int32)


def _empty(
    a: str, b: Tensor, m: int, out: torch.dtype, sparse: bool, *rest: Any
) -> Tensor:
    """A result without numbers, of a product that there is."""
    *given, transposed, promote, _ = rest
    scaled = any(part is not None for part in given)
    kernel_for(a, b.dtype, out, sparse=sparse, scaled=scaled, promote=promote)
    n = b.shape[0]
    return b.new_empty((n, m) if transposed else (m, n), dtype=out)


# ── registration ────────────────────────────────────────────────────────────


def _register() -> Any:
    make: Any = torch.library.Library  # which is not typed
    library = make("fragmenta", "DEF")
    parts = "".join(f"Tensor? {name}, " for name in EPILOGUE)
    last = "bool promote, int[] tile) -> Tensor"
    rest = f"ScalarType out, {parts}bool transposed, {last}"
    renamed = parts.replace("scale_m", "scale_weight").replace("scale_n", "scale_x")
    listed: tuple[tuple[str, str, Any, Any, Any], ...] = (
        (
            "sparse_mm",
            f"(Tensor packed, Tensor b, str a, int m, {rest}",
            _sparse_mm_cuda,
            _sparse_mm_cpu,
            _sparse_mm_fake,
        ),
        (
            "sparse_linear",
            f"(Tensor x, Tensor packed, str a, int m, ScalarType out, {renamed}{last}",
            _sparse_linear(_sparse_mm_cuda),
            _sparse_linear(_sparse_mm_cpu),
            _sparse_linear_fake,
        ),
        (
            "dense_mm",
            f"(Tensor a, Tensor b, {rest}",
            _dense_mm_cuda,
            _dense_mm_cpu,
            _dense_mm_fake,
        ),
        (
            "binary_mm",
            "(Tensor a, Tensor b, bool xor, int[] tile) -> Tensor",
            _binary_mm_cuda,
            _binary_mm_cpu,
            _binary_mm_fake,
        ),
    )
    for name, schema, cuda, cpu, fake in listed:
        _ON_CUDA[name] = cuda
        library.define(name + schema)
        library.impl(name, cuda, "CUDA")
        library.impl(name, cpu, "CPU")
        torch.library.register_fake(f"fragmenta::{name}", fake, lib=library)
        torch.library.register_autograd(f"fragmenta::{name}", _no_gradient, lib=library)
    return library


_LIBRARY = _register()  # the operators live as long as this
