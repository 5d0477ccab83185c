"""The sparse matrix: packed bytes, element type and shape.

One tensor of bytes has the values and the metadata, in the order in which the
kernels read them (:mod:`fragmenta.hopper.kernels.packing`), and its element type and
shape.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.sparse import SparseSemiStructuredTensor

from fragmenta.base.arrays.checks import Array
from fragmenta.errors import BadCall, BadMetadata, ShapeError, UnknownType, one_of
from fragmenta.hopper.kernels.config import ALIGNMENT, Kernel
from fragmenta.hopper.kernels.four_bits import (
    INTEGERS,
    Integers,
    PackedIntegers,
    numbers_of,
    unpack_integers,
)
from fragmenta.hopper.kernels.packing import (
    BLOCK,
    VALUE_BYTES,
    code_places,
    pack,
    packed_shape,
    places,
)
from fragmenta.hopper.kernels.prepare import MOST_ROWS, compress_on_device
from fragmenta.reference.registers.dtype import dtype as element
from fragmenta.reference.registers.granularity import Granularity
from fragmenta.reference.shared.descriptor import UNIT
from fragmenta.reference.sparse.compression import compress as compress_matrix
from fragmenta.reference.sparse.compression import sparse
from fragmenta.reference.sparse.exchange import from_torch
from fragmenta.reference.sparse.pruning import prune as pruned

TYPES: dict[torch.dtype, str] = {
    torch.float8_e4m3fn: "e4m3",
    torch.float8_e5m2: "e5m2",
    torch.int8: "s8",
    torch.uint8: "u8",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.float32: "tf32",
}
"""The element type that the tensor core reads a tensor as."""
OUTPUTS: dict[torch.dtype, str] = {
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int32: "s32",
}
"""The types that a result can have."""
RESULTS = {name: kind for kind, name in OUTPUTS.items()}
"""The type of a tensor that holds a result."""
DTYPES = {name: kind for kind, name in TYPES.items()}
"""The type of a tensor that holds an element type."""


class SparseMatrix:
    """A 2:4 (tf32: 1:2) matrix in the order in which the kernels read it.

    >>> from fragmenta.torch import compress
    >>> weight = torch.tensor([[0.0, 1.0, 2.0, 0.0]] * 8, dtype=torch.bfloat16)
    >>> compress(weight)
    <SparseMatrix 8x4 bf16 on cpu, 18432 bytes>
    """

    def __init__(self, data: Tensor, a: str, shape: tuple[int, int]) -> None:
        if not torch.compiler.is_compiling():  # then it was checked before
            shape = whole_sizes(shape)
            check_packed(data, a, shape)
        self.data = data
        self.a = a
        self.shape = shape

    @classmethod
    def __torch_function__(cls, *arguments: object, **options: object) -> object:
        """Refuse every function of PyTorch.

        PyTorch's fused layers then take their ordinary path, which calls the layer.
        """
        return NotImplemented

    @property
    def element_type(self) -> str:
        """The type of the elements as the tensor core reads them.

        ``a`` is an older name of the same.

        >>> SparseMatrix(empty_packed("bf16", 2, 4), "bf16", (2, 4)).element_type
        'bf16'
        """
        return self.a

    @property
    def dtype(self) -> torch.dtype:
        """The type of a tensor with these elements."""
        return torch.float32 if self.integers else DTYPES[self.element_type]

    @property
    def integers(self) -> Integers | None:
        """How 4-bit integers are stored; None if the elements are of another type.

        >>> SparseMatrix(empty_packed("s4-64", 2, 8), "s4-64", (2, 8)).integers
        Integers(b='bf16', group=64, scales='f16')
        """
        return Integers.named(self.element_type)

    @property
    def device(self) -> torch.device:
        """The device of the bytes."""
        return self.data.device

    @property
    def granularity(self) -> Granularity:
        """How many elements are stored out of how many: 2:4, or 1:2."""
        return granularity_of(self.element_type)

    def to(self, device: torch.device | str) -> SparseMatrix:
        """The same matrix on another device."""
        return SparseMatrix(self.data.to(device), self.element_type, self.shape)

    def to_dense(self) -> Tensor:
        """The dense matrix, with its zeros.

        4-bit integers are multiplied with the scales of their groups, in float32.

        >>> from fragmenta.torch import compress
        >>> weight = torch.tensor([[0, 1, 2, 0], [3, 0, 0, 4]], dtype=torch.int8)
        >>> compress(weight).to_dense()
        tensor([[0, 1, 2, 0],
                [3, 0, 0, 4]], dtype=torch.int8)
        """
        dense: Tensor = torch.ops.fragmenta.to_dense(
            self.data, self.element_type, *self.shape
        )
        return dense

    def __repr__(self) -> str:
        rows, columns = self.shape
        return (
            f"<SparseMatrix {rows}x{columns} {self.element_type} on {self.device}, "
            f"{self.data.numel()} bytes>"
        )


def type_name(kind: torch.dtype, what: str) -> str:
    """The element type that the tensor core reads a tensor as.

    >>> type_name(torch.float32, "B")
    'tf32'
    """
    if kind not in TYPES:
        raise UnknownType(f"{what} must be of {listed(TYPES)}; given {kind}")
    return TYPES[kind]


def listed(kinds: Iterable[torch.dtype]) -> str:
    """Types, as a message lists them.

    >>> listed([torch.int8, torch.uint8])
    'int8 or uint8'
    """
    return one_of(str(kind).removeprefix("torch.") for kind in kinds)


def check_packed(data: Tensor, element_type: str, shape: tuple[int, int]) -> None:
    """Refuse bytes that do not match the type and shape, which no kernel checks.

    >>> check_packed(torch.zeros(8, dtype=torch.uint8), "bf16", (64, 64))
    Traceback (most recent call last):
    fragmenta.errors.ShapeError: a 64x64 matrix of bf16 must have bytes of shape \
