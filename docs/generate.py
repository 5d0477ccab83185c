"""Generate pages from the catalogue, the docstrings and the recordings.

``make docs`` runs this before mkdocs.  It copies docs/ to build/docs/, replaces each
``<!-- generated: name -->`` by text that is computed now, and draws a picture for
every set of operands.  Generated text is not committed, so it cannot become outdated.
"""

from __future__ import annotations

import inspect
import json
import lzma
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import fragmenta as fm
from fragmenta.arithmetic import models
from fragmenta.errors import Error
from fragmenta.evidence import record
from fragmenta.execution.mma import numeric_model
from fragmenta.isa.families import FAMILIES as FAMILY_NAMES
from fragmenta.view.path import path_svg

ROOT = Path(__file__).resolve().parent.parent
SOURCE, BUILT = ROOT / "docs", ROOT / "build" / "docs"
GOLDEN = ROOT / "tests" / "golden" / "h200"
PUBLISHED = SOURCE / "published" / "mma-sim.json"
FUZZ = SOURCE / "verification" / "fuzz.json"
SPECIAL = SOURCE / "verification" / "special.json"
LAUNCHES = ROOT / "tests" / "golden" / "launches"
SCALARS = ROOT / "tests" / "golden" / "scalars"

FAMILIES = {
    "mma": ("mma",),
    "mma_sp": ("mma.sp",),
    "wmma": ("wmma.mma", "wmma.load", "wmma.store"),
    "wgmma": ("wgmma", "wgmma.sp", "sync"),
    "moves": ("ldmatrix", "stmatrix", "movmatrix"),
    "tcgen05": tuple(name for name in FAMILY_NAMES if name.split(".")[0] == "tcgen05"),
}
FIGURES: dict[str, fm.Instruction | fm.Fragment] = {
    "index": fm.mma("m16n8k16", a="f16", d="f32"),
    "layout-a": fm.mma("m16n8k64", a="s4").a,
    "tcgen05-d": fm.tcgen05("m128n64k16", a="f16"),
    "tcgen05-f": fm.tcgen05("m64n64k16", a="f16"),
    "tcgen05-b": fm.tcgen05("m128n64k16", a="f16", cta_group=2),
    "tcgen05-scales": fm.tcgen05("m128n64k64", a="e2m1", kind="mxf4nvf4"),
}
MARK = re.compile(r"<!-- generated: (\S+) -->")


def main() -> None:
    """Write build/docs."""
    shutil.rmtree(BUILT, ignore_errors=True)
    ignored = shutil.ignore_patterns("*.py", "__pycache__")
    shutil.copytree(SOURCE, BUILT, ignore=ignored)
    (BUILT / "pictures").mkdir()
    for name, what in FIGURES.items():
        (BUILT / "pictures" / f"{name}.svg").write_text(what.to_svg(), "utf-8")
    path = path_svg(fm.tcgen05("m128n64k64", a="e2m1", kind="mxf4nvf4"))
    (BUILT / "pictures" / "tcgen05-path.svg").write_text(path, "utf-8")
    for page in BUILT.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        made = MARK.sub(lambda match: write(match[1]), text)
        if made != text:
            page.write_text(made, encoding="utf-8")


def write(name: str) -> str:
    """The text that replaces a mark."""
    about, _, of = name.partition(":")
    writers: dict[str, Callable[[str], str]] = {
        "family": family,
        "tcgen05": lambda _: tcgen05_tables(),
        "certainty": lambda _: certainty_table(),
        "certainty-words": lambda _: certainty_words(),
        "models": lambda _: model_table(),
        "expansions": lambda _: expansion_table(),
        "published": lambda _: published_tables(),
        "recordings": lambda _: recording_table(),
        "fuzz": lambda _: fuzz_table(),
        "instructions": lambda _: instruction_table(),
        "opcodes": lambda _: opcode_tables(),
        "launches": lambda _: launch_table(),
        "scalars": lambda _: scalar_table(),
        "special": lambda _: special_table(),
        "commands": lambda _: command_reference(),
        "api": api_reference,
    }
    return writers[about](of)


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    cells = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


