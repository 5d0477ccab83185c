"""Registers the products as operators of PyTorch.

Each product is a ``torch.library`` operator.  It has an implementation for CUDA, one
for the CPU (the emulation) and one for tensors without data.  It has no backward
pass: asking for a gradient is an error.  Only ``kept_linear`` has one, the product with
a weight that is trained.  Compressing a weight and restoring the dense matrix are
operators too, and so are quantising rows and moving kept values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor

from fragmenta.base.arrays.checks import Array
from fragmenta.errors import BadCall, ShapeError
from fragmenta.hopper.kernels.choosing import choose
from fragmenta.hopper.kernels.config import Kernel
from fragmenta.hopper.kernels.emulate import emulate
from fragmenta.hopper.kernels.four_bits import Integers
from fragmenta.hopper.kernels.packing import Packed, packed_shape
from fragmenta.hopper.kernels.prepare import count_bits
from fragmenta.hopper.torch.activating import (
    activate_on_cpu,
    activate_on_cuda,
    activate_without_data,
    activated_on_cpu,
    activated_on_cuda,
    activated_without_data,
)
from fragmenta.hopper.torch.grouping import (
    grouped_on_cpu,
    grouped_on_cuda,
    grouped_without_data,
)
from fragmenta.hopper.torch.matrix import (
    DTYPES,
    as_packed,
    bytes_of,
    dense_of,
    matrix_of,
    packed_integers,
    packed_of,
    rows_aligned,
    type_name,
    whole_sizes,
)
from fragmenta.hopper.torch.quantizing import (
    Pair,
    quantize_on_cpu,
    quantize_on_cuda,
    quantize_without_data,
)
from fragmenta.hopper.torch.request import (
    EPILOGUE,
    LINEAR,
    MATRICES,
    OperandNames,
    ProductRequest,
    check_devices,
    dense_product,
    linear_product,
    sparse_product,
)
from fragmenta.hopper.torch.running import (
    EpilogueTensors,
    Ready,
    check_depth,
    emulated,
    prepared,
    remembered,
    run,
    tiled,
)
from fragmenta.hopper.torch.training import (
    gather_kept_fake,
    gather_kept_on_cpu,
    gather_kept_on_cuda,
    kept_to_dense_fake,
    kept_to_dense_on_cpu,
    kept_to_dense_on_cuda,
    pack_kept_fake,
    pack_kept_on_cpu,
    pack_kept_on_cuda,
)
from fragmenta.hopper.torch.widening import (
    widen_on_cpu,
    widen_on_cuda,
    widen_without_data,
)

_BITS = [Kernel("b1", sparse=False, xor=xor) for xor in (False, True)]
_FORWARD: ModuleType = torch.autograd.forward_ad
_TORCH: ModuleType = torch._C


def call(name: str, *arguments: object) -> Tensor:
    """The tensor that an operator returns."""
    found: Tensor = _called(name, arguments)
    return found


def call_pair(name: str, *arguments: object) -> Pair:
    """The two tensors that an operator returns."""
    found: Pair = _called(name, arguments)
    return found


def _called(name: str, arguments: tuple[object, ...]) -> Any:
    """The result of an operator.

    If no part of PyTorch has to see the call, the CUDA implementation is called
    directly: PyTorch's dispatcher takes as long as a small product itself.
    """
    if not torch.compiler.is_compiling():
        if _FORWARD._current_level >= 0:
            _check_tangents(arguments)
        if _direct(arguments):
            return _OPERATORS[name].cuda(*arguments)
    return getattr(torch.ops.fragmenta, name)(*arguments)


def _no_gradient(*_: object) -> NoReturn:
    """Refuse backward and forward differentiation."""
    raise BadCall(
        "these products are for inference: they have no backward pass and no forward "
        "derivative; call them under torch.no_grad(), or detach their tensors; "
        "linears(model, train=True) makes layers that can be trained"
    )


def _check_tangents(arguments: tuple[object, ...]) -> None:
    for x in arguments:
        if isinstance(x, Tensor) and _FORWARD.unpack_dual(x).tangent is not None:
            _no_gradient()


def _direct(arguments: tuple[object, ...]) -> bool:
    """Whether a call with these arguments may bypass PyTorch's dispatcher.

    It may with plain CUDA tensors that need no gradient, if there is no tracing,
    no dispatch or function mode, and no transform such as ``torch.func.vmap``.
    """
    if (
        _TORCH._get_tracing_state() is not None
        or _TORCH._len_torch_dispatch_stack()
        or _TORCH._len_torch_function_stack()
        or _TORCH._functorch.peek_interpreter_stack() is not None
    ):
        return False
    gradients = torch.is_grad_enabled()
    for x in arguments:
        if isinstance(x, Tensor) and (
            type(x) is not Tensor
            or not x.is_cuda
            or x.is_neg()
            or (gradients and x.requires_grad)
        ):
            return False
    return True


# ── checks ──────────────────────────────────────────────────────────────────


def _check_bits(a: Tensor, b: Tensor) -> None:
    kinds = (torch.uint8, torch.uint8)
    if (a.dtype, b.dtype) != kinds or a.shape[1:] != b.shape[1:] or a.ndim != 2:
        raise ShapeError(
            f"A and B must be packed bits: uint8 matrices m x k/8 and n x k/8; given "
            f"{a.dtype} {tuple(a.shape)} and {b.dtype} {tuple(b.shape)}"
        )
    check_devices(a, b)
    check_depth(b)


def check_weight(weight: Tensor) -> None:
    """Refuse a weight that is not a dense matrix with at least one element.

    >>> check_weight(torch.ones(8))
    Traceback (most recent call last):
    fragmenta.errors.ShapeError: a weight must be a matrix; given shape (8,)
    """
    if weight.ndim != 2:
        raise ShapeError(
            f"a weight must be a matrix; given shape {tuple(weight.shape)}"
        )
    if not weight.numel() or weight.layout != torch.strided:
        raise ShapeError(
            f"a weight must be dense, with at least one element; given {weight.layout} "
            f"of shape {tuple(weight.shape)} on {weight.device}"
        )


# ── implementations ─────────────────────────────────────────────────────────


def _product_on_cuda(product: ProductRequest) -> Tensor:
    def make() -> Ready:
        kernel = product.kernel()
        product.check_alignment()
        gpu = product.b.device.index
        best = tiled(kernel, product.shape, product.tile, gpu)
        return prepared(best, product.a, product.b, product.m, product.epilogue)

    ready = remembered(product.key, make)
    return ready.run(product.a, product.b, product.epilogue)


def _product_on_cpu(product: ProductRequest) -> Tensor:
    kernel = product.kernel()
    if product.tile:
        kernel = tiled(kernel, product.shape, product.tile)
    elif product.m and product.shape[1]:  # a tile that is split along k changes the sum
        kernel = choose(kernel, *product.shape)
    a: Array | Packed
    if product.sparse:
        m, _, k = product.shape
        data, integers = product.packed(), Integers.named(product.a_type)
        if integers:
            a = packed_integers(data, integers, (m, k))
        else:
            a = Packed(bytes_of(data), product.a_type, (m, k))
    else:
        a = matrix_of(product.a, product.a_type)
    return emulated(kernel, a, product.b, product.m, product.epilogue)


def _product_without_data(product: ProductRequest) -> Tensor:
    product.kernel()  # refuses what the other implementations refuse
    m, n, _ = product.shape
    shape = (n, m) if product.transposed else (m, n)
    return product.b.new_empty(shape, dtype=product.out)


def _binary_mm_cuda(a: Tensor, b: Tensor, xor: bool, tile: Sequence[int]) -> Tensor:
    _check_bits(a, b)
    m, n, k = a.shape[0], b.shape[0], 8 * b.shape[1]
    a, b = rows_aligned(a), rows_aligned(b)
    counts: EpilogueTensors = {}
    if xor:
        counts = {"count_m": count_bits(a), "count_n": count_bits(b)}
    kernel = tiled(_BITS[xor], (m, n, k), tuple(tile), b.device.index)
    return run(kernel, a, b, m, counts)


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


def _to_dense(packed: Tensor, element_type: str, m: int, k: int) -> Tensor:
    data = as_packed(packed, element_type, whole_sizes((m, k)))
    return dense_of(data, element_type, m, k)


# ── a weight that is trained ────────────────────────────────────────────────


def _kept_product(
    compute: Callable[[ProductRequest], Tensor], packs: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    """y = x W^T + bias with kept values, which are packed first."""

    def run_product(
        x: Tensor,
        values: Tensor,
        codes: Tensor,
        bias: Tensor | None,
        a: str,
        out: torch.dtype,
        transposable: bool,
        tile: Sequence[int],
    ) -> Tensor:
        stored = values.to(DTYPES[a])
        packed = packs(stored, codes, a, x.shape[-1], False)
        scales = (None, None, None)
        product = linear_product(
            x, packed, a, len(values), out, *scales, bias, False, tile
        )
        return product.shaped(compute(product))

    return run_product


def _keep_for_backward(
    ctx: Any, inputs: tuple[object, ...], output: Tensor
) -> None:  # the arguments are PyTorch's
    x, values, codes, _, a, _, transposable, _ = inputs
    ctx.save_for_backward(x, values, codes)
    ctx.settings = a, transposable


def _kept_backward(
    ctx: Any, gradient: Tensor
) -> tuple[Tensor | None, Tensor | None, None, Tensor | None, None, None, None, None]:
    """dX = dY W, dW = dY^T X at the kept places, and the sum of dY for the bias."""
    x, values, codes = ctx.saved_tensors
    a, transposable = ctx.settings
    kind, ops = DTYPES[a], torch.ops.fragmenta
    columns = x.shape[-1]
    flat = gradient.reshape(-1, len(values))
    dy = flat.to(kind)
    dx = dw = db = None
    if ctx.needs_input_grad[0]:
        stored = values.to(kind)
        if transposable:
            packed = ops.pack_kept(stored, codes, a, columns, True)
            none = (None, None, None, None)  # of the epilogue
            dx = ops.sparse_linear(dy, packed, a, columns, kind, *none, False, [])
        else:
            dx = dy @ ops.kept_to_dense(stored, codes, a, columns)
        dx = dx.reshape(x.shape)
    if ctx.needs_input_grad[1]:
        dense = dy.T @ x.reshape(-1, columns)
        dw = ops.gather_kept(dense, codes, a).to(values.dtype)
    if ctx.needs_input_grad[3]:
        db = flat.sum(0, dtype=torch.float32)
    return dx, dw, None, db, None, None, None, None


# ── without data ────────────────────────────────────────────────────────────


def _compress_fake(weight: Tensor, prune: bool) -> Tensor:
    check_weight(weight)
    shape = packed_shape(type_name(weight.dtype, "a weight"), *weight.shape)
    return weight.new_empty(shape, dtype=torch.uint8)


def _to_dense_fake(packed: Tensor, element_type: str, m: int, k: int) -> Tensor:
    kind = torch.float32 if Integers.named(element_type) else DTYPES[element_type]
    return packed.new_empty((m, k), dtype=kind)


def _binary_mm_fake(a: Tensor, b: Tensor, xor: bool, tile: Sequence[int]) -> Tensor:
    _check_bits(a, b)
    return b.new_empty((a.shape[0], b.shape[0]), dtype=torch.int32)


# ── registration ────────────────────────────────────────────────────────────


class Operator(NamedTuple):
    """One operator, as it is registered with PyTorch."""

    schema: str
    cuda: Callable[..., Tensor | Pair]
    cpu: Callable[..., Tensor | Pair]
    fake: Callable[..., Tensor | Pair]
    tags: tuple[torch.Tag, ...] = ()
    backward: Callable[..., object] = _no_gradient
    keep: Callable[..., None] | None = None
    """What keeps the tensors that the backward pass needs."""


def _product_operator(schema: str, read: Callable[..., ProductRequest]) -> Operator:
    """An operator for one product; ``read`` turns its arguments into the record."""

    def implementation(
        compute: Callable[[ProductRequest], Tensor],
    ) -> Callable[..., Tensor]:
        def run_product(*arguments: object) -> Tensor:
            product = read(*arguments)
            return product.shaped(compute(product))

        return run_product

    return Operator(
        schema,
        implementation(_product_on_cuda),
        implementation(_product_on_cpu),
        implementation(_product_without_data),
    )


def _epilogue_schema(names: OperandNames) -> str:
    """The tensors of the epilogue in a schema, under the operator's own names."""
    called = (names.epilogue.get(name, name) for name in EPILOGUE)
    return "".join(f"Tensor? {name}, " for name in called)


