"""A ``__device__`` function around the inline ``asm`` of one instruction.

Fragments are arrays of registers, immediates are template parameters, and a
predicate is a ``bool`` that the asm turns into one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import groupby

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.cuda.source import ptx, tensor_comments
from fragmenta.cuda.source.access import REGISTERS
from fragmenta.cuda.source.formatting import (
    WIDTH,
    broken,
    comment,
    legal_values,
    signature,
    template,
    wrapped,
)
from fragmenta.cuda.source.helpers import Snippet, tensor_needs
from fragmenta.errors import one_of
from fragmenta.reference.isa.instruction import Instruction, Operand
from fragmenta.reference.isa.operand_lists import destination, is_written
from fragmenta.reference.isa.tables.moves import row_bytes

_SPARSITY = ("mdata", "cdata", "data")
_ARRAYS = (*"dabc", "r", "spmeta", "disable_output_lane", *_SPARSITY)
"""The operands that are arrays of registers, if they are in registers."""


def function_name(op: Instruction) -> str:
    """The mnemonic as an identifier, without the qualifiers that every spelling has.

    >>> import fragmenta as fm
    >>> function_name(fm.mma("m16n8k64", a="s4", sp="sp::ordered_metadata"))
    'mma_sp_ordered_m16n8k64_s32_s4_s4_s32'
    """
    named = [name for name in _IMPLIED if op.values.get(name)]
    implied = {name: "" for name in named if _only_choice(op, name)}
    text = op.form.spell({**op.values, **implied})
    text = text.replace(".mma_async", "").replace(".sync.aligned", "")
    text = re.sub(r"\b(kind|scale_vec)::|\.block_scale", "", text)
    text = text.replace("cta_group::", "cta").replace(".mbarrier::arrive::one", "")
    text = text.replace("sp::ordered_metadata", "sp_ordered").replace("b8x16.", "")
    name = re.sub(r"[.:]+", "_", text)
    return "_".join([name, *tensor_comments.described(op)])


_IMPLIED = ("alayout", "blayout", "scale_vec", "stype")


def _only_choice(op: Instruction, name: str) -> bool:
    """Whether the shape, the types and the kind leave a qualifier no choice."""
    alike = [
        row
        for row in op.form.rows
        if all(row.takes(n, op.values.get(n, "")) for n in ("shape", "kind", "a"))
    ]
    return len({v for row in alike for v in row.allowed.get(name, ())}) == 1


@dataclass(frozen=True)
class Argument:
    """One operand as the function takes it and as the asm uses it."""

    operand: Operand
    output: bool = False
    kept: bool = False
    """Whether the output's old value is read as well."""
    space: str = ""
    idesc: int | None = None
    """The default of an instruction descriptor."""

    @property
    def array(self) -> bool:
        """Whether it is a fragment: an array of registers."""
        return self.operand.name in _ARRAYS and self.operand.ptx.startswith(_HELD)

    @property
    def in_registers(self) -> bool:
        """Whether it is an array of registers, or one."""
        return self.array or self.operand.ptx.startswith(_HELD)

    @property
    def template(self) -> bool:
        """Whether it is an immediate with a choice."""
        return len(self.operand.values) > 1 or self.operand.ptx in _CONSTANTS

    @property
    def literal(self) -> str:
        """The value of an immediate without a choice."""
        return str(self.operand.values[0]) if len(self.operand.values) == 1 else ""

    @property
    def name(self) -> str:
        """The parameter's name."""
        if self.operand.ptx == ".b64" and self.operand.name in "abs":
            return f"{self.operand.name}_descriptor"
        return self.operand.name

    @property
    def default(self) -> int:
        """The default of an immediate."""
        return ptx.default(self.operand)

    def parameter(self) -> str:
        """The parameter of the function, or of its template."""
        operand = self.operand
        if self.template:
            default = "" if operand.ptx == "columns" else f" = {self.default}"
            return f"int {self.name}{default}"
        if operand.ptx == "address":
            return f"{'' if self.output else 'const '}void* {self.name}"
        if operand.ptx == "stride":
            return "int stride"
        if operand.ptx == ".pred":
            return f"bool {self.name} = true"
        kind, _ = REGISTERS[_class(operand)]
        if self.array:
            const = "" if self.output else "const "
            return f"{const}{kind} (&{self.name})[{operand.count}]"
        if self.has_default:
            return f"{kind} {self.name} = {self.idesc:#010x}"
        return f"{kind}{'&' * self.output} {self.name}"

    def bindings(self) -> list[str]:
        """The asm's operands: a constraint and an expression each."""
        operand = self.operand
        if self.literal:
            return []
        if self.template:
            return [f'"n"({self.name})']
        if operand.ptx == "address":
            where, constraint = _ADDRESSES[self.space]
            return [f'"{constraint}"({where.format(self.name)})']
        if operand.ptx == "stride":
            return ['"r"(stride)']
        if operand.ptx == ".pred":
            return [f'"r"(static_cast<int>({self.name}))']
        _, constraint = REGISTERS[_class(operand)]
        mark = ("+" if self.kept else "=") if self.output else ""
        if not self.array:
            return [f'"{mark}{constraint}"({self.name})']
        return [f'"{mark}{constraint}"({self.name}[{i}])' for i in range(operand.count)]

    @property
    def has_default(self) -> bool:
        """Whether a call may leave it out."""
        given = self.operand.name == "idesc" and self.idesc is not None
        return given or self.operand.ptx == ".pred"

    def check(self) -> str:
        """A test of a template's parameter at compile time, or nothing."""
        if self.template and self.operand.values:
            return legal_values(self.name, self.operand.values)
        if self.operand.ptx == "columns":
            return tensor_comments.legal_columns(self.name)
        return ""


