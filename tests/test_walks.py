"""The five walks of CONTRIBUTING: what is new is written in as few files as it says there.

Each walk adds something made up to a copy of the sources.  A process that imports the copy
asks every instrument about it, in one launch.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import fragmenta

SOURCES = Path(fragmenta.__file__).parent
ASK = '''
import json
import numpy as np
import fragmenta as fm
from fragmenta import ptx
from fragmenta.ptx.checking.texts import check_text

HEAD = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x)
{
    .reg .b32 %r<40>; .reg .b64 %rd<8>; .reg .pred %p<4>; .reg .f32 %f<8>;
    .shared .align 128 .b8 tile[128]; .shared .align 8 .b64 bar;
    ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1;
"""

def every(body, x, opcode):
    "What all instruments say about a kernel with one array of floats."
    text = HEAD + body + "st.global.f32 [%rd2], %f1; ret; }"
    kernel = ptx.parse(text).kernels["k"]
    result = kernel.launch(1, 32, [x], schedule=["eager", "lazy", 3], instruments=[
        ptx.Watch("report"), ptx.Counting(), ptx.ExactValues(), ptx.Window(),
        ptx.AllOrders(1000)])
    replayed = result.replay("lazy")
    sites = [replayed.sites[each].opcode for each in replayed.steps.site]
    call = ptx.Call(kernel, 1, 32, [x])
    counts = result.counters.metrics
    return {
        "check": [each.rule for each in check_text(text)],
        "watch": sorted({each.rule for each in result.problems}),
        "x": [float(x.min()), float(x.max())],
        "error": max(float(abs(each["x"].error).max()) for each in result.followed),
        "lost": sum(each.lost_nodes for each in result.followed),
        "counted": counts["ptx__inst_executed.sum"] >= len(sites),
        "replayed": any(each.startswith(opcode) for each in sites),
        "orders": result.orders.verdict,
        "same": ptx.same(call, call).verdict,
    }
'''
CLEAN = {
    "check": [],
    "watch": [],
    "error": 0.0,
    "lost": 0,
    "counted": True,
    "replayed": True,
    "orders": "all orders",
    "same": "same",
}


class Walk(NamedTuple):
    """Something new."""

    edits: dict[str, tuple[str, str]]
    """For each file, a text in it and what stands there then; a new file has no text."""
    script: str
    """Prints what instruments say, as JSON."""
    wanted: dict[str, Any]


WALKS = {
    "a shape of mma": Walk(
        {
            "reference/isa/tables/mma.py": (
                "m16n8k8 m16n8k16         | bf16",
                "m16n8k8 m16n8k16 m16n8k32 | bf16",
            )
        },
        """
op = fm.mma("m16n8k32", a="bf16")
rng = np.random.default_rng(0)
A, B = rng.integers(-3, 4, (16, 32)), rng.integers(-3, 4, (32, 8))
C = np.zeros((16, 8), np.float32)
d = op.execute(op.a.pack(A.astype("f4")), op.b.pack(B.astype("f4")), op.c.pack(C))
product = bool((op.d.unpack(d) == A @ B).all())
ones = "".join(f"mov.b32 %r{i}, 0x3f803f80; " for i in range(2, 14))
name = "mma.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32"
a, b = (", ".join(f"%r{i}" for i in some) for some in (range(2, 10), range(10, 14)))
body = ones + "mov.f32 %f5, 0f00000000;" + f'''
    {name} {{%f1, %f2, %f3, %f4}}, {{{a}}}, {{{b}}}, {{%f5, %f5, %f5, %f5}};
'''
seen = every(body, np.zeros(32, np.float32), "mma")
print(json.dumps({**seen, "product": product}))
""",
        {**CLEAN, "x": [32.0, 32.0], "product": True},
    ),
    "an opcode": Walk(
        {
            "ptx/opcodes/integer.py": (
                "# ── sums with a carry",
                '''@opcodes("""
    twice.type  d, a ; type = u32 s32 ; kind = carries
""")
def twice(q: Qualifiers, a: Value) -> Value:
    """``2 a``."""
    return a + a


