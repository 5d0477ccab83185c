"""The synchronising events of a program: where the turn of a warp can end.

These are the instructions through which warps and asynchronous units learn of one
another: barriers, mbarriers, copies and products, waits for groups, atomics, strong
accesses and fences.  Between two of them, nothing that a warp does depends on the
order of warps, if the program has no race.
"""

from __future__ import annotations

from functools import lru_cache

from fragmenta.engine.simt.layout import ACTS, FENCES, ISSUES, MEETS, POLLS, WAITS
from fragmenta.ptx import effects, ordering
from fragmenta.ptx.module import Instruction

_OTHERS = {
    "fence": FENCES,
    "membar": FENCES,
    "griddepcontrol": ACTS,
    "tensormap": ACTS,
    "multimem": ACTS,
    "nanosleep": POLLS,
}
_MEMORY = frozenset({"shared", "+shared", "global", "+global"})
_WAITS = frozenset(each for way in effects.WAYS.values() for each in way.waits)


def synchronises(instruction: Instruction) -> int:
    """What kind of event an instruction is: ``ACTS`` and the like; 0 if it is none.

    >>> from fragmenta.ptx.reading import parse
    >>> text = ".version 8.0 .target sm_80 .entry f() { bar.sync 0; bar.warp.sync -1; }"
    >>> list(map(synchronises, parse(text, "").functions["f"].instructions))
    [33, 0]
    """
    words, opcode = instruction.qualifiers, instruction.opcode
    if instruction.is_barrier:
        if "warp" in words:
            return 0
        return ACTS if "arrive" in words else ACTS | MEETS
    if instruction.is_mbarrier:
        if "test_wait" in words or "try_wait" in words:
            return POLLS | WAITS
        return 0 if "pending_count" in words else ACTS
    if opcode in _OTHERS:
        return _OTHERS[opcode]
    if opcode in effects.OPCODES:
        found = _asynchronous(instruction.mnemonic)
        if found is not None:
            return found
    role = ordering.role(instruction)
    if role is None:
        return 0
    return POLLS if role.reads else ACTS


@lru_cache(maxsize=1024)
def _asynchronous(mnemonic: str) -> int | None:
    """The kind of an instruction of an asynchronous unit; None if it is of none."""
    effect = effects.find(mnemonic)
    if effect is not None:
        if not effect.done_by:  # a hint
            return 0
        return ACTS | ISSUES if _MEMORY & set(effect.writes) else ACTS
    words = mnemonic.split(".")
    names = {".".join(words[:n]) for n in range(2, len(words) + 1)}
    if not names & effects.SYNCHRONOUS:
        return None
    return ACTS | WAITS if names & _WAITS else ACTS
