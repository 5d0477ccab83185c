"""Bytes that each lane accesses at its address, and the lanes that are used.

The cost of an access depends on more than its addresses.  With 32 addresses 16 bytes
apart there is no bank conflict if each lane takes 16 bytes, but a 4-way conflict if
each takes 4.  So addresses are returned with the width and the number of lanes used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import Array, as_array, is_whole
from fragmenta.errors import AddressError, ShapeError, one_of

WIDTHS = (1, 2, 4, 8, 16)
"""Numbers of bytes that a lane can access at once."""

# Operations after which the numbers are still byte addresses of the same lanes: another
# start, or a swizzle.  After others they may not be (// 4 makes word addresses).
_MOVES = (np.add, np.subtract, np.bitwise_xor, np.bitwise_or)


class LaneAddresses(np.ndarray[Any, np.dtype[np.int64]]):
    """Byte addresses (…, lanes), with the number of bytes that each lane takes.

    ``width`` is that number; ``used`` is the number of lanes that are used, from lane
    0.  Otherwise this is an ordinary array of integers.  ``+``, ``-``, ``^`` and ``|``
    keep both attributes, and so does taking one warp of several.  Every other result is
    a plain array without them, because lanes may have been reordered or bytes turned
    into words; :func:`fragmenta.shared.bank_conflicts` then needs the width as an
    argument.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> load, addresses = fm.shared.ldmatrix_addresses(op, "B", order="col")
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
        given = as_array(addresses)
        if given.dtype.kind not in "iu":
            raise ShapeError(f"addresses must be whole numbers; given {given.dtype}")
        made = np.array(given, np.int64).view(cls)
        lanes = made.shape[-1] if made.ndim else 0
        counted = lanes if used is None else used
        if not is_whole(counted) or not 1 <= counted <= lanes:
            raise ShapeError(
                f"used must be 1 to {lanes}, the number of lanes; given {used!r}"
            )
        made.width, made.used = check_width(width), int(counted)
        return made

    def __array_finalize__(self, made_from: Array | None) -> None:
        """Give a new array no width; the methods below set it where it still holds."""
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
            return self._marked(result)
        return result

    def __getitem__(self, key: Any) -> Any:
        """Addresses of whole warps keep the attributes; those of some lanes do not."""
        found = self.view(np.ndarray)[key]
        keys = key if isinstance(key, tuple) else (key,)
        leading = all(is_whole(each) or isinstance(each, slice) for each in keys)
        return self._marked(found) if leading and self.ndim > len(keys) else found

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (np.array(self.view(np.ndarray)), *self._facts)

    @property
    def _facts(self) -> tuple[int | None, int | None]:
        return self.width, self.used

    def _marked(self, array: Array) -> LaneAddresses:
        marked = array.view(type(self))
        marked.width, marked.used = self._facts
        return marked


def check_width(width: object) -> int:
    """The bytes that a lane takes; a width that does not exist is refused.

    >>> check_width(np.int8(16))
    16
    """
    if not is_whole(width) or width not in WIDTHS:
        raise AddressError(f"width must be {one_of(WIDTHS)} bytes; given {width!r}")
    return int(width)


def _plain(array: Any) -> Any:
    return array.view(np.ndarray) if isinstance(array, LaneAddresses) else array


def _again(
    array: NDArray[np.int64], width: int | None, used: int | None
) -> LaneAddresses:
    """The addresses that were pickled."""
    made = array.view(LaneAddresses)
    made.width, made.used = width, used
    return made
