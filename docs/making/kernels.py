"""Tables of the opcodes, and of what was recorded of whole kernels."""

from __future__ import annotations

import json
import lzma
from collections.abc import Sequence
from typing import Any

import numpy as np

from fragmenta.launch.coverage import coverage, runs
from fragmenta.launch.result import FIDELITY
from fragmenta.ptx.checking.requirements import listed
from fragmenta.ptx.opcodes.tensor import TENSOR
from fragmenta.ptx.opcodes.textures import TEXTURES
from making.markdown import DOCS, ROOT, table

LAUNCHES = ROOT / "tests" / "golden" / "launches"
SCALARS = ROOT / "tests" / "golden" / "scalars"
MANY = 64
"""The most words that are listed: SIMD video instructions have thousands."""
SPECIAL = DOCS / "verification" / "special.json"


def opcode_tables() -> str:
    """Every line of the table of opcodes; Tensor Cores and textures by name only."""
    groups: dict[str, list[Any]] = {}
    for each in coverage():
        groups.setdefault(each.syntax.opcode, []).append(each)
    every = [each for some in groups.values() for each in some]
    running = sum(each.runs == "yes" for each in every)
    parts = [f"{len(every)} lines of {len(groups)} opcodes; {running} of them run."]
    head = ("line", "words", "needs", "runs", "bits")
    for opcode in sorted(groups):
        rows = []
        for each in groups[opcode]:
            line = each.syntax
            needs = [f"PTX {line.since}"] * bool(line.since)
            needs += [listed(line.targets)] * bool(line.targets)
            bits = FIDELITY[line.fidelity] if each.runs != "no" else ""
            facts = (_words(line), ", ".join(needs), each.runs, bits)
            spelled = " ".join(line.text.partition(";")[0].split())
            rows.append((f"`{spelled}`", *facts))
        parts.append(f"## {opcode}\n\n{table(head, rows)}")
    return "\n\n".join([*parts, _named_opcodes()])


def _words(line: Any) -> str:
    """The words that stand for each name in a line of the table."""
    named = {piece.name: piece.words for piece in line.pieces}
    named |= {slot.selector: slot.selectors for slot in line.operands if slot.selector}
    named |= {slot.name: slot.values for slot in line.operands if slot.values}
    said = [
        f"{name}: {_choices(words)}"
        for name, words in named.items()
        if tuple(words) != (name,)
    ]
    return "; ".join(said)


def _choices(words: Sequence[str]) -> str:
    """The words, or of very many the first, the last and their number."""
    if len(words) <= MANY:
        return f"`{' '.join(words)}`"
    return f"{len(words):,} words, `{words[0]}` to `{words[-1]}`"


def _named_opcodes() -> str:

    rows = [
        (f"`{opcode}`", where, "yes" if runs(opcode) else "no")
        for names, where in (
            (TENSOR, "[every instruction](instructions.md)"),
            (TEXTURES, "none"),
        )
        for opcode in sorted(names)
    ]
    rest = table(("opcode", "list", "runs"), rows)
    return f"## Opcodes without lines here\n\n{rest}"


def launch_table() -> str:
    """The recorded launches of whole kernels, by source."""
    rows: list[tuple[str, ...]] = []
    kernels = every = 0
    for path in sorted(LAUNCHES.glob("*.npz")):
        with np.load(path) as archive:
            index = json.loads(archive["index"].tobytes())
        made, launches = index["made"], index["launches"]
        entries = {launch["entry"] for launch in launches}
        about = f"{made['date']}, {made['gpu']}, driver {made['driver']}"
        rows.append((path.stem, f"{len(entries)}", f"{len(launches)}", about))
        kernels, every = kernels + len(entries), every + len(launches)
    rows.append(("all", f"{kernels}", f"{every}", ""))
    return table(("source", "kernels", "launches", "made on"), rows)


def scalar_table() -> str:
    """How many forms of instructions were recorded, and how many inputs of each."""
    rows, every = [], 0
    for path in sorted(SCALARS.glob("*.xz")):
        names, _, _ = lzma.decompress(path.read_bytes()).partition(b"\n")
        kept = len(json.loads(names))
        rows.append((f"`opcodes/{path.stem}.py`", f"{kept:,}"))
        every += kept
    return table(("module", "forms kept"), [*rows, ("all", f"{every:,}")])


def special_table() -> str:
    """What was compared for the instructions that approximate."""
    report = json.loads(SPECIAL.read_text(encoding="utf-8"))
    rows = [
        (
            f"`{each['instruction']}`",
            each["operands"],
            f"{each['compared']:,}",
            f"{each['differing']}",
        )
        for each in report["outcomes"]
    ]
    made = report["made"]
    tools = f"driver {made['driver']}, ptxas {made['ptxas']}"
    said = f"{made['gpu']}, {tools}, {made['date']}:"
    head = ("instruction", "operands", "compared", "differing")
    return f"{said}\n\n{table(head, rows)}"
