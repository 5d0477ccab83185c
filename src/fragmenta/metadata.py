"""Which values were kept?

A sparse A is stored without its zeros.  Beside the stored values stands one
4-bit code per chunk of a row, and the code says where they came from::

    pattern   chunk       a code holds
    2:4       4 columns   two columns, 2 bits each, the first stored one lowest
    4:8       8 columns   two of four pairs of neighbours, written the same way
    1:2       2 columns   0100 for column 0, 1110 for column 1

So 1001 (idx1 = 2, idx0 = 1) keeps columns 1 and 2 of a 2:4 chunk, and columns
2 to 5 of a 4:8 chunk.  :class:`Granularity` knows the codes; :class:`Metadata`
is the fragment that spreads them over lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.arrays import batch_shape
from fragmenta.dtype import DType, as_array, dtype
from fragmenta.errors import BadMetadata, ShapeError, one_of
from fragmenta.fragment import Fragment, Words, check_lane, cut_tiles, whole_tiles
from fragmenta.layout import Layout, check_numbers, is_whole
from fragmenta.words import container

Codes = NDArray[np.uint8]

# tf32 reads each 2-bit index as half an element: both halves of column 0, or
# both of column 1.
_COLUMN_OF_TF32 = {0b0100: (0,), 0b1110: (1,)}
_GRANULARITIES = ((1, 2, 1), (2, 4, 1), (4, 8, 2))


@dataclass(frozen=True)
class Granularity:
    """Which elements of a row of A may be stored: ``kept`` of each ``chunk``.

    ``group`` neighbours are kept or dropped together: 2 for 4-bit types,
    where a code names pairs.

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
        """Places of a chunk that a code chooses from: 4, or 2 for 1:2."""
        return self.chunk // self.group

    @property
    def picks(self) -> int:
        """Places that a code chooses: 2, or 1 for 1:2."""
        return self.kept // self.group

    @property
    def empty(self) -> int:
        """The code of a chunk of zeros: the last places.

        >>> f"{Granularity(2, 4).empty:04b} {Granularity(1, 2).empty:04b}"
        '1110 1110'
        """
        return self.code(*range(self.places - self.picks, self.places))

    def codes(self, ordered: bool = True) -> tuple[int, ...]:
        """The legal codes, ascending; ordered ones have idx0 < idx1.

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
        if self.picks == 1:
            return _COLUMN_OF_TF32[code]
        places = (code & 3, code >> 2)
        return tuple(self.group * p + i for p in places for i in range(self.group))

    def problem(self, code: int, ordered: bool = True) -> str:
        """What is illegal about a code; empty if nothing is.

        >>> Granularity(2, 4).problem(0b0111)
        'names position 3 before 1; ordered metadata has the lower one first'
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
            rule = "ordered metadata has the lower one first"
            return f"names {what} {first} before {second}; {rule}"
        return ""

    def illegal(self, codes: Codes, ordered: bool) -> NDArray[np.bool_]:
        """Where codes are illegal.

        >>> Granularity(1, 2).illegal(np.uint8([0b0100, 0b1000]), ordered=True)
        array([False,  True])
        """
        wrong: NDArray[np.bool_]
        if self.picks == 1:
            wrong = (codes != 0b0100) & (codes != 0b1110)
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
            np.equal(codes, 0b1110, out=found[..., 0])
            return found
        for place, shift in enumerate((0, 2)):
            start = (codes >> np.uint8(shift) & np.uint8(3)) * np.uint8(self.group)
            for i in range(self.group):
                np.add(start, np.uint8(i), out=found[..., place * self.group + i])
        return found

    def check(self, codes: Codes, ordered: bool) -> None:
        """Refuse illegal codes of a matrix (…, rows, chunks), naming the first.

        >>> Granularity(2, 4).check(np.uint8([[0b0100, 0b1010]]), ordered=True)
        Traceback (most recent call last):
        fragmenta.errors.BadMetadata: row 0, chunk 1: code 1010 names position 2 twice
        """
        wrong = self.illegal(codes, ordered)
        if wrong.any():
            index = np.unravel_index(int(wrong.argmax()), wrong.shape)
            where = locate([int(i) for i in index])
            raise self._refusal(where, int(codes[index]), ordered, int(wrong.sum()))

    def _refusal(self, where: str, code: int, ordered: bool, count: int) -> BadMetadata:
        are = "is" if count == 2 else "are"
        more = f"; {count - 1} more {are} illegal" if count > 1 else ""
        return BadMetadata(
            f"{where}: code {code:04b} {self.problem(code, ordered)}{more}"
        )

    def __str__(self) -> str:
        return f"{self.kept}:{self.chunk}" + (" in pairs" if self.group == 2 else "")


