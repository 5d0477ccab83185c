"""Routines that load and store for 32 lanes.

A routine gets the lanes' addresses as a register.  Usually all of them are in one
segment; then one comparison of vectors shows that they are in bounds and aligned.
Otherwise each lane is checked alone, and the first that fails is a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw, Type
from fragmenta.base.jit.trace import (
    I1,
    I8,
    I16,
    I32,
    I64,
    Code,
    Number,
    Value,
    Variable,
    compare_unsigned,
    convert,
    select,
    shift_unsigned,
)
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.layout import LANES, MIXED, PLAIN, Fault, Status
from fragmenta.engine.simt.library import (
    POINTER,
    Routine,
    as_signed,
    define,
    field,
    pointer_at,
)
from fragmenta.engine.simt.warps import first_lane, to_word

INTEGERS = {8: I8, 16: I16, 32: I32, 64: I64}
WIDE = ir.VectorType(I64, LANES)
PASS_BYTES = 128
"""What a warp stores at a time."""


class AccessForm(NamedTuple):
    """A kind of load or store."""

    space: str
    """``global`` (also const and generic), ``shared``, ``cluster`` or ``local``."""
    bits: int
    """Bits of one element in memory."""
    register: int
    """Bits of the register it is loaded to or stored from."""
    elements: int = 1
    """Elements of each lane, side by side in memory."""
    signed: bool = False
    address: int = 64
    """Bits of the register with the address."""

    @property
    def bytes(self) -> int:
        """The bytes that each lane accesses."""
        return self.bits // 8 * self.elements

    @property
    def bare(self) -> AccessForm:
        """An access of the same bytes; which registers have them is left out."""
        bits = 8 * self.bytes
        return self._replace(bits=bits, register=bits, elements=1, signed=False)

    @property
    def name(self) -> str:
        """A name for the routine."""
        sign = "s" if self.signed else "u"
        words = (self.space, f"v{self.elements}", f"{sign}{self.bits}")
        return ".".join((*words, f"r{self.register}", f"a{self.address}"))


# ── places ──────────────────────────────────────────────────────────────────


class AddressRange(NamedTuple):
    """Memory that an address may be in."""

    base: Value
    """Its host address."""
    size: Value
    start: Value
    """Its first virtual address."""
    flags: Value
    """1: it must not be written; 2: what is written is noted."""
    notes: Value
    """The host address of a note for each byte: how it was written."""


def segment(code: Code, block: Raw, address: Value) -> AddressRange:
    """The segment of an address; it has no bytes if there is none."""
    b = code.builder
    slot = Value(b, b.lshr(address.raw, ir.Constant(I64, layout.SLOT_BITS)))
    known = compare_unsigned("<", slot, layout.SLOTS)
    safe = select(known, slot, 0)
    table = pointer_at(code, block, layout.BLOCK_SEGMENTS)
    entry = b.gep(table, [(safe * layout.SEGMENT_BYTES).raw])
    base, size, flags, notes = (field(code, entry, 8 * i, I64)[0] for i in range(4))
    # The first bytes of shared memory belong to the system.
    own = field(code, block, layout.BLOCK_RANK, I64)[0] + layout.SHARED_START
    first = select(safe == layout.SHARED_SLOT, own, 0)
    return AddressRange(base, size, (safe << layout.SLOT_BITS) + first, flags, notes)


def shared(code: Code, block: Raw) -> AddressRange:
    """The shared memory of a block, without what belongs to the system."""
    b = code.builder
    pointer = pointer_at(code, block, layout.BLOCK_SHARED)
    size = field(code, block, layout.BLOCK_SHARED_SIZE, I64)[0]
    nothing, start = size.lift(0), size.lift(layout.SHARED_START)
    base = Value(b, b.ptrtoint(pointer, I64))
    first = field(code, block, layout.BLOCK_RANK, I64)[0] + start
    return AddressRange(base + start, size - start, first, nothing, nothing)


def peer(code: Code, block: Raw, address: Value, window: int = 0) -> AddressRange:
    """The shared memory of the block of the cluster that an address names.

    It has no bytes if the cluster has no such block, or if the block has ended.  In the
    first case it has no base either.
    ``window`` is that of generic addresses.
    """
    b = code.builder
    rank = shift_unsigned(address, layout.RANK_BITS) & 0xFF
    known = compare_unsigned("<", rank, layout.MOST_RANKS)
    table = pointer_at(code, block, layout.BLOCK_PEERS)
    entry = b.gep(table, [(select(known, rank, 0) * 16).raw])
    base, size = (field(code, entry, 8 * i, I64)[0] for i in range(2))
    nothing = size.lift(0)
    first = (rank << layout.RANK_BITS) + (window + layout.SHARED_START)
    base, size = select(known, base, 0), select(known, size, 0)
    return AddressRange(base, size, first, nothing, nothing)


def local(code: Code, warp: Raw, block: Raw, lane: Value) -> AddressRange:
    """The local memory of a lane."""
    base = field(code, warp, layout.LOCAL_BASE, I64)[0]
    size = field(code, block, layout.BLOCK_LOCAL_SIZE, I64)[0]
    nothing = size.lift(0)
    return AddressRange(base + lane * size, size, nothing, nothing, nothing)


def inside(where: AddressRange, address: Value, size: Number) -> Value:
    """Whether an access of so many bytes is in bounds; for vectors, too.

    This is the only bound of addresses in segments, shared and local memory.
    """
    begin = address - address.lift(where.start)
    end = begin + size
    # An address below the start is a huge number here; the sum may wrap around.
    return compare_unsigned("<", begin, begin.lift(where.size)) & compare_unsigned(
        "<=", end, begin.lift(where.size)
    )


def pointer(code: Code, where: AddressRange, address: Value, of: Type) -> Raw:
    """The host pointer of an address."""
    place = where.base + (address - where.start)
    return code.builder.inttoptr(place.raw, of.as_pointer())


def fault(
    code: Code, warp: Raw, kind: Fault, number: Value, lane: Value, at: Value, size: int
) -> None:
    """Write down what went wrong."""
    field(code, warp, layout.STATUS, I32)[0] = number.lift(Status.FAULT)
    field(code, warp, layout.FAULT_KIND, I32)[0] = number.lift(kind)
    field(code, warp, layout.FAULT_ID, I32)[0] = number
    field(code, warp, layout.FAULT_LANE, I32)[0] = convert(lane, I32)
    field(code, warp, layout.FAULT_SIZE, I32)[0] = number.lift(size)
    field(code, warp, layout.FAULT_ADDRESS, I64)[0] = at


def addresses(code: Code, register: Raw, bits: int, offset: Value) -> Value:
    """The lanes' addresses as 64-bit numbers.

    A register of 32 bits and what is added to it wrap around, as in the units: ptxas
    adds a constant to a shared address that is below zero.
    """
    b = code.builder
    of = ir.VectorType(INTEGERS[bits], LANES)
    loaded = b.load(b.bitcast(register, of.as_pointer()))
    loaded.align = 16
    found = Value(b, loaded)
    if bits == 32:
        return convert(found + convert(offset, I32), I64, signed=False)
    return convert(found, I64, signed=False) + offset


def spill(code: Code, vector: Value) -> Raw:
    """The lanes of a vector in memory, where a loop can reach them."""
    slot = code.array(vector.type)
    code.builder.store(vector.raw, slot)
    return code.builder.bitcast(slot, vector.type.element.as_pointer())


def lane_of(code: Code, memory: Raw, lane: Value) -> Value:
    """One lane of a spilled vector or of a register."""
    b = code.builder
    return Value(b, b.load(b.gep(memory, [lane.raw])))


def has(lanes: Value, lane: Value) -> Value:
    """Whether a lane is in a mask."""
    taking_part: Value = ((lanes >> convert(lane, I32)) & 1) != 0
    return taking_part


# ── routines ────────────────────────────────────────────────────────────────


def load(access: AccessForm, lenient: bool = False) -> Routine:
    """The routine of a load; it returns 1 after a fault.

    If it is lenient, lanes that read past the end of an argument, but in its granule,
    get nothing, and are noted in ``PAST`` of the warp.
    """
    name = f"ld.{access.name}{'.lenient' * lenient}"
    return accessing(name, access, False, partial(ElementMove, lenient=lenient))


def store(access: AccessForm, lenient: bool = False) -> Routine:
    """The routine of a store; it returns 1 after a fault.

    If it is lenient, lanes that store past the end of an argument, but in its granule,
    or to the shared memory of a block that has ended, store nothing, and are noted.
    """
    name = f"st.{access.name}{'.lenient' * lenient}"
    return accessing(name, access, True, partial(ElementMove, lenient=lenient))


Mover = Callable[[Code, AccessForm, bool, tuple[Raw, ...], Raw], "ElementMove"]
"""Makes what moves elements: code, access, whether it stores, registers, block."""


def accessing(
    name: str, access: AccessForm, stores: bool, mover: Mover, pointers: int = 0
) -> Routine:
    """The routine of an access; so many pointers to registers are given to the mover.

    There are as many as elements, unless a number is given.
    """

    def trace(
        code: Code,
        warp: Raw,
        block: Raw,
        register: Raw,
        offset: Value,
        lanes: Value,
        number: Value,
        *registers: Raw,
    ) -> Value:
        move = mover(code, access, stores, registers, block)
        return _each(code, move, warp, block, register, offset, lanes, number)

    def build(module: ir.Module) -> None:
        registers = [POINTER] * (pointers or access.elements)
        given = [POINTER, POINTER, POINTER, I64, I32, I32, *registers]
        define(module, name, given, trace, I32)

    return Routine(name, build)


def _each(
    code: Code,
    move: ElementMove,
    warp: Raw,
    block: Raw,
    register: Raw,
    offset: Value,
    lanes: Value,
    number: Value,
) -> Value:
    access = move.access
    at = addresses(code, register, access.address, offset)
    spilled = spill(code, at)
    failed = code.variable(number.lift(0))
    if access.space == "local":
        with (
            code.when(lanes != 0),
            code.loop(LANES) as lane,
            code.when(has(lanes, lane) & (failed.value == 0)),
        ):
            address = lane_of(code, spilled, lane)
            where = local(code, warp, block, lane)
            good = _verdict(code, move, where, address, lane, warp, number, failed)
            with code.when(good):
                move.lane(where, address, lane)
        return failed.value
    if access.space == "cluster":
        _alone(code, move, warp, block, access, spilled, lanes, number, failed)
        return failed.value
    first = convert(first_lane(lanes), I64, signed=False) & (LANES - 1)
    one = lane_of(code, spilled, first)
    where = (
        shared(code, block) if access.space == "shared" else segment(code, block, one)
    )
    good = inside(where, at, access.bytes) & ((at & (access.bytes - 1)) == 0)
    fine = (~to_word(good) & lanes) == 0
    if move.stores:
        fine = fine & (where.flags == 0)
    _if_else(
        code,
        fine,
        lambda: _all(code, move, where, at, one, spilled, lanes),
        lambda: _alone(code, move, warp, block, access, spilled, lanes, number, failed),
    )
    return failed.value


def _if_else(
    code: Code, condition: Value, yes: Callable[[], None], no: Callable[[], None]
) -> None:
    with code.builder.if_else(condition.raw) as (then, otherwise):
        with then:
            yes()
        with otherwise:
            no()


def _all(
    code: Code,
    move: ElementMove,
    where: AddressRange,
    at: Value,
    one: Value,
    spilled: Raw,
    lanes: Value,
) -> None:
    """All lanes are in one segment."""
    access = move.access
    if move.side_by_side:
        numbers = ir.Constant(WIDE, [access.bytes * i for i in range(LANES)])
        line = at == at.lift(one) + Value(code.builder, numbers)
        dense = (to_word(line) == -1) & (lanes == -1)
        _if_else(
            code,
            dense,
            lambda: move.whole(where, one),
            lambda: _one_by_one(code, move, where, spilled, lanes),
        )
    else:
        _one_by_one(code, move, where, spilled, lanes)


def _one_by_one(
    code: Code, move: ElementMove, where: AddressRange, spilled: Raw, lanes: Value
) -> None:
    """One lane after the other."""
    with _in_order(code, move, lanes) as lane:
        move.lane(where, lane_of(code, spilled, lane), lane)


@contextmanager
def _in_order(code: Code, move: ElementMove, lanes: Value) -> Iterator[Value]:
    """Each lane that takes part; of stores the one that stays is the last.

    If lanes store different values to one place, the manual leaves open which stays.
    An H200 stores at most 128 bytes at a time: those of 32, 16 or 8 lanes, one group
    after the other.  Of each group the lowest lane stays (``tests/ptx/colliding.py``).
    """
    group = min(LANES, max(1, PASS_BYTES // move.access.bytes))
    with code.loop(LANES) as turn:
        lane = turn ^ (group - 1) if move.stores else turn
        with code.when(has(lanes, lane)):
            yield lane


def _alone(
    code: Code,
    move: ElementMove,
    warp: Raw,
    block: Raw,
    access: AccessForm,
    spilled: Raw,
    lanes: Value,
    number: Value,
    failed: Variable,
) -> None:
    """Each lane may be in another segment, or in none: then nothing is stored."""
    # The segment that was found in the check is used by the store.
    kept = [code.scratch(I64, LANES) for _ in AddressRange._fields if move.stores]
    with code.loop(LANES) as lane, code.when(has(lanes, lane) & (failed.value == 0)):
        address = lane_of(code, spilled, lane)
        if access.space == "shared":
            where = shared(code, block)
        elif access.space == "cluster":
            where = peer(code, block, address)
        else:
            where = generic(code, warp, block, address, lane)
        past = _survived(move, where, block, address)
        with code.when(past):
            noted = field(code, warp, layout.PAST, I32)
            noted[0] = noted[0] | (lanes.lift(1) << convert(lane, I32))
        judged = move, where, address, lane, warp, number, failed
        good = _verdict(code, *judged, past)
        if move.stores:
            for memory, each in zip(kept, where, strict=True):
                memory[lane] = each
        else:
            with code.when(good):
                move.lane(where, address, lane)
    if move.stores:
        with code.when(failed.value == 0), _in_order(code, move, lanes) as lane:
            address = lane_of(code, spilled, lane)
            where = AddressRange(*(memory[lane] for memory in kept))
            there = code.constant(1, I1)
            if move.lenient:
                there = inside(where, address, access.bytes)
            with code.when(there):
                move.lane(where, address, lane)
                note(code, where, address, access.bytes, PLAIN)


def past_end(
    code: Code, block: Raw, where: AddressRange, address: Value, size: Number
) -> Value:
    """Whether bytes are past the end of an argument, or partly, but in its granule.

    Never so if the launch does not go on after that.
    """
    granule = field(code, block, layout.BLOCK_GRANULE, I64)[0]
    whole = where._replace(size=(where.size + granule - 1) & ~(granule - 1))
    slot = shift_unsigned(address, layout.SLOT_BITS)
    argument = (slot >= layout.FIRST_ARGUMENT) & (slot < layout.FIRST_VARIABLE)
    beyond = inside(whole, address, size) & ~inside(where, address, size)
    past: Value = beyond & argument
    return past


def _survived(
    move: ElementMove, where: AddressRange, block: Raw, address: Value
) -> Value:
    """Whether a lane may not access an address, but hardware survives it."""
    code, size = move.code, move.access.bytes
    if not move.lenient:
        return code.constant(0, I1)
    past = past_end(code, block, where, address, size)
    if move.stores:
        past = (past & ((where.flags & 1) == 0)) | _ended(move, block, address)
    aligned: Value = (address & (size - 1)) == 0
    return past & aligned


def _ended(move: ElementMove, block: Raw, address: Value) -> Value:
    """Whether an address is in the shared memory of a block that has ended.

    An H200 ignores stores to it (``tests/golden/h200/ended_blocks.json``).
    """
    code, access = move.code, move.access
    window = 0 if access.space == "cluster" else layout.SHARED_WINDOW
    other, own = peer(code, block, address, window), shared(code, block)
    unwatched = field(code, block, layout.BLOCK_WATCH, I64)[0] == 0
    goes_on = (field(code, block, layout.BLOCK_GRANULE, I64)[0] > 1) | unwatched
    there = inside(other._replace(size=own.size), address, access.bytes)
    gone: Value = goes_on & (other.base != 0) & (other.size == 0) & there
    return gone


def generic(
    code: Code, warp: Raw, block: Raw, address: Value, lane: Value
) -> AddressRange:
    """The memory of a generic address: also local memory, or that of another block."""
    found = segment(code, block, address)
    own = local(code, warp, block, lane)
    other = peer(code, block, address, layout.SHARED_WINDOW)
    here = found.start == layout.LOCAL_WINDOW
    slot = shift_unsigned(address, layout.SLOT_BITS)
    there = slot == layout.SHARED_SLOT
    return AddressRange(
        select(here, own.base, select(there, other.base, found.base)),
        select(here, own.size, select(there, other.size, found.size)),
        select(there, other.start, found.start),
        found.flags,
        found.notes,
    )


def note(code: Code, where: AddressRange, address: Value, size: int, kind: int) -> None:
    """Note how bytes were written, if the launch keeps notes."""
    b = code.builder
    with code.when((where.flags & 2) != 0):
        place = where.notes + (address - where.start)
        notes = b.inttoptr(place.raw, I8.as_pointer())
        for index in range(size):
            at = b.gep(notes, [ir.Constant(I32, index)])
            before = Value(b, b.load(at))
            same = (before == 0) | (before == as_signed(kind, 8))
            b.store(
                select(same, before.lift(as_signed(kind, 8)), as_signed(MIXED, 8)).raw,
                at,
            )


def _verdict(
    code: Code,
    move: ElementMove,
    where: AddressRange,
    address: Value,
    lane: Value,
    warp: Raw,
    number: Value,
    failed: Variable,
    past: Value | None = None,
) -> Value:
    """Whether a lane may access an address; if not, what is wrong is written down.

    ``past``: it may not, but nothing is wrong.
    """
    size = move.access.bytes
    bounds = inside(where, address, size)
    aligned = (address & (size - 1)) == 0
    allowed = (where.flags & 1) == 0 if move.stores else bounds
    for wrong, kind in (
        (~bounds if past is None else ~bounds & ~past, Fault.BOUNDS),
        (bounds & ~aligned, Fault.ALIGNMENT),
        (bounds & aligned & ~allowed, Fault.READ_ONLY),
    ):
        with code.when(wrong):
            fault(code, warp, kind, number, lane, address, size)
            failed.value = number.lift(1)
    good: Value = bounds & aligned & allowed
    return good


class ElementMove:
    """Moves the elements of one lane, or of all, between memory and registers."""

    def __init__(
        self,
        code: Code,
        access: AccessForm,
        stores: bool,
        registers: tuple[Raw, ...],
        block: Raw,
        lenient: bool = False,
    ) -> None:
        self.code, self.access, self.stores = code, access, stores
        self.registers, self.block = registers, block
        self.lenient = lenient
        """Whether accesses that hardware survives are no faults."""

    @property
    def side_by_side(self) -> bool:
        """Whether :meth:`whole` can move the elements of all lanes at once."""
        return self.access.elements == 1 and self.access.bits == self.access.register

    def lane(self, where: AddressRange, address: Value, lane: Value) -> None:
        """The elements of one lane."""
        b, access = self.code.builder, self.access
        of, held = INTEGERS[access.bits], INTEGERS[access.register]
        memory = pointer(self.code, where, address, of)
        for index, register in enumerate(self.registers):
            element = b.gep(memory, [ir.Constant(I32, index)])
            place = b.gep(b.bitcast(register, held.as_pointer()), [lane.raw])
            if self.stores:
                value = convert(Value(b, b.load(place)), of)
                b.store(value.raw, element).align = 1
            else:
                loaded = b.load(element)
                loaded.align = 1
                value = convert(Value(b, loaded), held, signed=access.signed)
                b.store(value.raw, place)

    def whole(self, where: AddressRange, address: Value) -> None:
        """The elements of all lanes, which are side by side."""
        b = self.code.builder
        of = ir.VectorType(INTEGERS[self.access.bits], LANES)
        memory = pointer(self.code, where, address, of)
        register = b.bitcast(self.registers[0], of.as_pointer())
        source, goal = (register, memory) if self.stores else (memory, register)
        loaded = b.load(source)
        loaded.align = 1
        b.store(loaded, goal).align = 1
