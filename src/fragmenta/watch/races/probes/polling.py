"""Finds instructions that are repeated until they succeed: waits that are loops.

Of a loop on a word of memory, :func:`condition` also finds what it waits for, if that
is plain.  Else :func:`looped` finds the instructions of the loop, and the registers
that they start from: they can be run on any value of the word.
"""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.engine.simt.emitter import immediate_bits
from fragmenta.ptx.checking.register_effects import effects, registers, writers
from fragmenta.ptx.dataflow import onward, reached, reversed_graph
from fragmenta.ptx.flow import destinations, successors
from fragmenta.ptx.module import (
    Address,
    Function,
    Immediate,
    Instruction,
    Not,
    Operand,
    Register,
    type_bits,
)
from fragmenta.ptx.ordering import role

_FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
_QUIET = frozenset({"bra", "nanosleep", "fence", "membar", "pragma"})
"""Opcodes that change nothing that others see, besides those that only compute."""


def quiet(instruction: Instruction) -> bool:
    """Whether an instruction changes nothing but registers of its own lane."""
    return is_quiet(instruction.mnemonic)


def is_quiet(mnemonic: str) -> bool:
    """The same for the mnemonic of an instruction.

    >>> is_quiet("add.u32"), is_quiet("st.global.u32")
    (True, False)
    """
    if mnemonic.partition(".")[0] in _QUIET:
        return True
    # The table takes a while to import.
    from fragmenta.ptx.opcodes.kinds import computes

    return computes(mnemonic)


def spins(function: Function, index: int) -> bool:
    """Whether an instruction may follow itself with nothing in between.

    >>> from fragmenta.ptx.reading import parse
    >>> function = parse('''
    ... .version 8.0
    ... .target sm_90
    ... .entry f() {
    ...     .reg .pred %p; .reg .b32 %r;
    ... L:  mbarrier.try_wait.parity.shared.b64 %p, [%r], 0;
    ...     @!%p bra L;
    ...     mbarrier.test_wait.parity.shared.b64 %p, [%r], 0;
    ...     ret;
    ... }''').functions["f"]
    >>> spins(function, 0), spins(function, 2)
    (True, False)
    """
    following = onward(function, quiet)
    return index in reached(successors(function)[index], following)


class PollingLoop(NamedTuple):
    """A loop on a word: an access, and instructions that only compute."""

    access: int
    inside: tuple[int, ...]
    """Those from which the access follows again; all other ways leave the loop."""
    before: tuple[int, ...]
    """Those before the loop that compute registers from what ``sources`` found."""
    inputs: tuple[Register, ...]
    """The registers that all of them start from."""
    sources: tuple[int | None, ...]
    """For each input the strong access before the loop whose result it is, if it is."""


def looped(function: Function, index: int) -> PollingLoop | None:
    """The loop on a load or an atomic; None if there is none, or not of one word.

    >>> from fragmenta.ptx.reading import parse
    >>> function = parse('''
    ... .version 8.0
    ... .target sm_80
    ... .entry f(.param .u64 at) {
    ...     .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %rd;
    ...     ld.param.u64 %rd, [at];
    ...     atom.add.release.gpu.global.u32 %r0, [%rd], 1;
    ... L:  ld.acquire.gpu.global.u32 %r1, [%rd];
    ...     xor.b32 %r2, %r1, %r0;
    ...     setp.gt.s32 %p, %r2, -1;
    ...     @%p bra L;
    ...     ret;
    ... }''').functions["f"]
    >>> found = looped(function, 2)
    >>> found.inside, [each.name for each in found.inputs], found.sources
    ((3, 4, 5), ['%r0'], (1,))
    """
    code = function.instructions
    if not code[index].is_read or not spins(function, index):
        return None
    inside = quiet_loop(function, index)
    body = [code[each] for each in inside]
    written = {r.number for each in body for r in effects(each).writes}
    at = [o for o in code[index].operands if isinstance(o, Address)]
    moves = {r.number for r in registers(at)} & written
    if moves or any(_varies(each) for each in body) or code[index].guard is not None:
        return None
    fresh = {each.number for each in effects(code[index]).writes}
    place, reads = index + 1, []
    while place in inside and code[place].opcode != "bra":  # each pass goes this way
        reads += [r for r in effects(code[place]).reads if r.number not in fresh]
        if code[place].guard is None:
            fresh |= {each.number for each in effects(code[place]).writes}
        place += 1
    later = [r for each in body for r in effects(each).reads]
    reads += [each for each in later if each.number not in fresh]
    reads += [
        r for o in code[index].operands[1:] if o not in at for r in registers((o,))
    ]
    needed = {each.number: each for each in reads}
    before, sources = _derived(function, index, needed, written)
    if any(type_bits(each.type) > 64 for each in needed.values()):
        return None
    inputs = tuple(needed.values())
    return PollingLoop(
        index, inside, before, inputs, tuple(sources.get(e.number) for e in inputs)
    )


def quiet_loop(function: Function, index: int) -> tuple[int, ...]:
    """The quiet instructions that follow an access, and that it follows again."""
    code, after = function.instructions, successors(function)
    behind = reached(after[index], onward(function, quiet))
    seen = {e for e in behind if e != index and e < len(code) and quiet(code[e])}
    before = reversed_graph(after)
    back = reached([index], lambda at: [e for e in before[at] if e in seen])
    return tuple(sorted({*back} - {index}))