# ── families ────────────────────────────────────────────────────────────────


def family(name: str) -> str:
    """The table of a family, then a picture for each set of layouts."""
    groups: dict[tuple[str, ...], list[fm.Instruction]] = {}
    for op in (op for each in FAMILIES[name] for op in fm.catalogue(each)):
        groups.setdefault(_alike(op), []).append(op)
    rows: list[tuple[str, ...]] = []
    pictures: dict[str, fm.Instruction] = {}
    for ops in groups.values():
        if not ops[0].fragments:  # nothing to draw: it only orders others
            plain = [(f"`{op}`", str(op.requires), status(op)) for op in ops]
            rows += [(name, "", "", "", *facts, "") for name, *facts in plain]
            continue
        picture = _picture(ops[0])
        pictures.setdefault(picture, ops[0])
        rows.append((*_row(ops), f"[picture](#{picture})"))
    head = ("instruction", "shapes", "A, B", "C, D", "requires", "numbers", "")
    drawn = [_figure(slug, op) for slug, op in pictures.items()]
    return "\n\n".join([table(head, rows), "## Pictures", *drawn])


def _alike(op: fm.Instruction) -> tuple[str, ...]:
    """What the instructions of one row have in common."""
    if not op.fragments:
        return (op.family,)
    shape = re.sub(r"n\d+", "nN", str(op.shape)) if "wgmma" in op.family else op.shape
    values = {k: v for k, v in op.values.items() if k in ("kind", "scale_vec", "num")}
    moved = op.values.get("operand", "") + op.values.get("trans", "")
    widths = [f"{part.container.bits}" for part in op.fragments.values()]
    results = [op.values.get("d", ""), op.values.get("c", "")]
    text = (op.family, str(shape), moved, *values.values(), *widths, *results)
    return (*text, str(op.requires.targets), status(op))


def _row(ops: list[fm.Instruction]) -> tuple[str, ...]:
    op = ops[0]
    shapes = dict.fromkeys(op.values["shape"] for op in ops)
    listed = ", ".join(shapes) if len(shapes) < 4 else _widths(ops)
    inputs = dict.fromkeys(
        op.values.get(key, "") for op in ops for key in ("a", "b", "type")
    )
    results = dict.fromkeys(op.values.get(key, "") for op in ops for key in "cd")
    words = [op.values.get(k, "") for k in ("operand", "num", "trans", "kind")]
    words += [op.values.get("scale_vec", "")]
    about = " ".join([op.family, *(f".{word}" for word in words if word)])
    return (
        about,
        listed,
        ", ".join(filter(None, inputs)),
        ", ".join(filter(None, results)),
        str(op.requires),
        status(op),
    )


def _widths(ops: list[fm.Instruction]) -> str:
    widths = sorted({op.shape.n for op in ops})
    shape = ops[0].shape
    return f"m{shape.m}nNk{shape.k}, N = {widths[0]} to {widths[-1]} ({len(widths)})"


@cache
def _picture(op: fm.Instruction) -> str:
    """Draw the operands once for each set of layouts; return the file's name."""
    key: list[tuple[object, ...]] = [
        (p.name, p.layout, p.stored, p.dtype.bits) for p in op.fragments.values()
    ]
    if op.warpgroup:  # of C and D only the width of elements counts
        key = [part for part in key if part[0] not in ("C", "D")]
        key.append(("D", op.fragments["D"].elements))
    return _drawn(op, tuple(key))


_PICTURES: dict[tuple[object, ...], str] = {}


def _drawn(op: fm.Instruction, key: tuple[object, ...]) -> str:
    if (op.family, key) not in _PICTURES:
        slug = re.sub(r"[^a-z0-9]+", "-", str(op).lower()).strip("-")
        (BUILT / "pictures" / f"{slug}.svg").write_text(op.to_svg(), encoding="utf-8")
        _PICTURES[op.family, key] = slug
    return _PICTURES[op.family, key]