def granularity(of: DType, kind: str | None) -> Granularity:
    """The sparsity pattern of an A of this type.

    >>> from fragmenta.dtype import dtype
    >>> print(granularity(dtype("tf32"), None), granularity(dtype("e2m1"), "mxf4"))
    1:2 4:8 in pairs
    """
    if of.name == "tf32":
        return Granularity(1, 2)
    if container(of, kind).bits == 4:
        return Granularity(4, 8, group=2)
    return Granularity(2, 4)


def as_codes(indices: ArrayLike) -> Codes:
    """One 4-bit code per item, as uint8; anything else is refused.

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
    """``row 3, chunk 5`` of a batched index.

    >>> locate([2, 0, 3, 5])
    'batch [2, 0], row 3, chunk 5'
    """
    *batch, row, chunk = index
    return (f"batch {batch}, " if batch else "") + f"row {row}, chunk {chunk}"


@dataclass(frozen=True)
class Nibble:
    """One decoded code of a metadata word; ``problem`` is empty if it is legal.

    ``positions`` are columns within the chunk, ``columns`` within the tile,
    one for each stored value; both are empty for an illegal code.

    >>> import fragmenta as fm
    >>> found = fm.mma("m16n8k8", a="tf32", sp="sp").metadata.decode([0x44], lane=1)[1]
    >>> found.selector, found.row, found.chunk, found.columns
    (1, 0, 1, (2,))
    """

    warp: int | None
    lane: int
    nibble: int
    selector: int
    """The sparsity selector with which the instruction reads this lane."""
    row: int
    chunk: int
    code: int
    positions: tuple[int, ...]
    columns: tuple[int, ...]
    problem: str


@dataclass(frozen=True, repr=False)
class Metadata(Fragment):
    """The metadata operand: one code for each row and chunk of a tile.

    >>> import fragmenta as fm
    >>> e = fm.mma("m16n8k16", a="f16", d="f32", sp="sp::ordered_metadata").metadata
    >>> codes = np.full((16, 4), 0b0100)
    >>> [hex(word) for word in e.pack(codes, selector=2)[:4, 0]]
    ['0x0', '0x0', '0x44444444', '0x0']
    """

    granularity: Granularity = field(kw_only=True)
    ordered: bool = field(kw_only=True)
    """Whether every code must have idx0 < idx1."""

    @classmethod
    def of(
        cls, fragment: Fragment, granularity: Granularity, *, ordered: bool
    ) -> Metadata:
        """The metadata that a fragment of nibbles holds."""
        plain = {f.name: getattr(fragment, f.name) for f in fields(fragment)}
        return cls(**plain, granularity=granularity, ordered=ordered)

    @cached_property
    def shared(self) -> Metadata:
        """The same words, full: a tile for each selector, side by side along k.

        Kernels load these.  The lanes that one selector leaves unread carry
        the next tile: tile s is read with selector s.

        >>> import fragmenta as fm
        >>> e = fm.mma("m16n8k64", a="s4", sp="sp").metadata
        >>> e, e.shared
        (<Fragment metadata: u4 16x8, row = L2 L3 L4 L0  chunk = E0 E1 E2 \
| selector = L1>, <Fragment metadata: u4 16x16, row = L2 L3 L4 L0  \
chunk = E0 E1 E2 L1>)
        """
        digits = dict(self.layout.coordinates)
        chunk = digits["chunk"] + digits.get("selector", ())
        lines = (("row", digits["row"]), ("chunk", chunk))
        return replace(self, layout=Layout(lines, self.layout.axes))

    @cached_property
    def tiles(self) -> int:
        """How many tiles share a set of words: 1, 2 or 4, one per selector."""
        return self.layout.sizes.get("selector", 1)

    # ── one tile, or one per selector ───────────────────────────────────────

    def pack(self, matrix: ArrayLike, selector: int = 0, **selected: int) -> Words:
        """Words of all lanes for the codes (…, rows, chunks) of a tile.

        Lanes that do not count for the selector are zero.

        >>> import fragmenta as fm
        >>> e = fm.mma("m16n8k64", a="s4", sp="sp::ordered_metadata").metadata
        >>> e.pack(np.full((16, 8), 0b0111))
        Traceback (most recent call last):
        fragmenta.errors.BadMetadata: lane 0, nibble 0 (row 0, chunk 0): code 0111 \
