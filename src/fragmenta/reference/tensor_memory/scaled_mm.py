"""Quantised matrices as PyTorch's scaled products store them.

``torch.nn.functional.scaled_mm`` and ``torch._scaled_mm`` take the elements of a row of
A, or of a column of B, one after the other.  Two e2m1 share a byte; the first one is in
its low half.  Block scales are in the order of cuBLAS, on one axis:
:mod:`fragmenta.reference.tensor_memory.scales` has it::

    elements  torch             scales  torch
    e2m1      float4_e2m1fn_x2  ue4m3   float8_e4m3fn
    e4m3      float8_e4m3fn     ue8m0   float8_e8m0fnu
    e5m2      float8_e5m2       f32     float32, for a row, a column or a matrix
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import Array, as_array
from fragmenta.errors import (
    BadCall,
    MissingPackage,
    ShapeError,
    UnknownOperand,
    UnknownType,
    missing,
    nearest,
    one_of,
)
from fragmenta.reference.quant.quantization import FORMATS, Quantized, element_name
from fragmenta.reference.registers.dtype import DType, dtype
from fragmenta.reference.tensor_memory.scales import scale_blocks, scale_matrix

if TYPE_CHECKING:
    from torch import Tensor

ELEMENTS = {"e2m1": "float4_e2m1fn_x2", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
SCALES = {"ue4m3": "float8_e4m3fn", "ue8m0": "float8_e8m0fnu", "f32": "float32"}
"""What PyTorch calls the types."""


class ScaledMM(NamedTuple):
    """One operand of a scaled product, as PyTorch stores it.

    >>> import numpy as np, fragmenta as fm
    >>> part = fm.quant.to_scaled_mm(fm.quant.quantize("nvfp4", np.ones((3, 64))))
    >>> part.values.shape, part.scales.shape, part.types
    ((3, 32), (512,), ('float4_e2m1fn_x2', 'float8_e4m3fn'))
    """

    values: NDArray[np.uint8]
    """The elements, (…, M, bytes) of A or (…, N, bytes) of B, as raw bytes."""
    scales: Array
    """Block scales, (…, bytes), as raw bytes; or float32."""
    tensor_scale: NDArray[np.float32] | None
    """The second scale of nvfp4; None for other formats."""
    types: tuple[str, str]
    """What PyTorch calls the types of the elements and of the scales."""

    def tensors(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Elements, scales and tensor scale as tensors that share the memory.

        ``scaled_mm`` takes B as ``tensors()[0].t()``.  Needs PyTorch.
        """
        try:
            import torch
        except (ImportError, OSError) as why:  # OSError: a library of it does not load
            raise MissingPackage(
                f"tensors() needs PyTorch: {missing('torch', why)}"
            ) from None

        values, scales = map(torch.from_numpy, (self.values, self.scales))
        of, scale = (getattr(torch, name) for name in self.types)
        factor = self.tensor_scale
        second = None if factor is None else torch.from_numpy(factor)
        return values.view(of), scales.view(scale), second


def to_scaled_mm(q: Quantized) -> ScaledMM:
    """Elements and scales as PyTorch's ``scaled_mm`` takes them.

    The blocks of A lie along its rows, those of B along its columns (``operand="B"`` of
    :func:`quantize`); B is stored by its columns.  Each matrix of a batch is stored for
    itself.

    >>> import numpy as np, fragmenta as fm
    >>> part = to_scaled_mm(fm.quant.quantize("mxfp4", [[1.0, 6.0, 0.0, -0.5]]))
    >>> [f"{byte:08b}" for byte in part.values[0]], part.scales[:2]
    (['01110010', '10010000'], array([127,   0], dtype=uint8))
    """
    if not isinstance(q, Quantized):
        raise BadCall(
            f"to_scaled_mm takes what quantize returns; given {type(q).__name__}"
        )
    of, scale = q.dtype.name, q.scale_dtype.name
    _check_types(q.dtype, q.scale_dtype)
    rows = q.values if q.axis == -1 else q.values.swapaxes(-1, -2)
    bits = q.dtype.encode(np.ascontiguousarray(rows))
    if of == "e2m1":
        if bits.shape[-1] % 2:
            raise ShapeError(
                f"two e2m1 share a byte along k; given {bits.shape[-1]} elements"
            )
        bits = bits[..., 0::2] | bits[..., 1::2] << 4
    return ScaledMM(
        np.ascontiguousarray(bits),
        _to_scales(q),
        q.tensor_scale,
        (ELEMENTS[of], SCALES[scale]),
    )


