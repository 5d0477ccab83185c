"""Races in global memory, early reads and bank conflicts are found in whole kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from tests.simt.kernels import kernel

LAST_BLOCK = """
    .shared .b32 last;
    ld.param.u64 %rd1, [counter];
    st.global.u32 [%mine], %all;
    bar.sync 0;
    setp.ne.u32 %p1, %t, 0;
    @%p1 bra JOIN;
    {fence}
    atom.global.add.u32 %r1, [%rd1], 1;
    st.shared.u32 [last], %r1;
JOIN:
    {barrier}
    ld.shared.u32 %r2, [last];
    setp.ne.u32 %p2, %r2, 3;
    @%p2 exit;
    mov.u32 %r3, 0;
    mov.u32 %r4, 0;
LOOP:
    mad.lo.u32 %r5, %r4, %n, %t;
    mad.wide.u32 %rd2, %r5, 4, %out;
    ld.global.u32 %r6, [%rd2];
    add.u32 %r3, %r3, %r6;
    add.u32 %r4, %r4, 1;
    setp.lt.u32 %p3, %r4, 4;
    @%p3 bra LOOP;
    mad.wide.u32 %rd3, %t, 4, %rd1;
    st.global.u32 [%rd3+4], %r3;
    ret;
"""


def rules(body: str, arguments: list[Any], blocks: int = 4, **given: str) -> set[str]:
    """The rules of all that is wrong, or worth knowing."""
    made = kernel(body, **given)
    result = made.launch(blocks, 64, arguments, watch="report")
    return {each.rule for each in result.hazards}


@pytest.mark.parametrize(
    "fence, found",
    [("membar.gl;", set()), ("fence.acq_rel.gpu;", set()), ("", {"global-race"})],
)
def test_the_last_block_adds_up(fence: str, found: set[str]) -> None:
    body = LAST_BLOCK.format(fence=fence, barrier="bar.sync 0;")
    out, sums = np.zeros(256, np.int32), np.zeros(65, np.int32)
    assert rules(body, [out, sums], parameters=".param .u64 counter") == found
    thread = np.arange(64)
    assert (sums[1:] == 4 * thread + 64 * (0 + 1 + 2 + 3)).all()


HANDED = """
    ld.param.u64 %rd1, [flag];
    mov.u32 %r1, %ctaid.x;
    setp.ne.u32 %p1, %r1, 0;
    setp.ne.u32 %p2, %t, 0;
    mad.wide.u32 %rd2, %t, 4, %out;
    @%p1 bra TAKE;
    {store} [%rd2], %t;
    {before}
    @%p2 bra END;
    st.release.gpu.global.u32 [%rd1], 1;
    bra END;
TAKE:
    @%p2 bra READ;
AGAIN:
    ld.acquire.gpu.global.u32 %r2, [%rd1];
    setp.eq.u32 %p3, %r2, 0;
    @%p3 bra AGAIN;
READ:
    {after}
    ld.global.u32 %r3, [%rd2];
    st.global.u32 [%rd2+128], %r3;
END:
    ret;
