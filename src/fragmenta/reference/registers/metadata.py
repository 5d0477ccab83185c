"""Metadata of a sparse A: the codes of the kept values, and the lanes that hold them.

A tile of A has one code (:mod:`fragmenta.reference.registers.granularity`) for each row
and
chunk.  :class:`Metadata` says which lane holds which code.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fragmenta.base.arrays.checks import Array, batch_shape, check_numbers, is_whole
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import BadMetadata, ShapeError
from fragmenta.reference.registers.fragment import Fragment, Words, check_lane
from fragmenta.reference.registers.granularity import Codes, Granularity, as_codes
from fragmenta.reference.registers.layout import Layout
from fragmenta.reference.registers.tiles import cut_tiles, whole_tiles


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
class Metadata:
    """The metadata operand: one code for each row and chunk of a tile.

    Its codes are the elements of a :class:`Fragment` of 4-bit elements,
    :attr:`fragment`.  The methods and attributes of the fragment (``where``,
    ``holds``, ``formula``, ``layout`` and so on) are available here, too.  Packing
    differs: codes must be legal, and the selector chooses the lanes that hold them.

    >>> import fragmenta as fm
    >>> e = fm.mma("m16n8k16", a="f16", d="f32", sp="sp::ordered_metadata").metadata
    >>> codes = np.full((16, 4), 0b0100)
    >>> [hex(word) for word in e.pack(codes, selector=2)[:4, 0]]
    ['0x0', '0x0', '0x44444444', '0x0']
    """

    fragment: Fragment
    granularity: Granularity
    ordered: bool
    """Whether every code must have idx0 < idx1."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "fragment":
            raise AttributeError(name)
        return getattr(self.fragment, name)

    def __repr__(self) -> str:
        return repr(self.fragment)

    @cached_property
    def shared(self) -> Metadata:
        """The same words with a tile for each selector, side by side along k.

        Kernels load these words.  The lanes that are not read with selector 0 hold
        the next tiles: tile s is read with selector s.

        >>> import fragmenta as fm
        >>> e = fm.mma("m16n8k64", a="s4", sp="sp").metadata
        >>> e, e.shared
        (<Fragment metadata: u4 16x8, row = L2 L3 L4 L0  chunk = E0 E1 E2 \
| selector = L1>, <Fragment metadata: u4 16x16, row = L2 L3 L4 L0  \
chunk = E0 E1 E2 L1>)
        """
        layout = self.fragment.layout
        digits = dict(layout.coordinates)
        chunk = digits["chunk"] + digits.get("selector", ())
        lines = (("row", digits["row"]), ("chunk", chunk))
        full = replace(self.fragment, layout=Layout(lines, layout.axes))
        return replace(self, fragment=full)

    @cached_property
    def tiles(self) -> int:
        """How many tiles share a set of words: 1, 2 or 4, one per selector."""
        sizes: dict[str, int] = self.fragment.layout.sizes
        return sizes.get("selector", 1)

    # ── one tile, or one per selector ───────────────────────────────────────

    def pack(self, matrix: ArrayLike, selector: int = 0, **selected: int) -> Words:
        """Words of all lanes for the codes (…, rows, chunks) of a tile.

        Lanes that the selector does not choose are zero.

        >>> import fragmenta as fm
        >>> e = fm.mma("m16n8k64", a="s4", sp="sp::ordered_metadata").metadata
        >>> e.pack(np.full((16, 8), 0b0111))
        Traceback (most recent call last):
        fragmenta.errors.BadMetadata: lane 0, nibble 0 (row 0, chunk 0): code 0111 \
names pair 3 before 1; ordered metadata names the lower one first; 127 more are illegal
        """
        codes = self.fragment._matrix(as_codes(matrix))
        chosen = self._selected(selector, selected)
        self._check(codes, chosen)
        return self.fragment.pack(codes, **chosen)

    def unpack(self, registers: ArrayLike, selector: int = 0, **selected: int) -> Array:
        """The codes that words hold for a selector; illegal codes are refused.

        >>> import fragmenta as fm
        >>> e = fm.mma("m16n8k64", a="s4", sp="sp").metadata
        >>> e.unpack(np.full((32, 1), 0xE4E4E444, np.uint32), selector=1)[15]
        array([ 4,  4,  4, 14,  4, 14,  4, 14], dtype=uint8)
        """
        chosen = self._selected(selector, selected)
        codes: Codes = self.fragment.unpack_bits(registers, **chosen)
        self._check(codes, chosen)
        return codes

    def pack_pair(self, *tiles: ArrayLike) -> Words:
        """One set of words for two or four tiles, one tile for each selector.

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
        codes = [self.fragment._matrix(as_codes(tile)) for tile in tiles]
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

        With ``shared``, the neighbouring tiles along k share a set of words: tile s
        of a set is read with selector s.  ``pad`` fills the edge with the code of an
        empty chunk.

        >>> import fragmenta as fm
        >>> e = fm.mma("m16n8k32", a="s8", sp="sp").metadata
        >>> codes = np.full((64, 64), 0b0100)
        >>> e.pack_tiles(codes).shape, e.pack_tiles(codes, shared=True).shape
        ((4, 8, 32, 1), (4, 4, 32, 1))
        """
        held = self.shared if shared else self
        size, empty = held.fragment.shape, self.granularity.empty
        codes = whole_tiles(as_codes(matrix), size, held.fragment.name, pad, empty)
        rows, chunks = size
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
    ) -> Array:
        """The codes of the whole matrix; ``shape`` removes the padding.

        >>> import fragmenta as fm
        >>> e = fm.mma("m16n8k32", a="s8", sp="sp").metadata
        >>> words = e.pack_tiles(np.full((20, 24), 0b0100), pad=True, selector=1)
        >>> e.unpack_tiles(words, (20, 24), selector=1).shape
        (20, 24)
        """
        held = self.shared if shared else self
        size = held.fragment.shape
        words = held.fragment.checked(registers, leading=2)
        tiles = held.unpack(words, selector).swapaxes(-3, -2)
        rows, chunks = np.multiply(words.shape[-4:-2], size).tolist()
        codes = tiles.reshape(*words.shape[:-4], rows, chunks)
        return cut_tiles(codes, size, shape)

    # ── decoding words ──────────────────────────────────────────────────────

    def decode(self, words: ArrayLike, *, lane: int = 0, warp: int = 0) -> list[Nibble]:
        """Every code of some words, in order; illegal codes say why.

        The words are those of ``lane`` and the lanes after it, continued in the
        next warps of a warpgroup.  The words of all selectors are decoded.

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
        if "W" in dict(self.fragment.layout.axes):
            axes["W"] = places // 32
        found = {
            name: np.broadcast_to(value, places.shape).tolist()
            for name, value in self.fragment.layout.element(**axes).items()
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
        warp = place // 32 if self.fragment.lanes > 32 else None
        return Nibble(
            warp,
            place % 32,
            nibble,
            selector,
            row,
            chunk,
            code,
            positions,
            columns,
            problem,
        )

    def _given_words(self, words: ArrayLike, first: int) -> list[int]:
        listed = np.ravel(np.asarray(words, dtype=object)).tolist()
        for word in listed:
            if not is_whole(word) or not 0 <= word < 1 << 32:
                shown = f"{word:#x}" if is_whole(word) else repr(word)
                raise BadMetadata(f"a metadata word has 32 bits; given {shown}")
        given = [int(word) for word in listed]
        if first + len(given) > self.fragment.lanes:
            raise ShapeError(
                f"{self.fragment.lanes} lanes hold metadata; {len(given)} words from "
                f"lane {first} on do not fit"
            )
        return given

    # ── checks ──────────────────────────────────────────────────────────────

    def _selected(self, selector: int, selected: dict[str, int]) -> dict[str, int]:
        if selected:
            self.fragment._selection(
                selected
            )  # there is one selector; this refuses others
        if self.fragment.selectors:
            return {"selector": selector}
        check_numbers(selector=selector)
        if selector != 0:
            raise ShapeError(f"selector {selector} is out of range; it is 0")
        return {}

    def _check(self, codes: Codes, chosen: dict[str, int]) -> None:
        """Refuse illegal codes; name the lane and nibble of the first."""
        self.fragment._selection(chosen)
        wrong = self.granularity.illegal(codes, self.ordered)
        if not wrong.any():
            return
        found = np.unravel_index(int(wrong.argmax()), wrong.shape)
        *batch, row, chunk = (int(i) for i in found)
        place = self.fragment.where(row, chunk, **chosen)
        warp = "" if place.warp is None else f"warp {place.warp}, "
        tile = f" of tile {batch}" if batch else ""
        where = (
            f"{warp}lane {place.lane}, nibble {place.bits[0] // 4} "
            f"(row {row}, chunk {chunk}{tile})"
        )
        code, count = int(codes[found]), int(wrong.sum())
        raise self.granularity.refusal(where, code, self.ordered, count)
