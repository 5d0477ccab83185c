"""Which code blocks need no code for a part of the lanes."""

from __future__ import annotations

import pytest

from fragmenta.engine.simt.convergence import convergent_blocks
from fragmenta.engine.simt.program import Program, program
from tests.simt.kernels import launched, module


def laid_out(body: str, before: str = "") -> Program:
    return program(module(body, before=before).module, "k")


@pytest.mark.parametrize(
    "body",
    [
        "add.u32 %r1, %r2, 3;",
        "bra L; L: add.u32 %r1, %r2, 3;",
        "bar.sync 0; shfl.sync.idx.b32 %r1, %r2, 0, 31, -1; bar.red.popc.u32 %r1, 0, %p1;",
        "@%p1 add.u32 %r1, %r2, 3; bar.warp.sync -1; L: bra L;",
    ],
)
def test_all_lanes_stay_convergent_blocks(body: str) -> None:
    made = laid_out(body)
    assert convergent_blocks(made) == len(made.blocks)


@pytest.mark.parametrize(
    "body, first",
    [
        ("@%p1 bra L; add.u32 %r1, %r2, 3; L: ret;", 1),
        ("bar.sync 0; @%p1 exit; add.u32 %r1, %r2, 3;", 3),
        ("bar.sync %r1; add.u32 %r1, %r2, 3;", 2),
        ("@%p1 bar.sync 1; add.u32 %r1, %r2, 3;", 2),
        ("call f, (); add.u32 %r1, %r2, 3;", 1),
        # A loop: its start is executed by lanes that have parted.
        ("bar.sync 0; L: add.u32 %r1, %r1, 1; @%p1 bra L;", 2),
        # From a loop back to one before it.
        ("bar.sync 0; M: bar.sync 0; L: bra N; N: @%p1 bra L; bra M;", 2),
        ("T: .branchtargets L, M; L: bar.sync 0; M: brx.idx %r1, T;", 1),
    ],
)
def test_lanes_may_part(body: str, first: int) -> None:
    made = laid_out(body, ".func f() { ret; }")
    assert convergent_blocks(made) == first
    assert first < len(made.blocks)


def test_what_comes_before_a_loop_that_lanes_leave_one_by_one() -> None:
    found = launched("""
        mov.u32 %r1, 5;
        bar.sync 0;
        mov.u32 %r2, 0;
    L: add.u32 %r1, %r1, 1;
        add.u32 %r2, %r2, 1;
        setp.le.u32 %p1, %r2, %lane;
        @%p1 bra L;
        st.global.u32 [%mine], %r1;""")
    assert found.tolist() == [6 + lane for lane in range(32)]
