"""A register of a product in flight is reported when another instruction touches it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta.engine.simt.mode import Mode
from fragmenta.engine.units.machine import Machine
from fragmenta.engine.units.port import Port
from fragmenta.ptx.reading.file import parse
from fragmenta.watch.races.probes.register_roles import Role, roles
from fragmenta.watch.races.register_watch import RegisterWatch
from tests.simt.kernels import HEAD, kernel
from tests.thinning import repeats

FENCE = "wgmma.fence.sync.aligned;"
COMMIT = "wgmma.commit_group.sync.aligned;"
WAIT = "wgmma.wait_group.sync.aligned 0;"
DENSE = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
WIDE = "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16"
SPARSE = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
D, A = "{%f0, %f1, %f2, %f3}", "{%r0, %r1, %r2, %r3}"
BEGIN = """
    .shared .align 1024 .b8 tile[8192];
    mov.u32 %r20, tile;
    shr.u32 %r20, %r20, 4;
    cvt.u64.u32 %rd1, %r20;
    mov.b64 %rd2, 0x0000001000080000;
    or.b64 %rd1, %rd1, %rd2;
    mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
    mov.u32 %r0, 0; mov.u32 %r1, 0; mov.u32 %r2, 0; mov.u32 %r3, 0;
    mov.u32 %r8, 0x44444444;
    setp.eq.u32 %p1, %r0, 0;
    setp.ne.u32 %p2, %r0, 0;
