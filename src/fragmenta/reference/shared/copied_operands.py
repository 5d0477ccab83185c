"""Whether a descriptor reads a tile as a tensor copy has written it.

A copy by a tensor map writes boxes; a descriptor reads an operand from them.  Nothing
says which element of the tensor must be A[i, k].  But of every sensible pair of map and
descriptor, an operand takes lines of a box as they follow one another, each from the
same byte on.  If the two have different swizzles or offsets, it takes other parts of
each line, or the same lines twice.  :func:`mismatch` looks for that.

Everything is counted in units of 16 bytes.  The units of an operand are *across* (one
for each line) and *along* (side by side in a line).  The descriptor takes them in atoms
of a span along and eight lines across.  What it may do is:

- begin anywhere in a box, along and across, and end before the box does;
- go on in another box at the same byte of its lines, side by side from the same line;
- take lines again and again, with an offset of 0;
- step over a whole dimension of the box, or divide all of its lines evenly;
- be K-major or MN-major: both are regular.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import Error
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.shared.box_layouts import BoxLayout
from fragmenta.reference.shared.descriptor import (
    LIMIT,
    UNIT,
    Descriptor,
    extent,
    span,
)
from fragmenta.reference.shared.elements import MajorAxis, stored
from fragmenta.reference.shared.fields import MODES_OF
from fragmenta.reference.shared.swizzles import REPEAT, Swizzle, pattern
from fragmenta.reference.shared.tensor_map import element_type

Grid = NDArray[np.int64]


class SharedOperand(NamedTuple):
    """An operand that an instruction reads from shared memory."""

    op: Instruction
    name: str
    """``A`` or ``B``."""
    descriptor: Descriptor
    major: MajorAxis

    @property
    def bits(self) -> int:
        """Bits of an element in shared memory."""
        kind, of = self.op.types[self.name.lower()], self.descriptor
        return stored(kind, self.major, of.family, of.swizzle, self.op.kind).bits

    @property
    def per(self) -> int:
        """Elements of a unit."""
        return 8 * UNIT // self.bits

    def addresses(self) -> Grid:
        """Where each unit is: lines across, units along.

        >>> import fragmenta as fm
        >>> op = fm.wgmma("m64n8k16", a="f16", d="f32")
        >>> b = SharedOperand(op, "B", Descriptor(0, 0, 1024, 128), "k")
        >>> b.addresses()[:3].tolist()
        [[0, 16], [144, 128], [288, 304]]
        """
        rows, k = extent(self.op, self.name)
        of, kind = self.descriptor, self.op.types[self.name.lower()]
        if self.major == "k":
            places = np.arange(rows)[:, None], np.arange(0, k, self.per)[None]
        else:
            places = np.arange(0, rows, self.per)[None], np.arange(k)[:, None]
        found = of.address(*places, kind, self.major, self.op.kind)
        return np.asarray(found, np.int64)

    def twice(self) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """Two units of the operand that are the same bytes; None: there are none.

        A stride or a leading offset of 0 repeats a part on purpose.

        >>> import fragmenta as fm
        >>> op = fm.wgmma("m64n8k16", a="f16", d="f32")
        >>> SharedOperand(op, "A", Descriptor(0, 0, 512, 128), "k").twice()
        ((4, 0), (8, 0))
        >>> SharedOperand(op, "A", Descriptor(0, 0, 1024, 128), "k").twice()
        """
        found = self.addresses()
        order = np.argsort(found, axis=None, kind="stable")
        again = np.flatnonzero(np.diff(found.ravel()[order]) == 0)
        used = self._used() if again.size else []
        if not again.size or any(not getattr(self.descriptor, each) for each in used):
            return None
        first = again[np.argmin(order[again + 1])]
        one, other = (divmod(int(order[first + i]), found.shape[1]) for i in (0, 1))
        return one, other

    def _used(self) -> list[str]:
        """The offsets of the descriptor that the addresses depend on."""
        of, found = self.descriptor, self.addresses()
        others = {
            "leading": replace(of, leading=of.leading ^ UNIT),
            "stride": replace(of, stride=of.stride ^ UNIT),
        }
        return [
            name
            for name, each in others.items()
            if (self._replace(descriptor=each).addresses() != found).any()
        ]

    def uneven(self) -> str:
        """An offset that does not step over whole lines of a swizzle; "": all do.

        Then the operand takes other parts of each line.

        >>> import fragmenta as fm
        >>> op = fm.wgmma("m64n8k16", a="f16", d="f32")
        >>> SharedOperand(op, "A", Descriptor(0, 16, 1040, 128), "k").uneven()
        'stride'
        >>> SharedOperand(op, "A", Descriptor(0, 16, 1024, 128), "k").uneven()
        ''
        """
        of = self.descriptor
        if not of.swizzle or of.absolute:
            return ""
        line = span(of.swizzle)
        for name in self._used():
            if getattr(of, name) % line:
                return name
        return ""

    def element(self, across: int, along: int) -> str:
        """The first element of a unit, such as ``B[8, 0]``: k comes first in B."""
        mn, k = across, along * self.per
        if self.major == "mn":
            mn, k = along * self.per, across
        return f"{self.name}[{k}, {mn}]" if self.name == "B" else f"A[{mn}, {k}]"


class Box(NamedTuple):
    """A box that a copy has written."""

    layout: BoxLayout
    at: int


class Mismatch(NamedTuple):
    """What is wrong: which unit, in which box, and where it should have been."""

    across: int
    along: int
    box: int
    line: int
    """The line of the box that is there."""
    byte: int
    wanted: tuple[int, int] | None
    """The line and the byte that belong there; None if only the step is wrong."""
    leaves: int | None = None
    """The next box, if the operand leaves its own: wrong unless that one goes on."""
    type: bool = False
    """Whether the elements are of another type."""


class _OperandUnits(NamedTuple):
    """What is at each unit of an operand; in atoms: across, along, units of an atom."""

    real: Grid
    """Whether there is a unit; -1 where the last atom has none."""
    box: Grid
    line: Grid
    byte: Grid
    lines: int
    """Lines of an atom."""
    units: int
    """Units of a line of an atom."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.box.shape[0], self.box.shape[1]

    def unit(self, atom: tuple[int, int], index: int) -> tuple[int, int]:
        """Across and along of a unit of an atom."""
        line, unit = divmod(index, self.units)
        return atom[0] * self.lines + line, atom[1] * self.units + unit