"""
WARP = "bar.warp.sync -1;"


@pytest.mark.parametrize("store", ["st.global.u32", "red.global.add.u32"])
@pytest.mark.parametrize(
    "before, after, count", [(WARP, WARP, 0), ("", WARP, 31), (WARP, "", 31)]
)
def test_one_lane_hands_over_for_its_warp(
    store: str, before: str, after: str, count: int
) -> None:
    """What the other lanes stored is in order only if they meet with that lane."""
    body = HANDED.format(store=store, before=before, after=after)
    made = kernel(body, parameters=".param .u64 flag")
    given = [np.zeros(64, np.int32), np.zeros(1, np.int32)]
    found = made.launch(2, 32, given, watch="report").hazards
    assert {each.rule for each in found} == ({"global-race"} if count else set())
    assert sum(each.count for each in found) == count


@pytest.mark.parametrize("wide", [4, 8])
def test_blocks_that_write_the_same_words(wide: int) -> None:
    body = f"mad.wide.u32 %rd1, %t, {wide}, %out; st.global.u32 [%rd1], %{{}}; ret;"
    out = np.zeros(128, np.int32)
    assert rules(body.format("all"), [out]) == {"global-race"}
    made = kernel(body.format("t")).launch(4, 64, [out])  # every block the same
    assert {(each.rule, each.severity) for each in made.hazards} == {
        ("global-race", "info")
    }
    body = "st.global.u32 [%mine], %all; ret;"
    assert rules(body, [np.zeros(256, np.int32)]) == set()


def test_reading_what_nobody_has_written() -> None:
    body = "ld.global.u32 %r1, [%mine]; st.global.u32 [%mine], %r1; ret;"
    assert rules(body, [ptx.empty(256, np.int32)]) == {"uninitialised"}
    body = f"st.global.u32 [%mine], %all; {body}"
    out = ptx.empty(256, np.int32)
    assert rules(body, [out]) == set()
    assert rules(body, [out]) == set()


@pytest.mark.parametrize(
    "added",
    [
        "red.global.add.f32 [%row], %f1;",
        "red.global.add.v2.f32 [%row], {%f1, %f1};",
        "atom.global.gpu.relaxed.add.v4.f32 {%f2, %f2, %f2, %f2}, [%row], "
        "{%f1, %f1, %f1, %f1};",
    ],
)
def test_adding_to_what_nobody_has_written(added: str) -> None:
    body = """
    .reg .b64 %row;
    mov.f32 %f1, 0f3F800000; mad.wide.u32 %row, %all, 16, %out; """
    for made, found in ((ptx.empty, {"uninitialised"}), (np.zeros, set())):
        memory = made(1024, np.float32)
        assert rules(f"{body} {added} ret;", [memory]) == found
    memory = ptx.empty(1024, np.float32)
    memory[0::4] = memory[1::4] = 0
    wide = added.count("%f1") > 2  # the other two elements, too
    assert rules(f"{body} {added} ret;", [memory]) == (
        {"uninitialised"} if wide else set()
    )


@pytest.mark.parametrize("step, found", [(4, set()), (128, {"bank-conflict"})])
def test_bank_conflicts(step: int, found: set[str]) -> None:
    body = f"""
    .shared .align 16 .b8 tile[8192];
    mov.u32 %r1, tile;
    mad.lo.u32 %r2, %t, {step}, %r1;
    st.shared.u32 [%r2], %t;
    ld.shared.u32 %r3, [%r2];
    st.global.u32 [%mine], %r3;
    ret;
    """
    assert rules(body, [np.zeros(64, np.int32)], blocks=1) == found


STORE = """
    .shared .align 16 .b32 room[64];
    mov.u32 %r1, room;
    mad.lo.u32 %r2, %t, 4, %r1;
    st.shared.u32 [%r2], %t;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    setp.ge.u32 %p1, %t, 32;
    @%p1 bra END;
    mad.wide.u32 %rd1, %lane, {step}, %out;
    cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 256;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
END:
    ret;
"""


@pytest.mark.parametrize("step, found", [(0, set()), (16, {"global-race"})])
def test_a_whole_warp_that_issues_a_store(step: int, found: set[str]) -> None:
    # So does CUTLASS: all lanes store the same tile to the same place.
    out = np.zeros(256, np.int32)
    body = STORE.format(step=step)
    assert rules(body, [out], 1) == found
    if not step:
        assert (out[:64] == np.arange(64)).all()


def test_a_whole_warp_that_issues_a_reduction_adds_for_each_lane() -> None:
    # So does an H200.
    out = np.zeros(64, np.int32)
    store = "cp.async.bulk.global.shared::cta.bulk_group"
    add = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s32"
    assert rules(STORE.format(step=0).replace(store, add), [out], 1) == set()
    assert (out == 32 * np.arange(64)).all()


OVERWRITTEN = """
    .shared .align 8 .b64 barrier;
    setp.ne.u32 %p1, %all, 0;
    @%p1 bra END;
    mov.u32 %r1, barrier;
    mbarrier.init.shared.b64 [%r1], 1;
    {use}
    st.shared.u32 [%r1], 5;
END:
    ret;
