"""Lanes that store one reduction to one word: each may have rounded it differently."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta.launch.result import Result
from tests.simt.kernels import kernel

GIVEN = "ld.global.f32 %f0, [%mine]; .shared .b32 sums[32]; .reg .b32 %s;"
GIVEN += "mov.u32 %s, sums;"
GIVEN += "cvt.rn.f32.u32 %f15, %lane; add.f32 %f15, %f15, 0fC1780000;"  # minus 15.5
FUSED = "mul.f32 %f1, %f0, %f15; shfl.sync.bfly.b32 %f2, %f1, 16, 31, -1;"
FUSED += "fma.rn.f32 %f3, %f15, %f0, %f2;"
STORE = "st.shared.f32 [%s], {};"


def steps(first: int, lanes: tuple[int, ...]) -> str:
    """The rest of a butterfly: additions of a register and its shuffled self."""
    text = ""
    for number, each in enumerate(lanes):
        here = first + 2 * number
        text += f"shfl.sync.bfly.b32 %f{here + 1}, %f{here}, {each}, 31, -1;"
        text += f"add.f32 %f{here + 2}, %f{here}, %f{here + 1};"
    return text


WHOLE = FUSED + steps(3, (8, 4, 2, 1))
EIGHTS = "mad.lo.u32 %s, %lane, 4, %s; and.b32 %s, %s, 0xffffffe0;"
"""One place for each eight lanes, at lane & 24."""
PART = FUSED.replace("16, 31", "4, 31") + steps(3, (2, 1))
CASES: dict[str, tuple[str, str]] = {
    "all lanes": (WHOLE + STORE.format("%f11"), "warning"),
    "a copy of it": (
        WHOLE + "mov.f32 %f12, %f11;" + STORE.format("%f12"),
        "warning",
    ),
    "as two": (WHOLE + "st.shared.v2.f32 [%s], {%f11, %f11};", "warning"),
    "not fused": (
        "mul.f32 %f3, %f0, %f15;" + steps(3, (16, 8, 4, 2, 1)) + STORE.format("%f13"),
        "info",
    ),
    "groups of eight": (EIGHTS + PART + STORE.format("%f7"), "warning"),
    "groups of eight in one place": (PART + STORE.format("%f7"), "error"),
    "each lane its own": (STORE.format("%f0"), "error"),
    "beside another number": (WHOLE + "st.shared.v2.f32 [%s], {%f11, %f0};", "error"),
    "a register with two values": (
        WHOLE
        + "setp.lt.u32 %p1, %lane, 9; @%p1 mov.f32 %f11, %f0;"
        + STORE.format("%f11"),
        "error",
    ),
    "shuffled sums of another": (
        WHOLE.replace("add.f32 %f5, %f3", "add.f32 %f5, %f0") + STORE.format("%f11"),
        "error",
    ),
    "a product of others": (
        WHOLE.replace("fma.rn.f32 %f3, %f15, %f0", "fma.rn.f32 %f3, %f1, %f0")
        + STORE.format("%f11"),
        "error",
    ),
    "halves of a warp": (
        WHOLE.replace("%f3, 8, 31", "%f3, 8, 0x101f") + STORE.format("%f11"),
        "error",
    ),
    "integers": (
        "shfl.sync.bfly.b32 %r1, %f0, 16, 31, -1; mov.b32 %r0, %f0;"
        "sub.u32 %r2, %r0, %r1; st.shared.u32 [%s], %r2;",
        "error",
    ),
}


def welford(lanes: tuple[int, ...], mean: str = "%m1") -> str:
    """Steps of Welford's reduction, as a compiler fuses them: of mean, count, squares.

    The mean of both is ``(mean * count + other mean * other count) / (all or 1)``;
    ``mean`` is what stands there for the other mean.
    """
    text = ""
    for each in lanes:
        text += f"shfl.sync.bfly.b32 %m1, %m0, {each}, 31, -1;"
        text += f"shfl.sync.bfly.b32 %c1, %c0, {each}, 31, -1;"
        text += f"shfl.sync.bfly.b32 %q1, %q0, {each}, 31, -1;"
        text += "add.f32 %c2, %c0, %c1; max.f32 %d, %c2, 0f3F800000;"
        text += f"mul.f32 %u1, {mean}, %c1; mul.f32 %u0, %m0, %c0;"
        text += "fma.rn.f32 %m2, %m0, %c0, %u1; div.full.f32 %m2, %m2, %d;"
        text += "fma.rn.f32 %q2, %m0, %u0, %q0; add.f32 %q2, %q2, %q1;"
        text += "fma.rn.f32 %q2, %u1, %m1, %q2; mul.f32 %w, %c2, %m2;"
        text += "neg.f32 %v, %m2; fma.rn.f32 %q2, %v, %w, %q2;"
        text += "mov.f32 %m0, %m2; mov.f32 %c0, %c2; mov.f32 %q0, %q2;"
    return text


def single(text: str) -> str:
    """The same text with a register of its own for each result of a ``.f32``."""
    now: dict[str, str] = {}
    lines: list[str] = []
    registers: list[str] = []
    for line in text.split(";"):
        opcode, _, operands = line.strip().partition(" ")
        if not opcode:
            continue
        result, *given = [each.strip() for each in operands.split(",")]
        given = [now.get(each, each) for each in given]
        if not opcode.startswith("st"):
            now[result] = f"%x{len(registers)}"
            result = now[result]
            registers.append(result)
        lines.append(f"{opcode} {', '.join([result, *given])};")
    return f".reg .f32 {', '.join(registers)};" + " ".join(lines)


OWN = "add.f32 %m0, %f0, 0f00000000; add.f32 %c0, %f0, 0f40A00000;"
OWN += "add.f32 %q0, %f0, 0f3F000000;"
FIVE = (16, 8, 4, 2, 1)
LAST = "st.shared.v2.f32 [%s], {{{}, {}}};"


def reduced(text: str) -> str:
    """The same with a store of the last mean and of the last squares."""
    made = single(text)
    squares = made.rsplit("fma.rn.f32 ", 1)[1].split(",")[0]
    mean = made.rsplit("div.full.f32 ", 1)[1].split(",")[0]
    return made + LAST.format(mean, squares)


AGAIN = """
    st.shared.f32 [%mine_too], %f0; bar.sync 0;
    and.b32 %low, %t, 15; shl.b32 %four, %low, 2; add.s32 %there, %s, %four;
    ld.shared.f32 %again, [%there]; bar.sync 0;
