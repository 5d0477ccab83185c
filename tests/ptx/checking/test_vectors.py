"""Vector registers, before ptxas and before the check."""

from __future__ import annotations

from itertools import product

import pytest

from fragmenta.cuda.tools import assembler
from fragmenta.errors import Error
from tests.ptx.checking.kernels import errors

REGISTERS = """\
.reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<8>; .reg .b64 %d<4>; .reg .f32 %f<8>;
.reg .b128 %q; .reg .v2 .b32 %v2; .reg .v4 .b32 %v4; .reg .v4 .f32 %w4;
.reg .v2 .b16 %s2; .reg .v4 .b16 %s4; .reg .v2 .b64 %l2; .reg .v2 .u32 %u2;
.reg .v4 .b8 %c4; .reg .v4 .b32 %n<3>; .shared .align 16 .b8 tile[64];
"""
HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"

WHOLE = ("%v2", "%v4", "%w4", "%s2", "%s4", "%l2", "%u2", "%c4", "%n1", "%tid")
ONE = ("%v4.x", "%w4.w", "%s4.a", "%l2.y", "%u2.g", "%r0", "%f0", "%h0", "%d0")
GENERATED = [
    *(
        f"ld.global.{t} {v}, [%d0];"
        for t, v in product(
            (
                "v2.b32",
                "v4.b32",
                "v4.f32",
                "v4.u32",
                "v4.b16",
                "v4.b8",
                "v2.b64",
                "b32",
            ),
            WHOLE,
        )
    ),
    *(
        f"st.shared.{t} [tile], {v};"
        for t, v in product(("v2.b32", "v4.f32", "v4.u16", "v2.u64", "b64"), WHOLE)
    ),
    *(
        f"mov.{t} {d}, {a};"
        for t, d, a in product(
            ("v4.b32", "v4.f32", "v2.u32", "b64", "b32"),
            (*WHOLE[:-1], "%r0", "%d0"),
            (*WHOLE, "%r1", "%d1"),
        )
    ),
    *(
        f"{op} {d}, {a}, {b};"
        for op, d, a, b in product(
            ("add.u32", "add.f32", "xor.b16", "add.u64"),
            ONE,
            ONE[:4],
            ("%v4.z", "%l2.x", "%v4"),
        )
    ),
]

