"""``setmaxnreg`` of many blocks: machine code counts, Python says which block hangs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.base.arrays import threads
from fragmenta.engine.units.clusters import Cluster

BLOCKS = 9

#: All threads begin with 64 registers.  Warp 1 asks for 104, and warp 0 releases as
#: many, in two steps.  In block ``odd`` it
#: leaves out the second one.
MODULE = ptx.parse(
    """.version 8.7
.target sm_90a
.address_size 64
.visible .entry f(.param .u64 out, .param .u32 odd) .maxnreg 64 {
    .reg .b32 %r<5>; .reg .b64 %d<4>; .reg .pred %p<3>;
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; ld.param.u32 %r3, [odd];
    setp.ge.u32 %p1, %r1, 32; setp.eq.u32 %p2, %r2, %r3;
    @%p1 bra MORE;
    setmaxnreg.dec.sync.aligned.u32 40;
    @%p2 bra DONE;
    setmaxnreg.dec.sync.aligned.u32 24;
    bra DONE;
MORE:
    setmaxnreg.inc.sync.aligned.u32 104;
DONE:
    ld.param.u64 %d1, [out]; mad.lo.u32 %r4, %r2, 64, %r1;
    mul.wide.u32 %d2, %r4, 4; add.u64 %d3, %d1, %d2;
    st.global.u32 [%d3], %r4;
    ret;
}"""
)
KERNEL = MODULE.kernels["f"]


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[int]]:
    """The clusters in which Python had a part."""
    found: set[int] = set()
    touch = Cluster.touch

    def told(self: Cluster) -> None:
        found.add(self.number)
        touch(self)

    monkeypatch.setattr(Cluster, "touch", told)
    before = threads.cores()
    threads.use_cores(1)
    yield found
    threads.use_cores(before)


def launch(odd: int, **options: Any) -> list[str]:
    """What is said about a launch."""
    out = np.zeros(64 * BLOCKS, np.uint32)
    result = KERNEL.launch(BLOCKS, 64, [out, np.uint32(odd)], watch="report", **options)
    assert np.array_equal(out, np.arange(out.size))
    return [str(each) for each in result.problems]


def test_balanced_registers_need_no_python(touched: set[int]) -> None:
    assert not launch(BLOCKS)
    assert touched <= {0}


@pytest.mark.parametrize("schedule", ["eager", "eager+in-steps"])
@pytest.mark.parametrize("odd", [0, 5, BLOCKS - 1])
def test_the_block_that_lacks_registers(odd: int, schedule: str) -> None:
    (said,) = launch(odd, schedule=schedule)
    assert f"({odd}, 0, 0)" in said
    assert "the 64 threads of the block begin with 64 registers each, 4,096 in all" in (
        " ".join(said.split())
    )
    assert "1 with 40 and 1 with 104" in " ".join(said.split())


#: Warps of one warpgroup, which begin with 128 registers; CHOOSE leads some past DOWN.
GROUP = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry f() .maxntid 128, 1, 1 .maxnreg 128 {
    .reg .b32 %r<3>; .reg .pred %p;
    mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31;
    CHOOSE
DOWN:
    setmaxnreg.dec.sync.aligned.u32 40;
    bra NEXT;
LESS:
    setmaxnreg.dec.sync.aligned.u32 24;
NEXT:
    mov.u32 %r1, %r2;
    ret;
}"""


@pytest.mark.parametrize(
    ("choose", "words"),
    [
        ("", ""),
        ("setp.ne.u32 %p, %r2, 0; @%p bra NEXT;", "31 lanes have passed it by"),
        ("setp.ge.u32 %p, %r1, 32; @%p bra NEXT;", "1 of 4 have 40 registers"),
        ("setp.ge.u32 %p, %r1, 96; @%p bra LESS;", "1 of 4 have 24 registers"),
    ],
)
def test_a_warpgroup_asks_as_one(choose: str, words: str) -> None:
    kernel = ptx.parse(GROUP.replace("CHOOSE", choose)).kernels["f"]
    found = kernel.launch(2, 128, (), watch="report").problems
    said = [" ".join(str(each).split()) for each in found]
    assert {each.rule for each in found} == ({"divergent-aligned"} if words else set())
    assert all(words in each for each in said)
    assert bool(said) == bool(words)
