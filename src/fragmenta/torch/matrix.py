"""What is a sparse matrix here?

One tensor of bytes, the values and the metadata in the order the kernels read
(:mod:`fragmenta.kernels.packing`), with the type and the shape they stand for.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fragmenta.errors import BadMetadata, Error, ShapeError, one_of
from fragmenta.kernels.config import ALIGNMENT, Kernel
from fragmenta.kernels.packing import BLOCK, VALUE_BYTES, pack, packed_shape, places
from fragmenta.kernels.prepare import MOST_ROWS, code_places, compress_on_device
from fragmenta.registers.dtype import dtype as element
from fragmenta.registers.granularity import Granularity
from fragmenta.shared.descriptor import UNIT
from fragmenta.sparse.compress import compress as compress_matrix
from fragmenta.sparse.compress import sparse
from fragmenta.sparse.prune import prune as pruned

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
"""The types that a result may have."""
DTYPES = {name: kind for kind, name in TYPES.items()}
"""The tensors that hold an element type."""


class SparseMatrix:
    """A 2:4 (tf32: 1:2) matrix in the order the kernels read.

    >>> from fragmenta.torch import compress
    >>> weight = torch.tensor([[0.0, 1.0, 2.0, 0.0]] * 8, dtype=torch.bfloat16)
    >>> compress(weight)
    <SparseMatrix 8x4 bf16 on cpu, 18432 bytes>
    """

    def __init__(self, data: Tensor, a: str, shape: tuple[int, int]) -> None:
        if not torch.compiler.is_compiling():  # which has seen the shape before
            shape = whole_sizes(shape)
            check_packed(data, a, shape)
        self.data = data
        self.a = a
        self.shape = shape

    @classmethod
    def __torch_function__(cls, *arguments: Any, **options: Any) -> Any:
        """No function of PyTorch takes it: fused layers leave their short cuts."""
        return NotImplemented

    @property
    def dtype(self) -> torch.dtype:
        """The type of the elements."""
        return DTYPES[self.a]

    @property
    def device(self) -> torch.device:
        """Where the bytes are."""
        return self.data.device

    @property
    def granularity(self) -> Granularity:
        """How many elements of how many are stored: 2:4, or 1:2."""
        return granularity_of(self.a)

    def to(self, device: torch.device | str) -> SparseMatrix:
        """The same matrix on another device."""
        return SparseMatrix(self.data.to(device), self.a, self.shape)

    def to_dense(self) -> Tensor:
        """The matrix with its zeros again.

        >>> from fragmenta.torch import compress
        >>> weight = torch.tensor([[0, 1, 2, 0], [3, 0, 0, 4]], dtype=torch.int8)
        >>> compress(weight).to_dense()
        tensor([[0, 1, 2, 0],
                [3, 0, 0, 4]], dtype=torch.int8)
        """
        dense: Tensor = torch.ops.fragmenta.to_dense(self.data, self.a, *self.shape)
        return dense

    def __repr__(self) -> str:
        rows, columns = self.shape
        return (
            f"<SparseMatrix {rows}x{columns} {self.a} on {self.device}, "
            f"{self.data.numel()} bytes>"
        )


def type_name(kind: torch.dtype, what: str) -> str:
    """The element type that the tensor core reads a tensor as.

    >>> type_name(torch.float32, "B")
    'tf32'
    """
    if kind not in TYPES:
        raise Error(f"{what} is of {listed(TYPES)}; given {kind}")
    return TYPES[kind]


def listed(kinds: Iterable[torch.dtype]) -> str:
    """Types for a message.

    >>> listed([torch.int8, torch.uint8])
    'int8 or uint8'
    """
    return one_of(str(kind).removeprefix("torch.") for kind in kinds)


def check_packed(data: Tensor, a: str, shape: tuple[int, int]) -> None:
    """Refuse bytes that are not those of such a matrix: a kernel trusts them.

    >>> check_packed(torch.zeros(8, dtype=torch.uint8), "bf16", (64, 64))
    Traceback (most recent call last):
    fragmenta.errors.ShapeError: 64x64 of bf16 are bytes of shape (1, 1, 4, 4608); \