def _places(reading: SharedOperand, boxes: Sequence[Box]) -> _OperandUnits:
    where = reading.addresses()
    box, line, byte = (np.full(where.shape, -1) for _ in range(3))
    for number, each in enumerate(boxes):
        found, first = each.layout.find(each.at, where)
        there = (found >= 0) & (box < 0)
        box[there], line[there], byte[there] = number, found[there], first[there]
    shape = pattern(reading.descriptor.swizzle)
    units, lines = shape.span // UNIT, shape.lines
    real, box, line, byte = (
        _atoms(each, lines, units) for each in (np.ones_like(box), box, line, byte)
    )
    return _OperandUnits(real, box, line, byte, lines, units)


def _atoms(grid: Grid, lines: int, units: int) -> Grid:
    """The same in atoms; what is missing in the last atom is in no box."""
    across, along = grid.shape
    more = (0, -across % lines), (0, -along % units)
    whole = np.pad(grid, more, constant_values=-1)
    parts = whole.reshape(len(whole) // lines, lines, -1, units)
    return parts.transpose(0, 2, 1, 3).reshape(*parts.shape[::2], lines * units)


def mismatch(reading: SharedOperand, boxes: Sequence[Box]) -> Mismatch | None:
    """The first unit that is not where it would be; None if all is regular.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n8k16", a="f16", d="f32")
    >>> box = Box(BoxLayout("f16", (64, 64), (1, 1), 128), 0)
    >>> mismatch(SharedOperand(op, "A", Descriptor(32, 0, 1024, 128), "k"), [box])
    >>> mismatch(SharedOperand(op, "A", Descriptor(32, 0, 1024, 64), "k"), [box])[:6]
    (1, 0, 0, 0, 96, (1, 32))
    """
    found = _places(reading, boxes)
    origins = []
    for number, box in enumerate(boxes):
        wrong = _wrong_type(reading, found, number, box.layout)
        if wrong is not None:
            return wrong
        atoms = _origins(found, number)
        if isinstance(atoms, Mismatch):
            return atoms
        origins.append(atoms)
    for number, box in enumerate(boxes):
        same = [origins[each] for each in range(len(boxes)) if boxes[each][0] == box[0]]
        step = _columns(found, number, origins[number], same)
        step = step or _steps(found, number, origins[number], box.layout)
        step = step or _again(found, number, origins[number])
        if step is not None:
            return step
    elsewhere = _beside(found, boxes) or _elsewhere(reading, found, boxes)
    return elsewhere or _left(found, boxes)


class _Origins(NamedTuple):
    """Of each atom that is in a box, where its first unit is."""

    there: NDArray[np.bool_]
    line: Grid
    byte: Grid


def _origins(found: _OperandUnits, number: int) -> _Origins | Mismatch:
    """Where the atoms of a box begin; or the first unit that is not in its place."""
    there = found.box == number
    first = there.argmax(axis=-1)
    line, unit = np.divmod(np.arange(there.shape[-1]), found.units)
    pick = first[..., None]
    lines = np.take_along_axis(found.line, pick, -1)[..., 0] - line[first]
    bytes_ = np.take_along_axis(found.byte, pick, -1)[..., 0] - UNIT * unit[first]
    right_line, right_byte = lines[..., None] + line, bytes_[..., None] + UNIT * unit
    wrong = there & ((found.line != right_line) | (found.byte != right_byte))
    if wrong.any():
        at = tuple(int(each) for each in np.argwhere(wrong)[0])
        wanted = int(right_line[at]), int(right_byte[at])
        return _at(found, at[:2], at[2], number, wanted)
    return _Origins(there.any(axis=-1), lines, bytes_)


def _at(
    found: _OperandUnits,
    atom: tuple[int, ...],
    index: int,
    number: int,
    wanted: tuple[int, int] | None,
) -> Mismatch:
    place = atom[0], atom[1]
    across, along = found.unit(place, index)
    line, byte = (int(each[place][index]) for each in (found.line, found.byte))
    return Mismatch(across, along, number, line, byte, wanted)


def _first_in(found: _OperandUnits, atom: tuple[int, int], number: int) -> int:
    """The first unit of an atom that is in a box."""
    return int((found.box[atom] == number).argmax())


def _columns(
    found: _OperandUnits, number: int, own: _Origins, same: Sequence[_Origins]
) -> Mismatch | None:
    """All atoms above one another begin at the same byte, in all boxes of a kind."""
    for along in range(found.shape[1]):
        begun = [
            int(each.byte[each.there[:, along], along][0])
            for each in same
            if each.there[:, along].any()
        ]
        for across in np.flatnonzero(own.there[:, along]):
            byte, line = int(own.byte[across, along]), int(own.line[across, along])
            if byte != begun[0]:
                atom = int(across), along
                index = _first_in(found, atom, number)
                line += index // found.units
                wanted = line, begun[0] + index % found.units * UNIT
                return _at(found, atom, index, number, wanted)
    return None


def _steps(
    found: _OperandUnits, number: int, own: _Origins, layout: BoxLayout
) -> Mismatch | None:
    """The steps between atoms are those that a box can have."""
    down, right = found.shape
    whole = [count for count in layout.counts[1:] if count > 1]
    both = own.there[1:] & own.there[:-1]
    across = own.line[1:] - own.line[:-1]
    beside = own.there[:, 1:] & own.there[:, :-1]
    along = own.line[:, 1:] - own.line[:, :-1]
    moved = own.byte[:, 1:] - own.byte[:, :-1]
    per = found.lines
    tiled = bool(beside.any() and (along[beside] == per).all())
    whole_column, whole_row = (own.there.all(axis=n, keepdims=True) for n in (0, 1))
    natural = (across == per) | (across == 0)
    natural |= (across * down == layout.lines) & whole_column
    if len(whole) > 1:
        natural |= across % whole[0] == 0
    if tiled:
        natural |= across == per * right
    wrong = both & ~natural
    if wrong.any():
        at = tuple(int(each) for each in np.argwhere(wrong)[0])
        return _at_step(found, (at[0] + 1, at[1]), number)
    natural = (along == 0) | (along == per * down)
    natural |= (along * right == layout.lines) & whole_row
    if len(whole) > 1:
        natural |= along % whole[0] == 0
    if both.any() and (across[both] == per * right).all():
        natural |= along == per
    natural = (moved == 0) & natural
    natural |= (along == 0) & (moved == found.units * UNIT)
    wrong = beside & ~natural
    if wrong.any():
        at = tuple(int(each) for each in np.argwhere(wrong)[0])
        return _at_step(found, (at[0], at[1] + 1), number)
    return None


def _again(found: _OperandUnits, number: int, own: _Origins) -> Mismatch | None:
    """No unit is taken twice, unless an offset is 0."""
    steps = [
        (own.line[1:] == own.line[:-1]) & own.there[1:] & own.there[:-1],
        (own.line[:, 1:] == own.line[:, :-1])
        & (own.byte[:, 1:] == own.byte[:, :-1])
        & own.there[:, 1:]
        & own.there[:, :-1],
    ]
    if any(each.any() for each in steps):
        return None
    places = np.flatnonzero(found.box.reshape(-1) == number)
    taken = found.line.reshape(-1)[places] << 32 | found.byte.reshape(-1)[places]
    _, first = np.unique(taken, return_index=True)
    if first.size == taken.size:
        return None
    again = np.setdiff1d(np.arange(taken.size), first)[0]
    across, along, index = np.unravel_index(places[again], found.box.shape)
    return _at(found, (int(across), int(along)), int(index), number, None)


def _elsewhere(
    reading: SharedOperand, found: _OperandUnits, boxes: Sequence[Box]
) -> Mismatch | None:
    """The operand begins where its start address is: a base offset moves it."""
    number = int(found.box[0, 0, 0])
    if number < 0 or not reading.descriptor.base_offset:
        return None
    layout, at = boxes[number]
    line, byte = divmod(reading.descriptor.start - at, layout.pitch)
    if (line, byte) == (int(found.line[0, 0, 0]), int(found.byte[0, 0, 0])):
        return None
    return _at(found, (0, 0), 0, number, (line, byte))


def _at_step(found: _OperandUnits, atom: tuple[int, int], number: int) -> Mismatch:
    return _at(found, atom, _first_in(found, atom, number), number, None)


def _beside(found: _OperandUnits, boxes: Sequence[Box]) -> Mismatch | None:
    """Boxes of a kind that are side by side begin with the same line."""
    begun: dict[BoxLayout, int] = {}  # however many lines a box has
    seen: set[int] = set()
    for along in range(found.shape[1]):
        number, line = (int(each[0, along, 0]) for each in (found.box, found.line))
        if number < 0 or number in seen:
            continue
        seen.add(number)
        layout = boxes[number].layout
        kind = layout._replace(counts=layout.counts[:1], steps=())
        if begun.setdefault(kind, line) != line:
            return _at(found, (0, along), 0, number, None)
    return None


def _left(found: _OperandUnits, boxes: Sequence[Box]) -> Mismatch | None:
    """An operand that would fit into its box, but begins too late in it."""
    box, line = (
        each[:, 0].reshape(found.shape[0], found.lines, found.units)[..., 0].reshape(-1)
        for each in (found.box, found.line)
    )
    own = int(box[0])
    gone = np.flatnonzero(box != own)
    if own < 0 or not gone.size or line[0] <= 0:
        return None
    at, lines = int(gone[0]), boxes[own].layout.lines
    next_ = int(box[at])
    ends = line[at - 1] == lines - 1 and line[at] == 0
    if next_ < 0 or not ends or lines < found.shape[0] * found.lines:
        return None
    return Mismatch(at, 0, next_, 0, 0, None, leaves=own)


def _wrong_type(
    reading: SharedOperand, found: _OperandUnits, number: int, layout: BoxLayout
) -> Mismatch | None:
    """Floats of 32 bits or more are no pairs of smaller elements."""
    of = element_type(layout.dtype)
    there = found.box == number
    wide = of.is_float and of.bytes >= 4 and 8 * of.bytes != reading.bits
    if not wide or not there.any():
        return None
    at = tuple(int(each) for each in np.argwhere(there)[0])
    return _at(found, at[:2], at[2], number, None)._replace(type=True)


# ── what would be right ─────────────────────────────────────────────────────


class Repair(NamedTuple):
    """A descriptor that reads the boxes regularly, and which of its fields differ."""

    reading: SharedOperand
    fields: tuple[str, ...]


def repaired(reading: SharedOperand, boxes: Sequence[Box]) -> Repair | None:
    """The nearest descriptor that is regular: one field differs, or two.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n8k16", a="f16", d="f32")
    >>> box = Box(BoxLayout("f16", (64, 64), (1, 1), 128), 0)
    >>> wrong = SharedOperand(op, "A", Descriptor(32, 0, 512, 64), "k")
    >>> repaired(wrong, [box]).fields
    ('swizzle', 'stride')
    """
    for fields, other in _nearby(reading, boxes):
        try:
            places = _places(other, boxes)
            if ((places.box < 0) & (places.real > 0)).any():
                continue
            found = mismatch(other, boxes)
        except Error:  # the instruction has no such operand
            continue
        if found is None:
            return Repair(other, fields)
    return None


def _nearby(
    reading: SharedOperand, boxes: Sequence[Box]
) -> Iterator[tuple[tuple[str, ...], SharedOperand]]:
    """Descriptors with one other field, then with two."""
    of = reading.descriptor
    offsets = _offsets(reading, boxes)
    choices: list[tuple[str, Sequence[int | Swizzle]]] = [
        ("swizzle", _swizzles(reading, boxes)),
        ("stride", offsets[:1]),
        ("leading", offsets),
        ("base_offset", range(8) if of.swizzle else ()),
        ("start", _starts(reading, boxes)),
        ("stride", offsets[1:]),  # few kernels step over lines
    ]
    single = [
        ((name,), {name: value})
        for name, values in choices
        for value in values
        if value != getattr(of, name)
    ]
    pairs = [
        ((*one, *two), {**a, **b})
        for place, (one, a) in enumerate(single)
        for two, b in single[place + 1 :]
        if one != two and one[0] in ("swizzle", "stride") and two[0] != "start"
    ]
    for names, values in (*single, *pairs):
        try:
            changed = replace(of, **values)  # type: ignore[arg-type]
        except Error:  # it cannot be written down
            continue
        yield names, reading._replace(descriptor=changed)


def _swizzles(reading: SharedOperand, boxes: Sequence[Box]) -> list[int | Swizzle]:
    """The swizzles of the boxes first."""
    family = reading.descriptor.family
    first: list[int | Swizzle] = list({box.layout.swizzle: None for box in boxes})
    more = (each for each in MODES_OF[family] if each is not None)
    return first + [each for each in more if each not in first]


def _offsets(reading: SharedOperand, boxes: Sequence[Box]) -> list[int | Swizzle]:
    """Distances that the boxes have: eight lines, a dimension, a box."""
    found: dict[int | Swizzle, None] = {}
    for box in boxes:
        layout, lines = box.layout, pattern(reading.descriptor.swizzle).lines
        found[lines * layout.pitch] = None
        whole = layout.pitch
        for count in layout.counts[1:]:
            whole *= count
            found[whole] = None
    ends = [box.at for box in boxes]
    found |= {abs(one - two): None for one in ends for two in ends if one != two}
    return [each for each in found if isinstance(each, int) and each < LIMIT]


def _starts(reading: SharedOperand, boxes: Sequence[Box]) -> list[int | Swizzle]:
    """Earlier starts, the nearest first."""
    start = reading.descriptor.start
    wide = span(reading.descriptor.swizzle)
    near = [start - UNIT, start - 2 * UNIT, start // wide * wide, start - wide]
    near += [start // REPEAT * REPEAT, *(box.at for box in boxes)]
    return [each for each in dict.fromkeys(near) if each >= 0]
