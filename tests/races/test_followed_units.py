"""Undefined bits are followed through calls, copies, ``wgmma`` and ``tcgen05``.

Each case has a value of which only some threads hold defined bits: predicate %p15.  If
only these store it, nothing may be said.  If all do, the store must be reported.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from tests.simt.kernels import kernel
from tests.thinning import kinds, some

FENCE = "fence.proxy.async.shared::cta; bar.sync 0;"
SHARED = """
    .shared .align 1024 .b8 tile[8192];
    .shared .align 8 .b64 bar;
    mov.u32 %r30, tile; mov.u32 %r31, bar;
    shl.b32 %r29, %t, 4; add.u32 %r29, %r29, %r30;
    mov.u32 %r0, 0; mov.u32 %r1, 0x3C003C00;
"""
"""%r30 is the tile, and %r29 the 16 bytes of it that belong to a thread; %r1 is two 1.0.

With zeros, it would not matter what they are multiplied with.
"""
ONES = "st.shared.v4.u32 [%r29{}], {{%r1, %r1, %r1, %r1}};"
INIT = """
    setp.eq.u32 %p14, %t, 0;
    @%p14 mbarrier.init.shared::cta.b64 [%r31], 1;
    @%p14 fence.mbarrier_init.release.cluster;
    bar.sync 0;
"""
ARRIVE = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r31], {};"
ARRIVED = """
L{0}: mbarrier.try_wait.parity.shared::cta.b64 %p13, [%r31], 0;
    @!%p13 bra L{0};
"""

# ── wgmma: A of 64 x 16 is at the start of the tile, B of 16 x 8 behind it ──

ALL_A = ONES.format("")
HALF_A = "setp.lt.u32 %p12, %t, 64; @%p12 " + ALL_A
ALL_B = "setp.lt.u32 %p12, %t, 16; @%p12 " + ONES.format("+2048")
HALF_B = """
    and.b32 %r2, %t, 7; setp.lt.u32 %p11, %r2, 4; setp.lt.and.u32 %p12, %t, 16, %p11;
    @%p12 """ + ONES.format("+2048")
DESCRIPTORS = """
    mov.b64 %rd2, 0x0000001000080000;
    shr.u32 %r3, %r30, 4; cvt.u64.u32 %rd1, %r3; or.b64 %rd1, %rd1, %rd2;
    add.u32 %r3, %r3, 128; cvt.u64.u32 %rd3, %r3; or.b64 %rd3, %rd3, %rd2;
