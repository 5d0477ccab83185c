"""``wgmma`` in machine code and in Python: the same bits, errors and schedules.

Every program is run with fast paths and without them.  All lanes store their registers
now and then, also while products are in flight: under the lazy schedule, poison shows
exactly when a product runs.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.units import wgmma_forms
from fragmenta.engine.units.clusters import Cluster
from fragmenta.engine.units.fast import layout
from fragmenta.engine.units.machine import Machine
from fragmenta.engine.units.wgmma_forms import _remember
from fragmenta.errors import Error
from fragmenta.launch import grid
from fragmenta.reference.shared.descriptor import Descriptor
from tests.thinning import repeats

TILE = 4096
WARPS = 8
SCHEDULES = ("eager", "lazy", 3)


class Form(NamedTuple):
    """A product of a program: its D begins at ``f{first}``."""

    text: str
    first: int
    registers: int
    a: str = "x0"
    rest: str = ", 1, 1, 0, 0"
    sparse: str = ""

    def line(self, b: str = "x1", scale: str = "1") -> str:
        d = ", ".join(f"f{self.first + i}" for i in range(self.registers))
        given = f"{{{d}}}, {self.a}, {b}, {self.sparse}{scale}{self.rest}"
        return f"wgmma.mma_async{self.text} {given};"


PLAIN = Form(".sync.aligned.m64n8k16.f32.f16.f16", 0, 4)
WIDE = Form(".sync.aligned.m64n16k16.f32.f16.f16", 4, 8)
IN_REGISTERS = Form(
    ".sync.aligned.m64n8k16.f32.f16.f16", 12, 4, "{r30, r31, r32, 5}", ", 1, 1, 0"
)
SPARSE = Form(".sp.sync.aligned.m64n8k32.f32.f16.f16", 16, 4, sparse="r34, 0, ")
BYTES = Form(".sync.aligned.m64n8k32.s32.s8.s8", 20, 4, rest="")
FORMS = (PLAIN, WIDE, IN_REGISTERS, SPARSE, BYTES)
D = sum(each.registers for each in FORMS)
WAIT = "wgmma.wait_group.sync.aligned {};"
COMMIT, FENCE = "wgmma.commit_group.sync.aligned;", "wgmma.fence.sync.aligned;"


def stored(number: int) -> str:
    """Store all D; ``number`` counts the places in a program."""
    lines = []
    for register in range(D):
        place = 4 * 32 * WARPS * (number * D + register)
        kind = "r" if register >= 20 else "f"
        lines.append(f"st.global.b32 [x9+{place}], {kind}{register};")
    return "\n".join(lines)


@cache
def kernel(body: str) -> ptx.Kernel:
    """A kernel that fills shared memory and registers, and runs a program."""
    word = Descriptor(0, 128, 256, 0).encode()
    loads = "\n".join(
        f"ld.shared.b32 {'r' if i >= 20 else 'f'}{i}, [r1+{4 * (i % 7)}];"
        for i in range(D)
    )
    fixed = body.replace("f20, f21, f22, f23", "r20, r21, r22, r23")
    text = f"""
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 source, .param .u64 goal, .param .u32 turns)
{{
.reg .pred p<8>; .reg .b64 x<20>; .reg .b32 r<40>; .reg .f32 f<40>;
.shared .align 1024 .b8 tile[{TILE + 4096}];
ld.param.u64 x8, [source];
ld.param.u64 x9, [goal];
ld.param.u32 r10, [turns];
mov.u32 r0, %tid.x;
mov.u32 r2, tile;
mad.lo.u32 r1, r0, 16, r2;
mul.wide.u32 x10, r0, 16;
add.u64 x8, x8, x10;
mul.wide.u32 x11, r0, 4;
add.u64 x9, x9, x11;
ld.global.v4.b32 {{r3, r4, r5, r6}}, [x8];
st.shared.v4.b32 [r1], {{r3, r4, r5, r6}};
bar.sync 0;
fence.proxy.async;
shr.u32 r7, r2, 4;
cvt.u64.u32 x12, r7;
or.b64 x0, x12, {word};
add.u64 x1, x0, 32;
add.u64 x2, x0, 64;
add.u64 x3, x0, 96;
setp.ge.u32 p0, r0, 0;
setp.lt.u32 p1, r0, 0;
shr.u32 r8, r0, 5;
{loads}
ld.shared.v2.b32 {{r30, r31}}, [r1];
ld.shared.b32 r32, [r1+12];
mov.b32 r34, 0x44444444;
{fixed}
{WAIT.format(0)}
ret;
}}
"""
    return ptx.parse(text).kernels["k"]


class Ran(NamedTuple):
    """What a launch left."""

    memory: bytes
    said: str
    counts: dict[str, int]
    time: int
    """How many events there were, if nothing was wrong."""
    calls: int
    """How often Python carried out an event."""


def launch(
    given: ptx.Kernel, fast: bool, schedule: str | int, parts: int = 1, turns: int = 1
) -> Ran:
    source = np.random.default_rng(7).integers(0, 0x3C00, 16 * 32 * WARPS // 2)
    goal = np.zeros(parts * D * 32 * WARPS, np.uint32)
    calls, times, said, counts = 0, [0], "", {}

    def counted(cluster: Cluster, *step: object) -> int:
        nonlocal calls
        calls += 1
        return event(cluster, *step)

    def ended(cluster: Cluster) -> None:
        times[0] = cluster.time
        end(cluster)

    event, end = Cluster.event, Cluster.end
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Machine, "fast", fast)
        patch.setattr(grid, "cores", lambda: 1)  # one block after the other
        patch.setattr(Cluster, "event", counted)
        patch.setattr(Cluster, "end", ended)
        try:
            made = given.launch(
                2,
                32 * WARPS,
                [source.astype(np.uint16), goal, turns],
                schedule=schedule,
                watch=False,
            )
            counts = made.counts
        except Error as error:
            said = f"{type(error).__name__}: {error}"
    return Ran(goal.tobytes(), said, counts, 0 if said else times[0], calls)


def same(given: ptx.Kernel, schedule: str | int, **how: int) -> tuple[Ran, Ran]:
    """A launch with fast paths and without, which must agree."""
    fast, slow = (launch(given, each, schedule, **how) for each in (True, False))
    assert fast._replace(calls=0) == slow._replace(calls=0)
    return fast, slow


def program(seed: int) -> tuple[str, int]:
    """A random program of products, groups, waits and stores."""
    choose, lines, parts = random.Random(seed), [FENCE], 0
    for _ in range(60):
        match choose.randrange(10):
            case 0:
                lines.append(FENCE)
            case 1 | 2:
                lines.append(COMMIT)
            case 3:
                lines.append(WAIT.format(choose.randrange(4)))
            case 4 if parts < 8:
                lines.append(stored(parts))
                parts += 1
            case _:
                of = choose.choice(FORMS)
                scale = choose.choice(("1", "0", "p0", "p1", "!p1"))
                lines.append(of.line(choose.choice(("x1", "x2", "x3")), scale))
    lines += [COMMIT, WAIT.format(0), stored(parts)]
    return "\n".join(lines), parts + 1


@pytest.mark.parametrize("seed", range(4))
def test_programs(seed: int) -> None:
    body, parts = program(seed)
    made = kernel(body)
    results = {}
    for schedule in SCHEDULES:
        fast, slow = same(made, schedule, parts=parts)
        assert not fast.said
        results[schedule] = fast.memory
        if schedule != 3:  # in a random order, Python does what is in flight
            assert fast.calls < slow.calls
    assert results["lazy"] != results["eager"]  # poison was stored
    size = len(fast.memory) // parts
    ends = {memory[-size:] for memory in results.values()}
    assert len(ends) == 1


def loop(body: str) -> str:
    return (
        f"again:\n{body}\nsub.u32 r10, r10, 1;\nsetp.ne.u32 p3, r10, 0;\n@p3 bra again;"
    )


def test_first_use_is_all_that_python_does() -> None:
    """A loop calls Python no more often if it has more turns."""
    body = f"{FENCE}\n{PLAIN.line()}\n{SPARSE.line('x2')}\n{COMMIT}\n{WAIT.format(0)}"
    made = kernel(loop(body) + stored(0))
    first, few, many = (same(made, "lazy", turns=turns)[0] for turns in (2, 2, 30))
    assert first.calls > few.calls == many.calls
    first, more = (same(made, "eager", turns=30)[0] for _ in range(2))
    assert first.calls > more.calls == few.calls


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_many_products_in_flight(schedule: str | int) -> None:
    """More than there is memory for at first: products, and groups."""
    body = loop(f"{PLAIN.line()}\n{COMMIT}\n{COMMIT}")
    made = kernel(f"{FENCE}\n{body}\n{stored(0)}\n{WAIT.format(3)}\n{stored(1)}")
    same(made, schedule, parts=2, turns=150)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_registers_of_d_in_any_order(
    schedule: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that follow each other stay in place; others are copied."""
    in_place = set()

    class Seen(wgmma_forms.FormRecord):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            in_place.add(bool(self.words[layout.FORM_IN_PLACE >> 2]))

    monkeypatch.setattr(wgmma_forms, "FormRecord", Seen)
    lines = [PLAIN.line().replace("f0, f1, f2, f3", "f3, f1, f0, f2"), WIDE.line("x2")]
    body = "\n".join([FENCE, *lines, *lines, COMMIT, WAIT.format(0), stored(0)])
    made = kernel.__wrapped__(body)  # launches of one kernel share its forms
    ran, _ = same(made, schedule)
    assert not ran.said
    assert in_place == {False, True}