WRITTEN = """
ld.global.v4.b32 {%v4.x, %v4.y, %v4.z, %v4.w}, [%d0];
ld.global.v4.b32 {%v4.w, %r1, %v4.z, _}, [%d0];
ld.global.v4.b32 {%v4}, [%d0];
ld.global.v4.b32 {%v2, %v2}, [%d0];
ld.global.v8.b32 {%v4, %n0}, [%d0];
ld.global.v4.b32 %n3, [%d0];
ld.global.nc.v4.b32 %v4, [%d0];
ld.volatile.global.v2.b32 %v2, [%d0];
ld.global.L2::cache_hint.v4.b32 %v4, [%d0], %l2.x;
st.global.v4.b32 [%d0], {%v4.x, %v4.x, %v4.z, %v4.y};
mov.b32 %r0, %v4.h0;
mov.b32 %r0, %v4.b0;
mov.b32 %r0, %v4.xy;
mov.b32 %r0, %v4.q;
mov.b32 %r0, %r1.x;
mov.b32 %r0, %r1.b0;
mov.b32 %r0.b0, %r1;
mov.v4.u32 {%r0, %r1, %r2, %r3}, %v4;
mov.v4.b32 %v4, {%r0, %r1, %r2, %r3};
mov.v4.b32 {%r0, %r1, %r2, %r3}, {%r1, %r2, %r3, %r0};
mov.v4.b32 {%r0, _, %r2, _}, %v4;
mov.v4.u32 {%r0, %r1, %r2, %r3}, {%r0, _, %r2, %r3};
mov.v4.u32 {_, _, _, _}, {%r0, %r1, %r2, %r3};
mov.v4.u32 {%r0, %r0, %r0, %r0}, {%r0, %r1, %r2, %r3};
mov.v4.u32 %v4, {1, 2, 3, 4};
mov.v4.u32 %v4, {%r0, %r1, %r2, 5};
mov.v4.f32 %v4, {1.0, 2.0, 3.0, 4.0};
mov.v4.f32 %v4, {1, 2, 3, 4};
mov.v4.f32 %v4, {%f0, 1, 2, 3};
mov.v4.b32 %v4, {%f0, 1.0, 2, 3};
st.global.v4.f32 [%d0], {1, 2, 3, 4};
st.global.v2.f32 [%d0], {1.0, 2.0};
mov.v4.u32 %v4, {%tid.x, 2, 3, 4};
mov.v4.u32 %v4, {%tid.x, %tid.y, %tid.z, %ctaid.x};
mov.v4.u32 %v4, {%r5, %tid.y, %r6, %r6};
mov.v2.f32 {%f0, %f1}, {%laneid, %tid.y};
mov.v2.b64 {%d0, %d1}, {%globaltimer, %clock64};
mov.v2.b64 {%d0, %d1}, {%d2, %tid.x};
mov.v4.u16 %s4, {%tid.x, %tid.y, %tid.z, %tid.w};
mov.b64 %d0, {%tid.x, %tid.y};
mov.b64 {%tid.x, %r0}, %d0;
st.global.v2.u32 [%d0], {%tid.x, %tid.y};
mov.v4.u32 %v4, {%r1};
mov.v2.b32 {%h0, %h1}, {%r0, %r1};
mov.v2.b32 {%r0, %h1}, {%r0, %r1};
mov.v2.u32 %u2, {%f0, %f1};
mov.v2.f32 {%f0, %f1}, %u2;
mov.v2.b64 %l2, {%d0, %d1};
mov.v4.b64 {%d0, %d1, %d2, %d3}, {%d3, %d2, %d1, %d0};
mov.v8.b32 {%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7}, {%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7};
mov.v2.pred {%p0, %p1}, {%p2, %p3};
mov.v2.f16 %s2, {%h0, %h1};
mov.v4.u16 %s4, %tid;
mov.v4.s32 %v4, %cluster_nctaid;
mov.v4.f32 %w4, %tid;
mov.u32 %r0, %tid.r;
mov.u32 %r0, %tid.w;
mov.u32 %r0, %clusterid.w;
mov.u32 %r0, %laneid.x;
cvt.u64.u32 %d1, %tid;
mov.b64 {%r0, %r1}, %v2;
mov.b64 %v2, {%r0, %r1};
mov.b64 %d1, {%v2.x, %v2.y};
mov.b64 {%v2.x, _}, %d1;
mov.b64 %d1, {%v2};
mov.b64 %v2, 1;
mov.b32 %v2, 1;
mov.b128 %q, %l2;
mov.b128 %v4, %q;
mov.b128 %q, {%l2.x, %l2.y};
mov.b32 {%s2.x, %s2.y}, %v4.x;
mov.b32 %f0, %s2;
mov.u32 %v2.x, %tid.x;
cvt.u32.u16 %r0, %s2.x;
cvt.u64.u32 %l2.x, %v2.y;
setp.ne.u32 %p0, %v4.x, 0;
setp.eq.u32 %p0|%v4.x, %r0, %r1;
setp.eq.u32 %p0|%v4, %r0, %r1;
shfl.sync.idx.b32 %v4.x, %v4.y, 0, 31, -1;
shfl.sync.idx.b32 %v4.x|%p0, %v4.y, 0, 31, -1;
elect.sync %v4.x|%p0, -1;
@%v4.x mov.u32 %r0, 1;
@%v4 mov.u32 %r0, 1;
mov.pred %p0, !%v4;
neg.s32 %v4.x, %v4.y;
fma.rn.f32 %w4.r, %w4.g, %w4.b, %w4.a;
selp.b32 %v4.x, %v4.y, %v4.z, %p0;
lop3.b32 %v4.x, %v4.y, %v4.z, %v4.w, 0x80;
match.any.sync.b32 %v4.x, %v4.y, %v4.z;
vote.sync.ballot.b32 %v4.x, %p0, -1;
dp4a.u32.u32 %v4.x, %v4.y, %v4.z, %v4.w;
vadd.u32.u32.u32 %r0, %r1.b0, %r2.h1;
vadd.u32.u32.u32 %r0, %r1.b4, %r2.h1;
vadd.u32.u32.u32 %r0, %r1.x, %r2.h1;
vadd.u32.u32.u32 %r0, %v4.x.b0, %r2.h1;
vadd.s32.s32.s32 %r0, -%v4.x, %r2;
add.u32 %r0, %r1.b0, %r2;
add.u32 %r0, -%r1, %r2;
ld.global.b32 %r0, [%l2.x];
ld.global.b32 %r0, [%l2.x+4];
ld.global.b32 %r0, [%l2];
atom.global.add.u32 %v4.x, [%d0], %v4.y;
atom.global.add.v4.f32 %w4, [%d0], %w4;
atom.global.v2.f32.add %w4, [%d0], %w4;
red.global.add.v4.f32 [%d0], %w4;
red.global.v2.f32.add [%d0], {%w4.x, %w4.y};
multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%f0, %f1, %f2, %f3}, [%d0];
multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%w4.x, %f1, %f2, %f3}, [%d0];
multimem.ld_reduce.relaxed.sys.global.add.v4.f32 %w4, [%d0];
multimem.st.relaxed.sys.global.v4.f32 [%d0], %w4;
st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r0], %v4, [%r1];
cp.async.bulk.prefetch.tensor.2d.L2.global [%d0, %v2];
nanosleep.u32 %v4.x;
mapa.u64 %l2.x, %l2.y, %v4.x;
ldmatrix.sync.aligned.m8n8.x4.shared.b16 %v4, [tile];
ldmatrix.sync.aligned.m8n8.x2.shared.b16 %v4, [tile];
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%v4.x, %r1, %v4.z, %r2}, [tile];
stmatrix.sync.aligned.m8n8.x4.shared.b16 [tile], %v4;
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 %w4, %v4, %v2, %w4;
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 %w4, %v4, %v4, %w4;
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 %u2, %v4, %v2, %w4;
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%w4.x,%f1,%f2,%f3}, {%v4.x,%r1,%v4.y,%v4.z}, %v2, %w4;
wmma.load.c.sync.aligned.row.m16n16k16.global.f16 %v4, [%d0];
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 %w4, %d0, %d0, 1, 1, 1, 0, 0;
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 %w4, %v4, %l2.x, 1, 1, 1, 0;
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 %v2, %v4, %d0, 1, 1, 1, 0;
"""

