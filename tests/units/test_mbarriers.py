"""Mbarriers count and wait as the instructions say."""

from __future__ import annotations

import pytest

from fragmenta.errors import KernelFault
from tests.simt.kernels import launched

BEGIN = """
    .shared .align 8 .b64 bar;
    mov.u64 %rd1, bar;
    cvta.shared.u64 %rd2, %rd1;
    setp.ne.u32 %p1, %lane, 0;
"""


@pytest.mark.parametrize(("space", "place"), [("", "%rd2"), (".shared", "%rd1")])
def test_an_address_is_generic_or_in_shared_memory(space: str, place: str) -> None:
    found = launched(
        BEGIN
        + f"""
        @!%p1 mbarrier.init{space}.b64 [{place}], 32;
        bar.warp.sync 0xffffffff;
        mbarrier.arrive{space}.b64 %rd3, [{place}];
        mbarrier.pending_count.b64 %r1, %rd3;
    WAIT: mbarrier.try_wait{space}.b64 %p2, [{place}], %rd3;
        @!%p2 bra WAIT;
        mbarrier.test_wait.parity{space}.b64 %p2, [{place}], 0;
        selp.u32 %r2, 100, 0, %p2;
        add.u32 %r1, %r1, %r2;
        st.global.u32 [%mine], %r1;"""
    )
    assert set(found) == {132}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("mbarrier.init.b64 [%out], 1;", "takes a generic address"),
        ("mbarrier.init.b64 [%out], 1;", "is not in shared memory"),
        ("mbarrier.init.shared.b64 [%out], 1;", "takes an offset in shared memory"),
    ],
)
def test_an_address_of_global_memory_is_refused(line: str, why: str) -> None:
    with pytest.raises(KernelFault, match=why) as caught:
        launched(BEGIN + line, 1)
    assert caught.value.kind == "mbarrier"
