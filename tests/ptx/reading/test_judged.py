"""ptxas reads what is read here, and refuses what is refused here."""

import subprocess

import pytest

from fragmenta.cuda.tools import assembler
from fragmenta.errors import PtxSyntaxError
from fragmenta.ptx.reading import parse
from tests.ptx.reading.texts import HEADER, beside, inside

STATEMENTS = r"""
add .s32 %r1, %r2, %r3;
ld.global.u32 %r1, a[1];
mov.u64 %rd1, a+4*2;
ld.global.u32 %r1, [%rd1+-8];
ld.global.u32 %r1, [%rd1+4+(1<<3)];
mov.u32 %r1, 0b101U;
mov.f32 %f1, .5;
mov.f32 %f1, 1.0+2.0*3.0;
mov.u64 %rd1, (.u64)(-1) / 3;
mov.u32 %r1, 1 ? 0 ? 5 : 6 : 4;
@ ! %p1 mov.u32 %r1, 1;
setp.eq.s32 _|%p2, %r1, %r2;
mov.b64 {_, %r1}, %rd1;
mov.v4.f32 %v, {1.0,2.0,3.0,4.0};
mov.f32 %f1, %v.r;
mov.v4.u32 %u, %tid;
mov.u32 %r1, %tid .x;
vmad.s32.s32.s32 %r1, -%r2.b0, %r3.b1, %r4;
{ L: bra L; } { L: bra L; }
{ bra M; } M: bra %N; %N:
{ mov.b32 %r1, 1; .reg .f32 %r1; mov.f32 %r1, 1.0; }
{ .reg .b32 q <0x10>, add; mov.b32 q09, 1; add.s32 add, add, q9; }
{ .shared .align 8 .b8 s[0x4][8], t<3>; mov.u32 %r1, t2; }
{ .global .u32 c = 5; .global .u64 d = c; ld.global.u64 %rd1, [d]; }
.pragma "nounroll", "a//b";
.loc 1 2
 3 mov.u32 %r1, 1;
ts: .branchtargets A<2>; brx.idx %r1, ts; A0: A1:
call quiet; call quiet, (); call (_), next, (5);
p : .callprototype (.param .b32 _) _ (.param .b64 _, .param .align 8 .b8 _[16]) ;
ct: .calltargets quiet; call %rd1, ct;
mov/* of */.u32 /* 32 bits */ %r1, // here
 1;
tex.2d.v4.f32.f32 {%f1,%f1,%f1,%f1}|%p1, [picture, {%f1,%f1}];
tex.1d.v4.f32.s32 {%f1,%f1,%f1,%f1}, [picture, %r1];
cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1, 0}], [%r3];
ld.global.L1::evict_last.L2::cache_hint.u32 %r1, [a], %rd1;
elect.sync _|%p1, -1;
"""

MODULE = r"""
.global .u32 x1[] = {1,2,3}, x2[2][2] = {{1},{3}}, x3;
.global .u8 x4[8] = {0xff(a), 0XFF00(a+4), 0xff0000U(generic(a)+4)};
.global .u64 x5[4] = {a, generic(a)+8, quiet, -1};
.global .v2 .f32 x6[2] = {{1.0,0f3F800000},{1e50,0d3FF8000000000000}};
.global .b64 x7 = 0f3F800000; .global .b16 x8 = 0.1; .global .u32 x9<4>;
.extern .global .u32 y; .visible .global .u32 y; .extern .global .u32 y;
.extern .shared .align 16 .b8 z[];
.global .attribute(.managed) .align 4 .u32 m = 3;
.func f; .func f { ret; }
.visible .func g { ret; } .visible .func h; .alias h, g;
.entry e1 (.param .u64 .ptr .global .align 16 p, .param .b8 .align 8 q[8])
  .maxntid 128 .minnctapersm 2 .pragma "nounroll"; { ret; }
.entry e2 .reqntid 128, 1, 1 .reqnctapercluster 2 .explicitcluster { ret; }
.file 1 "x.cu", 1234, 5678
.section .debug_str { .b8 1, 2
 L: .b64 .debug_abbrev+4 }
"""

REFUSED = [
    "add. s32 %r1, %r2, %r3;",
    "add..s32 %r1, %r2, %r3;",
    "mov.u32 %r1, 09;",
    "ld.global.u32 %r1, [4+%rd1];",
    "ld.global.u32 %r1, [a+%rd1];",
    "L1: ; ret;",
    "ld.global.u32 %r1, [a[1]];",
    "mov.u32 %r1, 12u;",
    "mov.f32 %f1, 1.0f;",
    "mov.f32 %f1, -0f3F800000;",
    "mov.u64 %rd1, 1/0;",
    "mov.u64 %rd1, !0.0;",
    "mov.u64 %rd1, 2.5 > 1 ? 1 : 2;",
    "@1 mov.u32 %r1, 1;",
    "L1: L1: ret;",
    ";",
    ".reg .b32 q; .reg .b32 q;",
    ".reg .b32 q<5>, q3;",
    ".shared .u32 s; s: ret;",
    ".reg .b32 .v2 x;",
    ".shared .b8 .align 8 s[16];",
    ".loc 1 2 3;",
    ".L1: ret;",
    "call (%r1) next (%r2);",
    "mov.b64 %rd1, {%r1, {%r2}};",
    "mov.b64 {}, %rd1;",
    "ts: .branchtargets 1;",
    "mov.u32 %r1, 1,;",
    '.file 1 "x"',
    ".entry e { ret; }",
    ".shared .align 3 .b8 s[16];",
    "# a comment",
]


def judged(text, folder):
    """What ptxas says against a text; for a virtual architecture it only parses."""
    path = folder / "judged.ptx"
    path.write_text(text)
    command = [assembler.tool("ptxas"), "-arch=compute_90a", path, "-o", folder / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if done.returncode else ""


def test_what_is_read(tmp_path):
    preprocessed = '\n# 12 "kernel.cu"\nmov.u32 %r1, 1;\n#line 7 "kernel.cu"\n'
    for text in (inside(STATEMENTS), beside(MODULE), inside(preprocessed)):
        parse(text)
        assert judged(text, tmp_path) == ""


@pytest.mark.parametrize("statement", REFUSED)
def test_what_is_refused(statement, tmp_path):
    text = inside(statement)
    with pytest.raises(PtxSyntaxError):
        parse(text)
    assert "error" in judged(text, tmp_path).replace("fatal ", "error ")


def test_rows_that_are_not_full_are_packed():
    text = HEADER + ".visible .global .u32 x[2][2] = {{1},{3}};"
    data = parse(text).variables["x"].initial
    assert data is not None
    assert data.ljust(16, b"\0") in assembler.assemble(text, "sm_90a")
