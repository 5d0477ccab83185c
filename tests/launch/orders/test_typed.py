"""Words that atomic operations on floats and signed numbers change, in all orders."""

from __future__ import annotations

import numpy as np
import pytest

from fragmenta.watch.orders.typed import TYPED
from tests.simt.kernels import kernel
from tests.thinning import some

BODY = """
    setp.eq.u32 %p1, %warp, 0;
    @%p1 bra WAIT;
    red.relaxed.gpu.global.{add} [%out], {operand};
    ret;
WAIT:
    ld.relaxed.gpu.global.{load} {register}, [%out];
    setp.{compare} %p2, {register}, {goal};
    @%p2 bra WAIT;
    ret;
"""
ROWS = {
    # the operation, its operand, the load, a register, the comparison, the last value
    "u32": ("add.u32", "1", "u32", "%r1", "ne.u32", "64", "65"),
    "f32": ("add.f32", "0f3F800000", "f32", "%f1", "neu.f32", "64.0", "65.0"),
    "bits": ("add.f32", "0f3F800000", "u32", "%r1", "ne.u32", "0x42800000", "64"),
    "rounds": (
        "add.f32",
        "0f4B000001",  # 2**23 + 1: sums above 2**24 are even
        "u32",
        "%r1",
        "ne.u32",
        "SUM",
        "0x4B000001",
    ),
    "f64": ("add.f64", "0d3FF0000000000000", "f64", "%fd1", "neu.f64", "64.0", "63.5"),
    "min": ("min.s32", "-5", "s32", "%r1", "ne.s32", "-5", "5"),
}


def summed() -> str:
    """The sum of 64 equal numbers, rounded after each."""
    one = np.uint32(0x4B000001).view(np.float32)
    total = np.float32(0)
    for _ in range(64):
        total = np.float32(total + one)
    return hex(int(total.view(np.uint32)))


@pytest.mark.long
@pytest.mark.parametrize("name", some(ROWS, 2))
def test_a_loop_on_a_float_ends(name: str) -> None:
    add, operand, load, register, compare, right, wrong = ROWS[name]
    for goal in (right, wrong):
        text = BODY.format(
            add=add,
            operand=operand,
            load=load,
            register=register,
            compare=compare,
            goal=summed() if goal == "SUM" else goal,
        )
        out = np.zeros(4, np.uint32)
        result = kernel(text).launch(1, 96, [out], orders="all", watch="report")
        assert result.orders.hangs == (goal == wrong)
        assert goal == wrong or result.orders.verdict == "all orders"


@pytest.mark.parametrize("name", TYPED)
def test_what_a_typed_operation_computes(name: str) -> None:
    """Bits of halves side by side do not touch each other."""
    operation, _, kind = name.partition(".")
    base, _, count = kind.partition("x")
    kinds = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "s32": 32, "s64": 64}
    size, count = kinds[base], int(count or 1)
    one, two, three = {
        "f16": (0x3C00, 0x4000, 0x4200),
        "bf16": (0x3F80, 0x4000, 0x4040),
        "f32": (0x3F800000, 0x40000000, 0x40400000),
        "f64": (1023 << 52, 1024 << 52, 0x4008 << 48),
        "s32": (1, 2, 3),
        "s64": (1, 2, 3),
    }[base]
    minus = (1 << size) - 1 if base[0] == "s" else one | 1 << size - 1
    every = sum(1 << size * i for i in range(count))
    expected = {"add": three, "min": one, "max": two}[operation]
    assert TYPED[name](one * every, two * every) == expected * every
    if operation != "add":
        low = {"min": minus, "max": two}[operation]
        assert TYPED[name](minus * every, two * every) == low * every