def _figure(slug: str, op: fm.Instruction) -> str:
    lines = [f"{p.name:<8}  {p.layout}" for p in op.fragments.values()]
    text = "\n".join(["```text", *lines, "```"])
    image = f"![{op}](../pictures/{slug}.svg){{ loading=lazy }}"
    return f"### `{op}` {{ #{slug} }}\n\n{text}\n\n{image}"


# ── tcgen05 ─────────────────────────────────────────────────────────────────

#: One instruction for each layout, and one for each kind of operand.
TCGEN05 = (
    fm.tcgen05("m128n32k16", a="f16"),
    fm.tcgen05("m64n32k16", a="f16"),
    fm.tcgen05("m256n32k16", a="f16", cta_group=2),
    fm.tcgen05("m128n32k16", a="f16", cta_group=2),
    fm.tcgen05("m128n32k32", a="f16", cta_group=2, sp=True),
    fm.tcgen05("m64n64k16", a="f16", ws=True),
    fm.tcgen05("m32n64k16", a="f16", ws=True),
    fm.tcgen05("m128n32k32", a="f16", sp=True),
    fm.tcgen05("m128n32k64", a="e4m3", sp=True),
    fm.tcgen05("m128n64k32", a="e4m3", kind="mxf8f6f4"),
    fm.tcgen05("m128n64k64", a="e2m1", kind="mxf4nvf4"),
    fm.tcgen05("m128n64k64", a="e2m1", kind="mxf4nvf4", cta_group=2),
)


def tcgen05_tables() -> str:
    """The shapes, then a picture for each layout."""
    from fragmenta.isa.table import read
    from fragmenta.isa.tables import tcgen05_shapes as shapes

    rows = []
    for line in read(shapes.SIZES):
        kinds = line["kinds"].split()
        ks = [" / ".join(map(str, shapes.OF_KIND[kind].k)) for kind in kinds]
        form = {"plain": "", "ws": "`.ws`", "ws.sp": "`.ws.sp`"}
        rows.append(
            (
                ", ".join(f"`{kind}`" for kind in kinds),
                f"`cta_group::{line['group']}`",
                form.get(line["form"], line["form"]),
                line["M"],
                line["N"].replace("..", " to ").replace("/", " by "),
                ", ".join(dict.fromkeys(ks)),
            )
        )
    head = ("kind", "group", "form", "M", "N", "K, dense / sparse")
    drawn = [_figure(_picture(op), op) for op in TCGEN05]
    parts = ["## Shapes", table(head, rows), "## Pictures", *drawn]
    return "\n\n".join(parts)


def certainty_words() -> str:
    """What each word about certainty means, as rows of a table."""
    from fragmenta.isa.certainty import WORDS

    return "\n".join(f"| {word} | {meaning} |" for word, meaning in WORDS.items())


def certainty_table() -> str:
    """How sure each statement about tcgen05 is; numbers from their own table."""
    from fragmenta.isa.certainty import TABLE
    from fragmenta.isa.table import read

    rows = [
        (line["what"], line["of"], line["how sure"], line["because"])
        for line in read(TABLE)
    ]
    return table(("what", "of", "how sure", "because"), rows)


# ── numbers ─────────────────────────────────────────────────────────────────


@cache
def recorded() -> frozenset[tuple[str, ...]]:
    """Each family, types and k that were recorded on an H200."""
    found = set()
    for kind in record.KINDS:
        for case in record.load(GOLDEN / f"{kind}.npz").cases:
            try:
                found.add(_numbers(fm.instruction(case.instruction)))
            except Error:  # a C++ fragment without an instruction of its own
                continue
    return frozenset(found)


def _numbers(op: fm.Instruction) -> tuple[str, ...]:
    """What the results depend on; the width of a ``wgmma`` is not part of it."""
    types = [op.values.get(key, "") for key in ("a", "b", "c", "d", "type", "num")]
    return (op.family, *types, str(op.shape.k), op.kind or "")