_HELD = (".b32", ".f", ".s32")
"""The registers of arrays."""
_CONSTANTS = ("integer", "constant", "columns")
"""Operands that the asm writes as numbers."""


def _class(operand: Operand) -> str:
    """The registers of an operand; an address in tensor memory is a number."""
    return ".b32" if operand.ptx in ("tensor", "number") else operand.ptx


_SHARED = "static_cast<unsigned>(__cvta_generic_to_shared({}))"
#: How a pointer becomes an address of each state space, and its constraint.
_ADDRESSES = {
    "": ("{}", "l"),
    "global": ("__cvta_generic_to_global({})", "l"),
    "shared": (_SHARED, "r"),
    "shared::cta": (_SHARED, "r"),
    "shared::cluster": (_SHARED, "r"),
}


@dataclass(frozen=True)
class WrapperFunction:
    """The function around one instruction."""

    op: Instruction
    name: str
    a_registers: bool = False
    options: ptx.MmaOptions = ptx.PLAIN

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """Every operand, in PTX order."""
        op = self.op
        listed = ptx.operands(op, a_registers=self.a_registers, options=self.options)
        written = destination(op) or "address"
        kept = op.warpgroup
        space = op.values.get("space", "")
        return tuple(
            Argument(each, _writes(op, each, written), kept, space, op.idesc)
            for each in listed
        )

    @cached_property
    def outputs(self) -> list[Argument]:
        """The registers that the asm writes."""
        return [each for each in self.arguments if each.output and each.in_registers]

    @cached_property
    def inputs(self) -> list[Argument]:
        """Everything else that the asm names."""
        return [each for each in self.arguments if each not in self.outputs]

    def text(self) -> str:
        """The function, without its comment."""
        templates = [a.parameter() for a in self.arguments if a.template]
        head = template(templates)
        checks = [f"    {a.check()}" for a in self.arguments if a.check()]
        opening = signature(
            f"__device__ __forceinline__ void {self.name}", self._parameters()
        )
        body = [*checks, *(f"    {line}" for line in self._asm())]
        return f"{head}{opening}\n{{\n" + "\n".join(body) + "\n}\n"

    def _parameters(self) -> list[str]:
        """The function's parameters: in PTX order, those with a default last."""
        listed = [a for a in self.arguments if not (a.template or a.literal)]
        return [a.parameter() for a in sorted(listed, key=_left_out)]

    def _asm(self) -> Iterator[str]:
        yield "asm volatile("
        yield from (f'    "{line}"' for line in self._lines())
        yield from _section(self.outputs)
        *lines, last = _section(self.inputs)
        yield from lines
        if not _alone(self.op):
            yield last
            last = '    : "memory"'
        yield last + ");"

    def _lines(self) -> list[str]:
        """The text of the asm, as string literals without their quotes."""
        numbered = self._numbered()
        mnemonic, operands = self._statement(numbered)
        lines = broken(mnemonic, WIDTH - 16)
        lines[-1] += "\\n"
        lines += [f"  {line}\\n" for line in operands]
        flags = [a for a in self.arguments if a.operand.ptx == ".pred"]
        if not flags:
            return lines
        return [
            "{\\n",
            "  .reg .pred accumulate;\\n",
            f"  setp.ne.b32 accumulate, {numbered[flags[0].name][0]}, 0;\\n",
            f"  {lines[0]}",
            *(f"  {line}" for line in lines[1:]),
            "}\\n",
        ]

    def _statement(self, numbered: Mapping[str, list[str]]) -> tuple[str, list[str]]:
        """The mnemonic, and its operands: each fragment on lines of its own."""
        named = {a.operand.name: _operand(a, numbered[a.name]) for a in self.arguments}
        text = ptx.statement(
            self.op, a_registers=self.a_registers, options=self.options, **named
        )
        mnemonic, _, rest = text.partition(" ")
        arrays = {named[a.operand.name] for a in self.arguments if a.array}
        lines: list[str] = []
        alone = True
        for operand in re.findall(r"\{[^}]*\}[,;]|[^{,;]+[,;]", rest):
            words, before = operand.strip(), alone
            alone = words[:-1] in arrays
            if not (alone or before):
                lines[-1] += f" {words}"
            else:
                first, *more = wrapped(words.split(" "), WIDTH - 22)
                lines += [first, *(f" {line}" for line in more)]
        return mnemonic, lines

    def _numbered(self) -> dict[str, list[str]]:
        """The asm's number of each operand: outputs first."""
        found, count = {}, 0
        for each in (*self.outputs, *self.inputs):
            size = len(each.bindings())
            found[each.name] = [f"%{count + i}" for i in range(size)]
            count += size
        return found


