"""Each rule: a wrong statement, where it is wrong, and its repair."""

from __future__ import annotations

import pytest

from fragmenta.ptx.checking.texts import check_text
from fragmenta.ptx.rules import RULES
from tests.ptx.checking.kernels import (
    column_of,
    errors,
    kernel,
    length_of,
    line_of,
)

MMA = "mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32"
SPARSE = f"{MMA} {{%f0,%f1,%f2,%f3}}, {{%r0,%r1,%r2,%r3}}, {{%r4,%r5,%r6,%r7}}, {{%f0,%f1,%f2,%f3}}, %r8, "

# rule | what is wrong, marked | its repair
CASES = """
unknown-opcode   | «ad.s32» %r1, %r2, %r3;                                  | add.s32 %r1, %r2, %r3;
unknown-modifier | ld«.globl».f32 %f1, [%rd1];                              | ld.global.f32 %f1, [%rd1];
unknown-modifier | add.rn«.fzt».f32 %f1, %f2, %f3;                          | add.rn.ftz.f32 %f1, %f2, %f3;
modifiers        | «ld.relaxed.global.f32» %f1, [%rd1];                     | ld.relaxed.gpu.global.f32 %f1, [%rd1];
modifiers        | ld.shared«.nc».f32 %f1, [%rd1];                          | ld.global.nc.f32 %f1, [%rd1];
modifiers        | «ld.shared.v4.b64» {%rd1,%rd2,%rd3,%rd4}, [%rd5];        | ld.shared.v2.b64 {%rd1,%rd2}, [%rd5];
modifiers        | «atom.shared.add.L2::cache_hint.u32» %r1, [%rd1], %r2, %rd2; | atom.global.add.L2::cache_hint.u32 %r1, [%rd1], %r2, %rd2;
operand-count    | «add.s32» %r1, %r2;                                      | add.s32 %r1, %r2, %r3;
operand-count    | «ld.global.b32» %r1, [%rd1], %rd2;                       | ld.global.L2::cache_hint.b32 %r1, [%rd1], %rd2;
operand-count    | «bar.arrive» 0;                                          | bar.arrive 0, 64;
operand-count    | «call» (%r1), twice, (%r2, %r3);                         | call (%r1), twice, (%r2);
operand          | ld.global.b32 %r1, «%rd1»;                               | ld.global.b32 %r1, [%rd1];
operand          | add.s32 %r1, «%tid.x», %r2;                              | mov.u32 %r1, %tid.x;
operand          | add.s32 «_», %r1, %r2;                                   | add.s32 %r3, %r1, %r2;
operand          | add.s32 %r1, «tile», 4;                                  | mov.u32 %r1, tile;
operand          | ld.global.v2.b32 «%rd1», [%rd2];                         | ld.global.v2.b32 {%r1, _}, [%rd2];
operand          | ld.shared.b32 %r1, «[64]»;                               | ld.local.b32 %r1, [64];
operand          | cp.async.wait_group «%r1»;                               | cp.async.wait_group 1;
operand          | elect.sync «%r1|_», -1;                                  | elect.sync _|%p1, -1;
operand          | cp.async.bulk.tensor.2d.global.shared::cta.bulk_group «[%rd1, {%r1}]», [%r2]; | cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1, %r3}], [%r2];
register         | add.s32 %r1, %r2, «%f1»;                                 | add.f32 %f2, %r2, %f1;
register         | add.f32 «%s1», %f1, %f2;                                 | add.f32 %r1, %f1, %f2;
register         | mul.wide.u32 «%r1», %r2, %r3;                            | mul.wide.u32 %rd1, %r2, %r3;
register         | ld.global.u16 «%f1», [%rd1];                             | ld.global.u16 %rd2, [%rd1];
register         | ld.global.b32 %r1, «[%f1]»;                              | ld.global.b32 %r1, [%rd1];
register         | «@%r1» add.s32 %r1, %r2, %r3;                            | @%p1 add.s32 %r1, %r2, %r3;
register         | setp.lt.s32 «%r1», %r2, %r3;                             | setp.lt.s32 %p1|%p2, %r2, %r3;
register         | mov.b64 «{%h1, %r1}», %rd1;                              | mov.b64 {%r2, %r1}, %rd1;
constant         | add.f32 %f1, %f2, «1»;                                   | add.f32 %f1, %f2, 1.0;
constant         | add.s32 %r1, %r2, «0f3F800000»;                          | and.b32 %r1, %r2, 0f3F800000;
constant         | bar.sync «16»;                                           | bar.sync 15;
constant         | bar.sync 0, «33»;                                        | bar.sync 0, 64;
constant         | setmaxnreg.dec.sync.aligned.u32 «25»;                    | setmaxnreg.dec.sync.aligned.u32 24;
constant         | cp.async.cg.shared.global [%r1], [%rd1], «8»;            | cp.async.ca.shared.global [%r1], [%rd1], 8;
constant         | bfe.u32 %r1, %r2, «256», 3;                              | bfe.u32 %r1, %r2, 255, 3;
state-space      | ld.global.b32 %r1, «[tile]»;                             | ld.shared.b32 %r1, [tile];
state-space      | ld.b32 %r1, «[table]»;                                   | ld.const.b32 %r1, [table];
undeclared       | add.s32 %r1, %r2, «%r99»;                                | add.s32 %r1, %r2, %r9;
undeclared       | ld.shared.b32 %r1, «[tiles]»;                            | ld.shared.b32 %r1, [tile+4];
undeclared       | «@%p9» ret;                                              | @%p1 ret;
label            | bra «DOEN»;                                              | bra DONE;
target           | «redux.sync.min.f32» %f1, %f2, -1;                       | redux.sync.min.s32 %r1, %r2, -1;
version          | «clmad.lo.u64» %rd1, %rd2, %rd3, %rd4;                   | mad.lo.u64 %rd1, %rd2, %rd3, %rd4;
tensor           | «mma.sync.aligned.m16n8k64.row.col.f32.tf32.tf32.f32» {%f0,%f1,%f2,%f3}, {%r0}, {%r1}, {%f0,%f1,%f2,%f3}; | wgmma.fence.sync.aligned;
syntax           | add.s32 %r1, %r2 «%r3»;                                  | add.s32 %r1, %r2, %r3;
"""


