"""Turns stored weights into layers, and layers into stored weights.

    sparse-24-bitmask   values and positions are read and written as they are
    the same, quantised the same with 8-bit values, and their scales
    marlin-24, 4 bits   integers and scales are read and written as they are
    marlin-24, 8 bits   integers x scales, rounded once to the type of the model

None of them goes through the dense matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fragmenta.base.arrays.checks import Array
from fragmenta.errors import (
    BadFile,
    BadMetadata,
    ShapeError,
    UnknownType,
    ValueRangeError,
)
from fragmenta.hopper.kernels.config import Kernel
from fragmenta.hopper.kernels.four_bits import Integers, pack_integers, unpack_integers
from fragmenta.hopper.kernels.packing import Packed, pack, unpack
from fragmenta.hopper.torch.matrix import (
    TYPES,
    SparseMatrix,
    bytes_of,
    listed,
    matrix_of,
    packed_integers,
    tensor_of,
    type_name,
)
from fragmenta.hopper.torch.products import check_sparse
from fragmenta.reference.arithmetic.rounding import largest_element, round_elements
from fragmenta.reference.registers.dtype import dtype as element
from fragmenta.reference.sparse.checkpoint import from_bitmask as positions_from_bitmask
from fragmenta.reference.sparse.checkpoint import to_bitmask as positions_to_bitmask
from fragmenta.reference.sparse.compression import Compressed, compress
from fragmenta.reference.weights.marlin import (
    GROUP,
    Marlin24,
    from_marlin_24,
    to_marlin_24,
)

QUANTIZED = {torch.float8_e4m3fn: "fp8", torch.int8: "int8"}
"""The name of a layer's quantisation, by the type of its weight."""


# ── the bitmask ─────────────────────────────────────────────────────────────


def from_bitmask(values: Tensor, bitmask: Tensor, width: int) -> SparseMatrix:
    """A sparse matrix from stored values and a bit for each column.

    float32 is 1:2 here: of two neighbours, one may be stored that is not zero.

    >>> values = torch.tensor([[1, 2]], dtype=torch.bfloat16)
    >>> mask = torch.tensor([[0b0110]], dtype=torch.uint8)
    >>> from_bitmask(values, mask, 4).to_dense()
    tensor([[0., 1., 2., 0.]], dtype=torch.bfloat16)
    """
    of = type_name(values.dtype, "a stored weight")
    if bitmask.dtype != torch.uint8:
        raise UnknownType(f"a bitmask must be of uint8; given {bitmask.dtype}")
    op = Kernel(of).instruction
    stored, bits = matrix_of(values, of), bytes_of(bitmask)
    try:
        found = positions_from_bitmask(op, stored, bits, width)
    except (BadMetadata, ShapeError):
        if of != "tf32":
            raise
        # 2:4, not 1:2: checked as 2:4, then by its values.
        half = Kernel("bf16").instruction
        pattern = positions_from_bitmask(
            half, np.zeros(stored.shape, "f2"), bits, width
        )
        dense = np.zeros(pattern.shape, stored.dtype)
        np.put_along_axis(dense, pattern.columns(), stored, axis=-1)
        found = compress(op, dense)
    return sparse_matrix(found, of)


def to_bitmask(weight: SparseMatrix) -> dict[str, Tensor]:
    """``compressed``, ``bitmask`` and ``shape`` of a weight, as the format names them.

    >>> from fragmenta.torch import compress
    >>> stored = to_bitmask(compress(torch.tensor([[0, 1, 2, 0]]).bfloat16()))
    >>> stored["compressed"], stored["bitmask"], stored["shape"].flatten()
    (tensor([[1., 2.]], dtype=torch.bfloat16), tensor([[6]], dtype=torch.uint8), \
tensor([1, 4]))
    """
    check_sparse(weight, "the weight")
    if weight.shape[1] % 4:
        raise ShapeError(
            f"sparse-24-bitmask takes multiples of 4 columns; given {weight.shape[1]}"
        )
    packed = Packed(bytes_of(weight.data), weight.element_type, weight.shape)
    found = unpack(packed)
    return {
        "compressed": tensor_of(found.values, weight.dtype),
        "bitmask": torch.from_numpy(positions_to_bitmask(found)),
        "shape": torch.tensor(weight.shape).reshape(-1, 1),
    }


def sparse_matrix(found: Compressed, element_type: str) -> SparseMatrix:
    """Stored values and codes in the order in which the kernels read them.

    >>> import fragmenta as fm
    >>> op = Kernel("f16").instruction
    >>> sparse_matrix(fm.sparse.compress(op, [[0, 1, 2, 0]]), "f16")
    <SparseMatrix 1x4 f16 on cpu, 18432 bytes>
    """
    packed = pack(Kernel(element_type).instruction, found)
    return SparseMatrix(torch.from_numpy(packed.data), element_type, packed.shape)


