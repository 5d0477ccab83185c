"""Kinds of sparsity: which values of a chunk are kept, and the codes for them.

A sparse A is stored without its zeros.  Each chunk of a row has one 4-bit code,
which gives the columns of its stored values::

    pattern   chunk       a code holds
    2:4       4 columns   two columns, 2 bits each, the first stored one lowest
    4:8       8 columns   two of four pairs of neighbours, written the same way
    1:2       2 columns   0100 for column 0, 1110 for column 1

For example 1001 (idx1 = 2, idx0 = 1) keeps columns 1 and 2 of a 2:4 chunk, and
columns 2 to 5 of a 4:8 chunk.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import as_array, check_numbers, is_whole
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import BadMetadata, ShapeError, one_of
from fragmenta.reference.registers.dtype import DType, dtype
from fragmenta.reference.registers.words import container

Codes = NDArray[np.uint8]

# tf32 reads each 2-bit index as half an element: both halves of column 0, or
# both of column 1.
_COLUMN_OF_TF32 = {0b0100: (0,), 0b1110: (1,)}
_GRANULARITIES = ((1, 2, 1), (2, 4, 1), (4, 8, 2))


@dataclass(frozen=True)
class Granularity:
    """How many elements of a row of A are stored: ``kept`` of each ``chunk``.

    ``group`` neighbours are kept or dropped together.  It is 2 for 4-bit types,
    whose codes name pairs.

    >>> import fragmenta as fm
    >>> fm.mma("m16n8k64", a="s4", sp="sp").granularity
    Granularity(kept=4, chunk=8, group=2)
    """

    kept: int
    chunk: int
    group: int = 1

    def __post_init__(self) -> None:
        sizes = (self.kept, self.chunk, self.group)
        if sizes not in _GRANULARITIES or not all(map(is_whole, sizes)):
            raise ShapeError(
                f"no tensor core keeps {self.kept} of {self.chunk} in groups of "
                f"{self.group}; there are 1 of 2, 2 of 4, and 4 of 8 in groups of 2"
            )

    @property
    def places(self) -> int:
        """The number of places that a code chooses from: 4, or 2 for 1:2."""
        return self.chunk // self.group

    @property
    def picks(self) -> int:
        """The number of places that a code chooses: 2, or 1 for 1:2."""
        return self.kept // self.group

    @property
    def empty(self) -> int:
        """The code of a chunk of zeros, which names the last places.

        >>> f"{Granularity(2, 4).empty:04b} {Granularity(1, 2).empty:04b}"
        '1110 1110'
        """
        return self.code(*range(self.places - self.picks, self.places))

    def codes(self, ordered: bool = True) -> tuple[int, ...]:
        """The legal codes in ascending order; ordered codes have idx0 < idx1.

        >>> [f"{code:04b}" for code in Granularity(2, 4).codes()]
        ['0100', '1000', '1001', '1100', '1101', '1110']
        >>> len(Granularity(2, 4).codes(ordered=False))
        12
        """
        return tuple(code for code in range(16) if not self.problem(code, ordered))

    def code(self, *places: int) -> int:
        """The code that keeps these places: columns, or pairs for 4:8.

        >>> f"{Granularity(2, 4).code(1, 3):04b}"
        '1101'
        """
        allowed = range(self.places)
        if len(places) != self.picks or any(p not in allowed for p in places):
            raise BadMetadata(
                f"{self} keeps {self.picks} of the places 0 to {self.places - 1} "
                f"of a chunk; given {one_of(places, 'and') or 'none'}"
            )
        if self.picks == 1:
            return next(c for c, kept in _COLUMN_OF_TF32.items() if kept == places)
        code = places[0] | places[1] << 2
        if problem := self.problem(code, ordered=False):
            raise BadMetadata(f"code {code:04b} {problem}")
        return code

    def positions(self, code: int) -> tuple[int, ...]:
        """The column in the chunk of each stored value, in stored order.

        >>> Granularity(2, 4).positions(0b1101)
        (1, 3)
        >>> Granularity(4, 8, group=2).positions(0b1101)
        (2, 3, 6, 7)
        """
        if problem := self.problem(code, ordered=False):
            raise BadMetadata(f"code {code:04b} {problem}")
        return self.named(code)

    def named(self, code: int) -> tuple[int, ...]:
        """The columns that the bits of a code name, even if the code is illegal.

        For 1:2 it is the column that holds the half element idx1.

        >>> Granularity(2, 4).named(0b1010), Granularity(1, 2).named(0b0100)
        ((2, 2), (0,))
        """
        if self.picks == 1:
            return (code >> 3,)
        places = (code & 3, code >> 2)
        return tuple(self.group * p + i for p in places for i in range(self.group))

    def problem(self, code: int, ordered: bool = True) -> str:
        """Why a code is illegal; empty if it is legal.

        >>> Granularity(2, 4).problem(0b0111)
        'names position 3 before 1; ordered metadata names the lower one first'
        >>> Granularity(1, 2).problem(0b1001)
        'is not one of the two codes of 1:2, 0100 and 1110'
        """
        check_numbers(code=code)
        if not 0 <= code < 16:
            return "does not fit in 4 bits"
        if self.picks == 1:
            legal = code in _COLUMN_OF_TF32
            return "" if legal else "is not one of the two codes of 1:2, 0100 and 1110"
        first, second = code & 3, code >> 2
        what = "pair" if self.group == 2 else "position"
        if first == second:
            return f"names {what} {first} twice"
        if ordered and first > second:
            rule = "ordered metadata names the lower one first"
            return f"names {what} {first} before {second}; {rule}"
        return ""

    def illegal(self, codes: Codes, ordered: bool) -> NDArray[np.bool_]:
        """Which codes are illegal.

        >>> Granularity(1, 2).illegal(np.uint8([0b0100, 0b1000]), ordered=True)
        array([False,  True])
        """
        wrong: NDArray[np.bool_]
        if self.picks == 1:
            wrong = ~np.isin(codes, list(_COLUMN_OF_TF32))
            return wrong
        first, second = codes & np.uint8(3), codes >> np.uint8(2)
        wrong = first >= second if ordered else first == second
        return wrong

    def offsets(self, codes: Codes) -> NDArray[np.uint8]:
        """``positions`` of many codes at once, along a new last axis.

        >>> Granularity(4, 8, group=2).offsets(np.uint8([0b1101, 0b1000]))
        array([[2, 3, 6, 7],
               [0, 1, 4, 5]], dtype=uint8)
        """
        self.check(np.atleast_2d(codes), ordered=False)
        found = np.empty((*codes.shape, self.kept), np.uint8)
        if self.picks == 1:
            np.equal(codes, self.code(1), out=found[..., 0])
            return found
        for place, shift in enumerate((0, 2)):
            start = (codes >> np.uint8(shift) & np.uint8(3)) * np.uint8(self.group)
            for i in range(self.group):
                np.add(start, np.uint8(i), out=found[..., place * self.group + i])
        return found

    def check(self, codes: Codes, ordered: bool) -> None:
        """Refuse a matrix (…, rows, chunks) with illegal codes; name the first.

        >>> Granularity(2, 4).check(np.uint8([[0b0100, 0b1010]]), ordered=True)
        Traceback (most recent call last):
        fragmenta.errors.BadMetadata: row 0, chunk 1: code 1010 names position 2 twice
        """
        wrong = self.illegal(codes, ordered)
        if wrong.any():
            index = np.unravel_index(int(wrong.argmax()), wrong.shape)
            where = locate([int(i) for i in index])
            raise self.refusal(where, int(codes[index]), ordered, int(wrong.sum()))

    def refusal(self, where: str, code: int, ordered: bool, count: int) -> BadMetadata:
        """The error for the first of ``count`` illegal codes."""
        are = "is" if count == 2 else "are"
        more = f"; {count - 1} more {are} illegal" if count > 1 else ""
        return BadMetadata(
            f"{where}: code {code:04b} {self.problem(code, ordered)}{more}"
        )

    def __str__(self) -> str:
        return f"{self.kept}:{self.chunk}" + (" in pairs" if self.group == 2 else "")


def granularity(of: DType, kind: str | None) -> Granularity:
    """The sparsity pattern of an A of this type.

    >>> from fragmenta.reference.registers.dtype import dtype
    >>> print(granularity(dtype("tf32"), None), granularity(dtype("e2m1"), "mxf4"))
    1:2 4:8 in pairs
    """
    if of.name == "tf32":
        return Granularity(1, 2)
    if container(of, kind).bits == 4:
        return Granularity(4, 8, group=2)
    return Granularity(2, 4)


def as_codes(indices: ArrayLike) -> Codes:
    """4-bit codes, one per item, as uint8; anything else is refused.

    >>> as_codes([[4, 14]])
    array([[ 4, 14]], dtype=uint8)
    """
    given = as_array(indices)
    if given.dtype == dtype("u4").storage:
        return given.view(np.uint8) & np.uint8(15)
    if given.dtype.kind not in "iu":
        raise BadMetadata(f"codes are integers from 0 to 15; given {given.dtype}")
    least = given.min() if given.size and given.dtype.kind == "i" else 0
    if given.size and (least < 0 or given.max() > 15):
        wrong = given[(given < 0) | (given > 15)].flat[0]
        raise BadMetadata(f"codes are integers from 0 to 15; given {wrong}")
    return given.astype(np.uint8, copy=False)


def locate(index: Sequence[int]) -> str:
    """A batched index in words, such as ``row 3, chunk 5``.

    >>> locate([2, 0, 3, 5])
    'batch [2, 0], row 3, chunk 5'
    """
    *batch, row, chunk = index
    return (f"batch {batch}, " if batch else "") + f"row {row}, chunk {chunk}"
