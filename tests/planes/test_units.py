"""Second values go through calls, copies and tensor memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.planes.elements import joined
from fragmenta.engine.planes.memory import PlaneObserver, Summed
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.work import Copy
from tests.planes.payloads import (
    Payloads,
    check_moved,
    moved,
    numbered,
    payloads,
    text,
)
from tests.races.test_followed_units import ARRIVE, ARRIVED, FENCE, FUNCTIONS, INIT

LOAD, STORE = "ld.global.b32 %r10, [%of];", "st.global.b32 [%to], %r20;"

# ── calls ───────────────────────────────────────────────────────────────────

MORE = """
.func (.param .b32 result) turned(.param .b32 given, .param .b32 times);
.func (.param .b32 result) turned(.param .b32 given, .param .b32 times)
{
    .reg .pred %p; .reg .b32 %x, %n, %y; .param .b32 a; .param .b32 b; .param .b32 c;
    ld.param.b32 %x, [given]; ld.param.b32 %n, [times];
    setp.eq.u32 %p, %n, 0;
    @%p bra END;
    shf.l.wrap.b32 %y, %x, %x, 16; sub.u32 %n, %n, 1;
    st.param.b32 [a], %y; st.param.b32 [b], %n;
    call (c), turned, (a, b);
    ld.param.b32 %y, [c];
    prmt.b32 %x, %x, %y, 0x7610;
END:
    st.param.b32 [result], %x; ret;
}
"""
"""A function that calls itself: what it had before is used afterwards."""
CALLS = {
    "parameters": """{ .param .b64 x; .param .b32 y; mov.b64 %rd1, {%r10, %r11};
        st.param.b64 [x], %rd1; call (y), low, (x); ld.param.b32 %r20, [y]; }""",
    "two functions": """{ .param .b64 x; .param .b32 y; mov.b64 %rd1, {%r10, %r11};
        st.param.b64 [x], %rd1; call (y), twice, (x); ld.param.b32 %r20, [y]; }""",
    "registers": "call (%r20), second, (%r11, %r10);",
    "recursion": """{ .param .b32 x; .param .b32 n; .param .b32 y;
        and.b32 %r12, %t, 3; st.param.b32 [x], %r10; st.param.b32 [n], %r12;
        call (y), turned, (x, n); ld.param.b32 %r20, [y]; }""",
    "a pointer": """{ .param .b64 x; .param .b32 y; mov.b64 %rd1, {%r10, %r11};
        P: .callprototype (.param .b32 _) _ (.param .b64 _);
        mov.u64 %rd4, low; st.param.b64 [x], %rd1; call (y), %rd4, (x), P;
        ld.param.b32 %r20, [y]; }""",
    "an address": """{ .param .align 4 .b8 x[8]; .param .b32 y;
        st.param.b32 [x], %r11; st.param.b32 [x+4], %r10;
        call (y), word, (x); ld.param.b32 %r20, [y]; }""",
}
WORD = FUNCTIONS.replace("byte(", "word(").replace("ld.u8", "ld.u32")


@pytest.mark.parametrize("name", CALLS)
def test_through_calls(name: str) -> None:
    body = LOAD + "mov.u32 %r11, 0;" + CALLS[name] + STORE
    check_moved(text(body, WORD + MORE))


# ── atomics ─────────────────────────────────────────────────────────────────

SWAP = (
    LOAD + "and.b32 %r11, %t, 1; atom.global.cas.b32 %r12, [%to], %r11, %r10;"
    "atom.global.exch.b32 %r13, [%to], %r12; atom.global.exch.b32 %r14, [%to], %r13;"
)


def test_a_swap_moves_what_it_stores() -> None:
    """Half of the lanes expect what memory holds."""
    check_moved(text(SWAP))


def test_sums_leave_nothing_in_memory() -> None:
    """Also vectors, and with a cache policy."""
    policy = ".reg .b64 %c; createpolicy.fractional.L2::evict_last.b64 %c, 1.0;"
    adds = "red.global.add.noftz.L2::cache_hint.v2.f16 [%to], {%h1, %h2}, %c;"
    put = "st.global.b32 [%to], %r10; mov.b32 {%h1, %h2}, %r10;"
    out, found = moved(text(LOAD + policy + put + adds))
    assert out.any()
    assert not found.any()


def test_a_swap_gets_what_memory_held() -> None:
    swaps = "mov.u32 %r11, 0; atom.global.cas.b32 %r20, [%of], %r11, %r10;"
    check_moved(text(LOAD + swaps + STORE))


# ── copies ──────────────────────────────────────────────────────────────────

SHARED = """
    .shared .align 1024 .b8 tile[1024]; .shared .align 8 .b64 bar;
    mov.u32 %r30, tile; mov.u32 %r31, bar; shl.b32 %r29, %t, 2;
    add.u32 %r29, %r29, %r30;
