"""Zero-column masks: the columns of B that are replaced by zeros.

``tcgen05.mma.ws`` takes a 64-bit mask.  It does not have a bit for each column: columns
that are zero and columns that are used alternate in runs of fixed lengths.  There is
one pattern for M = 128, two for M = 64 and four for M = 32, one for each part of N.

Two statements about the fields contradict others.  The manual's table of fields gives
the skip span and the use span each other's meaning.  Its seven worked masks, and
CUTLASS, agree that the *skip* span is the run of zeros; so it is here.  A comment in
CUTLASS says that bit 39 disables the mask when it is 1.  Its code and the manual say
that the mask is all zeros when it is 0; so it is here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import is_whole
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import Error, ShapeError, ValueRangeError, one_of
from fragmenta.reference.isa.table import read
from fragmenta.reference.shared.fields import word_of

#: The fields, lowest first.  ``plus`` is added to what is stored.
FIELDS = """
field       | low | bits | many | plus
start_count | 0   | 8    | 4    | 0
first_zero  | 32  | 1    | 4    | 0
enabled     | 39  | 1    | 1    | 0
skip_span   | 40  | 8    | 1    | 1
use_span    | 48  | 8    | 1    | 1
shift       | 56  | 6    | 1    | 0
"""
_FIELDS = read(FIELDS)
PARTS = {128: 1, 64: 2, 32: 4}
"""For each M, the parts of N, each of which has a pattern."""
MOST_SHIFT = {128: 32, 64: 32, 32: 16}
"""For each M, the greatest column shift."""


@dataclass(frozen=True)
class ZeroColumnMask:
    """The mask of ``tcgen05.mma.ws``; a column of B that it has is read as zero.

    Runs alternate: ``skip_span`` columns that are zero, then ``use_span`` columns of B.
    For each part of N, ``first_zero`` says which run is the first, and the first
    ``start_count`` columns of the pattern are left out.  Without ``enabled`` no column
    is zero.  ``shift`` is the column shift.

    >>> mask = ZeroColumnMask(skip_span=2, use_span=3, first_zero=(1, 0, 0, 0))
    >>> mask.columns(n=64, m=128)[:8].astype(int)
    array([1, 1, 0, 0, 0, 1, 1, 0])
    >>> hex(mask.encode())
    '0x2018100000000'
    >>> ZeroColumnMask.decode(mask.encode()) == mask
    True
    """

    skip_span: int = 1
    use_span: int = 1
    start_count: tuple[int, int, int, int] = (0, 0, 0, 0)
    first_zero: tuple[int, int, int, int] = (0, 0, 0, 0)
    shift: int = 0
    enabled: bool = True

    def __post_init__(self) -> None:
        for line in _FIELDS:
            name, many = line["field"], int(line["many"])
            given = getattr(self, name)
            values = _values(name, given, many)
            low = int(line["plus"])
            high = low + (1 << int(line["bits"])) - 1
            high = max(MOST_SHIFT.values()) if name == "shift" else high
            for value in values:
                if not low <= value <= high:
                    raise ValueRangeError(
                        f"{name} must be {low} to {high}; given {value}"
                    )
            kept = bool(values[0]) if name == "enabled" else values[0]
            object.__setattr__(self, name, values if many > 1 else kept)

    def encode(self) -> int:
        """The 64-bit word.

        >>> hex(ZeroColumnMask(skip_span=4, use_span=12, shift=1).encode())
        '0x10b038000000000'
        """
        word = 0
        for line in _FIELDS:
            name, low, bits = line["field"], int(line["low"]), int(line["bits"])
            values = _values(name, getattr(self, name), int(line["many"]))
            for place, value in enumerate(values):
                word |= (value - int(line["plus"])) << low + place * bits
        return word

    @classmethod
    def decode(cls, word: int) -> ZeroColumnMask:
        """The mask in a 64-bit word.

        >>> ZeroColumnMask.decode(0).columns(64, 128).any()
        np.False_
        >>> ZeroColumnMask.decode(1 << 36)
        Traceback (most recent call last):
        fragmenta.errors.ValueRangeError: 0x0000001000000000 is not a zero-column \
mask: bit 36 must be 0
        """
        given = word_of(word, "a zero-column mask", Error)
        found, rest = {}, given
        for line in _FIELDS:
            low, bits, many = (int(line[key]) for key in ("low", "bits", "many"))
            places = range(low, low + bits * many, bits)
            ones = (1 << bits) - 1
            values = tuple((given >> at & ones) + int(line["plus"]) for at in places)
            rest &= ~((1 << bits * many) - 1 << low)
            found[line["field"]] = values if many > 1 else values[0]
        if rest:
            wrong = [bit for bit in range(64) if rest >> bit & 1]
            raise ValueRangeError(
                f"{given:#018x} is not a zero-column mask: bit {one_of(wrong, 'and')} "
                "must be 0"
            )
        return cls(**found)  # type: ignore[arg-type]

    def columns(self, n: int, m: int) -> NDArray[np.bool_]:
        """Whether each of the n columns of B is zero, for an instruction of this M.

        A shift other than 0 is refused: no source says whether the mask counts
        columns before the shift or after it.

        >>> mask = ZeroColumnMask(4, 4, start_count=(0, 2, 0, 0))
        >>> mask.columns(64, 64)[28:40].astype(int)
        array([1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 0, 0])
        """
        if not is_whole(m) or m not in PARTS:
            raise ShapeError(f"M of .ws is {one_of(PARTS)}; given {m!r}")
        if not is_whole(n) or n not in (64, 128, 256):
            raise ShapeError(f"N of .ws is 64, 128 or 256; given {n!r}")
        self._check_shift(int(m))
        parts = PARTS[int(m)]
        place = np.arange(int(n) // parts) + np.array(self.start_count[:parts])[:, None]
        zero = np.array(self.first_zero[:parts], bool)[:, None]
        first = np.where(zero, self.skip_span, self.use_span)
        inside = place % (self.skip_span + self.use_span) < first
        found: NDArray[np.bool_] = (inside == zero) & self.enabled
        return found.reshape(-1)

    def _check_shift(self, m: int) -> None:
        if self.shift > MOST_SHIFT[m]:
            raise ValueRangeError(
                f"the column shift is at most {MOST_SHIFT[m]} for M = {m}; given "
                f"{self.shift}"
            )
        if self.shift:
            raise Error(
                f"which columns are zero with a column shift of {self.shift} is not "
                "known: no source says whether the mask counts columns before the "
                "shift or after it"
            )


def _values(name: str, given: object, many: int) -> tuple[int, ...]:
    """The numbers of a field, checked."""
    some = tuple(given) if isinstance(given, tuple | list) else (given,)
    if len(some) != many or (many > 1) != isinstance(given, tuple | list):
        what = f"{many} whole numbers" if many > 1 else "a whole number"
        raise ValueRangeError(f"{name} must be {what}; given {given!r}")
    numbers = []
    for value in some:
        truth = isinstance(value, bool | np.bool_)
        if not is_whole(value) and not truth:
            raise ValueRangeError(f"{name} must be whole numbers; given {given!r}")
        numbers.append(int(value))
    return tuple(numbers)
