"""What is known about one instruction?"""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from fragmenta.commands.app import command
from fragmenta.commands.arguments import (
    AsJson,
    InstructionText,
    OperandName,
    find,
    find_holding,
    operand,
)
from fragmenta.commands.catalogue import types_of
from fragmenta.commands.output import emit, emit_json, width
from fragmenta.errors import LayoutError, one_of
from fragmenta.isa.instruction import Instruction
from fragmenta.isa.tables.wgmma import operands_from
from fragmenta.registers import notation
from fragmenta.registers.fragment import Fragment

# ── show ────────────────────────────────────────────────────────────────────


@command(
    "show",
    "fragmenta show mma.sp.m16n8k64.s4.s4",
    "fragmenta show wgmma.m64n256k16.f32.bf16 --json",
)
def show(instruction: InstructionText, as_json: AsJson = False) -> None:
    op = find(instruction)
    if as_json:
        emit_json(_about(op))
        return
    parts = [str(op), _facts(op), *_fragments_text(op)]
    emit("\n\n".join(parts))


def _about(op: Instruction) -> dict[str, Any]:
    """All there is to know, for programs."""
    targets = op.requires.targets
    sparsity = op.granularity
    return {
        "instruction": str(op),
        "family": op.family,
        "shape": op.shape._asdict() if op.fragments else None,
        "types": types_of(op),
        "requires": {"ptx": str(op.requires.ptx), "targets": op.requires.text},
        "targets": {each: str(op.requires.ptx_on(each)) for each in targets},
        "native": [each for each in targets if op.native_on(each)],
        "expanded": {e: to for e in targets if (to := op.expanded_to(e)) is not None},
        "sparsity": None
        if sparsity is None
        else {**vars(sparsity), "selectors": op.selectors},
        "operands": {
            form: [{**vars(each), "vector": each.vector} for each in operands]
            for form, operands in _operand_forms(op).items()
        },
        "fragments": {n: _fragment_about(part) for n, part in op.fragments.items()},
        "notes": op.notes,
    }


def _operand_forms(op: Instruction) -> dict[str, Any]:
    """The operand lists: two where A may be in registers or in shared memory."""
    if not op.warpgroup:
        return {"operands": op.operands}
    return {
        "A in shared memory": operands_from(op, registers=False),
        "A in registers": operands_from(op, registers=True),
    }


def _fragment_about(part: Fragment) -> dict[str, Any]:
    return {
        "type": part.dtype.name,
        "shape": part.shape,
        "lanes": part.lanes,
        "registers": part.registers,
        "register_bits": part.register_bits,
        "elements_per_register": part.elements,
        "selectors": {name: part.layout.sizes[name] for name in part.selectors},
        "layout": str(part.layout),
        "formula": part.formula(),
        "cute": part.to_cute(),
        "linear_layout": _linear(part),
        "observed": part.observed or None,
    }


def _linear(part: Fragment) -> dict[str, list[tuple[int, ...]]] | None:
    """The linear layout, or None: not every size is a power of two."""
    try:
        return part.to_linear_layout()
    except LayoutError:
        return None


def _facts(op: Instruction) -> str:
    """One labelled line, or several, for each thing that is known."""
    types = ", ".join(f"{name} {value}" for name, value in types_of(op).items())
    rows: list[tuple[str, Iterable[str]]] = [
        ("family", [op.family]),
        *([("shape", [str(op.shape)]), ("types", [types])] if op.fragments else []),
        ("requires", [str(op.requires)]),
    ]
    groups: defaultdict[str | None, list[str]] = defaultdict(list)
    for target in op.requires.targets:
        groups[op.expanded_to(target)].append(target)
    for to, targets in groups.items():
        label, head = ("native", "") if to is None else ("expanded", f"to {to} on ")
        rows.append((label, _wrap(head + " ".join(targets))))
    if op.granularity is not None:
        selectors = one_of(op.selectors)
        rows.append(("sparsity", [f"{op.granularity}, selector {selectors}"]))
    for form, operands in _operand_forms(op).items():
        title = [] if form == "operands" else [f"{form}:"]
        rows.append(
            ("operands", [*title, *(map(str, operands) if operands else ["none"])])
        )
    rows += [("note", _wrap(note)) for note in op.notes]
    return "\n".join(_labelled(label, lines) for label, lines in rows)


