"""Fragments: where the elements of an operand are in registers.

A fragment is one operand of one instruction.  It has the operand's name in the
manual, an element type, and the layout of the operand over lanes and registers.
It looks up places, packs matrices into registers and unpacks them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from functools import cached_property, lru_cache
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import Array, as_array, check_numbers, is_whole
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.arrays.once import once_property
from fragmenta.base.arrays.record import Record
from fragmenta.base.arrays.threads import share_out
from fragmenta.errors import ShapeError
from fragmenta.reference.registers import expressions, notation
from fragmenta.reference.registers.dtype import DType
from fragmenta.reference.registers.layout import Index, Layout
from fragmenta.reference.registers.tiles import cut_tiles, whole_tiles
from fragmenta.reference.registers.words import (
    Container,
    encode_words,
    pack_words,
    unpack_words,
)

Words = NDArray[np.uint32] | NDArray[np.uint64]

# Elements are moved in units of at most so many bytes.
_WIDEST = 8

# Moving a unit takes as long as so many exact products.
_PRODUCTS = 8


@dataclass(frozen=True)
class Place:
    """Where one element is: lane, register and bits (lowest, highest)."""

    lane: int
    register: int
    bits: tuple[int, int]
    warp: int | None = None
    copies: tuple[Place, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        warp = "" if self.warp is None else f"warp {self.warp}, "
        low, high = self.bits
        bits = f"bits {high}:{low}" if high > low else f"bit {low}"
        return f"{warp}lane {self.lane}, register {self.register}, {bits}"


@dataclass(frozen=True, eq=False, repr=False)
class Fragment(Record):
    """One operand of one instruction, spread over lanes and registers.

    >>> from fragmenta.reference.isa.building import mma
    >>> mma("m16n8k64", a="s4").a
    <Fragment A: s4 16x64, row = L2 L3 L4 R0  col = E0 E1 E2 L0 L1 R1>
    """

    name: str
    dtype: DType
    layout: Layout
    container: Container
    major: tuple[str, ...] = ("row", "col")
    """The coordinates in the order in which CuTe numbers them, fastest first."""
    stored: int = 1
    """Logical columns per stored column: 2 for a sparse A, else 1."""
    observed: str = ""
    """The GPU on which the layout was observed, if no manual specifies it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns of the matrix, after the number of matrices if several."""
        return self.layout.shape

    @cached_property
    def lanes(self) -> int:
        """Lanes that hold the fragment: 32, or 128 for a warpgroup."""
        sizes = dict(self.layout.axes)
        return sizes.get("W", 1) * sizes["L"]

    @cached_property
    def registers(self) -> int:
        """Registers per lane."""
        return dict(self.layout.axes)["R"]

    @cached_property
    def elements(self) -> int:
        """Elements per register."""
        return dict(self.layout.axes).get("E", 1)

    @property
    def register_bits(self) -> int:
        """Width of one register: 64 for f64, else 32."""
        return max(32, self.container.bits)

    @property
    def letter(self) -> str:
        """The name of elements: a, b, c or d; e of metadata, sa and sb of scales."""
        own = {"metadata": "e", "scale_A": "sa", "scale_B": "sb"}
        return own.get(self.name, self.name[-1].lower())

    @cached_property
    def selectors(self) -> tuple[str, ...]:
        """Coordinates that choose which places are read; copies are not among them."""
        return tuple(name for name in self.layout.free if name != "copy")

    # ── places ──────────────────────────────────────────────────────────────

    def where(self, *element: int, **selected: int) -> Place:
        """The place of an element; further copies are in ``.copies``.

        There is one index for each axis of :attr:`shape`.  A selector may be given
        by name (``selector=1``); otherwise the places of all selectors are found.

        >>> import fragmenta as fm
        >>> op = fm.instruction("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32")
        >>> print(op.b.where(40, 5))
        lane 21, register 1, bits 3:0
        """
        if len(element) != len(self.shape):
            given = ", ".join(map(str, element))
            raise ShapeError(
                f"{self.name} is indexed by ({', '.join(self.layout.data)}), "
                f"sizes {self.shape}; given ({given})"
            )
        stored, column = self.shape[-1], element[-1]
        if is_whole(column) and stored <= column < stored * self.stored:
            raise ShapeError(
                f"{self.name} is stored without its zeros, in columns 0 to "
                f"{stored - 1}; given column {column}; metadata says which column of "
                "the whole matrix each of them is"
            )
        named = dict(zip(self.layout.data, element, strict=True))
        first, *rest = map(self._place, self.layout.places(**named, **selected))
        return Place(
            first.lane, first.register, first.bits, first.warp, copies=tuple(rest)
        )

    def _place(self, axes: dict[str, int]) -> Place:
        low = axes.get("E", 0) * self.container.bits + self.container.shift
        return Place(
            axes["L"], axes["R"], (low, low + self.dtype.bits - 1), axes.get("W")
        )

    def holds(
        self, lane: int, *, register: int | None = None, warp: int | None = None
    ) -> list[tuple[int, ...]]:
        """The elements of a lane, in register order, lowest bits first.

        >>> import fragmenta as fm
        >>> op = fm.instruction("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32")
        >>> op.c.holds(lane=13)
        [(3, 2), (3, 3), (11, 2), (11, 3)]
        """
        check_lane(lane, 0 if warp is None else warp)
        place: dict[str, ArrayLike] = {"L": lane}
        sizes = dict(self.layout.axes)
        if "W" in sizes:
            place["W"] = 0 if warp is None else warp
        elif warp not in (None, 0):
            raise ShapeError(f"{self.name} is in one warp: warp is 0, not {warp}")
        if register is not None:
            self._check_register(register)
        register_axis = np.arange(self.registers) if register is None else [register]
        place["R"] = np.reshape(register_axis, (-1, 1))
        if "E" in sizes:
            place["E"] = np.arange(self.elements)
        found = self.layout.element(**place)
        shape = (np.size(register_axis), self.elements)
        columns = [np.broadcast_to(found[name], shape) for name in self.layout.data]
        return list(zip(*(column.ravel().tolist() for column in columns), strict=True))

    def _check_register(self, register: int) -> None:
        check_numbers(register=register)
        if not 0 <= register < self.registers:
            have = f"registers 0 to {self.registers - 1}"
            have = have if self.registers > 1 else "register 0 only"
            raise ShapeError(
                f"register {register} is out of range; {self.name} has {have}"
            )

    # ── packing ─────────────────────────────────────────────────────────────

    def pack(self, matrix: ArrayLike, **selected: int) -> Words:
        """Registers that hold a matrix: (…, lanes, registers).

        The last axes of ``matrix`` are :attr:`shape`; any batch axes come first.
        If a selector (``selector=``, default 0) chooses the lanes that are read,
        the other lanes are zero.  All copies of an element are written.

        >>> import numpy as np, fragmenta as fm
        >>> op = fm.instruction("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32")
        >>> op.a.pack(np.ones((16, 64), np.int8))[0]
        array([286331153, 286331153, 286331153, 286331153], dtype=uint32)
        """
        array = self._matrix(matrix)
        mask = self._selection(selected)
        order, words = self._words(array)
        if words is None or mask is not None:
            bits = self.container.insert(self.dtype.encode(array))
            places = reordered(bits, len(self.shape), self.layout.gather())
            if mask is not None:
                places = np.where(mask, places, places.dtype.type(0))
            packed = pack_words(places, self.container.bits, self.register_bits)
            packed = packed[..., 0]
        else:
            packed = reordered(words, len(order), self._word_gather(order))
        batch = array.shape[: array.ndim - len(self.shape)]
        return packed.reshape(*batch, self.lanes, self.registers)

    def unpack(self, registers: ArrayLike, **selected: int) -> Array:
        """The matrix that registers hold: the inverse of :meth:`pack`.

        >>> import numpy as np, fragmenta as fm
        >>> op = fm.instruction("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32")
        >>> C = np.arange(128, dtype=np.int32).reshape(16, 8)
        >>> bool((op.c.unpack(op.c.pack(C)) == C).all())
        True
        """
        return self.dtype.decode(self.unpack_bits(registers, **selected))

    def unpack_bits(self, registers: ArrayLike, **selected: int) -> Array:
        """Like :meth:`unpack`, but returns the raw bits of each element."""
        words = self.checked(registers)
        self._selection(selected)
        batch = words.shape[:-2]
        if self.container.bits >= 8:  # whole bytes need no unpacking
            slots = words.view(f"u{self.container.bits // 8}")
        else:
            slots = unpack_words(words, self.container.bits)
        flat = slots.reshape(*batch, prod(slots.shape[len(batch) :]))
        bits = reordered(flat, 1, self._scatter(selected))
        bits = bits.reshape(*batch, *self.shape)
        whole = self.container.width == self.container.bits
        return bits if whole else self.container.extract(bits)

    def pack_tiles(self, matrix: ArrayLike, *, pad: bool = False) -> Words:
        """All tiles of a full-size matrix: (…, M/m, K/k, lanes, registers).

        The matrix must be a whole number of tiles; if ``pad`` is set, it is filled
        up with zeros.

        >>> import numpy as np, fragmenta as fm
        >>> op = fm.instruction("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32")
        >>> op.a.pack_tiles(np.ones((64, 256), np.int8)).shape
        (4, 4, 32, 4)
        """
        array = self._whole(matrix, pad)
        rows, cols = (s // t for s, t in zip(array.shape[-2:], self.shape, strict=True))
        if not array.size:
            self.dtype.encode(array)  # refuses a wrong type in an empty matrix, too
            shape = (*array.shape[:-2], rows, cols, self.lanes, self.registers)
            return np.zeros(shape, f"u{self.register_bits // 8}")
        order, words = self._words(array)
        if words is None:
            size = (rows, self.shape[0], cols, self.shape[1])
            tiled = array.reshape(*array.shape[:-2], *size)
            return self.pack(tiled.swapaxes(-3, -2))
        # One strip of tiles at a time: the index of a strip fits in the cache, and
        # all strips use the same index.
        outer, inner = (rows, cols) if order == self.layout.data else (cols, rows)
        index = self._word_gather(order, inner)
        each = prod(words.shape[-2:]) // max(1, outer)
        strips = words.reshape(*words.shape[:-2], outer, each)
        packed = reordered(strips, 1, index)
        shape = (*packed.shape[: strips.ndim - 1], inner, self.lanes, self.registers)
        packed = packed.reshape(shape)
        if order != self.layout.data:
            packed = np.ascontiguousarray(packed.swapaxes(-4, -3))
        return packed

    def unpack_tiles(
        self, registers: ArrayLike, shape: tuple[int, int] | None = None
    ) -> Array:
        """The full-size matrix: the inverse of :meth:`pack_tiles`.

        ``shape`` removes the padding.

        >>> import numpy as np, fragmenta as fm
        >>> op = fm.instruction("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32")
        >>> C = np.arange(30 * 20, dtype=np.int32).reshape(30, 20)
        >>> tiles = op.c.pack_tiles(C, pad=True)
        >>> bool((op.c.unpack_tiles(tiles, (30, 20)) == C).all())
        True
        """
        words = self.checked(registers, leading=2)
        tiles = self.unpack(words).swapaxes(-3, -2)
        rows, cols = words.shape[-4] * self.shape[0], words.shape[-3] * self.shape[1]
        matrix = tiles.reshape(*words.shape[:-4], rows, cols)
        return cut_tiles(matrix, self.shape, shape)

    def _words(self, array: Array) -> tuple[tuple[str, ...], Words | None]:
        """The matrix in words: the elements of each register joined.

        Moving words is faster than moving elements.  It is possible if the
        elements of a register are neighbours in the matrix.  The coordinate along
        which they are neighbours becomes the last axis.
        """
        run = self.layout.low_run("E") if "E" in dict(self.layout.axes) else None
        data = self.layout.data
        if len(data) != 2 or (run is None and self.elements > 1):
            return data, None
        if run == data[0] and self.elements > 1:
            data, array = data[::-1], np.ascontiguousarray(array.swapaxes(-1, -2))
        words = encode_words(array, self.dtype, self.container)
        return data, words

    def _scatter(self, selected: dict[str, int]) -> Index:
        """Where each element is read from; cached, because many calls need it."""
        key = tuple(sorted(selected.items()))
        found = self._scatters.get(key)
        if found is None:
            made = self.layout.scatter(**selected).ravel()
            found = self._scatters.setdefault(key, made)
        return found

    @once_property
    def _scatters(self) -> dict[tuple[tuple[str, int], ...], Index]:
        return {}

    def _word_gather(self, order: tuple[str, ...], tiles: int = 1) -> Index:
        return _word_gather(self.layout, order, tiles)

    def _selection(self, selected: dict[str, int]) -> NDArray[np.bool_] | None:
        """Which places are read, or None if all are."""
        unknown = [name for name in selected if name not in self.selectors]
        if unknown:
            known = ", ".join(self.selectors)
            have = f"the selectors {known}" if known else "no selectors"
            raise ShapeError(f"{self.name} has {have}; given {unknown[0]}")
        if not self.selectors:
            return None
        grid = self.layout.grid()
        mask = np.ones(self.layout.place_shape, dtype=bool)
        for name in self.selectors:
            value, size = selected.get(name, 0), self.layout.sizes[name]
            allowed = f"0 to {size - 1}" if size > 1 else "0"
            if not is_whole(value):
                raise ShapeError(
                    f"{name} is a whole number, {allowed}; given {value!r}"
                )
            if not 0 <= value < size:
                raise ShapeError(f"{name} {value} is out of range; it is {allowed}")
            mask &= grid[name] == value
        return mask

    def _matrix(self, matrix: ArrayLike) -> Array:
        if hasattr(matrix, "indices") and hasattr(matrix, "values"):
            raise ShapeError(
                "a compressed matrix is packed in two parts: its .values with op.a, "
                "its .indices with op.metadata"
            )
        array = as_array(matrix)
        if array.shape[max(0, array.ndim - len(self.shape)) :] != self.shape:
            wanted = "x".join(map(str, self.shape))
            hint = "; it is stored without its zeros: see compress" * (self.stored > 1)
            raise ShapeError(
                f"{self.name} takes matrices of {wanted} {self.dtype} "
                f"({', '.join(self.layout.data)}); given shape {array.shape}{hint}"
            )
        return array

    def _whole(self, matrix: ArrayLike, pad: bool) -> Array:
        array = as_array(matrix)
        if len(self.shape) != 2 or self.selectors:
            raise ShapeError(f"{self.name} has no tiles; pack one at a time with pack")
        return whole_tiles(array, self.shape, self.name, pad)

    def checked(self, registers: ArrayLike, leading: int = 0) -> Words:
        """Registers of the fragment as an array; others are refused.

        >>> import numpy as np, fragmenta as fm
        >>> a = fm.mma("m16n8k16", a="f16", d="f32").a
        >>> a.checked(np.zeros((32, 2), np.uint32))
        Traceback (most recent call last):
        fragmenta.errors.ShapeError: A is in registers of shape (…, 32 lanes, 4); \