given torch.uint8 of shape (8,)
    """
    if not isinstance(data, Tensor) or a not in DTYPES:
        raise ShapeError(
            f"a sparse matrix is a tensor of bytes and of {one_of(DTYPES)}; given a "
            f"{type(data).__name__} of {a}"
        )
    wanted = packed_shape(a, *shape)
    if data.shape != wanted or data.dtype != torch.uint8:
        raise ShapeError(
            f"{shape[0]}x{shape[1]} of {a} are bytes of shape {wanted}; given "
            f"{data.dtype} of shape {tuple(data.shape)}"
        )
    if not data.is_contiguous() or data.storage_offset() % ALIGNMENT:
        raise ShapeError(
            f"the bytes of a sparse matrix follow one another, from a multiple of "
            f"{ALIGNMENT} on; given strides {data.stride()}"
        )


def whole_sizes(shape: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns, which must be numbers that a matrix can have.

    >>> whole_sizes((4, 8.0))
    Traceback (most recent call last):
    fragmenta.errors.ShapeError: a matrix has rows and columns; given (4, 8.0)
    """
    try:
        rows, columns = map(operator.index, shape)
    except (TypeError, ValueError):
        rows, columns = 0, 0
    if rows < 1 or columns < 1:
        raise ShapeError(f"a matrix has rows and columns; given {shape}")
    return rows, columns


def as_packed(data: Tensor, a: str, shape: tuple[int, int]) -> Tensor:
    """The bytes of such a matrix with all their axes; a layer keeps only two.

    >>> as_packed(empty_packed("bf16", 2, 4).flatten(1), "bf16", (2, 4)).shape
    torch.Size([1, 1, 4, 4608])
    """
    if a in DTYPES and data.ndim == 2 and data.is_contiguous():
        wanted = packed_shape(a, *shape)
        if data.shape == (wanted[0], math.prod(wanted[1:])):
            data = data.view(wanted)
    check_packed(data, a, shape)
    return data


def check_device(x: Tensor, device: torch.device, name: str) -> None:
    """Refuse an operand that is elsewhere.

    >>> check_device(torch.ones(1), torch.device("meta"), "A")
    Traceback (most recent call last):
    fragmenta.errors.Error: A is on cpu, the others on meta: move one
    """
    if x.device != device:
        raise Error(f"{name} is on {x.device}, the others on {device}: move one")


def empty_packed(
    a: str, m: int, k: int, device: torch.device | str | None = None
) -> Tensor:
    """The bytes of a matrix of zeros.

    >>> SparseMatrix(empty_packed("bf16", 2, 4), "bf16", (2, 4)).to_dense()
    tensor([[0., 0., 0., 0.],
            [0., 0., 0., 0.]], dtype=torch.bfloat16)
    """
    data = torch.zeros(packed_shape(a, m, k), dtype=torch.uint8, device=device)
    data[..., VALUE_BYTES:] = granularity_of(a).empty * 0x11
    return data


# ── packing and unpacking ───────────────────────────────────────────────────


def granularity_of(a: str) -> Granularity:
    """How many elements of how many a sparse matrix of this type stores.

    >>> print(granularity_of("tf32"))
    1:2
    """
    return sparse(Kernel(a).instruction)[1]


def packed_of(weight: Tensor, a: str, prune: bool) -> Tensor:
    """The bytes of a weight, where it is.

    >>> packed_of(torch.ones(4, 8, dtype=torch.int8), "s8", True).shape
    torch.Size([1, 1, 4, 5120])
    """
    if weight.is_cuda and prune and weight.shape[0] <= MOST_ROWS:
        found: Tensor = compress_on_device(rows_aligned(weight.resolve_neg()), a)
        return found
    op = Kernel(a).instruction
    matrix = matrix_of(weight, a)
    if prune:
        matrix = pruned(matrix, op, pad=True)[:, : weight.shape[1]]
    packed = pack(compress_matrix(matrix, op, pad=True), op)
    return torch.from_numpy(packed.data).to(weight.device)


