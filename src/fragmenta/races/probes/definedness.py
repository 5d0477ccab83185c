"""Code that follows undefined bits through a kernel, as Valgrind's memcheck does.

Each register that can hold undefined bits (:mod:`undefined_flow`) has a twin, its
shadow; so has memory.  Before an instruction runs, its twin is executed: a copy copies
the shadow, a load loads it from the shadow of memory.  An event reports undefined bits
that reach global memory, decide a branch, or are part of an address.

This code is slow.  A launch is run with it only after something undefined was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from weakref import WeakKeyDictionary

from fragmenta.errors import Error
from fragmenta.isa.tables.moves import row_bytes
from fragmenta.ptx.checking.register_effects import effects, registers
from fragmenta.ptx.module import (
    Address,
    Immediate,
    Instruction,
    Negative,
    Not,
    Operand,
    Pair,
    Part,
    Register,
    Sink,
    Symbol,
    Vector,
    type_bits,
)
from fragmenta.ptx.opcodes.table import TYPES
from fragmenta.races.probes import undefined_bits
from fragmenta.races.probes.undefined_flow import (
    SHADOWLESS,
    can_follow,
    followed,
    loads,
)
from fragmenta.races.probes.windows import FAR, NEAR, window_of
from fragmenta.simt import layout
from fragmenta.simt.accessing import element_type, space_of
from fragmenta.simt.emitter import (
    HANDLERS,
    Writer,
    Written,
    address_of,
)
from fragmenta.simt.events import described, if_some, notify, tell
from fragmenta.simt.layout import LANES
from fragmenta.simt.library import Routine
from fragmenta.simt.matrices import operation
from fragmenta.simt.program import PlacedFunction, Program, register_bytes
from fragmenta.simt.synchronising import SPREAD
from fragmenta.simt.wgmma_operands import describe, is_wgmma

_TWINS: WeakKeyDictionary[PlacedFunction, dict[int, Register]] = WeakKeyDictionary()
_SCRATCH: WeakKeyDictionary[PlacedFunction, dict[str, tuple[Register, Register]]] = (
    WeakKeyDictionary()
)
"""Two registers of each width, for what is used at once."""
_POISONED: WeakKeyDictionary[Program, tuple[int, int]] = WeakKeyDictionary()
ZERO = Immediate(0, "int", 0)

BITWISE = {"and": (8, 2), "or": (14, 2), "xor": (6, 2), "not": (1, 1)}
"""Truth tables, and how many operands they have."""
MOVING = {
    "shl": (2,),
    "shr": (2,),
    "shf": (3,),
    "bfe": (2, 3),
    "bfi": (3, 4),
    "prmt": (3,),
    "brev": (),
    "cvt": (),
}
"""Opcodes that only move bits, and the operands that say where to."""
_CARRYING = frozenset({"add", "sub", "mul", "mad", "neg"})
_WHOLE = frozenset({"u16", "u32", "u64", "s16", "s32", "s64", "b16", "b32", "b64"})
_ALSO = frozenset({"mov", "cvta", "isspacep", "mapa", "getctarank"})
"""Opcodes with a handler that compute something in each lane."""


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


def computes(instruction: Instruction) -> bool:
    """Whether the results of each lane come from its own operands, not from memory."""
    opcode = instruction.opcode
    return opcode in _ALSO or opcode not in HANDLERS


def follow(writer: Writer, instruction: Instruction) -> None:
    """Write the code before an instruction."""
    if writer.program not in _POISONED:
        _place_twins(writer.program)
    step = _Step(writer, instruction)
    before = len(writer.lines)
    try:
        step.write()
    except Error:  # the instruction is refused, too
        writer.take_back(before)
        step.clear()


def _place_twins(program: Program) -> None:
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
                    _place_twin(program, unit, number)
        program.warp_bytes = -(-program.warp_bytes // 64) * 64
        ends.append(program.warp_bytes)
    _POISONED[program] = (start, ends[0] - start)
    for unit in found:
        _place_words(program, unit)
    for unit in program.units.values():
        _SCRATCH[unit] = {
            kind: (
                _place(program, unit, Register("%old'", kind, 0)),
                _place(program, unit, Register("%new'", kind, 0)),
            )
            for kind in ("b32", "b64")
        }


def _place_twin(program: Program, unit: PlacedFunction, number: int) -> None:
    register = unit.function.registers[number]
    twin = _place(program, unit, replace(register, name=f"{register.name}'"))
    _TWINS.setdefault(unit, {})[number] = twin
    program.shadows[unit.registers[number]] = (unit.registers[twin.number],)


def _place_words(program: Program, unit: PlacedFunction) -> None:
    """Give the parameters of calls a shadow, word by word."""
    for name, first in unit.words.items():
        variable = unit.function.variables.get(name) or unit.given[name]
        unit.shadow_words[name] = (program.warp_bytes,)
        for word in range(-(-variable.size // 4)):
            program.shadows[first + 4 * LANES * word] = (program.warp_bytes,)
            program.warp_bytes += 4 * LANES


def _place(program: Program, unit: PlacedFunction, register: Register) -> Register:
    """A register of a unit that its function does not declare."""
    unit.registers.append(program.warp_bytes)
    program.warp_bytes += -(-register_bytes(register) // 64) * 64
    return replace(register, number=len(unit.registers) - 1)


class _Step:
    """What is done with shadows before one instruction."""

    def __init__(self, writer: Writer, instruction: Instruction) -> None:
        self.writer, self.instruction = writer, instruction
        self.twins = _TWINS.get(writer.unit, {})
        found = effects(replace(instruction, guard=None))
        self.reads = list(dict.fromkeys(e for e in found.reads if self._has(e)))
        self.writes = list(dict.fromkeys(e for e in found.writes if self._has(e)))
        self.all_lanes = f"i32 {writer.mask or -1}"

    def _has(self, register: Register) -> bool:
        return register.number in self.twins

    def write(self) -> None:
        """Checks first, then the shadows of the results."""
        doubt = self._guard()
        for each in self.instruction.operands:
            if isinstance(each, Address):
                self.check(registers((each,)), "address")
        opcode = self.instruction.opcode
        rule = RULES.get(opcode)
        if rule is not None:
            rule(self)
        elif opcode == "brx":
            self.check(registers(self.instruction.operands[:1]), "branch")
        elif opcode in SHADOWLESS or not computes(self.instruction):
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
        if not named or not self._has(named[0]):
            return ""
        active = self.writer.active()
        if not computes(self.instruction):
            kind = "branch" if self.instruction.opcode in JUMPS else "guard"
            self.check(named, kind, active)
            return ""
        return self.writer.value(f"and i32 {self.lanes_of(named[0])}, {active}")

    # ── shadows ─────────────────────────────────────────────────────────────

    def shadow(self, register: Register) -> Written:
        """Where the shadow of a register is that is followed."""
        return self.writer.register(self.twins[register.number])

    def lanes_of(self, register: Register) -> str:
        """The lanes in which a register has undefined bits."""
        at = self.shadow(register)
        return self.writer.call(
            undefined_bits.lanes_with(at.bits),
            f"ptr {self.writer.address(at)}",
            returns="i32",
        )

    def fill(self, register: Register, lanes: str, word: str) -> None:
        """Make some lanes undefined, of those that are named first."""
        at = self.shadow(register)
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

    def twin(self, operand: Operand, result: bool = False) -> Operand:
        """The operand of the twin: its shadow, or 0 if it is always defined."""
        match operand:
            case Register():
                found = self.twins.get(operand.number)
                return found or (Sink() if result else ZERO)
            case Not() | Part() | Negative():
                return self.twin(operand.of, result)
            case Vector():
                return Vector(tuple(self.twin(e, result) for e in operand.items))
            case Pair():
                both = (operand.first, operand.second)
                return Pair(*(self.twin(each, result) for each in both))
            case Sink():
                return operand
        return ZERO

    def twinned(self, results: int = 1, controls: tuple[int, ...] = ()) -> Instruction:
        """The same instruction for shadows; controls are operands that stay."""
        operands = tuple(
            each if index in controls else self.twin(each, index < results)
            for index, each in enumerate(self.instruction.operands)
        )
        return replace(self.instruction, operands=operands, guard=None)

    def execute(self, instruction: Instruction, memory: bool = False) -> None:
        """Write the code of an instruction; its memory may be that of shadows."""
        writer = self.writer
        handler = HANDLERS.get(instruction.opcode)
        with writer.in_plane(0) if memory else nullcontext():
            if handler is None:
                writer.compute(instruction.mnemonic, *instruction.operands)
            else:
                handler(writer, instruction)

    def if_any(self, write: Callable[[], None]) -> None:
        """Write what all lanes do together, if the guard lets any of them."""
        if self.instruction.guard is None:
            write()
        else:
            self.writer.if_any(write)

    # ── checks ──────────────────────────────────────────────────────────────

    def check(self, named: Iterable[Register], kind: str, lanes: str = "") -> None:
        """Report lanes in which a register is undefined; once for each."""
        writer = self.writer
        for each in dict.fromkeys(named):
            if not self._has(each):
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
        opcode = self.instruction.opcode
        if opcode == "mov":
            self.execute(self.twinned())
        elif opcode == "cvta":
            kind = f"b{type_bits(element_type(self.instruction))}"
            mnemonic = replace(self.twinned(), opcode="mov", qualifiers=(kind,))
            self.execute(mnemonic)
        elif opcode == "selp":
            self._chosen()
        elif opcode in BITWISE or (opcode == "lop3" and words == {"b32"}):
            self._bitwise()
        elif opcode in MOVING and self._only_moves(words):
            self._moved(MOVING[opcode])
        elif opcode in _CARRYING and self._carries(words):
            self._combined(undefined_bits.carried)
        elif opcode == "cvt" and self._packs(words):
            self._packed()
        elif opcode != "cvt" and self._element(words):
            size = self._element(words)
            self._combined(lambda bits, n: undefined_bits.elements(bits, size, n))
        else:
            self._whole()

    def _whole(self) -> None:
        sources = [self.shadow(each) for each in self.reads]
        for each in self.writes:
            goal = self.shadow(each)
            made = undefined_bits.whole(goal.bits, *(s.bits for s in sources))
            self.writer.call(
                made,
                f"ptr {self.writer.address(goal)}",
                *(f"ptr {self.writer.address(s)}" for s in sources),
                self.all_lanes,
            )

    def _only_moves(self, words: set[str]) -> bool:
        return words <= _WHOLE | {"l", "r", "clamp", "wrap", "u8", "s8", "b8"} or (
            self.instruction.opcode == "prmt"
        )

    def _moved(self, controls: tuple[int, ...]) -> None:
        """Bits go where the controls say: all are undefined if a control is."""
        given = self.instruction.operands
        wanting = [e for c in controls for e in registers((given[c],)) if self._has(e)]
        doubts = [self.lanes_of(each) for each in dict.fromkeys(wanting)]
        self.execute(self.twinned(controls=controls))
        for word in doubts:
            lanes = self.writer.value(f"and i32 {word}, {self.writer.lanes()}")
            for each in self.writes:
                self.fill(each, lanes, lanes)

    def _bitwise(self) -> None:
        writer, given = self.writer, self.instruction.operands
        if self.instruction.opcode == "lop3":
            lut = given[4]
            assert isinstance(lut, Immediate)
            table, count = int(lut.value) & 255, 3
        else:
            table, count = BITWISE[self.instruction.opcode]
        kind = self.instruction.qualifiers[-1]
        goal = self.shadow(self.writes[0])
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
        goal = self.shadow(self.writes[0])
        places = []
        for each in (first, second):
            places += [writer.source(each, kind), writer.source(self.twin(each), kind)]
        if {each.bits for each in (goal, *places)} != {type_bits(kind)}:
            self._whole()
            return
        assert isinstance(choice, Register | Not)
        word, doubt = writer.predicate(choice), "0"
        for each in registers((choice,)):
            doubt = self.lanes_of(each) if self._has(each) else "0"
        pointers = [f"ptr {writer.address(each)}" for each in (goal, *places)]
        made = undefined_bits.chosen(goal.bits)
        writer.call(made, *pointers, f"i32 {word}", f"i32 {doubt}", self.all_lanes)

    def _carries(self, words: set[str]) -> bool:
        """Whether a bit of the result depends only on those to the right."""
        return words <= (_WHOLE | {"lo"})

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
        sources = [self.shadow(each) for each in self.reads]
        goals = [self.shadow(each) for each in self.writes]
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
        goal = self.shadow(self.writes[0])
        sources: list[Written | None] = [
            self.shadow(each)
            if isinstance(each, Register) and self._has(each)
            else None
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
    operands = (step.twin(goal, True), step.twin(a), *rest)
    step.execute(replace(step.instruction, operands=operands, guard=None))
    doubtful = [e for e in dict.fromkeys(registers(rest[:2])) if step._has(e)]
    for each in registers((d,)):
        if each not in registers((goal,)) and each in step.writes:
            step.fill(each, str(step.writer.mask or -1), "0")
    for each in doubtful:
        word = step.lanes_of(each)
        lanes = step.writer.value(f"and i32 {word}, {step.writer.lanes()}")
        for result in step.writes:
            step.fill(result, lanes, lanes)


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
        at = step.shadow(each)
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
        described(writer, step.twin(each, not i)) for i, each in enumerate(given)
    ]
    notify(writer, ["undefined-product", str(op)], shadows, writer.lanes())
    writer.line(f"br label %{after}")
    writer.label(after)


def _transposed(step: _Step) -> None:
    step.execute(step.twinned())


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
        step.execute(step.twinned(controls=(1,)), memory=True)
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
    shadows = [described(writer, step.twin(each, True)) for each in items]
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
        step.execute(step.twinned(0, controls=(0,)), memory=True)


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
    writer, instruction = step.writer, step.instruction
    words = instruction.qualifiers
    kind = element_type(instruction)
    simple = type_bits(kind) in (32, 64) and not {"async", "v2", "v4", "v8"} & set(
        words
    )
    if not simple:
        step.operands(*instruction.operands[1 if instruction.opcode == "red" else 2 :])
        step.clear()
        return
    bits = type_bits(kind)
    operands = list(instruction.operands)
    goal = operands.pop(0) if instruction.opcode == "atom" else Sink()
    address, *sources = operands
    before, after = _SCRATCH[writer.unit][f"b{bits}"]
    old, shadow = writer.register(before), writer.register(after)
    given = [step.shadow(e) for e in registers(sources) if step._has(e)]
    made = undefined_bits.whole(bits, *(each.bits for each in given))
    pointers = [f"ptr {writer.address(each)}" for each in (shadow, *given)]
    writer.call(made, *pointers, step.all_lanes)
    space = [each for each in words if each.startswith(("shared", "global", "local"))]
    stays = "exch" if "exch" in words else "or"
    twin = replace(
        instruction, opcode="atom", qualifiers=(*space, stays, f"b{bits}"), guard=None
    )
    step.execute(replace(twin, operands=(before, address, after)), memory=True)
    outlives = _outliving(step)
    if outlives != "0":
        _report_atomic(step, old, shadow, outlives)
    result = step.twin(goal, True)
    if isinstance(result, Register):
        writer.compute(f"mov.b{bits}", result, old)


def _report_atomic(step: _Step, old: Written, new: Written, outlives: str) -> None:
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
    bulk = words[:1] != ("async",) or "bulk" in words or "mbarrier" in words
    groups = len(words) > 1 and words[1] in ("commit_group", "wait_group", "wait_all")
    policy = step.instruction.operands[-1:] if "L2::cache_hint" in words else ()
    step.operands(*policy)
    if not (bulk or groups or step.writer.mode.scheduled):
        step.execute(replace(step.instruction, guard=None), memory=True)


def _warpgroup(step: _Step) -> None:
    """``wgmma``: its unit makes the shadow of D, also from A and shared memory."""
    if is_wgmma(step.instruction):
        form = describe(step.instruction)
        more = () if form.metadata is None else (form.metadata,)
        step.operands(*form.a, *more)


def _tensor(step: _Step) -> None:
    """``tcgen05``: its units make the shadows of tensor memory."""
    stores = step.instruction.qualifiers[:1] == ("st",)
    step.operands(*step.instruction.operands[-1:] if stores else ())


def _call(step: _Step) -> None:
    """Shadows go with parameters and results: see :mod:`fragmenta.simt.calling`."""
    goal = [e for e in step.instruction.operands if isinstance(e, Register)]
    step.check(goal, "address")


def _rows(step: _Step) -> None:
    """``ldmatrix`` and ``wmma.load``: all lanes take part."""
    controls = tuple(range(1, len(step.instruction.operands)))
    twin = step.twinned(controls=controls)

    def load() -> None:
        step.execute(twin, memory=True)

    raced = step.writer.mode.raced and step.instruction.opcode == "ldmatrix"
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
    twin = step.twinned(0, controls=controls)
    step.if_any(lambda: step.execute(twin, memory=True))


RULES: dict[str, Callable[[_Step], None]] = {
    "ld": _load,
    "ldu": _load,
    "st": _store,
    "atom": _atomic,
    "red": _atomic,
    "cp": _copy,
    "call": _call,
    "wgmma": _warpgroup,
    "tcgen05": _tensor,
    "ldmatrix": _rows,
    "stmatrix": _stored_rows,
    "movmatrix": _transposed,
    "mma": _multiply,
    "wmma": _multiply,
    "shfl": _shuffle,
    "vote": _vote,
    "match": _vote,
    "redux": _vote,
}
"""What is done before opcodes that are more than a calculation in each lane."""
JUMPS = frozenset({"bra", "brx", "ret", "exit", "call"})