"""


@pytest.mark.parametrize(
    "use, severity",
    [("", "info"), ("mbarrier.arrive.shared.b64 %rd1, [%r1];", "error")],
)
def test_an_mbarrier_that_nobody_uses_may_be_written_over(
    use: str, severity: str
) -> None:
    # So does Triton 3.6.  Only mbarrier.inval is missing.
    made = kernel(OVERWRITTEN.format(use=use))
    result = made.launch(1, 64, [np.zeros(64, np.int32)], watch="report")
    assert [each.severity for each in result.hazards if each.rule == "mbarrier"] == [
        severity
    ]


COUNTED = """
    .shared .b32 sum;
    setp.ne.u32 %p1, %t, 0;
    @%p1 bra ADD;
    {store} [sum], 0;
    {between}
ADD:
    {barrier}
    atom.shared.add.u32 %r1, [sum], 1;
    bar.sync 0;
    ld.shared.u32 %r2, [sum];
    st.global.u32 [%mine], %r2;
    ret;
"""
ATOMIC = "atom.shared.add.u32 %r3, [sum], 0;"


@pytest.mark.parametrize(
    "given, found",
    [
        ({"barrier": "bar.sync 0;"}, set()),
        ({}, {"shared-race"}),
        # The first thread's own atomic does not make up for its store.
        ({"between": ATOMIC}, {"shared-race"}),
        ({"between": ATOMIC, "barrier": "bar.sync 0;"}, set()),
        ({"store": "st.relaxed.cta.shared.u32"}, set()),
    ],
)
def test_a_plain_store_before_atomics(given: dict[str, str], found: set[str]) -> None:
    parts = {"store": "st.shared.u32", "between": "", "barrier": ""}
    body = COUNTED.format(**{**parts, **given})
    assert rules(body, [np.zeros(64, np.int32)], blocks=1) == found


COPIED = """
    .shared .align 16 .b32 room[64];
    mov.u32 %r1, room;
    mad.lo.u32 %r2, %t, 4, %r1;
    ld.param.u64 %rd1, [data];
    mad.wide.u32 %rd2, %t, 4, %rd1;
    cp.async.ca.shared.global [%r2], [%rd2], 4;
    cp.async.wait_all;
    {barrier}
    xor.b32 %r3, %t, {other};
    mad.lo.u32 %r4, %r3, 4, %r1;
    ld.shared.u32 %r5, [%r4];
    st.global.u32 [%mine], %r5;
    ret;
"""


@pytest.mark.parametrize(
    "other, barrier, found",
    [
        (0, "", set()),
        (1, "", {"read-before-arrival"}),
        (1, "bar.warp.sync -1;", set()),
        # One warp reads before the other has issued the copy: that is turned.
        (32, "bar.warp.sync -1;", {"read-before-arrival"}),
        (32, "bar.sync 0;", set()),
    ],
)
def test_a_lane_waits_for_its_own_copies(
    other: int, barrier: str, found: set[str]
) -> None:
    body = COPIED.format(other=other, barrier=barrier)
    given = [np.zeros(64, np.int32), np.arange(64, dtype=np.int32)]
    made = kernel(body, parameters=".param .u64 data")
    result = made.launch(1, 64, given, watch="report")
    assert {each.rule for each in result.hazards} == found
    assert sum(each.count for each in result.hazards) == 64 * len(found)


FRAGMENTS = """
    .shared .align 32 .b8 tile[512];
    .reg .b32 %a<8>;
    mov.u32 %r1, tile;
    mad.lo.u32 %r2, %t, 4, %r1;
    st.shared.u32 [%r2], %t;
    st.shared.u32 [%r2+256], %t;
    {barrier}
    wmma.load.a.sync.aligned.row.m16n16k16.shared.f16
        {{%a0, %a1, %a2, %a3, %a4, %a5, %a6, %a7}}, [%r1], 16;
    st.global.u32 [%mine], %a7;
    ret;
"""


@pytest.mark.parametrize(
    "barrier, found", [("bar.sync 0;", set()), ("", {"shared-race"})]
)
def test_fragments_of_what_others_wrote(barrier: str, found: set[str]) -> None:
    body = FRAGMENTS.format(barrier=barrier)
    assert rules(body, [np.zeros(64, np.int32)], blocks=1) == found