DECLARATIONS = """
.reg .v2 .pred %x;
.reg .v4 .b64 %x;
.reg .v4 .f64 %x;
.reg .v8 .b32 %x;
.reg .v3 .b32 %x;
.reg .v2 .b128 %x;
.reg .v2 .f16 %x; mov.b16 %h0, %x.x;
.reg .v4 .f16x2 %x; mov.b32 %r0, %x.x;
.reg .v2 .u8 %x; cvt.u32.u8 %r0, %x.x;
.reg .v2 .f32x2 %x;
.reg .v4 .b32 x<2>; mov.b32 %r0, x0.x; ld.global.v4.b32 x1, [%d0];
.reg .v4 .b32 x<2>; mov.b32 %r0, x2.x;
.reg .v4 .v2 .b32 %x;
.reg .b32 .v4 %x;
.reg .v4 .b32 %v4;
.reg .v4 .b32 %r<9>;
vadd.u32.u32.u32 %r0, %v4.x, %r2.h1;
{ .reg .b32 %v4; mov.b32 %v4, 1; }
{ .reg .b32 %v4; mov.b32 %v4.x, 1; }
{ .reg .v2 .b32 %v4; mov.v2.b32 %v4, %v2; }
.local .v4 .b32 y; ld.local.v4.b32 %v4, [y]; ld.local.b32 %r0, [y+4];
.local .v4 .b64 y;
.local .v8 .b32 y;
.shared .v2 .b64 y[4];
"""

CALLS = """
call (%v4), f, (%n1);
call (%w4), f, (%v4);
call (%v2), f, (%v4);
call (%v4), f, (%v2);
call (%v4), f, (%r0);
call (%v4), f, ({%r0, %r1, %r2, %r3});
call ({%r0, %r1, %r2, %r3}), f, (%v4);
call (%v4), f, (%v4.x);
call (%v4.x), e, (%v4.y);
call (%r0), e, (%r1);
call (%v4), e, (%r1);
call (_), f, (%v4);
call (%v4), f, (1);
call (%r0), e, (1);
call (%d0), e, (%r1);
call (%r0), e, (%d1);
call (%r0), e, (%f1);
"""
FUNCTIONS = """
.func (.reg .v4 .b32 r) f(.reg .v4 .b32 a) { mov.v4.b32 r, a; ret; }
.func (.reg .b32 r) e(.reg .b32 a) { mov.b32 r, a; ret; }
"""


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


def compare(statements: list[str], ptxas: list[str | None], outer: str = "") -> None:
    """What ptxas refuses has an error here, and nothing else has."""
    wrong = []
    for statement, refusal in zip(statements, ptxas, strict=True):
        text = f"{HEAD}{outer}.entry k() {{\n{REGISTERS}{statement}\nret;\n}}\n"
        found = errors(text)
        if bool(found) != (refusal is not None):
            wrong.append((statement, refusal, [each.message for each in found]))
    assert not wrong


@pytest.mark.parametrize(
    "statements", [GENERATED, lines(WRITTEN)], ids=["made", "written"]
)
def test_ptxas_agrees_about_operands(statements: list[str]) -> None:
    around = [REGISTERS.replace("\n", " ")]
    told = assembler.judge([[*around, each] for each in statements], "sm_90a", "9.0")
    assert {each is None for each in told} == {True, False}
    compare(statements, told)


@pytest.mark.parametrize(
    "table, outer", [(DECLARATIONS, ""), (CALLS, FUNCTIONS)], ids=["", "calls"]
)
def test_ptxas_agrees_about_declarations_and_calls(table: str, outer: str) -> None:
    told = []
    for each in lines(table):
        text = f"{HEAD}{outer}.entry k() {{\n{REGISTERS}{each}\nret;\n}}\n"
        try:
            assembler.assemble(text, "sm_90a")
            told.append(None)
        except Error as why:
            told.append(str(why))
    compare(lines(table), told, outer)
