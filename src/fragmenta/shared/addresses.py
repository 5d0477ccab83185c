"""How many bytes does a lane take at its address, and does the lane count?

An address alone does not say what an access costs: 32 addresses 16 bytes apart
are free of bank conflicts if each lane takes 16 bytes, and 4-way if each takes
4.  So the functions that compute addresses return them with both facts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.arrays.checks import is_whole
from fragmenta.errors import AddressError, ShapeError, one_of

WIDTHS = (1, 2, 4, 8, 16)
"""Bytes of shared memory that a lane can take at once."""

# What moves addresses without changing what lies there: another start, or a
# swizzle.  After anything else (// 4 makes words of bytes) they are numbers.
_MOVES = (np.add, np.subtract, np.bitwise_xor, np.bitwise_or)


class LaneAddresses(np.ndarray[Any, np.dtype[np.int64]]):
    """Byte addresses (…, lanes) that know how many bytes each lane takes.

    ``width`` is that number, and ``used`` how many lanes count, from lane 0.
    Everywhere else this is an ordinary array of integers.  Both facts stay
    where addresses are moved (``+``, ``-``, ``^``, ``|``) and where one warp of
    several is picked.  Any other result has neither, for lanes may have changed
    places or bytes become words; then :func:`fragmenta.bank_conflicts` asks for
    the width.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> load, addresses = fm.ldmatrix_addresses(op, "B", order="col")
    >>> addresses.width, addresses.used, (addresses + 1024).width
    (16, 16, 16)
    >>> type(addresses // 4).__name__
    'ndarray'
    """

    width: int | None
    used: int | None

    def __new__(
        cls, addresses: ArrayLike, *, width: int, used: int | None = None
    ) -> LaneAddresses:
        """Addresses of lanes that take ``width`` bytes each."""
        made = np.array(addresses, np.int64).view(cls)
        lanes = made.shape[-1] if made.ndim else 0
        counted = lanes if used is None else used
        if not is_whole(counted) or not 1 <= counted <= lanes:
            raise ShapeError(f"1 to {lanes} of {lanes} lanes count; given {used!r}")
        made.width, made.used = check_width(width), int(counted)
        return made

    def __array_finalize__(self, made_from: NDArray[Any] | None) -> None:
        """A new array knows nothing until one of the methods below tells it."""
        self.width = self.used = None

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any
    ) -> Any:
        if "out" in options:
            options["out"] = tuple(_plain(each) for each in options["out"])
        given = [_plain(each) for each in inputs]
        result = getattr(ufunc, method)(*given, **options)
        facts = {
            (each.width, each.used) for each in inputs if isinstance(each, type(self))
        }
        moved = ufunc in _MOVES and method == "__call__" and facts == {self._facts}
        if moved and result.dtype.kind in "iu" and result.shape[-1:] == self.shape[-1:]:
            return self._told(result)
        return result

    def __getitem__(self, key: Any) -> Any:
        """Addresses of lanes are plain; those of a whole warp are as these."""
        found = self.view(np.ndarray)[key]
        leading = is_whole(key) or isinstance(key, slice)
        return self._told(found) if leading and self.ndim > 1 else found

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (np.array(self.view(np.ndarray)), *self._facts)

    @property
    def _facts(self) -> tuple[int | None, int | None]:
        return self.width, self.used

    def _told(self, array: NDArray[Any]) -> LaneAddresses:
        told = array.view(type(self))
        told.width, told.used = self._facts
        return told


def check_width(width: object) -> int:
    """The bytes that a lane takes, or what is wrong with the number.

    >>> check_width(np.int8(16))
    16
    """
    if not is_whole(width) or width not in WIDTHS:
        raise AddressError(
            f"a lane takes {one_of(WIDTHS)} bytes of shared memory; given {width!r}"
        )
    return int(width)


def _plain(array: Any) -> Any:
    return array.view(np.ndarray) if isinstance(array, LaneAddresses) else array


def _again(
    array: NDArray[np.int64], width: int | None, used: int | None
) -> LaneAddresses:
    """What was pickled."""
    made = array.view(LaneAddresses)
    made.width, made.used = width, used
    return made