def status(op: fm.Instruction) -> str:
    """How the results of an instruction are known."""
    if op.tensor_memory:
        return "by its descriptor"
    if op.family.startswith("tcgen05"):
        return "by the manual" if op.fragments else "has none"
    if not op.fragments:
        return "has none"
    if op.supported_on("sm_90a") and _numbers(op) in recorded():
        return "exact on H200"
    if op.family.split(".")[-1] in ("load", "store") or not op.shape.k:
        return "by the manual"
    source = numeric_model(op, op.requires.targets[0]).source
    return "published parameters" if source == "published" else source


def _cells(text: str) -> list[tuple[str, ...]]:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return [tuple(re.split(r"\s{2,}", line.strip())) for line in lines]


def model_table() -> str:
    """The parameters of the fused steps, from the package's own table."""
    head, *rows = _cells(models._FUSED)
    _, *grouped = _cells(models._GROUPED)
    return table(head, [*rows, *grouped])


def expansion_table() -> str:
    """What the assembler writes where a target lacks an instruction."""
    head, *rows = _cells(models._EXPANDED)
    return table(head, rows)


def published_tables() -> str:
    """What was compared with MMA-Sim, the results, and what was not compared."""
    told = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    made = told["made"]
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in told["rows"]:
        unit = "tcgen05.mma" if row["unit"].startswith("TCGen05") else "mma"
        unit = "wgmma" if row["unit"] == "WGMMA" else unit
        kind = re.search(r"kind::\w+", row["name"])
        what = f"`{unit}`" + (f" `.{kind[0]}`" if kind else "")
        groups.setdefault((row["target"], row["architecture"], what), []).append(row)
    compared = [(*key, *_totals(rows)) for key, rows in groups.items()]
    compared.append(("all", "", "", *_totals(told["rows"])))
    left_out = [
        (line["reason"], f"{line['instructions']:,}", ", ".join(line["targets"]))
        for line in told["excluded"]
    ]
    head = ("target", "in MMA-Sim", "unit", "types", "rows", "elements", "different")
    return "\n\n".join(
        [
            f"MMA-Sim {made['mmasim']}, on {made['date']}, by `{made['script']}`:",
            table(head, compared),
            "Not compared (an instruction counts once for each target):",
            table(("reason", "instructions", "targets"), left_out),
        ]
    )


def _totals(rows: list[dict[str, Any]]) -> tuple[str, str, str, str]:
    """Types, number of rows, elements compared, elements that differed."""
    words = dict.fromkeys(word for row in rows for word in row["name"].split("."))
    types = [word for word in words if re.fullmatch(r"[bt]?f\d+|u?e\dm\d", word)]
    counts = [sum(row[key] for row in rows) for key in ("elements", "different")]
    return ", ".join(types), f"{len(rows)}", f"{counts[0]:,}", f"{counts[1]:,}"


def recording_table() -> str:
    """What was recorded, one row for each family."""
    rows = []
    for kind in record.KINDS:
        found = record.load(GOLDEN / f"{kind}.npz")
        names = {case.instruction for case in found.cases}
        made = found.made
        rows.append(
            (
                kind,
                f"{len(names)}",
                f"{len(found.cases)}",
                f"{found.words.size:,}",
                f"{made['gpu']}, driver {made['cuda_driver']}, ptxas {made['ptxas']}",
            )
        )
    head = ("recording", "instructions", "cases", "32-bit words", "made on")
    return table(head, rows)


def fuzz_table() -> str:
    """The last run of the fuzzers."""
    report = json.loads(FUZZ.read_text(encoding="utf-8"))
    rows = [
        (
            each["surface"],
            f"{each['calls']:,}",
            f"{each['refusals']:,}",
            f"{each['found']}",
        )
        for each in report["surfaces"]
    ]
    said = (
        f"The last run was on {report['date']}, with seed {report['seed']}. It made "
        f"{report['calls']:,} calls and had {report['findings']} findings."
    )
    head = ("surface", "calls", "refused", "findings")
    return f"{said}\n\n{table(head, rows)}"


