"""A kernel that spins for ever says on which word; all orders say who could end it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx

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


def launched(name: str, **options: Any) -> Any:
    load, again, _ = LOOPS[name]
    kernel = ptx.parse(TEXT.format(load=load, again=again)).kernels["spin"]
    return kernel.launch(
        1,
        1,
        [np.zeros(2, np.uint32)],
        watch="report",
        limits=ptx.Limits(instructions=20_000),
        **options,
    )


@pytest.mark.parametrize("name", LOOPS)
def test_the_word_is_named(name: str) -> None:
    (fault,) = (e for e in launched(name).problems if "20,000" in e.message)
    text = " ".join(fault.message.split())
    assert f"spinning on the word at {LOOPS[name][2]}" in text
    assert 'orders="all"' in text


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
