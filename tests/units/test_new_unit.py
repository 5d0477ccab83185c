"""A unit that does not exist: what has to be written for it, and nothing else.

``fill.async`` fills shared memory with a byte, and an mbarrier counts the bytes.  It is
a line of the table of opcodes, a line of the table of effects, and a class with its
handler: what a new module of ``units`` would have.  The engine, the schedules, the
race detector and the leaks must work with it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.simt import emitter
from fragmenta.engine.simt.events import event
from fragmenta.engine.units import events
from fragmenta.engine.units.blocks import Thread, Warp
from fragmenta.engine.units.copy_events import issue
from fragmenta.engine.units.events import Event, carries_out, numbers
from fragmenta.engine.units.work import Copy, Range, in_shared, shared_address
from fragmenta.ptx import effects
from fragmenta.ptx.checking import mnemonics
from fragmenta.ptx.opcodes.table import TABLE, declare

OPCODE = """
fill.async.shared::cta.mbarrier::complete_tx::bytes  [d], a:u32, size:u32, [mbar] ; ptx = 8.0 ; kind = copies
"""
EFFECT = effects.Effect(
    "fill.async", (), "thread", ("registers",), ("shared",), "async", "mbarrier", ()
)


class Fill(Copy):
    """``fill.async``."""

    name = "fill"
    effect = EFFECT

    def __init__(self, warp: Warp, event: Event, lane: int) -> None:
        goal, byte, size, mbarrier = (each.value(warp, lane) for each in event.operands)
        super().__init__(warp.block, Thread(warp, lane), event.site)
        rank, offset = shared_address(warp.block, goal, "the goal", "shared::cta")
        self.byte, self.bytes = byte, size
        self.place = in_shared(warp.block, rank, offset, size, "the goal")
        self._signal(mbarrier, "shared::cta", rank)

    @property
    def goals(self) -> list[Range]:
        """What it writes."""
        return [self.place.range]

    def write(self) -> None:
        """Fill."""
        self.place.put(np.full(self.bytes, self.byte, np.uint8))


def fill(warp: Warp, event: Event, lanes: int) -> int:
    """A fill by each lane."""
    for lane in numbers(lanes):
        issue(warp, event, 1 << lane, Fill(warp, event, lane))
    return lanes


@pytest.fixture(scope="module", autouse=True)
def _made_up() -> Iterator[None]:
    caches = (mnemonics.reading, mnemonics._opcodes, effects.find)
    with pytest.MonkeyPatch.context() as patch:
        declare(OPCODE)
        patch.setattr(effects, "LINES", (*effects.LINES, EFFECT))
        patch.setitem(emitter.HANDLERS, "fill", event)  # as for every opcode there
        carries_out("fill.async")(fill)
        for each in caches:
            each.cache_clear()
        yield
        TABLE.lines.drop("fill")
        del events._RUNS["fill", "async"]
    for each in caches:
        each.cache_clear()


WAIT = """
again: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0;
@!%p1 bra again;
"""
KERNEL = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry filled(.param .u64 out)
{{
    .shared .align 16 .b8 tile[128];
    .shared .align 8 .b64 bar;
    .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p<3>;
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p2, %r1, 0;
    @%p2 bra ready;
    mbarrier.init.shared.b64 [bar], 1;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 128;
    fill.async.shared::cta.mbarrier::complete_tx::bytes [tile], 7, 128, [bar];
ready:
    bar.sync 0;
    {wait}
    mov.u32 %r2, tile;
    mad.lo.u32 %r3, %r1, 4, %r2;
    ld.shared.u32 %r4, [%r3];
    ld.param.u64 %rd1, [out];
    mad.wide.u32 %rd2, %r1, 4, %rd1;
    st.global.u32 [%rd2], %r4;
    ret;
}}"""


def launched(wait: str, schedule: str | int) -> tuple[np.ndarray, set[str]]:
    """What the kernel wrote, and the rules that it breaks."""
    out = np.zeros(32, np.uint32)
    kernel = ptx.parse(KERNEL.format(wait=wait)).kernels["filled"]
    result = kernel.launch(1, 32, [out], schedule=schedule, watch="report")
    return out, {each.rule for each in result.problems}


@pytest.mark.parametrize("schedule", ["eager", "lazy", 1])
def test_it_runs_and_a_wait_orders_it(schedule: str | int) -> None:
    out, broken = launched(WAIT, schedule)
    assert (out == 0x07070707).all()
    assert not broken


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
def test_a_missing_wait_is_found(schedule: str) -> None:
    out, broken = launched("", schedule)
    assert broken == {"read-before-arrival", "leak"}
    assert (out == 0x07070707).all() == (schedule == "eager")