def _wrap(text: str, indent: int = 10) -> list[str]:
    return textwrap.wrap(
        text, width() - indent, break_long_words=False, break_on_hyphens=False
    )


def _labelled(label: str, lines: Iterable[str], indent: int = 10) -> str:
    first, *rest = [*lines] or [""]
    more = "".join(f"\n{'':<{indent}}{line}" for line in rest if line)
    return f"{label:<{indent}}{first}{more}"


def _fragments_text(op: Instruction) -> list[str]:
    """Each fragment once; C and D share a heading where they are alike."""
    alike: defaultdict[tuple[object, ...], list[Fragment]] = defaultdict(list)
    for part in op.fragments.values():
        alike[part.dtype, part.layout, part.letter in "cd"].append(part)
    return [_fragment_text(parts) for parts in alike.values()]


def _fragment_text(parts: list[Fragment]) -> str:
    part = parts[0]
    size = " x ".join(map(str, part.shape))
    stored = " stored" if part.stored > 1 else ""
    each = f"{part.registers} register{'s' * (part.registers > 1)}"
    held = f" of {part.elements}" if part.elements > 1 else ""
    lanes = f"each of {part.lanes} lanes" if part.lanes > 32 else "each lane"
    names = " and ".join(like.name for like in parts)
    rows = [
        ("layout", [str(part.layout)]),
        ("CuTe", [part.to_cute()]),
        ("linear", _linear_lines(part)),
        ("formula", formula_text(part, width() - 12).splitlines()),
    ]
    if part.observed:
        rows.append(("observed", [f"on {part.observed}"]))
    head = f"{names}: {size} {part.dtype}{stored}, {each}{held} in {lanes}"
    lines = "\n".join(_labelled(label, lines) for label, lines in rows)
    return f"{head}\n{textwrap.indent(lines, '  ')}"


def _linear_lines(part: Fragment) -> list[str]:
    bases = _linear(part)
    if bases is None:
        return ["none: a size is not a power of two"]
    return [
        f"{axis:<9}" + (" ".join(str(v).replace(" ", "") for v in vectors) or "one")
        for axis, vectors in bases.items()
    ]


# ── formula ─────────────────────────────────────────────────────────────────


@command(
    "formula",
    "fragmenta formula mma.sp.m16n8k64.s4.s4",
    "fragmenta formula mma.m16n8k16.f32.f16 C",
)
def formula(
    instruction: InstructionText, operand_: OperandName = "", as_json: AsJson = False
) -> None:
    op = find_holding(instruction, "write a formula for")
    parts = [operand(op, operand_)] if operand_ else list(op.fragments.values())
    if as_json:
        formulas = {part.name: part.formula() for part in parts}
        emit_json({"instruction": str(op), "formulas": formulas})
        return
    texts = [f"{part.name}:\n{formula_text(part, width())}" for part in parts]
    emit("\n\n".join([str(op), *texts]))


def formula_text(part: Fragment, room: int) -> str:
    """The formula, with conditions on their own lines where it is too wide."""
    text = part.formula()
    if max(map(len, text.splitlines())) <= room:
        return text
    written = notation.formula(part.layout, part.letter, part.stored)
    definitions, _, _ = text.rpartition("\n\n")
    lines = [*definitions.splitlines(), ""] if definitions else []
    indent = max(len(name) for name, _ in written.cases)
    for name, cases in written.cases:
        for number, case in enumerate(cases):
            head = f"{name:<{indent}} = " if number == 0 else " " * (indent + 3)
            lines.append(head + case.expression)
            if case.condition:
                lines.append(" " * (indent + 5) + case.condition)
    return "\n".join(lines)