"""
END = "st.global.f32 [%mine], %f0;"
MULTIPLY = f"{DENSE} {D}, {A}, %rd1, 1, 1, 1, 0;"
FROM_SHARED = f"{DENSE} {D}, %rd1, %rd1, 1, 1, 1, 0, 0;"
HALVES = f"{DENSE.replace('f32', 'f16')} {{%r0, %r1}}, %rd1, %rd1, 1, 1, 1, 0, 0;"
SPARSELY = f"{SPARSE} {D}, {A}, %rd1, %r8, 0, 1, 1, 1, 0;"


class Watching(Port):
    """Watches registers, and nothing else."""

    functions = None  # it has to see every event

    def __init__(self, dirty: int) -> None:
        self.registers = RegisterWatch(dirty)
        for name in ("begin", "touch", "acquire", "fence"):
            setattr(self, name, getattr(self.registers, name))


@pytest.fixture(autouse=True)
def _watched(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Machine.port

    def port(machine: Machine, cluster: Any) -> Any:
        if Mode.of(machine.launch.compiled.mode).defined:  # it needs its shadows
            return before(machine, cluster)
        return Watching(machine.launch.compiled.dirty)

    monkeypatch.setattr(Machine, "port", port)


def found(*lines: str, schedule: str = "eager") -> list[tuple[str, str, str]]:
    """Rule, severity and text of the instruction of every problem."""
    text = "\n".join([BEGIN, *lines, END])
    out = np.zeros(2 * 128, np.uint32)
    result = kernel(text).launch(2, 128, [out], watch="report", schedule=schedule)
    return [
        (each.rule, each.severity, each.text)
        for each in result.problems
        if "wgmma" in each.rule
    ]


READ, WRITE, CLEAR = "mov.f32 %f9, %f1;", "mov.u32 %r2, 7;", "mov.f32 %f2, 0f00000000;"
CLEAN = {
    "one product": (FENCE, MULTIPLY, COMMIT, WAIT, "add.f32 %f0, %f0, %f1;"),
    "a chain": (FENCE, MULTIPLY, MULTIPLY, COMMIT, MULTIPLY, COMMIT, WAIT),
    "A from shared memory, as it is": (
        FENCE,
        FROM_SHARED,
        "mov.u32 %r9, %r0;",
        COMMIT,
        WAIT,
    ),
    "a fence after a change": (
        FENCE,
        MULTIPLY,
        COMMIT,
        WAIT,
        "mov.u32 %r0, 5;",
        FENCE,
        MULTIPLY,
        COMMIT,
        WAIT,
    ),
    "other registers meanwhile": (
        FENCE,
        MULTIPLY,
        COMMIT,
        "mov.f32 %f9, 0f3F800000;",
        "add.f32 %f9, %f9, %f9;",
        WAIT,
    ),
    "a register of another product, not in flight": (
        FENCE,
        MULTIPLY,
        COMMIT,
        WAIT,
        FENCE,
        f"{DENSE} {{%f4, %f5, %f6, %f7}}, %rd1, %rd1, 1, 1, 1, 0, 0;",
        COMMIT,
        "mov.f32 %f8, %f0;",
        "mov.u32 %r0, 7;",
        WAIT,
        "mov.f32 %f8, %f4;",
    ),
    "no lane takes part": (
        FENCE,
        MULTIPLY,
        COMMIT,
        "@%p2 mov.f32 %f9, %f1;",
        "@%p2 mov.u32 %r0, 1;",
        MULTIPLY,
        COMMIT,
        WAIT,
    ),
    "lanes of one warp come apart before": (
        "setp.eq.u32 %p3, %t, 40;",
        "@%p3 bra L1;",
        "add.u32 %r9, %r9, 1;",
        "L1:",
        FENCE,
        MULTIPLY,
        COMMIT,
        WAIT,
    ),
    # Compilers put moves there.
    "A is moved to its place after the fence": (FENCE, WRITE, MULTIPLY, COMMIT, WAIT),
    "D is cleared after the fence": (FENCE, CLEAR, FROM_SHARED, COMMIT, WAIT),
    "D is read before a new fence": (
        FENCE,
        FROM_SHARED,
        COMMIT,
        WAIT,
        READ,
        FENCE,
        FROM_SHARED,
        COMMIT,
        WAIT,
    ),
    "A is read and stays as it is": (
        FENCE,
        MULTIPLY,
        COMMIT,
        WAIT,
        "mov.u32 %r9, %r1;",
        MULTIPLY,
        COMMIT,
        WAIT,
    ),
    "descriptors may change": (FENCE, MULTIPLY, "add.u64 %rd1, %rd1, 0;", COMMIT, WAIT),
    "metadata may be read": (
        FENCE,
        SPARSELY,
        "mov.u32 %r9, %r8;",
        COMMIT,
        WAIT,
        "mov.u32 %r8, 0x44444444;",
        SPARSELY,
        COMMIT,
        WAIT,
    ),
}
COMPUTE = "add.u32 %r2, %r2, 7;"
FLIGHT, NO_FENCE = "wgmma-registers-in-flight", "missing-wgmma-fence"
WRONG = {
    "D is read": (
        (FENCE, MULTIPLY, COMMIT, READ, WAIT),
        [(FLIGHT, "warning", READ)],
    ),
    "D is written by some lanes": (
        (FENCE, MULTIPLY, COMMIT, "@%p1 mov.f32 %f1, %f9;", WAIT),
        [(FLIGHT, "warning", "@%p1 mov.f32 %f1, %f9;")],
    ),
    "A is written": (
        (FENCE, MULTIPLY, COMMIT, WRITE, WAIT),
        [(FLIGHT, "warning", WRITE)],
    ),
    "A is read": (
        (FENCE, MULTIPLY, COMMIT, "mov.u32 %r9, %r1;", WAIT),
        [(FLIGHT, "warning", "mov.u32 %r9, %r1;")],
    ),
    "a group is left": (
        (FENCE, MULTIPLY, COMMIT, "wgmma.wait_group.sync.aligned 1;", READ, WAIT),
        [(FLIGHT, "warning", READ)],
    ),
    "nothing is committed": (
        (FENCE, MULTIPLY, WAIT, READ),
        [(FLIGHT, "warning", READ), (FLIGHT, "warning", END)],
    ),
    "the metadata is written": (
        (FENCE, SPARSELY, COMMIT, "mov.u32 %r8, 0x44444444;", WAIT),
        [(FLIGHT, "error", "mov.u32 %r8, 0x44444444;")],
    ),
    "no fence at all": (
        (MULTIPLY, COMMIT, WAIT),
        [(NO_FENCE, "warning", MULTIPLY)],
    ),
    "A is written after the fence": (
        (FENCE, COMPUTE, MULTIPLY, COMMIT, WAIT),
        [(NO_FENCE, "warning", MULTIPLY)],
    ),
    "D is written after the fence": (
        (FENCE, "add.f32 %f2, %f2, %f2;", FROM_SHARED, COMMIT, WAIT),
        [(NO_FENCE, "warning", FROM_SHARED)],
    ),
    "D is moved behind a wait, without a new fence": (
        (FENCE, FROM_SHARED, COMMIT, WAIT, CLEAR, FROM_SHARED, COMMIT, WAIT),
        [(NO_FENCE, "warning", FROM_SHARED)],
    ),
    "D is read behind a wait, without a new fence": (
        (FENCE, FROM_SHARED, COMMIT, WAIT, READ, FROM_SHARED, COMMIT, WAIT),
        [(NO_FENCE, "warning", FROM_SHARED)],
    ),
    "D becomes A": (
        (FENCE, HALVES, COMMIT, WAIT, MULTIPLY, COMMIT, WAIT),
        [(NO_FENCE, "warning", MULTIPLY)],
    ),
    "D becomes A while it is in flight": (
        (FENCE, HALVES, COMMIT, FENCE, MULTIPLY, COMMIT, WAIT),
        [(FLIGHT, "warning", MULTIPLY)],
    ),
}


# Every kernel; schedules take turns.
@repeats(together=1)
@pytest.mark.parametrize("name", CLEAN)
@pytest.mark.parametrize("schedule", ["eager", "lazy"])
def test_clean_code_is_silent(name: str, schedule: str) -> None:
    assert found(*CLEAN[name], schedule=schedule) == []


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told(name: str) -> None:
    lines, want = WRONG[name]
    assert found(*lines) == want


def test_products_of_other_shapes_in_flight() -> None:
    wide = (
        f"{WIDE} {{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}}, %rd1, %rd1, 1, 1, 1, 0, 0;"
    )
    problems = found(FENCE, MULTIPLY, COMMIT, FENCE, wide, COMMIT, WAIT)
    assert problems == [(FLIGHT, "warning", wide)]
    problems = found(FENCE, MULTIPLY, COMMIT, WAIT, wide, COMMIT, WAIT)
    assert problems == [(NO_FENCE, "warning", wide)]
    assert found(FENCE, MULTIPLY, COMMIT, WAIT, FENCE, wide, COMMIT, WAIT) == []


def test_roles_of_registers() -> None:
    text = f"""{HEAD}.visible .entry k() {{
        .reg .b32 %r<10>; .reg .f32 %f<4>; .reg .b64 %rd<2>;
        {SPARSELY}
        {DENSE} {{%f0, %f1, %f2, %f3}}, {{%r4, %r1, %r2, 0}}, %rd1, 1, 1, 1, 0;
        add.u32 %r9, %r8, %r0; ret; }}"""
    function = parse(text).functions["k"]
    named = {each.number: each.name for each in function.registers}
    by_name = {named[number]: role for number, role in roles(function).items()}
    assert by_name == {
        **dict.fromkeys(("%f0", "%f1", "%f2", "%f3"), Role.ACCUMULATOR),
        **dict.fromkeys(("%r0", "%r1", "%r2", "%r3", "%r4"), Role.FRAGMENT),
        "%r8": Role.METADATA,
    }
