"""Records what the H200 computes for every form of the opcode table.

Three steps, the second of them on a machine with the GPU::

    python -m tests.ptx.opcodes.scalars prepare FOLDER
    python FOLDER/launch.py FOLDER RESULTS
    python -m tests.ptx.opcodes.scalars keep RESULTS

The first writes a kernel for each form and assembles them.  The last compares all
results with the functions of the table, and keeps a part of the forms (``chosen``) in
tests/golden/scalars, one file for each module: of every form, the results of each 16th
input, and checksums of the others.
"""

from __future__ import annotations

import json
import lzma
import shutil
import sys
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from fragmenta.cuda.tools import assembler
from fragmenta.ptx.opcodes.table import Syntax
from tests.ptx.opcodes.inputs import COUNT, pools
from tests.ptx.opcodes.judging import (
    NEWEST,
    TARGET,
    Form,
    forms,
    judged,
    lines,
    modules,
    register,
    statement,
    target_of,
)
from tests.ptx.opcodes.launch import STRIDE, compacted
from tests.ptx.opcodes.running import computed, number_of_results, rows

GOLDEN = Path(__file__).parents[2] / "golden" / "scalars"
BATCH = 400
#: Lines with more forms are kept in part, with so many of them.
MOST, PART = 40, 15

# ── kernels ─────────────────────────────────────────────────────────────────

_NARROW = {
    ".b64": "mov.b64",
    ".b32": "cvt.u32.u64",
    ".b16": "cvt.u16.u64",
    ".b8": "cvt.u8.u64",
}
_WIDE = {".b64": "mov.b64", ".b32": "cvt.u64.u32", ".b8": "cvt.u64.u8"}


def entry(name: str, *several: Form) -> str:
    """A kernel that applies forms to every input; their results follow each other."""
    body = [
        ".reg .b64 %in, %out, %off, %w, %v;",
        ".reg .b32 %i, %j, %carry, %t;",
        ".reg .b16 %z;",
        "ld.param.u64 %in, [given]; ld.param.u64 %out, [found];",
        "mov.u32 %i, %tid.x; mov.u32 %j, %ctaid.x; mad.lo.u32 %i, %j, 128, %i;",
        "mul.wide.u32 %off, %i, 8; add.u64 %in, %in, %off; add.u64 %out, %out, %off;",
        "mov.u32 %carry, 0; mov.b16 %z, 0;",
    ]
    first = 0
    for form in several:
        body += ["{", *_applied(form, first), "}"]
        first += number_of_results(form)
    head = f".visible .entry {name}(.param .u64 given, .param .u64 found) {{"
    return "\n".join([head, *body, "ret;", "}"])


def _applied(form: Form, first: int) -> Iterator[str]:
    """Load the operands, apply a form, store the results from row ``first`` on."""
    *declared, instruction = statement(form)
    yield from declared
    yield from _loads(form)
    if _has(form, "carry_in"):  # a carry of one comes out of 1 + 0xffffffff
        yield "add.cc.u32 %t, %carry, -1;"
    yield instruction
    if _has(form, "carry_out"):
        yield "addc.u32 %carry, 0, 0;"
    yield from _stores(form, first)


def _has(form: Form, name: str) -> bool:
    return any(slot.name == name for slot in form.slots)


def _names(form: Form) -> Iterator[tuple[str, bool, str]]:
    """Each register or flag: its name, whether it is a result, and its type."""
    number = 0
    for slot in form.slots:
        kind = form.type_of(slot)
        if slot.hidden:
            yield "%carry", slot.result, "carry"
            continue
        if slot.name in form.immediates:
            continue
        kinds = [kind, "pred"] if "|" in slot.name else [kind] * (form.count(slot) or 1)
        for each in kinds:
            yield f"r{number}", slot.result, each
            number += 1


def _loads(form: Form) -> Iterator[str]:
    places = iter(rows(form))

    def word(name: str) -> str:
        return f"ld.global.b64 {name}, [%in+{next(places) * COUNT * 8}];"

    for name, result, kind in _names(form):
        if result:
            continue
        yield word("%w")
        if kind == "b128":
            yield f"{word('%v')} mov.b128 {name}, {{%w, %v}};"
        elif kind == "carry":
            yield f"cvt.u32.u64 {name}, %w;"
        elif kind == "pred":
            yield f"setp.ne.u64 {name}, %w, 0;"
        else:
            yield f"{_NARROW[register(kind)]} {name}, %w;"


def _stores(form: Form, number: int) -> Iterator[str]:
    for name, result, kind in _names(form):
        if not result:
            continue
        words = ["%w", "%v"] if kind == "b128" else ["%w"]
        if kind == "b128":
            yield f"mov.b128 {{%w, %v}}, {name};"
        elif kind == "carry":
            yield f"cvt.u64.u32 %w, {name};"
        elif kind == "pred":
            yield f"selp.u64 %w, 1, 0, {name};"
        elif register(kind) == ".b16":
            # ptxas 13.4 forgets the extension if cvt.u64.u16 follows cvt.sat.s16.s32.
            yield f"mov.b32 %t, {{{name}, %z}}; cvt.u64.u32 %w, %t;"
        else:
            yield f"{_WIDE[register(kind)]} %w, {name};"
        for each in words:
            yield f"st.global.b64 [%out+{number * COUNT * 8}], {each};"
            number += 1