"""
ZERO_D = "".join(f"mov.f32 %f{n}, 0f00000000;" for n in range(4))
ONES_A = "".join(f"mov.u32 %r{n}, %r1;" for n in range(4, 8))
D, A = "{%f0, %f1, %f2, %f3}", "{%r4, %r5, %r6, %r7}"
DENSE = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
SPARSE = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
DONE = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
FIRST_ROWS = "setp.lt.u32 %p15, %t, 64;"
FIRST_COLUMNS = "and.b32 %r9, %t, 3; setp.lt.u32 %p15, %r9, 2;"
NOBODY = "setp.ne.u32 %p15, %t, %t;"
EVERYBODY = "setp.eq.u32 %p15, %t, %t;"
SOME_WARPS = "setp.lt.u32 %p12, %t, 64; @%p12 mov.u32 %r4, %r1;"
"""Only two warps write a register of A."""


def product(fill: str, given: str, scale: str = "1", multiply: str = DENSE) -> str:
    """A product of shared memory, which is filled first; %f0 is a sum of it."""
    words = f"{D}, {given}, {scale}, 1, 1, 0, 0;"
    if given.startswith("{"):
        words = f"{D}, {given}, {scale}, 1, 1, 0;"
    begin = SHARED + fill + FENCE + DESCRIPTORS
    return f"{begin} wgmma.fence.sync.aligned; {multiply} {words} {DONE}\n"


IN_SHARED, IN_REGISTERS = "%rd1, %rd3", f"{A}, %rd3"
SUM = "mov.b32 %r20, %f0;"
WGMMA = {
    "all is written": product(ALL_A + ALL_B + ZERO_D, IN_SHARED) + SUM + EVERYBODY,
    "rows of A": product(HALF_A + ALL_B + ZERO_D, IN_SHARED) + SUM + FIRST_ROWS,
    "columns of B": product(ALL_A + HALF_B + ZERO_D, IN_SHARED) + SUM + FIRST_COLUMNS,
    "A in registers": product(
        ONES_A.replace("mov.u32 %r4, %r1;", SOME_WARPS) + ALL_B + ZERO_D, IN_REGISTERS
    )
    + SUM
    + FIRST_ROWS,
    "old sums": product(ALL_A + ALL_B, IN_SHARED) + SUM + NOBODY,
    "old sums, by a predicate": product(
        ALL_A + ALL_B + "setp.eq.u32 %p9, %t, %t;", IN_SHARED, "%p9"
    )
    + SUM
    + NOBODY,
    "no old sums": product(ALL_A + ALL_B, IN_SHARED, "0") + SUM + EVERYBODY,
    "no old sums, by a predicate": product(
        ALL_A + ALL_B + "setp.ne.u32 %p9, %t, %t;", IN_SHARED, "%p9"
    )
    + SUM
    + EVERYBODY,
    "metadata": product(
        ONES_A
        + ZERO_D
        + "setp.lt.u32 %p12, %t, 32; @%p12 "
        + ONES.format("+2048")
        + "and.b32 %r11, %r10, 1; or.b32 %r11, %r11, 0x44444444;",
        f"{A}, %rd3, %r11, 0",
        "1",
        SPARSE,
    )
    + SUM
    + NOBODY,
    "a second product": product(HALF_A + ALL_B + ZERO_D + ONES_A, IN_SHARED)
    + f"wgmma.fence.sync.aligned; {DENSE} {D}, {A}, %rd3, 1, 1, 1, 0; {DONE}"
    + SUM
    + FIRST_ROWS,
}

# ── calls ───────────────────────────────────────────────────────────────────

FUNCTIONS = """
.func (.param .b32 result) low(.param .b64 given)
{
    .reg .b32 %l, %h; .reg .b64 %d;
    ld.param.b64 %d, [given]; mov.b64 {%l, %h}, %d; st.param.b32 [result], %l; ret;
}
.func (.reg .b32 result) second(.reg .b32 a, .reg .b32 b) { mov.b32 result, b; ret; }
.func (.param .b32 result) byte(.param .align 4 .b8 given[8])
{
    .reg .b32 %r; .reg .b64 %a;
    mov.u64 %a, given; cvta.local.u64 %a, %a; ld.u8 %r, [%a+4];
    st.param.b32 [result], %r; ret;
}
.func (.param .b32 result) twice(.param .b64 given)
{
    .reg .b32 %r; .reg .b64 %d;
    .param .b64 next; .param .b32 back;
    ld.param.b64 %d, [given]; st.param.b64 [next], %d;
    call (back), low, (next);
    ld.param.b32 %r, [back]; st.param.b32 [result], %r; ret;
}
"""
MIXED = "setp.lt.u32 %p15, %t, 16; @%p15 mov.u32 %r10, 7; mov.u32 %r11, 5;"
"""%r10 is undefined in the upper lanes."""


def passing(first: str, second: str, name: str) -> str:
    """Two words are given to a function, which returns one."""
    return (
        MIXED
        + f"""
    {{ .param .b64 x; .param .b32 y; mov.b64 %rd1, {{{first}, {second}}};
    st.param.b64 [x], %rd1; call (y), {name}, (x); ld.param.b32 %r20, [y]; }}"""
    )


BYTES = """
    {{ .param .align 4 .b8 x[8]; .param .b32 y;
    st.param.b32 [x], {}; st.param.b32 [x+4], {};
    call (y), byte, (x); ld.param.b32 %r20, [y]; }}"""
CALLS = {
    "returned": passing("%r10", "%r11", "low"),
    "dropped": passing("%r11", "%r10", "low") + EVERYBODY,
    "through two functions": passing("%r10", "%r11", "twice"),
    "dropped by the second": passing("%r11", "%r10", "twice") + EVERYBODY,
    "in registers": MIXED + "call (%r20), second, (%r11, %r10);",
    "in registers, dropped": MIXED + "call (%r20), second, (%r10, %r11);" + EVERYBODY,
    "by address": MIXED + BYTES.format("%r11", "%r10"),
    "by address, dropped": MIXED + BYTES.format("%r10", "%r11") + EVERYBODY,
    "again, defined": passing("%r10", "%r11", "low")
    + "mov.u32 %r10, 1;"
    + passing("%r10", "%r11", "low").removeprefix(MIXED)
    + EVERYBODY,
    "a pointer to a function": MIXED
    + """
    { .param .b64 x; .param .b32 y; mov.b64 %rd1, {%r10, %r11}; mov.u64 %rd4, low;
    st.param.b64 [x], %rd1; call (y), %rd4, (x), P; ld.param.b32 %r20, [y]; }
    P: .callprototype (.param .b32 _) _ (.param .b64 _);""",
}

# ── copies ──────────────────────────────────────────────────────────────────

LOWER = "setp.lt.u32 %p15, %t, 64;"
TO_TILE = (
    "@%p14 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
    "[%r30{}], [{}], 256, [%r31];\n"
)
OWN = "shl.b32 %r8, %t, 2; add.u32 %r8, %r8, %r30; ld.shared.u32 %r20, [%r8];"
ARRAYS = "ld.param.u64 %rd10, [full]; ld.param.u64 %rd11, [unset];"
ASYNC = """
    cvt.u64.u32 %rd12, %t; shl.b64 %rd12, %rd12, 2; setp.ge.u32 %p12, %t, 64;
    add.u64 %rd13, %rd10, %rd12; add.u64 %rd14, %rd11, %rd12;
    selp.b64 %rd13, %rd14, %rd13, %p12;
    shl.b32 %r8, %t, 2; add.u32 %r8, %r8, %r30;
    cp.async.ca.shared.global [%r8], [%rd13], 4{};
    cp.async.commit_group; cp.async.wait_group 0;
