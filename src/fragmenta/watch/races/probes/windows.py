"""Where the address of an access may point to, as the instruction says."""

from __future__ import annotations

from fragmenta.engine.simt.accessing import space_of
from fragmenta.ptx.module import Instruction

NEAR, FAR, GLOBAL = "shared", "generic", "global"
"""What the addresses of an access are: in shared or global memory, or generic."""
GIVEN = frozenset({"param", "param::entry", "param::func", "const"})
"""Spaces that hold what a launch or a caller gives."""
_UNWATCHED = GIVEN | {"local"}


def window_of(instruction: Instruction) -> str:
    """What the addresses of an access are; nothing if no other thread can write there.

    >>> from fragmenta.ptx.reading import parse
    >>> module = parse('''
    ... .version 8.0
    ... .target sm_80
    ... .entry f(.param .u64 x) {
    ...     .reg .b32 %r<3>; .reg .b64 %d;
    ...     ld.param::entry.u64 %d, [x];
    ...     ld.u32 %r1, [%d];
    ...     ld.shared.u32 %r2, [%r1];
    ... }''')
    >>> [window_of(each) for each in module.functions["f"].instructions]
    ['', 'generic', 'shared']
    """
    words = set(instruction.qualifiers)
    if words & _UNWATCHED:
        return ""
    if space_of(instruction) in ("shared", "cluster"):
        return NEAR
    return GLOBAL if "global" in words else FAR