def _operand(argument: Argument, numbers: list[str]) -> str:
    if argument.literal:
        return argument.literal
    if argument.operand.ptx == ".pred":
        return "accumulate"
    if argument.operand.ptx in ("address", "tensor"):
        return f"[{numbers[0]}]"
    if argument.operand.vector and argument.array:
        return "{" + ", ".join(numbers) + "}"
    return numbers[0]


def _left_out(argument: Argument) -> int:
    """The sort key: parameters with a default come last, the descriptor after them."""
    named = argument.operand.name == "idesc"
    return (1 + named) if argument.has_default else 0


def _writes(op: Instruction, operand: Operand, written: str) -> bool:
    """Whether it writes these registers, or to this address."""
    named = (written, "dst", "mbar")
    return is_written(op, operand) or operand.name in named


def _section(arguments: list[Argument]) -> list[str]:
    """One section of the asm's operands: each fragment on lines of its own."""
    groups: list[list[str]] = []
    for array, group in groupby(arguments, key=lambda each: each.array):
        bound = [each.bindings() for each in group]
        groups += bound if array else [[word for words in bound for word in words]]
    filled = [group for group in groups if group]
    lines: list[str] = []
    for number, words in enumerate(filled):
        end = "," if number < len(filled) - 1 else ""
        lines += wrapped([*(f"{w}," for w in words[:-1]), words[-1] + end], WIDTH - 10)
    if not lines:
        return ["    :"]
    return [f"    : {lines[0]}", *(f"      {line}" for line in lines[1:])]


def instruction_piece(
    op: Instruction,
    name: str | None = None,
    *,
    a_registers: bool = False,
    options: ptx.MmaOptions = ptx.PLAIN,
) -> Snippet:
    """The function, with a comment that says what it does and which lane holds what."""
    call = WrapperFunction(
        op, name or function_name(op) + options.tag, a_registers, options
    )
    key = f"{call.name} with A in registers" if a_registers else call.name
    needs = ("wgmma",) if op.warpgroup else tensor_needs(op)
    said = describe(op, a_registers=a_registers, options=options)
    text = "\n".join(said) + "\n" + call.text()
    return Snippet(key, text, needs, op.requires.text)