"""
COPIES = {
    "cp.async": ARRAYS + ASYNC.format("") + OWN + LOWER,
    "cp.async, zeros": ARRAYS
    + "setp.ge.u32 %p12, %t, 64; selp.u32 %r9, 0, 4, %p12;"
    + ASYNC.format(", %r9")
    + OWN
    + EVERYBODY,
    "a bulk load": ARRAYS
    + INIT
    + "@%p14 "
    + ARRIVE.format("512")
    + TO_TILE.format("", "%rd10")
    + TO_TILE.format("+256", "%rd11")
    + ARRIVED.format("1")
    + OWN
    + LOWER,
}


# ── clusters of two blocks: the first sends something to the second ─────────

MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
PEER = """
    mapa.shared::cluster.u32 %r24, %r30, 1; mapa.shared::cluster.u32 %r25, %r31, 1;
    mov.u32 %r26, %cluster_ctarank;
    setp.eq.u32 %p9, %r26, 0; setp.eq.and.u32 %p10, %t, 0, %p9; setp.ne.u32 %p8, %r26, 0;
    setp.ne.and.u32 %p7, %t, 0, %p8; not.pred %p7, %p7; and.pred %p14, %p7, %p8;
"""
EXPECT = MEET + "@%p14 " + ARRIVE.format("512") + MEET
ARRIVES = f"@!%p8 bra OUT; {ARRIVED.format(1)} {OWN} OUT:\n"
CLUSTERS = {
    "shared to shared": INIT
    + PEER
    + EXPECT
    + f"""
    shl.b32 %r8, %t, 2; add.u32 %r8, %r8, %r30;
    setp.lt.and.u32 %p11, %t, 64, %p9; @%p11 st.shared.u32 [%r8+1024], %t;
    {FENCE} add.u32 %r27, %r30, 1024;
    @%p10 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes
        [%r24], [%r27], 512, [%r25];
    {ARRIVES} {MEET} setp.lt.and.u32 %p15, %t, 64, %p8;""",
    "st.async": INIT
    + PEER
    + EXPECT
    + f"""
    setp.lt.u32 %p11, %t, 64; @%p11 mov.u32 %r10, 3;
    shl.b32 %r8, %t, 2; add.u32 %r8, %r8, %r24;
    @%p9 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32
        [%r8], %r10, [%r25];
    {ARRIVES} {MEET} setp.lt.and.u32 %p15, %t, 64, %p8;""",
}

# ── tensor memory: A of 128 x 16, B of 16 x 16 behind it ────────────────────

BLACKWELL = ".version 8.8\n.target sm_100a\n.address_size 64\n"
TENSOR = (
    SHARED
    + INIT
    + """
    .shared .align 4 .b32 slot;
    setp.lt.u32 %p10, %t, 32;
    @%p10 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 64;
    bar.sync 0;
    ld.shared.u32 %r21, [slot];
    and.b32 %r22, %t, 96; shl.b32 %r22, %r22, 16; add.u32 %r22, %r22, %r21;