(1, 1, 4, 4608); given torch.uint8 of shape (8,)
    """
    known = element_type in DTYPES or Integers.named(element_type)
    if not isinstance(data, Tensor) or not known:
        raise ShapeError(
            f"a sparse matrix must be a tensor of bytes, with elements of "
            f"{one_of([*DTYPES, *INTEGERS])}; given a {type(data).__name__} of "
            f"{element_type}"
        )
    wanted = bytes_shape(element_type, *shape)
    if data.shape != wanted or data.dtype != torch.uint8:
        raise ShapeError(
            f"a {shape[0]}x{shape[1]} matrix of {element_type} must have bytes of "
            f"shape {wanted}; given {data.dtype} of shape {tuple(data.shape)}"
        )
    if not data.is_contiguous() or data.storage_offset() % ALIGNMENT:
        raise ShapeError(
            f"the bytes of a sparse matrix must be contiguous and begin on a multiple "
            f"of {ALIGNMENT}; given strides {data.stride()} and offset "
            f"{data.storage_offset()}"
        )


def bytes_shape(element_type: str, m: int, k: int) -> tuple[int, int, int, int]:
    """The shape of the packed bytes of an m x k matrix, 4-bit integers included.

    >>> bytes_shape("bf16", 300, 128), bytes_shape("s4-row", 300, 128)
    ((2, 2, 4, 4608), (2, 4, 1, 3072))
    """
    integers = Integers.named(element_type)
    if integers:
        return integers.packed_shape(m, k)
    return packed_shape(element_type, m, k)


def whole_sizes(shape: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns as whole numbers; refuses any others.

    >>> whole_sizes((4, 8.0))
    Traceback (most recent call last):
    fragmenta.errors.ShapeError: rows and columns must be whole numbers of at least 1; \
given (4, 8.0)
    """
    try:
        rows, columns = map(operator.index, shape)
    except (TypeError, ValueError):
        rows, columns = 0, 0
    if rows < 1 or columns < 1:
        raise ShapeError(
            f"rows and columns must be whole numbers of at least 1; given {shape}"
        )
    return rows, columns