# ── what is stored for a layer ──────────────────────────────────────────────


class FormatTensors(NamedTuple):
    """The names of the tensors of a layer in a format."""

    needed: tuple[str, ...]
    allowed: tuple[str, ...] = ()


FORMS = {
    "sparse-24-bitmask": FormatTensors(
        ("bitmask", "compressed", "shape"),
        ("weight_scale", "input_scale", "weight_zero_point", "input_zero_point"),
    ),
    "marlin-24": FormatTensors(("meta", "weight_packed", "scale_packed")),
}
"""The forms by format; the first needed name identifies the format."""


class Weight(NamedTuple):
    """The stored weight of a layer."""

    matrix: SparseMatrix
    scale: Tensor | None = None
    """One number for each output; None if the values are not quantised."""
    input_scale: Tensor | None = None


def read_bitmask(parts: Mapping[str, Tensor], wide: torch.dtype | None) -> Weight:
    """The weight of a layer; with ``wide``, 8-bit values become that type.

    >>> from fragmenta.torch import compress
    >>> stored = to_bitmask(compress(torch.tensor([[0, 1, 2, 0]]).bfloat16()))
    >>> read_bitmask(stored, None).matrix
    <SparseMatrix 1x4 bf16 on cpu, 18432 bytes>
    """
    values, mask, shape = parts["compressed"], parts["bitmask"], parts["shape"]
    if values.ndim != 2 or shape.dtype != torch.int64 or shape.numel() != 2:
        raise ShapeError(
            f"compressed must be a matrix, and shape two int64; given shape "
            f"{tuple(values.shape)}, and {shape.numel()} of {shape.dtype}"
        )
    rows, columns = shape.flatten().tolist()
    expected = {"compressed": (rows, columns // 2), "bitmask": (rows, -(-columns // 8))}
    for name, wanted in expected.items():
        if tuple(parts[name].shape) != wanted:
            raise ShapeError(
                f"{name} of a {rows}x{columns} weight must have shape {wanted}; given "
                f"{tuple(parts[name].shape)}"
            )
    scale = _scale(parts, values, rows)
    if scale is None or wide is None:
        matrix = from_bitmask(values, mask, columns)
        static = parts.get("input_scale") if scale is not None else None
        return Weight(matrix, scale, None if static is None else _one(static))
    of = TYPES[values.dtype]
    op = Kernel(of).instruction
    stored = positions_from_bitmask(op, matrix_of(values, of), bytes_of(mask), columns)
    return Weight(dequantized(stored, scale.numpy()[:, None], wide))


def _scale(parts: Mapping[str, Tensor], values: Tensor, rows: int) -> Tensor | None:
    """The scale of each output; refuses scales that do not fit the values."""
    for name in ("weight_zero_point", "input_zero_point"):
        if name in parts and parts[name].float().count_nonzero():
            raise BadFile(f"{name} is not zero: only symmetric quantisation is read")
    given = parts.get("weight_scale")
    if given is None:
        if "input_scale" in parts:
            raise BadFile("an input_scale without a weight_scale has no meaning")
        return None
    if values.dtype not in QUANTIZED:
        raise BadFile(
            f"only weights of {listed(QUANTIZED)} have a weight_scale; given "
            f"{values.dtype} with one"
        )
    # As many scales as outputs may still be scales of blocks, so the shape counts.
    fits = given.numel() == 1 or tuple(given.shape) in ((rows,), (rows, 1))
    if not fits or not given.is_floating_point():
        raise ShapeError(
            f"weight_scale must be one number, or one for each of {rows} outputs, "
            f"{rows}x1; given {given.dtype} of shape {tuple(given.shape)}"
        )
    return _finite(given, "weight_scale").reshape(-1).expand(rows).contiguous()


def _one(scale: Tensor) -> Tensor:
    if scale.numel() != 1 or not scale.is_floating_point():
        raise ShapeError(
            f"input_scale must be one number; given shape {tuple(scale.shape)}"
        )
    return _finite(scale, "input_scale").reshape(()).clone()


def _finite(scale: Tensor, name: str) -> Tensor:
    found = scale.float()
    if not (found.isfinite() & (found > 0)).all() or scale.dtype.itemsize > 4:
        raise BadFile(
            f"{name} must be positive, finite, and at most float32; given "
            f"{scale.dtype} from {scale.min():.4g} to {scale.max():.4g}"
        )
    return found


def read_marlin(
    parts: Mapping[str, Tensor], wide: torch.dtype, b: str = "bf16"
) -> tuple[Weight, int]:
    """The weight of a layer, and the number of groups.

    4-bit integers stay what they are, to be multiplied with 16 bits, or with ``b``;
    8-bit ones become the type of the model.
    """
    found = from_marlin_24(
        *(bytes_of(parts[name]) for name in ("weight_packed", "scale_packed", "meta"))
    )
    if not np.isfinite(found.scales).all():
        raise BadFile("scale_packed must be finite")
    groups = found.scales.shape[1]
    if found.bits == 4:
        _check_half(wide)
        return _four_bits(found, b), groups
    return Weight(dequantized(found.compressed, found.scales, wide)), groups


def _four_bits(found: Marlin24, b: str) -> Weight:
    """4-bit integers with the scales that they have."""
    groups = found.scales.shape[1]
    integers = Integers(b, GROUP if groups > 1 else 0)
    packed = pack_integers(
        found.compressed,
        found.scales if groups > 1 else None,
        b=b,
        group=integers.group,
    )
    matrix = SparseMatrix(torch.from_numpy(packed.data), integers.name, packed.shape)
    if groups > 1:
        return Weight(matrix)
    return Weight(matrix, torch.from_numpy(found.scales[:, 0].astype(np.float32)))


def to_marlin(weight: SparseMatrix, scale: Tensor | None) -> dict[str, Tensor]:
    """The tensors of a weight of 4-bit integers in the format marlin-24.

    ``scale`` is that of each row, if the weight has no groups.

    >>> from fragmenta.torch import linears
    >>> layer = linears(torch.nn.Linear(64, 64), prune=True, quantize="int4", group=0)
    >>> stored = to_marlin(layer.weight, layer.weight_scale)
    >>> {name: tuple(x.shape) for name, x in stored.items()}
    {'weight_packed': (2, 128), 'scale_packed': (1, 64), 'meta': (2, 128)}
    """
    integers = weight.integers
    assert integers is not None
    if integers.group not in (0, GROUP) or integers.scales != "f16":
        raise ShapeError(
            f"marlin-24 has float16 scales for groups of {GROUP} columns, or for rows; "
            f"this weight is {weight.element_type}: save its state_dict"
        )
    found, scales = unpack_integers(
        packed_integers(weight.data, integers, weight.shape)
    )
    if scales is None:
        assert scale is not None
        rows = bytes_of(scale)[:, None]
        scales = rows.astype(np.float16)
        if (scales != rows).any():
            raise ShapeError(
                "marlin-24 has float16 scales, and this layer has others; save its "
                "state_dict"
            )
    made = to_marlin_24(found, scales)
    return {
        name: torch.from_numpy(np.ascontiguousarray(x))
        for name, x in made._asdict().items()
    }


def _check_half(wide: torch.dtype) -> None:
    if wide not in (torch.float16, torch.bfloat16):
        raise UnknownType(
            f"quantised weights with wider activations are for float16 or bfloat16; "
            f"the layer is {wide}: use model.to(torch.bfloat16)"
        )


def dequantized(stored: Compressed, scales: Array, wide: torch.dtype) -> SparseMatrix:
    """Values times their scales, (rows, groups), each rounded once to a 16-bit type.

    >>> import fragmenta as fm
    >>> stored = fm.sparse.compress(Kernel("s8").instruction, [[0, 1, 2, 0]])
    >>> dequantized(stored, np.float32([[0.5]]), torch.float16).to_dense()
    tensor([[0.0000, 0.5000, 1.0000, 0.0000]], dtype=torch.float16)
    """
    of = element(type_name(wide, "the layer"))
    _check_half(wide)
    most = largest_element(of)
    found = np.empty(stored.values.shape, of.storage)
    repeat = stored.values.shape[1] // scales.shape[1]
    for at in range(0, len(found), 256):  # float64 takes much memory
        rows = slice(at, at + 256)
        wider = scales[rows].astype(np.float64).repeat(repeat, axis=1)
        product = stored.values[rows].astype(np.float64) * wider
        if not (np.abs(product) <= most).all():
            raise ValueRangeError(
                f"a value times its scale is {np.abs(product).max():.4g}, and the "
                f"largest {of} is {most:.4g}; use model.to(torch.bfloat16)"
            )
        found[rows] = round_elements(product, of).astype(of.storage)
    codes, granularity = stored.indices, stored.granularity
    return sparse_matrix(Compressed(found, codes, granularity), of.name)
