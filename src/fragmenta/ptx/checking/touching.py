"""Which parameters of a kernel point to memory that it may load from or store to.

A register may hold a pointer if it comes from a parameter, by moves and arithmetic.
Nothing is said about a kernel that calls functions, or whose pointers may come from
memory.
"""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.arrays.once import OncePer
from fragmenta.ptx.checking.register_effects import effects, registers
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


def _copied(
    copy: Instruction, function: Function, sources: dict[int, set[str] | None]
) -> Touched | None:
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
        names: set[str] | None = set()
        if space == "global" and "tensor" in words:
            names = _map(address, function, sources)
        elif space == "global":
            names = _names(address, sources)
        if names is None:
            return None
        ends.append(frozenset(names))
    if len(ends) < 2:
        return None
    goal, source = ends
    return Touched(source | (goal if "reduce" in words else nothing), goal)


def _map(
    address: Address, function: Function, sources: dict[int, set[str] | None]
) -> set[str] | None:
    """The parameters that may be the map of a copy; None if it may be elsewhere."""
    base = address.base
    names = sources.get(base.number) if isinstance(base, Register) else None
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


def _names(address: Address, sources: dict[int, set[str] | None]) -> set[str] | None:
    """The parameters that an address may come from; None: it may be any."""
    found: set[str] = set()
    for each in registers((address,)):
        names = sources.get(each.number, set())
        if names is None:
            return None
        found |= names
    if isinstance(address.base, Symbol | int):
        return None  # a variable of the module
    return found


def _sources(function: Function) -> dict[int, set[str] | None]:
    """The parameters that each register may come from; None: any memory."""
    sources: dict[int, set[str] | None] = {}
    changed = True
    while changed:
        changed = False
        for each in function.instructions:
            given = _given(each, function, sources)
            for register in effects(each).writes:
                before = sources.get(register.number, set())
                after = None if given is None or before is None else before | given
                if after != before:
                    sources[register.number] = after
                    changed = True
    return sources


def _given(
    instruction: Instruction, function: Function, sources: dict[int, set[str] | None]
) -> set[str] | None:
    """Where the results of an instruction may come from."""
    found: set[str] = set()
    for each in instruction.operands:
        base = each.base if isinstance(each, Address) else each
        if isinstance(base, Symbol):
            if base.name not in {e.name for e in function.parameters}:
                return set() if _is_near(instruction, function, base) else None
            found.add(base.name)
    if instruction.is_read and not found:
        # Only a word of 64 bits can be a pointer; two halves are packed by mov.
        wide = any(_bits(e) >= 64 for e in effects(instruction).writes)
        return None if wide else set()
    reads = effects(instruction).reads
    packs = instruction.is_move and any(_bits(e) < 64 for e in reads)
    if packs and any(_bits(e) >= 64 for e in effects(instruction).writes):
        return None
    for register in reads:
        names = sources.get(register.number, set())
        if names is None:
            return None
        found |= names
    return found


def _is_near(instruction: Instruction, function: Function, symbol: Symbol) -> bool:
    """Whether a name is one of shared or local memory of the function."""
    variable = function.variables.get(symbol.name)
    return variable is not None and variable.space in ("shared", "local")


def _bits(register: Register) -> int:
    return type_bits(register.type)
