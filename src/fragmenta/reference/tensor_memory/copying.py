"""``tcgen05.cp``: where it puts the bytes of shared memory.

The source is a tile of rows of 16 or 32 bytes, read through a K-major descriptor.  One
row goes to one lane, or with a multicast to two or four.  Its bytes go to 4 or 8
columns.  So the copy is a layout, too; ``col`` is the 32-bit word of the row::

    32x128b.warpx4    row = T0 T1 T2 T3 T4  col = C0 C1 | copy = T5 T6

With a format, 16 bytes of the source are 16 narrow elements and padding.  Each becomes
a byte: four bits in bits 5:2 (``b4x16_p64``), six bits in bits 5:0 (``b6x16_p32``).

``.cta_group::2`` copies in both CTAs of the pair.  The manual does not say from whose
shared memory.  It is taken that each CTA copies from its own, at the same descriptor:
kernels for Blackwell that give each CTA the scales of its own rows, and whose first CTA
alone issues the copy (ThunderKittens), are right only so.
"""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import as_array, batch_shape, is_among
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import BadCall, ShapeError, one_of
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.searching import instruction
from fragmenta.reference.isa.table import read
from fragmenta.reference.registers.dtype import dtype
from fragmenta.reference.registers.layout import Layout
from fragmenta.reference.registers.tensor_fragment import (
    LANES,
    Image,
    TensorAddress,
    TensorFragment,
)
from fragmenta.reference.registers.words import container, unpack_words
from fragmenta.reference.shared.descriptor import UNIT, Descriptor
from fragmenta.reference.shared.tiles import as_image, read_rows
from fragmenta.reference.tensor_memory.reaching import as_tensor_memory

Bytes = NDArray[np.uint8]

# ``free`` is what does not change the row: the lane of the address, or the copies.
LINES = """
tile     | multicast     | bytes | row                  | free
128x256b |               | 32    | T0 T1 T2 T3 T4 T5 T6 |
128x128b |               | 16    | T0 T1 T2 T3 T4 T5 T6 |
4x256b   |               | 32    | T5 T6                | base = T0 T1 T2 T3 T4
64x128b  | warpx2::02_13 | 16    | T0 T1 T2 T3 T4 T5    | copy = T6
64x128b  | warpx2::01_23 | 16    | T0 T1 T2 T3 T4 T6    | copy = T5
32x128b  | warpx4        | 16    | T0 T1 T2 T3 T4       | copy = T5 T6
"""
_LINES = {(line["tile"], line["multicast"]): line for line in read(LINES)}

#: The bits of a packed element, and where its byte has them.
FORMATS = """
source          | bits | shift
b8x16.b4x16_p64 | 4    | 2
b8x16.b6x16_p32 | 6    | 0
"""
_FORMATS = {
    line["source"]: (int(line["bits"]), int(line["shift"])) for line in read(FORMATS)
}


@dataclass(frozen=True, eq=False, repr=False)
class Copied(TensorFragment):
    """The rows of a copy, as 32-bit words in tensor memory.

    The lane of the address of ``4x256b`` is the one of each 32 that is written.
    """

    @cached_property
    def base_lanes(self) -> tuple[int, ...]:
        """The lanes at which its address may point."""
        return tuple(range(self.layout.sizes.get("base", 1)))

    def _base(self, at: TensorAddress) -> dict[str, int]:
        return {"base": at.lane} if "base" in self.layout.free else {}


def copies(op: Instruction | str) -> TensorFragment:
    """Where each 32-bit word of the source lands: a fragment of rows x words.

    >>> import fragmenta as fm
    >>> part = copies("tcgen05.cp.cta_group::1.64x128b.warpx2::01_23")
    >>> cell = part.where(40, 3, address=100)
    >>> print(cell, "and", *cell.copies)
    lane 72, column 103, bits 31:0 and lane 104, column 103, bits 31:0
    """
    found = _copying(op)
    return _copied(found.values["tile"], found.values.get("multicast", ""))