def as_packed(data: Tensor, element_type: str, shape: tuple[int, int]) -> Tensor:
    """The bytes of a matrix, checked, with all four axes; a layer keeps only two.

    >>> as_packed(empty_packed("bf16", 2, 4).flatten(1), "bf16", (2, 4)).shape
    torch.Size([1, 1, 4, 4608])
    """
    known = element_type in DTYPES or Integers.named(element_type)
    if known and data.ndim == 2 and data.is_contiguous():
        wanted = bytes_shape(element_type, *shape)
        if data.shape == (wanted[0], math.prod(wanted[1:])):
            data = data.view(wanted)
    check_packed(data, element_type, shape)
    return data


def check_device(x: Tensor, device: torch.device, name: str) -> None:
    """Refuse an operand on another device.

    >>> check_device(torch.ones(1), torch.device("meta"), "A")
    Traceback (most recent call last):
    fragmenta.errors.BadCall: A is on cpu and the others on meta; use A.to("meta")
    """
    if x.device != device:
        raise BadCall(
            f"{name} is on {x.device} and the others on {device}; "
            f'use {name}.to("{device}")'
        )


def empty_packed(
    element_type: str, m: int, k: int, device: torch.device | str | None = None
) -> Tensor:
    """The bytes of a matrix of zeros.

    >>> SparseMatrix(empty_packed("bf16", 2, 4), "bf16", (2, 4)).to_dense()
    tensor([[0., 0., 0., 0.],
            [0., 0., 0., 0.]], dtype=torch.bfloat16)
    """
    shape = bytes_shape(element_type, m, k)
    if integers := Integers.named(element_type):
        block = torch.from_numpy(integers.empty_block()).to(device)
        return block.expand(shape).clone(memory_format=torch.contiguous_format)
    data = torch.zeros(shape, dtype=torch.uint8, device=device)
    data[..., VALUE_BYTES:] = granularity_of(element_type).empty * 0x11
    return data


# ── packing and unpacking ───────────────────────────────────────────────────


def granularity_of(element_type: str) -> Granularity:
    """The granularity of a sparse matrix of this type.

    >>> print(granularity_of("tf32"))
    1:2
    """
    stored = "s4" if Integers.named(element_type) else element_type
    return sparse(Kernel(stored).instruction)[1]


def packed_of(weight: Tensor, element_type: str, prune: bool) -> Tensor:
    """The packed bytes of a weight, on its device.

    >>> packed_of(torch.ones(4, 8, dtype=torch.int8), "s8", True).shape
    torch.Size([1, 1, 4, 5120])
    """
    if weight.is_cuda and prune and weight.shape[0] <= MOST_ROWS:
        found: Tensor = compress_on_device(
            rows_aligned(weight.resolve_neg()), element_type
        )
        return found
    op = Kernel(element_type).instruction
    matrix = matrix_of(weight, element_type)
    if prune:
        matrix = pruned(op, matrix, pad=True)[:, : weight.shape[1]]
    packed = pack(op, compress_matrix(op, matrix, pad=True))
    return torch.from_numpy(packed.data).to(weight.device)


def is_semi_structured(weight: object) -> TypeGuard[SparseSemiStructuredTensor]:
    """Whether it is PyTorch's own 2:4 tensor, of either backend.

    >>> is_semi_structured(torch.ones(2, 4))
    False
    """
    return isinstance(weight, SparseSemiStructuredTensor)


