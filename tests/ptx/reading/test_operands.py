"""Every form of an operand is read as what it is."""

import pytest

from fragmenta.ptx.module import (
    Address,
    Immediate,
    Label,
    Negative,
    Not,
    OperandGroup,
    Pair,
    Register,
    RegisterPart,
    Sink,
    Special,
    Symbol,
    Vector,
)
from tests.ptx.reading.texts import kernel, one


def shown(operand: object) -> str:
    """An operand in one line: registers by their names."""
    match operand:
        case Register():
            return operand.name
        case RegisterPart():
            return f"{operand.of.name}.{operand.which}"
        case Not():
            return f"!{operand.of.name}"
        case Negative():
            return f"-{shown(operand.of)}"
        case Special() | Label():
            return operand.name
        case Sink():
            return "_"
        case Immediate():
            return f"{operand.form} {operand.value}"
        case Symbol():
            return f"&{operand.name}+{operand.offset}"
        case Vector():
            return "{" + " ".join(map(shown, operand.items)) + "}"
        case OperandGroup():
            return "(" + " ".join(map(shown, operand.items)) + ")"
        case Pair():
            return f"{shown(operand.first)}|{shown(operand.second)}"
        case Address():
            base = operand.base if operand.base == 0 else shown(operand.base)
            items = "".join(f", {shown(item)}" for item in operand.items)
            return f"[{base} {operand.offset}{items}]"
    raise AssertionError(operand)


@pytest.mark.parametrize(
    "statement, expected",
    [
        ("mov.u32 %r1, 5;", "%r1, int 5"),
        ("mov.u32 %r1,5 ;", "%r1, int 5"),
        ("mov.u32 %r1, -5;", "%r1, int -5"),
        ("mov.u32 %r1, WARP_SZ;", "%r1, int 32"),
        ("mov.f32 %f1, 0f3FC00000;", "%f1, f32 1.5"),
        ("mov.f64 %fd1, 0d3FF8000000000000;", "%fd1, f64 1.5"),
        ("mov.f32 %f1, 1.5;", "%f1, f64 1.5"),
        ("mov.u32 %r1, %tid.x;", "%r1, %tid.x"),
        ("mov.u32 %r1, %tid .x;", "%r1, %tid.x"),
        (
            "mov.v4.u32 %u, %tid;",
            "{%u.x %u.y %u.z %u.w}, {%tid.x %tid.y %tid.z %tid.w}",
        ),
        ("mov.u64 %rd1, %clock64;", "%rd1, %clock64"),
        ("mov.u32 %r1, %envreg31;", "%r1, %envreg31"),
        ("mov.f32 %f1, %v.x;", "%f1, %v.x"),
        ("vadd.s32.u32.s32 %r1, %r2.b0, %r3.h1;", "%r1, %r2.b0, %r3.h1"),
        ("vmad.s32.s32.s32 %r1, -%r2.b0, %r3, -%r4;", "%r1, -%r2.b0, %r3, -%r4"),
        ("and.pred %p1, %p2, !%p1;", "%p1, %p2, !%p1"),
        ("setp.eq.s32 %p1|%p2, %r1, 0;", "%p1|%p2, %r1, int 0"),
        ("setp.eq.s32 _ | %p2, %r1, 0;", "_|%p2, %r1, int 0"),
        ("mov.b64 {_, %r1}, %rd1;", "{_ %r1}, %rd1"),
        ("st.global.v2.u32 [a], {-1, 1+1};", "[&a+0 0], {int -1 int 2}"),
        ("ld.global.u32 %r1, [%rd1];", "%r1, [%rd1 0]"),
        ("ld.global.u32 %r1, [%rd1+8];", "%r1, [%rd1 8]"),
        ("ld.global.u32 %r1, [%rd1+-8];", "%r1, [%rd1 -8]"),
        ("ld.global.u32 %r1, [%rd1-8];", "%r1, [%rd1 -8]"),
        ("ld.global.u32 %r1, [ %rd1 + 0x10 ];", "%r1, [%rd1 16]"),
        ("ld.global.u32 %r1, [%rd1+4*2+(1<<4)];", "%r1, [%rd1 24]"),
        ("ld.param.u64 %rd1, [given];", "%rd1, [&given+0 0]"),
        ("ld.global.u32 %r1, [a+12];", "%r1, [&a+0 12]"),
        ("ld.global.u32 %r1, a[3];", "%r1, [&a+0 12]"),
        ("ld.local.u32 %r1, [64];", "%r1, [0 64]"),
        ("mov.u64 %rd1, a;", "%rd1, &a+0"),
        ("mov.u64 %rd1, a+4*2;", "%rd1, &a+8"),
        ("mov.u64 %rd1, a[5];", "%rd1, &a+20"),
        ("mov.u64 %rd1, quiet;", "%rd1, &quiet+0"),
        ("call quiet;", "&quiet+0"),
        ("call quiet, ();", "&quiet+0, ()"),
        ("call.uni (%r1), next, (%r2);", "(%r1), &next+0, (%r2)"),
        ("call (_),\nnext,\n(5)\n;", "(_), &next+0, (int 5)"),
        ("red.async.b32 [%r1], 1+2*3;", "[%r1 0], int 7"),
        (
            "tex.2d.v4.f32.f32 {%f1,%f1,%f1,%f1}|%p1, [picture, {%f1,%f2}];",
            "{%f1 %f1 %f1 %f1}|%p1, [&picture+0 0, {%f1 %f2}]",
        ),
        (
            "tex.1d.v4.f32.s32 {%f1,_,%f1,%f1}, [picture, %rd1, %r1];",
            "{%f1 _ %f1 %f1}, [&picture+0 0, %rd1, %r1]",
        ),
        (
            "cp.async.bulk.tensor.2d.global [%rd1, {%r1, 0}], [%r3];",
            "[%rd1 0, {%r1 int 0}], [%r3 0]",
        ),
        (
            "cp.async.bulk.tensor.3d [%r1], [%rd1, {0,0,0}, {%rs1}], [%r2], {%rs1};",
            "[%r1 0], [%rd1 0, {int 0 int 0 int 0}, {%rs1}], [%r2 0], {%rs1}",
        ),
    ],
)
def test_forms(statement, expected):
    assert ", ".join(map(shown, one(statement).operands)) == expected


