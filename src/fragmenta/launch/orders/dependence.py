"""Finds branches that decide what synchronises, and depend on data.

A launch is recorded once.  Where a branch depends only on arguments and on numbers of
threads and blocks, every order takes the same way.  Where it depends on what was loaded
from memory, another order may go another way, and so may another input.  This looks at
the text: which registers may depend on memory, and which branches on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fragmenta.ptx.checking.register_effects import Effects, effects
from fragmenta.ptx.flow import BRANCHES, ENDS, BasicBlock, blocks, postdominators
from fragmenta.ptx.module import Function, Instruction, Module
from fragmenta.ptx.ordering import role
from fragmenta.ptx.placement import reachable
from fragmenta.races.probes.polling import condition
from fragmenta.races.probes.undefined_flow import loads


class Dependent(NamedTuple):
    """An instruction that depends on data, and where the data come from."""

    function: str
    place: int
    source: int
    """The load, as an index in the function."""
    operand: bool
    """Whether an operand of what synchronises depends on it, not a branch."""
    word: bool
    """Whether the load is a strong one, of a word through which threads synchronise."""


def synchronises(instruction: Instruction) -> bool:
    """Whether an instruction is one of those that are explored."""
    words = instruction.qualifiers
    if instruction.opcode in ("bar", "barrier"):
        return "warp" not in words
    if instruction.opcode in ("cp", "st", "red"):
        return "async" in words
    if instruction.opcode == "clusterlaunchcontrol":
        return "try_cancel" in words
    if instruction.opcode == "mbarrier":
        return True
    found = role(instruction)
    return found is not None and found.reads and not found.fence


def asks(instruction: Instruction) -> bool:
    """Whether its result is the state of what synchronises, not data."""
    asked = ("mbarrier", "elect", "activemask", "clusterlaunchcontrol")
    return instruction.opcode in asked


class Flow:
    """What depends on memory in one function."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.code = function.instructions
        self.effects: list[Effects] = [effects(each) for each in self.code]
        self.blocks = blocks(function)
        self.behind: dict[int, frozenset[int]] = {}
        """The loads that a register may depend on, by the register's number."""
        self._regions = self._controlled()
        self._spread()

    def _controlled(self) -> dict[int, list[int]]:
        """The instructions that a conditional branch decides about, by its index."""
        after = postdominators(self.blocks)
        found = {}
        for number, block in enumerate(self.blocks):
            last = block.end - 1
            each = self.code[last]
            conditional = each.guard is not None or each.opcode == "brx"
            if each.opcode in BRANCHES | ENDS and conditional:
                found[last] = self._between(block, after.get(number))
        return found

    def _between(self, block: BasicBlock, stop: int | None) -> list[int]:
        """The instructions after a block and before the one where all ways meet."""
        seen: set[int] = set()
        left = list(block.after)
        while left:
            number = left.pop()
            if number not in seen and number != stop:
                seen.add(number)
                left += self.blocks[number].after
        return [
            index
            for number in sorted(seen)
            for index in range(self.blocks[number].start, self.blocks[number].end)
        ]

    def _spread(self) -> None:
        for index, each in enumerate(self.code):
            if loads(each, self.function) and not asks(each):
                self._mark(index, frozenset((index,)))
        changed = True
        while changed:
            changed = False
            for index, each in enumerate(self.code):
                if not asks(each):
                    changed |= self._mark(index, self.sources(index))
            for branch, inside in self._regions.items():
                sources = self.sources(branch)
                if sources:
                    for index in inside:
                        changed |= self._mark(index, sources)

    def _mark(self, index: int, sources: frozenset[int]) -> bool:
        changed = False
        for each in self.effects[index].writes:
            before = self.behind.get(each.number, frozenset())
            if sources - before:
                self.behind[each.number] = before | sources
                changed = True
        return changed

    def sources(self, index: int) -> frozenset[int]:
        """The loads that an instruction's operands may depend on."""
        reads = (self.behind.get(e.number) for e in self.effects[index].reads)
        return frozenset().union(*(each for each in reads if each))

    def dependent(self) -> Iterable[Dependent]:
        """Branches about what synchronises, and operands of it, that depend on data.

        The branch of a loop that waits for a word is part of the wait.
        """
        for branch, inside in self._regions.items():
            for source in self.sources(branch):
                waits = condition(self.function, source) is not None
                loop = waits and source in inside and branch - source < _NEAR
                if not loop and any(synchronises(self.code[i]) for i in inside):
                    yield self._made(branch, source, False)
        for index, each in enumerate(self.code):
            if synchronises(each) and role(each) is None and not _only_moves(each):
                for source in self.sources(index):
                    yield self._made(index, source, True)

    def _made(self, index: int, source: int, operand: bool) -> Dependent:
        found = role(self.code[source])
        word = found is not None and found.reads
        return Dependent(self.function.name, index, source, operand, word)


_NEAR = 12
"""How far the branch of a loop on a word may be from the load."""


def _only_moves(instruction: Instruction) -> bool:
    """Whether data only say what is copied, not what is waited for."""
    return instruction.opcode in ("cp", "st", "red")


def dependent(module: Module, kernel: str) -> list[Dependent]:
    """What depends on data in a kernel and in the functions that it may call."""
    found: list[Dependent] = []
    for name in reachable(module, module.functions[kernel]):
        function = module.functions[name]
        if not function.declared_only and function.instructions:
            found += Flow(function).dependent()
    return found