names pair 3 before 1; ordered metadata has the lower one first; 127 more are illegal
        """
        codes = self._matrix(as_codes(matrix))
        chosen = self._selected(selector, selected)
        self._check(codes, chosen)
        return super().pack(codes, **chosen)

    def unpack(
        self, registers: ArrayLike, selector: int = 0, **selected: int
    ) -> NDArray[Any]:
        """The codes that words hold for a selector, refused if illegal.

        >>> import fragmenta as fm
        >>> e = fm.mma("m16n8k64", a="s4", sp="sp").metadata
        >>> e.unpack(np.full((32, 1), 0xE4E4E444, np.uint32), selector=1)[15]
        array([ 4,  4,  4, 14,  4, 14,  4, 14], dtype=uint8)
        """
        chosen = self._selected(selector, selected)
        codes: Codes = self.unpack_bits(registers, **chosen)
        self._check(codes, chosen)
        return codes

    def pack_pair(self, *tiles: ArrayLike) -> Words:
        """One set of words for two (or four) tiles: one for each selector.

        >>> import fragmenta as fm
        >>> e = fm.mma("m16n8k32", a="s8", sp="sp").metadata
        >>> words = e.pack_pair(np.full((16, 8), 0b0100), np.full((16, 8), 0b1110))
        >>> [hex(word) for word in words[:4, 0]]
        ['0x44444444', '0x44444444', '0xeeeeeeee', '0xeeeeeeee']
        """
        if len(tiles) != self.tiles:
            raise ShapeError(
                f"one set of words holds {self.tiles} tiles, one for each selector "
                f"0 to {self.tiles - 1}; given {len(tiles)}"
            )
        codes = [self._matrix(as_codes(tile)) for tile in tiles]
        batches = {f"tile {s}": each.shape[:-2] for s, each in enumerate(codes)}
        batch = batch_shape(**batches)
        together = [np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in codes]
        return self.shared.pack(np.concatenate(together, axis=-1))

    def unpack_pair(self, registers: ArrayLike) -> tuple[Codes, ...]:
        """The tiles that share a set of words, in the order of their selectors.

        >>> import fragmenta as fm
        >>> e = fm.mma("m16n8k32", a="s8", sp="sp").metadata
        >>> words = np.full((32, 1), 0xEEEEEEEE, np.uint32)
        >>> [tile.shape for tile in e.unpack_pair(words)]
        [(16, 8), (16, 8)]
        """
        codes = self.shared.unpack(registers)
        return tuple(np.split(codes, self.tiles, axis=-1))

    # ── whole matrices ──────────────────────────────────────────────────────

    def pack_tiles(
        self,
        matrix: ArrayLike,
        *,
        pad: bool = False,
        selector: int = 0,
        shared: bool = False,
    ) -> Words:
        """All tiles of a whole matrix's codes: (…, M/m, K/k, lanes, 1).

        With ``shared`` neighbours along k share a set of words, tile s read
        with selector s, and there are that many fewer sets.  ``pad`` fills
        the edge with the code of an empty chunk.

        >>> import fragmenta as fm
        >>> e = fm.mma("m16n8k32", a="s8", sp="sp").metadata
        >>> codes = np.full((64, 64), 0b0100)
        >>> e.pack_tiles(codes).shape, e.pack_tiles(codes, shared=True).shape
        ((4, 8, 32, 1), (4, 4, 32, 1))
        """
        held = self.shared if shared else self
        empty = self.granularity.empty
        codes = whole_tiles(as_codes(matrix), held.shape, held.name, pad, empty)
        rows, chunks = held.shape
        tall, wide = codes.shape[-2] // rows, codes.shape[-1] // chunks
        tiled = codes.reshape(*codes.shape[:-2], tall, rows, wide, chunks)
        return held.pack(tiled.swapaxes(-3, -2), selector)

    def unpack_tiles(
        self,
        registers: ArrayLike,
        shape: tuple[int, int] | None = None,
        *,
        selector: int = 0,
        shared: bool = False,
    ) -> NDArray[Any]:
        """The codes of the whole matrix again; ``shape`` cuts the padding off.

        >>> import fragmenta as fm
        >>> e = fm.mma("m16n8k32", a="s8", sp="sp").metadata
        >>> words = e.pack_tiles(np.full((20, 24), 0b0100), pad=True, selector=1)
        >>> e.unpack_tiles(words, (20, 24), selector=1).shape
        (20, 24)
        """
        held = self.shared if shared else self
        words = held._registers(registers, leading=2)
        tiles = held.unpack(words, selector).swapaxes(-3, -2)
        rows, chunks = np.multiply(words.shape[-4:-2], held.shape).tolist()
        codes = tiles.reshape(*words.shape[:-4], rows, chunks)
        return cut_tiles(codes, held.shape, shape)

    # ── reading by hand ─────────────────────────────────────────────────────

    def decode(self, words: ArrayLike, *, lane: int = 0, warp: int = 0) -> list[Nibble]:
        """Every code of some words, in order, with what is illegal about it.

        The words are those of ``lane`` and the lanes after it (and on into
        the next warps of a warpgroup), whatever selector reads them.

        >>> import fragmenta as fm
        >>> e = fm.mma("m16n8k64", a="s4", sp="sp").metadata
        >>> e.decode([0x000000E4], lane=3)[1]
        Nibble(warp=None, lane=3, nibble=1, selector=1, row=8, chunk=1, code=14, \
positions=(4, 5, 6, 7), columns=(12, 13, 14, 15), problem='')
        """
        check_lane(lane, warp)
        given = self._given_words(words, 32 * warp + lane)
        places, nibbles = np.indices((len(given), 8)).reshape(2, -1)
        places += 32 * warp + lane
        axes: dict[str, ArrayLike] = {"L": places % 32, "R": 0, "E": nibbles}
        if "W" in dict(self.layout.axes):
            axes["W"] = places // 32
        found = {
            name: np.broadcast_to(value, places.shape).tolist()
            for name, value in self.layout.element(**axes).items()
        }
        selectors = found.get("selector", [0] * len(places))
        lists = (places.tolist(), nibbles.tolist(), selectors)
        return [
            self._nibble(given[i // 8] >> 4 * n & 15, p, n, s, row, chunk)
            for i, (p, n, s, row, chunk) in enumerate(
                zip(*lists, found["row"], found["chunk"], strict=True)
            )
        ]

    def _nibble(
        self, code: int, place: int, nibble: int, selector: int, row: int, chunk: int
    ) -> Nibble:
        problem = self.granularity.problem(code, self.ordered)
        positions = () if problem else self.granularity.positions(code)
        columns = tuple(self.granularity.chunk * chunk + p for p in positions)
        warp = place // 32 if self.lanes > 32 else None
        return Nibble(
            warp, place % 32, nibble, selector, row, chunk, code,
            positions, columns, problem,
        )  # fmt: skip

    def _given_words(self, words: ArrayLike, first: int) -> list[int]:
        listed = np.ravel(np.asarray(words, dtype=object)).tolist()
        for word in listed:
            if not is_whole(word) or not 0 <= word < 1 << 32:
                shown = f"{word:#x}" if is_whole(word) else repr(word)
                raise BadMetadata(f"a metadata word has 32 bits; given {shown}")
        given = [int(word) for word in listed]
        if first + len(given) > self.lanes:
            raise ShapeError(
                f"{self.name} is in {self.lanes} lanes; {len(given)} words from "
                f"lane {first} on do not fit"
            )
        return given

    # ── checks ──────────────────────────────────────────────────────────────

    def _selected(self, selector: int, selected: dict[str, int]) -> dict[str, int]:
        if selected:
            self._selection(selected)  # there is one selector; this refuses others
        if self.selectors:
            return {"selector": selector}
        check_numbers(selector=selector)
        if selector != 0:
            raise ShapeError(f"selector {selector} is out of range; it is 0")
        return {}

    def _check(self, codes: Codes, chosen: dict[str, int]) -> None:
        """Refuse illegal codes, naming the lane and nibble of the first."""
        self._selection(chosen)
        wrong = self.granularity.illegal(codes, self.ordered)
        if not wrong.any():
            return
        found = np.unravel_index(int(wrong.argmax()), wrong.shape)
        *batch, row, chunk = (int(i) for i in found)
        place = self.where(row, chunk, **chosen)
        warp = "" if place.warp is None else f"warp {place.warp}, "
        tile = f" of tile {batch}" if batch else ""
        where = (
            f"{warp}lane {place.lane}, nibble {place.bits[0] // 4} "
            f"(row {row}, chunk {chunk}{tile})"
        )
        code, count = int(codes[found]), int(wrong.sum())
        raise self.granularity._refusal(where, code, self.ordered, count)
