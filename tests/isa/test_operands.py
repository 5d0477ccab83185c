"""Operands after a mnemonic: what fits, what does not, and how it is said."""

import pytest

import fragmenta as fm
from fragmenta.cuda.source import ptx
from fragmenta.reference.isa import operand_checks
from fragmenta.reference.isa.families import catalogue
from fragmenta.reference.isa.statement import MOST, split

SPARSE = "mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32"
F = "{%f0,%f1,%f2,%f3}"
R = "{%r0,%r1,%r2,%r3}"
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
SCALED = (
    "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
    ".f32.e4m3.e4m3.f32.ue8m0"
)
LOAD = "wmma.load.a.sync.aligned.row.m8n8k32.s4"


@pytest.mark.long
def test_every_statement_that_is_written_is_read():
    for op in catalogue():
        sources = (False, True) if op.warpgroup else (False,)
        for source in sources:
            assert fm.instruction(ptx.statement(op, a_registers=source)) == op


@pytest.mark.parametrize(
    "text",
    [
        f"{SPARSE} {F}, {R}, {R}, {F}, %r8, 0x1;",
        f"{SPARSE} {F}, {R}, {R}, {F}, {{%r8}}, 0b1",
        f"@%p {SPARSE} {{_,_,_,%f3}}, {R}, {R}, {{0f00000000,%f1,%f2,%f3}}, v.x, 1U;",
        f"{SPARSE} d, a, b, c, e, 00;",
        f"{SPARSE} {{%0,%1,%2,%3}}, {{%4,%5,%6,%7}}, {{%8,%9,%10,%11}}, "
        "{%0,%1,%2,%3}, %12, %13;",
        f"{WGMMA} {F}, %rd0, 0x10, !%p, -1, 1, 0, 1;",
        f"{WGMMA} {F}, {R}, %rd0, 1, -1, 1, 0;",
        f"{WGMMA} {F}, a, %rd0, %p, 1, 1, 0;",
        f"{SCALED} {F}, {R}, {{%r4,%r5}}, {F}, %r6, {{3, 1}}, %r7, {{0, 3}};",
        f"{SCALED} {F}, {R}, {{%r4,%r5}}, {F}, %r6, {{%h0, 1}}, {{%r7}}, {{0, %h1}};",
        f"{LOAD} {{%r0}}, [%rd0 + -16], 32;",
        f"{LOAD} {{%r0}}, [tile];",
        f"{LOAD} {{%r0}}, [tile+0x10], %r1;",
        "movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;",
        "wgmma.wait_group.sync.aligned 3;",
        "wgmma.fence.sync.aligned;",
    ],
)
def test_what_fits(text):
    assert str(fm.instruction(text)) == split(text).mnemonic


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            f"{SPARSE} {F}, {R}, {R}, {F}, %r8, 0x2;",
            r"f \(selector\) is 0 or 1; given 0x2",
        ),
        (f"{SPARSE} {F}, {R}, {R}, {F}, %r8, %r9;", r"f \(selector\) is 0 or 1"),
        (
            f"{SPARSE} {F}, {R}, {R}, {F}, 5, 0;",
            r"e \(metadata\) is one 32-bit register; given 5",
        ),
        (
            f"{SPARSE} {F}, {R}, {R}, {F}, %r8;",
            r"given 5 operands, f \(selector\) is missing; its operands are "
            r"\{d: 4 x .f32\}, \{a: 4 x .b32\}, \{b: 4 x .b32\}, \{c: 4 x .f32\}, "
            r"e \(metadata\): .b32, f \(selector\): 0 or 1",
        ),
        (f"{SPARSE} {F}, {R}, {R}, {F}, %r8, 0, 1;", "1 too many, from '1' on"),
        (
            f"{SPARSE} {F}, {{%r0,%r1}}, {R}, {F}, %r8, 0;",
            r"a is 4 registers in braces; given 2, \{%r0, %r1\}",
        ),
        (f"{SPARSE} garbage !!", "'garbage !!' is not a list of operands"),
        (f"{SPARSE} {F}, {R}, {R}, {F}, %r8, 0,;", "it ends too soon"),
        (f"{SPARSE} {F}, {R}, {R}, {F}, %r8, 08;", "'08' does not belong there"),
        (f"{SPARSE} {F}, {R}, {R}, {F}, %r8, 0; ret;", "one instruction at a time"),
        (f"{SPARSE} {F}, {{_,%r1,%r2,%r3}}, {R}, {F}, %r8, 0;", "a is read"),
        (f"{SPARSE} {{_,_,_,_}}, {R}, {R}, {F}, %r8, 0;", "at least one register"),
        (f"{SPARSE} _, {R}, {R}, {F}, %r8, 0;", "d is 4 registers in braces"),
        (f"{SPARSE} {{0,%f1,%f2,%f3}}, {R}, {R}, {F}, %r8, 0;", "d is written"),
        (f"{SPARSE} {F}, {{0,0,0,0}}, {R}, {F}, %r8, 0;", "at least one register"),
        (f"{SPARSE} {F}, {R}, {R}, {{0,0,0,0}}, %r8, 0;", "0f and 8 hexadecimal"),
        (f"{SPARSE} {F}, {R}, {{{R}}}, {F}, %r8, 0;", "does not belong there"),
        (
            f"@%r8 {SPARSE} {F}, {R}, {R}, {F}, %r8, 0;",
            r"%r8 cannot be the guard, a predicate, and e \(metadata\), 32 bits",
        ),
        (f"{WGMMA} {F}, %rd0, %rd1, 2, 1, 1, 0, 0;", "scale-d is a predicate"),
        (f"{WGMMA} {F}, %rd0, %rd1, %p, 0, 1, 0, 0;", "imm-scale-a is 1 or -1"),
        (f"{WGMMA} {F}, %rd0, %rd1, %p, 1, 1, 0, 2;", "imm-trans-b is 0 or 1"),
        (f"{WGMMA} {F}, {R}, %rd1, %p, 1, 1, 0, 0;", "1 too many"),
        (f"{WGMMA} {F}, %rd0, [%rd1], %p, 1, 1, 0, 0;", "b-desc is a descriptor"),
        (f"{WGMMA} {F}, %rd0, %f0, %p, 1, 1, 0, 0;", "%f0 cannot be d, 32 bits, and b"),
        (f"{WGMMA} {{_,%f1,%f2,%f3}}, %rd0, %rd1, %p, 1, 1, 0, 0;", "read and written"),
        (f"{WGMMA} d, %rd0, %rd1, %p, 1, 1, 0, 0;", "d is 4 registers in braces"),
        (
            f"{SCALED} {F}, {R}, {{%r4,%r5}}, {F}, %r6, {{0, 2}}, %r7, {{0, 0}};",
            "thread-id-a is 0 or 1 or a register; given 2",
        ),
        (
            f"{SCALED} {F}, {R}, {{%r4,%r5}}, {F}, %r6, {{4, 0}}, %r7, {{0, 0}};",
            "byte-id-a is 0, 1, 2 or 3",
        ),
        (
            f"{SCALED} {F}, {R}, {{%r4,%r5}}, {F}, %r6, 0, %r7, {{0, 0}};",
            r"here stands \{byte-id-a, thread-id-a\}; given 0",
        ),
        (
            f"{SCALED} {F}, {R}, {{%r4,%r5}}, {F}, 6, {{0, 0}}, %r7, {{0, 0}};",
            "scale-a-data is one 32-bit register",
        ),
        (f"{LOAD} {{%r0}}, %rd0;", "address is .*; given %rd0"),
        (f"{LOAD} {{%r0}}, [%rd0-16];", "'-16]' does not belong there"),
        (f"{LOAD} {{%r0}}, [%rd0+%r1];", "address is "),
        (f"{LOAD} {{%r0}}, [16];", "address is "),
        (f"{LOAD} {{%r0}}, [%rd0], 1.0;", "stride is a 32-bit register or an integer"),
        (f"{LOAD} %r0, [%rd0];", "a is 1 register in braces"),
        ("movmatrix.sync.aligned.m8n8.trans.b16 {%r0}, %r1;", "one 32-bit register"),
        (
            "spcompress.b8.b4.sp::2:4.x2 {%r1}, {%r2,%r2}, {%r4,%r5,%r6,%r7}, %r8;",
            "cdata is registers that differ",
        ),
        (
            "spcompress.b8.b4.sp::2:4.x2 {%r2}, {%r2,%r3}, {%r4,%r5,%r6,%r7}, %r8;",
            "cdata is registers that differ",
        ),
        (
            "spdecompress.b8.b4.sp::2:4.x2 {%r1,%r1}, {%r3}, {%r4};",
            "data is registers that differ",
        ),
        (
            "tcgen05.ld.red.sync.aligned.32x32b.x2.min.u32 {%r1,%r2}, %r1, [%r3];",
            "redval is registers that differ",
        ),
        ("wgmma.wait_group.sync.aligned -1;", "N is an integer constant, 0 or more"),
        ("wgmma.commit_group.sync.aligned 0;", "it has no operands"),
        (f"{SPARSE} {F}, {R}, {R}, {F}, %r8, {'9' * 5000};", r"f \(selector\)"),
    ],
)
def test_what_does_not_fit_is_named(text, said):
    with pytest.raises(fm.errors.BadOperands, match=said):
        fm.instruction(text)
    with pytest.raises(fm.errors.BadOperands, match=said):
        fm.find(text)


