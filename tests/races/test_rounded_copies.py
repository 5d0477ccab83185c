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


def test_two_executions_are_not_one() -> None:
    """A loop that stores another sum to the same place, without order."""
    text = WHOLE + STORE.format("%f11")
    loop = "mov.u32 %r1, 0; again: " + text + "add.f32 %f0, %f0, %f0;"
    loop += "add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 2; @%p1 bra again; ret;"
    made = kernel(GIVEN + loop).launch(1, 32, [given()], watch="report")
    assert {each.severity for each in races(made)} >= {"error"}
