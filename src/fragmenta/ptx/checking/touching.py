"""Which parameters of a kernel point to memory that it may load from or store to.

A register may hold a pointer if it comes from a parameter, by moves and arithmetic.
Nothing is said about a kernel that calls functions, or whose pointers may come from
memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import or_
from typing import NamedTuple, TypeAlias

from fragmenta.base.arrays.once import OncePer
from fragmenta.ptx.checking.register_effects import (
    Effects,
    effects_of,
    flows,
    registers,
)
from fragmenta.ptx.dataflow import solved
from fragmenta.ptx.families import BARRIERS, MBARRIERS, ROW_LOADS, ROW_STORES, WARPGROUP
from fragmenta.ptx.module import (
    Address,
    Function,
    Instruction,
    Register,
    Symbol,
    type_bits,
)
from fragmenta.ptx.opcodes.kinds import kind_of

_NEAR = ("shared", "shared::cta", "shared::cluster", "local", "param", "const")
_SHARED_ONLY = MBARRIERS | ROW_LOADS | ROW_STORES | WARPGROUP | BARRIERS
_MAP_BYTES = 128

Sources: TypeAlias = dict[int, frozenset[str | None]]
_NONE: frozenset[str | None] = frozenset()
_ANY = _NONE | {None}


class Touched(NamedTuple):
    """The parameters whose memory a kernel may touch, by their names."""

    loaded: frozenset[str]
    stored: frozenset[str]


@OncePer
def touched(function: Function) -> Touched | None:
    """What a kernel may touch; None if that cannot be read off its text.

    >>> from fragmenta.ptx.reading import parse
    >>> module = parse('''
    ... .version 8.0
    ... .target sm_80
    ... .entry f(.param .u64 x, .param .u64 y) {
    ...     .reg .b64 %d<4>; .reg .b32 %r;
    ...     ld.param.u64 %d0, [x];
    ...     ld.param.u64 %d1, [y];
    ...     add.u64 %d2, %d0, 16;
    ...     ld.global.u32 %r, [%d2];
    ...     st.global.u32 [%d1], %r;
    ... }''')
    >>> found = touched(module.functions["f"])
    >>> sorted(found.loaded), sorted(found.stored)
    (['x'], ['y'])
    """
    sources = _sources(function)
    loaded: set[str] = set()
    stored: set[str] = set()
    for each in function.instructions:
        addresses = [o for o in each.operands if isinstance(o, Address)]
        kind = kind_of(each.mnemonic).word
        if not addresses or each.opcode in _SHARED_ONLY or kind == "hints":
            continue
        if each.is_copy:
            copied = _copied(each, function, sources)
            if copied is None:
                return None
            loaded |= copied.loaded
            stored |= copied.stored
            continue
        if any(word in _NEAR for word in each.qualifiers):
            continue
        names = _names(addresses[0], sources)
        if kind not in ("loads", "stores", "updates") or names is None:
            return None
        if kind != "stores":
            loaded |= names
        if kind != "loads":
            stored |= names
    if any(each.opcode == "call" for each in function.instructions):
        return None
    return Touched(frozenset(loaded), frozenset(stored))


def _copied(copy: Instruction, function: Function, sources: Sources) -> Touched | None:
    """What a copy touches; None if that is not known."""
    nothing: frozenset[str] = frozenset()
    words = copy.qualifiers
    if "mbarrier" in words or "prefetch" in words:
        return Touched(nothing, nothing)
    spaces = [e.partition("::")[0] for e in words]
    spaces = [each for each in spaces if each in ("shared", "global")][:2]
    addresses = [each for each in copy.operands if isinstance(each, Address)]
    ends = []
    for space, address in zip(spaces, addresses, strict=False):
        names: frozenset[str] | None = frozenset()
        if space == "global" and "tensor" in words:
            names = _map(address, function, sources)
        elif space == "global":
            names = _names(address, sources)
        if names is None:
            return None
        ends.append(names)
    if len(ends) < 2:
        return None
    goal, source = ends
    return Touched(source | (goal if "reduce" in words else nothing), goal)


def _map(
    address: Address, function: Function, sources: Sources
) -> frozenset[str] | None:
    """The parameters that may be the map of a copy; None if it may be elsewhere."""
    base = address.base
    names = _known((base,), sources) if isinstance(base, Register) else None
    if not names or not all(_is_map(each, function) for each in names):
        return None
    return names


def _is_map(name: str, function: Function) -> bool:
    """Whether a parameter can only be a tensor map: its address is all that is used.

    A map in other memory may name any array.
    """
    given = next(each for each in function.parameters if each.name == name)
    return given.elements == _MAP_BYTES and not any(
        isinstance(operand, Address)
        and isinstance(operand.base, Symbol)
        and operand.base.name == name
        for each in function.instructions
        for operand in each.operands
    )


def _names(address: Address, sources: Sources) -> frozenset[str] | None:
    """The parameters that an address may come from; None: it may be any."""
    if isinstance(address.base, Symbol | int):
        return None  # a variable of the module
    return _known(registers((address,)), sources)


def _known(named: Iterable[Register], sources: Sources) -> frozenset[str] | None:
    names = _NONE.union(*(sources.get(each.number, _NONE) for each in named))
    return None if None in names else frozenset(e for e in names if e is not None)


def _sources(function: Function) -> Sources:
    """The parameters that each register may come from; None among them: any memory."""
    given: Sources = {}
    ways = []
    for each, effect in zip(function.instructions, effects_of(function), strict=True):
        begun, passes = _given(each, effect, function)
        for register in effect.writes:
            given[register.number] = given.get(register.number, _NONE) | begun
        if passes:
            ways.append((effect.reads, effect.writes))
    return solved(flows(function, ways), given, or_)


def _given(
    instruction: Instruction, effect: Effects, function: Function
) -> tuple[frozenset[str | None], bool]:
    """Where results come from besides registers, and whether they do from these."""
    found: set[str] = set()
    for each in instruction.operands:
        base = each.base if isinstance(each, Address) else each
        if isinstance(base, Symbol):
            if base.name not in {e.name for e in function.parameters}:
                near = _is_near(instruction, function, base)
                return _NONE if near else _ANY, False
            found.add(base.name)
    loads = instruction.is_read and not found
    packs = instruction.is_move and any(_bits(e) < 64 for e in effect.reads)
    # Only a word of 64 bits can be a pointer; two halves are packed by mov.
    if (loads or packs) and any(_bits(e) >= 64 for e in effect.writes):
        return _ANY, False
    if loads:
        return _NONE, False
    return frozenset(found), True


def _is_near(instruction: Instruction, function: Function, symbol: Symbol) -> bool:
    """Whether a name is one of shared or local memory of the function."""
    variable = function.variables.get(symbol.name)
    return variable is not None and variable.space in ("shared", "local")


def _bits(register: Register) -> int:
    return type_bits(register.type)