@pytest.mark.parametrize("known", [1, 2, 4])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_some_forms_are_known_when_a_warpgroup_begins(
    schedule: str | int, known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two blocks run at the same time: one begins when the other is half through."""
    forms = [Form(PLAIN.text, first, 4) for first in (0, 4, 0, 4, 8, 0)]
    lines = [
        each.line(f"x{1 + number % 3}", str(number % 2))
        for number, each in enumerate(forms)
    ]
    made = kernel(
        loop("\n".join([FENCE, *lines, COMMIT, WAIT.format(1)]))
        + "\n".join([WAIT.format(0), stored(0)])
    )
    plan = property(
        lambda self: wgmma_forms.BundlePlan(tuple(self._made.values())[:known])
    )
    monkeypatch.setattr(wgmma_forms.Forms, "plan", plan)
    same(made, schedule)  # all forms are known after this
    ran, _ = same(made, schedule)
    assert not ran.said


def test_more_forms_than_there_is_memory_for_at_first() -> None:
    forms = [
        Form(PLAIN.text, first, 4).line("x1", scale)
        for first in (0, 4, 8)
        for scale in ("1", "0", "p0", "!p0", "p1", "!p1")
    ]
    body = loop("\n".join([FENCE, *forms, COMMIT, WAIT.format(0)]))
    for schedule in ("eager", "lazy"):
        same(kernel(body + stored(0)), schedule, turns=3)


OVERLAPPING = Form(WIDE.text, 0, 8)
MISTAKES = {
    "illegal metadata": f"mov.b32 r34, 0;\n{SPARSE.line()}\n{COMMIT}",
    "other lanes": f"cvt.u64.u32 x4, r0; add.u64 x1, x1, x4;\n{PLAIN.line()}",
    "another warp": f"cvt.u64.u32 x4, r8; add.u64 x1, x1, x4;\n{PLAIN.line()}",
    "out of bounds": f"add.u64 x1, x1, 0x3000;\n{PLAIN.line()}",
    "an unknown bit": f"or.b64 x1, x1, 0x4000;\n{PLAIN.line()}",
    "scale of lanes": f"setp.eq.u32 p4, r0, 5;\n{PLAIN.line('x1', 'p4')}",
    "scale of warps": f"setp.eq.u32 p4, r8, 2;\n{PLAIN.line('x1', 'p4')}",
    "another instruction": (
        f"setp.eq.u32 p4, r8, 2;\n@p4 bra other;\n{PLAIN.line()}\nbra on;\n"
        f"other:\n{WIDE.line()}\non:"
    ),
    "some lanes": (
        f"setp.eq.u32 p4, r0, 5;\n@p4 bra on;\n{PLAIN.line()}\non:\nbar.warp.sync -1;"
    ),
    "another commit": (
        f"setp.eq.u32 p4, r8, 2;\n@p4 bra on;\n{COMMIT}\non:\n{PLAIN.line()}\n{COMMIT}"
    ),
    "D in part": f"{PLAIN.line()}\n{OVERLAPPING.line()}",
}
"""Programs that end the kernel, at least under one schedule."""


# Every mistake; schedules, watched and not, take turns.
@repeats(together=1)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str, warm: bool, schedule: str | int) -> None:
    """The same words, whether or not machine code knows the instruction already."""
    good = ""
    if warm:
        known = [each.line() for each in (PLAIN, WIDE, SPARSE)]
        good = "\n".join([FENCE, *known, COMMIT, WAIT.format(0)])
    made = kernel(f"{good}\n{MISTAKES[name]}\n{COMMIT}\n{WAIT.format(0)}\n{stored(0)}")
    fast, _ = same(made, schedule)
    if name != "D in part" or schedule != "eager":
        assert fast.said


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_product_that_cannot_be_computed_is_where_it_is_issued(
    schedule: str | int,
) -> None:
    """Not where somebody waits for it, which is when it is computed."""
    wrong = f"{MISTAKES['illegal metadata']}\n{WAIT.format(0)}\n{stored(0)}"
    fast, _ = same(kernel(wrong), schedule)
    assert "illegal metadata" in fast.said
    assert "wait_group" not in fast.said


def test_descriptors_that_are_remembered() -> None:
    """More descriptors than there are places: the newest is there."""
    known = np.zeros(256, np.int64)
    for word in range(1, 2000):
        _remember(known, word << 3)
        assert word << 3 in known
