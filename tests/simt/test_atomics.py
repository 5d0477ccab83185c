"""Each atomic operation changes memory as specified, and returns the old value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.simt.kernels import kernel, run

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda old, x: old + x,
    "min": np.minimum,
    "max": np.maximum,
    "and": lambda old, x: old & x,
    "or": lambda old, x: old | x,
    "xor": lambda old, x: old ^ x,
    "exch": lambda old, x: x,
    "inc": lambda old, x: old.dtype.type(0) if old >= x else old + old.dtype.type(1),
    "dec": lambda old, x: x if old == 0 or old > x else old - old.dtype.type(1),
}
BF16 = ml_dtypes.bfloat16
# The operation, its type, how memory is seen, and elements that are changed at once.
FORMS: list[tuple[str, str, Any, int]] = [
    *((name, "u32", np.uint32, 1) for name in ("add", "min", "max", "inc", "dec")),
    *((name, "s32", np.int32, 1) for name in ("add", "min", "max")),
    *((name, "u64", np.uint64, 1) for name in ("add", "min", "max")),
    *((name, "s64", np.int64, 1) for name in ("min", "max")),
    *((name, "b32", np.uint32, 1) for name in ("and", "or", "xor", "exch")),
    *((name, "b64", np.uint64, 1) for name in ("and", "or", "xor", "exch")),
    ("add", "f32", np.float32, 1),
    ("add", "f64", np.float64, 1),
    ("add.noftz", "f16", np.float16, 1),
    ("add.noftz", "bf16", BF16, 1),
    ("add.noftz", "f16x2", np.float16, 2),
    ("add.noftz", "bf16x2", BF16, 2),
]
SPACES = {"global": "", "shared": "", "": "generic"}


def bits(type_: str) -> int:
    return 32 if type_.endswith("x2") else int(type_.strip("bfus"))


def text(number: int, operation: str, type_: str, space: str) -> str:
    """Lanes change one of four cells in turn; the generic form is a ``red``, too."""
    size = bits(type_) // 8
    register = {2: "%h", 4: "%r", 8: "%rd"}[size] + "1"
    old, kept = register[:-1] + "2", register[:-1] + "3"
    words = ".".join(filter(None, [space, operation, type_]))
    where = {"global": "%rd9", "shared": "%r9", "": "%rd8"}[space]
    change = f"atom.{words} {old}, [{where}], {register};"
    if not space and operation != "exch":
        change += f"red.{words} [{where}], {register};"
    stage = f"""
        mov.u32 %r9, cells;
        mad.lo.u32 %r9, %r8, {size}, %r9;
        cvt.u64.u32 %rd8, %r9;
        cvta.shared.u64 %rd8, %rd8;
        mad.wide.u32 %rd9, %r8, {size}, %rd7;
        mad.wide.u32 %rd6, %lane, {size}, %rd5;
        ld.global.b{8 * size} {register}, [%rd6+{256 * number}];
        mad.wide.u32 %rd4, %lane, {size}, %out;
        add.u64 %rd9, %rd9, {32 * number};"""
    if space != "global":
        stage += f"""
        @%p1 ld.global.b{8 * size} {kept}, [%rd9];
        @%p1 st.shared.b{8 * size} [%r9], {kept};
        bar.sync 0;
        {change}
        bar.sync 0;
        @%p1 ld.shared.b{8 * size} {kept}, [%r9];
        @%p1 st.global.b{8 * size} [%rd9], {kept};
        bar.sync 0;"""
    else:
        stage += change
    return f"{stage} st.global.b{8 * size} [%rd4+{256 * number}], {old};"


def numbers(dtype: Any, count: int, generator: np.random.Generator) -> np.ndarray:
    if np.issubdtype(dtype, np.integer):
        small = generator.integers(0, 8, count).astype(dtype)
        wide = np.frombuffer(generator.bytes(count * small.itemsize), dtype)
        return np.where(generator.random(count) < 0.5, small, wide)
    return (generator.standard_normal(count) * 8).astype(dtype)


class Case:
    """One form, its numbers, and what they become."""

    def __init__(self, form: tuple[str, str, Any, int], space: str) -> None:
        operation, type_, dtype, parts = form
        generator = np.random.default_rng(len(operation) + len(type_))
        self.values = numbers(dtype, 32 * parts, generator).reshape(32, parts)
        self.memory = numbers(dtype, 4 * parts, generator).reshape(4, parts)
        self.want, self.olds = self.memory.copy(), np.zeros((32, parts), dtype)
        self._change(operation, self.olds)
        if not space and operation != "exch":
            self._change(operation, self.olds.copy())

    def _change(self, operation: str, olds: np.ndarray) -> None:
        combine = OPERATIONS[operation.partition(".")[0]]
        with np.errstate(over="ignore"):
            for lane, part in np.ndindex(self.values.shape):
                olds[lane, part] = old = self.want[lane % 4, part]
                self.want[lane % 4, part] = combine(old, self.values[lane, part])


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space or "generic")
def test_every_form(space: str) -> None:
    cases = [Case(form, space) for form in FORMS]
    lines = [text(i, *form[:2], space) for i, form in enumerate(FORMS)]
    body = f"""
        .shared .align 8 .b8 cells[32];
        and.b32 %r8, %lane, 3;
        setp.lt.u32 %p1, %lane, 4;
        ld.param.u64 %rd7, [memory];
        ld.param.u64 %rd5, [values];
        {"".join(lines)}"""
    memory = np.zeros((len(FORMS), 32), np.uint8)
    values, out = (np.zeros((len(FORMS), 256), np.uint8) for _ in range(2))
    for number, case in enumerate(cases):
        memory[number, : case.memory.nbytes] = case.memory.reshape(-1).view(np.uint8)
        values[number, : case.values.nbytes] = case.values.reshape(-1).view(np.uint8)
    run(kernel(body, ".param .u64 memory, .param .u64 values"), out, memory, values)
    for number, (form, case) in enumerate(zip(FORMS, cases, strict=True)):
        found = memory[number, : case.want.nbytes].tobytes()
        assert found == case.want.tobytes(), form
        assert out[number, : case.olds.nbytes].tobytes() == case.olds.tobytes(), form


@pytest.mark.parametrize("width", [16, 32, 64])
def test_compare_and_swap(width: int) -> None:
    register = {16: "%h", 32: "%r", 64: "%rd"}[width]
    body = f"""
        ld.param.u64 %rd7, [memory];
        cvt.u{width}.u32 {register}3, %lane;
        add.u{width} {register}4, {register}3, 1;
        atom.global.cas.b{width} {register}5, [%rd7], {register}3, {register}4;
        mad.wide.u32 %rd6, %lane, {width // 8}, %out;
        st.global.b{width} [%rd6], {register}5;"""
    memory, out = np.array([3], f"u{width // 8}"), np.zeros(32, f"u{width // 8}")
    run(kernel(body, ".param .u64 memory"), out, memory)
    # Lanes 3 to 31 find what they expect, one after the other.
    assert memory[0] == 32
    assert out.tolist() == [3, 3, 3, *range(3, 32)]


def test_compare_and_swap_and_exchange_of_128_bits() -> None:
    body = """
        ld.param.u64 %rd7, [memory];
        mov.b128 %q1, {%rd1, %rd2};
        cvt.u64.u32 %rd3, %lane;
        add.u64 %rd4, %rd3, 1;
        mov.u64 %rd5, 7;
        mov.b128 %q1, {%rd3, %rd5};
        mov.b128 %q2, {%rd4, %rd5};
        atom.global.cas.b128 %q3, [%rd7], %q1, %q2;
        mov.b128 {%rd1, %rd2}, %q3;
        mad.wide.u32 %rd6, %lane, 16, %out;
        st.global.v2.u64 [%rd6], {%rd1, %rd2};
        atom.global.exch.b128 %q3, [%rd7+16], %q2;"""
    memory = np.array([30, 7, 5, 5], np.uint64)
    out = np.zeros((32, 2), np.uint64)
    run(kernel(body, ".param .u64 memory"), out, memory)
    assert memory.tolist() == [32, 7, 32, 7]
    assert out[:, 0].tolist() == [30] * 31 + [31]
    assert (out[:, 1] == 7).all()


@pytest.mark.parametrize("count", [2, 4])
def test_vectors_of_floats(count: int) -> None:
    values = ", ".join(f"%f{i + 1}" for i in range(count))
    olds = ", ".join(f"%f{i + 8}" for i in range(count))
    moves = "".join(f"mov.f32 %f{i + 1}, 0f3f800000;" for i in range(count))
    body = f"""{moves}
        ld.param.u64 %rd7, [memory];
        atom.global.v{count}.f32.add {{{olds}}}, [%rd7], {{{values}}};
        red.global.v{count}.f32.add [%rd7], {{{values}}};
        mad.wide.u32 %rd6, %lane, {4 * count}, %out;
        st.global.v{count}.f32 [%rd6], {{{olds}}};"""
    memory = np.arange(count, dtype=np.float32)
    out = np.zeros((32, count), np.float32)
    run(kernel(body, ".param .u64 memory"), out, memory)
    assert (memory == np.arange(count) + 64).all()
    assert (out == np.arange(count) + np.arange(32)[:, None]).all()


def test_lanes_that_are_held_back_change_nothing() -> None:
    body = """
        setp.lt.u32 %p1, %lane, 3;
        mov.u32 %r1, 99;
        @%p1 atom.global.add.u32 %r1, [%out], 1;
        st.global.u32 [%mine+4], %r1;"""
    out = np.zeros(33, np.uint32)
    run(kernel(body), out)
    assert out.tolist() == [3, 0, 1, 2, *[99] * 29]
