"""Registers are written before they are read, and warps are converged where they must be."""

from __future__ import annotations

import pytest

from fragmenta.ptx.checking.problem import Problem
from fragmenta.ptx.checking.texts import check_text

HEAD = """\
.version 8.0
.target sm_90a
.address_size 64
.entry f(.param .b32 n)
.reqntid 128
{
.reg .pred %p<5>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %rd<5>;
ld.param.b32 %r8, [n];
"""


def found(body: str, rule: str) -> list[Problem]:
    problems = check_text(HEAD + body + "\nret;\n}\n")
    assert not [each for each in problems if each.severity == "error"]
    return [each for each in problems if each.rule == rule]


def lines(body: str, rule: str, severity: str = "warning") -> list[int]:
    """The lines of a body, from 1, that break a rule."""
    first = HEAD.count("\n")
    return [
        each.line - first for each in found(body, rule) if each.severity == severity
    ]


# ── registers ───────────────────────────────────────────────────────────────


def test_a_register_that_is_never_written() -> None:
    body = "add.s32 %r1, %r8, %r2;\nmov.b32 %r3, %r1;"
    (problem,) = found(body, "uninitialised")
    assert "%r2 is read, but is never written" in problem.message
    assert lines(body, "uninitialised") == [1]
    assert not found("mov.b32 %r2, 1;\n" + body, "uninitialised")


def test_an_accumulator_that_is_written_only_in_its_loop() -> None:
    body = """\
LOOP:
add.s32 %r1, %r1, %r8;
setp.lt.s32 %p1, %r1, 100;
@%p1 bra LOOP;"""
    (problem,) = found(body, "uninitialised")
    assert "%r1 is read, but is written only later" in problem.message
    assert lines(body, "uninitialised") == [2]
    assert not found("mov.b32 %r1, 0;\n" + body, "uninitialised")


def test_a_way_around_the_write_is_told_but_no_warning() -> None:
    body = """\
setp.lt.s32 %p1, %r8, 5;
@%p1 bra SKIP;
mov.b32 %r1, 7;
SKIP:
add.s32 %r2, %r1, 1;"""
    assert lines(body, "uninitialised") == []
    assert lines(body, "uninitialised", "info") == [5]


def test_several_registers_of_one_instruction_are_one_problem() -> None:
    body = "add.s32 %r1, %r2, %r3;"
    (problem,) = found(body, "uninitialised")
    assert problem.message == "%r2 and 1 other register are read, but are never written"


def test_copies_of_nothing_are_no_warning() -> None:
    """Compilers move what is not defined, and do not use it."""
    assert lines("mov.b32 %r1, %r2;", "uninitialised") == []
    assert lines("mov.b32 %r1, %r2;", "uninitialised", "info") == [1]


def test_writes_under_a_predicate_count() -> None:
    body = """\
setp.lt.s32 %p1, %r8, 5;
@%p1 mov.b32 %r1, 7;
@!%p1 mov.b32 %r1, 8;
add.s32 %r2, %r1, 1;"""
    assert not found(body, "uninitialised")


def test_both_ways_write() -> None:
    body = """\
setp.lt.s32 %p1, %r8, 5;
@%p1 bra ELSE;
mov.b32 %r1, 7;
bra.uni JOIN;
ELSE:
mov.b32 %r1, 8;
JOIN:
add.s32 %r2, %r1, 1;"""
    assert not found(body, "uninitialised")


def test_an_unread_accumulator_of_wgmma() -> None:
    """With scale-d 0 it reads no accumulator: nothing is said about it."""
    registers = ", ".join(f"%f{i}" for i in range(4))
    body = f"""\
mov.b64 %rd1, 0;
setp.ne.b32 %p1, %r8, %r8;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{{registers}}}, %rd1, %rd1, %p1, 1, 1, 0, 0;"""
    assert not found(body, "uninitialised")


# ── warps ───────────────────────────────────────────────────────────────────

DIVERGENT = """\
mov.u32 %r1, %tid.x;
setp.{test} %p1, %r1, {number};
@%p1 bra SKIP;
bar.sync 0;
SKIP:
bar.sync 1;"""


@pytest.mark.parametrize(
    ("test", "number", "splits"),
    [
        ("ne.u32", 0, True),
        ("lt.u32", 16, True),
        ("lt.u32", 32, False),
        ("ge.u32", 64, False),
        ("ge.u32", 200, False),
        ("lt.s32", 65, True),
    ],
)
def test_a_branch_on_the_thread(test: str, number: int, splits: bool) -> None:
    body = DIVERGENT.format(test=test, number=number)
    assert lines(body, "aligned") == ([4] if splits else [])


def test_a_branch_on_the_warp() -> None:
    body = DIVERGENT.format(test="ne.u32", number=0).replace(
        "setp", "shr.u32 %r1, %r2, 5;\nsetp"
    )
    assert not found(body.replace("%r1, %tid", "%r2, %tid"), "aligned")


def test_a_branch_on_what_is_not_known() -> None:
    body = DIVERGENT.format(test="ne.u32", number=0).replace("%tid.x", "%ctaid.x")
    assert not found(body, "aligned")


def test_one_elected_thread() -> None:
    body = """\
elect.sync _|%p1, -1;
@!%p1 bra SKIP;
{}
SKIP:
bar.sync 1;"""
    assert lines(body.format("barrier.sync.aligned 0;"), "aligned") == [3]
    assert not found(body.format("bar.warp.sync -1;"), "aligned")


def test_a_guard() -> None:
    body = "mov.u32 %r1, %laneid;\nand.b32 %r2, %r1, 3;\nsetp.eq.b32 %p1, %r2, 0;\n@%p1 bar.sync 0;"
    (problem,) = found(body, "aligned")
    assert "its guard differs between threads of a warp" in problem.message
    assert not found(body.replace("3;", "32;"), "aligned")


def test_a_register_that_is_written_twice_is_not_known() -> None:
    body = DIVERGENT.format(test="ne.u32", number=0)
    assert not found("mov.u32 %r1, 5;\n" + body, "aligned")
