"""Finds branches that decide what synchronises, and depend on data.

A launch is recorded once.  Where a branch depends only on arguments and on numbers of
threads and blocks, every order takes the same way.  Where it depends on what was loaded
from memory, another order may go another way, and so may another input.  This looks at
the text: which registers may depend on memory, and which branches on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import or_
from typing import NamedTuple

from fragmenta.ptx.checking.register_effects import (
    decided,
    effects_of,
    flows,
    registers,
    ways,
)
from fragmenta.ptx.dataflow import forks, reached, reversed_graph, solved
from fragmenta.ptx.flow import BRANCHES, ENDS, successors
from fragmenta.ptx.module import Address, Function, Instruction, Module
from fragmenta.ptx.opcodes.kinds import kind_of
from fragmenta.ptx.ordering import role
from fragmenta.ptx.placement import reachable
from fragmenta.watch.races.probes.polling import condition, looped, quiet_loop, spins
from fragmenta.watch.races.probes.undefined_flow import loads


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
    memory: bool = False
    """Whether it decides about accesses of memory only: whether, or where, one is."""
    stored: bool = False
    """Whether it is only what an access writes, or that it writes."""
    handed: bool = False
    """Whether lanes hand it on to others of the warp, for whom it decides."""


def synchronises(instruction: Instruction) -> bool:
    """Whether an instruction is one of those that are explored."""
    words = instruction.qualifiers
    if instruction.is_barrier:
        return "warp" not in words
    if _only_moves(instruction):
        return "async" in words
    if instruction.opcode == "clusterlaunchcontrol":
        return "try_cancel" in words
    if instruction.is_mbarrier:
        return True
    found = role(instruction)
    return found is not None and found.reads and not found.fence


def asks(instruction: Instruction) -> bool:
    """Whether its result is the state of what synchronises, not data."""
    asked = ("elect", "activemask", "clusterlaunchcontrol")
    return instruction.is_mbarrier or instruction.opcode in asked


def hands(instruction: Instruction) -> bool:
    """Whether threads get what it makes of the operands of other threads."""
    if asks(instruction):
        return False
    return instruction.votes or kind_of(instruction.mnemonic).word == "exchanges"


def _begins(instruction: Instruction, function: Function) -> bool:
    """Whether data come from memory here; a shuffle hands on what lanes have."""
    shuffles = instruction.is_shuffle
    return loads(instruction, function) and not (asks(instruction) or shuffles)


class Flow:
    """What depends on memory in one function."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.code = function.instructions
        self.effects = effects_of(function)
        self._regions = {
            branch: sorted({at for inside in every.values() for at in inside})
            for branch, every in forks(function, BRANCHES | ENDS)
        }
        """The instructions that a conditional branch decides about, by its index."""
        self._endless = _endless(function)
        more = [decided(function, *both) for both in self._regions.items()]
        followed = ways(function, lambda each: not asks(each))
        self._graph = flows(function, [*followed, *more])
        begun = [
            index for index, each in enumerate(self.code) if _begins(each, function)
        ]
        self.behind = self._spread((at, frozenset((at,))) for at in begun)
        """The loads that a register may depend on, by the register's number."""
        handing = [index for index, each in enumerate(self.code) if hands(each)]
        self._handed = self._spread((at, self.sources(at)) for at in handing)
        """The same, of what other lanes have loaded."""

    def _spread(
        self, begun: Iterable[tuple[int, frozenset[int]]]
    ) -> dict[int, frozenset[int]]:
        given: dict[int, frozenset[int]] = {}
        for index, sources in begun:
            for each in self.effects[index].writes:
                given[each.number] = given.get(each.number, frozenset()) | sources
        return solved(self._graph, given, or_)

    def sources(self, index: int) -> frozenset[int]:
        """The loads that an instruction's operands may depend on."""
        return self._sources(index, self.behind)

    def _sources(self, index: int, behind: dict[int, frozenset[int]]) -> frozenset[int]:
        reads = (behind.get(e.number) for e in self.effects[index].reads)
        return frozenset().union(*(each for each in reads if each))

    def dependent(self) -> Iterable[Dependent]:
        """Branches about what synchronises, and operands of it, that depend on data.

        The branch of a loop that waits for a word is part of the wait.
        """
        waits = self._waits()
        for branch, inside in self._regions.items():
            for source in self.sources(branch) - waits.get(branch, set()):
                made = self._made(branch, source, False)
                if any(
                    i in self._endless or synchronises(self.code[i]) for i in inside
                ):
                    yield made
                elif any(_accesses(self.code[i]) for i in inside):
                    yield made._replace(memory=True)
                if made.word:
                    yield from self._told(inside, source)
        for index, each in enumerate(self.code):
            if synchronises(each) and role(each) is None and not _only_moves(each):
                for source in self.sources(index):
                    yield self._made(index, source, True)
            if _accesses(each) or each.is_fetch or each.is_copy:
                yield from self._accessing(index)

    def _told(self, inside: list[int], source: int) -> Iterable[Dependent]:
        """Stores that are done or not as a strong load says: they tell it, too."""
        for index in inside:
            if _accesses(self.code[index]) and not self.code[index].is_load:
                yield self._made(index, source, False)._replace(stored=True)

    def _accessing(self, index: int) -> Iterable[Dependent]:
        """Loads that decide where an access is, and strong ones of what it writes.

        What a loop on an atomic operation writes is found by running the loop.
        """
        where = self._places(index, self.behind)
        handed = self._places(index, self._handed)
        loops = spins(self.function, index)
        for source in self.sources(index):
            made = self._made(index, source, True)
            if source in where:
                yield made._replace(memory=True, handed=source in handed)
            elif made.word and not loops:
                yield made._replace(stored=True)

    def _places(self, index: int, behind: dict[int, frozenset[int]]) -> frozenset[int]:
        """The loads that decide where an access is, and whether it is done."""
        each = self.code[index]
        some = [o for o in each.operands if isinstance(o, Address)]
        read = registers((*some, *([each.guard] if each.guard is not None else ())))
        found = (behind.get(register.number) for register in read)
        return frozenset().union(*(each for each in found if each))

    def _waits(self) -> dict[int, set[int]]:
        """The branches of loops on words, and the accesses that these depend on.

        They are what is waited for, and what was found before and decides about that.
        """
        found: dict[int, set[int]] = {}
        stored = self._stored()
        for index, each in enumerate(self.code):
            if role(each) is None or not each.operands:
                continue
            loop, sources = looped(self.function, index), {index}
            if loop is not None:
                found_before = {e for e in loop.sources if e is not None}
                sources |= found_before - stored
            elif condition(self.function, index) is None:
                continue
            for place in quiet_loop(self.function, index):
                found.setdefault(place, set()).update(sources)
        return found

    def _stored(self) -> set[int]:
        """The accesses whose values others may see, as a strong access writes them."""
        found: set[int] = set()
        for index, each in enumerate(self.code):
            strong = role(each)
            if strong is not None and strong.publishes:
                found |= self.sources(index)
        return found

    def _made(self, index: int, source: int, operand: bool) -> Dependent:
        found = role(self.code[source])
        word = found is not None and found.reads
        handed = hands(self.code[index]) or source in self._sources(index, self._handed)
        how = operand, word, False, False, handed
        return Dependent(self.function.name, index, source, *how)


def _endless(function: Function) -> set[int]:
    """The instructions from which no way leads to an end."""
    after, last = successors(function), len(function.instructions)
    before = reversed_graph(after)
    ends = (
        n for n, to in enumerate(after) if not to or last in to or _ends(function, n)
    )
    return {*range(last)} - {*reached(ends, before.__getitem__)}


def _ends(function: Function, place: int) -> bool:
    return function.instructions[place].opcode in ENDS


def _accesses(instruction: Instruction) -> bool:
    """Whether an instruction accesses memory that others see."""
    words = set(instruction.qualifiers)
    here = instruction.is_access and not instruction.is_fetch
    return here and not words & {"param", "local"}


def _only_moves(instruction: Instruction) -> bool:
    """Whether data only say what is copied, not what is waited for."""
    stored = instruction.is_write and not instruction.is_fetch
    return stored or instruction.is_copy


def dependent(module: Module, kernel: str) -> list[Dependent]:
    """What depends on data in a kernel and in the functions that it may call."""
    found: list[Dependent] = []
    for name in reachable(module, module.functions[kernel]):
        function = module.functions[name]
        if not function.declared_only and function.instructions:
            found += Flow(function).dependent()
    return found