def describe(
    op: Instruction, *, a_registers: bool = False, options: ptx.MmaOptions = ptx.PLAIN
) -> list[str]:
    """Comment lines: the mnemonic, its requirements, what it does, its layouts."""
    first, *more = broken(str(op), WIDTH - 5)
    lines = [f"// {first}", *(f"//   {line}" for line in more)]
    does = tensor_comments.does(op, options) or _does(op, a_registers)
    lines += [*comment(does), *comment(_needs(op))]
    if op.unit == "mma":  # the notes of the others stand below
        lines += [line for note in op.notes for line in comment(note)]
    from_memory = op.warpgroup and not a_registers
    if op.tensor_memory:
        from_memory = not ptx.check_options(op, options).a_tensor
    if not op.fragments:
        return lines
    seen: dict[str, list[str]] = {}
    for name, part in op.fragments.items():
        if not (name == "A" and from_memory):
            seen.setdefault(str(part.layout), []).append(name)
    width = max(len(", ".join(names)) for names in seen.values())
    lines += [f"//   {', '.join(n):<{width}}  {line}" for line, n in seen.items()]
    return lines + comment(_legend(op))


def _alone(op: Instruction) -> bool:
    """Whether it accesses no memory, so that the compiler may move it past accesses."""
    return op.warp or op.moves == "transpose" or op.unit == "sparsity"


def _needs(op: Instruction) -> str:
    """The version and the targets, spelled out."""
    words = op.requires.text
    later = words.endswith("+")
    targets = f"{words[:-1]} or later" if later else one_of(op.requires.targets)
    return f"Needs PTX {op.requires.ptx} and {targets}."


def _does(op: Instruction, a_registers: bool) -> str:
    """What it does, with which matrices."""
    if "does" in op.row.facts:
        return op.row.facts["does"]
    if op.unit == "matrix":
        return _moves(op)
    if op.unit == "wmma" and op.moves:
        return _moves_fragment(op)
    m, n, k = op.shape
    a, b, d = (f"{op.types[name]}" for name in "abd")
    a += f" stored as {m} x {k // 2}" if op.sparse else ""
    who, then = "One warp", ""
    if op.warpgroup:
        who, b = "One warpgroup", f"{b} in shared memory"
        a += "" if a_registers else " in shared memory"
        then = " C is what d holds before; scale_d = false leaves it out."
    if "matrix" in op.d.layout.data:
        then = " Four such in each warp."
    scaled = ", both scaled," if op.scale_vec else ""
    return (
        f"{who}: D ({m} x {n} {d}) = A ({m} x {k} {a}) * B ({k} x {n} {b})"
        f"{scaled} + C.{then}"
    )


def _moves_fragment(op: Instruction) -> str:
    (part,) = op.fragments.values()
    size = " x ".join(map(str, part.shape))
    verb, way = ("Load", "from") if op.loads else ("Store", "to")
    line = {"row": "row", "col": "column"}[op.values["layout"]]
    aligned = part.registers * part.register_bits // 8
    return (
        f"{verb} {part.name}, {size} {part.dtype}, {way} {line}-major memory. stride: "
        f"elements from one {line} to the next; each begins on a multiple of {aligned} "
        "bytes."
    )


def _moves(op: Instruction) -> str:
    part = next(iter(op.fragments.values()))
    count, rows, cols = part.shape
    if op.moves == "transpose":
        return f"Transpose one {rows} x {cols} matrix of {part.dtype} in registers."
    verb, way = ("Load", "from") if op.loads else ("Store", "to")
    what = "matrices" if count > 1 else "matrix"
    whose = f"row L % {rows} of matrix L / {rows}" if count > 1 else "row L"
    every = count * rows < 32 and "sm_75" in op.requires.targets
    warning = " On sm_75 every lane must give a valid one." if every else ""
    width = row_bytes(op)
    return (
        f"{verb} {count} {what} of {rows} x {cols} {part.dtype} {way} shared memory. "
        f"Lane L of 0 to {count * rows - 1} gives the address of {whose}: {width} "
        f"bytes, aligned to {width}.{warning}"
    )


def _legend(op: Instruction) -> str:
    if op.tensor_memory:
        return tensor_comments.legend(op)
    axes = {axis for part in op.fragments.values() for axis, _ in part.layout.axes}
    warp = ("W, ", "the warp, ") if "W" in axes else ("", "")
    said = (
        f"{warp[0]}L, R, E: bits of {warp[1]}the lane, the register and the element in "
        "it, lowest first."
    )
    seen = op.observed
    return said + (f" Observed on {seen}; no manual promises it." if seen else "")
