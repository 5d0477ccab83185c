"""Each mbarrier has an agent of its own, also after others were made invalid.

What a thread knows of one must not count for another.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.units.machine import Machine
from fragmenta.watch.races.shadow.layout import MBARRIERS
from tests.simt.kernels import kernel
from tests.thinning import repeats

BEGIN = """
    .shared .align 128 .b8 tile[512];
    .shared .align 8 .b64 bars[4];
    .reg .b32 %s, %b;
    mov.u32 %s, tile; mov.u32 %b, bars;
    ld.param.u64 %rd1, [x];
    setp.ne.u32 %p1, %t, 0;
    @%p1 bra done;
"""
END = """
    ld.shared.u32 %r1, [%s+128];
    st.global.u32 [%mine], %r1;
done:
    ret;
"""


def init(place: int) -> str:
    return f"mbarrier.init.shared::cta.b64 [%b+{8 * place}], 1;"


def inval(place: int) -> str:
    return f"mbarrier.inval.shared::cta.b64 [%b+{8 * place}];"


def copy(place: int, tile: int) -> str:
    """Copy 128 bytes, which an mbarrier counts."""
    return f"""
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b+{8 * place}], 128;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
        [%s+{128 * tile}], [%rd1], 128, [%b+{8 * place}];
    """


def wait(place: int, parity: int = 0) -> str:
    name = f"again_{place}_{parity}_{{}}"
    return f"""
{name}:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%b+{8 * place}], {parity};
    @!%p2 bra {name};
    """


CASES = {
    "at the same place": (
        init(0) + copy(0, 0) + wait(0) + inval(0) + init(0) + copy(0, 1),
        wait(0),
    ),
    "made again at once": (
        init(0) + copy(0, 0) + wait(0) + init(0) + copy(0, 1),
        wait(0),
    ),
    "beside one that is left": (
        init(0) + init(1) + inval(0) + init(2) + copy(1, 0) + copy(2, 1) + wait(1),
        wait(2),
    ),
    "at the other's place": (
        init(0)
        + init(1)
        + copy(0, 0)
        + wait(0)
        + inval(0)
        + inval(1)
        + init(1)
        + copy(1, 1),
        wait(1),
    ),
    "after two phases": (
        init(0)
        + copy(0, 0)
        + wait(0)
        + copy(0, 2)
        + wait(0, 1)
        + inval(0)
        + init(0)
        + copy(0, 0)
        + wait(0)
        + copy(0, 1),
        wait(0, 1),
    ),
}
"""What a thread does before it reads the second tile, and the wait that it needs."""


@cache
def reader(name: str, right: bool) -> ptx.Kernel:
    before, needed = CASES[name]
    text = before + (needed if right else "")
    for number in range(text.count("{}")):  # each loop has a label of its own
        half = number // 2
        text = text.replace("{}", str(half), 1)
    end = "" if right else needed.replace("{}", "late")
    return kernel(BEGIN + text + END.replace("done:", end + "done:"), ".param .u64 x")


# Every case; schedules take turns.
@repeats(together=1)
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("schedule", ["eager", "lazy"])
@pytest.mark.parametrize("name", CASES)
def test_who_waited_for_another_has_not_waited(
    name: str, schedule: str, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Machine, "fast", fast)
    given: list[Any] = [np.zeros(32, np.uint32), np.arange(128, dtype=np.uint8)]
    right = reader(name, True).launch(1, 32, given, schedule=schedule)
    said = [(e.rule, e.severity) for e in right.problems if e.severity != "info"]
    assert said == [("mbarrier", "warning")] * (name == "made again at once")
    wrong = reader(name, False).launch(1, 32, given, watch="report", schedule=schedule)
    assert [each.rule for each in wrong.problems if each.severity == "error"] == [
        "read-before-arrival"
    ]


def test_many_mbarriers_one_after_the_other() -> None:
    """A loop that makes an mbarrier for each copy: more than there are agents."""
    loop = "mov.u32 %r9, 0; next: " + init(0) + copy(0, 0) + wait(0).replace("{}", "0")
    loop += inval(0) + f"add.u32 %r9, %r9, 1; setp.lt.u32 %p3, %r9, {2 * MBARRIERS};"
    loop += "@%p3 bra next;"
    made = kernel(BEGIN + loop + END.replace("[%s+128]", "[%s]"), ".param .u64 x")
    given: list[Any] = [np.zeros(32, np.uint32), np.arange(128, dtype=np.uint8)]
    result = made.launch(1, 32, given)
    assert not [each for each in result.problems if each.severity != "info"]
    assert given[0][0] == 0x03020100