"""
"""Sixteen numbers that all threads load, each two lanes of a warp the same."""
PLACES = ".reg .b32 %low, %four, %there, %mine_too; .reg .f32 %again;"
PLACES += "mad.lo.u32 %mine_too, %t, 4, %s;"
SIXTEEN = PLACES + AGAIN + reduced(OWN.replace("%f0", "%again") + welford(FIVE[1:]))
CASES |= {
    "Welford's": (reduced(OWN + welford(FIVE)), "warning"),
    "Welford's without a step": (reduced(OWN + welford(FIVE[1:])), "error"),
    "Welford's with a mistake": (reduced(OWN + welford(FIVE, "%m0")), "error"),
    "lanes that load the same": (SIXTEEN, "warning"),
    "lanes that load others": (SIXTEEN.replace("%t, 15", "%t, 31"), "error"),
    "what is added to it": (
        WHOLE + "add.f32 %f12, %f11, %f15;" + STORE.format("%f12"),
        "error",
    ),
    "a power of it": (
        WHOLE + "ex2.approx.f32 %f12, %f11;" + STORE.format("%f12"),
        "warning",
    ),
    "a choice by it": (
        WHOLE
        + "setp.lt.f32 %p1, %f11, %f0; selp.f32 %f12, %f11, %f0, %p1;"
        + STORE.format("%f12"),
        "error",
    ),
}


def races(found: Result) -> list[Any]:
    return [each for each in found.problems if each.rule == "shared-race"]


def given() -> Any:
    return np.random.default_rng(3).standard_normal(32).astype(np.float32)


@pytest.mark.parametrize("name", CASES)
def test_severities(name: str) -> None:
    text, severity = CASES[name]
    made = kernel(GIVEN + text + "ret;").launch(1, 32, [given()], watch="report")
    assert {each.severity for each in races(made)} - {"info"} == {severity} - {"info"}
    if severity == "warning":
        (one,) = [each for each in races(made) if each.severity == "warning"]
        assert "hold one reduction, rounded in different ways" in one.message
        assert one.hint.startswith("Let one lane store it")


BLOCKS = {
    "all warps": (SIXTEEN, "warning"),
    "a warp with others": (SIXTEEN.replace("%t, 15", "%t, 47"), "error"),
    "in a loop": (
        "mov.u32 %r1, 0; again: "
        + SIXTEEN
        + "add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 2; @%p1 bra again;",
        "error",
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_warps(name: str) -> None:
    """Two warps store what both have reduced."""
    text, severity = BLOCKS[name]
    x = np.random.default_rng(4).standard_normal(64).astype(np.float32)
    given_ = GIVEN.replace("sums[32]", "sums[64]")
    made = kernel(given_ + text + "ret;").launch(1, 64, [x], watch="report")
    assert severity in {each.severity for each in races(made)}
    assert severity == "error" or not {"error"} & {e.severity for e in races(made)}


def test_two_executions_are_not_one() -> None:
    """A loop that stores another sum to the same place, without order."""
    text = WHOLE + STORE.format("%f11")
    loop = "mov.u32 %r1, 0; again: " + text + "add.f32 %f0, %f0, %f0;"
    loop += "add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 2; @%p1 bra again; ret;"
    made = kernel(GIVEN + loop).launch(1, 32, [given()], watch="report")
    assert {each.severity for each in races(made)} >= {"error"}