def dense_of(data: Tensor, a: str, m: int, k: int) -> Tensor:
    """The matrix that packed bytes stand for, where they are.

    >>> dense_of(empty_packed("s8", 1, 4), "s8", 1, 4)
    tensor([[0, 0, 0, 0]], dtype=torch.int8)
    """
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[DTYPES[a].itemsize]
    values = _by_rows(data, 0, UNIT * places(a), UNIT).view(kind)
    size = (data.shape[-1] - VALUE_BYTES) // len(places(a))
    pairs = _by_rows(data, VALUE_BYTES, code_places(a), size).long()
    codes = torch.stack((pairs & 15, pairs >> 4), dim=-1).flatten(1)
    granularity = granularity_of(a)
    first = granularity.chunk * torch.arange(codes.shape[1], device=data.device)
    dense = values.new_zeros((len(values), granularity.chunk * codes.shape[1]))
    columns = first[:, None] + _columns(codes, granularity)
    dense.scatter_(1, columns.flatten(1), values)
    return dense[:m, :k].contiguous().view(DTYPES[a])


def _columns(codes: Tensor, granularity: Granularity) -> Tensor:
    """The column in its chunk of every stored value."""
    table = torch.full((16, granularity.kept), -1, device=codes.device)
    for code in granularity.codes():
        table[code] = torch.tensor(granularity.positions(code), device=codes.device)
    found = table[codes]
    if wrong := int((found[..., 0] < 0).sum()):
        raise BadMetadata(f"{wrong} of {codes.numel()} chunks have illegal codes")
    return found


def _by_rows(data: Tensor, start: int, where: NDArray[np.int64], size: int) -> Tensor:
    """The ``size`` bytes of each unit of all rows; ``where`` a block has them."""
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
    """Whether the rows of a matrix begin where the copy engine can read.

    >>> is_aligned(torch.ones(2, 16, dtype=torch.int8))
    True
    """
    apart, columns = x.stride(0), x.shape[1]
    along = columns == 1 or x.stride(1) == 1
    alike = apart * x.element_size() % ALIGNMENT == x.data_ptr() % ALIGNMENT == 0
    return bool(along and alike and apart >= columns)


# ── tensors and arrays ──────────────────────────────────────────────────────


def bytes_of(x: Tensor) -> NDArray[np.uint8]:
    """A tensor of bytes as an array.

    >>> bytes_of(torch.tensor([1, 2], dtype=torch.uint8))
    array([1, 2], dtype=uint8)
    """
    found: NDArray[np.uint8] = x.detach().cpu().contiguous().numpy()
    return found


def matrix_of(x: Tensor, name: str) -> NDArray[Any]:
    """A tensor as an array of the element type.

    >>> matrix_of(torch.ones(1, 2, dtype=torch.bfloat16), "bf16")
    array([[1, 1]], dtype=bfloat16)
    """
    plain = x.detach().cpu().resolve_neg().contiguous()
    raw: NDArray[Any] = plain.view(torch.uint8).numpy()
    return raw.view(element(name).storage).reshape(x.shape)


def tensor_of(array: NDArray[Any], kind: torch.dtype) -> Tensor:
    """An array as a tensor of a type that NumPy may not know.

    >>> tensor_of(np.array([[1.0]], np.float32), torch.float32)
    tensor([[1.]])
    """
    raw = np.ascontiguousarray(array)
    flat = torch.from_numpy(raw.reshape(-1).view(np.uint8)).view(kind)
    return flat.reshape(raw.shape)


torch.serialization.add_safe_globals([SparseMatrix])