# ── sums with a carry''',
            )
        },
        """
body = "twice.u32 %r2, %r1; cvt.rn.f32.u32 %f1, %r2;"
print(json.dumps(every(body, np.ones(32, np.float32), "twice")))
""",
        {**CLEAN, "x": [0.0, 62.0]},
    ),
    "a hazard rule": Walk(
        {
            "ptx/rules.py": (
                "UNKNOWN_OPCODE = Rule(",
                """BY_HAND = Rule(
    "by-hand",
    WARNING,
    "Bytes are counted for an mbarrier that no copy has brought.",
    launch=True,
    repair="Let a copy bring them.",
)
UNKNOWN_OPCODE = Rule(""",
            ),
            "engine/units/mbarriers.py": (
                '    """Count bytes as arrived, without a copy."""',
                '''    """Count bytes as arrived, without a copy."""
    warp.report(rules.BY_HAND, event, lanes, "no copy has brought these bytes")''',
            ),
        },
        """
body = '''
    setp.ne.u32 %p2, %r1, 0;
    @%p2 bra ready;
    mbarrier.init.shared.b64 [bar], 1;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 4;
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 4;
ready:
    bar.sync 0;
    again: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra again;
    cvt.rn.f32.u32 %f1, %r1;
'''
print(json.dumps(every(body, np.ones(32, np.float32), "mbarrier.complete_tx")))
""",
        {**CLEAN, "watch": ["by-hand"], "x": [0.0, 31.0]},
    ),
    "a front end": Walk(
        {
            "frontends/pocket.py": (
                "",
                '''"""Kernels of a pocket calculator: a formula of x for each thread."""

from contextlib import contextmanager

from fragmenta.frontends.protocol import CompiledPtx, Passed, Session
from fragmenta.ptx.languages import CUDA


class Formula:
    launch = None

    def __init__(self, text):
        self.text = text

    def __call__(self, x):
        return Formula.launch(self, 1, x.size, [x])


class Pocket:
    words = CUDA._replace(language="pocket", block_barrier="together()")

    def made(self, kernel, arguments, target):
        return CompiledPtx(kernel.text)

    def passed(self, kernel, arguments):
        return [Passed("x", each) for each in arguments]

    def divert(self, session):
        Formula.launch = session.launch
        return lambda: setattr(Formula, "launch", None)


@contextmanager
def on_cpu(target="sm_90a", **options):
    with Session(Pocket(), target, **options).diverted() as session:
        yield session
''',
            )
        },
        """
from fragmenta.frontends import pocket

body = "cvt.rn.f32.u32 %f1, %r1; mul.f32 %f1, %f1, 0f40000000;"
seen = every(body, np.ones(32, np.float32), "mul")
race = pocket.Formula(HEAD + '''
    setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [tile], %r1;
    setp.eq.u32 %p2, %r1, 32; @!%p2 ret;
    ld.shared.f32 %f1, [tile]; st.global.f32 [%rd2], %f1; ret; }''')
with pocket.on_cpu(watch="report", numerics=True) as cpu:
    x = np.ones(32, np.float32)
    pocket.Formula(HEAD + body + "st.global.f32 [%rd2], %f1; ret; }")(x)
    seen["followed"] = float(cpu.last.numerics["x"].error.max())
    race(np.ones(64, np.float32))
    seen["hint"] = "together()" in cpu.last.problems[0].hint
print(json.dumps({**seen, "last": x[-1].item()}))
""",
        {
            **CLEAN,
            "x": [0.0, 62.0],
            "last": 62.0,
            "followed": 0.0,
            "hint": True,
        },
    ),
    "an asynchronous unit": Walk(
        {
            "ptx/opcodes/synchronising.py": (
                "# ── mbarrier",
                '''declare("""
cp.fill.async.shared::cta.mbarrier::complete_tx::bytes  [d], a:u32, size:u32, [mbar] ; ptx = 8.0 ; kind = copies
""")

# ── mbarrier''',
            ),
            "ptx/effects.py": (
                "cp.async.bulk                 | bulk_group ",
                "cp.fill.async                 |                              | thread "
                "      | registers             | shared    | async    | mbarrier    |\n"
                "cp.async.bulk                 | bulk_group ",
            ),
            "engine/units/filling.py": (
                "",
                '''"""``cp.fill.async``: fills shared memory with a byte."""

from __future__ import annotations

import numpy as np

from fragmenta.ptx.effects import effect
from fragmenta.engine.units.blocks import Thread, Warp
from fragmenta.engine.units.copy_events import issue
from fragmenta.engine.units.events import Event, carries_out, numbers
from fragmenta.engine.units.work import Copy, Range, in_shared, shared_address


class Fill(Copy):
    """``cp.fill.async``."""

    name = "fill"
    effect = effect("cp.fill.async")

    def __init__(self, warp: Warp, event: Event, lane: int) -> None:
        goal, byte, size, mbarrier = (x.value(warp, lane) for x in event.operands)
        super().__init__(warp.block, Thread(warp, lane), event.site)
        rank, offset = shared_address(warp.block, goal, "the goal", "shared::cta")
        self.byte, self.bytes = byte, size
        self.place = in_shared(warp.block, rank, offset, size, "the goal")
        self._signal(mbarrier, "shared::cta", rank)

    @property
    def goals(self) -> list[Range]:
        """What it writes."""
        return [self.place.range]

    def write(self) -> None:
        """Fill."""
        self.place.put(np.full(self.bytes, self.byte, np.uint8))


@carries_out("cp.fill.async")
def fill(warp: Warp, event: Event, lanes: int) -> int:
    """A fill by each lane."""
    for lane in numbers(lanes):
        issue(warp, event, 1 << lane, Fill(warp, event, lane))
    return lanes
''',
            ),
            "engine/units/registry.py": ("    fencing,", "    fencing,\n    filling,"),
        },
        """
START = '''
    setp.ne.u32 %p2, %r1, 0;
    @%p2 bra ready;
    mbarrier.init.shared.b64 [bar], 1;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 128;
    cp.fill.async.shared::cta.mbarrier::complete_tx::bytes [tile], 64, 128, [bar];
ready:
    bar.sync 0;
'''
WAIT = "again: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra again;"
READ = "mov.u32 %r2, tile; mad.lo.u32 %r3, %r1, 4, %r2; ld.shared.f32 %f1, [%r3];"
seen = every(START + WAIT + READ, np.ones(32, np.float32), "cp.fill.async")
early = ptx.parse(HEAD + START + READ + "st.global.f32 [%rd2], %f1; ret; }").kernels["k"]
x = np.ones(32, np.float32)
problems = early.launch(1, 32, [x], schedule="lazy", watch="report").problems
timeline = early.launch(1, 32, [x], schedule="lazy", watch="report", replay=True)
units = [each["kind"] for each in timeline.replay().units]
print(json.dumps({**seen, "early": sorted(each.rule for each in problems), "units": units}))
""",
        {
            **CLEAN,
            "x": [3.0039215087890625] * 2,
            "early": ["leak", "read-before-arrival"],
            "units": ["cp.fill.async"],
        },
    ),
}
MOST = {
    "a shape of mma": 1,
    "an opcode": 1,
    "a hazard rule": 4,
    "a front end": 1,
    "an asynchronous unit": 4,
}
"""The files that CONTRIBUTING says, pages and tests of a rule among them."""


@pytest.mark.long
@pytest.mark.parametrize("name", WALKS)
def test_what_is_new_is_understood_by_every_instrument(
    name: str, tmp_path: Path
) -> None:
    walk = WALKS[name]
    assert len(walk.edits) <= MOST[name]
    copy = tmp_path / "fragmenta"
    ignored = shutil.ignore_patterns("__pycache__", "*.html")
    shutil.copytree(SOURCES, copy, ignore=ignored)
    for file, (old, new) in walk.edits.items():
        text = (copy / file).read_text() if old else ""
        assert text.count(old) == 1 or not old, file
        (copy / file).write_text(text.replace(old, new) if old else new)
    done = subprocess.run(
        [sys.executable, "-c", ASK + walk.script],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert {each: seen[each] for each in walk.wanted} == walk.wanted