@lru_cache(maxsize=16)
def _copied(tile: str, multicast: str) -> TensorFragment:
    line = _LINES[tile, multicast]
    width = int(line["bytes"]) // 4
    text = f"row = {line['row']}  col = C* | {line['free']}"
    layout = Layout.parse(text, T=LANES, C=width)
    return Copied("S", dtype("b32"), layout, container("b32"))


def copy(
    op: Instruction | str,
    image: ArrayLike,
    smem: ArrayLike,
    address: int | TensorAddress,
    descriptor: Descriptor | ArrayLike,
) -> Image:
    """Tensor memory after a ``tcgen05.cp``, as a new array.

    ``image`` is tensor memory (…, 128, 512), ``smem`` shared memory (…, bytes); with
    ``.cta_group::2`` they are those of two CTAs, (…, 2, 128, 512) and (…, 2, bytes).
    ``descriptor`` is a :class:`~fragmenta.shared.Descriptor` or its 64-bit word,
    K-major.

    >>> import numpy as np, fragmenta as fm
    >>> smem = np.arange(512, dtype=np.uint16).astype(np.uint8)
    >>> where = fm.shared.Descriptor(0, 16, 128, swizzle=0, family="tcgen05")
    >>> op = "tcgen05.cp.cta_group::1.32x128b.warpx4"
    >>> image = copy(op, np.zeros((128, 512), np.uint32), smem, 8, where)
    >>> [hex(word) for word in image[33, 8:12]]
    ['0x13121110', '0x17161514', '0x1b1a1918', '0x1f1e1d1c']
    """
    found = _copying(op)
    pair = found.values["cta_group"] == "cta_group::2"
    memory, source = as_tensor_memory(image, ctas=2 if pair else 1), as_image(smem)
    if pair and source.shape[-2:-1] != (2,):
        raise ShapeError(
            f"{found} copies in two CTAs, each from its own shared memory: "
            f"(…, 2, bytes); given shape {source.shape}"
        )
    part = copies(found)
    rows, width = part.shape
    # The CTAs of a pair are one more batch axis: both copy alike.
    tile = read_rows(source, descriptor, rows, 4 * width)
    batch_shape(image=memory.shape[:-2], smem=tile.shape[:-2])
    form = found.values.get("source", "")
    data = expanded(tile, form) if form else tile
    words = np.ascontiguousarray(data).view(np.uint32)
    return part.place(words, address=address, image=memory)


def expanded(rows: ArrayLike, form: str) -> Bytes:
    """Packed rows with a byte for each element: (…, multiple of 16 bytes) in and out.

    >>> import numpy as np
    >>> packed = np.uint8([0x21, 0x43] + [0] * 14)
    >>> expanded(packed, "b8x16.b4x16_p64")[:4].tolist()
    [4, 8, 12, 16]
    >>> expanded(packed, "b8x16.b6x16_p32")[:4].tolist()
    [33, 12, 4, 0]
    """
    if not is_among(form, _FORMATS):
        raise BadCall(f"formats are {one_of(_FORMATS, 'and')}; given {form!r}")
    bits, shift = _FORMATS[form]
    given = as_array(rows)
    if given.dtype != np.uint8 or not given.ndim or given.shape[-1] % UNIT:
        raise ShapeError(
            f"packed rows are bytes, (…, multiple of {UNIT}); given {given.dtype} of "
            f"shape {given.shape}"
        )
    units = given.reshape(*given.shape[:-1], given.shape[-1] // UNIT, UNIT)
    packed = np.ascontiguousarray(units[..., : 2 * bits])  # the rest is padding
    single = unpack_words(packed, 1).reshape(*units.shape, bits)
    weights = (1 << shift + np.arange(bits)).astype(np.uint8)
    found: Bytes = (single * weights).sum(axis=-1, dtype=np.uint8)
    return found.reshape(given.shape)


def packed_bits(form: str) -> int:
    """The bits of an element of a packed format.

    >>> packed_bits("b8x16.b6x16_p32")
    6
    """
    return _FORMATS[form][0]


def _copying(op: Instruction | str) -> Instruction:
    found = instruction(op)
    if found.moves != "copy":
        raise BadCall(f"tcgen05.cp copies to tensor memory; given {found}")
    return found