def packed_of_pytorch(weight: SparseSemiStructuredTensor, element_type: str) -> Tensor:
    """The packed bytes of a ``SparseSemiStructuredTensor``, on its device.

    The values and codes of the CUTLASS backend are taken as they are.  What cuSPARSELt
    stores is not documented, so that PyTorch makes it dense first, on the GPU.
    """
    values, codes = weight.packed, weight.meta
    if values is None:
        raise BadCall(
            "this SparseSemiStructuredTensor has only the transposed weight; give "
            "the weight itself"
        )
    plain = type(weight) is torch.sparse.SparseSemiStructuredTensorCUTLASS
    if not plain or codes is None or codes.ndim != 2:
        with torch.no_grad():
            return packed_of(weight.to_dense(), element_type, prune=False)
    op = Kernel(element_type).instruction
    stored = from_torch(op, matrix_of(values, element_type), bytes_of(codes))
    packed = pack(op, stored)
    return torch.from_numpy(packed.data).to(weight.device)


def dense_of(data: Tensor, element_type: str, m: int, k: int) -> Tensor:
    """The dense matrix of packed bytes, on their device.

    >>> dense_of(empty_packed("s8", 1, 4), "s8", 1, 4)
    tensor([[0, 0, 0, 0]], dtype=torch.int8)
    """
    if integers := Integers.named(element_type):
        return _dense_integers(data, integers, m, k)
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[
        DTYPES[element_type].itemsize
    ]
    values = _by_rows(data, 0, UNIT * places(element_type), UNIT).view(kind)
    pairs = codes_of(data, element_type).long()
    codes = torch.stack((pairs & 15, pairs >> 4), dim=-1).flatten(1)
    granularity = granularity_of(element_type)
    first = granularity.chunk * torch.arange(codes.shape[1], device=data.device)
    dense = values.new_zeros((len(values), granularity.chunk * codes.shape[1]))
    columns = first[:, None] + _columns(codes, granularity)
    dense.scatter_(1, columns.flatten(1), values)
    return dense[:m, :k].contiguous().view(DTYPES[element_type])


def check_multiplied(
    integers: Integers, kind: torch.dtype, a: str = "the weight", b: str = "x"
) -> None:
    """Refuse a type that these 4-bit integers are not multiplied with.

    >>> check_multiplied(Integers("e4m3"), torch.bfloat16)
    Traceback (most recent call last):
    fragmenta.errors.BadCall: the weight has 4-bit integers that are multiplied with \
float8_e4m3fn, and x is torch.bfloat16; use x.to(torch.float8_e4m3fn)
    """
    if TYPES.get(kind) not in integers.takes:
        kinds = [DTYPES[name] for name in integers.takes]
        raise BadCall(
            f"{a} has 4-bit integers that are multiplied with {listed(kinds)}, and {b} "
            f"is {kind}; use {b}.to({kinds[0]})"
        )


def packed_integers(
    data: Tensor, integers: Integers, shape: tuple[int, int]
) -> PackedIntegers:
    """The bytes of a matrix of 4-bit integers as an array, with what they are.

    >>> packed_integers(empty_packed("s4-128", 2, 8), Integers(), (2, 8))
    <PackedIntegers 2x8 s4 for bf16, f16 by 128, 12800 bytes>
    """
    return PackedIntegers(bytes_of(data), "s4", shape, *integers)