def instruction_table() -> str:
    """Every instruction of the catalogue, sorted by family."""
    parts = []
    for page, names in FAMILIES.items():
        for name in names:
            ops = fm.catalogue(name)
            rows = [(f"`{op}`", str(op.requires), status(op)) for op in ops]
            drawn = "explained" if name in ("sync", *FAMILIES["tcgen05"]) else "drawn"
            link = f"{len(rows)} instructions, {drawn} in [{page}](families/{page}.md)."
            head = ("instruction", "requires", "numbers")
            parts.append(f"## {name}\n\n{link}\n\n{table(head, rows)}")
    return "\n\n".join(parts)


# ── whole kernels ───────────────────────────────────────────────────────────


def opcode_tables() -> str:
    """Every line of the table of opcodes; Tensor Cores and textures by name only."""
    from fragmenta.ptx.checking.requirements import told
    from fragmenta.ptx.coverage import coverage
    from fragmenta.ptx.result import FIDELITY

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
            needs += [told(line.targets)] * bool(line.targets)
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
        f"{name}: `{' '.join(words)}`"
        for name, words in named.items()
        if tuple(words) != (name,)
    ]
    return "; ".join(said)


def _named_opcodes() -> str:
    from fragmenta.ptx.coverage import runs
    from fragmenta.ptx.opcodes.tensor import TENSOR
    from fragmenta.ptx.opcodes.textures import TEXTURES

    rows = [
        (f"`{opcode}`", where, "yes" if runs(opcode) else "no")
        for names, where in (
            (TENSOR, "[every instruction](instructions.md)"),
            (TEXTURES, "none"),
        )
        for opcode in sorted(names)
    ]
    listed = table(("opcode", "list", "runs"), rows)
    return f"## Opcodes without lines here\n\n{listed}"


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


# ── references ──────────────────────────────────────────────────────────────


def command_reference() -> str:
    """Every command's help."""
    from typer.testing import CliRunner

    from fragmenta.commands import app
    from fragmenta.commands.index import COMMANDS

    parts = []
    for name in COMMANDS:
        text = CliRunner().invoke(app, [name, "--help"]).output
        usage = text.replace("Usage: root", "Usage: fragmenta")
        parts.append(f"## fragmenta {name}\n\n```text\n{usage.strip()}\n```")
    return "\n\n".join(parts)


def api_reference(room: str = "") -> str:
    """Every public name of the package, or of a room: signature and docstring."""
    module = import_module(f"fragmenta.{room}") if room else fm
    parts = []
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.isclass(thing) or inspect.isroutine(thing):
            parts += [_entry(f"## {name}", f"{room or 'fm'}.{name}", thing)]
        if inspect.isclass(thing) and not issubclass(thing, Exception):
            parts += _methods(name, thing)
    return "\n\n".join(parts)


def _methods(owner: str, thing: type) -> Iterator[str]:
    for name, member in vars(thing).items():
        if name.startswith("_"):
            continue
        inner = getattr(member, "__func__", getattr(member, "fget", member))
        inner = getattr(inner, "func", inner)
        if not inspect.isfunction(inner):  # one that a later room does
            inner = getattr(thing, name)
        if inspect.isfunction(inner) and inner.__doc__:
            yield _entry(f"### {owner}.{name}", f"{owner}.{name}", inner)


def _entry(title: str, name: str, thing: object) -> str:
    try:
        signature = str(inspect.signature(thing))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        signature = ""
    if issubclass(thing, Exception) if inspect.isclass(thing) else False:
        signature = ""
    head = f"{title}\n\n```python\n{name}{signature}\n```"
    return f"{head}\n\n{_docstring(inspect.getdoc(thing) or '')}"


def _docstring(text: str) -> str:
    """A docstring as Markdown: roles become code, examples are fenced."""
    text = re.sub(r":\w+:`~?\.?([^`]+)`", r"`\1`", text)
    text = text.replace("``", "`")
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if not inside and line.lstrip().startswith(">>>"):
            lines += ["", "```pycon"]
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line.strip() if inside and line.lstrip()[:3] == ">>>" else line)
    return "\n".join([*lines, "```"] if inside else lines)


if __name__ == "__main__":
    main()
