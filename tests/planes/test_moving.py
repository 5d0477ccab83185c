"""Second values arrive where values do: through registers, lanes and memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests.planes.payloads import check_moved, moved, payloads, text

LOAD, STORE = "ld.global.b32 %r1, [%of];", "st.global.b32 [%to], %r2;"

REGISTERS = {
    "mov": "mov.b32 %r2, %r1;",
    "float": "mov.b32 %f1, %r1; mov.f32 %f2, %f1; mov.b32 %r2, %f2;",
    "unpack": "mov.b32 {%h1, %h2}, %r1; mov.b32 %r2, {%h2, %h1};",
    "one half": "mov.b32 {_, %h2}, %r1; mov.b32 %r2, {%h2, %h2};",
    "prmt": "prmt.b32 %r2, %r1, %r1, 0x1032;",
    "two words": "shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1;"
    "prmt.b32 %r2, %r1, %r3, 0x7632;",
    "selector": "and.b32 %r4, %t, 1; setp.eq.u32 %p1, %r4, 0;"
    "selp.b32 %r5, 0x5410, 0x7632, %p1; prmt.b32 %r2, %r1, %r1, %r5;",
    "shifts": "shl.b32 %r3, %r1, 16; shr.u32 %r4, %r1, 16; or.b32 %r2, %r3, %r4;",
    "signed shift": "shr.s32 %r3, %r1, 16; shl.b32 %r4, %r1, 16;"
    "lop3.b32 %r2, %r3, 0xffff, %r4, 0xea;",
    "funnel": "shf.l.wrap.b32 %r2, %r1, %r1, 16;",
    "distance": "and.b32 %r4, %t, 1; shl.b32 %r4, %r4, 4; shl.b32 %r2, %r1, %r4;",
    "masks": "and.b32 %r3, %r1, 0xffff0000; and.b32 %r4, %r1, 0xffff;"
    "xor.b32 %r2, %r3, %r4;",
    "mask in a register": "mov.u32 %r3, 0xffff; and.b32 %r2, %r1, %r3;",
    "insert": "bfe.u32 %r3, %r1, 16, 16; bfi.b32 %r2, %r3, %r1, 0, 16;",
    "narrow": "cvt.u16.u32 %h1, %r1; cvt.u32.u16 %r2, %h1;",
    "pair": "mov.b64 %rd1, {%r1, %r1}; mov.b64 {%r3, %r2}, %rd1;",
    "wide": ".reg .b128 %q; cvt.u64.u32 %rd1, %r1; mov.b128 %q, {%rd1, %rd1};"
    "mov.b128 {%rd2, %rd3}, %q; cvt.u32.u64 %r2, %rd3;",
    "selp": "and.b32 %r4, %t, 2; setp.eq.u32 %p1, %r4, 0; mov.u32 %r5, 0;"
    "selp.b32 %r2, %r1, %r5, %p1;",
    "guard": "and.b32 %r4, %t, 2; setp.eq.u32 %p1, %r4, 0;"
    "mov.u32 %r2, 0; @%p1 mov.b32 %r2, %r1;",
    "branch": "mov.u32 %r2, 0; and.b32 %r4, %t, 3; setp.lt.u32 %p1, %r4, 2;"
    "@%p1 bra A; mov.b32 %r2, %r1; bra.uni B; A: shl.b32 %r2, %r1, 16; B:",
    "loop": "mov.u32 %r4, 0; L: add.u32 %r4, %r4, 1;"
    "shfl.sync.down.b32 %r1, %r1, 1, 31, -1; setp.lt.u32 %p1, %r4, 3;"
    "@%p1 bra L; mov.b32 %r2, %r1;",
    "shfl": "shfl.sync.idx.b32 %r2|%p1, %r1, 5, 31, -1;",
    "shfl of lanes that are elsewhere": "mov.u32 %r2, 0; and.b32 %r4, %t, 3;"
    "setp.eq.u32 %p1, %r4, 3; @%p1 bra A;"
    "shfl.sync.bfly.b32 %r2, %r1, 1, 31, 0x77777777; A:",
    "shfl of lanes with another mask": "setp.lt.u32 %p1, %lane, 16;"
    "selp.b32 %r4, 0xffff, 0xffff0000, %p1; shfl.sync.bfly.b32 %r2, %r1, 16, 31, %r4;",
    "movmatrix": "movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1;",
}


@pytest.mark.parametrize("name", REGISTERS)
def test_through_registers(name: str) -> None:
    check_moved(text(LOAD + REGISTERS[name] + STORE))


CHANGED = {
    "sum": "add.s32 %r2, %r1, 0x10001;",
    "sign": "xor.b32 %r2, %r1, 0x80008000;",
    "part of a half": "and.b32 %r2, %r1, 0x00ff00ff;",
    "shift": "shl.b32 %r2, %r1, 4;",
    "distance": "mov.u32 %r3, 4; shl.b32 %r2, %r1, %r3;",
    "constant": "mov.u32 %r2, 7;",
    "float": "mov.b32 %f1, %r1; add.f32 %f1, %f1, %f1; mov.b32 %r2, %f1;",
}


@pytest.mark.parametrize("name", CHANGED)
def test_what_is_computed_has_none_without_an_algebra(name: str) -> None:
    out, found = moved(text(LOAD + CHANGED[name] + STORE))
    assert out.any()
    assert not found.any()


MEMORY = {
    "v4": (
        "mul.wide.u32 %rd1, %t, 16; add.s64 %of, %in, %rd1; add.s64 %to, %out, %rd1;"
        "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%of];"
        "st.global.v4.b32 [%to], {%r4, %r1, %r3, %r2};",
        1024,
    ),
    "v2.b64": (
        "mul.wide.u32 %rd1, %t, 16; add.s64 %of, %in, %rd1; add.s64 %to, %out, %rd1;"
        "ld.global.v2.b64 {%rd2, %rd3}, [%of]; st.global.v2.b64 [%to], {%rd3, %rd2};",
        1024,
    ),
    "b128": (
        ".reg .b128 %q; mul.wide.u32 %rd1, %t, 16; add.s64 %of, %in, %rd1;"
        "add.s64 %to, %out, %rd1; ld.global.b128 %q, [%of]; st.global.b128 [%to], %q;",
        1024,
    ),
    "halves": (
        "ld.global.v2.b16 {%h1, %h2}, [%of];"
        "st.global.b16 [%to+2], %h1; st.global.b16 [%to], %h2;",
        256,
    ),
    "a half of a word": (
        LOAD + "st.global.b32 [%to], 0; st.global.b16 [%to+2], %r1;".replace(
            "%r1", "%h1"
        ).join(["cvt.u16.u32 %h1, %r1;", ""]),
        256,
    ),
    "strided": (
        "mul.wide.u32 %rd1, %t, 12; add.s64 %of, %in, %rd1; and.b64 %of, %of, -4;"
        + LOAD + "mov.b32 %r2, %r1;" + STORE,
        768,
    ),
    "shared": (
        ".shared .align 16 .b8 s[256]; mov.u32 %r5, s; shl.b32 %r6, %t, 2;"
        "add.u32 %r6, %r5, %r6; " + LOAD + "st.shared.b32 [%r6], %r1; bar.sync 0;"
        "xor.b32 %r7, %t, 33; shl.b32 %r7, %r7, 2; add.u32 %r7, %r5, %r7;"
        "ld.shared.b32 %r2, [%r7];" + STORE,
        256,
    ),
    "generic": (
        ".shared .align 16 .b8 s[256]; mov.u64 %rd5, s; cvta.shared.u64 %rd5, %rd5;"
        "add.s64 %rd6, %rd5, %step;" + LOAD + "st.b32 [%rd6], %r1; bar.sync 0;"
        "ld.v2.b16 {%h1, %h2}, [%rd6]; mov.b32 %r2, {%h1, %h2};" + STORE,
        256,
    ),
    "local": (
        ".local .align 16 .b8 d[64]; mov.u64 %rd5, d; and.b32 %r6, %t, 7;"
        "mul.wide.u32 %rd6, %r6, 4; add.s64 %rd6, %rd5, %rd6;" + LOAD
        + "st.local.b32 [%rd6], %r1; ld.local.b32 %r2, [%rd6];" + STORE,
        256,
    ),
    "ldmatrix": (
        ".shared .align 16 .b8 s[256]; mov.u32 %r5, s; shl.b32 %r6, %t, 2;"
        "add.u32 %r6, %r5, %r6; " + LOAD + "st.shared.b32 [%r6], %r1; bar.sync 0;"
        "and.b32 %r7, %lane, 15; shl.b32 %r7, %r7, 4; add.u32 %r7, %r5, %r7;"
        "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r2, %r3}, [%r7];"
        "setp.ge.u32 %p1, %t, 32; selp.b32 %r2, %r3, %r2, %p1;" + STORE,
        256,
    ),
    "stmatrix": (
        ".shared .align 16 .b8 s[256]; mov.u32 %r5, s;" + LOAD
        + "and.b32 %r7, %lane, 7; shl.b32 %r7, %r7, 4; add.u32 %r7, %r5, %r7;"
        "and.b32 %r8, %t, 32; shl.b32 %r8, %r8, 2; add.u32 %r7, %r7, %r8;"
        "stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%r7], {%r1}; bar.sync 0;"
        "shl.b32 %r6, %t, 2; add.u32 %r6, %r5, %r6; ld.shared.b32 %r2, [%r6];" + STORE,
        256,
    ),
    "cp.async": (
        ".shared .align 16 .b8 s[256]; mov.u32 %r5, s; shl.b32 %r6, %t, 2;"
        "add.u32 %r6, %r5, %r6; cp.async.ca.shared.global [%r6], [%of], 4;"
        "cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;"
        "ld.shared.b32 %r2, [%r6];" + STORE,
        256,
    ),
    "exchange": (
        LOAD + "atom.global.exch.b32 %r3, [%to], %r1; bar.sync 0;"
        "atom.global.exch.b32 %r4, [%to], %r3;"
        "atom.global.exch.b32 %r4, [%to], %r4;",
        256,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MEMORY)
def test_through_memory(name: str) -> None:
    body, size = MEMORY[name]
    check_moved(text(body), size)


@pytest.mark.parametrize("schedule", ["lazy", "eager+random-3"])
def test_copies_of_lanes_that_are_done_later(schedule: str) -> None:
    body, size = MEMORY["cp.async"]
    check_moved(text(body), size, schedule=schedule)


def test_a_store_of_what_is_not_followed_clears() -> None:
    body = (
        LOAD + "st.global.b32 [%to], %r1; and.b32 %r4, %t, 1; setp.eq.u32 %p1, %r4, 0;"
        "@%p1 st.global.u32 [%to], %t; @!%p1 st.global.b16 [%to], 5;"
    )
    out, found = moved(text(body))
    pairs, seconds = out.reshape(-1, 2), found.reshape(-1, 2)
    assert not seconds[::2].any()
    assert not seconds[1::2, 0].any()
    assert (seconds[1::2, 1] == payloads(pairs[1::2, 1])[:, 0]).all()


BYTES = {
    "b8": "ld.global.u8 %h1, [%of]; st.global.u8 [%to+1], %h1;"
    "ld.global.s8 %h1, [%of+3]; st.global.u8 [%to], %h1;",
    "prmt": LOAD + "prmt.b32 %r2, %r1, %r1, 0x0213;" + STORE,
    "shift": LOAD + "shl.b32 %r2, %r1, 8;" + STORE,
    "mask": LOAD + "and.b32 %r2, %r1, 0x00ff00ff;" + STORE,
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes_have_eight_planes(name: str) -> None:
    check_moved(text(BYTES[name]), 252, bits=8, planes=8, block=63)


def test_blocks_do_not_see_what_others_left() -> None:
    """Shared and local memory begin without second values, in every block."""
    body = (
        ".shared .align 16 .b8 s[256]; .reg .pred %q;"
        "mov.u32 %r5, s; shl.b32 %r6, %t, 2; add.u32 %r6, %r5, %r6;"
        "mov.u32 %r8, %ctaid.x; setp.eq.u32 %q, %r8, 0;"
        + LOAD
        + "@%q st.shared.b32 [%r6], %r1; bar.sync 0; ld.shared.b32 %r2, [%r6];"
        "mov.u32 %r7, %ntid.x; mad.lo.u32 %r7, %r8, %r7, %t;"
        "mul.wide.u32 %rd1, %r7, 4; add.s64 %to, %out, %rd1;" + STORE
    )
    out, found = moved(text(body), 1024, grid=4)
    assert (found == payloads(out)).all()
    assert np.count_nonzero(out) == 128
