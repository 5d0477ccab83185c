"""Code that follows undefined bits through a kernel, as Valgrind's memcheck does.

Each register that can hold undefined bits (:mod:`undefined_flow`) has a twin, its
shadow; so has memory.  Before an instruction runs, its twin is executed: a copy copies
the shadow, a load loads it from the shadow of memory.  An event reports undefined bits
that reach global memory, decide a branch, or are part of an address.

This code is slow.  A launch is run with it only after something undefined was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from weakref import WeakKeyDictionary

from fragmenta.engine.planes.code.kinds import truth_table
from fragmenta.engine.planes.code.plane_instruction import PlaneInstruction
from fragmenta.engine.planes.code.shadow_registers import (
    added,
    place_shadow,
    place_words,
)
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.accessing import element_type, space_of
from fragmenta.engine.simt.emitter import (
    InMemory,
    Writer,
    address_of,
)
from fragmenta.engine.simt.events import described, if_some, notify, tell
from fragmenta.engine.simt.lane_copies import is_lane_copy
from fragmenta.engine.simt.library import Routine
from fragmenta.engine.simt.matrices import operation
from fragmenta.engine.simt.program import PlacedFunction, Program, register_bytes
from fragmenta.engine.simt.synchronising import SPREAD, shuffle
from fragmenta.engine.simt.wgmma_operands import describe, is_wgmma
from fragmenta.errors import Error
from fragmenta.ptx import families
from fragmenta.ptx.checking.register_effects import registers
from fragmenta.ptx.families import MOVES
from fragmenta.ptx.module import (
    Address,
    Immediate,
    Instruction,
    Not,
    Operand,
    Pair,
    Register,
    Sink,
    Symbol,
    Vector,
    type_bits,
)
from fragmenta.ptx.opcodes.kinds import computes, kind_of
from fragmenta.ptx.opcodes.table import TYPES
from fragmenta.reference.isa.tables.moves import row_bytes
from fragmenta.watch.races.probes import undefined_bits
from fragmenta.watch.races.probes.undefined_flow import (
    can_follow,
    followed,
    loads,
)
from fragmenta.watch.races.probes.windows import FAR, NEAR, window_of

_TWINS: WeakKeyDictionary[PlacedFunction, dict[int, tuple[Register, ...]]] = (
    WeakKeyDictionary()
)
_SCRATCH: WeakKeyDictionary[PlacedFunction, dict[str, tuple[Register, Register]]] = (
    WeakKeyDictionary()
)
"""Two registers of each width, for what is used at once."""
_POISONED: WeakKeyDictionary[Program, tuple[int, int]] = WeakKeyDictionary()

_KEEPING = MOVES | {"cvta", "xor", "not"}
"""Opcodes whose results are undefined wherever an operand is."""
_DROPPING = frozenset({"moves", "reverses", "bitwise"})
"""Kinds whose results may lack undefined bits of their operands."""


def poisoned(program: Program) -> tuple[int, int]:
    """Where in a warp the shadows are that begin undefined, and their bytes."""
    return _POISONED.get(program, (0, 0))


def undefined_at_first(program: Program) -> list[list[int]]:
    """Where registers are that begin undefined, and their bytes."""
    if program not in _POISONED:
        return []
    return [
        [unit.registers[number], register_bytes(unit.function.registers[number])]
        for unit, twins in _TWINS.items()
        if unit in program.units.values()
        for number in followed(unit.function).unwritten & twins.keys()
    ]


def keeps_undefined(instruction: Instruction) -> bool:
    """Whether its results have undefined bits if any bit of an operand is undefined.

    That is so if results are computed as a whole, or if nothing but carries goes from
    bit to bit.  Masks, shifts and choices may drop the undefined bits.
    """
    opcode, mnemonic = instruction.opcode, instruction.mnemonic
    if not computes(mnemonic):
        return False
    if opcode in _KEEPING:
        return all(isinstance(e, Register | Not) for e in instruction.operands)
    return kind_of(mnemonic).word not in _DROPPING


def follow(writer: Writer, instruction: Instruction) -> None:
    """Write the code before an instruction."""
    if writer.program not in _POISONED:
        _place_shadows(writer.program)
    step = _Step(writer, instruction)
    before = len(writer.lines)
    try:
        step.write()
    except Error:  # the instruction is refused, too
        writer.take_back(before)
        step.clear()


def _place_shadows(program: Program) -> None:
    """Give every register that is followed a twin, after all registers of a warp."""
    found = {
        unit: followed(unit.function)
        for unit in program.units.values()
        if not unit.recursive  # it keeps its registers elsewhere in between
    }
    start = program.warp_bytes
    ends = []
    for first in (True, False):
        for unit, each in found.items():
            for number in sorted(each.behind):
                if (number in each.unwritten) == first:
                    twins = place_shadow(program, unit, number, 1)
                    _TWINS.setdefault(unit, {})[number] = twins
        program.warp_bytes = -(-program.warp_bytes // 64) * 64
        ends.append(program.warp_bytes)
    _POISONED[program] = (start, ends[0] - start)
    for unit in found:
        place_words(program, unit, 1)
    for unit in program.units.values():
        _SCRATCH[unit] = {
            kind: (
                _place(program, unit, Register("%old'", kind, 0)),
                _place(program, unit, Register("%new'", kind, 0)),
            )
            for kind in ("b32", "b64")
        }


def _place(program: Program, unit: PlacedFunction, register: Register) -> Register:
    """A register of a unit that its function does not declare."""
    place = program.warp_bytes
    program.warp_bytes += -(-register_bytes(register) // 64) * 64
    return added(unit, register, place)


class _Step(PlaneInstruction):
    """What is done with shadows before one instruction."""

    signs = True

    def __init__(self, writer: Writer, instruction: Instruction) -> None:
        super().__init__(writer, instruction, _TWINS.get(writer.unit, {}))

    def write(self) -> None:
        """Checks first, then the shadows of the results."""
        doubt = self._guard()
        for each in self.instruction.operands:
            if isinstance(each, Address):
                self.check(registers((each,)), "address")
        opcode = self.instruction.opcode
        if opcode in families.RULES:
            RULES[families.RULES[opcode]](self)
        elif opcode == "brx":
            self.check(registers(self.instruction.operands[:1]), "branch")
        elif not computes(self.instruction.mnemonic):
            self.operands()
            self.clear()
        elif self.writes:
            self._compute()
        if doubt:
            for each in self.writes:
                self.fill(each, doubt, doubt)

    def _guard(self) -> str:
        """The lanes whose guard is undefined, if that only touches their results."""
        guard = self.instruction.guard
        named = list(registers(() if guard is None else (guard,)))
        if not named or not self.has(named[0]):
            return ""
        active = self.writer.active()
        if not computes(self.instruction.mnemonic):
            kind = "branch" if self.instruction.opcode in JUMPS else "guard"
            self.check(named, kind, active)
            return ""
        return self.writer.value(f"and i32 {self.lanes_of(named[0])}, {active}")

    # ── shadows ─────────────────────────────────────────────────────────────

    def lanes_of(self, register: Register) -> str:
        """The lanes in which a register has undefined bits."""
        at = self.second(register)
        return self.writer.call(
            undefined_bits.lanes_with(at.bits),
            f"ptr {self.writer.address(at)}",
            returns="i32",
        )

    def fill(self, register: Register, lanes: str, word: str) -> None:
        """Make some lanes undefined, of those that are named first."""
        at = self.second(register)
        self.writer.call(
            undefined_bits.fill(at.bits),
            f"ptr {self.writer.address(at)}",
            f"i32 {lanes}",
            f"i32 {word}",
        )

    def clear(self) -> None:
        """All results are defined."""
        for each in self.writes:
            self.fill(each, str(self.writer.mask or -1), "0")

    # ── checks ──────────────────────────────────────────────────────────────

    def check(self, named: Iterable[Register], kind: str, lanes: str = "") -> None:
        """Report lanes in which a register is undefined; once for each."""
        writer = self.writer
        for each in dict.fromkeys(named):
            if not self.has(each):
                continue
            present = lanes or writer.lanes()
            missing = writer.value(f"and i32 {self.lanes_of(each)}, {present}")
            with if_some(writer, missing):
                self.fill(each, missing, "0")
                value = described(writer, each)
                notify(writer, ["undefined", kind, each.name], [value], missing)

    def operands(self, *data: Operand) -> None:
        """Report undefined operands that control an instruction, not its data."""
        named = [e for e in self.instruction.operands if isinstance(e, Address)]
        kept = set(registers((*data, *named)))  # addresses are checked before
        for each in self.reads:
            if each not in kept:
                self.check((each,), "guard" if each.type == "pred" else "operand")

    # ── what is computed in each lane ───────────────────────────────────────

    def _compute(self) -> None:
        if not self.reads:
            self.clear()
            return
        words = set(self.instruction.qualifiers)
        kind = kind_of(self.instruction.mnemonic)
        match kind.word, self.instruction.opcode:
            case _, "cvta":
                word = f"b{type_bits(element_type(self.instruction))}"
                self.execute(replace(self.shadowed(), opcode="mov", qualifiers=(word,)))
            case _, "selp":
                self._chosen()
            case "bitwise", _:
                self._bitwise()
            case "moves" | "reverses", _:
                self._moved(kind.controls)
            case "carries", _:
                self._combined(undefined_bits.carried)
            case "converts", _ if self._packs(words):
                self._packed()
            case "computes" | "compares", _ if self._element(words):
                size = self._element(words)
                self._combined(lambda bits, n: undefined_bits.elements(bits, size, n))
            case _:
                self._whole()

    def _whole(self) -> None:
        sources = [self.second(each) for each in self.reads]
        for each in self.writes:
            goal = self.second(each)
            made = undefined_bits.whole(goal.bits, *(s.bits for s in sources))
            self.writer.call(
                made,
                f"ptr {self.writer.address(goal)}",
                *(f"ptr {self.writer.address(s)}" for s in sources),
                self.all_lanes,
            )

    def _moved(self, controls: tuple[int, ...]) -> None:
        """Bits go where the controls say: all are undefined if a control is."""
        given = self.instruction.operands
        wanting = [e for c in controls for e in registers((given[c],)) if self.has(e)]
        doubts = [self.lanes_of(each) for each in dict.fromkeys(wanting)]
        self.execute(self.shadowed(controls=controls))
        for word in doubts:
            lanes = self.writer.value(f"and i32 {word}, {self.writer.lanes()}")
            for each in self.writes:
                self.fill(each, lanes, lanes)

    def _bitwise(self) -> None:
        writer, given = self.writer, self.instruction.operands
        table, count = truth_table(self.instruction)
        table &= (1 << (1 << count)) - 1
        kind = self.instruction.qualifiers[-1]
        goal = self.second(self.writes[0])
        places = []
        for each in given[1 : 1 + count]:
            places += [writer.source(each, kind), writer.source(self.twin(each), kind)]
        if {each.bits for each in (goal, *places)} != {type_bits(kind)}:
            self._whole()
            return
        made = undefined_bits.looked_up(goal.bits, table, count)
        pointers = [f"ptr {writer.address(each)}" for each in (goal, *places)]
        writer.call(made, *pointers, self.all_lanes)

    def _chosen(self) -> None:
        writer = self.writer
        _, first, second, choice = self.instruction.operands
        kind = self.instruction.qualifiers[-1]
        goal = self.second(self.writes[0])
        places = []
        for each in (first, second):
            places += [writer.source(each, kind), writer.source(self.twin(each), kind)]
        if {each.bits for each in (goal, *places)} != {type_bits(kind)}:
            self._whole()
            return
        assert isinstance(choice, Register | Not)
        word, doubt = writer.predicate(choice), "0"
        for each in registers((choice,)):
            doubt = self.lanes_of(each) if self.has(each) else "0"
        pointers = [f"ptr {writer.address(each)}" for each in (goal, *places)]
        made = undefined_bits.chosen(goal.bits)
        writer.call(made, *pointers, f"i32 {word}", f"i32 {doubt}", self.all_lanes)

    def _element(self, words: set[str]) -> int:
        """The bits of an element, if results are computed element by element."""
        for kind in words & TYPES:
            if kind in ("f16x2", "bf16x2", "u16x2", "s16x2"):
                return 16
            if kind == "f32x2":
                return 32
        return 0

    def _combined(self, make: Callable[[int, int], Routine]) -> None:
        """All registers have one width."""
        sources = [self.second(each) for each in self.reads]
        goals = [self.second(each) for each in self.writes]
        if len({each.bits for each in (*sources, *goals)}) > 1 or len(goals) > 1:
            self._whole()
            return
        pointers = [f"ptr {self.writer.address(each)}" for each in (*goals, *sources)]
        self.writer.call(make(goals[0].bits, len(sources)), *pointers, self.all_lanes)

    def _packs(self, words: set[str]) -> bool:
        """Whether two numbers become the halves of one register."""
        packed = any(each.endswith("x2") for each in words & TYPES)
        return packed and "f32" in words and len(self.instruction.operands) == 3

    def _packed(self) -> None:
        goal = self.second(self.writes[0])
        sources: list[InMemory | None] = [
            self.second(each) if isinstance(each, Register) and self.has(each) else None
            for each in self.instruction.operands[1:]
        ]
        high, low = (0 if each is None else each.bits for each in sources)
        there = [
            f"ptr {self.writer.address(each)}" for each in sources if each is not None
        ]
        made = undefined_bits.pair(goal.bits, high, low)
        self.writer.call(
            made, f"ptr {self.writer.address(goal)}", *there, self.all_lanes
        )


# ── what is computed from other lanes ───────────────────────────────────────


def _shuffle(step: _Step) -> None:
    """The shadow of a lane comes from the lane that its value comes from."""
    d, a, *rest = step.instruction.operands
    goal = d.first if isinstance(d, Pair) else d
    operands = (step.twin(goal, result=True), step.twin(a), *rest)
    unknown = shuffle(
        step.writer, replace(step.instruction, operands=operands, guard=None)
    )
    doubtful = [e for e in dict.fromkeys(registers(rest[:2])) if step.has(e)]
    for each in registers((d,)):
        if each not in registers((goal,)) and each in step.writes:
            step.fill(each, str(step.writer.mask or -1), "0")
    for each in doubtful:
        word = step.lanes_of(each)
        lanes = step.writer.value(f"and i32 {word}, {step.writer.lanes()}")
        for result in step.writes:
            step.fill(result, lanes, lanes)
    for each in registers((goal,)):
        if step.has(each):
            step.fill(each, unknown, unknown)


def _vote(step: _Step) -> None:
    """A ballot has a bit for each lane; other votes depend on all lanes."""
    writer = step.writer
    if not step.reads:
        step.clear()
        return
    word = "0"
    for each in step.reads:
        word = writer.value(f"or i32 {word}, {step.lanes_of(each)}")
    word = writer.value(f"and i32 {word}, {writer.lanes()}")
    ballot = "ballot" in step.instruction.qualifiers
    some = writer.value(f"icmp ne i32 {word}, 0")
    every = writer.value(f"select i1 {some}, i32 -1, i32 0")
    for each in step.writes:
        at = step.second(each)
        if ballot and at.bits == 32:
            lanes = f"i32 {writer.lanes()}"
            writer.call(SPREAD, f"ptr {writer.address(at)}", f"i32 {word}", lanes)
        else:
            step.fill(each, writer.lanes(), every)


def _multiply(step: _Step) -> None:
    """Products of matrices: an event computes which elements are undefined."""
    words = step.instruction.qualifiers
    if step.instruction.opcode == "wmma" and words[0] == "load":
        _rows(step)
    elif step.instruction.opcode == "wmma" and words[0] == "store":
        _stored_rows(step)
    elif not step.reads:
        step.clear()
    else:
        step.if_any(lambda: _product(step))


def _product(step: _Step) -> None:
    writer, given = step.writer, step.instruction.operands
    op = operation(step.instruction)
    word = "0"
    for each in step.reads:
        word = writer.value(f"or i32 {word}, {step.lanes_of(each)}")
    some, none, after = (writer.new_label() for _ in range(3))
    bad = writer.value(f"icmp ne i32 {word}, 0")
    writer.line(f"br i1 {bad}, label %{some}, label %{none}")
    writer.label(none)
    step.clear()
    writer.line(f"br label %{after}")
    writer.label(some)
    shadows = [
        described(writer, step.twin(each, result=not i)) for i, each in enumerate(given)
    ]
    notify(writer, ["undefined-product", str(op)], shadows, writer.lanes())
    writer.line(f"br label %{after}")
    writer.label(after)


def _transposed(step: _Step) -> None:
    step.execute(step.shadowed())


# ── memory ──────────────────────────────────────────────────────────────────


def _named(step: _Step) -> bool:
    """Whether an access is one of a parameter by its name: not in memory."""
    base = next(o.base for o in step.instruction.operands if isinstance(o, Address))
    return space_of(step.instruction) == "param" and isinstance(base, Symbol)


def _load(step: _Step) -> None:
    if not loads(step.instruction, step.writer.unit.function):
        step.clear()
        return
    if step.writes and not any(map(_too_wide, step.instruction.operands[:1])):
        step.execute(step.shadowed(controls=(1,)))
        if step.writer.mode.raced:
            _raced(step)


def _raced(step: _Step) -> None:
    """Let the watch say which lanes read what others write at the same time."""
    writer, (goal, address) = step.writer, step.instruction.operands[:2]
    window = window_of(step.instruction)
    if not window or _named(step):
        return
    items = goal.items if isinstance(goal, Vector) else (goal,)
    size = type_bits(element_type(step.instruction)) // 8 * len(items)
    shadows = [described(writer, step.twin(each, result=True)) for each in items]
    given = [described(writer, address), *shadows]
    tell(writer, ["raced", str(size), window], given)


def _too_wide(operand: Operand) -> bool:
    return any(not can_follow(each) for each in registers((operand,)))


def _store(step: _Step) -> None:
    words = step.instruction.qualifiers
    data = step.instruction.operands[1]
    if "async" in words or "bulk" in words:
        step.operands(data)
        return
    if _named(step) and step.writer.unit.recursive:
        return  # its parameters have no shadow
    outlives = _outliving(step)
    if outlives != "0":
        step.check(registers((data,)), "store", outlives)
    if not _too_wide(data):
        step.execute(step.shadowed(results=0, controls=(0,)))


def _outliving(step: _Step) -> str:
    """The lanes that access memory which outlives the launch."""
    writer = step.writer
    space = space_of(step.instruction)
    if space in ("shared", "cluster", "local") or _named(step):
        return "0"
    lanes = writer.lanes()
    if "global" in step.instruction.qualifiers:
        return lanes
    address = next(o for o in step.instruction.operands if isinstance(o, Address))
    at, _ = address_of(writer, address)
    slot = writer.temporary(64)
    writer.compute("shr.u64", slot, at, _number(layout.SLOT_BITS))
    for index, window in enumerate((layout.SHARED_SLOT, layout.LOCAL_SLOT)):
        away = writer.scratch(index + 1)
        writer.compute("setp.ne.u64", away, slot, _number(window))
        word = writer.load("i32", writer.address(away), 0)
        lanes = writer.value(f"and i32 {lanes}, {word}")
    return lanes


def _number(value: int) -> Immediate:
    return Immediate(value, "int", value)


def _atomic(step: _Step) -> None:
    """The result is what was in memory; memory then depends on the operand, too."""
    instruction = step.instruction
    bits = type_bits(element_type(instruction))
    operands = list(instruction.operands)
    goal = operands.pop(0) if instruction.is_fetch else Sink()
    address, *sources = operands
    if bits not in (32, 64) or "async" in instruction.qualifiers:
        step.operands(*sources)
        step.clear()
    elif sources and isinstance(sources[0], Vector) and isinstance(address, Address):
        items = sources[0].items
        goals = goal.items if isinstance(goal, Vector) else (goal,) * len(items)
        for place, (one, into) in enumerate(zip(items, goals, strict=True)):
            at = replace(address, offset=address.offset + place * bits // 8)
            _atomic_element(step, bits, into, at, [one])
    else:
        _atomic_element(step, bits, goal, address, sources)


def _atomic_element(
    step: _Step, bits: int, goal: Operand, address: Operand, sources: list[Operand]
) -> None:
    """The same for one word."""
    writer, instruction = step.writer, step.instruction
    words = instruction.qualifiers
    before, after = _SCRATCH[writer.unit][f"b{bits}"]
    old, shadow = writer.register(before), writer.register(after)
    given = [step.second(e) for e in registers(sources) if step.has(e)]
    made = undefined_bits.whole(bits, *(each.bits for each in given))
    pointers = [f"ptr {writer.address(each)}" for each in (shadow, *given)]
    writer.call(made, *pointers, step.all_lanes)
    space = [each for each in words if each.startswith(("shared", "global", "local"))]
    stays = "exch" if "exch" in words else "or"
    twin = replace(
        instruction, opcode="atom", qualifiers=(*space, stays, f"b{bits}"), guard=None
    )
    step.execute(replace(twin, operands=(before, address, after)))
    outlives = _outliving(step)
    if outlives != "0":
        _report_atomic(step, old, shadow, outlives)
    result = step.twin(goal, result=True)
    if isinstance(result, Register):
        writer.compute(f"mov.b{bits}", result, old)


def _report_atomic(step: _Step, old: InMemory, new: InMemory, outlives: str) -> None:
    """Report undefined bits that are in global memory now, or were there before."""
    writer = step.writer
    word = "0"
    for at in (old, new):
        found = writer.call(
            undefined_bits.lanes_with(at.bits),
            f"ptr {writer.address(at)}",
            returns="i32",
        )
        word = writer.value(f"or i32 {word}, {found}")
    missing = writer.value(f"and i32 {word}, {outlives}")
    with if_some(writer, missing):
        fill = undefined_bits.fill(old.bits)
        writer.call(fill, f"ptr {writer.address(old)}", f"i32 {missing}", "i32 0")
        notify(writer, ["undefined", "atomic", ""], [], missing)


def _copy(step: _Step) -> None:
    words = step.instruction.qualifiers
    policy = step.instruction.operands[-1:] if "L2::cache_hint" in words else ()
    step.operands(*policy)
    if is_lane_copy(step.instruction) and not step.writer.mode.scheduled:
        step.execute(replace(step.instruction, guard=None))


def _warpgroup(step: _Step) -> None:
    """``wgmma``: its unit makes the shadow of D, also from A and shared memory."""
    if is_wgmma(step.instruction):
        form = describe(step.instruction)
        more = () if form.metadata is None else (form.metadata,)
        step.operands(*form.a, *more)


def _tensor(step: _Step) -> None:
    """``tcgen05``: its units make the shadows of tensor memory."""
    stores = kind_of(step.instruction.mnemonic).word == "stores"
    step.operands(*step.instruction.operands[-1:] if stores else ())


def _call(step: _Step) -> None:
    """Shadows go with parameters and results: see ``simt.calling``."""
    goal = [e for e in step.instruction.operands if isinstance(e, Register)]
    step.check(goal, "address")


def _rows(step: _Step) -> None:
    """``ldmatrix`` and ``wmma.load``: all lanes take part."""
    controls = tuple(range(1, len(step.instruction.operands)))
    twin = step.shadowed(controls=controls)

    def load() -> None:
        step.execute(twin)

    raced = step.writer.mode.raced and step.instruction.opcode in families.ROW_LOADS
    step.if_any((lambda: _raced_rows(step, load)) if raced else load)


def _raced_rows(step: _Step, load: Callable[[], None]) -> None:
    """Load shadows of rows; those that others write meanwhile are undefined."""
    writer, address = step.writer, step.instruction.operands[1]
    assert isinstance(address, Address)
    op = operation(step.instruction)
    (part,) = op.fragments.values()
    mask = (1 << part.shape[0] * part.shape[1]) - 1
    lanes = writer.value(f"and i32 {writer.lanes()}, {mask - (mask >> 31 << 32)}")
    words = [str(row_bytes(op)), NEAR if op.values["space"] else FAR]
    at = [described(writer, address)]
    notify(writer, ["raced-rows", *words], at, lanes)
    load()
    notify(writer, ["raced-rows", "", words[1]], at, lanes)


def _stored_rows(step: _Step) -> None:
    """``stmatrix`` and ``wmma.store``."""
    given = step.instruction.operands
    data = next(i for i, each in enumerate(given) if isinstance(each, Vector))
    outlives = _outliving(step) if step.instruction.opcode == "wmma" else "0"
    if outlives != "0":
        step.check(registers((given[data],)), "store", outlives)
    controls = tuple(i for i in range(len(given)) if i != data)
    twin = step.shadowed(results=0, controls=controls)
    step.if_any(lambda: step.execute(twin))


RULES: dict[str, Callable[[_Step], None]] = {
    "load": _load,
    "store": _store,
    "atomic": _atomic,
    "copy": _copy,
    "call": _call,
    "warpgroup": _warpgroup,
    "tensor": _tensor,
    "rows": _rows,
    "stored_rows": _stored_rows,
    "transpose": _transposed,
    "multiply": _multiply,
    "shuffle": _shuffle,
    "vote": _vote,
}
"""What is done before opcodes that are more than a calculation in each lane."""
JUMPS = frozenset({"bra", "brx", "ret", "exit", "call"})