"""
OWN = "ld.shared.b32 %r20, [%r29];"
WAIT = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
BULK = (
    SHARED + INIT + "@%p14 " + ARRIVE.format("256") + "@%p14 cp.async.bulk."
    "shared::cluster.global.mbarrier::complete_tx::bytes [%r30], [%in], 256, [%r31];"
    + ARRIVED.format("1")
)
COPIES = {
    "a bulk load": BULK + OWN + STORE,
    "a bulk store": SHARED
    + LOAD
    + f"st.shared.b32 [%r29], %r10; {FENCE} setp.ne.u32 %p1, %t, 0; @%p1 bra OUT;"
    + "cp.async.bulk.global.shared::cta.bulk_group [%out], [%r30], 256;"
    + WAIT
    + "OUT:",
}


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
@pytest.mark.parametrize("name", COPIES)
def test_through_copies(name: str, schedule: str) -> None:
    check_moved(text(COPIES[name]), schedule=schedule)


MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
PEER = """
    mov.u32 %r26, %cluster_ctarank; xor.b32 %r27, %r26, 1;
    mapa.shared::cluster.u32 %r24, %r29, %r27; mapa.shared::cluster.u32 %r25, %r31, %r27;
    mov.u32 %r28, %ntid.x; mad.lo.u32 %r28, %r26, %r28, %t; mul.wide.u32 %rd9, %r28, 4;
    add.s64 %of, %in, %rd9; add.s64 %to, %out, %rd9;
"""
CLUSTERS = {
    "a store": LOAD + MEET + f"st.shared::cluster.b32 [%r24], %r10; {MEET}" + OWN,
    "a load": LOAD
    + f"st.shared.b32 [%r29], %r10; {MEET} ld.shared::cluster.b32 %r20, [%r24]; {MEET}",
    "generic": LOAD
    + "mov.u64 %rd5, tile; cvta.shared.u64 %rd5, %rd5; add.s64 %rd5, %rd5, %step;"
    + f"mapa.u64 %rd6, %rd5, %r27; {MEET} st.b32 [%rd6], %r10; {MEET}"
    + "ld.b32 %r20, [%rd5];",
    "st.async": INIT
    + LOAD
    + "@%p14 "
    + ARRIVE.format("256")
    + MEET
    + "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 "
    + "[%r24], %r10, [%r25];"
    + ARRIVED.format("1")
    + OWN
    + MEET,
    "multicast": INIT
    + "@%p14 "
    + ARRIVE.format("512")
    + MEET
    + "mov.u16 %h1, 3; mul.wide.u32 %rd7, %r26, 256; add.s64 %rd7, %in, %rd7;"
    + "shl.b32 %r23, %r26, 8; add.u32 %r23, %r23, %r30;"
    + "@%p14 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    + ".multicast::cluster [%r23], [%rd7], 256, [%r31], %h1;"
    + ARRIVED.format("1")
    + "shl.b32 %r22, %r27, 8; add.u32 %r22, %r22, %r29; ld.shared.b32 %r20, [%r22];"
    + MEET,
}


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
@pytest.mark.parametrize("name", CLUSTERS)
def test_through_clusters(name: str, schedule: str) -> None:
    body = SHARED + PEER + CLUSTERS[name] + STORE
    check_moved(text(body), 512, grid=2, cluster=2, schedule=schedule)


# ── boxes ───────────────────────────────────────────────────────────────────

BOXES = """
    .shared .align 1024 .b8 tile[1024]; .shared .align 8 .b64 bar;
    mov.u32 %r30, tile; mov.u32 %r31, bar; mov.u32 %r0, 0; mov.u32 %r1, 8;
    mov.u64 %rd15, from; cvta.param.u64 %rd15, %rd15;
    mov.u64 %rd16, into; cvta.param.u64 %rd16, %rd16;
""" + INIT + "@!%p14 bra OUT; " + ARRIVE.format("1024") + """
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
        [%r30], [%rd15, {%r0, %r1}], [%r31];
""" + ARRIVED.format("1") + """
    cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd16, {%r0, %r0}], [%r30];
