"""Layouts: lines of digits that say which lane and register hold which element.

A *place* has one value for each axis.  An axis is named by one capital letter, or by
a word without digits.  A register fragment has the axes W (warp), L (lane),
R (register) and E (element in the register), one in tensor memory P (CTA), T (lane),
C (column) and E.
An *element* has one value for each coordinate, such as row and col.  Every digit of a
coordinate is equal to one digit of the place.  So a layout is one line that lists
the digits of each coordinate, least significant first::

    row = L2 L3 L4 R0  col = E* L0 L1 R1*

``L2`` is bit 2 of axis L.  ``R1*`` is everything of axis R from bit 1 on.  It is
one digit, whose size need not be a power of two; if no bits are left, there is no
digit.  ``R1*3`` has three values, and ``R/3*2`` has two, in steps of three.  ``I`` is
E and R joined (``i = register * elements + element``, the index in the PTX manual).
So ``I0`` is E0 if a register holds several elements, and R0 if it holds one.

Coordinates after a ``|`` are *free*: they do not change which element is held.
Examples are a copy number, or a selector that chooses the lanes that are read::

    row = L2 L3 L4 L0  chunk = E0 E1 E2 | selector = L1

A digit may be the XOR of several bits of the place.  This is how a swizzle of shared
memory is written: bits 4 to 6 of an address, each XORed with the bit three above it::

    address = A0 A1 A2 A3 A4^A7 A5^A8 A6^A9 A7*

A line without XOR must use every digit of every axis exactly once.  With XOR, every bit
of the place must follow from the bits of the element.  Other lines are refused.  So
each layout is a bijection between places and elements with free coordinates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import as_array, batch_shape, is_whole
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import LayoutError, ShapeError, one_of, shortened
from fragmenta.reference.registers import expressions
from fragmenta.reference.registers.expressions import XorSum

Index = NDArray[np.intp]

_TOKEN = re.compile(r"([A-Za-z_]+)(?:(\d*)(\*?)(\d*)|/(\d+)\*(\d+))$", re.ASCII)
# A name begins at the beginning of a word: searching in a long word stays fast.
_ASSIGNMENT = re.compile(
    r"(?<!\w)(\w+)\s*=\s*"
    r"((?:(?:[A-Za-z_]+[\d*/]*(?:\^[A-Za-z_]+[\d*/]*)*|0)(?!\w|\s*=)\s*)*)"
)
LONGEST = 4096
"""The most characters that a line may have; the longest in the tables has about 80."""
_JOINED = {"I": ("E", "R")}


class Digit(NamedTuple):
    """``size`` consecutive values of one axis, in steps of ``stride``.

    ``xor`` are bits that this one is XORed with; it then is a bit, too.
    """

    axis: str
    stride: int
    size: int
    xor: tuple[Digit, ...] = ()

    @property
    def terms(self) -> tuple[Digit, ...]:
        """The digits of the place of which this one is the XOR; often one, itself."""
        return (self._replace(xor=()), *self.xor) if self.xor else (self,)

    def __str__(self) -> str:
        if self.xor:
            return "^".join(map(str, self.terms))
        position = self.stride.bit_length() - 1
        if self.stride != 1 << position:
            return f"{self.axis}/{self.stride}*{self.size}"
        if self.size == 2:
            return f"{self.axis}{position}"
        return f"{self.axis}{position}*{self.size}"

    def bits(self) -> list[Digit]:
        """This digit as single bits, if its size is a power of two."""
        if self.xor or self.size & (self.size - 1):
            return [self]
        count = self.size.bit_length() - 1
        return [Digit(self.axis, self.stride << bit, 2) for bit in range(count)]


Digits = tuple[Digit, ...]


@dataclass(frozen=True)
class Layout:
    """A bijection between places and elements, made of digits.

    >>> layout = Layout.parse("row = L2 L3 L4 R0  col = E* L0 L1", L=32, R=2, E=4)
    >>> layout
    Layout('row = L2 L3 L4 R0  col = E0 E1 L0 L1', L=32, R=2, E=4)
    >>> layout.element(L=13, R=1, E=2)
    {'row': 11, 'col': 6}
    >>> layout.places(row=11, col=6)
    [{'L': 13, 'R': 1, 'E': 2}]
    """

    coordinates: tuple[tuple[str, Digits], ...]
    axes: tuple[tuple[str, int], ...]
    free: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, digits in self.coordinates:
            _check_xor(name, digits)

    @classmethod
    def parse(cls, line: str, **sizes: int) -> Layout:
        """Read one line; ``sizes`` gives each axis its size, outermost first.

        >>> Layout.parse("row = L0 L1  col = L1 L2", L=8)
        Traceback (most recent call last):
        ...
        fragmenta.errors.LayoutError: row = L0 L1  col = L1 L2: L1 is used twice
        """
        if not isinstance(line, str):
            raise LayoutError(f"a layout is read from one line; given {line!r}")
        if len(line) > LONGEST:
            raise LayoutError(
                f"a layout has at most {LONGEST:,} characters; given {shortened(line)}"
            )
        for axis, size in sizes.items():
            if not is_whole(size) or size < 1:
                raise LayoutError(
                    f"{line}: the size of axis {axis} is a whole number from 1 on; "
                    f"given {size!r}"
                )
        data, _, free = line.partition("|")
        coordinates: list[tuple[str, Digits]] = []
        for part in (data, free):
            if _ASSIGNMENT.sub("", part).strip():
                raise LayoutError(f"{line}: expected 'name = digits …'")
            for name, tokens in _ASSIGNMENT.findall(part):
                if name in dict(coordinates):
                    raise LayoutError(f"{line}: {name} is given twice")
                digits = _digits(line, tokens.split(), sizes)
                # A free coordinate with only one value is left out.
                if digits or part is data:
                    coordinates.append((name, digits))
        _check_bijection(line, coordinates, sizes)
        listed = {name for name, _ in _ASSIGNMENT.findall(free)}
        free_names = tuple(name for name, _ in coordinates if name in listed)
        return cls(tuple(coordinates), tuple(sizes.items()), free_names)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The size of each coordinate.

        >>> Layout.parse("row = L1 L2  col = L0 | copy = R*", L=8, R=3).sizes
        {'row': 4, 'col': 2, 'copy': 3}
        """
        return {name: prod(d.size for d in ds) for name, ds in self.coordinates}

    @cached_property
    def data(self) -> tuple[str, ...]:
        """The coordinates of an element, in the order of the line."""
        return tuple(name for name, _ in self.coordinates if name not in self.free)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the data coordinates: the shape of the matrix.

        >>> Layout.parse("row = L1 L2  col = L0 | copy = R*", L=8, R=3).shape
        (4, 2)
        """
        return tuple(self.sizes[name] for name in self.data)

    @cached_property
    def place_shape(self) -> tuple[int, ...]:
        """The sizes of the place axes, outermost first."""
        return tuple(size for _, size in self.axes)

    @cached_property
    def has_xor(self) -> bool:
        """Whether some digit is an XOR of several bits.

        >>> Layout.parse("address = A0^A1 A1", A=4).has_xor
        True
        """
        return any(digit.xor for _, digits in self.coordinates for digit in digits)

    @cached_property
    def _terms(self) -> dict[str, XorSum]:
        """Each coordinate as a sum of runs of the axes, XORed with others."""
        return {name: expressions.terms(self, name) for name in self.sizes}

    @property
    def copies(self) -> int:
        """How many places hold each element, over all free coordinates."""
        return prod(self.sizes[name] for name in self.free)

    def element(self, **place: ArrayLike) -> dict[str, Any]:
        """The element at a place, coordinate by coordinate; arrays broadcast."""
        self._check_names("axes", [name for name, _ in self.axes], place)
        values = {a: _in_range(a, place[a], size) for a, size in self.axes}
        batch_shape(**{axis: np.shape(value) for axis, value in values.items()})
        sizes = dict(self.axes)
        return {name: each.of(values, sizes) for name, each in self._terms.items()}

    def places(self, **element: int) -> list[dict[str, int]]:
        """All places of an element; free coordinates may be given too.

        >>> layout = Layout.parse("row = L0 L1  col = L2 | copy = R0", L=8, R=2)
        >>> layout.places(row=3, col=1)
        [{'L': 7, 'R': 0}, {'L': 7, 'R': 1}]
        >>> layout.places(row=3, col=1, copy=1)
        [{'L': 7, 'R': 1}]
        """
        self._check_names("coordinates", self.data, element, optional=self.free)
        pinned = {
            name: _in_range(name, value, self.sizes[name])
            for name, value in element.items()
        }
        for name, value in pinned.items():
            if not isinstance(value, int):
                raise ShapeError(f"{name} is one number; given {element[name]!r}")
        choices = [
            [pinned[name]] if name in pinned else range(self.sizes[name])
            for name, _ in self.coordinates
        ]
        found = [self._place(values) for values in product(*choices)]
        return sorted(found, key=lambda place: tuple(place.values()))

    def _place(self, values: Iterable[int]) -> dict[str, int]:
        """The place whose digits give these coordinate values."""
        if self.has_xor:
            back, sizes = self._inverse, self.sizes
            given = dict(zip(sizes, values, strict=True))
            return {axis: back._terms[axis].of(given, sizes) for axis, _ in self.axes}
        place = {name: 0 for name, _ in self.axes}
        for (_, digits), value in zip(self.coordinates, values, strict=True):
            left = value
            for digit in digits:
                left, part = divmod(left, digit.size)
                place[digit.axis] += part * digit.stride
        return place

    def grid(self) -> dict[str, Index]:
        """Each coordinate at every place, as arrays of ``place_shape``."""
        axes = np.indices(self.place_shape, sparse=True)
        values = {name: a for (name, _), a in zip(self.axes, axes, strict=True)}
        shape, sizes = self.place_shape, dict(self.axes)
        return {
            name: np.broadcast_to(each.of(values, sizes), shape)
            for name, each in self._terms.items()
        }

    def gather(self, order: Iterable[str] | None = None) -> Index:
        """Index of each place's element in the flattened matrix.

        ``matrix.ravel()[layout.gather()]`` is the packed matrix: an array of
        ``place_shape``.  ``order`` names the matrix axes, outermost first.
        """
        names = tuple(order) if order is not None else self.data
        grid = self.grid()
        shape = tuple(self.sizes[name] for name in names)
        flat = np.ravel_multi_index([grid[name] for name in names], shape)
        return np.asarray(flat, dtype=np.intp)

    def place_index(self) -> Index:
        """Flat place of each element, indexed by all coordinates in order."""
        return self._places

    @cached_property
    def _places(self) -> Index:
        grid = self.grid()
        shape = tuple(self.sizes[name] for name, _ in self.coordinates)
        flat = np.ravel_multi_index([grid[n] for n, _ in self.coordinates], shape)
        places = np.empty(prod(shape), dtype=np.intp)
        places[flat.ravel()] = np.arange(places.size)
        places.setflags(write=False)
        return places.reshape(shape)

    def scatter(self, **pinned: int) -> Index:
        """Flat place that each matrix element is read from (its first copy).

        ``packed.ravel()[layout.scatter()]`` is the matrix again.  Free coordinates,
        such as a selector, may be given; those that are not given are 0.
        """
        places: Index = self.place_index()
        order = [name for name, _ in self.coordinates]
        for name in reversed(self.free):
            places = np.take(places, pinned.get(name, 0), axis=order.index(name))
            order.remove(name)
        return places.transpose([order.index(name) for name in self.data])

    def tile(self, **tiles: int) -> Layout:
        """The layout of several tiles, repeated along coordinates; tiles are outermost.

        Each repeated coordinate gets a new place axis that counts the tiles along
        it.  It is named Y, X or Z, in this order, or V, U or S if these are taken.

        >>> layout = Layout.parse("row = L1  col = L0", L=4)
        >>> layout.tile(row=4, col=3)
        Layout('row = L1 Y0 Y1  col = L0 X0*3', Y=4, X=3, L=4)
        """
        self._check_names("coordinates", (), tiles, optional=self.data)
        taken = dict(self.axes)
        unused = [letter for letter in "YXZVUS" if letter not in taken]
        letters = dict(zip(tiles, unused[:3], strict=False))
        if len(letters) < len(tiles):
            raise LayoutError(
                "at most three coordinates can be tiled, and six times in all; given "
                f"{one_of(tiles, 'and')}, and the axes {one_of(taken, 'and')}"
            )
        extra = {n: tuple(Digit(letters[n], 1, c).bits()) for n, c in tiles.items()}
        coordinates = tuple((n, ds + extra.get(n, ())) for n, ds in self.coordinates)
        axes = tuple((letters[n], c) for n, c in tiles.items() if c > 1)
        return Layout(coordinates, axes + self.axes, self.free)

    # ── other layouts, and expressions ──────────────────────────────────────

    def inverse(self) -> Layout:
        """The layout the other way round: its places are elements.

        Its axes are the coordinates of this one, free ones included, and its
        coordinates are the axes of this one.  ``row2`` is bit 2 of the row;
        ``col/24*2`` is the digit with 2 values that counts steps of 24.

        >>> layout = Layout.parse("row = L2 L3 L4 R1  col = R0 L0 L1", L=32, R=4)
        >>> layout.inverse()
        Layout('L = col1 col2 row0 row1 row2  R = col0 row3', row=16, col=8)
        >>> layout.inverse().element(row=np.array([0, 9]), col=5)
        {'L': array([2, 6]), 'R': array([1, 3])}
        >>> layout.inverse().inverse() == layout
        True
        >>> Layout.parse("address = A0 A1^A2 A2", A=8).inverse()
        Layout('A = address0 address1^address2 address2', address=8)
        """
        return self._inverse

    @cached_property
    def _inverse(self) -> Layout:
        found = _solved(self.coordinates)
        if isinstance(found, Digit):
            raise LayoutError(f"{self}: {found} follows from the other digits")
        coordinates = tuple(
            (axis, tuple(found[digit] for digit in sorted(found) if digit.axis == axis))
            for axis, _ in self.axes
        )
        return Layout(coordinates, tuple(self.sizes.items()))

    def then(self, other: Layout) -> Layout:
        """This layout, and then one whose places are the elements of this one.

        Axes of ``other`` that are no coordinates here stay axes, and coordinates that
        are no axes of ``other`` stay coordinates.

        >>> held = Layout.parse("K = E0 L0 L1  N = L2 L3 L4", L=32, E=2)
        >>> memory = Layout.parse("offset = K0 N0 N1 N2 K1 K2", K=8, N=8)
        >>> held.then(memory)
        Layout('offset = E0 L2 L3 L4 L0 L1', L=32, E=2)
        >>> swizzle = Layout.parse("address = offset0^offset3 offset1*", offset=64)
        >>> held.then(memory).then(swizzle)
        Layout('address = E0^L4 L2 L3 L4 L0 L1', L=32, E=2)
        """
        _check_layout(other)
        sizes, digits = dict(other.axes), dict(self.coordinates)
        shared = [name for name in self.sizes if name in sizes]
        wrong = [name for name in shared if self.sizes[name] != sizes[name]]
        if wrong or not shared:
            raise LayoutError(
                f"elements with {_sizes_text(self.sizes)} are not the places with "
                f"{_sizes_text(sizes)}; names and sizes must be equal, and tile() "
                "repeats a layout"
            )

        def followed(digit: Digit) -> list[Digit]:
            if digit.xor:
                each = [bit for term in digit.terms for bit in followed(term)]
                return [_xor(term for bit in each for term in bit.terms)]
            return (
                _pieces(digits[digit.axis], digit) if digit.axis in digits else [digit]
            )

        coordinates = [
            (name, tuple(piece for each in ds for piece in followed(each)))
            for name, ds in other.coordinates
        ]
        coordinates += [pair for pair in self.coordinates if pair[0] not in sizes]
        axes = [pair for pair in other.axes if pair[0] not in digits] + [*self.axes]
        for names in ([name for name, _ in coordinates], [name for name, _ in axes]):
            twice = [name for name in names if names.count(name) > 1]
            if twice:
                raise LayoutError(f"{twice[0]} would be there twice: {self}; {other}")
        kept = tuple(name for name in self.free if name not in sizes)
        return Layout(tuple(coordinates), tuple(axes), other.free + kept)

    def to(self, other: Layout) -> Layout:
        """Where each place of this layout is in another one of the same elements.

        The coordinates of the result are the axes of the other layout.

        >>> mma = Layout.parse("row = L2 L3 L4 R1  col = R0 L0 L1", L=32, R=4)
        >>> rows = Layout.parse("row = L0 L1 L2 L3  col = R0 R1 L4", L=32, R=4)
        >>> mma.to(rows)
        Layout('L = L2 L3 L4 R1 L1  R = R0 L0', L=32, R=4)
        >>> mma.to(rows).element(L=5, R=1)
        {'L': 1, 'R': 3}
        """
        _check_layout(other)
        return self.then(other.inverse())

    def to_cuda(
        self,
        direction: expressions.Direction = "holds",
        *,
        language: expressions.Language = "cuda",
        **names: str | int,
    ) -> expressions.Expressions:
        """Index expressions of CUDA C++, or of Python and NumPy.

        The result is a dictionary of expressions; ``str()`` makes statements of it.

        ``"holds"`` gives each coordinate of the element that a place holds.
        ``"where"`` gives each axis of the place of an element.  Free coordinates, such
        as a copy or a selector, are results of the first and inputs of the second.

        The variables of the axes are cta (P), warp (W), lane (L; T in tensor memory),
        column (C), register (R) and element (E); those of other letters are the
        letters.  CUDA reserves the word register, so it is ``reg`` there.  If an axis
        and a coordinate have the same name, that of the coordinate begins with
        ``to_``.  Names may be given, by letter or by word; for an input, a number also.

        >>> layout = Layout.parse("row = L2 L3 L4  col = R* L0 L1", L=32, R=6)
        >>> print(layout.to_cuda())
        int row = lane >> 2;
        int col = 6 * (lane & 3) + reg;
        >>> print(layout.to_cuda("where", row="m", col="k", lane="thread"))
        int thread = (k / 6) + 4 * m;
        int reg = k % 6;
        >>> layout.to_cuda("where", language="python", row=7)["lane"]
        '(col // 6) + 28'
        """
        return expressions.write(self, direction, language, names)

    # ── parts of a layout ───────────────────────────────────────────────────

    def low_run(self, axis: str) -> str | None:
        """The data coordinate whose lowest digits are all of this axis.

        Packing can then join neighbours into words before moving them.
        """
        size = dict(self.axes)[axis]
        for name in self.data:
            digits = dict(self.coordinates)[name]
            covered = 1
            for digit in digits:
                if digit.axis != axis or digit.stride != covered or digit.xor:
                    break
                covered *= digit.size
            if covered == size:
                return name if self._xors_of(axis) == [] else None
        return None

    def _xors_of(self, axis: str) -> list[Digit]:
        """The digits that are XORs with a bit of this axis."""
        return [
            digit
            for _, digits in self.coordinates
            for digit in digits
            if digit.xor and any(term.axis == axis for term in digit.terms)
        ]

    def without(self, axis: str) -> Layout:
        """The layout without one axis: that of whole words if the axis is E."""
        for digit in self._xors_of(axis):
            raise LayoutError(
                f"{self}: {digit} needs axis {axis}; it cannot be left out"
            )
        coordinates = tuple(
            (name, tuple(d for d in ds if d.axis != axis))
            for name, ds in self.coordinates
        )
        axes = tuple(pair for pair in self.axes if pair[0] != axis)
        return Layout(coordinates, axes, self.free)

    def weights(self, axis: str) -> list[tuple[Digit, str, int]]:
        """The digits of an axis, lowest first, each with its coordinate and weight.

        A bit that is part of XORs is there once for each of them.

        >>> [(name, weight) for _, name, weight in
        ...  Layout.parse("a = A0^A1  b = A1", A=4).weights("A")]
        [('a', 1), ('a', 1), ('b', 1)]
        """
        found = []
        for name, digits in self.coordinates:
            weight = 1
            for digit in digits:
                found += [(t, name, weight) for t in digit.terms if t.axis == axis]
                weight *= digit.size
        return sorted(found, key=lambda entry: entry[0].stride)

    def _check_names(
        self,
        what: str,
        required: Iterable[str],
        given: Mapping[str, object],
        optional: Iterable[str] = (),
    ) -> None:
        required, optional = list(required), list(optional)
        unknown = [name for name in given if name not in (*required, *optional)]
        missing = [name for name in required if name not in given]
        if unknown or missing:
            raise LayoutError(
                f"this layout has the {what} {one_of([*required, *optional], 'and')};"
                f" given {one_of(given, 'and') or 'none'}"
            )

    def __str__(self) -> str:
        def write(names: Iterable[str]) -> str:
            digits = dict(self.coordinates)
            return "  ".join(
                f"{name} = {' '.join(map(str, digits[name])) or '0'}" for name in names
            )

        free = f" | {write(self.free)}" if self.free else ""
        return write(self.data) + free

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={size}" for name, size in self.axes)
        return f"Layout({str(self)!r}, {sizes})"


def _digits(line: str, tokens: list[str], sizes: Mapping[str, int]) -> Digits:
    written = [token for token in tokens if token != "0"]
    return tuple(d for token in written for d in _resolve(line, token, sizes))


def _resolve(line: str, token: str, sizes: Mapping[str, int]) -> list[Digit]:
    """The digits of one token: none, one, or several if it covers several bits."""
    if "^" in token:
        bits = [_resolve(line, each, sizes) for each in token.split("^")]
        if any(len(each) != 1 or each[0].size != 2 for each in bits):
            raise LayoutError(f"{line}: {token} is an XOR of bits, such as A4^A7")
        if len({each[0] for each in bits}) < len(bits):
            raise LayoutError(f"{line}: {token} has a bit twice, which is no XOR")
        return [_xor(each[0] for each in bits)]
    match = _TOKEN.match(token)
    if match is None:
        raise LayoutError(f"{line}: {token!r} is not a digit such as L2 or R1*")
    axis, position, rest = match[1], int(match[2] or 0), bool(match[3])
    if axis in sizes and (match[4] or match[5]):
        position = min(position, sizes[axis].bit_length())  # too large to divide it
        stride, size = int(match[5] or 1 << position), int(match[4] or match[6])
        if stride * size == 0 or sizes[axis] % (stride * size):
            raise LayoutError(f"{line}: {token} does not fit {axis}={sizes[axis]}")
        return Digit(axis, stride, size).bits()
    digits = []
    for part in _JOINED.get(axis, (axis,)) if axis not in sizes else (axis,):
        if part not in sizes:
            raise LayoutError(f"{line}: no size is given for axis {part}")
        left = sizes[part] >> position
        if left << position != sizes[part] and left:
            raise LayoutError(f"{line}: {token} does not divide {part}={sizes[part]}")
        if rest and left > 1:
            digits += Digit(part, 1 << position, left).bits()
        elif not rest and left > 1:
            return [Digit(part, 1 << position, 2)]
        position = max(0, position - (sizes[part].bit_length() - 1))
    if not digits and not rest:
        raise LayoutError(f"{line}: axis {axis} has no digit {token}")
    if match[4] and prod(d.size for d in digits) != int(match[4]):
        raise LayoutError(f"{line}: {token} does not fit the size of axis {axis}")
    return digits


def _check_bijection(
    line: str, coordinates: list[tuple[str, Digits]], sizes: Mapping[str, int]
) -> None:
    digits = [digit for _, ds in coordinates for digit in ds]
    xors = any(digit.xor for digit in digits)
    used = [term for digit in digits for term in digit.terms]
    for axis, size in sizes.items():
        # What an XOR uses, another digit may use, too.
        mine = [digit for digit in used if digit.axis == axis]
        reached = 1
        for digit in sorted(set(mine) if xors else mine):
            if digit.stride < reached:
                raise LayoutError(f"{line}: {digit} is used twice")
            if digit.stride > reached:
                break
            reached *= digit.size
        if reached != size:
            missing = Digit(axis, reached, 2)
            raise LayoutError(f"{line}: {missing} of {axis}={size} is not used")
    if not xors:
        return
    found = _solved(coordinates)
    if isinstance(found, Digit):
        raise LayoutError(f"{line}: {found} is used twice, or is the XOR of others")
    if len(found) < len(set(used)):
        lost = min(set(used) - set(found))
        raise LayoutError(
            f"{line}: {lost} is only in XORs, and does not follow from them"
        )


def _check_xor(name: str, digits: Digits) -> None:
    """Refuse an XOR of what is not a bit of an axis and of its coordinate."""
    weight = 1
    for digit in digits:
        if digit.xor and any(
            each.size != 2 or (each.stride & each.stride - 1) for each in digit.terms
        ):
            raise LayoutError(f"{name}: {digit} is not an XOR of bits, such as A4^A7")
        if digit.xor and weight & weight - 1:
            raise LayoutError(
                f"{name}: {digit} counts steps of {weight}; an XOR needs a power of "
                "two: digits of other sizes come after it"
            )
        weight *= digit.size


def _xor(terms: Iterable[Digit]) -> Digit:
    """The XOR of some digits: a digit that is there twice has no effect."""
    left: set[Digit] = set()
    for term in terms:
        left ^= {term}
    first, *others = sorted(left)
    return first._replace(xor=tuple(others))


def _solved(
    coordinates: Iterable[tuple[str, Digits]],
) -> dict[Digit, Digit] | Digit:
    """Each digit of the place by digits of the element, or one that is redundant.

    Every digit of an element is an equation: it is the XOR of its terms.  They are
    solved by Gauss-Jordan elimination over bits.
    """
    solved: dict[Digit, tuple[set[Digit], set[Digit]]] = {}
    for name, digits in coordinates:
        weight = 1
        for digit in digits:
            terms, given = set(digit.terms), {Digit(name, weight, digit.size)}
            weight *= digit.size
            for term in digit.terms:
                if term in solved:
                    terms ^= solved[term][0]
                    given ^= solved[term][1]
            if not terms:
                return digit
            pivot = min(terms)
            for row in solved.values():
                if pivot in row[0]:
                    row[0].symmetric_difference_update(terms)
                    row[1].symmetric_difference_update(given)
            solved[pivot] = (terms, given)
    return {
        pivot: _xor(given)
        for pivot, (terms, given) in solved.items()
        if len(terms) == 1
    }


def _pieces(digits: Digits, wanted: Digit) -> list[Digit]:
    """The digits of a coordinate that are this digit of its value."""
    found, low = [], 1
    for digit in digits:
        high = low * digit.size
        first = max(low, wanted.stride)
        last = min(high, wanted.stride * wanted.size)
        if first < last:
            if first % low or last % first or high % last:
                raise LayoutError(
                    f"{wanted} is no digit of {' '.join(map(str, digits))}: steps of "
                    f"{first} do not divide {last} values"
                )
            stride = digit.stride * (first // low)
            found += digit._replace(stride=stride, size=last // first).bits()
        low = high
    return found


def _check_layout(other: object) -> None:
    if not isinstance(other, Layout):
        raise LayoutError(
            "expected the places of another layout, such as op.a.layout; given "
            f"{other!r}"
        )


def _sizes_text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def _in_range(name: str, value: ArrayLike, size: int) -> Any:
    array = as_array(value)
    large = isinstance(value, int) and array.dtype.kind == "O"  # more than 64 bits
    if array.dtype.kind not in "iu" and not large:
        raise ShapeError(f"{name} must be a whole number; given {value!r}")
    if array.size and not 0 <= int(array.min()) <= int(array.max()) < size:
        wrong = array[(array < 0) | (array >= size)].flat[0]
        raise ShapeError(f"{name} {wrong} is out of range; {name} is 0 to {size - 1}")
    # A coordinate may not fit in the type of the given array: int8 ends at 127.
    return array.astype(np.intp) if array.ndim else int(array)
