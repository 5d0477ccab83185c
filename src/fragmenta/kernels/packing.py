"""How does a sparse A lie in memory, so that one copy brings a tile?

A tile's part of A in a slab is one run of bytes, ready for shared memory: of
each 64 rows the stored values, 64 bytes a row and already swizzled, then the
metadata words of the 128 lanes that multiply them.  So the values and the
metadata of 64, 128 or 256 rows arrive by one bulk copy, whatever the tile::

    packed[256 rows][slab][64 rows][values, metadata]

Where a value or a code goes is asked of the descriptor and of the metadata
fragment; nothing here knows a swizzle or a lane.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import ShapeError
from fragmenta.isa.instruction import Instruction
from fragmenta.kernels.config import PACKED_M, Kernel, Tile
from fragmenta.shared.descriptor import UNIT, Descriptor
from fragmenta.sparse.compress import Compressed, check_compressed, sparse

Bytes = NDArray[np.uint8]

BLOCK = 64
"""Rows of an m64 block."""
_ROW = 64  # stored bytes of a row in a slab
_LANES = 128
VALUE_BYTES = BLOCK * _ROW
"""Bytes of a packed block before its metadata."""


@dataclass(frozen=True, eq=False, repr=False)
class Packed:
    """The bytes of a sparse A, and what they mean.

    >>> import numpy as np, fragmenta as fm
    >>> from fragmenta.kernels import pack
    >>> op = fm.wgmma("m64n8k64", a="e4m3", d="f32", sp="sp")
    >>> pack(fm.compress(np.zeros((100, 200)), op), op)
    <Packed 100x200 e4m3, 40960 bytes>
    """

    data: Bytes
    """(256s of rows, slabs, m64 blocks, bytes of a block)."""
    a: str
    """An older name of :attr:`element_type`."""
    shape: tuple[int, int]

    @property
    def element_type(self) -> str:
        """The type of the elements."""
        return self.a

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"<Packed {rows}x{columns} {self.element_type}, {self.data.size} bytes>"


def packed_shape(element_type: str, m: int, k: int) -> tuple[int, int, int, int]:
    """The shape of the bytes of an m x k matrix.

    >>> packed_shape("bf16", 300, 128)
    (2, 2, 4, 4608)
    """
    slab_k, size = _slab(element_type)
    return -(-m // PACKED_M), -(-k // slab_k), PACKED_M // BLOCK, size


@lru_cache(maxsize=16)
def _slab(element_type: str) -> tuple[int, int]:
    """Elements of k in a slab, and bytes of 64 rows of it."""
    kernel = _any_kernel(element_type)
    return kernel.slab_k, kernel.block_bytes


def pack(sp: Compressed, op: Instruction | str) -> Packed:
    """A compressed matrix in the order the kernels read.

    Rows are filled with zeros to a multiple of 256, columns to whole slabs.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.wgmma("m64n8k32", a="bf16", d="f32", sp="sp")
    >>> A = fm.prune(np.random.default_rng(0).normal(size=(64, 96)), op)
    >>> sp = fm.compress(A.astype("bfloat16"), op)
    >>> bool((unpack(pack(sp, op)).values == sp.values).all())
    True
    """
    op, granularity = sparse(op)
    check_compressed(sp, op)
    of = op.types["a"]
    if sp.values.ndim != 2 or not sp.values.size:
        raise ShapeError(f"one matrix is packed at a time; given {sp.values.shape}")
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
    words = _words(codes.astype(np.uint8), op).reshape(tall, blocks, slabs, -1)
    data[..., VALUE_BYTES:] = words.swapaxes(1, 2).view(np.uint8)
    return Packed(data, of.name, (m, k))


def unpack(packed: Packed) -> Compressed:
    """The compressed matrix again: undoes :func:`pack`.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.wgmma("m64n8k16", a="tf32", d="f32", sp="sp")
    >>> sp = fm.compress(np.eye(5, 32, dtype=np.float32), op)
    >>> bool((unpack(pack(sp, op)).indices == sp.indices).all())
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
    codes = _codes(packed.data[..., VALUE_BYTES:], op, kernel.words)
    chunks = -(-k // granularity.chunk)
    return Compressed(
        of.decode(values[:m, : chunks * granularity.kept]),
        codes[:m, :chunks],
        granularity,
        k,
    )


@lru_cache(maxsize=8)
def places(element_type: str) -> NDArray[np.int64]:
    """Which 16-byte unit of a block each unit of its rows becomes.

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


def _words(codes: NDArray[np.uint8], op: Instruction) -> NDArray[np.uint32]:
    """Metadata words: (m64 blocks, slabs, lanes, words)."""
    words = op.metadata.pack_tiles(codes, shared=True)[..., 0]
    per = _any_kernel(op.types["a"].name).words
    parted = words.reshape(len(words), -1, per, _LANES)
    return np.ascontiguousarray(parted.swapaxes(-1, -2))


def _codes(data: Bytes, op: Instruction, per: int) -> NDArray[np.uint8]:
    """Codes of all rows from the metadata of packed blocks: undoes _words."""
    tall, slabs, blocks, _ = data.shape
    words = np.ascontiguousarray(data.swapaxes(1, 2)).view(np.uint32)
    words = words.reshape(tall * blocks, slabs, _LANES, per).swapaxes(-1, -2)
    words = np.ascontiguousarray(words).reshape(tall * blocks, -1, _LANES, 1)
    codes: NDArray[Any] = op.metadata.unpack_tiles(words, shared=True)
    return codes


@lru_cache(maxsize=16)
def _any_kernel(element_type: str) -> Kernel:
    """A kernel of this type: the order in memory is the same for all."""
    return Kernel(element_type, tile=Tile(64, 8))
