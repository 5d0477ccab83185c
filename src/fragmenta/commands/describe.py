"""The commands ``show`` and ``formula``: everything about one instruction."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Literal

import typer

from fragmenta.commands.app import command
from fragmenta.commands.arguments import (
    Idesc,
    InstructionText,
    InstructionWords,
    OperandName,
    find,
    find_holding,
    find_operand,
)
from fragmenta.commands.descriptors import shape_lines
from fragmenta.commands.options import AsJson
from fragmenta.commands.output import emit, emit_json, width
from fragmenta.commands.summary import print_summary
from fragmenta.errors import AmbiguousInstruction, BadCall, LayoutError, one_of
from fragmenta.frontends.api.instructions import public
from fragmenta.frontends.api.records import (
    certainty,
    has_shape,
    linear_layout,
    multiplies,
    operand_forms,
    optional_operands,
    python_calls,
    record,
)
from fragmenta.reference.execution.summing import sums
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.possible import possible_types, types_of
from fragmenta.reference.isa.sass import code_text, sass, targets_text
from fragmenta.reference.isa.searching import search
from fragmenta.reference.isa.tcgen05_shapes import OF_KIND
from fragmenta.reference.isa.tcgen05_words import SCALES
from fragmenta.reference.registers import notation
from fragmenta.reference.registers.expressions import Direction, Expressions, Language
from fragmenta.reference.registers.fragment import Fragment
from fragmenta.reference.registers.tensor_fragment import TensorFragment

# ── show ────────────────────────────────────────────────────────────────────


@command(
    "show",
    "fragmenta show mma.sp.m16n8k64.s4.s4",
    "fragmenta show wgmma.m64n256k16.f32.bf16 --json",
    "fragmenta show tcgen05.mma.cta_group::1.kind::f16",
    "fragmenta show tcgen05.mma.cta_group::1.kind::f16 0x08400010",
    "fragmenta show tcgen05.m128n256k16.f32.f16",
    "fragmenta show sparse int8 16x8x64",
    "fragmenta show HMMA.16816.F32",
    "fragmenta show mma m16n8k16",
)
def show(
    instruction: InstructionWords, idesc: Idesc = None, as_json: AsJson = False
) -> None:
    """Of words that fit several instructions, it shows their shapes and types."""
    text = " ".join(instruction)
    try:
        op = find(text, idesc)
    except AmbiguousInstruction:
        if idesc is not None or not search(text):
            raise
        print_summary(text, as_json)
        return
    if as_json:
        emit_json(record(public(op)))
        return
    emit(f"{op}\n")
    emit("\n\n".join([_facts(op), *_fragments_text(op)]))


def _facts(op: Instruction) -> str:
    """Labelled lines: family, shape, types, targets, operands, sums."""
    types = ", ".join(f"{name} {value}" for name, value in types_of(op).items())
    rows: list[tuple[str, Iterable[str]]] = [
        ("family", [op.family]),
        *([("shape", [str(op.shape)]), ("types", [types])] if has_shape(op) else []),
        *_descriptor_facts(op),
        ("requires", _wrap(str(op.requires))),
    ]
    groups: defaultdict[str | None, list[str]] = defaultdict(list)
    for target in op.requires.targets:
        groups[op.expanded_to(target)].append(target)
    for to, targets in groups.items():
        label, head = ("native", "") if to is None else ("expanded", f"to {to} on ")
        rows.append((label, _wrap(head + " ".join(targets))))
    rows.append(("sass", _sass_lines(op)))
    if has_shape(op) and op.granularity is not None:
        selectors = one_of(op.selectors)
        selector = f", selector {selectors}" if selectors else ""
        rows.append(("sparsity", [f"{op.granularity}{selector}"]))
    for form, operands in operand_forms(op).items():
        title = [] if form == "operands" else [f"{form}:"]
        rows.append(
            ("operands", [*title, *(map(str, operands) if operands else ["none"])])
        )
    optional = optional_operands(op)
    texts = [line for each in optional for line in _wrap(str(each))]
    rows += [("optional", texts)] if texts else []
    texts = [each for call in python_calls(public(op)).values() for each in _wrap(call)]
    rows += [("Python", texts)] if texts else []
    rows += [("note", _wrap(note)) for note in op.notes]
    rows += [("sums", _sums_lines(op))] if multiplies(op) else []
    sure = [line for each in certainty(op).items() for line in _wrap(": ".join(each))]
    rows += [("how sure", sure)] if sure else []
    return "\n".join(_labelled(label, lines) for label, lines in rows)


def _sass_lines(op: Instruction) -> list[str]:
    """Its machine instructions, grouped by targets.

    What it is expanded to stands in a line of its own already.
    """
    found: dict[str, list[str]] = {}
    for target in op.requires.targets:
        code = sass(op, target)
        found.setdefault(code_text(code.code, code.others), []).append(target)
    if len(found) == 1:
        return _wrap(next(iter(found)))
    return [
        line
        for code, targets in found.items()
        for line in _wrap(f"{targets_text(targets)}: {code}")
    ]


def _sums_lines(op: Instruction) -> Iterator[str]:
    """How it adds, grouped by targets."""
    for each in sums(op):
        yield from _wrap(" ".join(each.targets))
        yield from ("  " + line for line in _wrap(str(each), 12))


def _descriptor_facts(op: Instruction) -> list[tuple[str, Iterable[str]]]:
    """What an instruction descriptor says; without one, what it may say."""
    if not op.tensor_memory:
        return []
    if op.descriptor is None:
        shapes = shape_lines(op)
        if not shapes:
            return [("shapes", ["not known: no source says which there are"])]
        return [
            ("shapes", [*shapes, "the instruction descriptor says which one"]),
            ("types", _wrap(_types_text(op))),
        ]
    ctas = "a pair of CTAs" if op.cta_group == 2 else "one CTA"
    read = f"fragmenta idesc {op.idesc:#010x} --kind {op.kind} prints its fields"
    return [
        ("layout", [f"{op.layout_letter} of the PTX manual, {ctas}"]),
        ("idesc", [f"{op.idesc:#010x}", read]),
    ]


def _types_text(op: Instruction) -> str:
    row = OF_KIND[op.kind or ""]
    scales = [each for each in possible_types(op) if each in SCALES]
    texts = f"a, b: {one_of(row.operands)}; d: {one_of(row.results)}"
    return texts + (f"; scales: {one_of(scales)}" if scales else "")


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
    names = " and ".join(like.name for like in parts)
    rows = [
        ("layout", [str(part.layout)]),
        ("CuTe", [part.to_cute()]),
        ("linear", _linear_lines(part)),
        ("formula", formula_text(part, width() - 12).splitlines()),
    ]
    if part.observed:
        rows.append(("observed", [f"on {part.observed}"]))
    head = f"{names}: {size} {part.dtype}{stored}, {_extent(part)}"
    lines = "\n".join(_labelled(label, lines) for label, lines in rows)
    return f"{head}\n{textwrap.indent(lines, '  ')}"


def _extent(part: Fragment) -> str:
    """The registers or columns of a fragment, in words."""
    word = "column" if isinstance(part, TensorFragment) else "register"
    each = f"{part.registers} {word}{'s' * (part.registers > 1)}"
    held = f" of {part.elements}" if part.elements > 1 else ""
    if isinstance(part, TensorFragment):
        where = " of two CTAs" if part.pair else ""
        return f"{each}{held} in tensor memory{where}"
    lanes = f"each of {part.lanes} lanes" if part.lanes > 32 else "each lane"
    return f"{each}{held} in {lanes}"


def _linear_lines(part: Fragment) -> list[str]:
    bases = linear_layout(part)
    if bases is None:
        return ["none: a size is not a power of two"]
    return [
        f"{axis:<9}" + (" ".join(str(v).replace(" ", "") for v in vectors) or "one")
        for axis, vectors in bases.items()
        if vectors or axis != "block"
    ]


# ── formula ─────────────────────────────────────────────────────────────────


@command(
    "formula",
    "fragmenta formula mma.sp.m16n8k64.s4.s4",
    "fragmenta formula mma.m16n8k16.f32.f16 C",
    "fragmenta formula mma.m16n8k64.s4.s4 A --language cuda",
    "fragmenta formula mma.m16n8k64.s4.s4 A --language cuda --name L=threadIdx.x",
    "fragmenta formula tcgen05.m64n32k16.f32.f16 D --language python --json",
)
def formula(
    instruction: InstructionText,
    operand_: OperandName = "",
    language: Annotated[
        Literal["cuda", "python"] | None,
        typer.Option(help="Print index expressions of this language instead."),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="VARIABLE=NAME",
            help="What a variable is called, such as L=threadIdx.x or row=i; may be "
            "repeated.",
            show_default=False,
        ),
    ] = None,
    idesc: Idesc = None,
    as_json: AsJson = False,
) -> None:
    """--language prints both ways: the element of a place, and its place.

    --name names their variables, by letter or by word.  One that is given may also be
    called threadIdx.x or be a number; where it is the result, it then keeps its own
    name.
    """
    if name and language is None:
        raise BadCall(
            "--name is for the variables of --language cuda or python; give one of them"
        )
    what = "write a formula for"
    if operand_:
        meant = find_operand(instruction, operand_, idesc, what)
        parts, head, about = [meant.part], meant.head, meant.named
    else:
        op = find_holding(instruction, what, idesc)
        parts, head = list(op.fragments.values()), [str(op)]
        about = {"instruction": str(op)}
    if language is not None:
        found = _written(parts, language, name or [])
        if as_json:
            emit_json({**about, "language": language, "expressions": found})
        else:
            emit(_expressions(head, found, language))
        return
    if as_json:
        formulas = {part.name: part.formula() for part in parts}
        emit_json({**about, "formulas": formulas})
        return
    texts = [f"{part.name}:\n{formula_text(part, width())}" for part in parts]
    emit("\n\n".join(["\n".join(head), *texts]))


DIRECTIONS: tuple[Direction, ...] = ("holds", "where")
Written = dict[str, dict[str, Expressions]]
"""The expressions of each direction, by operand."""


def _written(parts: list[Fragment], language: Language, given: list[str]) -> Written:
    """Index expressions in both directions; a name that fits nowhere is refused."""
    names = dict(map(_variable, given))
    if len(names) < len(given):
        raise BadCall(f"--name gives a variable two names: {' '.join(given)}")
    used: set[str] = set()
    found: Written = {}
    for part in parts:
        for direction in DIRECTIONS:
            fitting = _fitting(part, direction, language, names)
            used |= set(fitting)
            each = part.to_cuda(direction, language=language, **fitting)
            found.setdefault(part.name, {})[direction] = each
    for variable in sorted(names.keys() - used):
        raise LayoutError(_why_not(parts, language, {variable: names[variable]}))
    return found


def _why_not(
    parts: list[Fragment], language: Language, name: dict[str, str | int]
) -> str:
    """The message for a name that no variable can have."""
    said = []
    for part in parts:
        for direction in DIRECTIONS:
            try:
                part.to_cuda(direction, language=language, **name)
            except LayoutError as error:
                said.append(str(error))
    called = [each for each in said if not each.startswith("the variables are")]
    return (called or said)[0]


def _variable(text: str) -> tuple[str, str | int]:
    variable, sign, name = (each.strip() for each in text.partition("="))
    reserved = ("self", "direction", "language")  # words of to_cuda itself
    if not (variable and sign and name) or variable in reserved:
        raise BadCall(f"--name is VARIABLE=NAME, such as L=threadIdx.x; given {text!r}")
    return variable, int(name) if name.isdecimal() else name


def _fitting(
    part: Fragment,
    direction: Direction,
    language: Language,
    names: Mapping[str, str | int],
) -> dict[str, str | int]:
    """The names that belong to variables of one direction."""
    found = {}
    for variable, name in names.items():
        try:
            part.to_cuda(direction, language=language, **{variable: name})
        except LayoutError:
            continue
        found[variable] = name
    return found


def _expressions(head: list[str], found: Written, language: Language) -> str:
    """Index expressions below the names of the instructions."""
    sign = "//" if language == "cuda" else "#"
    texts = [
        f"{sign} {name}: the element at a place\n{each['holds']}\n\n"
        f"{sign} {name}: the place of an element\n{each['where']}"
        for name, each in found.items()
    ]
    return "\n\n".join(["\n".join(f"{sign} {line}" for line in head), *texts])


def formula_text(part: Fragment, room: int) -> str:
    """The formula, with conditions on their own lines where it is too wide."""
    text = part.formula()
    fits = max(map(len, text.splitlines())) <= room
    if fits or isinstance(part, TensorFragment):
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
