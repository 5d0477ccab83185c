"""What an H200 did with tensor maps.

``tensor_maps.npz`` has arguments of the driver's encoders, whether it refused them, and
a checksum of the 128 bytes.  ``boxes.npz`` has copies: the arguments of a map, the
operands of the instruction, and a checksum of what it left in memory.  ``faults`` are
copies that stopped the kernel.  Each case is a row of integers: :class:`Case`.

Driver 580.159.04 encoded the maps.  A kernel with one block wrote a pattern to shared
memory, issued one copy, waited for the bytes in column 46 (``complete_tx``) or for the
bulk group, and wrote shared memory out.  Each copy that faulted had its own process.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import Error
from fragmenta.reference.shared.tensor_map import Im2col, TensorMap, element_types

FOLDER = Path(__file__).parent.parent / "golden" / "h200"
OPERATIONS = ("load", "store", "add", "min", "max", "inc", "dec", "and", "or", "xor")
ORIGIN, WINDOW, IMAGE = 1 << 20, 1 << 18, 1 << 14
"""Where the tensors are, how much memory there is, and how much shared memory."""
_TYPES = {of.driver: of.name for of in element_types()}


@cache
def recording(name: str) -> dict[str, NDArray[Any]]:
    """The arrays of a file; rows of cases are the last axis of none of them."""
    with np.load(FOLDER / f"{name}.npz") as file:
        return {
            key: file[key].T if key in ("rows", "faults") else file[key] for key in file
        }


class Case:
    """One row of a recording."""

    def __init__(self, row: NDArray[np.int64]) -> None:
        self.row = row.tolist()
        self.rank = self.row[2]
        self.operation = OPERATIONS[self.row[44]] if len(row) > 44 else ""

    def map(self) -> TensorMap:
        """The map; an error if there is none with these arguments."""
        row, rank = self.row, self.rank
        if row[1] not in _TYPES or not 1 <= rank <= 5:
            raise Error("no such type or rank")
        column = Im2col(
            tuple(row[27 : 25 + rank]), tuple(row[30 : 28 + rank]), row[33], row[34]
        )
        return TensorMap(
            _TYPES[row[1]],
            tuple(row[4 : 4 + rank]),
            tuple(row[9 : 8 + rank]),
            () if row[0] else tuple(row[13 : 13 + rank]),
            tuple(row[18 : 18 + rank]),
            address=row[3],
            interleave=_chosen((0, 16, 32), row[23]),
            swizzle=_chosen((0, 32, 64, 128), row[24]),
            l2=_chosen(("none", 64, 128, 256), row[25]),
            fill=_chosen(("zeros", "nan"), row[26]),
            im2col=column if row[0] else None,
        )

    @property
    def coordinates(self) -> list[int]:
        return list(self.row[35 : 35 + self.used_rank])

    @property
    def offsets(self) -> list[int]:
        """Those of an im2col load; other copies have none."""
        loads = self.uses_im2col and self.operation == "load"
        return list(self.row[40 : 38 + self.used_rank]) if loads else []

    @property
    def at(self) -> int:
        """The address in shared memory."""
        return int(self.row[43])

    @property
    def used_rank(self) -> int:
        """The dimensions that the instruction names."""
        return int(self.rank if self.row[48] < 0 else self.row[48])

    @property
    def uses_im2col(self) -> bool:
        return bool(self.row[0] if self.row[49] < 0 else self.row[49])

    def memory(self) -> NDArray[np.uint8]:
        """Global memory before the copy, from ``ORIGIN`` on."""
        words = _pattern(ORIGIN // 4, WINDOW // 4, 0x7F4A7C15, self.row[47])
        return words.view(np.uint8).copy()

    def image(self) -> NDArray[np.uint8]:
        """Shared memory before the copy."""
        if self.operation == "load":
            return np.full(IMAGE, 0xA5, np.uint8)
        return _pattern(0, IMAGE // 4, 0x1234567, self.row[47]).view(np.uint8).copy()


def _chosen(allowed: tuple[Any, ...], number: int) -> Any:
    if not 0 <= number < len(allowed):
        raise Error("no such choice")
    return allowed[number]


@cache
def _pattern(start: int, count: int, seed: int, kind: int) -> NDArray[np.uint32]:
    """Words that all differ (0), or most are special floats (1), or doubles (2)."""
    index = np.arange(start, start + count, dtype=np.uint64)
    words = (index * 0x9E3779B1 + seed).astype(np.uint32)
    if kind == 0:
        return words
    if kind == 2:
        doubles = recording("boxes")["doubles"]
        places = (words[::2].astype(np.uint64) * len(doubles)) >> np.uint64(32)
        return np.ascontiguousarray(doubles[places.astype(np.int64)]).view(np.uint32)
    table = recording("boxes")["specials"]
    picks = (words.astype(np.uint64) * len(table)) >> np.uint64(32)
    return np.where(words & 0x30, table[picks.astype(np.int64)], words).astype(
        np.uint32
    )
