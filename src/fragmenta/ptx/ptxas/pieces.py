"""Cuts a function into the straight pieces of code in which ptxas fuses instructions.

Jumps to the next instruction and labels that nothing jumps to do not cut it.  A guarded
instruction does, unless it only computes: ptxas makes a jump of its guard.  Where its
result is not used and it does nothing else, ptxas leaves it out, and nothing is cut.  A
guard that is assigned once, a constant, is none for ptxas.  A guard that compares two
constants is taken for one.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import or_
from typing import NamedTuple

from fragmenta.ptx.checking.register_effects import effects, registers, writers
from fragmenta.ptx.dataflow import bits, reached, solved
from fragmenta.ptx.families import LOADS, ROW_LOADS, SHUFFLES
from fragmenta.ptx.flow import destinations, falls_through, successors
from fragmenta.ptx.module import (
    Function,
    Immediate,
    Instruction,
    Register,
    RegisterPart,
)
from fragmenta.ptx.opcodes.kinds import computes

# ptxas leaves these out if their results are not used, and all that only computes.
_WITHOUT_EFFECT = LOADS | ROW_LOADS | SHUFFLES | {"activemask", "mma", "vote"}
_EFFECTS = frozenset({"acquire", "volatile"})

# Divisions and roots that ptxas makes a call or several blocks of.
_CALLED = frozenset({"rn", "rz", "rm", "rp", "u16", "s16", "s32", "u64", "s64"})


# ── operands ────────────────────────────────────────────────────────────────


class Uses(NamedTuple):
    """The registers of an instruction, by number."""

    reads: set[int]
    """Those whose old values it needs."""
    writes: list[int]
    whole: bool
    """Whether nothing is left of the old values of those that it writes."""


def uses(instruction: Instruction) -> Uses:
    """The registers that an instruction reads and writes."""
    found = effects(instruction)
    reads = {each.number for each in found.reads}
    writes = [each.number for each in found.writes]
    # A product of wgmma adds to its accumulator.
    updates = found.unknown or instruction.of_warpgroup
    if updates:
        reads.update(writes)
    first = instruction.operands[0] if instruction.operands else None
    partial = (
        updates or instruction.guard is not None or isinstance(first, RegisterPart)
    )
    return Uses(reads, writes, not partial)


def is_calculation(instruction: Instruction, values: int) -> bool:
    """Whether an instruction makes a register of so many operands.

    A kernel that was not checked may have others, which the engine refuses later.
    """
    operands = instruction.operands
    return len(operands) == values + 1 and isinstance(operands[0], Register)


def constants(function: Function) -> dict[int, Immediate]:
    """The registers that are assigned once, by a ``mov`` of a constant."""
    found: dict[int, Immediate] = {}
    for number, places in writers(function).items():
        each = function.instructions[places[0]]
        if len(places) > 1 or not each.is_move or each.guard is not None:
            continue
        goal, source = each.operands[0], each.operands[-1]
        plain = isinstance(goal, Register) and not goal.vector
        if plain and len(each.operands) == 2 and isinstance(source, Immediate):
            found[number] = source
    return found


def _without_effect(instruction: Instruction) -> bool:
    """Whether ptxas leaves an instruction out if its results are not used."""
    words = set(instruction.qualifiers)
    if computes(instruction.mnemonic):
        return "cc" not in words
    return instruction.opcode in _WITHOUT_EFFECT and not words & _EFFECTS


def _computes(instruction: Instruction) -> bool:
    """Whether a guarded instruction has a predicate in machine code."""
    words = instruction.qualifiers
    if instruction.opcode == "lop3" and {"and", "or"} & {*words}:
        return False
    return computes(instruction.mnemonic) and "cc" not in words


# ── pieces ──────────────────────────────────────────────────────────────────


def cuts(instruction: Instruction) -> bool:
    """Whether a piece of code ends after an instruction."""
    words = set(instruction.qualifiers)
    match instruction.opcode:
        case "bra" | "brx" | "ret" | "exit" | "call" | "trap" | "brkpt" | "pmevent":
            return True
        case "membar" | "setmaxnreg":
            return True
        case "fence":
            return bool(words & {"acq_rel", "sc"})
        case "griddepcontrol":
            return "launch_dependents" in words
        case "div" | "rem" | "sqrt" | "rcp":
            return bool(words & _CALLED)
        case "rsqrt":
            return "f64" in words and "ftz" not in words
        case "bfind":
            return bool(words & {"u64", "s64"})
    return False


class Pieces:
    """The pieces of a function, and the registers that are live after each of them."""

    def __init__(self, function: Function) -> None:
        self.code = function.instructions
        self._function = function
        self.uses = [uses(each) for each in self.code]
        """The registers of each instruction."""
        self._masks = list(map(_masks, self.code, self.uses))
        self._next = self._successors()
        self.pieces = self._cut(set())
        """The places of the instructions of each piece, in order."""
        self.live, self.needed = self._live()
        """For each piece a number with a bit for each register that is needed later;
        for each instruction whether its results are needed."""
        if guarded := self._guarded():
            self.pieces = self._cut(guarded)
            self.live, self.needed = self._live()

    def _target(self, place: int) -> int:
        """The instruction that runs first at a place: plain jumps are followed."""
        seen = set()
        while place < len(self.code) and place not in seen:
            instruction = self.code[place]
            goals = destinations(self._function, instruction)
            if instruction.opcode != "bra" or falls_through(instruction) or not goals:
                return place
            seen.add(place)
            place = goals[0]
        return place

    def _successors(self) -> list[list[int]]:
        """The graph without plain jumps: each instruction leads to where they end."""
        end = len(self.code)
        found = []
        for after in successors(self._function):
            places = dict.fromkeys(map(self._target, after))
            found.append([place for place in places if place < end])
        return found

    def _guarded(self) -> set[int]:
        """The instructions whose guards become jumps."""
        settled = constants(self._function)
        return {
            place
            for place, each in enumerate(self.code)
            if each.guard is not None
            and each.opcode != "bra"
            and self.needed[place]
            and not _computes(each)
            and not {r.number for r in registers((each.guard,))} <= settled.keys()
        }

    def _cut(self, guarded: set[int]) -> list[list[int]]:
        """Straight pieces of the code that can be reached."""
        if not self.code:
            return []
        end, start = len(self.code), self._target(0)
        sources = [0] * (end + 1)
        sources[start] = 2  # the entry begins a piece
        found = list(reached([start], self._next.__getitem__)) if start < end else []
        for place in found:
            for after in self._next[place]:
                sources[after] += 1
        begins = {place for place in found if sources[place] != 1}
        for place in found:
            # A guarded jump to the next instruction does not cut.
            one = self.code[place].opcode == "bra" and len(self._next[place]) == 1
            if (cuts(self.code[place]) and not one) or place in guarded:
                begins.update(self._next[place])
        return [self._piece(place, begins) for place in sorted(begins)]

    def _piece(self, place: int, begins: set[int]) -> list[int]:
        piece = [place]
        while True:
            after = self._next[piece[-1]]
            if len(after) != 1 or after[0] in begins:
                return piece
            piece.append(after[0])

    def dead(self) -> Iterator[int]:
        """The instructions whose results nothing needs."""
        for piece in self.pieces:
            yield from (
                place
                for place in piece
                if not self.needed[place] and computes(self.code[place].mnemonic)
            )

    # ── what is needed later ────────────────────────────────────────────────

    def _live(self) -> tuple[list[int], list[bool]]:
        first = {piece[0]: number for number, piece in enumerate(self.pieces)}
        after = [
            [first[place] for place in self._next[piece[-1]]] for piece in self.pieces
        ]
        needed = [False] * len(self.code)

        def enter(number: int, live: int) -> int:
            return self._enter(self.pieces[number], live, needed)

        live = solved(after, dict.fromkeys(range(len(after)), 0), or_, enter, back=True)
        return list(live.values()), needed

    def _enter(
        self,
        piece: list[int],
        live: int,
        needed: list[bool],
    ) -> int:
        """What is needed before a piece; notes which instructions are needed."""
        for place in reversed(piece):
            read, written, whole, pure = self._masks[place]
            if pure and not live & written:
                continue
            needed[place] = True
            live = live & ~whole | read
        return live


def _masks(instruction: Instruction, used: Uses) -> tuple[int, int, int, bool]:
    """Registers read, written, written as a whole; whether it may be left out."""
    read, written = bits(used.reads), bits(used.writes)
    pure = bool(written) and _without_effect(instruction)
    return read, written, written if used.whole else 0, pure