def cases() -> list[tuple[str, str, str]]:
    found = [line.split(" | ") for line in CASES.strip().splitlines()]
    every = [
        (rule.strip(), wrong.strip(), right.strip()) for rule, wrong, right in found
    ]
    return [*every, ("tensor", f"{SPARSE}«0x2»;", f"{SPARSE}0x1;")]


@pytest.mark.parametrize(("rule", "wrong", "right"), cases())
def test_a_wrong_statement_and_its_repair(rule: str, wrong: str, right: str) -> None:
    found = errors(kernel(wrong))
    assert [each.rule for each in found] == [rule]
    (problem,) = found
    assert (problem.line, problem.column) == (line_of(wrong), column_of(wrong))
    assert rule in RULES
    if rule not in ("syntax", "operand", "register", "state-space", "undeclared"):
        assert problem.length == length_of(wrong)
    assert problem.text == wrong.replace("«", "").replace("»", "")
    assert not errors(kernel(right))


def test_the_place_of_an_operand_is_its_length() -> None:
    (problem,) = errors(kernel("add.s32 %r1,  %r2,   %f1 ;"))
    assert problem.text[problem.column - 1 :][: problem.length] == "%f1"


def test_a_statement_on_several_lines() -> None:
    wrong = "add.s32 %r1,\n  %r2, // both\n    «%f1»;"
    (problem,) = errors(kernel(wrong))
    assert (problem.line, problem.column) == (line_of(wrong), column_of(wrong))


def test_the_nearest_name_is_told() -> None:
    said = {
        "ld.globl.f32 %f1, [%rd1];": "did you mean global?",
        "bra DOEN;": "did you mean DONE?",
        "addd.s32 %r1, %r2, %r3;": "did you mean add?",
        "ld.shared.b32 %r1, [tiles];": "did you mean tile?",
    }
    for statement, hint in said.items():
        (problem,) = errors(kernel(statement))
        assert hint in problem.message


def test_modifiers_in_another_order_are_no_error() -> None:
    found = check_text(kernel("ld.f32.global %f1, [%rd1];"))
    assert [each.rule for each in found if each.severity == "error"] == []
    assert "modifier-order" in [each.rule for each in found]
    # Types, and what names the instruction, keep their places.
    assert errors(kernel("cvt.s32.f32.rni %f1, %r1;"))
    assert errors(kernel("mbarrier.try_wait.shared::cta.parity.b64 %p1, [%r1], %r2;"))


def test_what_is_newer_than_the_file() -> None:
    text = "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;"
    assert not errors(kernel(text, "sm_90", "8.0").replace(".reg .b128 %q<3>;", ""))
    (problem,) = errors(kernel(text, "sm_80"))
    assert problem.rule == "target"
    assert "it needs sm_90 and later" in problem.hint
    wide = "ld.global.v8.b32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%rd1];"
    assert not errors(kernel(wide, "sm_100"))
    assert [each.rule for each in errors(kernel(wide, "sm_90"))] == ["target"]
    (problem,) = errors(".version 8.0\n.target sm_100a\n.entry f() { ret; }")
    assert (problem.rule, problem.line, problem.column) == ("version", 2, 9)


def test_another_target() -> None:
    text = kernel("wgmma.fence.sync.aligned;")
    assert not errors(text, "sm_90a")
    rules = {each.rule for each in errors(text, "sm_100a")}
    assert rules == {"target"}
    assert not errors(kernel("ret;", "sm_80"), "sm_100a")


def test_what_the_catalogue_says() -> None:
    four = "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 {%r0,%r1,%r2,%r3}, {%r4,%r5,%r6,%r7}, {%r8,%r9}, {%r0,%r1,%r2,%r3};"
    found = {each.rule: each for each in check_text(kernel(four))}
    assert found["expanded"].severity == "info"
    assert "s8/u8" in found["expanded"].message
    assert found["deprecated"].severity == "warning"
    assert not errors(kernel(four))
    assert "expanded" not in {each.rule for each in check_text(kernel(four, "sm_80"))}
    (wrong,) = errors(kernel(four.replace("{%r8,%r9}", "{%r8}")))
    assert "b is 2 registers in braces; given 1" in wrong.message


def test_constants_are_computed_first() -> None:
    text = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2+4*16];"
    assert not errors(kernel(text))


def test_too_much_shared_memory() -> None:
    def rules(size: int, target: str) -> list[str]:
        text = f".version 8.0 .target {target} .address_size 64\n.entry f() {{ .shared .b8 x[{size}]; ret; }}"
        return [each.rule for each in errors(text)]

    assert rules(49152, "sm_80") == []
    assert rules(49153, "sm_80") == ["shared-memory"]
    assert rules(232448, "sm_90a") == []
    assert rules(232449, "sm_90a") == ["shared-memory"]
    outside = ".version 8.0 .target sm_80 .address_size 64\n.extern .shared .b8 x[];\n.shared .b8 y[40000];\n"
    body = ".entry f() { .reg .b32 %r<2>; .shared .b8 z[20000]; mov.u32 %r1, y; ret; }"
    assert [each.line for each in errors(outside + body)] == [4]
    assert not errors(outside + body.replace(", y", ", z"))