"""
)
"""%r21 is the address of tensor memory, %r22 that of the warp's lanes."""
GIVEN_BACK = """
    tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
    @%p10 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r21, 64;
"""
LOAD = """tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r22];
    tcgen05.wait::ld.sync.aligned;"""
PUT = "tcgen05.st.sync.aligned.32x32b.x{}.b32 [%r22+{}], {}; "
STORED = """tcgen05.wait::st.sync.aligned;
    tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;"""
WORK = (
    FENCE
    + DESCRIPTORS.replace(
        "or.b64 %rd1", "or.b64 %rd2, %rd2, 0x400000000000; or.b64 %rd1"
    ).replace("add.u32 %r3, %r3, 128", "add.u32 %r3, %r3, 256")
    + "mov.u32 %r4, 0x08040010; setp.ne.u32 %p9, %t, %t; @!%p14 bra ISSUED;"
    "WORK tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r31];"
    "ISSUED:" + ARRIVED.format("1") + "tcgen05.fence::after_thread_sync;" + LOAD
)


def work(text: str) -> str:
    """One thread does some work, and all load what it leaves."""
    return WORK.replace("WORK", text)


MMA = "tcgen05.mma.cta_group::1.kind::f16 [%r21{}], {}, %rd3, %r4, {}; "
COPY_IN = "tcgen05.cp.cta_group::1.128x256b [%r21], %rd1; "
LEFT = ONES.format("") + ONES.format("+2048")
RIGHT = "setp.lt.u32 %p12, %t, 32; @%p12 " + ONES.format("+4096")
ONE_COLUMN = """setp.lt.u32 %p12, %t, 32; and.b32 %r2, %t, 7;
    setp.eq.and.u32 %p12, %r2, 0, %p12; @%p12 """ + ONES.format("+4096")
EIGHT = "{%r1, %r1, %r1, %r1, %r1, %r1, %r1, %r1}"
ANSWER = f"""
    @%p14 {ARRIVE.format(16)}
    @%p14 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128
        [%r30], [%r31];
    {ARRIVED.format(1)} ld.shared.u32 %r20, [%r30]; ld.shared.u32 %r10, [%r30+64];
"""
TENSORS = {
    "an answer, and a word that is dropped": ANSWER + EVERYBODY,
    "stored by some warps": "@!%p11 bra L3; "
    + PUT.format(1, 0, "{%r0}")
    + "L3:"
    + STORED
    + LOAD
    + FIRST_ROWS,
    "a stored register": "setp.lt.u32 %p15, %lane, 9; @%p15 mov.u32 %r10, 4;"
    + PUT.format(1, 0, "{%r10}")
    + STORED
    + LOAD,
    "copied in": ONES.format("") + work(COPY_IN) + FIRST_ROWS,
    "copied in whole": LEFT + work(COPY_IN) + EVERYBODY,
    "rows of A": ONES.format("")
    + RIGHT
    + work(MMA.format("", "%rd1", "%p9"))
    + FIRST_ROWS,
    "columns of B": LEFT
    + ONE_COLUMN
    + work(MMA.format("", "%rd1", "%p9")).replace("{%r20}, [%r22]", "{%r20}, [%r22+1]")
    + NOBODY,
    "another column of B": LEFT
    + ONE_COLUMN
    + work(MMA.format("", "%rd1", "%p9"))
    + EVERYBODY,
    "old sums": LEFT + RIGHT + work(MMA.format("", "%rd1", "!%p9")) + NOBODY,
    "no old sums": LEFT + RIGHT + work(MMA.format("", "%rd1", "%p9")) + EVERYBODY,
    "A in tensor memory": RIGHT
    + "@!%p11 bra L3; "
    + PUT.format(8, 32, EIGHT)
    + "L3:"
    + STORED
    + "add.u32 %r23, %r21, 32; "
    + work(MMA.format("", "[%r23]", "%p9"))
    + FIRST_ROWS,
}


