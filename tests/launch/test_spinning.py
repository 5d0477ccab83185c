"""A kernel that spins for ever says on which word; all orders say who could end it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.base import progress
from tests.clock import ByHand
from tests.thinning import repeats

TEXT = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry spin(.param .u64 lock)
{{
    .shared .align 4 .b32 flag[4];
    .reg .pred %p;
    .reg .b32 %r<4>;
    .reg .b64 %d<2>;
    ld.param.u64 %d0, [lock];
    cvta.to.global.u64 %d0, %d0;
    mov.u32 %r1, flag;
    st.shared.u32 [%r1+8], 0;
    bar.sync 0;
TAKE:
    {load}
    setp.{again}.u32 %p, %r0, 0;
    @%p bra TAKE;
AGAIN:
    {load}
    setp.{again}.u32 %p, %r0, 0;
    @%p bra AGAIN;
    st.release.gpu.global.u32 [%d0+4], 0;
    ret;
}}"""
LOCK, FLAG = "byte 4 of argument 0 (lock)", "byte 8 of shared memory"
LOOPS = {
    "a lock that is taken twice": (
        "atom.acquire.gpu.global.cas.b32 %r0, [%d0+4], 0, 1;",
        "ne",
        LOCK,
    ),
    "a flag": ("ld.acquire.gpu.global.u32 %r0, [%d0+4];", "eq", LOCK),
    "a volatile flag": ("ld.volatile.global.u32 %r0, [%d0+4];", "eq", LOCK),
    "a flag in shared memory": ("ld.volatile.shared.u32 %r0, [%r1+8];", "eq", FLAG),
    "a weak load": ("ld.global.u32 %r0, [%d0+4];", "eq", LOCK),
}


_COUNT = "add.u32 %r2, %r2, 1; setp.eq.u32 %p, %r2, -1; @%p bra END;"
COUNTED = (
    TEXT.replace("AGAIN:", f"AGAIN: {_COUNT}")
    .replace("TAKE:", f"mov.u32 %r2, 0;\nTAKE: {_COUNT}", 1)
    .replace("    ret;", "END: ret;")
)
"""It counts how often it has asked, and gives up one day."""
LIMIT = ptx.Limits(instructions=20_000)


def made(name: str, text: str = TEXT) -> ptx.Kernel:
    load, again, _ = LOOPS[name]
    return ptx.parse(text.format(load=load, again=again)).kernels["spin"]


def launched(name: str, text: str = TEXT, **options: Any) -> Any:
    given = [np.zeros(2, np.uint32)]
    options = {"limits": LIMIT, "watch": "report"} | options
    return made(name, text).launch(1, 1, given, **options)


@pytest.mark.parametrize("name", LOOPS)
def test_the_word_is_named(name: str) -> None:
    found = launched(name, COUNTED).problems
    (fault,) = (e for e in found if "20,000" in e.message)
    text = " ".join(fault.message.split())
    assert f"spinning on the word at {LOOPS[name][2]}" in text
    assert 'orders="all"' in text


# Every loop; the numbers of blocks take turns.
@repeats(together=1)
@pytest.mark.parametrize("grid", [1, 3])
@pytest.mark.parametrize("name", LOOPS)
def test_all_that_spin_are_a_deadlock_without_any_limit(name: str, grid: int) -> None:
    with pytest.raises(ptx.KernelFault, match="nobody is left") as caught:
        made(name).launch(grid, 64, [np.zeros(2, np.uint32)])
    text = " ".join(str(caught.value).split())
    assert caught.value.kind == "deadlock"
    assert f"spinning on the word at {LOOPS[name][2]}" in text
    assert ("2 other blocks" in text) == (grid == 3)


