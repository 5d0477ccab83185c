"""Allocation of columns of tensor memory.

A CTA allocates columns, uses them, and frees them before it ends.  ``tcgen05.alloc``
writes the address of the first column to shared memory; where blocks lie is not
specified.
"""

from __future__ import annotations

from fragmenta.base.arrays.checks import is_whole
from fragmenta.errors import AddressError, Error, one_of
from fragmenta.reference.registers.tensor_fragment import COLUMNS, TensorAddress

SIZES = (32, 64, 128, 256, 512)
"""The numbers of columns that can be allocated."""


class Allocator:
    """The allocations of one CTA, checked by the rules of the manual.

    - A block has 32, 64, 128, 256 or 512 columns, and no more than the block before.
    - Without room, ``tcgen05.alloc`` waits until a block is freed.
    - After ``tcgen05.relinquish_alloc_permit``, nothing can be allocated.
    - A block is freed whole, and all blocks are freed before the CTA ends.

    >>> memory = Allocator()
    >>> memory.allocate(256), memory.allocate(256), memory.allocate(256)
    (0, 256, None)
    >>> memory.free(0, 256)
    >>> memory.allocate(128)
    0
    >>> memory.finish()
    Traceback (most recent call last):
    fragmenta.errors.Error: tensor memory is still allocated at the end: columns 0 to \
127 and 256 to 511; tcgen05.dealloc must free them
    """

    def __init__(self) -> None:
        self.blocks: dict[int, int] = {}
        """The columns of each block, by its first column."""
        self.relinquished = False
        self.largest = COLUMNS
        """No further block may have more columns than this."""

    def allocate(self, columns: int) -> int | None:
        """The address of a new block, or None: ``tcgen05.alloc`` waits for room.

        >>> Allocator().allocate(48)
        Traceback (most recent call last):
        fragmenta.errors.AddressError: tcgen05.alloc takes 32, 64, 128, 256 or 512 \
columns; given 48
        """
        count = _size("tcgen05.alloc", columns)
        if self.relinquished:
            raise Error(
                "tcgen05.alloc after tcgen05.relinquish_alloc_permit: this CTA gave up "
                "the right to allocate"
            )
        if count > self.largest:
            raise Error(
                f"tcgen05.alloc of {count} columns after one of {self.largest}: a CTA "
                "must allocate its largest block first, and never a larger one later"
            )
        for first in range(0, COLUMNS - count + 1, SIZES[0]):
            if all(
                first + count <= begin or begin + size <= first
                for begin, size in self.blocks.items()
            ):
                self.blocks[first] = self.largest = count
                return TensorAddress(0, first).encode()
        return None

    def free(self, address: int | TensorAddress, columns: int) -> None:
        """``tcgen05.dealloc``: exactly a block that was allocated.

        >>> Allocator().free(64, 32)
        Traceback (most recent call last):
        fragmenta.errors.AddressError: tcgen05.dealloc of 32 columns at 0x40: nothing \
is allocated
        """
        count = _size("tcgen05.dealloc", columns)
        at = TensorAddress.of(address)
        if at.lane or self.blocks.get(at.column) != count:
            have = f"allocated are {self}" if self.blocks else "nothing is allocated"
            raise AddressError(
                f"tcgen05.dealloc of {count} columns at {at.encode():#x}: {have}"
            )
        del self.blocks[at.column]

    def relinquish(self) -> None:
        """``tcgen05.relinquish_alloc_permit``: this CTA allocates nothing more."""
        self.relinquished = True

    def finish(self) -> None:
        """The end of the CTA: every block must be free."""
        if self.blocks:
            raise Error(
                f"tensor memory is still allocated at the end: {self}; "
                "tcgen05.dealloc must free them"
            )

    def allocated(self, column: int) -> bool:
        """Whether a column is in a block.

        >>> memory = Allocator()
        >>> memory.allocate(32), memory.allocated(31), memory.allocated(32)
        (0, True, False)
        """
        return any(
            first <= column < first + count for first, count in self.blocks.items()
        )

    def __str__(self) -> str:
        spans = [f"{a} to {a + n - 1}" for a, n in sorted(self.blocks.items())]
        return f"columns {one_of(spans, 'and')}" if spans else "no columns"


def _size(what: str, columns: int) -> int:
    if not is_whole(columns) or columns not in SIZES:
        raise AddressError(f"{what} takes {one_of(SIZES)} columns; given {columns!r}")
    return int(columns)
