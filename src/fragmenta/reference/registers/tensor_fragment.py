"""Fragments in tensor memory: where the elements of an operand are.

Tensor memory has 128 lanes and 512 columns of 32-bit cells in each CTA.  An address is
``lane << 16 | column``.  A fragment in tensor memory has the axes P (CTA of the pair),
T (lane), C (column, counted from the address) and E (element in the cell)::

    row = T0 T1 T2 T3 T5 T6  col = C* | base = T4

``base`` is the half of each 32 lanes that is used; the lane of the address, 0 or 16,
chooses it.  Where the tile of an operand does not fill its cells, a :class:`Window`
says which part of the layout it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import (
    Array,
    as_array,
    batch_shape,
    check_numbers,
    is_whole,
)
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import AddressError, ShapeError, one_of
from fragmenta.reference.registers import expressions, notation
from fragmenta.reference.registers.fragment import Fragment
from fragmenta.reference.registers.layout import Index
from fragmenta.reference.registers.words import pack_words, unpack_words

LANES = 128
"""Lanes of tensor memory."""
COLUMNS = 512
"""Columns of tensor memory, 32 bits each."""
_HIGHEST = 1 << 16

Image = NDArray[np.uint32]


class TensorAddress(NamedTuple):
    """A place in tensor memory.

    >>> TensorAddress(lane=32, column=5).encode()
    2097157
    >>> TensorAddress.decode(2097157)
    TensorAddress(lane=32, column=5)
    """

    lane: int
    column: int

    def encode(self) -> int:
        """The 32-bit word that instructions take."""
        lane, column = TensorAddress.of(self)
        return lane << 16 | column

    @classmethod
    def decode(cls, word: int) -> TensorAddress:
        """The lane and the column that a word says; both may be out of range."""
        check_numbers(address=word)
        if not 0 <= word < 1 << 32:
            raise AddressError(f"an address has 32 bits; given {word:#x}")
        return cls(int(word) >> 16, int(word) & 0xFFFF)

    @classmethod
    def of(cls, address: int | TensorAddress) -> TensorAddress:
        """An address, given as itself or as its word.

        >>> TensorAddress.of(16 << 16)
        TensorAddress(lane=16, column=0)
        """
        if not isinstance(address, TensorAddress):
            return cls.decode(address)
        check_numbers(lane=address.lane, column=address.column)
        if not (0 <= address.lane < _HIGHEST and 0 <= address.column < _HIGHEST):
            raise AddressError(f"a lane and a column have 16 bits; given {address}")
        return cls(int(address.lane), int(address.column))

    def __str__(self) -> str:
        return f"lane {self.lane}, column {self.column}"


@dataclass(frozen=True)
class Cell:
    """Where one element is: lane, column and bits (lowest, highest), and the CTA.

    >>> print(Cell(lane=3, column=5, bits=(0, 15)))
    lane 3, column 5, bits 15:0
    """

    lane: int
    column: int
    bits: tuple[int, int]
    cta: int | None = None
    copies: tuple[Cell, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        cta = "" if self.cta is None else f"CTA {self.cta}, "
        low, high = self.bits
        return f"{cta}lane {self.lane}, column {self.column}, bits {high}:{low}"


class Window(NamedTuple):
    """The part of a coordinate of the layout that an operand has.

    Index i of the operand is ``first + i // part * padded + i % part``: it begins
    at ``first``, and every ``part`` indices are filled up to ``padded``.
    """

    size: int
    first: int = 0
    part: int = 0
    padded: int = 0

    @property
    def parts(self) -> bool:
        """Whether there are several parts, each of them filled up."""
        return 0 < self.part < self.size

    def at(self, index: Any) -> Any:
        """The index in the layout.

        >>> Window(size=48, part=24, padded=128).at(25)
        129
        """
        if not self.part:
            return self.first + index
        return self.first + index // self.part * self.padded + index % self.part

    def back(self, index: Any) -> Any:
        """The index in the operand, or -1 where the operand has none."""
        inside = index - self.first
        if not self.part:
            return np.where((inside >= 0) & (inside < self.size), inside, -1)
        outer, inner = np.divmod(inside, self.padded)
        found = outer * self.part + inner
        good = (inside >= 0) & (inner < self.part) & (found < self.size)
        return np.where(good, found, -1)


@dataclass(frozen=True, eq=False, repr=False)
class TensorFragment(Fragment):
    """One operand of one instruction, in tensor memory.

    >>> import fragmenta as fm
    >>> d = fm.tcgen05("m64n32k16", a="f16", d="f32").d
    >>> d
    <TensorFragment D: f32 64x32, row = T0 T1 T2 T3 T5 T6  col = C0 C1 C2 C3 C4 | base = T4>
    >>> print(d.where(17, 3))
    lane 33, column 3, bits 31:0
    >>> print(d.where(17, 3, address=16 << 16))
    lane 49, column 3, bits 31:0
    """  # noqa: E501 - a fragment is one line

    windows: tuple[Window, ...] = ()
    """One for each axis of :attr:`shape`; without any, the layout is all used."""
    skipped: int = 0
    """Columns from the address to the first cell."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns of the operand."""
        return tuple(each.size for each in self.windows) or self.layout.shape

    @cached_property
    def lanes(self) -> int:
        """Lanes of tensor memory over which it may be spread: 128."""
        return dict(self.layout.axes)["T"]

    @cached_property
    def columns(self) -> int:
        """Columns of tensor memory that it covers."""
        return dict(self.layout.axes)["C"]

    @property
    def registers(self) -> int:
        """Columns per lane: cells are to tensor memory what registers are to a lane."""
        return self.columns

    @cached_property
    def pair(self) -> bool:
        """Whether it is in the tensor memories of two CTAs."""
        return "P" in dict(self.layout.axes)

    @cached_property
    def selectors(self) -> tuple[str, ...]:
        """None: the address chooses the half of the lanes."""
        return ()

    @cached_property
    def base_lanes(self) -> tuple[int, ...]:
        """The lanes at which its address may point."""
        return (0, 16) if "base" in self.layout.free else (0,)

    # ── places ──────────────────────────────────────────────────────────────

    def where(  # type: ignore[override]
        self, *element: int, address: int | TensorAddress = 0
    ) -> Cell:
        """The cell of an element; further copies are in ``.copies``.

        >>> import fragmenta as fm
        >>> op = fm.tcgen05("m128n64k16", a="f16", d="f32", cta_group=2)
        >>> print(op.d.where(100, 40))
        CTA 1, lane 100, column 8, bits 31:0
        """
        at = self._address(address)
        if len(element) != len(self.shape):
            given = ", ".join(map(str, element))
            raise ShapeError(
                f"{self.name} is indexed by ({', '.join(self.layout.data)}), "
                f"sizes {self.shape}; given ({given})"
            )
        self._check_element(element)
        inside = [
            window.at(int(index))
            for window, index in zip(self._windows, element, strict=True)
        ]
        named = dict(zip(self.layout.data, inside, strict=True))
        found = self.layout.places(**named, **self._base(at))
        first, *rest = (self._cell(axes, at) for axes in found)
        return Cell(first.lane, first.column, first.bits, first.cta, tuple(rest))

    def _check_element(self, element: tuple[int, ...]) -> None:
        for name, index, size in zip(
            self.layout.data, element, self.shape, strict=True
        ):
            check_numbers(**{name: index})
            if not 0 <= index < size:
                hint = ""
                if size <= index < size * self.stored:
                    hint = "; it is stored without its zeros"
                raise ShapeError(
                    f"{name} {index} is out of range; {name} of {self.name} is 0 to "
                    f"{size - 1}{hint}"
                )

    def _cell(self, axes: dict[str, int], at: TensorAddress) -> Cell:
        low = axes.get("E", 0) * self.container.bits + self.container.shift
        column = at.column + self.skipped + axes["C"]
        bits = (low, low + self.dtype.bits - 1)
        return Cell(axes["T"], column, bits, axes.get("P"))

    def holds(  # type: ignore[override]
        self,
        lane: int,
        *,
        column: int | None = None,
        cta: int | None = None,
        address: int | TensorAddress = 0,
    ) -> list[tuple[int, ...]]:
        """The elements in a lane, by column, lowest bits first.

        >>> import fragmenta as fm
        >>> fm.tcgen05("m128n16k16", a="f16", d="f32").a.holds(5, column=1)
        [(5, 2), (5, 3)]
        """
        at = self._address(address)
        place: dict[str, ArrayLike] = {"T": self._lane(lane)}
        if self.pair:
            place["P"] = self._cta(cta)
        elif cta not in (None, 0):
            raise ShapeError(f"{self.name} is in one CTA: cta is 0, not {cta}")
        first = at.column + self.skipped
        if column is None:
            columns = np.arange(self.columns)
        else:
            check_numbers(column=column)
            if not first <= column < first + self.columns:
                raise ShapeError(
                    f"column {column} is out of range; {self.name} at {at} has columns "
                    f"{first} to {first + self.columns - 1}"
                )
            columns = np.array([column - first])
        place["C"] = columns.reshape(-1, 1)
        if "E" in dict(self.layout.axes):
            place["E"] = np.arange(self.elements)
        found = self.layout.element(**place)
        for name, value in self._base(at).items():
            if found[name] != value:
                return []
        shape = (columns.size, self.elements)
        lists = [
            np.broadcast_to(window.back(np.asarray(found[name])), shape).ravel()
            for window, name in zip(self._windows, self.layout.data, strict=True)
        ]
        inside = np.logical_and.reduce([each >= 0 for each in lists])
        return list(zip(*(each[inside].tolist() for each in lists), strict=True))

    # ── packing ─────────────────────────────────────────────────────────────

    def pack(  # type: ignore[override]
        self,
        matrix: ArrayLike,
        *,
        address: int | TensorAddress = 0,
        image: ArrayLike | None = None,
    ) -> Image:
        """An image of tensor memory with this operand in it: (…, 128, 512) words.

        If the operand is in two CTAs, it is (…, 2, 128, 512).  ``image`` is tensor
        memory before; it is zero if it is not given.  All copies are written.

        >>> import numpy as np, fragmenta as fm
        >>> d = fm.tcgen05("m128n16k16", a="f16", d="f32").d
        >>> image = d.pack(np.ones((128, 16), np.float32), address=8)
        >>> image.shape, hex(image[127, 23]), hex(image[127, 24])
        ((128, 512), '0x3f800000', '0x0')
        """
        array = self._matrix(matrix)
        bits = self.container.insert(self.dtype.encode(array))
        return self.place(bits, address=address, image=image)

    def place(
        self,
        slots: Array,
        *,
        address: int | TensorAddress = 0,
        image: ArrayLike | None = None,
    ) -> Image:
        """Like :meth:`pack`, from raw slots: the bits of each element's container."""
        batch = slots.shape[: slots.ndim - len(self.shape)]
        before = None if image is None else self._image(image)
        if before is not None:
            outer = before.shape[: before.ndim - len(self._memory)]
            batch = batch_shape(matrix=batch, image=outer)
        if before is None:
            whole = np.zeros((*batch, *self._memory), np.uint32)
        else:  # a copy, in one pass
            whole = np.array(
                np.broadcast_to(before, (*batch, *self._memory)), order="C"
            )
        width = self.container.bits
        flat = unpack_words(whole, width) if width < 8 else whole.view(f"u{width // 8}")
        flat = flat.reshape(prod(batch), -1)
        index = self.slots(address)
        values = np.broadcast_to(slots, (*batch, *self.shape)).reshape(prod(batch), -1)
        for copy in index:  # one, two, four or eight
            flat[:, copy] = values
        if width < 8:
            whole = pack_words(flat, width).reshape(whole.shape)
        return whole

    def unpack(  # type: ignore[override]
        self, image: ArrayLike, *, address: int | TensorAddress = 0
    ) -> Array:
        """The matrix in an image of tensor memory: the inverse of :meth:`pack`.

        Of several copies, the first is read.

        >>> import numpy as np, fragmenta as fm
        >>> a = fm.tcgen05("m128n16k32", a="e4m3", d="f32", cta_group=1).a
        >>> image = a.pack(np.eye(128, 32, dtype=a.dtype.storage), address=100)
        >>> float(a.unpack(image, address=100)[31, 31])
        1.0
        """
        return self.dtype.decode(self.unpack_bits(image, address=address))

    def unpack_bits(  # type: ignore[override]
        self, image: ArrayLike, *, address: int | TensorAddress = 0, copy: int = 0
    ) -> Array:
        """Like :meth:`unpack`, but returns the raw bits of each element."""
        words = self._image(image)
        batch = words.shape[: words.ndim - len(self._memory)]
        width = self.container.bits
        if width < 8:
            slots = unpack_words(words, width)
        else:
            slots = np.ascontiguousarray(words).view(f"u{width // 8}")
        flat = slots.reshape(*batch, prod(slots.shape[len(batch) :]))
        index = self.slots(address)[copy]
        bits = flat.take(index, axis=-1, mode="wrap").reshape(*batch, *self.shape)
        whole = self.container.width == self.container.bits
        return bits if whole else self.container.extract(bits)

    def cells(self, *, address: int | TensorAddress = 0) -> NDArray[np.bool_]:
        """Which cells it uses: (128, 512), or (2, 128, 512) for a pair.

        >>> import fragmenta as fm
        >>> used = fm.tcgen05("m64n32k16", a="f16", d="f32").d.cells()
        >>> used.sum(axis=0)[:33].tolist() == [64] * 32 + [0]
        True
        """
        used = np.zeros(prod(self._memory), bool)
        for copy in self.slots(address):
            used[copy // self.elements] = True
        return used.reshape(self._memory)

    # ── indices ─────────────────────────────────────────────────────────────

    def slots(self, address: int | TensorAddress = 0) -> Index:
        """The container of each element in a flat image, one row for each copy.

        >>> import fragmenta as fm
        >>> fm.tcgen05("m128n16k16", a="f16", d="f32").d.slots(8)[0, 14:18]
        array([ 22,  23, 520, 521])
        """
        return self._index(self._address(address))

    @cached_property
    def _windows(self) -> tuple[Window, ...]:
        return self.windows or tuple(Window(size) for size in self.layout.shape)

    @cached_property
    def _memory(self) -> tuple[int, ...]:
        """The shape of an image."""
        return (2, LANES, COLUMNS) if self.pair else (LANES, COLUMNS)

    def _index(self, at: TensorAddress) -> Index:
        """The slot of each element in a flat image, one row for each copy."""
        index = self._slots[self.base_lanes.index(at.lane)]
        return index + (at.column + self.skipped) * self.elements

    @cached_property
    def _slots(self) -> tuple[Index, ...]:
        """The slots at column 0, for each lane that the address may have."""
        return tuple(self._slots_of(TensorAddress(lane, 0)) for lane in self.base_lanes)

    def _slots_of(self, at: TensorAddress) -> Index:
        layout = self.layout
        pinned = self._base(at)
        choices: list[Any] = []
        for name, _ in layout.coordinates:
            if name in layout.data:
                window = self._windows[layout.data.index(name)]
                choices.append(window.at(np.arange(window.size)))
            elif name in pinned:
                choices.append(np.array([pinned[name]]))
            else:
                choices.append(np.arange(layout.sizes[name]))
        places = layout.place_index()[np.ix_(*choices)]
        order = [name for name, _ in layout.coordinates]
        axes = [order.index(name) for name in (*layout.free, *layout.data)]
        flat = places.transpose(axes).reshape(-1, prod(self.shape))
        sizes = dict(layout.axes)
        parts = np.unravel_index(flat, layout.place_shape)
        by_axis = dict(zip(sizes, parts, strict=True))
        lane = by_axis["T"] + LANES * by_axis.get("P", np.zeros_like(flat))
        slot = (lane * COLUMNS + by_axis["C"]) * self.elements
        return np.asarray(slot + by_axis.get("E", 0), dtype=np.intp)

    def _part(self) -> expressions.Storage:
        windows = dict(zip(self.layout.data, self.windows, strict=False))
        return super()._part()._replace(windows=windows, skipped=self.skipped)

    def _base(self, at: TensorAddress) -> dict[str, int]:
        return {"base": at.lane // 16} if "base" in self.layout.free else {}

    # ── checks ──────────────────────────────────────────────────────────────

    def _address(self, address: int | TensorAddress) -> TensorAddress:
        at = TensorAddress.of(address)
        if at.lane not in self.base_lanes:
            raise AddressError(
                f"{self.name} begins at lane {one_of(self.base_lanes)}; the address "
                f"{at.encode():#x} has lane {at.lane}"
            )
        last = at.column + self.skipped + self.columns
        if last > COLUMNS:
            raise AddressError(
                f"{self.name} has {self.columns} columns; from column "
                f"{at.column + self.skipped} on they do not fit in {COLUMNS}"
            )
        return at

    def _image(self, image: ArrayLike) -> Image:
        words = as_array(image)
        tail = self._memory
        if words.shape[max(0, words.ndim - len(tail)) :] != tail:
            what = "two CTAs" if self.pair else "one CTA"
            shape = ", ".join(map(str, tail))
            raise ShapeError(
                f"{self.name} is in tensor memory of {what}: (…, {shape}); "
                f"given shape {words.shape}"
            )
        if words.dtype.kind not in "iu" or words.dtype.itemsize != 4:
            raise ShapeError(f"tensor memory is uint32; given {words.dtype}")
        return np.ascontiguousarray(words).view(np.uint32)

    def _lane(self, lane: int) -> int:
        check_numbers(lane=lane)
        if not 0 <= lane < LANES:
            raise ShapeError(f"lane {lane} is out of range; lanes are 0 to {LANES - 1}")
        return lane

    def _cta(self, cta: int | None) -> int:
        if cta is not None and (not is_whole(cta) or cta not in (0, 1)):
            raise ShapeError(f"cta {cta!r} is out of range; a pair has CTAs 0 and 1")
        return cta or 0

    # ── other notations ─────────────────────────────────────────────────────

    def formula(self) -> str:
        """Which element a cell holds, and which cell an element is in.

        >>> import fragmenta as fm
        >>> print(fm.tcgen05("m64n32k16", a="f16", d="f32").d.formula())
        row    = (lane & 0xf) + ((lane >> 5) * 16)
        col    = column
        base   = ((lane >> 4) & 0x1)
        <BLANKLINE>
        lane   = (row & 0xf) + (base * 16) + ((row >> 4) * 32)
        column = col
        """
        return notation.cells_formula(self.layout, self.container.bits)

    def to_cute(self) -> str:
        """The map from (lane, cell) to the element, in CuTe's notation.

        The lanes of the second CTA follow those of the first one.

        >>> import fragmenta as fm
        >>> fm.tcgen05("m64n32k16", a="f16", d="f32").d.to_cute()
        '((16,2,4),32):((1,0,16),64)'
        """
        return notation.cute(self.layout, self.major, "TP", "EC")

    def to_linear_layout(self) -> notation.LinearLayout:
        """Triton's linear-layout bases, by column, row (lane) and block (CTA).

        >>> import fragmenta as fm
        >>> fm.tcgen05("m64n32k16", a="f16", d="f32").d.to_linear_layout()["row"]
        [(1, 0), (2, 0), (4, 0), (8, 0), (0, 0), (16, 0), (32, 0)]
        """
        names = (("col", "EC"), ("row", "T"), ("block", "P"))
        return notation.linear_layout(self.layout, names)

    def rows(self) -> Iterator[dict[str, int]]:
        """Every cell as a flat record, in the order of lanes and columns.

        >>> import fragmenta as fm
        >>> next(fm.tcgen05("m128n16k16", a="f16", d="f32").a.rows())
        {'lane': 0, 'column': 0, 'low': 0, 'high': 15, 'row': 0, 'col': 0}
        """
        records = self.held()
        columns = [column.tolist() for column in records.values()]
        for row in zip(*columns, strict=True):
            yield dict(zip(records, row, strict=True))

    def held(self) -> dict[str, Index]:
        """The same as arrays, one for each name."""
        axes = {"P": "cta", "T": "lane", "C": "column"}
        layout = self.layout
        places = np.indices(layout.place_shape).reshape(len(layout.axes), -1)
        by_axis = dict(zip((a for a, _ in layout.axes), places, strict=True))
        low = by_axis.get("E", np.zeros_like(places[0])) * self.container.bits
        low = low + self.container.shift
        grid = {name: each.ravel() for name, each in layout.grid().items()}
        inside = np.ones(low.shape, bool)
        for window, name in zip(self._windows, layout.data, strict=True):
            grid[name] = window.back(grid[name])
            inside &= grid[name] >= 0
        records = {axes[a]: by_axis[a] for a, _ in layout.axes if a in axes}
        records["column"] = records["column"] + self.skipped
        records |= {"low": low, "high": low + self.dtype.bits - 1, **grid}
        return {name: np.asarray(column[inside]) for name, column in records.items()}

    def pack_tiles(self, matrix: ArrayLike, *, pad: bool = False) -> Image:
        """Refused: one image of tensor memory holds the tiles where the kernel says."""
        raise ShapeError(
            f"{self.name} is in tensor memory: pack one tile at a time, with its "
            "address"
        )

    def unpack_tiles(
        self, registers: ArrayLike, shape: tuple[int, int] | None = None
    ) -> Array:
        """Refused, as :meth:`pack_tiles`."""
        raise ShapeError(
            f"{self.name} is in tensor memory: unpack one tile at a time, with its "
            "address"
        )

    def __repr__(self) -> str:
        size = "x".join(map(str, self.shape))
        return f"<TensorFragment {self.name}: {self.dtype} {size}, {self.layout}>"