""" + WAIT + "OUT:"  # fmt: skip


def boxes(schedule: str, algebra: Payloads, body: str = BOXES) -> Any:
    """A swizzled box of a tensor, 8 x 64 halves, is moved to another place."""
    source = numbered(16 * 128).reshape(16, 64)
    goal = np.zeros((8, 64), np.uint16)
    halves = [each.view(np.float16) for each in (source, goal)]
    maps = [ptx.tensor_map(each, box=(8, 64), swizzle=128) for each in halves]
    more = ", .param .align 64 .b8 from[128], .param .align 64 .b8 into[128])"
    made = text(body).replace(".u64 out)", ".u64 out" + more)
    kernel = ptx.parse(made).kernels["f"]
    kernel.launch(1, 64, [source, goal, *maps], schedule=schedule, algebra=algebra)
    return source, goal


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
def test_through_boxes(schedule: str) -> None:
    algebra = Payloads()
    source, goal = boxes(schedule, algebra)
    assert (goal == source[8:]).all()
    assert (algebra.found == payloads(goal.reshape(-1))).all()


class Sums(Payloads):
    """The second value of a sum is that of what was added, plus 1."""

    name = "sums of payloads"

    def combine(
        self, observer: PlaneObserver, summed: Summed, copy: Copy, warp: Warp
    ) -> Any:
        assert (summed.operation, copy.sum[0]) == ("add", "add")
        assert (joined(summed.new_planes, 16) == payloads(summed.new.view("u2"))).all()
        assert not summed.old_planes.any()
        return summed.new_planes ^ 1


@pytest.mark.parametrize("algebra", [Sums(), Payloads()], ids=["own", "none"])
def test_sums_of_boxes_are_the_algebras(algebra: Payloads) -> None:
    stores = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
    adds = stores.replace("cp.", "cp.reduce.").replace("bulk_group", "add.bulk_group")
    body = BOXES.replace(stores, adds)
    source, goal = boxes("eager", algebra, body)
    assert (goal == source[8:]).all()
    if isinstance(algebra, Sums):
        assert (joined(algebra.left ^ 1, 16) == payloads(goal.reshape(-1))).all()
    else:
        assert not algebra.left.any()


REDUCE = COPIES["a bulk store"].replace("cp.async.bulk.global", "cp.reduce.async.bulk."
    "global").replace("bulk_group [%out]", "bulk_group.add.noftz.f16 [%out]")  # fmt: skip


def test_sums_of_bytes_are_the_algebras() -> None:
    given, out = numbered(256), np.zeros(128, np.uint16)
    algebra = Sums()
    kernel = ptx.parse(text(REDUCE)).kernels["f"]
    kernel.launch(1, 64, [given, out], algebra=algebra)
    assert (out == given).all()
    assert (joined(algebra.left ^ 1, 16) == payloads(out)).all()


# ── tensor memory ───────────────────────────────────────────────────────────

TENSOR = """
    .shared .align 4 .b32 slot;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 32;
    ld.shared.u32 %r21, [slot];
    {}
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r21, 32;
"""
FOUR = "{%r1, %r2, %r3, %r4}"
TENSORS = {
    "words": f"""
        tcgen05.st.sync.aligned.32x32b.x4.b32 [%r21], {FOUR};
        tcgen05.wait::st.sync.aligned;
        tcgen05.ld.sync.aligned.16x64b.x2.b32 {{%r2, %r1}}, [%r21];
        tcgen05.wait::ld.sync.aligned;""",
    "unpacked": f"""
        tcgen05.st.sync.aligned.32x32b.x4.unpack::16b.b32 [%r21], {FOUR};
        tcgen05.wait::st.sync.aligned;
        tcgen05.ld.sync.aligned.32x32b.x4.b32 {FOUR}, [%r21+2];
        tcgen05.wait::ld.sync.aligned;""",
}
QUADS = """mul.wide.u32 %rd1, %t, 16; add.s64 %of, %in, %rd1; add.s64 %to, %out, %rd1;
    ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%of];"""
PUT = "st.global.v4.b32 [%to], {%r1, %r2, %r3, %r4};"


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
@pytest.mark.parametrize("name", TENSORS)
def test_through_tensor_memory(name: str, schedule: str) -> None:
    body = text(QUADS + TENSOR.format(TENSORS[name]) + PUT).replace("sm_90a", "sm_100a")
    check_moved(body, 512, block=32, schedule=schedule)
