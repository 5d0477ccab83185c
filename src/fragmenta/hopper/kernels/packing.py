"""Stores a sparse A in memory such that one copy brings a tile.

The part of A that a tile needs in a slab is one run of bytes, as shared memory needs
it.  For each 64 rows there are the stored values, 64 bytes a row and already
swizzled, and then the metadata words of the 128 lanes that multiply them.  So one
bulk copy brings the values and the metadata of a tile of 64, 128 or 256 rows::

    packed[256 rows][slab][64 rows][values, metadata]

The descriptor says where a value goes, and the metadata fragment where a code goes.
Neither swizzles nor layouts are written again here.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import Array
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import ShapeError
from fragmenta.hopper.kernels.config import PACKED_M, Kernel, Tile
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.shared.descriptor import UNIT, Descriptor
from fragmenta.reference.sparse.compression import Compressed, check_compressed, sparse

PackedBytes = NDArray[np.uint8]

BLOCK = 64
"""Rows of an m64 block."""
_ROW = 64  # stored bytes of a row in a slab
_LANES = 128
_UNITS = 256  # 16-byte units of stored values in a block
VALUE_BYTES = BLOCK * _ROW
"""Bytes of a packed block before its metadata."""


@dataclass(frozen=True, eq=False, repr=False)
class Packed:
    """The packed bytes of a sparse A, with its element type and shape.

    >>> import numpy as np, fragmenta as fm
    >>> from fragmenta.kernels import pack
    >>> op = fm.wgmma("m64n8k64", a="e4m3", d="f32", sp="sp")
    >>> pack(op, fm.sparse.compress(op, np.zeros((100, 200))))
    <Packed 100x200 e4m3, 40960 bytes>
    """

    data: PackedBytes
    """Axes: groups of 256 rows, slabs, m64 blocks, bytes of a block."""
    a: str
    """The older name of :attr:`element_type`."""
    shape: tuple[int, int]

    @property
    def element_type(self) -> str:
        """The type of the elements."""
        return self.a

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"<Packed {rows}x{columns} {self.element_type}, {self.data.size} bytes>"


def packed_shape(element_type: str, m: int, k: int) -> tuple[int, int, int, int]:
    """The shape of the packed bytes of an m x k matrix.

    >>> packed_shape("bf16", 300, 128)
    (2, 2, 4, 4608)
    """
    slab_k, size = _slab(element_type)
    return -(-m // PACKED_M), -(-k // slab_k), PACKED_M // BLOCK, size


@lru_cache(maxsize=16)
def _slab(element_type: str) -> tuple[int, int]:
    """Elements of k in a slab, and bytes of 64 rows in a slab."""
    kernel = _any_kernel(element_type)
    return kernel.slab_k, kernel.block_bytes


def pack(op: Instruction | str, sp: Compressed) -> Packed:
    """A compressed matrix in the order in which the kernels read it.

    Zeros fill the rows up to a multiple of 256 and the columns up to whole slabs.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.wgmma("m64n8k32", a="bf16", d="f32", sp="sp")
    >>> A = fm.sparse.prune(op, np.random.default_rng(0).normal(size=(64, 96)))
    >>> sp = fm.sparse.compress(op, A.astype("bfloat16"))
    >>> bool((unpack(pack(op, sp)).values == sp.values).all())
    True
    """
    op, granularity = sparse(op)
    check_compressed(sp, op)
    of = op.types["a"]
    if sp.values.ndim != 2 or not sp.values.size:
        raise ShapeError(
            f"pack takes one matrix that is not empty; given values of shape "
            f"{sp.values.shape}"
        )
    m, k = sp.shape
    tall, slabs, blocks, size = packed_shape(of.name, m, k)
    rows, wide = tall * PACKED_M, slabs * _ROW
    bits = of.encode(sp.values)
    values = np.zeros((rows, wide // bits.itemsize), bits.dtype)
    values[:m, : bits.shape[1]] = bits
    codes = np.full((rows, values.shape[1] // granularity.kept), granularity.empty)
    codes[:m, : sp.indices.shape[1]] = sp.indices
    data = np.empty((tall, slabs, blocks, size), np.uint8)
    units = values.view(np.uint8).reshape(tall, blocks, BLOCK, slabs, -1, UNIT)
    units = units.transpose(0, 3, 1, 2, 4, 5).reshape(tall, slabs, blocks, -1, UNIT)
    data[..., :VALUE_BYTES].reshape(units.shape)[..., places(of.name), :] = units
    words = metadata_words(codes.astype(np.uint8), op, _any_kernel(of.name).words)
    words = words.reshape(tall, blocks, slabs, -1)
    data[..., VALUE_BYTES:] = words.swapaxes(1, 2).view(np.uint8)
    return Packed(data, of.name, (m, k))


def unpack(packed: Packed) -> Compressed:
    """The compressed matrix of packed bytes: the inverse of :func:`pack`.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.wgmma("m64n8k16", a="tf32", d="f32", sp="sp")
    >>> sp = fm.sparse.compress(op, np.eye(5, 32, dtype=np.float32))
    >>> bool((unpack(pack(op, sp)).indices == sp.indices).all())
    True
    """
    kernel = _any_kernel(packed.element_type)
    op, granularity = sparse(kernel.instruction)
    of = op.types["a"]
    m, k = packed.shape
    tall, slabs, blocks, _ = packed.data.shape
    units = packed.data[..., :VALUE_BYTES].reshape(tall, slabs, blocks, -1, UNIT)
    units = units[..., places(packed.element_type), :]
    units = units.reshape(tall, slabs, blocks, BLOCK, -1, UNIT)
    raw = units.transpose(0, 2, 3, 1, 4, 5).reshape(tall * PACKED_M, -1)
    values = np.ascontiguousarray(raw).view(of.bits_dtype)
    codes = codes_of(packed.data[..., VALUE_BYTES:], op, kernel.words)
    chunks = -(-k // granularity.chunk)
    return Compressed(
        of.decode(values[:m, : chunks * granularity.kept]),
        codes[:m, :chunks],
        granularity,
        k,
    )


@lru_cache(maxsize=8)
def places(element_type: str) -> NDArray[np.int64]:
    """Where each 16-byte unit of the rows goes in a block, in units.

    >>> places("e4m3")[:12]
    array([ 0,  1,  2,  3,  4,  5,  6,  7,  9,  8, 11, 10])
    """
    of = _any_kernel(element_type).instruction.types["a"]
    columns = _ROW * 8 // of.bits
    tile = Descriptor.for_tile(BLOCK, columns, of, swizzle=_ROW)
    step = UNIT * 8 // of.bits
    rows, first = np.ogrid[:BLOCK, :columns:step]
    address = tile.address(rows, first, of)
    found: NDArray[np.int64] = (address // UNIT).ravel()
    found.setflags(write=False)
    return found


@lru_cache(maxsize=16)
def code_places(element_type: str) -> NDArray[np.int64]:
    """The byte of a block's metadata where the codes of each unit begin.

    For each bit of a unit's number a block is packed in which the units with that
    bit set have another code.  The bytes that differ show the bits, and so the number,
    of the unit that owns each byte.

    >>> code_places("e4m3")[:5], code_places("bf16")[:5]
    (array([ 0, 16,  4, 20, 32]), array([ 0,  4,  8, 12, 16]))
    """
    op, granularity = sparse(_any_kernel(element_type).instruction)
    stored = 16 * 8 // op.types["a"].bits  # stored values of a unit
    chunks = stored // granularity.kept
    numbers = np.arange(_UNITS).reshape(64, 4)
    plain, other = granularity.codes()[0], granularity.codes()[-1]
    owner = None
    for bit in range(8):
        marked = np.where(numbers >> bit & 1, other, plain).repeat(chunks, axis=1)
        values = np.zeros((64, 4 * stored), op.types["a"].storage)
        sp = Compressed(values, marked.astype(np.uint8), granularity)
        bytes_ = pack(op, sp).data[0, 0, 0, VALUE_BYTES:]
        part = (bytes_ == other * 17).astype(np.int64) << bit
        owner = part if owner is None else owner | part
    assert owner is not None
    _, first = np.unique(owner, return_index=True)
    return first


@lru_cache(maxsize=16)
def places_macro(element_type: str) -> str:
    """The table of ``places.cuh``: for each unit, where its values and codes go.

    >>> places_macro("e4m3")[:22]
    '{0, 0}, {1, 16}, {2, 4'
    """
    where = zip(
        places(element_type).tolist(), code_places(element_type).tolist(), strict=True
    )
    return ", ".join(f"{{{unit}, {byte}}}" for unit, byte in where)


def metadata_words(
    codes: NDArray[np.uint8], op: Instruction, per: int
) -> NDArray[np.uint32]:
    """Words of metadata, ``per`` of a lane: (m64 blocks, slabs, lanes, words)."""
    words = op.metadata.pack_tiles(codes, shared=True)[..., 0]
    parted = words.reshape(len(words), -1, per, _LANES)
    return np.ascontiguousarray(parted.swapaxes(-1, -2))


def codes_of(data: PackedBytes, op: Instruction, per: int) -> NDArray[np.uint8]:
    """Codes of all rows from the metadata of packed blocks."""
    tall, slabs, blocks, _ = data.shape
    words = np.ascontiguousarray(data.swapaxes(1, 2)).view(np.uint32)
    words = words.reshape(tall * blocks, slabs, _LANES, per).swapaxes(-1, -2)
    words = np.ascontiguousarray(words).reshape(tall * blocks, -1, _LANES, 1)
    codes: Array = op.metadata.unpack_tiles(words, shared=True)
    return codes


@lru_cache(maxsize=16)
def _any_kernel(element_type: str) -> Kernel:
    """A kernel of this type; all of them have the same order in memory."""
    return Kernel(element_type, tile=Tile(64, 8))