def _varies(instruction: Instruction) -> bool:
    """Whether an instruction computes from more than registers and constants."""
    if instruction.opcode in _QUIET:
        return False
    plain = Register | Immediate | Not
    return not all(isinstance(each, plain) for each in instruction.operands)


def _derived(
    function: Function, index: int, needed: dict[int, Register], written: set[int]
) -> tuple[tuple[int, ...], dict[int, int]]:
    """What computes the registers of a loop from the results of strong accesses.

    ``needed`` then has what that starts from.  Also which results are among it.
    """
    code = function.instructions
    made = writers(function)
    before: list[int] = []
    sources: dict[int, int] = {}

    def follow(register: Register) -> bool:
        """Whether a strong access is behind a register."""
        places = made.get(register.number, [])
        if register.number in written or len(places) != 1 or places[0] == index:
            return False
        each, found = code[places[0]], role(code[places[0]])
        if found is not None and found.reads and not found.fence:
            sources[register.number] = places[0]
            needed[register.number] = register
            return True
        if places[0] in before:
            return True
        if each.guard is not None or not quiet(each) or _varies(each):
            return False
        reads, known = effects(each).reads, len(before)
        behind = [follow(other) for other in reads]
        # What was there when it was computed must still be there.
        stays = (
            b or len(made.get(o.number, ())) < 2
            for o, b in zip(reads, behind, strict=True)
        )
        if not any(behind) or not all(stays):
            del before[known:]
            return False
        needed.update(
            (o.number, o) for o, b in zip(reads, behind, strict=True) if not b
        )
        before.append(places[0])
        needed.pop(register.number, None)
        return True

    for register in list(needed.values()):
        follow(register)
    return tuple(before), sources


class Condition(NamedTuple):
    """What ends a loop on a word: ``value & mask`` compared with an operand."""

    compare: str
    against: Operand
    mask: int
    signed: bool = False
    """Whether both are signed numbers; it matters only for less and more."""


_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
_SWAPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "ge": "le", "gt": "lt", "le": "ge"}
_SAME = {"neu": "ne", "equ": "eq", "lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def condition(function: Function, index: int) -> Condition | None:
    """What the loop on a load or an atomic waits for; None if that is not plain.

    It is plain if the result, or some bits of it, are compared with a number, and a
    branch on that goes back or on.

    >>> from fragmenta.ptx.reading import parse
    >>> function = parse('''
    ... .version 8.0
    ... .target sm_80
    ... .entry f(.param .u64 at) {
    ...     .reg .pred %p; .reg .b32 %r<2>; .reg .b64 %rd;
    ...     ld.param.u64 %rd, [at];
    ... L:  ld.acquire.gpu.global.u32 %r0, [%rd];
    ...     setp.lt.u32 %p, %r0, 4;
    ...     @%p bra L;
    ...     ret;
    ... }''').functions["f"]
    >>> found = condition(function, 1)
    >>> found.compare, found.against.value
    ('ge', 4)
    """
    code = function.instructions
    result = code[index].operands[0]
    if not isinstance(result, Register) or not spins(function, index):
        return None
    held, mask, found = {result.number}, -1, None
    for place in range(index + 1, min(index + 12, len(code))):
        each = code[place]
        if each.opcode == "bra" and each.guard is not None and found is not None:
            return _ends(function, index, place, found, mask)
        if not quiet(each) or each.opcode == "bra":
            return None
        named = [o.number for o in each.operands if isinstance(o, Register)]
        if not held & set(named[1:]):
            continue
        if each.is_move:
            held.add(named[0])
        elif each.opcode == "and" and isinstance(each.operands[2], Immediate):
            held, mask = {named[0]}, int(each.operands[2].value)
        elif each.is_comparison and len(each.operands) == 3:
            found = each if found is None else None
        else:
            return None
        if found is not None and each is not found:
            return None
    return None


def _ends(
    function: Function, index: int, place: int, compared: Instruction, mask: int
) -> Condition | None:
    """The condition under which a branch leaves the loop."""
    branch, guard = function.instructions[place], function.instructions[place].guard
    p, a, b = compared.operands
    negated = isinstance(guard, Not)
    named = guard.of if isinstance(guard, Not) else guard
    word = compared.qualifiers[0]
    compare = _SAME.get(word, word)
    if named != p or compare not in _OPPOSITE:
        return None
    first = isinstance(a, Register) and not _constant(function, index, a)
    against = b if first else a
    if not first:
        compare = _SWAPPED[compare]
    if isinstance(against, Register) and not _constant(function, index, against):
        return None
    if not isinstance(against, Register | Immediate):
        return None
    kind = compared.qualifiers[-1]
    if kind in _FLOATS and compare not in ("eq", "ne"):
        return None  # bits are compared, as numbers
    if isinstance(against, Immediate):
        number = immediate_bits(against, kind)
        against = Immediate(number, "int", number)
    back = [goal for goal in destinations(function, branch) if goal <= index]
    if bool(back) != negated:  # taken while the comparison holds: that goes back
        compare = _OPPOSITE[compare]
    return Condition(compare, against, mask, kind.startswith("s"))


def _constant(function: Function, index: int, register: Register) -> bool:
    """Whether nothing in the loop writes a register."""
    inside = (index, *quiet_loop(function, index))
    writes = (effects(function.instructions[each]).writes for each in inside)
    return all(register not in each for each in writes)
