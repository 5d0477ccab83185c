"""The rules by which undefined bits are followed, against what bits can really change.

A kernel computes with a register of which some bits come from a register that nobody
has written.  Each lane stores one bit of the result.  The bits that are reported must
be all that change when the undefined bits do; for instructions that only move and
combine bits, they must be exactly these.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.ptx import rules
from tests.simt.kernels import kernel
from tests.thinning import repeats

MASK = 0x00FF0F30
"""The bits of the operand that are undefined."""
PAIRS = [(0x12345678, 0x9ABCDEF0), (0, 0xFFFFFFFF), (0x3F9D70A4, 0x40A00000)]
"""Numbers that are defined: one whose other bits the operand has, and another."""
EXACT = [
    "mov.b32 %d, %e;",
    "and.b32 %d, %e, %y;",
    "or.b32 %d, %y, %e;",
    "xor.b32 %d, %e, %y;",
    "not.b32 %d, %e;",
    "lop3.b32 %d, %e, %y, %x, 0xE8;",
    "lop3.b32 %d, %x, %e, %y, 0x2D;",
    "shl.b32 %d, %e, 5;",
    "shr.u32 %d, %e, 7;",
    "shr.s32 %d, %e, 9;",
    "shf.l.wrap.b32 %d, %e, %y, 12;",
    "bfe.u32 %d, %e, 9, 9;",
    "bfe.s32 %d, %e, 4, 8;",
    "bfi.b32 %d, %e, %y, 3, 20;",
    "bfi.b32 %d, %y, %e, 10, 7;",
    "prmt.b32 %d, %e, %y, 0x2541;",
    "brev.b32 %d, %e;",
    "mov.b32 {%h1, %h2}, %e; mov.b32 %d, {%h2, %h1};",
    "mov.b64 %w1, {%y, %e}; mov.b64 {%t2, %d}, %w1;",
    "cvt.u16.u32 %h1, %e; cvt.u32.u16 %d, %h1;",
    "cvt.u64.u32 %w1, %e; shl.b64 %w1, %w1, 8; cvt.u32.u64 %d, %w1;",
    "setp.lt.u32 %p1, %t, 16; selp.b32 %d, %y, %e, %p1;",
    "setp.lt.u32 %p1, %t, 16; mov.b32 %d, %e; @%p1 mov.b32 %d, %y;",
    "shfl.sync.bfly.b32 %d, %e, 1, 31, -1;",
    "st.shared.b32 [place], %e; ld.shared.b32 %d, [place];",
    "st.shared.b32 [place], %e; ld.shared.u8 %d, [place+1];",
    "st.shared.b32 [place], %e; ld.shared.s16 %d, [place];",
    "st.local.b32 [own], %e; ld.local.b32 %d, [own];",
    "setp.gt.u32 %p1, %e, 5; setp.ne.u32 %p2, %t, %t; and.pred %p1, %p1, %p2;"
    "selp.b32 %d, %x, %y, %p1;",
]
SOUND = [
    "add.u32 %d, %e, %y;",
    "sub.s32 %d, %y, %e;",
    "mul.lo.u32 %d, %e, 12;",
    "mad.lo.s32 %d, %e, %y, %x;",
    "mul.hi.u32 %d, %e, %y;",
    "min.u32 %d, %e, %y;",
    "popc.b32 %d, %e;",
    "clz.b32 %d, %e;",
    "shl.b32 %d, %y, %e;",
    "add.f32 %d, %e, %y;",
    "fma.rn.f32 %d, %e, %y, %x;",
    "add.rn.f16x2 %d, %e, %y;",
    "cvt.rn.f16x2.f32 %d, %e, %y;",
    "cvt.rn.f16x2.f32 %d, %y, %e;",
    "cvt.rn.f32.s32 %d, %e;",
    "setp.gt.u32 %p1, %e, %y; selp.b32 %d, %x, %y, %p1;",
    "setp.gt.u32 %p1, %e, %y; mov.b32 %d, %x; @%p1 mov.b32 %d, %y;",
    "dp4a.u32.u32 %d, %e, %y, %x;",
    "redux.sync.or.b32 %d, %e, -1;",
    "setp.gt.u32 %p1, %e, %y; vote.sync.ballot.b32 %d, %p1, -1;",
    "st.shared.b32 [place], %x; atom.shared.or.b32 %t2, [place], %e;"
    "ld.shared.b32 %d, [place];",
]

EVERY = [*EXACT, *SOUND]
BEGIN = """
    .shared .align 8 .b32 place[2];
    .local .align 8 .b32 own[2];
    .reg .b32 %u, %e, %d, %x, %y, %bit, %t1, %t2;
    .reg .b64 %w1;
    ld.param.u32 %x, [x];
    ld.param.u32 %y, [y];
    GIVEN
    and.b32 %e, %u, MASK;
    and.b32 %t1, %x, REST;
    or.b32 %e, %e, %t1;
"""
STORE = (
    "shr.u32 %bit, %d, %t; and.b32 %bit, %bit, 1; st.global.u32 [%mine+PLACE], %bit;"
)


@cache
def made(undefined: bool) -> ptx.Kernel:
    """The kernel; the register is given if it is not to be undefined."""
    body = BEGIN.replace("GIVEN", "" if undefined else "ld.param.u32 %u, [u];")
    body = body.replace("MASK", str(MASK)).replace("REST", str(MASK ^ 0xFFFFFFFF))
    for number, use in enumerate(EVERY):
        body += use + STORE.replace("PLACE", str(128 * number)) + "\n"
    numbers = ".param .u32 x, .param .u32 y, .param .u32 u"
    return kernel(body + "ret;", numbers)


def stored(u: int, x: int, y: int) -> Any:
    """What each instruction leaves, as numbers whose bits the lanes stored."""
    out = np.zeros((len(EVERY), 32), np.uint32)
    made(False).launch(1, 32, [out, x, y, u], watch=False)
    return (out << np.arange(32, dtype=np.uint32)).sum(axis=1, dtype=np.uint64)


@cache
def reported(x: int, y: int) -> list[int]:
    """The bits of each result that are reported as undefined."""
    out = np.zeros((len(EVERY), 32), np.uint32)
    result: Any = made(True).launch(1, 32, [out, x, y, 0], watch="report")
    lines = made(True).function.instructions
    stores = [i for i, each in enumerate(lines) if each.mnemonic == "st.global.u32"]
    found = [0] * len(EVERY)
    for launch, each in result.found:
        if each.rule is rules.UNINITIALISED:
            _, index = launch.compiled.places[each.site]
            found[stores.index(index)] |= each.lanes
    return found


@cache
def varying(x: int, y: int) -> list[int]:
    """The bits of each result that change with the undefined ones."""
    some = [0, MASK, *(1 << n for n in range(32) if MASK >> n & 1)]
    more = np.random.default_rng(7).integers(0, 1 << 32, 24)
    results = [stored(int(u), x, y) for u in (*some, *more)]
    return [int(n) for n in np.bitwise_or.reduce([e ^ results[0] for e in results])]


# Every instruction and every pattern of bits, not each with each.
@repeats(together=1)
@pytest.mark.parametrize(("x", "y"), PAIRS)
@pytest.mark.parametrize("number", range(len(EVERY)), ids=EVERY)
def test_what_is_reported_is_what_changes(number: int, x: int, y: int) -> None:
    said, changes = reported(x, y)[number], varying(x, y)[number]
    assert changes & ~said == 0
    if EVERY[number] in EXACT:
        assert said == changes