PAIR = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry pair(.param .u64 x)
{
    .reg .pred %p, %q; .reg .b32 %r<4>; .reg .b64 %d;
    ld.param.u64 %d, [x];
    mov.u32 %r1, %ctaid.x;
    setp.eq.u32 %q, %r1, 0;
    mov.u32 %r2, 0;
    @!%q bra WAIT;
WORK:
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p, %r2, 100000;
    @%p bra WORK;
    st.release.gpu.global.u32 [%d], 1;
    ret;
WAIT:
    ld.acquire.gpu.global.u32 %r0, [%d];
    setp.eq.u32 %p, %r0, 0;
    @%p bra WAIT;
    ret;
}"""


def test_those_that_wait_for_one_that_works_are_none() -> None:
    flag = np.zeros(1, np.uint32)
    ptx.parse(PAIR).kernels["pair"].launch(4, 32, [flag])
    assert flag[0] == 1


def test_one_that_zeroes_a_counter_leaves_a_deadlock() -> None:
    """A leader clears the counter while another block still asks for it."""
    late = PAIR.replace("[%d], 1;", "[%d], 1;\n    st.release.gpu.global.u32 [%d], 0;")
    with pytest.raises(ptx.KernelFault) as caught:
        ptx.parse(late).kernels["pair"].launch(2, 32, [np.zeros(1, np.uint32)])
    assert caught.value.kind == "deadlock"
    assert caught.value.block == (1, 0, 0)


def test_the_last_to_write_the_word_is_named() -> None:
    """The hint is about the word; no barrier is in the kernel."""
    wrong = PAIR.replace("[%d], 1;", "[%d], 0;")
    kernel = ptx.parse(wrong).kernels["pair"]
    with pytest.raises(ptx.KernelFault) as caught:
        kernel.launch(2, 32, [np.zeros(1, np.uint32)])
    text = " ".join(str(caught.value).split())
    assert "it holds 0, written last by warp 0 lane" in text
    assert "of block (0, 0, 0) at PTX line 17" in text
    assert "Nobody who is left can change the word" in caught.value.hint
    assert "barrier" not in caught.value.hint
    given = np.zeros(1, np.uint32)
    result = kernel.launch(2, 32, [given], watch="report", orders="all")
    hints = [each.hint for each in result.problems if each.rule == "deadlock"]
    assert any("wrote x[0] (argument 0) last, at PTX line 17" in e for e in hints)
    assert not any("barrier" in each for each in hints)


@repeats(together=1)
@pytest.mark.parametrize("grid", [1, 4])
@pytest.mark.parametrize("name", ["a flag", "a weak load"])
def test_a_limit_of_time_names_the_word(name: str, grid: int) -> None:
    limits = ptx.Limits(seconds=0.05)
    with pytest.raises(ptx.LimitReached, match="longer than") as caught:
        made(name, COUNTED).launch(grid, 64, [np.zeros(2, np.uint32)], limits=limits)
    assert "spinning on the word at byte 4" in " ".join(str(caught.value).split())
    assert caught.value.kind == "seconds"
    assert caught.value.block is not None


class Hurried(ByHand):
    """A clock that goes on a second whenever it is looked at."""

    def now(self) -> float:
        self.time += 1
        return self.time


def test_a_launch_that_spins_says_so(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "clock", Hurried())
    monkeypatch.setenv(progress.VARIABLE, "2")
    limits = ptx.Limits(instructions=500_000)
    load, again, _ = LOOPS["a flag"]
    text = COUNTED.format(load=load, again=again).replace(
        "entry spin(", "entry _Z4spinPj("
    )
    kernel = ptx.parse(text).kernels["_Z4spinPj"]
    with pytest.raises(ptx.KernelFault):
        kernel.launch(2, 64, [np.zeros(2, np.uint32)], limits=limits)
    said = " ".join(capfd.readouterr().err.split())
    assert "launching spin: " in said
    assert "spinning on the word at byte 4 of argument 0 (lock)" in said
    assert 'orders="all"' in said
    assert said.count("launching spin: warp") < 4
    assert ";;" not in said


@pytest.mark.parametrize("name", [name for name in LOOPS if "weak" not in name])
def test_all_orders_tell_a_deadlock(name: str) -> None:
    orders = launched(name, orders="all").orders
    assert orders.hangs
    text = " ".join(orders.story.split())
    assert "nobody is left to change it" in text


def test_a_loop_that_computes_spins_on_nothing() -> None:
    text = TEXT.format(load="add.u32 %r0, %r0, 1;", again="ne")
    text = text.replace("TAKE:", "mov.u32 %r0, 1;\nTAKE:").replace("u32 %p", "s32 %p")
    kernel = ptx.parse(
        text.replace(", 0;\n    @%p bra TAKE", ", -7;\n    @%p bra TAKE")
    )
    result = kernel.kernels["spin"].launch(
        1,
        1,
        [np.zeros(2, np.uint32)],
        watch="report",
        limits=ptx.Limits(instructions=20_000),
    )
    (fault,) = result.problems
    assert "spinning" not in fault.message