def from_scaled_mm(
    values: ArrayLike,
    scales: ArrayLike,
    format: str,
    *,
    operand: str = "A",
    tensor_scale: ArrayLike | None = None,
) -> Quantized:
    """A quantised matrix from what PyTorch stores: the inverse of :func:`to_scaled_mm`.

    ``format`` is ``nvfp4``, ``mxfp4``, ``mxfp8_e4m3``, ``mxfp8_e5m2``, ``e4m3`` or
    ``e5m2``.  Tensors of PyTorch and arrays of raw bytes are taken.  Those of B are
    (…, N, bytes): a tensor that was passed as ``x.t()`` is given as ``x``.

    >>> import numpy as np, fragmenta as fm
    >>> B = np.linspace(-9, 9, 256).reshape(128, 2)
    >>> q = fm.quant.quantize("nvfp4", B, operand="B")
    >>> part = to_scaled_mm(q)
    >>> back = from_scaled_mm(*part[:2], "nvfp4", operand="B", tensor_scale=part[2])
    >>> bool((fm.quant.dequantize(back) == fm.quant.dequantize(q)).all())
    True
    """
    of, scale, block = _format(format)
    if not isinstance(operand, str) or operand.upper() not in ("A", "B"):
        raise UnknownOperand(f"operands with scales are A and B; given {operand!r}")
    if tensor_scale is not None and scale.name != "ue4m3":
        raise BadCall(f"{format} has no tensor scale; nvfp4 has one")
    axis = -1 if operand.upper() == "A" else -2
    bits = _bytes(values, "values")
    if of.name == "e2m1":
        bits = np.stack([bits & 15, bits >> 4], -1).reshape(*bits.shape[:-1], -1)
    if bits.ndim < 2 or not bits.size:
        raise ShapeError(f"values are (…, rows, bytes); given {bits.shape}")
    found = of.decode(bits)
    known = _from_scales(scales, scale, bits.shape, block or bits.shape[-1], axis)
    return Quantized(
        values=found if axis == -1 else found.swapaxes(-1, -2),
        scales=known,
        dtype=of,
        scale_dtype=scale,
        block=block or bits.shape[-1],
        axis=axis,
        tensor_scale=None if tensor_scale is None else _numbers(tensor_scale),
        format=format.lower(),
    )


# ── scales ──────────────────────────────────────────────────────────────────


def _to_scales(q: Quantized) -> Array:
    """Block scales in the order of cuBLAS; float32 as it is."""
    count = -(-q.shape[q.axis] // q.block)
    if q.scale_dtype.name == "f32":
        if count > 1:
            raise BadCall(
                "float32 scales of scaled_mm are for a row, a column or a matrix; "
                f"here is one for {q.block} elements"
            )
        return np.ascontiguousarray(q.scales)
    rows = q.scales if q.axis == -1 else q.scales.swapaxes(-1, -2)
    across = q.shape[-3 - q.axis]
    rows = np.broadcast_to(rows[..., :count], (*rows.shape[:-2], across, count))
    blocks = scale_blocks(q.scale_dtype.encode(rows))
    return blocks.reshape(*blocks.shape[:-3], -1)


def _from_scales(
    given: ArrayLike, of: DType, shape: tuple[int, ...], block: int, axis: int
) -> Array:
    """The scales in the shape that Quantized has."""
    if of.name == "f32":
        found = _numbers(given)
        if found.ndim < 2:
            return np.broadcast_to(found, (*shape[:-2], 1, 1))
        return found
    rows, count = shape[-2], -(-shape[-1] // block)
    matrix = of.decode(scale_matrix(_bytes(given, "scales"), rows, count))
    return matrix if axis == -1 else matrix.swapaxes(-1, -2)


# ── what is given ───────────────────────────────────────────────────────────


def _check_types(of: DType, scale: DType) -> None:
    if of.name not in ELEMENTS:
        raise UnknownType(f"scaled_mm takes {one_of(ELEMENTS)}; given {of}")
    if scale.name not in SCALES:
        raise UnknownType(f"scales of scaled_mm are {one_of(SCALES)}; given {scale}")


def _format(name: object) -> tuple[DType, DType, int]:
    """The types of a format, and the elements that share a scale; 0 for all."""
    word = element_name(str(name).lower().removeprefix("torch."))
    blocks = {n: f for n, f in FORMATS.items() if f.dtype.name in ELEMENTS}
    plain = [each for each in ELEMENTS if each != "e2m1"]
    if word in blocks:
        found = blocks[word]
        return found.dtype, found.scale_dtype, found.block
    if word not in plain:
        known = (*blocks, *plain)
        raise UnknownType(
            f"no format {str(name)!r}{nearest(str(name), known)}; scaled_mm takes "
            f"{one_of(known)}"
        )
    return dtype(word), dtype("f32"), 0


def _is_tensor(given: object) -> TypeGuard[Tensor]:
    return type(given).__module__.partition(".")[0] == "torch"


def _bytes(given: Tensor | ArrayLike, name: str) -> NDArray[np.uint8]:
    """Raw bytes: of a tensor of PyTorch, of uint8, or of a type of one byte."""
    if _is_tensor(given):
        import torch

        given = given.detach().cpu().contiguous().view(torch.uint8).numpy()
    array = as_array(given)
    if array.itemsize != 1 or not array.ndim:
        raise ShapeError(
            f"{name} are bytes; given {array.dtype} of shape {array.shape}"
        )
    return np.ascontiguousarray(array).view(np.uint8)


def _numbers(given: Tensor | ArrayLike) -> Array:
    return as_array(given.detach().cpu().numpy() if _is_tensor(given) else given)
