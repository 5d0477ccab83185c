"""Warps that all wait for an mbarrier that one of them drives.

In the default schedule each of them comes to its wait before two phases are over.  And
a warp that signals at a barrier does not come to it again before the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.units.machine import Machine
from fragmenta.errors import KernelFault

KERNEL = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry f(.param .u64 in, .param .u64 out, .param .u32 steps)
{{
.reg .pred %p, %q, %more; .reg .b32 %t, %k, %n, %parity, %sum, %r<6>;
.reg .b64 %l<6>;
.shared .align 16 .b8 tile[4096];
.shared .align 8 .b64 bar;
ld.param.u64 %l0, [in];
ld.param.u64 %l1, [out];
ld.param.u32 %n, [steps];
mov.u32 %t, %tid.x;
setp.ne.u32 %p, %t, 0;
@!%p mbarrier.init.shared::cta.b64 [bar], 1;
bar.sync 0;
mov.u32 %k, 0;
{before}
LOOP:
@%p bra WAIT;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512;
shl.b32 %r0, %k, 9;
cvt.u64.u32 %l2, %r0;
add.u64 %l3, %l0, %l2;
mov.u32 %r1, tile;
and.b32 %r2, %r0, 2047;
add.u32 %r1, %r1, %r2;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
 [%r1], [%l3], 512, [bar];
WAIT:
{late}
and.b32 %parity, %k, 1;
AGAIN:
mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], %parity;
@!%q bra AGAIN;
{between}
add.u32 %k, %k, 1;
setp.lt.u32 %more, %k, %n;
@%more bra LOOP;
mov.u32 %r1, tile;
shl.b32 %r2, %t, 2;
add.u32 %r1, %r1, %r2;
sub.u32 %k, %k, 1;
shl.b32 %r0, %k, 9;
and.b32 %r0, %r0, 2047;
add.u32 %r1, %r1, %r0;
ld.shared.u32 %r3, [%r1];
mul.wide.u32 %l4, %t, 4;
add.u64 %l5, %l1, %l4;
st.global.u32 [%l5], %r3;
ret;
}}"""
SPIN = """
mov.u32 %r4, 0;
SPIN:
add.u32 %r4, %r4, 1;
setp.lt.u32 %q, %r4, 40000;
@%q bra SPIN;
"""
"""So many jumps back take several turns."""
STEPS = 7


def launch(
    schedule: str | int = "eager", watch: object = False, **parts: str
) -> tuple[np.ndarray, list[ptx.Problem]]:
    text = KERNEL.format(**{"before": "", "late": "", "between": ""} | parts)
    given = np.arange(128 * STEPS, dtype=np.uint32)
    out = np.zeros(128, np.uint32)
    kernel = ptx.parse(text).kernels["f"]
    result = kernel.launch(
        1, 128, [given, out, np.uint32(STEPS)], schedule=schedule, watch=watch
    )
    return out, list(result.problems)


LAST = np.arange(128 * (STEPS - 1), 128 * STEPS)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("watch", [True, False])
def test_the_default_schedule_is_fair(
    fast: bool, watch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Machine, "fast", fast)
    out, problems = launch(watch=watch)
    np.testing.assert_array_equal(out, LAST)
    told = [each for each in problems if "can miss its phase" in each.message]
    assert len(told) == watch
    assert all(each.severity == "warning" for each in told)
    assert [each for each in problems if each.severity == "error"] == []


@pytest.mark.parametrize("where", ["before", "late"])
def test_warps_that_need_several_turns_come_in_time(where: str) -> None:
    first = "setp.lt.u32 %q, %t, 32;\n@%q bra READY;\n"
    only_others = f"{first}{SPIN}READY:\n"
    out, _ = launch(**{where: only_others})
    np.testing.assert_array_equal(out, LAST)


def test_warps_that_meet_cannot_miss_a_phase() -> None:
    out, problems = launch(watch=True, between="bar.sync 0;")
    np.testing.assert_array_equal(out, LAST)
    assert problems == []


@pytest.mark.parametrize("schedule", ["lazy", "youngest-waits", "lazy+youngest-waits"])
def test_other_schedules_show_the_hang(schedule: str) -> None:
    with pytest.raises(KernelFault, match="deadlock") as caught:
        launch(schedule)
    assert caught.value.kind == "deadlock"


def test_a_hang_says_which_phases_were_missed() -> None:
    with pytest.raises(KernelFault) as caught:
        launch("lazy")
    text = " ".join(str(caught.value).split())
    assert "phases 1 and 2 were over before they waited for phase 1" in text
    assert "still expects" not in text
    assert "Let the warps meet once per phase (bar.sync)" in caught.value.hint
    out, problems = launch("lazy", watch=True, between="bar.sync 0;")
    np.testing.assert_array_equal(out, LAST)
    assert problems == []


SIGNAL = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry f(.param .u64 out)
{{
.reg .pred %p, %q; .reg .b32 %t, %w, %r<6>; .reg .b64 %l<4>;
.shared .align 16 .b8 tile[512];
ld.param.u64 %l0, [out];
mov.u32 %t, %tid.x;
shr.u32 %w, %t, 5;
shl.b32 %r0, %t, 2;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
setp.ne.u32 %p, %w, {signals};
@%p bra OTHERS;
mov.u32 %r2, 0;
st.shared.u32 [%r1], %r2;
bar.arrive 1, 128;
{between}
bar.sync 1, 128;
mov.u32 %r2, tile;
and.b32 %r3, %r0, 127;
add.u32 %r2, %r2, %r3;
ld.shared.u32 %r3, [%r2];
ld.shared.u32 %r4, [%r2+128];
add.u32 %r3, %r3, %r4;
ld.shared.u32 %r4, [%r2+256];
add.u32 %r3, %r3, %r4;
ld.shared.u32 %r4, [%r2+384];
add.u32 %r3, %r3, %r4;
cvt.u64.u32 %l1, %r0;
and.b64 %l1, %l1, 127;
add.u64 %l2, %l0, %l1;
st.global.u32 [%l2], %r3;
ret;
OTHERS:
{late}
bar.sync 1, 128;
st.shared.u32 [%r1], %w;
bar.arrive 1, 128;
ret;
}}"""
"""A warp signals and waits at one barrier; the others wait and signal."""


def signalled(
    signals: int, late: str = "", between: str = "", **options: Any
) -> tuple[int, list[ptx.Problem]]:
    """What the warp that signals has read: the sum of the numbers of the others."""
    out = np.zeros(32, np.uint32)
    text = SIGNAL.format(signals=signals, late=late, between=between)
    kernel = ptx.parse(text).kernels["f"]
    result = kernel.launch(1, 128, [out], **options)
    assert (out == out[0]).all()
    return int(out[0]), list(result.problems)


FEW = SPIN.replace("40000", "20").replace("SPIN", "FEW")


@pytest.mark.parametrize("between", ["", FEW], ids=["at once", "later"])
@pytest.mark.parametrize("late", ["", SPIN], ids=["in time", "late"])
@pytest.mark.parametrize("signals", [0, 2])
def test_a_warp_that_signals_is_not_counted_twice(
    signals: int, late: str, between: str
) -> None:
    total, _ = signalled(signals, late, between, watch=False)
    assert total == 6 - signals


def test_a_barrier_that_can_count_a_warp_twice_is_reported() -> None:
    total, problems = signalled(0, watch="report")
    assert total == 6
    assert {each.rule for each in problems} == {"barrier-collision"}


def test_stepped_schedules_count_it_twice() -> None:
    with pytest.raises(KernelFault, match="deadlock"):
        signalled(0, schedule="youngest-waits", watch=False)
