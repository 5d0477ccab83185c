"""An algebra has its turn where the hardware computes, decides and loses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fragmenta import ptx
from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import I32, I64, Code, Value, convert, intrinsic
from fragmenta.engine.planes.algebra import Algebra
from fragmenta.engine.planes.code.following import PlaneStep
from fragmenta.engine.planes.code.seconds import halves, put_halves
from fragmenta.engine.planes.elements import joined
from fragmenta.engine.planes.memory import PlaneWatch
from fragmenta.engine.simt.context import Context
from fragmenta.engine.simt.library import Routine, field
from fragmenta.engine.simt.warps import P, routine
from tests.planes.payloads import text

MOST = 64


def _count(code: Code, table: Raw, number: Value, lanes: Value) -> None:
    counts = field(code, table, 0, I64)
    ones = intrinsic(code.builder, "llvm.ctpop.i32", I32, [lanes.raw])
    found = convert(Value(code.builder, ones), I64, signed=False)
    place = convert(number, I64)
    counts[place] = counts[place] + found


COUNT = routine("test.planes.count", _count, [P, I32, I32], None)


def summed(first: int, second: int) -> Routine:
    """The sum of both numbers of the operands, plus constants."""

    def trace(code: Code, to: Raw, a: Raw, b: Raw, lanes: Value) -> None:
        (low, high), (other_low, other_high) = halves(code, a), halves(code, b)
        low, high = low + other_low + first, high + other_high + second
        put_halves(code, to, low, high, lanes)

    name = f"test.planes.summed.{first}.{second}"
    return routine(name, trace, [P, P, P, I32], None)


class Sums(PlaneStep):
    """Adds the second values of sums, and counts what happens."""

    def compute(self) -> None:
        self.count("compute")
        d, a, b = self.instruction.operands[:3]
        given = (self.pointer(each) for each in (d, a, b))
        self.writer.call(summed(1, 2), *given, self.all_lanes)

    def decides(self) -> None:
        self.count("decides")

    def lost(self) -> None:
        self.count("lost")
        self.clear()

    def given(self) -> None:
        self.count("given")
        for each in self.writes:
            at = self.pointer(each)
            self.writer.call(summed(0, 100), at, at, at, self.all_lanes)

    def reduction(self) -> None:
        self.count("reduction")
        super().reduction()

    def product(self) -> None:
        self.count("product")
        super().product()

    def after(self) -> None:
        if self.instruction.opcode == "add":
            self.probes.remembered.setdefault("sums", []).append(self.writer.index)

    def count(self, what: str) -> None:
        """Count the lanes for which a method wrote code."""
        number, lanes = f"i32 {self.number}", f"i32 {self.writer.lanes()}"
        self.probes.remembered.setdefault("hooks", {})[str(self.number)] = what
        self.writer.call(COUNT, self.table, number, lanes)


class Counted(Algebra):
    """Keeps what was counted."""

    name, step, counts_losses = "counted", Sums, True

    def begin(self, watch: PlaneWatch) -> None:
        self.counts: dict[str, int] = {}
        self.sums: list[int] = []

    def context_table(
        self, watch: PlaneWatch, context: Context
    ) -> NDArray[np.uint8] | None:
        return np.zeros(8 * MOST, np.uint8)

    def finish(self, watch: PlaneWatch) -> None:
        total = sum(each.view(np.int64) for each in watch.tables)
        for number, what in watch.compiled.remembered["hooks"].items():
            self.counts[what] = self.counts.get(what, 0) + int(total[int(number)])
        self.sums = watch.compiled.remembered.get("sums", [])
        self.seconds = joined(watch.argument(1), 32)
        self.followed = watch.compiled.followed


BODY = """
    ld.global.f32 %f1, [%of];
    add.f32 %f2, %f1, %f1;
    setp.gt.f32 %p1, %f2, 0f00000000;
    @%p1 add.f32 %f2, %f2, %f1;
    cvt.rzi.s32.f32 %r1, %f2;
    mov.b32 %r2, %f2;
    add.s32 %r3, %r2, 0;
    mov.b32 %f3, %r3;
    st.global.f32 [%to], %f2;
    red.global.add.f32 [%to], %f3;
    st.global.f32 [%to], %f2;
"""


def test_an_algebra_has_its_turn() -> None:
    x = np.arange(64, dtype=np.float32) - 10
    y = np.zeros_like(x)
    algebra = Counted()
    kernel = ptx.parse(text(BODY)).kernels["f"]
    kernel.launch(1, 64, [x, y], algebra=algebra)
    positive = np.count_nonzero(x > 0)
    assert (y == np.where(x > 0, 3 * x, 2 * x)).all()
    assert algebra.counts == {
        "given": 64,
        "compute": 64 + positive,
        "decides": 128,
        "lost": 64,
        "reduction": 64,
    }
    assert algebra.sums
    assert all(function == "f" for function, _ in algebra.followed)
    # What is loaded has (100, 0); each sum adds both operands and (2, 1).
    assert algebra.seconds[x > 0].tolist() == [[304, 2]] * positive
    assert algebra.seconds[x <= 0].tolist() == [[202, 1]] * (64 - positive)


def test_every_context_has_a_table() -> None:
    """Several threads count in tables of their own; nothing is lost."""
    x = np.ones(64, np.float32)
    algebra = Counted()
    kernel = ptx.parse(text(BODY)).kernels["f"]
    kernel.launch(1, 64, [x, np.zeros_like(x)], algebra=algebra)
    alone = dict(algebra.counts)
    body = BODY.replace("red.global.add.f32 [%to], %f3;", "")
    kernel = ptx.parse(text(body)).kernels["f"]
    kernel.launch(50, 64, [x, np.zeros_like(x)], algebra=algebra)
    del alone["reduction"]
    assert algebra.counts == {what: 50 * each for what, each in alone.items()}


def test_registers_that_no_value_goes_through_are_not_followed() -> None:
    from fragmenta.engine.planes.code.flow import followed

    kernel = ptx.parse(text(BODY)).kernels["f"]
    numbers = followed(kernel.function)
    named = {kernel.function.registers[n].name for n in numbers}
    assert named == {"%f1", "%f2", "%f3", "%r2", "%r3"}