@pytest.mark.parametrize("form", ["0f7FC00001", "0F7fc00001"])
def test_floats_keep_their_bits(form):
    value = one(f"mov.f32 %f1, {form};").operands[1]
    assert isinstance(value, Immediate)
    assert value.bits == 0x7FC00001


def test_integers_have_64_bits():
    value = one("mov.u64 %rd1, -2;").operands[1]
    assert value == Immediate(-2, "int", 2**64 - 2)


@pytest.mark.parametrize(
    "statement, mnemonic",
    [
        ("add.s32 %r1, %r2, %r3;", "add.s32"),
        ("add .s32 %r1, %r2, %r3;", "add.s32"),
        ("add\n.s32\n%r1, %r2, %r3;", "add.s32"),
        ("mov/* of */.u32 /* 32 bits */ %r1, // here\n 1;", "mov.u32"),
        (
            "ld.global.L1::evict_last.L2::128B.u32 %r1, [a];",
            "ld.global.L1::evict_last.L2::128B.u32",
        ),
        ("no_such_opcode.x1.y::z %r1;", "no_such_opcode.x1.y::z"),
        ("ret.uni;", "ret.uni"),
    ],
)
def test_mnemonics(statement, mnemonic):
    found = one(statement)
    assert found.mnemonic == mnemonic
    assert found.opcode == mnemonic.partition(".")[0]
    assert ".".join((found.opcode, *found.qualifiers)) == mnemonic


@pytest.mark.parametrize("guard", ["@!%p1", "@! %p1", "@ !%p1", "@ ! %p1"])
def test_guards(guard):
    found = one(f"{guard} mov.u32 %r1, 1;")
    assert shown(found.guard) == "!%p1"
    assert shown(one("@%p2\nmov.u32 %r1, 1;").guard) == "%p2"
    assert one("mov.u32 %r1, 1;").guard is None


def test_equal_operands_are_equal():
    first, second, _ = kernel("mov.b32 %r1, 1; mov.b32  %r1 , 0x1;").instructions
    assert first.operands == second.operands