@cache
def compiled(group: str, body: str, stored: str) -> ptx.Kernel:
    """The kernel, in which some threads store %r20."""
    more = ".param .u64 full, .param .u64 unset, .param .align 64 .b8 map[128]"
    if group == "tcgen05":
        begin = TENSOR + "setp.lt.u32 %p11, %t, 64;"
        text = f"{begin}{body}\n{stored}\n{GIVEN_BACK} ret;"
        return kernel(text, more, head=BLACKWELL)
    shared = "" if "tile[" in body else SHARED
    return kernel(f"{shared}{body}\n{stored}\nret;", more, FUNCTIONS)


def said(group: str, body: str, stored: str, **options: Any) -> list[Any]:
    """What is reported about a launch."""
    blocks = 2 if group == "cluster" else 1
    full = np.zeros((16, 16), np.uint32)
    arrays: list[Any] = [np.zeros(blocks * 128, np.uint32), full, ptx.empty(256, "u4")]
    arrays.append(ptx.tensor_map(full[:12], box=(8, 16)))
    if blocks == 2:
        options["cluster"] = 2
    made = compiled(group, body, stored)
    result = made.launch(blocks, 128, arrays, watch="report", **options)
    return [each for each in result.hazards if each.severity != "info"]


STORE = "st.global.u32 [%mine], %r20;"
GROUPS = {
    "wgmma": WGMMA,
    "call": CALLS,
    "copy": COPIES,
    "cluster": CLUSTERS,
    "tcgen05": TENSORS,
}
CASES = [
    (group, name, schedule)
    for group, each in GROUPS.items()
    for name in each
    for schedule in ("eager", "lazy")
    if (group, schedule) != ("call", "lazy")  # nothing is asynchronous there
]
# Of most programs one schedule, and of each group both.
CHOSEN = sorted(
    {*some(CASES, 3), *kinds(CASES, lambda each: each[::2])}, key=CASES.index
)


@pytest.mark.parametrize(("group", "name", "schedule"), CHOSEN)
def test_only_what_is_used_is_reported(group: str, name: str, schedule: str) -> None:
    body = GROUPS[group][name]
    assert said(group, body, "@%p15 " + STORE, schedule=schedule) == []
    found = {each.rule for each in said(group, body, STORE, schedule=schedule)}
    assert found == (set() if body.endswith(EVERYBODY) else {"uninitialised"})


# ── what copies store to global memory ──────────────────────────────────────

SOME = "setp.lt.u32 %p12, %t, 32; @%p12 " + ONES.format("") + FENCE
"""512 bytes of the tile are written: 8 rows of 16 words."""
GROUP = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
BULK = f"{ARRAYS} {SOME} setp.ne.u32 %p12, %t, 0; @%p12 bra OUT; COPY {GROUP} OUT:"
PUT_BYTES = "cp.async.bulk.global.shared::cta.bulk_group [%rd10], [%r30], {};"
ADD_BYTES = (
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd10], [%r30], {};"
)
PUT_BOX = (
    "mov.u64 %rd15, map; cvta.param.u64 %rd15, %rd15; "
    "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd15, {{%r0, {}}}], [{}];"
)
ADD_BOX = PUT_BOX.replace("cp.async", "cp.reduce.async").replace(
    "bulk_group [", "add.bulk_group ["
)
STORES = {
    "bytes": (PUT_BYTES.format(512), PUT_BYTES.format(528)),
    "a sum of bytes": (ADD_BYTES.format(512), ADD_BYTES.format(528)),
    # The tensor has 12 rows, and the box 8: of the second box, 4 rows count.
    "a box": (PUT_BOX.format(0, "%r30"), PUT_BOX.format(0, "%r30+128")),
    "the end of a box": (
        PUT_BOX.format(8, "%r30+256"),
        PUT_BOX.format(8, "%r30+384"),
    ),
    "a sum of a box": (
        ADD_BOX.format(8, "%r30+256"),
        ADD_BOX.format(8, "%r30+384"),
    ),
}


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
@pytest.mark.parametrize("name", STORES)
def test_copies_to_global_memory_are_uses(name: str, schedule: str) -> None:
    right, wrong = (BULK.replace("COPY", each) for each in STORES[name])
    assert said("copy", right, "", schedule=schedule) == []
    (found,) = said("copy", wrong, "", schedule=schedule)
    assert (found.rule, found.severity) == ("uninitialised", "warning")
    verb = "is added to memory" if "sum" in name else "is stored"
    assert f"nobody has written; it {verb} at" in found.paragraph().replace("\n  ", " ")
