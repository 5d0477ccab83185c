"""Every bound removed, one by one: the fuzzer has to see it.

A mutant is the package with some lines changed, in a folder of its own.  A child runs a
few jobs with it, and has to find something or to be killed.  Where a bound is checked
twice, in the table and where code is made, a mutant removes both.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import fragmenta
from tests.clock import HANG
from tests.fuzz.bounds.children import ROOT, how
from tests.fuzz.bounds.forms import Form, Touch, first_reading
from tests.fuzz.bounds.harness import Outcome, Setting, play
from tests.fuzz.bounds.plan import launched
from tests.fuzz.bounds.texts import kernel_text


class Change(NamedTuple):
    """Lines of a file, and what stands there in a mutant."""

    file: str
    old: str
    new: str


class Mutant(NamedTuple):
    """Changes, and what has to see them."""

    name: str
    changes: tuple[Change, ...]
    forms: tuple[Form, ...] = ()
    setting: Setting = Setting()
    modules: tuple[str, ...] = ()


_MEMORY, _ACCESS = "engine/simt/memory.py", "engine/simt/accessing.py"
_FAST, _TASKS = "engine/units/fast/copies.py", "engine/units/fast/tasks.py"
_UNCHECKED = Change(
    "engine/simt/admitting.py",
    "            why = wrong_operands(each)\n",
    "            why = ''\n",
)
"""The table and the catalogue are not asked."""


def _load(space: str, kind: str = "u32", register: str = "%d1") -> Form:
    near = {"generic": "", "cluster": ".shared::cluster"}.get(space, f".{space}")
    touch = Touch(space, register, 0, int(kind[1:]) // 8, False)
    held = "%d1" if kind == "u64" else "%r1"
    return Form(
        f"ld{near}.{kind} {held}, [{register}];",
        "ld",
        (held,),
        touch.bytes,
        touch=touch,
    )


def _store(space: str) -> Form:
    near = {"generic": "", "cluster": ".shared::cluster"}.get(space, f".{space}")
    touch = Touch(space, "%d1", 0, 4, True)
    return Form(f"st{near}.u32 [%d1], %r1;", "st", (), 4, ("%r1",), touch)


_ATOMIC = Form(
    "atom.add.u32 %r1, [%d1], %r2;",
    "atom",
    (),
    4,
    touch=Touch("generic", "%d1", 0, 4, True),
)
_COPY = Form(
    "cp.async.ca.shared.global [%d1], [%d2], 16;",
    "cp",
    likes=((1, "shared"), (2, "global")),
)
_MATRIX = Form(
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%d1];",
    "ldmatrix",
    touch=None,
)
_LINES = Form(
    "wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r0, %r1, %r2, %r3, %r4, %r5,"
    " %r6, %r7}, [%d1], %r8;",
    "wmma.load",
)
_BULK = Form(
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%d1], "
    "[%d2], %r4, [%d3];",
    "cp",
    likes=((1, "shared"), (2, "global"), (0, "mbarrier")),
)
_REMOTE = Form(
    "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%d1], %r1, [%d3];",
    "st",
    likes=((0, "mbarrier"),),
)
_MULTICAST = Form(
    _BULK.text.replace("bytes [", "bytes.multicast::cluster [").replace(
        "[%d3]", "[%d3], %h5"
    ),
    "cp",
    likes=_BULK.likes,
)
_STORED = Form(
    "cp.async.bulk.global.shared::cta.bulk_group [%d1], [%d2], %r4;",
    "cp",
    likes=((1, "global"), (2, "shared")),
)
_ARRIVAL = Form(
    "mbarrier.arrive.shared::cluster.b64 _, [%d1];",
    "mbarrier",
    likes=((1, "mbarrier"),),
)
_INIT = Form(
    "mbarrier.init.shared::cta.b64 [%d1], 1;", "mbarrier", likes=((1, "shared"),)
)
_ALLOC = Form(
    "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%d1], 32;",
    "tcgen05",
    likes=((1, "shared"),),
    uniform=True,
)
_CELLS = Form(
    "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1], {%r2};", "tcgen05.st", uniform=True
)
_BOX = Form(
    "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%d1], "
    "[%d2, {%r3, %r4}], [%d3];",
    "cp",
    likes=((1, "shared"), (2, "map 2"), (0, "mbarrier")),
)
_PRODUCT, _TENSOR_PRODUCT, _TENSOR_COPY = (
    first_reading(family) for family in ("wgmma", "tcgen05.mma", "tcgen05.cp")
)
_ONE = Setting(threads=1)
_GROUP = Setting(threads=128)
_LOW = Setting(low=True)
_TWO = Setting(cluster=2)
_WATCHED = Setting(watch=True)
_SHARED_SIZE = "select(known, size, 0)"

MUTANTS = (
    Mutant(
        "an address behind the end",
        (
            Change(
                _MEMORY,
                'compare_unsigned("<", begin, begin.lift(where.size)) & compare_unsigned(\n'
                '        "<=", end, begin.lift(where.size)\n    )',
                'compare_unsigned("<", begin, begin.lift(where.size))',
            ),
        ),
        (_load("generic"),),
    ),
    Mutant(
        "an address anywhere",
        (
            Change(
                _MEMORY,
                'compare_unsigned("<", begin, begin.lift(where.size)) & compare_unsigned(\n'
                '        "<=", end, begin.lift(where.size)\n    )',
                'compare_unsigned("<=", begin, begin)',
            ),
        ),
        (_store("generic"),),
    ),
    Mutant(
        "a slot behind the table",
        (Change(_MEMORY, "safe = select(known, slot, 0)", "safe = slot"),),
        (_load("generic"),),
    ),
    Mutant(
        "the system's bytes of shared memory",
        (
            Change(
                _MEMORY,
                "return AddressRange(base + start, size - start, first, nothing, nothing)",
                "return AddressRange(base, size, first - start, nothing, nothing)",
            ),
        ),
        (_store("shared"),),
    ),
    Mutant(
        "a rank that is not in the cluster",
        (Change(_MEMORY, _SHARED_SIZE, "size"),),
        (_load("cluster"),),
        _TWO,
    ),
    Mutant(
        "the end of another block's memory",
        (
            Change(
                "engine/simt/context.py",
                "address_of(memory) + start, memory.size - start",
                "address_of(memory) + start, memory.size",
            ),
        ),
        (_load("cluster"),),
    ),
    Mutant(
        "the end of local memory",
        (
            Change(
                _MEMORY,
                "return AddressRange(base + lane * size, size, nothing, nothing, nothing)",
                "return AddressRange(base + lane * size, size * 64, nothing, nothing, nothing)",
            ),
        ),
        (_store("local"),),
    ),
    Mutant(
        "memory that must not be written",
        (
            Change(
                _MEMORY,
                "allowed = (where.flags & 1) == 0 if move.stores else bounds",
                "allowed = bounds",
            ),
        ),
        (_store("generic"),),
    ),
    Mutant(
        "an atomic operation anywhere",
        (
            Change(
                "engine/simt/atomics.py",
                "good = bounds & ((address & (size - 1)) == 0) & writable",
                "good = ((address & (size - 1)) == 0) & writable",
            ),
        ),
        (_ATOMIC,),
    ),
    Mutant(
        "the goal of cp.async",
        (
            Change(
                "engine/simt/lane_copies.py",
                "(Fault.BOUNDS, goal, -size, inside(there, goal, size)),",
                "",
            ),
        ),
        (_COPY,),
    ),
    Mutant(
        "the source of cp.async",
        (
            Change(
                "engine/simt/lane_copies.py",
                "(Fault.BOUNDS, source, size, nothing | inside(here, source, wide)),",
                "",
            ),
        ),
        (_COPY,),
    ),
    Mutant(
        "the rows of ldmatrix",
        (
            Change(
                "engine/simt/matrices.py",
                "Fault.BOUNDS: inside(where, address, width),",
                "",
            ),
        ),
        (_MATRIX,),
    ),
    Mutant(
        "the lines of wmma.load",
        (
            Change(
                "engine/simt/matrices.py",
                "checks = {Fault.BOUNDS: inside(where, address, size)}",
                "checks = {}",
            ),
        ),
        (_LINES,),
    ),
    Mutant(
        "the parameters of a kernel",
        (Change(_ACCESS, "if not 0 <= offset <= most - count * size:", "if False:"),),
        modules=(kernel_text("ld.param.u64 %d1, [x+1048576];"),),
    ),
    Mutant(
        "the parameters of a function",
        (Change(_ACCESS, "if not 0 <= offset <= most - count * size:", "if False:"),),
        modules=(
            kernel_text(
                "{ .param .b32 a; st.param.b32 [a+1048576], %r1; call g, (a); }",
                ".func g(.param .b32 y) { ret; }",
            ),
        ),
    ),
    Mutant(
        "the registers of a product",
        (
            _UNCHECKED,
            Change(
                "engine/simt/matrices.py",
                "    if len(items) != part.registers:",
                "    if False:",
            ),
        ),
        modules=(
            kernel_text(
                "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1, %r2, %r3, %r4}, "
                f"{{{', '.join(['%r1'] * 4000)}}}, {{%r5, %r6}}, {{%r1, %r2, %r3, %r4}};"
            ),
        ),
    ),
    Mutant(
        "the width of a register",
        (
            _UNCHECKED,
            Change(
                "engine/simt/emitter.py",
                "        if at.bits != bits:",
                "        if False:",
            ),
        ),
        modules=tuple(
            kernel_text(
                f"match.any.sync.b64 %r1, %end{i}, -1;",
                registers=f".reg .b8 %end<{i + 1}>;",
            )
            for i in range(1, 4)
        ),
    ),
    Mutant(
        "an index behind a list of labels",
        (
            Change(
                "engine/simt/warps.py",
                'inside = compare_unsigned("<", number, count)',
                'inside = compare_unsigned("<=", number, number)',
            ),
        ),
        modules=(
            kernel_text(
                "mov.u32 %r1, 0x7FFFFFF; L: .branchtargets A, B; "
                "brx.idx %r1, L; A: ret; B: ret;"
            ),
        ),
    ),
    Mutant(
        "a barrier that does not exist",
        (
            Change(
                "engine/simt/barriers.py",
                'known = compare_unsigned("<", number, 16)',
                'known = compare_unsigned("<=", number, number)',
            ),
        ),
        modules=(kernel_text("mov.u32 %r1, 0x3000000; bar.sync %r1;"),),
    ),
    Mutant(
        "a kernel that calls itself",
        (Change("engine/simt/calling.py", "    if function.kernel:", "    if False:"),),
        modules=(kernel_text("call k;").replace(".param .u64 x", ""),),
    ),
    Mutant(
        "the operands of a call",
        (
            Change(
                "engine/simt/calling.py",
                "        if wanted and theirs != wanted:",
                "        if False:",
            ),
        ),
        modules=(
            kernel_text(
                "call g, (%d1); call h;",
                ".func g(.reg .b64 y) { .reg .b64 %z; "
                "mov.b64 %z, y; ret; }\n"
                ".func h() { .reg .b8 %e; call g, (%e); ret; }",
            ),
        ),
    ),
    Mutant(
        "the operands of vprintf",
        (
            Change(
                "engine/simt/calling.py",
                "    if words != [[32] * size for some in sizes for size in some]:",
                "    if False:",
            ),
        ),
        modules=(
            kernel_text(
                "add.u32 %r1, %r1, 77; call vprintf;", ".extern .func vprintf();"
            ),
        ),
    ),
    Mutant(
        "what printf reads",
        (
            Change(
                "engine/simt/host.py",
                "        if not 0 <= offset < whole:",
                "        if False:",
            ),
        ),
        modules=(
            kernel_text(
                "{ .param .b32 r; .param .b64 a; .param .b64 b; mov.u64 %d1, 0x400; "
                "st.param.b64 [a], %d1; st.param.b64 [b], %d1; call (r), vprintf, (a, b); }",
                ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);",
            ),
        ),
    ),
    Mutant(
        "shared memory of a bulk copy",
        (
            Change(
                "engine/units/work.py",
                "    if offset < layout.SHARED_START or offset + size > memory.size:",
                "    if False:",
            ),
        ),
        (_BULK,),
        _ONE,
    ),
    Mutant(
        "global memory of a bulk copy",
        (
            Change(
                "engine/units/work.py",
                "    if index < 0 or index + size > memory.size:",
                "    if False:",
            ),
        ),
        (_STORED,),
        _ONE,
    ),
    Mutant(
        "the rank of a bulk copy",
        (
            Change(
                "engine/units/work.py", "    if not 0 <= rank < count:", "    if False:"
            ),
        ),
        (_REMOTE,),
        _ONE,
    ),
    Mutant(
        "the mask of a multicast",
        (Change("engine/units/work.py", "    if mask >> count:", "    if False:"),),
        (_MULTICAST,),
        _ONE,
    ),
    Mutant(
        "the rank of an mbarrier",
        (
            Change(
                "engine/units/blocks.py",
                "        if address >> 32 or rank >= len(blocks):",
                "        if False:",
            ),
        ),
        (_ARRIVAL,),
        _ONE,
    ),
    Mutant(
        "where an mbarrier is made",
        (
            Change(
                "engine/units/mbarriers.py",
                "        if address >> RANK_BITS != block.rank or not inside or offset % 8:",
                "        if False:",
            ),
        ),
        (_INIT,),
        _ONE,
    ),
    Mutant(
        "where an address of tensor memory goes",
        (
            Change(
                "engine/units/tmem_allocation.py",
                "    if address >> RANK_BITS != block.rank or not inside:",
                "    if False:",
            ),
        ),
        (_ALLOC,),
    ),
    Mutant(
        "the goal of a cp.async that is done later",
        (
            Change(
                "engine/units/lane_copies.py",
                "        self._refuse(~(inside & own), Fault.BOUNDS, goal, -size)\n",
                "",
            ),
        ),
        (_COPY,),
        Setting(schedule="lazy"),
    ),
    Mutant(
        "the source of a cp.async that is done later",
        (
            Change(
                "engine/units/lane_copies.py",
                "        self._refuse(read & ~known, Fault.BOUNDS, source, size)\n",
                "",
            ),
        ),
        (_COPY,),
        Setting(schedule="lazy"),
    ),
    Mutant(
        "the descriptors of wgmma",
        (
            Change(
                "engine/units/wgmma_sources.py",
                "    if first >= SHARED_START and end <= size:",
                "    if True:",
            ),
            Change(
                "reference/execution/warpgroup_shared.py",
                "        outside = at + UNIT > shared.size",
                "        outside = at < 0",
            ),
        ),
        (_PRODUCT,),
        _GROUP,
    ),
    Mutant(
        "the system's bytes under a descriptor of wgmma",
        (
            Change(
                "engine/units/wgmma_sources.py",
                "    if first >= SHARED_START and end <= size:",
                "    if end <= size:",
            ),
        ),
        (_PRODUCT,),
        _GROUP,
    ),
    Mutant(
        "the descriptors of tcgen05.mma",
        (
            Change(
                "engine/units/tcgen05_sources.py",
                "        if first < SHARED_START or end > size:",
                "        if False:",
            ),
        ),
        (_TENSOR_PRODUCT,),
    ),
    Mutant(
        "the descriptor of tcgen05.cp",
        (
            Change(
                "engine/units/tcgen05_sources.py",
                "        if first < SHARED_START or end > size:",
                "        if False:",
            ),
        ),
        (_TENSOR_COPY,),
    ),
    Mutant(
        "the shared memory of a tensor copy",
        (
            Change(
                "engine/units/work.py",
                "    if offset < layout.SHARED_START or offset + size > memory.size:",
                "    if False:",
            ),
        ),
        (_BOX,),
        _ONE,
    ),
    Mutant(
        "shared memory of a bulk copy in machine code",
        (
            Change(
                _FAST,
                "        self.step.require((offset >= SHARED_START) & (offset + size <= most))\n",
                "        self.step.require(most == most)\n",
            ),
            Change(
                _TASKS, "(lines >= 0) & (end <= size)", "(lines >= 0) & (end == end)"
            ),
        ),
        (_BULK,),
        _ONE,
    ),
    Mutant(
        "global memory of a bulk copy in machine code",
        (
            Change(
                _FAST,
                "        self.step.require((row == 0) | good)\n",
                "        self.step.require((row == 0) | (row == row))\n",
            ),
            Change(
                _TASKS,
                "some & inside(where, task.long(at.TASK_FIRST)[0], _extent(task))",
                "some",
            ),
        ),
        (_STORED,),
        _ONE,
    ),
    Mutant(
        "the goal of a cp.async in flight in machine code",
        (
            Change(
                "engine/units/fast/lane_copies.py",
                "own & fits & even) == step.lanes",
                "own & even) == step.lanes",
            ),
            Change(_TASKS, "(goal >= 0) & (goal + size <= most)", "goal == goal"),
        ),
        (_COPY,),
        Setting(schedule="lazy"),
    ),
    Mutant(
        "the source of a cp.async in flight in machine code",
        (
            Change(
                "engine/units/fast/lane_copies.py",
                "    good = inside(where, source, count) & ((source",
                "    good = (source == source) & ((source",
            ),
            Change(
                _TASKS,
                "(count <= size) & inside(where, source, count)",
                "(count <= size)",
            ),
        ),
        (_COPY,),
        Setting(schedule="lazy"),
    ),
    Mutant(
        "the shadow of shared memory",
        (
            Change(
                "watch/races/shadow/shared_memory.py",
                "        with code.when(end <= target.long(layout.HEAD_SIZE)):",
                "        with code.when(end >= 0):",
            ),
            Change(
                "watch/races/shadow/shared_memory.py",
                "    good = good & (rank < head.word(layout.HEAD_BLOCKS))\n",
                "",
            ),
        ),
        (_load("shared"),),
        _WATCHED,
    ),
)


# ── running ─────────────────────────────────────────────────────────────────


def see(mutant: Mutant) -> Outcome:
    """What the fuzzer sees of a mutant, in this process."""
    found = Outcome(0, 0, [])
    for low in (False, True):
        if mutant.forms:
            setting = mutant.setting._replace(low=low)
            blocks = 768
            found = play(mutant.forms, setting, blocks, seed=3 + low)
        for text in mutant.modules:
            said = launched(text, low=low, watch=False, wrong=True)
            found = found._replace(findings=[*found.findings, *said])
        if found.findings:
            break
    return found


def changed(mutant: Mutant, folder: Path) -> None:
    """Write the package with the changes of a mutant."""
    package = Path(fragmenta.__file__).parent
    shutil.copytree(
        package, folder / "fragmenta", ignore=shutil.ignore_patterns("__pycache__")
    )
    for file, old, new in mutant.changes:
        path = folder / "fragmenta" / file
        text = path.read_text("utf-8")
        if text.count(old) < 1:
            raise ValueError(f"{mutant.name}: {file} has no {old!r}")
        path.write_text(text.replace(old, new), "utf-8")


def caught(mutant: Mutant) -> dict[str, Any]:
    """Whether a child with the mutant finds something, or is killed."""
    with tempfile.TemporaryDirectory() as folder:
        changed(mutant, Path(folder))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([folder, str(ROOT)]),
            "FRAGMENTA_CACHE": str(Path(folder) / "cache"),
        }
        number = MUTANTS.index(mutant)
        command = [sys.executable, "-m", "tests.fuzz.bounds.mutants", str(number)]
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=HANG,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"name": mutant.name, "caught": True, "how": "does not end"}
    lines = done.stdout.splitlines()
    if done.returncode < 0:
        said = how(done.returncode)
    elif done.returncode or not lines:
        raise RuntimeError(f"{mutant.name}: {done.stderr[-2000:]}")
    else:
        said = json.loads(lines[-1])
    return {"name": mutant.name, "caught": bool(said), "how": said}


def run_all(processes: int, some: Sequence[Mutant] = MUTANTS) -> list[dict[str, Any]]:
    """All mutants, several at a time."""
    with ThreadPoolExecutor(processes) as pool:
        found = []
        for each in pool.map(caught, some):
            print(f"{each['name']}: {each['how'] or 'not caught'}", file=sys.stderr)
            found.append(each)
        return found


def main() -> None:
    """See one mutant, and say the first thing that is found."""
    said = see(MUTANTS[int(sys.argv[1])]).findings
    print(json.dumps(said[0].split("\n")[0][:120] if said else ""), flush=True)


if __name__ == "__main__":
    main()
