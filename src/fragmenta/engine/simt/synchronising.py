"""Instructions with which the lanes of a warp meet and exchange values.

Lanes that execute a ``.sync`` instruction wait until all lanes that it names have come
to it.  An ``.aligned`` instruction names all lanes.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I32,
    Code,
    Trace,
    Value,
    compare_unsigned,
    convert,
    select,
)
from fragmenta.engine.simt import layout, warps
from fragmenta.engine.simt.emitter import Writer, handles
from fragmenta.engine.simt.events import described, if_some, notify, tell
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.library import Routine, field
from fragmenta.engine.simt.memory import has, lane_of
from fragmenta.engine.simt.program import Program
from fragmenta.engine.simt.warps import P, routine
from fragmenta.errors import Error
from fragmenta.ptx.checking.divergence import is_aligned
from fragmenta.ptx.families import REDUCING, SHUFFLES
from fragmenta.ptx.module import Immediate, Instruction, Operand, Pair, Sink

_NAMED = SHUFFLES | {"vote", "match", "redux", "elect"}
_ALL = (1 << LANES) - 1
_TOLD: WeakKeyDictionary[Program, dict[tuple[str, int, str], int]] = WeakKeyDictionary()
"""Where a warp notes what lanes were reported for: function, instruction, mistake."""


def meet(writer: Writer, instruction: Instruction) -> None:
    """Let the lanes of a block go on only together with those they wait for."""
    if instruction.is_barrier and not is_aligned(instruction):
        return  # lanes wait there by other means
    here = writer.active()
    if instruction.guard is not None:  # the others go on
        chosen = writer.predicate(instruction.guard)
        here = writer.value(f"and i32 {chosen}, {here}")
        stay, go = f"i32 {writer.block.number}", f"i32 {writer.block.number + 1}"
        writer.call(warps.DIVERGE, "ptr %warp", f"i32 {here}", stay, go)
        _only(writer, here)
    members = writer.address(writer.constant(32, -1))
    if instruction.opcode in _NAMED:
        members = writer.pointer(instruction.operands[-1], "b32")
    free = writer.call(
        MEET, "ptr %warp", f"ptr {members}", f"i32 {here}", returns="i32"
    )
    if writer.mode.watch and is_aligned(instruction):
        _apart(writer, instruction, here, free)
    _only(writer, free)


def _apart(writer: Writer, instruction: Instruction, here: str, free: str) -> None:
    """Tell an observer of lanes that wait for others at an aligned instruction."""
    others = writer.value(f"xor i32 {free}, -1")
    mask, writer.mask = writer.mask, writer.value(f"and i32 {here}, {others}")
    tell(writer, ["apart", instruction.mnemonic], [])
    writer.mask = mask


def _only(writer: Writer, lanes: str) -> None:
    """Go on with some of the active lanes, if there are any."""
    writer.store("i32", lanes, "%warp", layout.ACTIVE)
    go, on = writer.value(f"icmp ne i32 {lanes}, 0"), writer.new_label()
    writer.line(f"br i1 {go}, label %{on}, label %dispatch")
    writer.label(on)


# ── exchanging ──────────────────────────────────────────────────────────────


def _pair(operand: Operand) -> tuple[Operand, Operand]:
    if isinstance(operand, Pair):
        return operand.first, operand.second
    return operand, Sink()


def _named(instruction: Instruction) -> Operand:
    """The membermask of an instruction; all lanes, if it has none."""
    if "sync" in instruction.qualifiers:
        return instruction.operands[-1]
    return Immediate(-1, "int", (1 << 64) - 1)


class Members(NamedTuple):
    """Who exchanges values with whom."""

    named: str
    """A pointer to the lanes that each lane names and that have the same membermask."""
    apart: str
    """The lanes that name lanes with another membermask, as a word."""


def members(writer: Writer, instruction: Instruction) -> Members:
    """Who takes part."""
    named, lanes = _named(instruction), writer.lanes()
    pointer = writer.pointer(named, "b32")
    if isinstance(named, Immediate):
        return Members(pointer, "0")
    same = writer.address(writer.temporary(32))
    given = f"ptr {same}", f"ptr {pointer}", f"i32 {lanes}"
    return Members(same, writer.call(SAME_MASK, *given, returns="i32"))


def _members(writer: Writer, instruction: Instruction) -> Members:
    """Who takes part.  A lane that does not name itself ends the launch."""
    named, lanes = _named(instruction), writer.lanes()
    pointer = writer.pointer(named, "b32")
    if not (isinstance(named, Immediate) and int(named.value) & _ALL == _ALL):
        out = writer.call(OUTSIDE, f"ptr {pointer}", f"i32 {lanes}", returns="i32")
        with if_some(writer, out):
            notify(writer, ["membermask", "own"], [described(writer, named)], out)
    found = members(writer, instruction)
    if _reports(writer) and not isinstance(named, Immediate):
        new = _untold(writer, "mask", found.apart)
        with if_some(writer, new):
            notify(writer, ["membermask", "mask"], [described(writer, named)], new)
    return found


def outsiders(writer: Writer, named: Operand) -> None:
    """Report lanes that come to a barrier of lanes which does not name them."""
    if not writer.mode.watch or not _reports(writer):
        return
    if isinstance(named, Immediate) and int(named.value) & _ALL == _ALL:
        return
    given = f"ptr {writer.pointer(named, 'b32')}", f"i32 {writer.lanes()}"
    new = _untold(writer, "own", writer.call(OUTSIDE, *given, returns="i32"))
    with if_some(writer, new):
        notify(writer, ["membermask", "outsider"], [described(writer, named)], new)


def _reports(writer: Writer) -> bool:
    """Whether the run reports; one that repeats another for a question does not."""
    return not (writer.mode.defined or writer.mode.raced or writer.mode.recorded)


@handles(*SHUFFLES)
def shfl(writer: Writer, instruction: Instruction) -> None:
    """Each lane reads a register of another lane."""
    unknown, d = shuffle(writer, instruction), _pair(instruction.operands[0])[0]
    words = ["membermask", "followed"]
    if _reports(writer):
        words = ["membermask", "source"]
        unknown = _untold(writer, "source", unknown)
    elif not writer.mode.defined:
        return
    with if_some(writer, unknown):
        about = (described(writer, each) for each in (_named(instruction), d))
        notify(writer, words, list(about), unknown)


def shuffle(writer: Writer, instruction: Instruction) -> str:
    """Exchange; the lanes whose value is undefined, as a word.

    They read a lane that their membermask does not name, or that is not here.
    """
    mode = next(w for w in instruction.qualifiers if w in MODES)
    d, p = _pair(instruction.operands[0])
    members = _members(writer, instruction)
    a, b, c = (writer.pointer(o, "b32") for o in instruction.operands[1:4])
    return writer.call(
        SHUFFLE[mode],
        f"ptr {writer.pointer(d, 'b32', result=True)}",
        f"ptr {writer.pointer(p, 'pred', result=True)}",
        f"ptr {a}",
        f"ptr {b}",
        f"ptr {c}",
        f"ptr {members.named}",
        f"i32 {members.apart}",
        f"i32 {writer.lanes()}",
        returns="i32",
    )


def _untold(writer: Writer, what: str, lanes: str) -> str:
    """Those of some lanes that were not reported for the present instruction.

    A loop would be slow that calls Python for a value that nobody needs.
    """
    places = _TOLD.setdefault(writer.program, {})
    key = writer.unit.function.name, writer.index, what
    if key not in places:
        places[key] = writer.program.warp_bytes
        writer.program.warp_bytes += 64
    place = places[key]
    told = writer.load("i32", "%warp", place)
    others = writer.value(f"xor i32 {told}, -1")
    both = writer.value(f"or i32 {told}, {lanes}")
    writer.store("i32", both, "%warp", place)
    return writer.value(f"and i32 {lanes}, {others}")


@handles("vote")
def vote(writer: Writer, instruction: Instruction) -> None:
    """What the lanes have in a predicate."""
    mode = next(w for w in instruction.qualifiers if w in _VOTES)
    d, a = instruction.operands[:2]
    kind = "b32" if mode == "ballot" else "pred"
    goal = writer.pointer(d, kind, result=True)
    if isinstance(a, Immediate):
        word = "-1" if a.value else "0"
    else:
        word = writer.load("i32", writer.pointer(a, "pred"), 0)
    writer.call(
        VOTE[mode],
        f"ptr {goal}",
        f"i32 {word}",
        f"ptr {_members(writer, instruction).named}",
        f"i32 {writer.lanes()}",
    )


@handles("match")
def match(writer: Writer, instruction: Instruction) -> None:
    """Which lanes have the same value."""
    bits = 64 if "b64" in instruction.qualifiers else 32
    mode = "all" if "all" in instruction.qualifiers else "any"
    d, p = _pair(instruction.operands[0])
    a = instruction.operands[1]
    writer.call(
        MATCH[mode, bits],
        f"ptr {writer.pointer(d, 'b32', result=True)}",
        f"ptr {writer.pointer(p, 'pred', result=True)}",
        f"ptr {writer.pointer(a, f'b{bits}')}",
        f"ptr {_members(writer, instruction).named}",
        f"i32 {writer.lanes()}",
    )


@handles("redux")
def redux(writer: Writer, instruction: Instruction) -> None:
    """Combine a register of all lanes."""
    words = instruction.qualifiers
    kind = words[-1]
    if kind == "f32":
        raise Error("redux.sync of f32 is for sm_100a; its order is not known here")
    operation = next(word for word in words if word in REDUCING)
    d, a = instruction.operands[:2]
    writer.call(
        reduce(operation, kind == "s32"),
        f"ptr {writer.pointer(d, kind, result=True)}",
        f"ptr {writer.pointer(a, kind)}",
        f"ptr {_members(writer, instruction).named}",
        f"i32 {writer.lanes()}",
    )


@handles("activemask")
def activemask(writer: Writer, instruction: Instruction) -> None:
    """The lanes that execute this."""
    goal = writer.pointer(instruction.operands[0], "b32", result=True)
    writer.call(SPREAD, f"ptr {goal}", f"i32 {writer.lanes()}", f"i32 {writer.lanes()}")


@handles("elect")
def elect(writer: Writer, instruction: Instruction) -> None:
    """One lane of several."""
    d, p = _pair(instruction.operands[0])
    writer.call(
        ELECT,
        f"ptr {writer.pointer(d, 'b32', result=True)}",
        f"ptr {writer.pointer(p, 'pred', result=True)}",
        f"ptr {_members(writer, instruction).named}",
        f"i32 {writer.lanes()}",
    )


# ── routines ────────────────────────────────────────────────────────────────

MODES = ("up", "down", "bfly", "idx")
_VOTES = ("all", "any", "uni", "ballot")


def _meet(code: Code, warp: Raw, members: Raw, here: Value) -> Value:
    """Which of the lanes here may go on: those whose members are all here."""
    live = field(code, warp, layout.LIVE, I32)[0]
    waiting = field(code, warp, layout.WAITING, I32)
    absent = live & ~here
    free = warps.to_word((warps.all_lanes(code, members) & absent) == 0) & here
    waiting[0] = waiting[0] | (here & ~free)
    return free


def _put(code: Code, pointer: Raw, lane: Value, value: Value) -> None:
    code.builder.store(value.raw, code.builder.gep(pointer, [lane.raw]))


def _put_bit(code: Code, pointer: Raw, lane: Value, bit: Value) -> None:
    """Set or clear the bit of a lane in a predicate."""
    word = field(code, pointer, 0, I32)
    one = word[0].lift(1) << convert(lane, I32)
    word[0] = select(bit, word[0] | one, word[0] & ~one)


def _outside(code: Code, members: Raw, lanes: Value) -> Value:
    """The lanes that their own membermask does not name."""
    each = ir.Constant(warps.VECTOR, [1 << lane for lane in range(LANES)])
    own = Value(code.builder, each)
    return warps.to_word((warps.all_lanes(code, members) & own) == 0) & lanes


def _same_mask(code: Code, goal: Raw, members: Raw, lanes: Value) -> Value:
    """The lanes that each lane names and that have the same membermask.

    On an H200, lanes exchange only with those.  The lanes that name others are
    returned: PTX lets them wait for what never comes.
    """
    named, masks = warps.words(code, members), warps.all_lanes(code, members)
    apart, groups = code.variable(lanes.lift(0)), code.array(I32, LANES)
    with code.loop(LANES) as lane, code.when(has(lanes, lane)):
        mine = lane_of(code, named, lane)
        same = warps.to_word(masks == mine) & lanes
        _put(code, groups, lane, mine & same)
        own = lanes.lift(1) << convert(lane, I32)
        alone = (mine & lanes & ~same) == 0
        apart.value = select(alone, apart.value, apart.value | own)
    with code.loop(LANES) as lane, code.when(has(lanes, lane)):
        _put(code, warps.words(code, goal), lane, lane_of(code, groups, lane))
    return apart.value


def _shuffle(mode: str) -> Trace:
    def trace(
        code: Code,
        d: Raw,
        p: Raw,
        a: Raw,
        b: Raw,
        c: Raw,
        members: Raw,
        apart: Value,
        lanes: Value,
    ) -> Value:
        # d may be a register that is read as well.
        values, goal = code.array(I32, LANES), warps.words(code, d)
        source, steps, limits, named = (
            warps.words(code, each) for each in (a, b, c, members)
        )
        unknown = code.variable(lanes.lift(0))
        with code.loop(LANES) as lane:
            _put(code, values, lane, lane_of(code, source, lane))
        with code.loop(LANES) as lane, code.when(has(lanes, lane)):
            given = (lane_of(code, each, lane) for each in (steps, limits))
            chosen, inside = source_lane(mode, convert(lane, I32), *given)
            own = lanes.lift(1) << convert(lane, I32)
            part = (lane_of(code, named, lane) | own) & lanes
            known = has(part, chosen)
            unknown.value = select(known, unknown.value, unknown.value | own)
            value = lane_of(code, values, chosen)
            here = has(readable(part, apart, lanes), chosen)
            _put(code, goal, lane, select(here, value, value.lift(0)))
            _put_bit(code, p, lane, inside)
        return unknown.value

    return trace


def readable(part: Value, apart: Value, lanes: Value) -> Value:
    """The lanes that a lane of a shuffle can read; for others, an H200 gives 0.

    That is all that execute it, unless some of them come with another membermask.
    """
    return select(apart == 0, lanes, part)


def source_lane(
    mode: str, here: Value, step: Value, limit: Value
) -> tuple[Value, Value]:
    """The lane that a lane of a shuffle reads, and whether it is inside its limit."""
    step = step & 31
    segment = (limit >> 8) & 31
    most = (here & segment) | (limit & 31 & ~segment)
    first = here & segment
    goal_lane = {
        "up": here - step,
        "down": here + step,
        "bfly": here ^ step,
        "idx": first | (step & ~segment),
    }[mode]
    inside = goal_lane >= most if mode == "up" else goal_lane <= most
    return select(inside, goal_lane, here) & 31, inside


def _vote(mode: str) -> Trace:
    def trace(code: Code, d: Raw, word: Value, members: Raw, lanes: Value) -> None:
        part = warps.all_lanes(code, members) & lanes
        yes = part & word
        if mode == "ballot":
            before = warps.all_lanes(code, d)
            warps.put_lanes(code, d, select(warps.to_lanes(lanes), yes, before))
            return
        found = {
            "all": yes == part,
            "any": yes != 0,
            "uni": (yes == part) | (yes == 0),
        }[mode]
        goal = field(code, d, 0, I32)
        goal[0] = (goal[0] & ~lanes) | (warps.to_word(found) & lanes)

    return trace


def _match(mode: str, bits: int) -> Trace:
    of = ir.IntType(bits)

    def trace(code: Code, d: Raw, p: Raw, a: Raw, members: Raw, lanes: Value) -> None:
        b = code.builder
        values = b.bitcast(a, of.as_pointer())
        vector = ir.VectorType(of, LANES)
        loaded = b.load(b.bitcast(a, vector.as_pointer()))
        loaded.align = 16
        everyone, named = Value(b, loaded), warps.words(code, members)
        results, goal = code.array(I32, LANES), warps.words(code, d)
        with code.loop(LANES) as lane, code.when(has(lanes, lane)):
            mine = lane_of(code, values, lane)
            part = lane_of(code, named, lane) & lanes
            same = warps.to_word(everyone == mine) & part
            if mode == "all":
                every = same == part
                _put(code, results, lane, select(every, part, part.lift(0)))
                _put_bit(code, p, lane, every)
            else:
                _put(code, results, lane, same)
        with code.loop(LANES) as lane, code.when(has(lanes, lane)):
            _put(code, goal, lane, lane_of(code, results, lane))

    return trace


def reduce(operation: str, signed: bool) -> Routine:
    """The routine that combines a register of all lanes."""

    def combine(x: Value, y: Value) -> Value:
        if operation in ("min", "max"):
            less = x < y if signed else compare_unsigned("<", x, y)
            first, second = (x, y) if operation == "min" else (y, x)
            return select(less, first, second)
        return {"add": x + y, "and": x & y, "or": x | y, "xor": x ^ y}[operation]

    def trace(code: Code, d: Raw, a: Raw, members: Raw, lanes: Value) -> None:
        source, named, goal = (warps.words(code, each) for each in (a, members, d))
        results = code.array(I32, LANES)
        with code.loop(LANES) as lane, code.when(has(lanes, lane)):
            part = lane_of(code, named, lane) & lanes
            total = code.variable(lane_of(code, source, lane))
            own = part.lift(1) << convert(lane, I32)
            with code.loop(LANES) as other, code.when(has(part & ~own, other)):
                total.value = combine(total.value, lane_of(code, source, other))
            _put(code, results, lane, total.value)
        with code.loop(LANES) as lane, code.when(has(lanes, lane)):
            _put(code, goal, lane, lane_of(code, results, lane))

    name = f"redux.{operation}.{'s' if signed else 'u'}32"
    return routine(name, trace, [P, P, P, I32], None)


def _spread(code: Code, d: Raw, word: Value, lanes: Value) -> None:
    before = warps.all_lanes(code, d)
    chosen = select(warps.to_lanes(lanes), before.lift(word), before)
    warps.put_lanes(code, d, chosen)


def _elect(code: Code, d: Raw, p: Raw, members: Raw, lanes: Value) -> None:
    named, goal = (warps.words(code, each) for each in (members, d))
    with code.loop(LANES) as lane, code.when(has(lanes, lane)):
        part = lane_of(code, named, lane) & lanes
        leader = warps.first_lane(part)
        _put(code, goal, lane, leader)
        _put_bit(code, p, lane, leader == convert(lane, I32))


MEET = routine("meet", _meet, [P, P, I32], I32)
OUTSIDE = routine("outside_membermask", _outside, [P, I32], I32)
SAME_MASK = routine("same_membermask", _same_mask, [P, P, I32], I32)
SPREAD = routine("spread_word", _spread, [P, I32, I32], None)
ELECT = routine("elect", _elect, [P, P, P, I32], None)
SHUFFLE = {
    mode: routine(f"shfl.{mode}", _shuffle(mode), [P, P, P, P, P, P, I32, I32], I32)
    for mode in MODES
}
VOTE = {
    mode: routine(f"vote.{mode}", _vote(mode), [P, I32, P, I32], None)
    for mode in _VOTES
}
MATCH = {
    (mode, bits): routine(
        f"match.{mode}.b{bits}", _match(mode, bits), [P, P, P, P, I32], None
    )
    for mode in ("any", "all")
    for bits in (32, 64)
}
