"""A fast path while it is traced: the instruction, its operands, and the way out.

A fast path asks with :meth:`FastStep.require` for all that it expects.  If something is
otherwise, Python carries out the instruction.  So nothing may be changed before the
last such question.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from llvmlite import ir

from fragmenta.base.jit.llvm import BasicBlock, Raw
from fragmenta.base.jit.trace import (
    I8,
    I16,
    I32,
    I64,
    Code,
    Memory,
    Value,
    compare_unsigned,
    convert,
    ones,
    select,
)
from fragmenta.engine.simt import layout as engine
from fragmenta.engine.simt.layout import RANK_BITS, SHARED_WINDOW
from fragmenta.engine.simt.library import POINTER, Routine, field, pointer_at
from fragmenta.engine.simt.warps import (
    P,
    all_lanes,
    first_lane,
    put_lanes,
    routine,
    to_lanes,
    to_word,
)
from fragmenta.engine.units.fast import layout

HANDLER = ir.FunctionType(I32, [POINTER, POINTER, POINTER, I32])
"""A fast path: block, warp, event, lanes; it returns the lanes that may go on."""
OBSERVE = ir.FunctionType(I32, [POINTER, POINTER, POINTER, I32, POINTER, I64])
"""A function of the observer: see ``PORT_...``."""
NOTE = ir.FunctionType(
    ir.VoidType(), [POINTER, POINTER, POINTER, I32, I32, POINTER, I64]
)
"""The function of a recorder: see ``NOTE_...``."""
CALLBACK = ir.FunctionType(I32, [POINTER, POINTER, I32, I32])
"""Python: block, warp, number of the event, lanes."""


class FastStep:
    """An instruction that some lanes of a warp execute."""

    def __init__(
        self,
        code: Code,
        block: Raw,
        warp: Raw,
        event: Raw,
        lanes: Value,
        out: BasicBlock,
    ) -> None:
        self.code, self.block, self.warp, self.event = code, block, warp, event
        self.lanes, self._out = lanes, out
        self.state = pointer_at(code, block, engine.BLOCK_UNITS)
        self.cluster = pointer_at(code, self.state, layout.STATE_CLUSTER)
        self.leader = first_lane(lanes)

    # ── the way out ─────────────────────────────────────────────────────────

    def require(self, condition: Value) -> None:
        """Leave the instruction to Python, unless a condition holds."""
        b = self.code.builder
        on = b.append_basic_block()
        b.cbranch(condition.raw, on, self._out)
        b.position_at_end(on)

    # ── words of memory ─────────────────────────────────────────────────────

    def word(self, base: Raw, offset: int) -> Memory:
        """A word of 32 bits."""
        return field(self.code, base, offset, I32)

    def long(self, base: Raw, offset: int) -> Memory:
        """A word of 64 bits."""
        return field(self.code, base, offset, I64)

    @property
    def flags(self) -> Value:
        """The words of the instruction, as its fast path numbers them."""
        return self.word(self.event, layout.EVENT_FLAGS)[0]

    @property
    def number(self) -> Value:
        """The number of the warp."""
        return self.word(self.warp, engine.WARP_NUMBER)[0]

    @property
    def rank(self) -> Value:
        """The rank of the block."""
        return self.word(self.state, layout.STATE_RANK)[0]

    @property
    def name(self) -> Value:
        """The warp as a number that is not 0."""
        return (self.rank << 16 | self.number) + 1

    @property
    def live(self) -> Value:
        """The lanes of the warp that have not ended."""
        return self.word(self.warp, engine.LIVE)[0]

    @property
    def threads(self) -> Value:
        """How many lanes there are."""
        return ones(self.lanes)

    def changed(self) -> None:
        """Something happened that lanes may wait for."""
        changes = self.long(self.cluster, layout.CLUSTER_CHANGES)
        changes[0] = changes[0] + 1

    def woke(self) -> None:
        """Lanes that wait may go on."""
        woke(self.code, self.cluster)

    def tested(self) -> None:
        """The lanes tested something without success."""
        asked = self.word(self.warp, engine.ASKED)
        asked[0] = asked[0] | self.lanes

    # ── the observer ────────────────────────────────────────────────────────

    def observe(self, call: int, about: Raw, number: Value | int = 0) -> Value:
        """Call a function of the observer; 1 if there is none."""
        return observe(
            self.code,
            self.cluster,
            call,
            (self.block, self.warp, self.event, self.lanes.raw),
            about,
            number,
        )

    def note(self, kind: int, about: Raw, number: Value | int = 0) -> None:
        """Tell a recorder what has happened."""
        who = self.block, self.warp, self.event, self.lanes.raw
        note(self.code, self.cluster, kind, who, about, number)

    # ── operands ────────────────────────────────────────────────────────────

    def operand(self, number: int) -> Raw:
        """Where an operand is described."""
        place = layout.EVENT_OPERANDS + number * layout.OPERAND_BYTES
        return self.code.builder.gep(self.event, [ir.Constant(I32, place)])

    def value(self, number: int, bits: int = 64) -> Value:
        """An operand that all lanes have in common; Python does what is different.

        It is unsigned; ``bits`` says of what size the result is.
        """
        b = self.code.builder
        same = self.code.array(I32)
        given = [self.warp, self.operand(number), self.state, self.lanes.raw]
        kind = ir.FunctionType(I64, [POINTER] * 3 + [I32, POINTER])
        function = declared(b.module, OPERAND.name, kind)
        found = Value(b, b.call(function, [*given, b.bitcast(same, POINTER)]))
        self.require(Value(b, b.load(same)) != 0)
        return found if bits == 64 else convert(found, ir.IntType(bits))

    def lane_values(self, number: int) -> Value:
        """An operand that may differ from lane to lane, as 32 unsigned numbers.

        It is a register or an address in one, or a number; no predicate.
        """
        code, described = self.code, self.operand(number)
        kind, wide = (
            self.word(described, each)[0]
            for each in (layout.OPERAND_KIND, layout.OPERAND_BITS)
        )
        place = self.long(described, layout.OPERAND_PLACE)[0]
        found = code.variable(place.in_all_lanes(engine.LANES))
        register = kind == layout.REGISTER
        number_ = (kind == layout.CONSTANT) | (kind == layout.NOTHING)
        self.require(number_ | (register & ((wide == 64) | (wide == 32))))
        for width, of in ((64, I64), (32, I32)):
            with code.when(register & (wide == width)):
                at = code.builder.gep(self.warp, [place.raw])
                lanes = all_lanes(code, at, of)
                found.value = convert(lanes, I64, signed=False)
        ranked = self.word(described, layout.OPERAND_RANKED)[0] != 0
        rank = convert(self.rank << RANK_BITS, I64)
        added = self.long(described, layout.OPERAND_ADDED)[0]
        total = found.value + (added + select(ranked, rank, 0))
        wraps = self.word(described, layout.OPERAND_WRAPS)[0] != 0
        return total & select(wraps, added.lift(0xFFFFFFFF), -1)

    def put(self, number: int, value: Value) -> None:
        """Set an operand of the lanes, a register or a predicate."""
        code, b, described = self.code, self.code.builder, self.operand(number)
        kind = self.word(described, layout.OPERAND_KIND)[0]
        at = b.gep(self.warp, [self.long(described, layout.OPERAND_PLACE)[0].raw])
        wide = self.word(described, layout.OPERAND_BITS)[0]
        with code.when(kind == layout.PREDICATE):
            word = Memory(b, b.bitcast(at, I32.as_pointer()), I32)
            before = word[0]
            yes, no = before | self.lanes, before & ~self.lanes
            word[0] = select(value != 0, yes, no)
        with code.when(kind == layout.REGISTER):
            for width, of in ((64, I64), (32, I32)):
                with code.when(wide == width):
                    old = all_lanes(code, at, of)
                    new = convert(value, of) if of != value.type else value
                    put_lanes(
                        code, at, select(to_lanes(self.lanes), old.lift(new), old)
                    )

    # ── shared memory ───────────────────────────────────────────────────────

    def shared_address(self, address: Value, generic: Value) -> Value:
        """An address in shared memory, which may be given as a generic one."""
        found = address - select(generic, address.lift(SHARED_WINDOW), 0)
        self.require(shift(found, 32) == 0)
        return convert(found, I32)

    def mbarrier(self, address: Value) -> FastMbarrier:
        """The mbarrier at an address of shared memory, if it is as it was left."""
        rank, offset = shift(address, RANK_BITS), address & (1 << RANK_BITS) - 1
        blocks = self.word(self.cluster, layout.CLUSTER_BLOCKS)[0]
        self.require(compare_unsigned("<", rank, blocks))
        ended = self.word(self.cluster, layout.CLUSTER_ENDED)[0]
        self.require(((ended >> rank) & 1) == 0)
        peers = field(self.code, self.cluster, layout.CLUSTER_PEERS, POINTER)
        state = peers[convert(rank, I64)].raw
        return self.mbarrier_of(state, convert(offset, I64))

    def mbarrier_of(self, state: Raw, offset: Value) -> FastMbarrier:
        """The mbarrier at an offset in the shared memory of a block."""
        found = self.mbarrier_at(state, offset)
        self.require(found.alive & found.intact)
        self.require(self.observe(layout.PORT_USED, found.record) != 0)
        return found

    def mbarrier_at(self, state: Raw, offset: Value) -> FastMbarrier:
        """The mbarrier that is or may be at an offset, if there is room for one."""
        size = self.long(state, layout.STATE_SHARED_SIZE)[0]
        self.require((offset < size - 7) & ((offset & 7) == 0))
        b = self.code.builder
        records = pointer_at(self.code, state, layout.STATE_MBARRIERS)
        record = b.gep(records, [(offset * (layout.MBARRIER_BYTES // 8)).raw])
        shared = pointer_at(self.code, state, layout.STATE_SHARED)
        bits = b.bitcast(b.gep(shared, [offset.raw]), I64.as_pointer())
        return FastMbarrier(self, state, record, Memory(b, bits, I64))


class FastMbarrier(NamedTuple):
    """An mbarrier, read and changed by compiled code."""

    step: FastStep
    state: Raw
    """The state of its block."""
    record: Raw
    bits: Memory
    """Its 64 bits of shared memory."""

    def word(self, offset: int) -> Memory:
        """A word of its record."""
        return self.step.word(self.record, offset)

    @property
    def phase(self) -> Memory:
        """The number of phases that are over."""
        return self.step.long(self.record, layout.MBARRIER_PHASE)

    @property
    def alive(self) -> Value:
        """Whether there is one."""
        there: Value = self.word(layout.MBARRIER_ALIVE)[0] != 0
        return there

    @property
    def intact(self) -> Value:
        """Whether its bits are in shared memory as it left them."""
        same: Value = self.bits[0] == self.packed()
        return same

    def packed(self) -> Value:
        """The bits that are to be in shared memory."""
        phase = (self.phase[0] & 0xFFFFFF) << 40
        bytes_ = convert(self.word(layout.MBARRIER_TX)[0], I64) & 0xFFFFF
        pending = convert(self.word(layout.MBARRIER_PENDING)[0], I64) & 0xFFFFF
        packed: Value = (phase | bytes_ << 20 | pending) ^ layout.MARK
        return packed

    def settle(self) -> None:
        """Begin the next phase, if nothing is pending; write the bits."""
        code, step = self.step.code, self.step
        pending, bytes_ = self.word(layout.MBARRIER_PENDING), layout.MBARRIER_TX
        over = (pending[0] == 0) & (self.word(bytes_)[0] == 0)
        with code.when(over):
            self.phase[0] = self.phase[0] + 1
            self.word(layout.MBARRIER_DRIVER)[0] = step.name
            pending[0] = self.word(layout.MBARRIER_EXPECTED)[0]
            step.observe(layout.PORT_PHASE, self.record)
            step.changed()
            step.woke()
        self.write()

    def write(self) -> None:
        """Put its bits into shared memory."""
        self.bits[0] = self.packed()
        self.step.note(layout.NOTE_MBARRIER, self.record)


def woke(code: Code, cluster: Raw) -> None:
    """Lanes of a cluster that wait may go on."""
    wakes = field(code, cluster, layout.CLUSTER_WAKES, I64)
    wakes[0] = wakes[0] + 1


def shift(number: Value, by: int) -> Value:
    """An unsigned number shifted right."""
    b = number.builder
    return Value(b, b.lshr(number.raw, ir.Constant(number.type, by)))


def declared(module: ir.Module, name: str, kind: ir.FunctionType) -> Raw:
    """A function of another routine."""
    found: Raw = module.globals.get(name)
    return ir.Function(module, kind, name) if found is None else found


# ── operands ────────────────────────────────────────────────────────────────


def _operand(
    code: Code, warp: Raw, described: Raw, state: Raw, lanes: Value, same: Raw
) -> Value:
    """The value of an operand, and whether all lanes have the same."""

    def word(offset: int) -> Value:
        return field(code, described, offset, I32)[0]

    b, equal = code.builder, field(code, same, 0, I32)
    kind, wide = word(layout.OPERAND_KIND), word(layout.OPERAND_BITS)
    place = field(code, described, layout.OPERAND_PLACE, I64)[0]
    found = code.variable(place)
    equal[0] = lanes.lift(1)
    with code.when(kind == layout.REGISTER):
        at = b.gep(warp, [place.raw])
        for width, of in ((64, I64), (32, I32), (16, I16), (8, I8)):
            with code.when(wide == width):
                lane = convert(first_lane(lanes), I64)
                one = Memory(b, b.bitcast(at, of.as_pointer()), of)[lane]
                unequal = ~to_word(all_lanes(code, at, of) == one) & lanes
                equal[0] = select(unequal == 0, lanes.lift(1), 0)
                found.value = convert(one, I64, signed=False)
    with code.when(kind == layout.PREDICATE):
        true = field(code, b.gep(warp, [place.raw]), 0, I32)[0] & lanes
        equal[0] = select((true == 0) | (true == lanes), lanes.lift(1), 0)
        found.value = convert(true != 0, I64, signed=False) ^ convert(wide, I64)
    ranked = word(layout.OPERAND_RANKED) != 0
    rank = field(code, state, layout.STATE_RANK, I32)[0] << RANK_BITS
    first = convert(select(ranked, rank, 0), I64, signed=False)
    total = found.value + field(code, described, layout.OPERAND_ADDED, I64)[0] + first
    return select(word(layout.OPERAND_WRAPS) != 0, total & 0xFFFFFFFF, total)


OPERAND = routine("units.operand", _operand, [P, P, P, I32, P], I64)


# ── routines ────────────────────────────────────────────────────────────────


def fast_path(
    name: str, trace: Callable[[FastStep], Value], split: tuple[int, ...] = ()
) -> Routine:
    """A routine that carries out an instruction, or leaves it to Python.

    Lanes for which operands ``split`` differ are groups, with the lowest lane first;
    each carries out the instruction by itself, as with ``units.events.together``.
    """

    def build(module: ir.Module) -> None:
        function = ir.Function(module, HANDLER, name)
        block, warp, event, lanes = function.args
        code = Code(function)
        b = code.builder
        out = b.append_basic_block("python")
        step = FastStep(code, block, warp, event, Value(b, lanes), out)
        passed = trace(step)
        b.ret(passed.raw)
        b.position_at_end(out)
        if split:
            _split(step, function, split)
        code.close(ask_python(code, step.cluster, block, warp, event, lanes))

    return Routine(name, build)


def _split(first: FastStep, function: ir.Function, operands: tuple[int, ...]) -> None:
    """Call a fast path for each group of lanes, if there are several.

    A group that needs Python asks for it alone.  In a random order, each call of
    Python is a chance for work in flight to be done: then all lanes go there.
    """
    code, b = first.code, first.code.builder
    python = b.append_basic_block("together")
    step = FastStep(code, first.block, first.warp, first.event, first.lanes, python)
    random = step.word(step.cluster, layout.CLUSTER_SCHEDULE)[0] == layout.RANDOM
    step.require(~random & ((step.lanes & (step.lanes - 1)) != 0))
    values = [step.lane_values(each) for each in operands]
    slots = [code.scratch(I64, engine.LANES) for _ in operands]
    for slot, value in zip(slots, values, strict=True):
        slot[0] = value

    def like(lane: Value) -> Value:
        """The lanes that have what one of them has."""
        found = step.lanes
        for slot, value in zip(slots, values, strict=True):
            found = found & to_word(value == slot[lane])
        return found

    step.require(like(convert(step.leader, I64)) != step.lanes)
    left, passed = code.variable(step.lanes), code.variable(step.lanes.lift(0))

    def is_left(lane: Value) -> Value:
        """Whether it is to go on with this lane: after a fault, nobody does."""
        status = step.word(step.warp, engine.STATUS)[0]
        there = ((left.value >> convert(lane, I32)) & 1) != 0
        found: Value = there & (status != engine.Status.FAULT)
        return found

    with code.loop(engine.LANES) as lane, code.when(is_left(lane)):
        members = like(lane)
        given = [step.block, step.warp, step.event, members.raw]
        passed.value = passed.value | Value(b, b.call(function, given))
        left.value = left.value & ~members
    b.ret(passed.value.raw)
    b.position_at_end(python)


def observe(
    code: Code,
    cluster: Raw,
    call: int,
    step: tuple[Raw, Raw, Raw, Raw],
    about: Raw,
    number: Value | int = 0,
) -> Value:
    """Call a function of the observer of a cluster; 1 if nobody observes."""
    b = code.builder
    port = pointer_at(code, cluster, layout.CLUSTER_PORT)
    answer = code.variable(code.constant(1, I32))
    with b.if_then(b.icmp_unsigned("!=", port, ir.Constant(POINTER, None))):
        function = b.bitcast(pointer_at(code, port, call), OBSERVE.as_pointer())
        more = number if isinstance(number, Value) else code.constant(number, I64)
        answer.value = Value(b, b.call(function, [*step, about, more.raw]))
    return answer.value


def note(
    code: Code,
    cluster: Raw,
    kind: int,
    step: tuple[Raw, Raw, Raw, Raw],
    about: Raw,
    number: Value | int = 0,
) -> None:
    """Tell the recorder of a cluster what has happened, if there is one."""
    b = code.builder
    function = pointer_at(code, cluster, layout.CLUSTER_TRACE)
    with b.if_then(b.icmp_unsigned("!=", function, ir.Constant(POINTER, None))):
        more = number if isinstance(number, Value) else code.constant(number, I64)
        given = [*step, ir.Constant(I32, kind), about, more.raw]
        b.call(b.bitcast(function, NOTE.as_pointer()), given)


def ask_python(
    code: Code, cluster: Raw, block: Raw, warp: Raw, event: Raw, lanes: Raw
) -> Value:
    """Let Python carry out an event."""
    b = code.builder
    function = pointer_at(code, cluster, layout.CLUSTER_PYTHON)
    number = field(code, event, layout.EVENT_NUMBER, I32)[0]
    call = b.bitcast(function, CALLBACK.as_pointer())
    return Value(b, b.call(call, [block, warp, number.raw, lanes]))
