"""Runs the loops of a kernel on words of memory, to know for which values they end.

A loop is an access and instructions that only compute.  They become a small kernel: it
takes the value of the word and the registers from an array, makes one pass, and leaves
there what it wrote, and whether it left the loop.  So each instruction means here what
it means in a launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.engine.units.findings import Launched
from fragmenta.errors import Error
from fragmenta.ptx.flow import destinations, falls_through
from fragmenta.ptx.module import (
    Address,
    Function,
    Immediate,
    Instruction,
    Module,
    Not,
    Operand,
    Register,
    Sink,
    type_bits,
)
from fragmenta.watch.orders.program import COMPARE, Condition, Passed
from fragmenta.watch.races.probes.polling import PollingLoop, looped
from fragmenta.watch.races.recording.log import Flag, Until

Once: TypeAlias = Callable[[str, NDArray[np.uint8]], None]
"""Launches the one kernel of a text on an array, with one lane."""
Values: TypeAlias = tuple[int, ...]
MOST_PASSES = 64
"""Passes that a loop may make while the word keeps its value."""
WORD, LEFT, REGISTERS = 0, 16, 32
"""Where the array has the word, whether the loop was left, and the registers."""
_SPACES = ("global", "shared", "shared::cta", "shared::cluster")


class Pass(NamedTuple):
    """What one pass of a loop does."""

    left: bool
    word: int
    registers: Values


class Loops:
    """The loops of a launch on words."""

    def __init__(self, launched: Launched, launch: Once) -> None:
        self.module, self.places = launched.module(), launched.compiled.places
        self._launch = launch
        self._made: dict[int, Looping | None] = {}

    def at(self, site: int) -> Looping | None:
        """The loop on the access at a site, if it can be run."""
        if site not in self._made:
            name, index = self.places[site]
            function = self.module.functions[name]
            found = looped(function, index)
            how = self.module, function
            self._made[site] = found and Looping(*how, found, self._launch)
        return self._made[site]

    def source(self, site: int) -> tuple[str, int]:
        """The name under which the value is kept that an access finds."""
        name, index = self.places[site]
        return name, index

    @cached_property
    def sources(self) -> frozenset[int]:
        """The sites of accesses whose values a loop starts from."""
        found: set[tuple[str, int]] = set()
        for name in {name for name, _ in self.places}:
            function = self.module.functions[name]
            for index, each in enumerate(function.instructions):
                if each.is_read:
                    loop = looped(function, index)
                    some = loop.sources if loop is not None else ()
                    found |= {(name, e) for e in some if e is not None}
        sites = enumerate(self.places)
        return frozenset(site for site, place in sites if tuple(place) in found)

    def ends(self, site: int, action: Flag) -> bool | None:
        """Whether a pass of a loop ends it; None if that is not known."""
        if isinstance(action.until, Until):
            return condition(action.until, action.size).holds(action.found)
        loop = self.at(site)
        if action.until is None or loop is None:
            return None
        made = loop.once(action.found, action.until.registers)
        return None if made is None else made.left


def condition(until: Until, size: int) -> Condition:
    """What a plain loop waits for."""
    compare, _, signed = until.compare.partition(".")
    assert compare in COMPARE
    return Condition(compare, until.value, until.mask, 8 * size if signed else 0)


@dataclass(eq=False)
class Looping:
    """A loop that is run."""

    module: Module
    function: Function
    loop: PollingLoop
    launch: Once

    def __post_init__(self) -> None:
        self._known: dict[tuple[int, Values], Pass | None] = {}
        self._passed: dict[tuple[int, Values], Passed] = {}

    def run(self, first: Values, value: int, found: Values) -> Passed:
        """What the loop does while nobody else changes the word.

        ``first`` are the registers that it starts from; ``found`` replaces those that
        are results of accesses before.
        """
        left = list(found)
        sources = zip(first, self.loop.sources, strict=True)
        start = tuple(r if s is None else left.pop(0) for r, s in sources)
        known = self._passed.get((value, start))
        if known is None:
            known = self._passed[value, start] = self._alone(value, start)
        return known

    def again(self, first: Values, value: int, found: Values) -> Passed:
        """The same, with all registers as they were."""
        sources = zip(first, self.loop.sources, strict=True)
        results = (r for r, source in sources if source is not None)
        return self.run(first, value, tuple(results))

    def _alone(self, value: int, registers: Values) -> Passed:
        seen: set[Values] = set()
        for _ in range(MOST_PASSES):
            if registers in seen:
                return Passed(False, value)
            seen.add(registers)
            made = self.once(value, registers)
            if made is None:
                break
            if made.left:
                return Passed(True, made.word)
            if made.word != value:
                break  # others see what each pass writes
            registers = made.registers
        return Passed(False, value, known=False)

    def once(self, value: int, registers: Values) -> Pass | None:
        """One pass; None if it cannot be run."""
        key = value, registers
        if key not in self._known:
            self._known[key] = self._run(value, registers)
        return self._known[key]

    def _run(self, value: int, registers: Values) -> Pass | None:
        state = np.zeros(self._size, np.uint8)
        state[WORD:LEFT] = np.frombuffer(value.to_bytes(16, "little"), np.uint8)
        words = state[REGISTERS:].view(np.uint64)
        words[: len(registers)] = registers
        try:
            self.launch(self.text, state)
        except Error:
            return None
        word = int.from_bytes(state[WORD:LEFT].tobytes(), "little")
        after = tuple(words[: len(registers)].tolist())
        return Pass(bool(state[LEFT]), word, after)

    @property
    def _size(self) -> int:
        return REGISTERS + 8 * max(1, len(self.loop.inputs))

    # ── the kernel ──────────────────────────────────────────────────────────

    @cached_property
    def text(self) -> str:
        """The kernel that makes one pass."""
        code, loop = self.function.instructions, self.loop
        used = [code[each] for each in (*loop.before, loop.access, *loop.inside)]
        names = {r.number: r for each in used for r in _registers(each)}
        names.update((each.number, each) for each in loop.inputs)
        version = ".".join(map(str, self.module.version))
        lines = [
            f".version {version}\n.target {self.module.target}\n.address_size 64",
            ".entry pass(.param .u64 state) {",
            ".reg .b64 %at; .reg .b32 %flag;",
            *(f".reg .{each.type} {_name(each)};" for each in names.values()),
            "ld.param.u64 %at, [state];",
            *(line for n, each in enumerate(loop.inputs) for line in _load(n, each)),
            *(_written(code[each]) for each in loop.before),
            _access(code[loop.access]),
            f"bra {self._goal(loop.access + 1)};",
            *(line for each in loop.inside for line in self._step(each)),
            f"LEFT: mov.u32 %flag, 1; st.u32 [%at+{LEFT}], %flag; ret;",
            "AGAIN:",
            *(line for n, each in enumerate(loop.inputs) for line in _store(n, each)),
            "ret; }",
        ]
        return "\n".join(lines)

    def _goal(self, place: int) -> str:
        if place == self.loop.access:
            return "AGAIN"
        return f"I{place}" if place in self.loop.inside else "LEFT"

    def _step(self, place: int) -> list[str]:
        """An instruction of the loop, and where it leads."""
        each = self.function.instructions[place]
        lines = [f"I{place}:"]
        if each.opcode == "bra":
            (goal,) = destinations(self.function, each)
            lines.append(f"{_guard(each)}bra {self._goal(goal)};")
        elif each.operands and each.opcode != "nanosleep":
            lines.append(_written(each))
        if falls_through(each):
            lines.append(f"bra {self._goal(place + 1)};")
        return lines


def _registers(instruction: Instruction) -> list[Register]:
    found = [instruction.guard, *instruction.operands]
    plain = [each.of if isinstance(each, Not) else each for each in found]
    return [each for each in plain if isinstance(each, Register)]


def _name(register: Register) -> str:
    return f"%x{register.number}"


def _operand(operand: Operand) -> str:
    match operand:
        case Register():
            return _name(operand)
        case Not():
            return f"!{_name(operand.of)}"
        case Immediate(form="int"):
            return str(operand.value)
        case Immediate():
            single = operand.form == "f32"
            return f"0f{operand.bits:08X}" if single else f"0d{operand.bits:016X}"
        case Address():
            return f"[%at+{WORD}]"
        case Sink():
            return "_"
    raise Error(f"{operand} cannot be an operand of a loop that is run")


def _guard(instruction: Instruction) -> str:
    guard = instruction.guard
    return "" if guard is None else f"@{_operand(guard)} "


def _written(instruction: Instruction) -> str:
    operands = ", ".join(map(_operand, instruction.operands))
    return f"{_guard(instruction)}{instruction.mnemonic} {operands};"


def _access(instruction: Instruction) -> str:
    """The access, of generic memory: the word is in the array."""
    words = [each for each in instruction.qualifiers if each not in _SPACES]
    operands = ", ".join(map(_operand, instruction.operands))
    return f"{'.'.join((instruction.opcode, *words))} {operands};"


def _load(number: int, register: Register) -> Sequence[str]:
    at, name = f"[%at+{REGISTERS + 8 * number}]", _name(register)
    if register.type == "pred":
        return (f"ld.u32 %flag, {at};", f"setp.ne.u32 {name}, %flag, 0;")
    return (f"ld.b{type_bits(register.type)} {name}, {at};",)


def _store(number: int, register: Register) -> Sequence[str]:
    at, name = f"[%at+{REGISTERS + 8 * number}]", _name(register)
    if register.type == "pred":
        return (f"selp.u32 %flag, 1, 0, {name};", f"st.u32 {at}, %flag;")
    return (f"st.b{type_bits(register.type)} {at}, {name};",)