def test_white_space_after_a_dot_is_not_ptx():
    with pytest.raises(fm.errors.UnknownInstruction, match="not after it"):
        fm.instruction("mma.sync. aligned.m16n8k16.row.col.f32.f16.f16.f32")


def test_a_statement_is_not_endless():
    with pytest.raises(fm.errors.UnknownInstruction, match="at most 16,384 characters"):
        fm.instruction("mma" + " " * MOST)


# ── declared registers ──────────────────────────────────────────────────────


def declared(op, **types):
    found = {}
    for operand in op.operands:
        names = [f"%{operand.name}{i}" for i in range(operand.count)]
        names = names if operand.vector else [f"%{operand.name}"]
        found |= dict.fromkeys(names, types.get(operand.name, operand.ptx))
    return found


def test_declared_registers_have_to_fit():
    op = fm.instruction(SPARSE)
    text = split(ptx.statement(op)).operands
    operand_checks.check(op, text, declared=declared(op))
    operand_checks.check(op, text, declared=declared(op, c=".b32"))
    with pytest.raises(fm.errors.BadOperands, match=r"a is in .b32; given %a0, .f32"):
        operand_checks.check(op, text, declared=declared(op, a=".f32"))
    without = {k: v for k, v in declared(op).items() if k != "%metadata"}
    with pytest.raises(
        fm.errors.BadOperands, match=r"%metadata of e .* is not declared"
    ):
        operand_checks.check(op, text, declared=without)
    with pytest.raises(
        fm.errors.BadOperands, match=r"guard %p is not declared as a .pred"
    ):
        operand_checks.check(op, text, guard="%p", declared=declared(op))


def test_registers_of_one_vector_agree():
    op = fm.mma("m16n8k32", a="s8")
    text = split(ptx.statement(op)).operands
    mixed = declared(op, a=".s32") | {"%a0": ".f32"}
    with pytest.raises(fm.errors.BadOperands, match=r"one type; given .f32 and .s32"):
        operand_checks.check(op, text, declared=mixed)