_LAST = "bool promote, int[] tile) -> Tensor"
_OPTIONS = f"ScalarType out, {_epilogue_schema(MATRICES)}bool transposed, {_LAST}"
_LINEAR_OPTIONS = f"ScalarType out, {_epilogue_schema(LINEAR)}{_LAST}"
# Operators that may wait for the device, which is not allowed in a CUDA graph.
# Older versions of PyTorch do not have the tag.
_UNSAFE: torch.Tag | None = getattr(torch.Tag, "cudagraph_unsafe", None)
_WAITS = () if _UNSAFE is None else (_UNSAFE,)

_KEPT = "(Tensor values, Tensor codes, str a, int columns"

_OPERATORS = {
    "sparse_mm": _product_operator(
        f"(Tensor packed, Tensor b, str a, SymInt m, {_OPTIONS}", sparse_product
    ),
    "sparse_linear": _product_operator(
        f"(Tensor x, Tensor packed, str a, int m, {_LINEAR_OPTIONS}", linear_product
    ),
    "grouped_linear": Operator(
        "(Tensor x, Tensor packed, Tensor offs, bool settled, str a, int m, "
        + _LINEAR_OPTIONS,
        grouped_on_cuda,
        grouped_on_cpu,
        grouped_without_data,
    ),
    "dense_mm": _product_operator(f"(Tensor a, Tensor b, {_OPTIONS}", dense_product),
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
    "quantize_rows": Operator(
        "(Tensor x, str element_type, Tensor? scale) -> (Tensor, Tensor)",
        quantize_on_cuda,
        quantize_on_cpu,
        quantize_without_data,
    ),
    "activate_rows": Operator(
        "(Tensor x, str activation) -> (Tensor, Tensor)",
        activate_on_cuda,
        activate_on_cpu,
        activate_without_data,
    ),
    "activated_mm": Operator(
        "(Tensor a, Tensor b, str activation, ScalarType out, Tensor? scale_m, "
        "Tensor? scale_n, Tensor inverse, int[] tile) -> Tensor",
        activated_on_cuda,
        activated_on_cpu,
        activated_without_data,
    ),
    "to_dense": Operator(
        "(Tensor packed, str a, SymInt m, SymInt k) -> Tensor",
        _to_dense,
        _to_dense,
        _to_dense_fake,
        _WAITS,
    ),
    "widen": Operator(
        "(Tensor packed, str a, int m, int k, str to, Tensor? powers) -> Tensor",
        widen_on_cuda,
        widen_on_cpu,
        widen_without_data,
    ),
    "pack_kept": Operator(
        f"{_KEPT}, bool transposed) -> Tensor",
        pack_kept_on_cuda,
        pack_kept_on_cpu,
        pack_kept_fake,
    ),
    "kept_to_dense": Operator(
        f"{_KEPT}) -> Tensor",
        kept_to_dense_on_cuda,
        kept_to_dense_on_cpu,
        kept_to_dense_fake,
    ),
    "gather_kept": Operator(
        "(Tensor dense, Tensor codes, str a) -> Tensor",
        gather_kept_on_cuda,
        gather_kept_on_cpu,
        gather_kept_fake,
    ),
    "kept_linear": Operator(
        "(Tensor x, Tensor values, Tensor codes, Tensor? bias, str a, ScalarType out, "
        "bool transposable, int[] tile) -> Tensor",
        _kept_product(_product_on_cuda, pack_kept_on_cuda),
        _kept_product(_product_on_cpu, pack_kept_on_cpu),
        _kept_product(_product_without_data, pack_kept_fake),
        (),
        _kept_backward,
        _keep_for_backward,
    ),
}


def _register() -> torch.library.Library:
    library = torch.library.Library("fragmenta", "DEF")
    for name, each in _OPERATORS.items():
        library.define(name + each.schema, tags=each.tags)
        library.impl(name, each.cuda, "CUDA")
        library.impl(name, each.cpu, "CPU")
        full = f"fragmenta::{name}"
        torch.library.register_fake(full, each.fake, lib=library)
        torch.library.register_autograd(
            full, each.backward, setup_context=each.keep, lib=library
        )
    return library


_LIBRARY = _register()  # the operators exist as long as this object