def _dense_integers(data: Tensor, integers: Integers, m: int, k: int) -> Tensor:
    """Integers x scales as a dense matrix of float32."""
    found, scales = unpack_integers(packed_integers(data, integers, (m, k)))
    values = numbers_of(
        found, np.ones((m, 1)) if scales is None else scales, integers.group
    )
    dense = np.zeros((m, -(-k // 4) * 4), np.float32)
    np.put_along_axis(dense, found.columns(), values, axis=1)
    return torch.from_numpy(np.ascontiguousarray(dense[:, :k])).to(data.device)


def codes_of(data: Tensor, element_type: str) -> Tensor:
    """The codes of packed bytes, row by row, two in each uint8.

    >>> codes_of(empty_packed("bf16", 2, 4), "bf16")[0, :2]
    tensor([238, 238], dtype=torch.uint8)
    """
    size = (data.shape[-1] - VALUE_BYTES) // len(places(element_type))
    return _by_rows(data, VALUE_BYTES, code_places(element_type), size)


def column_table(granularity: Granularity, device: torch.device) -> Tensor:
    """The columns that each of the 16 codes names; -1 for a code that is illegal.

    >>> column_table(Granularity(2, 4), torch.device("cpu"))[9]
    tensor([1, 2])
    """
    table = np.full((16, granularity.kept), -1)
    for code in granularity.codes():
        table[code] = granularity.positions(code)
    return torch.from_numpy(table).to(device)


def _columns(codes: Tensor, granularity: Granularity) -> Tensor:
    """The column of every stored value within its chunk."""
    found = column_table(granularity, codes.device)[codes]
    if wrong := int((found[..., 0] < 0).sum()):
        raise BadMetadata(f"{wrong} of {codes.numel()} chunks have illegal codes")
    return found


def _by_rows(data: Tensor, start: int, where: NDArray[np.int64], size: int) -> Tensor:
    """The bytes of every unit, row by row.

    A unit has ``size`` bytes; ``where`` are their places in a block, after ``start``.
    """
    index = torch.from_numpy(start + where[:, None] + np.arange(size))
    found = data[..., index.flatten().to(data.device)]
    tall, slabs, blocks, _ = found.shape
    rows = found.reshape(tall, slabs, blocks, BLOCK, -1).permute(0, 2, 3, 1, 4)
    return rows.reshape(tall * blocks * BLOCK, -1)


def rows_aligned(x: Tensor) -> Tensor:
    """The matrix itself, or a copy whose rows begin on multiples of 16 bytes.

    >>> rows_aligned(torch.ones(2, 3, dtype=torch.int8)).stride()
    (16, 1)
    """
    if is_aligned(x):
        return x
    rows, columns = x.shape
    per = ALIGNMENT // x.element_size()
    padded = x.new_zeros((rows, -(-columns // per) * per))
    padded[:, :columns] = x
    return padded[:, :columns]


def is_aligned(x: Tensor) -> bool:
    """Whether the copy engine can read the rows of a matrix.

    >>> is_aligned(torch.ones(2, 16, dtype=torch.int8))
    True
    """
    pitch, columns = x.stride(0), x.shape[1]
    contiguous = columns == 1 or x.stride(1) == 1
    aligned = pitch * x.element_size() % ALIGNMENT == x.data_ptr() % ALIGNMENT == 0
    return bool(contiguous and aligned and pitch >= columns)


# ── tensors and arrays ──────────────────────────────────────────────────────


def bytes_of(x: Tensor) -> Array:
    """A tensor of bytes, or of integers, as an array.

    >>> bytes_of(torch.tensor([1, 2], dtype=torch.uint8))
    array([1, 2], dtype=uint8)
    """
    found: Array = x.detach().cpu().contiguous().numpy()
    return found


def matrix_of(x: Tensor, name: str) -> Array:
    """A tensor as an array of the element type.

    >>> matrix_of(torch.ones(1, 2, dtype=torch.bfloat16), "bf16")
    array([[1, 1]], dtype=bfloat16)
    """
    plain = x.detach().cpu().resolve_neg().contiguous()
    raw: Array = plain.view(torch.uint8).numpy()
    return raw.view(element(name).storage).reshape(x.shape)


def tensor_of(array: Array, kind: torch.dtype) -> Tensor:
    """An array as a tensor; NumPy itself may not have the type.

    >>> tensor_of(np.array([[1.0]], np.float32), torch.float32)
    tensor([[1.]])
    """
    raw = np.ascontiguousarray(array)
    flat = torch.from_numpy(raw.reshape(-1).view(np.uint8)).view(kind)
    return flat.reshape(raw.shape)


torch.serialization.add_safe_globals([SparseMatrix])
