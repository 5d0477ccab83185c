"""Loads of tensor memory that are done because their registers are used.

PTX wants ``tcgen05.wait::ld`` after ``tcgen05.ld``.  Many kernels leave it out: ptxas
waits wherever a register of the load is used.  So a load is done once a value from it
has been stored, or has decided a branch.  If that is the case on every path before the
warp signals anybody, what comes after cannot meet the load on a GPU.
"""

from __future__ import annotations

from typing import TypeAlias

from fragmenta.ptx.checking.register_effects import effects
from fragmenta.ptx.dataflow import reached
from fragmenta.ptx.families import BARRIERS
from fragmenta.ptx.flow import BRANCHES, ENDS, successors
from fragmenta.ptx.module import Function, Instruction
from fragmenta.ptx.opcodes.kinds import kind_of

State: TypeAlias = tuple[int, frozenset[int]]
_STEPS = 20_000
"""So many instructions are followed at most."""
_ORDERED = frozenset({"release", "relaxed", "volatile", "acq_rel"})
_SIGNALS = BARRIERS | {"call", "griddepcontrol", *ENDS}


def _stores(instruction: Instruction) -> bool:
    """Whether an instruction needs the values of its registers at once."""
    kind = kind_of(instruction.mnemonic).word
    return kind in ("stores", "updates") or instruction.opcode in BRANCHES


def _signals(instruction: Instruction) -> bool:
    """Whether other threads, or work that it issues, may go on after an instruction."""
    opcode, words = instruction.opcode, instruction.qualifiers
    if instruction.of_tensor_memory:
        return words[0] not in ("ld", "wait::ld", "wait::st")
    if instruction.is_mbarrier:
        return not {"try_wait", "test_wait"} & set(words)
    if instruction.is_write:
        return not _ORDERED.isdisjoint(words)
    return opcode in _SIGNALS and "warp" not in words


def used_before_signals(function: Function, index: int) -> bool:
    """Whether a value of a load is stored before its warp signals, on every path.

    >>> from fragmenta.ptx.reading import parse
    >>> text = '''
    ... .version 8.8
    ... .target sm_100a
    ... .entry f() {{
    ...     .reg .b32 %r<3>; .shared .b32 word;
    ...     tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r0}}, [%r1];
    ...     add.u32 %r2, %r0, 1;
    ...     {}
    ...     ret;
    ... }}'''
    >>> order = "st.shared.u32 [word], %r2;", "bar.sync 0;"
    >>> for lines in (order, order[::-1]):
    ...     made = parse(text.format(" ".join(lines))).functions["f"]
    ...     print(used_before_signals(made, 0))
    True
    False
    """
    after, code = successors(function), function.instructions
    end = len(code)
    first = frozenset(each.number for each in effects(code[index]).writes)

    def following(state: State) -> list[State]:
        place, values = state
        found = _follow(code[place], values)
        if found is None:
            return []
        return [(each, found) for each in after[place]] if found else [(end, values)]

    states = enumerate(reached([(place, first) for place in after[index]], following))
    return not any(place >= end or number >= _STEPS for number, (place, _) in states)


def _follow(each: Instruction, values: frozenset[int]) -> frozenset[int] | None:
    """The values after an instruction; None: it uses one; empty: it comes too late."""
    effect = effects(each)
    uses = any(one.number in values for one in effect.reads)
    if uses and _stores(each):
        return None
    if _signals(each):
        return frozenset()
    writes = frozenset(one.number for one in effect.writes)
    if uses:
        return values | writes
    return values if each.guard is not None else values - writes
