"""Copies a box by its tensor map, in machine code.

:func:`copy_box` is traced into a routine.  It reads the 128 bytes of the map when the
routine runs, because a kernel may have changed them.  It moves a box 16 bytes at a
time: those stay together under every swizzle.  :mod:`fragmenta.reference.shared.boxes`
computes the same with array operations; a test compares the two, and both with an H200.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from fragmenta.base.arrays.once import once
from fragmenta.base.jit.compiler import Traced, pointer
from fragmenta.base.jit.llvm import Raw, Type
from fragmenta.base.jit.trace import (
    I8,
    I32,
    I64,
    Code,
    Memory,
    Number,
    Value,
    Variable,
    float_of,
    is_nan,
    larger,
    select,
    shift_unsigned,
    smaller,
)
from fragmenta.engine.simt.atomics import Atomic, noted, update
from fragmenta.engine.simt.layout import PLAIN
from fragmenta.engine.simt.memory import AddressRange, inside, note
from fragmenta.engine.simt.memory import pointer as host_pointer
from fragmenta.errors import Error
from fragmenta.reference.shared.boxes import ALIGNMENT, OUTSIDE
from fragmenta.reference.shared.descriptor import UNIT, exchanged
from fragmenta.reference.shared.reductions import TYPES_OF
from fragmenta.reference.shared.swizzles import WGMMA_SWIZZLES, pattern
from fragmenta.reference.shared.tensor_map import (
    FIELD,
    ElementType,
    element_type,
    element_types,
)
from fragmenta.reference.shared.tensor_map_rules import CORNER_BITS, MOST_SIZE


class CopyRefusal(IntEnum):
    """Why a copy was refused; an H200 stops the kernel for each of them."""

    NONE = 0
    MAP = 1
    """It has another rank or mode than the instruction, no known type, or a size over
    2**31."""
    OPERATION = 2
    """The type of the map does not have the reduction."""
    SHARED_ALIGNMENT = 3
    COORDINATE_ALIGNMENT = 4
    NEGATIVE = 5
    """A store begins before the tensor, or may reach before or beyond it."""
    FIRST_PIXEL = 6
    """The first pixel is not between the corners."""
    SHARED_BOUNDS = 7
    GLOBAL_BOUNDS = 8
    READ_ONLY = 9
    OFFSET = 10
    """An offset has more bits than the rank allows."""


class Copy(NamedTuple):
    """A kind of copy: what the instruction itself says."""

    operation: str
    """``load``, ``store``, or a reduction, such as ``add``."""
    rank: int
    im2col: bool = False

    @property
    def loads(self) -> bool:
        """Whether it goes from global to shared memory."""
        return self.operation == "load"


class CopyOutcome(NamedTuple):
    """The outcome of a copy, in traced values."""

    problem: Value
    """0, or the number of a :class:`CopyRefusal`."""
    address: Value
    """The address that is out of bounds."""


def copy_box(
    code: Code,
    copy: Copy,
    map: Raw,
    coordinates: Sequence[Value],
    offsets: Sequence[Value],
    shared: AddressRange,
    at: Value,
    resolve: Callable[[Value], AddressRange],
) -> CopyOutcome:
    """Trace a copy.

    ``map`` points to the 128 bytes.  ``coordinates`` and ``offsets`` are 64-bit
    numbers, the innermost first.  ``shared`` is the shared memory, and ``at`` the
    address of the box in it.  ``resolve`` gives the global memory that the tensor's
    address is in.  Nothing outside of it is read or written.
    """
    box = _BoxCopy(
        code, copy, map, list(coordinates), list(offsets), shared, at, resolve
    )
    box.check()
    for interleaved in (False, True):
        this = (
            (box.get("interleave") != 0) if interleaved else box.get("interleave") == 0
        )
        with code.when(this & (box.problem.value == 0)):
            if copy.im2col:
                box.column(interleaved)
            else:
                box.tile(interleaved)
    return CopyOutcome(box.problem.value, box.place.value)


class _BoxCopy:
    """A copy that is being traced."""

    def __init__(
        self,
        code: Code,
        copy: Copy,
        map: Raw,
        coordinates: list[Value],
        offsets: list[Value],
        shared: AddressRange,
        at: Value,
        resolve: Callable[[Value], AddressRange],
    ) -> None:
        self.code, self.copy = code, copy
        self.coordinates, self.offsets = coordinates, offsets
        self.shared, self.at = shared, at
        self.words = _words(code, map)
        sizes = {of.code: of.bytes for of in element_types()}
        table = code.table([sizes.get(number, 1) for number in range(16)], I64)
        self.size = table[self.get("code")]
        self.address = self.get("address")
        self.where = resolve(self.address)
        self.problem = code.variable(code.constant(0, I32))
        self.place = code.variable(at)
        self.line = code.variable(at.lift(0))

    # ── the fields of the map ───────────────────────────────────────────────

    def get(self, name: str, index: int = 0) -> Value:
        """A number in the map."""
        field = FIELD[name]
        word, shift = divmod(field.low + index * field.step, 64)
        found = shift_unsigned(self.words[word], shift)
        return (found & ((1 << field.bits) - 1 if field.bits < 64 else -1)) + field.less

    def stride(self, dimension: int) -> Value:
        """The bytes from one element to the next."""
        place = dimension - 1
        return (
            self.get("stride_low", place) | self.get("stride_high", place) << 32
        ) << 4

    def corner(self, name: str, place: int) -> Value:
        """A number of a corner of the box of pixels."""
        width = CORNER_BITS[self.copy.rank]
        half = 1 << width - 1
        raw = (self.get(name) >> width * place) & ((1 << width) - 1)
        return (raw ^ half) - half

    # ── checks ──────────────────────────────────────────────────────────────

    def refuse(
        self, wrong: Value, problem: CopyRefusal, at: Value | None = None
    ) -> None:
        """Note a problem, if it is the first."""
        with self.code.when(wrong & (self.problem.value == 0)):
            self.problem.value = self.code.constant(problem, I32)
            if at is not None:
                self.place.value = at

    def check(self) -> None:
        """What an H200 refuses before it copies anything."""
        copy, c = self.copy, self.coordinates
        wrong = (self.get("rank") != copy.rank) | (self.get("im2col") != copy.im2col)
        for dimension in range(copy.rank):
            wrong = wrong | (self.get("sizes", dimension) > MOST_SIZE)
        self.refuse(wrong, CopyRefusal.MAP)
        operation = not copy.loads and copy.operation != "store"
        names = (
            TYPES_OF[copy.operation]
            if operation
            else [of.name for of in element_types()]
        )
        known = self.is_type(element_type(names[0]))
        for name in names[1:]:
            known = known | self.is_type(element_type(name))
        self.refuse(~known, CopyRefusal.OPERATION if operation else CopyRefusal.MAP)
        self.refuse((self.at & (ALIGNMENT - 1)) != 0, CopyRefusal.SHARED_ALIGNMENT)
        uneven = ((c[0] * self.size) & (UNIT - 1)) != 0
        plain = self.get("interleave") == 0
        self.refuse(uneven & plain, CopyRefusal.COORDINATE_ALIGNMENT)
        if not copy.loads:
            for each in c:
                self.refuse(each < 0, CopyRefusal.NEGATIVE)
        if copy.im2col:
            self._check_pixels()

    def _check_pixels(self) -> None:
        for offset in self.offsets:
            large = shift_unsigned(offset, CORNER_BITS[self.copy.rank]) != 0
            self.refuse(large, CopyRefusal.OFFSET)
        for place in range(self.copy.rank - 2):
            low, high = (self.corner(name, place) for name in ("lower", "upper"))
            if not self.copy.loads:
                self.refuse((low < 0) | (high > 0), CopyRefusal.NEGATIVE)
            for interleaved in (False, True):
                dimension = place + (not interleaved)
                start = self.coordinates[dimension]
                out = (start < low) | (start >= self.get("sizes", dimension) + high)
                this = (self.get("interleave") != 0) == self.code.constant(
                    interleaved, ir.IntType(1)
                )
                self.refuse(out & this, CopyRefusal.FIRST_PIXEL)

    def is_type(self, of: ElementType) -> Value:
        """Whether the map has elements of this type."""
        found: Value = (self.get("code") == of.code) & (self.get("tf32") == of.tf32)
        return found

    # ── which rows ──────────────────────────────────────────────────────────

    def tile(self, interleaved: bool) -> None:
        """All rows of a box."""
        rank = self.copy.rank
        steps = [self.get("element_strides", i) for i in range(rank)]
        counts = [(self.get("box", i) + steps[i] - 1) // steps[i] for i in range(rank)]
        if interleaved:
            counts[rank - 2] = counts[0].lift(1)
        else:
            counts[0] = self.get("box", 0)
        row = _Row(self, interleaved, counts[0])

        def nest(dimension: int, places: list[Value]) -> None:
            if dimension == 0:
                row.move([self.coordinates[0], *places])
                return
            with self.code.loop(counts[dimension]) as index:
                place = self.coordinates[dimension] + index * steps[dimension]
                nest(dimension - 1, [place, *places])

        nest(rank - 1, [])

    def column(self, interleaved: bool) -> None:
        """The pixels of a column."""
        rank, code = self.copy.rank, self.code
        count, first = rank - 2, 0 if interleaved else 1
        moving = [*range(first, first + count), rank - 1]
        cursors = [code.variable(self.coordinates[i]) for i in moving]
        channels = self.get("box", 0)
        row = _Row(self, interleaved, channels.lift(1) if interleaved else channels)
        with code.loop(self.get("pixels")):
            places = list(self.coordinates)
            for place, dimension in enumerate(moving):
                places[dimension] = cursors[place].value
                if place < len(self.offsets):
                    places[dimension] = places[dimension] + self.offsets[place]
            row.move(places)
            self._advance(cursors, moving)

    def _advance(self, cursors: list[Variable], moving: list[int]) -> None:
        """On to the next pixel: W first, then H, D and the image."""
        *pixel, image = moving
        carry = self.at == self.at
        for place, dimension in enumerate(pixel):
            now = cursors[place].value
            following = now + self.get("element_strides", dimension)
            end = self.get("sizes", dimension) + self.corner("upper", place)
            over = following >= end
            moved = select(over, self.corner("lower", place), following)
            cursors[place].value = select(carry, moved, now)
            carry = carry & over
        step = self.get("element_strides", image)
        cursors[-1].value = cursors[-1].value + select(carry, step, 0)


class _Row:
    """The rows of a box: adjacent elements, or slices of channels, in dimension 0."""

    def __init__(self, box: _BoxCopy, interleaved: bool, count: Value) -> None:
        self.box, self.interleaved = box, interleaved
        step = box.get("element_strides", 0)
        all_changed = [pattern(each).changed for each in WGMMA_SWIZZLES]
        changed = box.code.table(all_changed, I64)
        self.changed = changed[box.get("swizzle")]
        if interleaved:
            self.wide = step.lift(8) << box.get("interleave")
            self.units = count * (self.wide >> 4)
            self.step = step
            self.pitch = self.units << 4
        else:
            self.wide = box.size
            self.units = (count * self.wide) >> 4
            spans = box.code.table(WGMMA_SWIZZLES, I64)
            self.pitch = larger(self.units << 4, spans[box.get("swizzle")])
        end = box.get("sizes", 0) * self.wide
        if not box.copy.loads:  # a store moves whole units
            end = ((end + UNIT - 1) >> 4) << 4
        self.end = end

    def move(self, places: list[Value]) -> None:
        """Copy the row at these coordinates."""
        box, code = self.box, self.box.code
        address, valid = box.address, box.at == box.at
        for dimension in range(1, box.copy.rank):
            place = places[dimension]
            address = address + place * box.stride(dimension)
            valid = valid & (place >= 0) & (place < box.get("sizes", dimension))
        line = box.at + box.line.value * self.pitch
        with code.loop(self.units) as unit, code.when(box.problem.value == 0):
            begin = self._begin(places[0], unit)
            left = self.end - begin
            good = valid & (begin >= 0) & (left > 0)
            count = select(good, smaller(left, UNIT), 0)
            goal = exchanged(line + (unit << 4), self.changed)
            _Unit(box, address + begin, goal, count).move()
        box.line.value = box.line.value + 1

    def _begin(self, place: Value, unit: Value) -> Value:
        """Where a unit begins in the row of the tensor, in bytes."""
        if not self.interleaved:
            return place * self.wide + (unit << 4)
        each = self.wide >> 4
        index = place + unit // each * self.step
        return index * self.wide + (unit % each << 4)


class _Unit(NamedTuple):
    """16 bytes of a box, of which the first ``moved`` are inside the tensor."""

    box: _BoxCopy
    address: Value
    goal: Value
    moved: Value

    def move(self) -> None:
        """Check the bounds of both memories, and copy."""
        box, code = self.box, self.box.code
        here, there = self.goal, self.address
        kept = inside(box.shared, here, UNIT)
        box.refuse(~kept, CopyRefusal.SHARED_BOUNDS, here)
        # A load reads what is inside the tensor; a store writes the whole unit.
        needed = self.moved if box.copy.loads else self.moved.lift(UNIT)
        fits = (self.moved == 0) | inside(box.where, there, needed)
        box.refuse(~fits, CopyRefusal.GLOBAL_BOUNDS, there)
        if not box.copy.loads:
            locked = (self.moved != 0) & ((box.where.flags & 1) != 0)
            box.refuse(locked, CopyRefusal.READ_ONLY, there)
        with code.when(box.problem.value == 0):
            if box.copy.loads:
                self._load()
            else:
                with code.when(self.moved != 0):
                    self._store() if box.copy.operation == "store" else self._reduce()

    def _memory(self, of: Type) -> Memory:
        place = host_pointer(self.box.code, self.box.where, self.address, of)
        return Memory(self.box.code.builder, place, of)

    def _image(self, of: Type) -> Memory:
        place = host_pointer(self.box.code, self.box.shared, self.goal, of)
        return Memory(self.box.code.builder, place, of)

    def _load(self) -> None:
        box, code = self.box, self.box.code
        with code.when(self.moved == UNIT):
            _copy(code, self._memory(I8), self._image(I8))
        with code.when(self.moved < UNIT):
            image, memory = self._image(I8), self._memory(I8)
            filled = box.get("fill") != 0
            with code.loop(UNIT) as place:
                with code.when(place < self.moved):
                    image[place] = memory[place]
                with code.when(place >= self.moved):
                    odd = (place & 1) != 0
                    byte = select(odd, code.constant(OUTSIDE >> 8, I8), OUTSIDE & 0xFF)
                    image[place] = select(filled, byte, 0)
        words = self._image(I32)
        with (
            code.when(box.get("tf32") != 0),
            code.loop(UNIT // 4) as place,
            code.when((place << 2) < self.moved),
        ):
            words[place] = _rounded(words[place])

    def _store(self) -> None:
        code = self.box.code
        _copy(code, self._image(I8), self._memory(I8))
        note(code, self.box.where, self.address, UNIT, PLAIN)

    def _reduce(self) -> None:
        box, code = self.box, self.box.code
        for name in TYPES_OF[box.copy.operation]:
            of = element_type(name)
            atomic = atomic_of(box.copy.operation, of)
            with code.when(box.is_type(of)):
                kind = ir.IntType(8 * of.bytes)
                memory, image = self._memory(kind), self._image(kind)
                with code.loop(UNIT // of.bytes) as place:
                    _combine(code, atomic, memory, image, place)
                note(code, box.where, self.address, UNIT, noted(atomic))


def _words(code: Code, map: Raw) -> list[Value]:
    """The first 64 bytes of a map; the rest is derived from them."""
    b = code.builder
    words = b.bitcast(map, I64.as_pointer())
    found = []
    for index in range(8):
        loaded = b.load(b.gep(words, [ir.Constant(I32, index)]))
        loaded.align = 1
        found.append(Value(b, loaded))
    return found


def _copy(code: Code, source: Memory, goal: Memory) -> None:
    """Copy 16 bytes."""
    b = code.builder
    wide = ir.VectorType(I8, UNIT).as_pointer()
    loaded = b.load(b.bitcast(source.raw, wide))
    loaded.align = 1
    b.store(loaded, b.bitcast(goal.raw, wide)).align = 1


def _rounded(bits: Value) -> Value:
    """f32 rounded to the nearest tf32, a tie to the even one; NaN is 0x7fffe000."""
    up = (bits + 0xFFF + (shift_unsigned(bits, 13) & 1)) & -0x2000
    return select((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FFFE000, up)


def atomic_of(operation: str, of: ElementType) -> Atomic:
    """The atomic operation that a reduction does with each element."""
    name = f"b{8 * of.bytes}" if operation in ("and", "or", "xor") else of.name
    flushes = name.endswith(".ftz")
    # Atomics on f32 flush subnormals in global memory; reductions only for .ftz types.
    space = "global" if flushes else "shared"
    plain = "f32" if name.startswith(("f32", "tf32")) else name
    return Atomic(operation, plain, space, 64, 1)


def _combine(
    code: Code, atomic: Atomic, memory: Memory, image: Memory, place: Number
) -> None:
    """Combine one element in memory with one of the box."""
    b = code.builder
    assert isinstance(place, Value)
    value = image[place]
    old = update(code, atomic, b.gep(memory.raw, [place.raw]), value)
    if atomic.type == "f64":  # a NaN keeps all its bits, also if it is signalling
        for each in (old, value):
            with code.when(is_nan(float_of(each))):
                memory[place] = each


# ── on arrays ───────────────────────────────────────────────────────────────


@once
def compiled(copy: Copy) -> Traced:
    """The machine code of a copy between two arrays."""

    def trace(
        code: Code,
        map: Memory,
        coordinates: Memory,
        offsets: Memory,
        memory: Memory,
        size: Value,
        origin: Value,
        image: Memory,
        image_size: Value,
        at: Value,
        report: Memory,
    ) -> None:
        b, nothing = code.builder, size.lift(0)
        hosts = [Value(b, b.ptrtoint(each.raw, I64)) for each in (memory, image)]
        there = AddressRange(hosts[0], size, origin, nothing, nothing)
        here = AddressRange(hosts[1], image_size, nothing, nothing, nothing)
        used = copy.rank - 2 if copy.im2col and copy.loads else 0
        done = copy_box(
            code,
            copy,
            map.raw,
            [coordinates[i] for i in range(copy.rank)],
            [offsets[i] for i in range(used)],
            here,
            at,
            lambda address: there,
        )
        report[0] = Value(b, b.sext(done.problem.raw, I64))
        report[1] = done.address

    numbers, bytes_ = pointer(I64), pointer(I8)
    parameters = {
        "map": bytes_,
        "coordinates": numbers,
        "offsets": numbers,
        "memory": bytes_,
        "size": I64,
        "origin": I64,
        "image": bytes_,
        "image_size": I64,
        "at": I64,
        "report": numbers,
    }
    mode = "im2col" if copy.im2col else "tile"
    return Traced(f"{copy.operation}_box_{mode}_{copy.rank}", parameters, trace)


def run_box(
    copy: Copy,
    map: bytes,
    coordinates: Sequence[int],
    offsets: Sequence[int],
    memory: NDArray[np.uint8],
    image: NDArray[np.uint8],
    *,
    at: int = 0,
    origin: int = 0,
) -> tuple[CopyRefusal, int]:
    """Copy a box between two arrays of bytes, of which it changes one.

    ``memory`` is global memory from the address ``origin`` on, ``image`` shared memory.
    The result is the problem, if there is one, and its address.

    >>> from fragmenta.reference.shared.tensor_map import TensorMap
    >>> memory, image = np.arange(20, dtype=np.uint8), np.zeros(128, np.uint8)
    >>> map = TensorMap("u8", (20,), box=(16,)).encode()
    >>> run_box(Copy("load", 1), map, (16,), (), memory, image)[0].name
    'NONE'
    >>> image[:6].tolist()
    [16, 17, 18, 19, 0, 0]
    """
    for name, array, goal in (
        ("memory", memory, not copy.loads),
        ("image", image, copy.loads),
    ):
        if array.dtype != np.uint8 or (goal and not array.flags.writeable):
            raise Error(
                f"{name} must be bytes{' that can be written' * goal}; given "
                f"{array.dtype}"
            )
    report = np.zeros(2, np.int64)
    compiled(copy)(
        np.frombuffer(map, np.uint8),
        np.array(coordinates, np.int64),
        np.array([*offsets, 0], np.int64),
        memory,
        memory.size,
        origin,
        image,
        image.size,
        at,
        report,
    )
    return CopyRefusal(int(report[0])), int(report[1])