# ── preparing and keeping ───────────────────────────────────────────────────


def recordable(module: str | None = None) -> list[Form]:
    """Every form that the H200 decides, in the order of the table."""
    return [form for line in lines(module) if decided(line) for form in forms(line)]


def decided(line: Syntax) -> bool:
    """Whether the H200 has a line, and the line claims to give its bits."""
    return target_of(line) == TARGET and line.fidelity != "published"


def chosen(module: str) -> list[Form]:
    """The forms that are tried in tests: all of short lines, a part of long ones."""
    found: list[Form] = []
    for line in lines(module):
        every = list(forms(line))
        if len(every) > MOST and len(line.pieces) > 1:
            selects = any(slot.selector for slot in line.operands)
            every = sorted(every, key=_mixed)[: PART // 3 if selects else PART]
        found += every
    return found


def _mixed(form: Form) -> int:
    """A number that brings forms into an order that looks random."""
    return zlib.crc32(str(form).encode())


def prepare(folder: Path, *only: Path) -> None:
    """Write and assemble the kernels of all modules, or of some that are named."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "pools.npy", pools())
    shutil.copy(Path(__file__).with_name("launch.py"), folder)
    names = [str(name) for name in only] or [None]
    every = [form for name in names for form in recordable(name)]
    refused = judged(every, TARGET)
    print(len(every), "forms, of which ptxas refuses", refused)
    every = [form for form in every if str(form) not in refused]
    starts = range(0, len(every), BATCH)
    with ThreadPoolExecutor(2) as many:
        list(many.map(lambda first: _prepared(folder, every, first), starts))


def _prepared(folder: Path, every: Sequence[Form], first: int) -> None:
    """Write one batch: the kernels, their machine code, and what they are."""
    named = {f"form{n}": form for n, form in enumerate(every[first : first + BATCH])}
    header = f".version {NEWEST}\n.target {TARGET}\n.address_size 64\n"
    text = header + "\n".join(entry(name, form) for name, form in named.items())
    path = folder / f"{first:06}"
    path.with_suffix(".ptx").write_text(text)
    path.with_suffix(".cubin").write_bytes(assembler.assemble(text, TARGET))
    listed = {
        name: (str(form), number_of_results(form)) for name, form in named.items()
    }
    path.with_suffix(".json").write_text(json.dumps(listed))


def recorded(results: Path) -> dict[str, bytes]:
    """The results of the other machine, by form, as ``launch.compacted`` makes them."""
    sizes = json.loads((results / "sizes.json").read_text())
    return _split(sizes, (results / "results.bin").read_bytes())


def _split(sizes: dict[str, int], data: bytes) -> dict[str, bytes]:
    found, first = {}, 0
    for name, size in sizes.items():
        found[name] = data[first : first + size]
        first += size
    return found


def golden(module: str) -> dict[str, bytes]:
    """What is kept of a module: for each form, what ``compacted`` made."""
    path = GOLDEN / f"{module}.xz"
    names, _, data = lzma.decompress(path.read_bytes()).partition(b"\n")
    return _split(json.loads(names), data)


def keep(results: Path) -> None:
    """Compare everything, and keep a part."""
    found = recorded(results)
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for module in modules():
        every = [form for form in recordable(module) if str(form) in found]
        if not every:
            continue
        wrong = differences(every, found)
        print(module, len(every), "forms compared,", len(wrong), "differ")
        print(*wrong[:40], sep="\n")
        some = [
            str(form)
            for form in chosen(module)
            if decided(form.syntax) and str(form) in found
        ]
        sizes = json.dumps({name: len(found[name]) for name in some}).encode()
        data = b"".join(found[name] for name in some)
        packed = lzma.compress(sizes + b"\n" + data, preset=9)
        (GOLDEN / f"{module}.xz").write_bytes(packed)
        print(module, len(some), "kept,", len(packed), "bytes")


def differences(every: Sequence[Form], found: dict[str, bytes]) -> list[str]:
    """Which forms compute something else than the GPU, and for which input."""
    wrong = []
    for form, ours in zip(every, computed(every), strict=True):
        theirs = found[str(form)]
        if compacted(ours) == theirs:
            continue
        head = np.frombuffer(theirs[: ours.size // STRIDE * 8], np.uint64)
        head = head.reshape(len(ours), -1)
        where = np.flatnonzero((ours[:, ::STRIDE] != head).any(axis=0))
        text = f"{form}: {len(where)} of {head.shape[1]} shown differ"
        for at in where[:3]:
            given = [hex(pools()[row][at * STRIDE]) for row in rows(form)]
            text += f"; {given} gives {[hex(x) for x in head[:, at]]}, "
            text += f"here {[hex(x) for x in ours[:, at * STRIDE]]}"
        wrong.append(text)
    return wrong


if __name__ == "__main__":
    {"prepare": prepare, "keep": keep}[sys.argv[1]](*map(Path, sys.argv[2:]))