given shape (32, 2)
        """
        words = as_array(registers)
        wanted = np.dtype(f"uint{self.register_bits}")
        tail = (self.lanes, self.registers)
        if words.shape[-2:] != tail or words.ndim < 2 + leading:
            before = "…, " + "tiles, tiles, " * (leading // 2)
            raise ShapeError(
                f"{self.name} is in registers of shape ({before}{tail[0]} lanes, "
                f"{tail[1]}); given shape {words.shape}"
            )
        if words.dtype.kind not in "iu" or words.dtype.itemsize != wanted.itemsize:
            raise ShapeError(f"registers are {wanted}; given {words.dtype}")
        return np.ascontiguousarray(words).view(wanted)

    # ── other notations ─────────────────────────────────────────────────────

    def formula(self) -> str:
        """The row and column of element i, as the PTX manual writes them.

        For a sparse A, ``col`` is the stored column.  In the whole matrix, its
        column is one of firstcol to lastcol; metadata says which.

        >>> import fragmenta as fm
        >>> op = fm.instruction("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32")
        >>> print(op.c.formula())
        groupID           = %laneid >> 2
        threadID_in_group = %laneid % 4
        <BLANKLINE>
        row = groupID                              for ci where i < 2
              groupID + 8                          for ci where i >= 2
        col = (threadID_in_group * 2) + (i & 0x1)
        """
        return str(notation.formula(self.layout, self.letter, self.stored))

    def to_cuda(
        self,
        direction: expressions.Direction = "holds",
        *,
        language: expressions.Language = "cuda",
        **names: str | int,
    ) -> expressions.Expressions:
        """Index expressions of CUDA C++, or of Python: :meth:`Layout.to_cuda`.

        ``"holds"`` gives the element at a place, ``"where"`` the place of an element.
        ``"where"`` also gives ``bit``, the lowest bit of the element in its register.
        In tensor memory, columns are counted from the address.  If cells hold parts
        of no element, ``"holds"`` also gives ``held``: whether there is one.

        >>> import fragmenta as fm
        >>> a = fm.mma("m16n8k64", a="s4").a
        >>> print(a.to_cuda())
        int row = (lane >> 2) + 8 * (reg & 1);
        int col = 8 * (lane & 3) + 32 * (reg >> 1) + element;
        >>> print(a.to_cuda("where", language="python"))
        lane = ((col >> 3) & 3) + 4 * (row & 7)
        register = (row >> 3) + 2 * (col >> 5)
        element = col & 7
        bit = 4 * (col & 7)
        >>> d = fm.tcgen05("m64n32k16", a="f16", d="f32").d
        >>> print(d.to_cuda("where", base=0))
        int lane = (row & 15) + 32 * (row >> 4);
        int column = col;
        """
        return expressions.write(self.layout, direction, language, names, self._part())

    def _part(self) -> expressions.Storage:
        """What the layout does not say."""
        return expressions.Storage(self.container.bits, self.container.shift)

    def to_cute(self) -> str:
        """The thread-value layout in CuTe's notation, ``shape:stride``.

        >>> import fragmenta as fm
        >>> fm.mma("m16n8k16", a="f16", d="f32").a.to_cute()
        '((4,8),(2,2,2)):((32,1),(16,8,128))'
        """
        return notation.cute(self.layout, self.major)

    def to_linear_layout(self) -> notation.LinearLayout:
        """Triton's linear-layout bases, by register, lane and warp.

        >>> import fragmenta as fm
        >>> fm.mma("m16n8k16", a="f16", d="f32").c.to_linear_layout()["lane"]
        [(0, 2), (0, 4), (1, 0), (2, 0), (4, 0)]
        """
        return notation.linear_layout(self.layout)

    def rows(self) -> Iterator[dict[str, int]]:
        """Every place as a flat record, in lane and register order.

        >>> import fragmenta as fm
        >>> next(fm.mma("m16n8k16", a="f16", d="f32").a.rows())
        {'lane': 0, 'register': 0, 'low': 0, 'high': 15, 'row': 0, 'col': 0}
        """
        axes = {"W": "warp", "L": "lane", "R": "register"}
        names = [axes[a] for a, _ in self.layout.axes if a in axes]
        places = np.indices(self.layout.place_shape).reshape(len(self.layout.axes), -1)
        by_axis = dict(zip((a for a, _ in self.layout.axes), places, strict=True))
        low = by_axis.get("E", np.zeros_like(places[0])) * self.container.bits
        low = low + self.container.shift
        columns = [by_axis[a] for a, _ in self.layout.axes if a in axes]
        columns += [low, low + self.dtype.bits - 1]
        columns += [grid.ravel() for grid in self.layout.grid().values()]
        names += ["low", "high", *(name for name, _ in self.layout.coordinates)]
        for row in zip(*(column.tolist() for column in columns), strict=True):
            yield dict(zip(names, row, strict=True))

    def __repr__(self) -> str:
        size = "x".join(map(str, self.shape))
        return f"<Fragment {self.name}: {self.dtype} {size}, {self.layout}>"


def reordered(array: Array, axes: int, index: Index) -> Array:
    """Reorder the last axes by a flat index of the same elements.

    >>> reordered(np.uint16([[1, 2], [3, 4]]), 1, np.array([1, 0]))
    array([[2, 1],
           [4, 3]], dtype=uint16)
    """
    batch = array.shape[: array.ndim - axes]
    size = prod(array.shape[len(batch) :])
    flat = np.ascontiguousarray(array).reshape(prod(batch), size)
    order = index.ravel()
    moved = np.empty((len(flat), order.size), flat.dtype)
    width, places = in_runs(order, size, flat.dtype.itemsize)
    source, to = flat, moved
    if width > flat.dtype.itemsize:
        source, to = flat.view(f"u{width}"), moved.view(f"u{width}")

    def move(first: int, last: int) -> None:
        # The index is always in range; "wrap" skips NumPy's slow check.
        rows = slice(first, last)
        np.take(source[rows], places, axis=1, out=to[rows], mode="wrap")

    # np.take releases the GIL, so many fragments use every core.
    share_out(move, len(to), to.size * _PRODUCTS)
    return moved.reshape(*batch, *index.shape)


def in_runs(order: Index, size: int, width: int) -> tuple[int, Index]:
    """The same order of wider units, if neighbours stay neighbours.

    ``order`` has places of units of so many bytes among ``size`` of them.  The result
    is the width of the wider units, and their places.

    >>> in_runs(np.array([2, 3, 0, 1]), 4, 2)
    (4, array([1, 0]))
    """
    while (
        width < _WIDEST
        and order.size % 2 == size % 2 == 0
        and (order[::2] % 2 == 0).all()
        and (order[1::2] == order[::2] + 1).all()
    ):
        width, size, order = 2 * width, size // 2, order[::2] // 2
    return width, order


@lru_cache(maxsize=256)
def _word_gather(layout: Layout, order: tuple[str, ...], tiles: int) -> Index:
    """The index of the words of a strip of tiles, in register order."""
    words = layout.without("E") if "E" in dict(layout.axes) else layout
    return words.tile(**{order[-1]: tiles}).gather(order)


def check_lane(lane: int, warp: int = 0, warps: int = 4) -> None:
    """Refuse lanes outside a warp and warps outside a warpgroup.

    >>> check_lane(33)
    Traceback (most recent call last):
    fragmenta.errors.ShapeError: lane 33 is out of range; lanes are 0 to 31; that is \
lane 1 of warp 1
    """
    check_numbers(lane=lane, warp=warp)
    if not 0 <= lane < 32:
        hint = f"; that is lane {lane % 32} of warp {lane // 32}" if lane > 0 else ""
        raise ShapeError(f"lane {lane} is out of range; lanes are 0 to 31{hint}")
    if not 0 <= warp < warps:
        have = f"warps are 0 to {warps - 1}" if warps > 1 else "there is one warp, 0"
        raise ShapeError(f"warp {warp} is out of range; {have}")
