"""How does a thread find its elements in memory?

CUDA functions that load a fragment from a matrix in memory, or store one, are
written here from the digits of its :class:`~fragmenta.layout.Layout` alone.
Elements of a register that are neighbours in memory move together, as one
word; others one by one.  Elements narrower than a byte are packed in memory,
the first in the lowest bits.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from fragmenta import notation
from fragmenta.cuda.helpers import Piece
from fragmenta.errors import Error
from fragmenta.fragment import Fragment
from fragmenta.isa.instruction import Instruction, register_class
from fragmenta.layout import Digit, Layout
from fragmenta.metadata import Metadata

WIDTH = 88

#: C type and asm constraint of each PTX register class.
REGISTERS = {
    ".b32": ("unsigned", "r"),
    ".s32": ("int", "r"),
    ".f32": ("float", "f"),
    ".f64": ("double", "d"),
    ".b64": ("unsigned long long", "l"),
}

#: What each place axis is called in the generated code.
NAMES = {"W": "warp", "L": "lane", "R": "r", "E": "e"}

_UNITS = {8: "unsigned char", 16: "unsigned short", 32: "unsigned"}
_DIMENSIONS = {"A": "mk", "B": "kn", "C": "mn", "D": "mn"}


# ── a coordinate as a C expression ──────────────────────────────────────────


def expression(layout: Layout, coordinate: str, *, run: int = 1) -> str:
    """One coordinate as C, over ``warp``, ``lane``, ``r`` and ``e``.

    ``run`` elements that are read together share the expression of the
    first: the digits of ``e`` below it are left out.

    >>> import fragmenta as fm
    >>> a = fm.mma("m16n8k16", a="f16", d="f32").a
    >>> expression(a.layout, "row"), expression(a.layout, "col")
    ('(lane >> 2) + 8 * (r & 1)', '2 * (lane & 3) + 8 * (r >> 1) + e')
    """
    sizes = dict(layout.axes)
    order = "WLRE"
    runs = sorted(_runs(layout, coordinate, run), key=lambda r: order.index(r.axis))
    terms = [_term(each, sizes[each.axis]) for each in runs]
    if len(terms) == 1 and terms[0].startswith("("):
        return terms[0][1:-1]
    return " + ".join(terms) or "0"


def _runs(layout: Layout, coordinate: str, run: int) -> list[notation.Run]:
    """The digits of a coordinate, those that count on in one axis as one."""
    found: list[notation.Run] = []
    weight = 1
    for digit in dict(layout.coordinates)[coordinate]:
        last = found[-1] if found else None
        if digit.axis == "E" and digit.stride < run:
            pass
        elif last and _follows(last, digit, weight):
            found[-1] = last._replace(size=last.size * digit.size)
        else:
            found.append(notation.Run(*digit, weight))
        weight *= digit.size
    return found


def _follows(last: notation.Run, digit: Digit, weight: int) -> bool:
    return (last.axis, last.stride * last.size, last.weight * last.size) == (
        digit.axis,
        digit.stride,
        weight,
    )


def _term(run: notation.Run, size: int) -> str:
    """``weight * (axis >> shift & mask)``, without what changes nothing."""
    name, shift = NAMES[run.axis], run.stride.bit_length() - 1
    value = f"{name} >> {shift}" if shift else name
    if run.stride * run.size < size:
        value = f"({value}) & {run.size - 1}" if shift else f"{name} & {run.size - 1}"
    value = value if value == name else f"({value})"
    return value if run.weight == 1 else f"{run.weight} * {value}"


# ── one function ────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Access:
    """A fragment against memory in one order: what moves together.

    ``order`` is ``row`` or ``col``: which of them is contiguous.
    """

    part: Fragment
    order: str

    @cached_property
    def directions(self) -> tuple[str, str]:
        """The two coordinates: the one that strides, the one that is contiguous."""
        row, col = self.part.layout.data[-2:]
        return (row, col) if self.order == "row" else (col, row)

    @cached_property
    def run(self) -> int:
        """Elements of a register that are neighbours in memory, from e = 0."""
        covered = 1
        for digit in dict(self.part.layout.coordinates)[self.directions[1]]:
            if digit.axis != "E" or digit.stride != covered:
                break
            covered *= digit.size
        # Less than a byte cannot be read at once.
        return covered if covered * self.bits >= 8 else 1

    @property
    def bits(self) -> int:
        """Bits of an element in memory: those of its container."""
        return self.part.container.bits

    @property
    def packed(self) -> bool:
        """Whether several elements share a byte of memory."""
        return self.bits < 8

    @cached_property
    def matrices(self) -> bool:
        """Whether the fragment holds several matrices."""
        return self.part.layout.sizes.get("matrix", 1) > 1

    @cached_property
    def register(self) -> str:
        """The C type of a register."""
        return REGISTERS[register_class(self.part.dtype)][0]

    @property
    def typed(self) -> bool:
        """Whether memory holds what registers hold: float, int or double."""
        return self.register != "unsigned"

    @property
    def scalar(self) -> bool:
        """Whether the operand is a single register that is no fragment array."""
        return self.part.name not in _DIMENSIONS

    @property
    def unit(self) -> str:
        """The C type of what moves together."""
        return _UNITS.get(self.run * self.bits, self.register)

    @cached_property
    def coordinates(self) -> dict[str, str]:
        """The coordinates of what moves, as C; those that are always 0 left out."""
        layout, contiguous = self.part.layout, self.directions[1]
        runs = dict.fromkeys(layout.data, 1) | {contiguous: self.run}
        texts = {name: expression(layout, name, run=runs[name]) for name in layout.data}
        return {name: text for name, text in texts.items() if text != "0"}

    @cached_property
    def offset(self) -> str:
        """Elements from the first one of the tile, as C."""
        strided, contiguous = self.directions
        terms = {
            "matrix": "matrix * matrix_stride",
            strided: f"{strided} * stride",
            contiguous: contiguous,
        }
        return " + ".join(t for n, t in terms.items() if n in self.coordinates) or "0"


def load(part: Fragment, order: str, name: str) -> tuple[str, tuple[str, ...]]:
    """A function that loads a fragment, and the helpers it needs.

    >>> import fragmenta as fm
    >>> c = fm.mma("m16n8k16", a="f16", d="f32").c
    >>> print(load(c, "row", "load_c")[0])
    __device__ __forceinline__ void load_c(
        float (&c)[4], const float* tile, int stride, int lane = lane_id())
    {
        #pragma unroll
        for (int r = 0; r < 4; ++r) {
            int row = (lane >> 2) + 8 * (r >> 1);
            int col = 2 * (lane & 3) + (r & 1);
            c[r] = tile[row * stride + col];
        }
    }
    <BLANKLINE>
    """
    access = Access(part, order)
    return _function(access, name, "load"), _needs(access)


def store(part: Fragment, order: str, name: str) -> tuple[str, tuple[str, ...]]:
    """A function that stores a fragment, and the helpers it needs.

    >>> import fragmenta as fm
    >>> d = fm.mma("m16n8k16", a="f16", d="f16").d
    >>> print(store(d, "row", "store_d")[0].splitlines()[-3].strip())
    *reinterpret_cast<unsigned*>(tile + row * stride + col) = d[r];
    """
    access = Access(part, order)
    if access.run * access.bits < 8:
        raise Error(
            f"{part.name} is {part.dtype}, packed in memory: two lanes would write to "
            f"one byte of a {order}-major matrix; store the other order"
        )
    return _function(access, name, "store"), _needs(access)


def _needs(access: Access) -> tuple[str, ...]:
    needs = ["lane_id"]
    if "W" in dict(access.part.layout.axes):
        needs.append("warp_id")
    if access.run * access.bits < 8:
        needs.append("nibble" if access.bits == 4 else "bit")
    return tuple(needs)


def _function(access: Access, name: str, direction: str) -> str:
    body = [*_checks(access), *_view(access, direction), *_loops(access, direction)]
    indented = "\n".join(f"    {line}" for line in body)
    head = template(_template(access))
    result = "unsigned" if access.scalar else "void"
    opening = signature(
        f"__device__ __forceinline__ {result} {name}", _parameters(access, direction)
    )
    return f"{head}{opening}\n{{\n{indented}\n}}\n"


def signature(head: str, parameters: Sequence[str]) -> str:
    """A function's head, its parameters wrapped and indented.

    >>> print(signature("void f", ["int a", "int b"]))
    void f(int a, int b)
    """
    line = f"{head}({', '.join(parameters)})"
    if len(line) <= WIDTH:
        return line
    if len(head) >= WIDTH:  # a long name begins a line
        before, _, name = head.rpartition(" ")
        head = f"{before}\n{name}"
    lines = wrapped([f"{text}," for text in parameters[:-1]] + [parameters[-1] + ")"])
    return "\n".join([f"{head}(", *(f"    {line}" for line in lines)])


def template(parameters: Sequence[str]) -> str:
    """The line above a function that makes it a template, if it is one.

    >>> print(template(["int selector"]), end="")
    template <int selector>
    """
    if not parameters:
        return ""
    line = f"template <{', '.join(parameters)}>"
    if len(line) <= WIDTH:
        return line + "\n"
    words = [f"{text}," for text in parameters[:-1]] + [parameters[-1] + ">"]
    return "\n".join(["template <", *(f"    {w}" for w in wrapped(words))]) + "\n"


def wrapped(words: Iterable[str], width: int = WIDTH - 4) -> list[str]:
    """Words filled into lines, none of them broken.

    >>> wrapped(["a,", "b,", "c"], width=5)
    ['a, b,', 'c']
    """
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _template(access: Access) -> list[str]:
    names = ["typename Element"] if not (access.packed or access.typed) else []
    if access.scalar and not access.packed:
        names = []  # scales are bytes
    return names + [f"int {each.parameter}" for each in selectors(access.part)]


def _parameters(access: Access, direction: str) -> list[str]:
    part = access.part
    const = "const " if direction == "load" else ""
    if access.packed:
        pointer = f"{const}void* tile"
    elif access.scalar:
        pointer = f"{const}unsigned char* tile"
    else:
        kind = access.register if access.typed else "Element"
        pointer = f"{const}{kind}* tile"
    held = "" if direction == "load" else "const "
    array = f"{held}{access.register} (&{part.letter})[{part.registers}]"
    parameters = [] if access.scalar else [array]
    parameters += [pointer, "int stride"]
    if access.matrices:
        parameters.append("int matrix_stride")
    parameters.append("int lane = lane_id()")
    if "W" in dict(part.layout.axes):
        parameters.append("int warp = warp_id()")
    return parameters


def _checks(access: Access) -> list[str]:
    """What must hold of the template's parameters, then which lanes load."""
    part, lines = access.part, []
    if not (access.packed or access.typed or access.scalar):
        size = access.bits // 8
        plural = "byte" if size == 1 else "bytes"
        what = f'"an element has {size} {plural}"'
        lines.append(f"static_assert(sizeof(Element) == {size}, {what});")
    chosen = selectors(part)
    lines += [legal_values(each.parameter, each.legal) for each in chosen]
    lines += [
        f"if ({each.value} != {each.parameter}) return 0;"
        for each in chosen
        if not each.inside
    ]
    return lines


class Selector(NamedTuple):
    """A choice of the places that count, as a template's parameter."""

    parameter: str
    legal: list[int]
    value: str
    """As C: the parameter's value for which this place counts."""
    inside: bool
    """Whether it chooses among the elements of a register, not among lanes."""


def selectors(part: Fragment) -> list[Selector]:
    """The selectors of metadata or scales; PTX counts pairs of bytes in bytes.

    >>> import fragmenta as fm
    >>> op = fm.find("mma.m16n8k64.kind::mxf4nvf4.scale_vec::2X")
    >>> [(each.parameter, each.legal) for each in selectors(op.scale_a)]
    [('thread', [0, 1]), ('byte', [0, 2])]
    """
    found = []
    for name in part.selectors:
        digit = dict(part.layout.coordinates)[name][0]
        inside = digit.axis == "E"
        step = digit.stride if inside else 1
        text = expression(part.layout, name)
        text = f"({text})" if " " in text else text
        found.append(
            Selector(
                "byte" if name == "pair" else name,
                [step * value for value in range(part.layout.sizes[name])],
                f"{step} * {text}" if step > 1 else text,
                inside,
            )
        )
    return found


def legal_values(name: str, values: Sequence[int]) -> str:
    """A check that a template parameter is one of some values.

    >>> print(legal_values("selector", [0, 1]))
    static_assert(selector == 0 || selector == 1, "selector is 0 or 1");
    """
    if list(values) == list(range(len(values))) and len(values) > 2:
        test = f"0 <= {name} && {name} < {len(values)}"
        return f'static_assert({test}, "{name} is 0 to {len(values) - 1}");'
    test = " || ".join(f"{name} == {value}" for value in values)
    words = " or ".join(map(str, values))
    return f'static_assert({test}, "{name} is {words}");'


def _loops(access: Access, direction: str) -> list[str]:
    """The loops over registers and, where they are several, units in each."""
    part = access.part
    held = "word" if access.scalar else f"{part.letter}[r]"
    lines = [f"int {name} = {text};" for name, text in access.coordinates.items()]
    several = access.run < part.elements
    at = access.offset
    if several or access.matrices:  # too long to stand in brackets
        lines, at = [*lines, f"int at = {at};"], "at"
    move = _load if direction == "load" else _store
    lines += move(access, held, at)
    if several:
        step = "++e" if access.run == 1 else f"e += {access.run}"
        lines = _loop(f"int e = 0; e < {part.elements}; {step}", lines)
        if direction == "load" and not access.scalar:
            lines = [f"{held} = 0;", *lines]
    if not access.scalar:
        return _loop(f"int r = 0; r < {part.registers}; ++r", lines)
    start = ["unsigned word = 0;"] if several else []
    return [*start, *lines, *(["return word;"] if several else [])]


def _loop(head: str, lines: Iterable[str]) -> list[str]:
    inside = [f"    {line}" for line in lines]
    return ["#pragma unroll", f"for ({head}) {{", *inside, "}"]


def _view(access: Access, direction: str) -> list[str]:
    """Memory as bits, where elements are moved one by one."""
    if access.typed or access.packed or access.scalar or access.run > 1:
        return []
    kind = f"{'const ' if direction == 'load' else ''}{access.unit}*"
    return [f"{kind} memory = reinterpret_cast<{kind}>(tile);"]


def _load(access: Access, held: str, at: str) -> list[str]:
    part, value = access.part, _unit(access, "const ", at)
    if access.run == part.elements:
        if access.scalar:
            return [f"return {value};"]
        moved = _contained(access, "bits")
        if moved == "bits":
            return [f"{held} = {value};"]
        return [f"unsigned bits = {value};", f"{held} = {moved};"]
    shift = "e" if access.bits == 1 else f"{access.bits} * e"
    value = _contained(access, value)
    lines = [f"unsigned bits = {value};", f"{held} |= bits << {shift};"]
    tests = [f"{s.value} == {s.parameter}" for s in selectors(part) if s.inside]
    if tests:
        lines[1] = f"if ({' && '.join(tests)}) {lines[1]}"
    return lines


def _unit(access: Access, const: str, at: str) -> str:
    """The memory of a unit, as something to read or to assign to."""
    if access.run * access.bits < 8:
        return f"{'nibble' if access.bits == 4 else 'bit'}(tile, {at})"
    pointer = f"{const}{access.unit}*"
    if access.packed:
        at = f"({at})" if " " in at else at
        return f"static_cast<{pointer}>(tile)[{at} / {access.run}]"
    if access.run > 1:
        return f"*reinterpret_cast<{pointer}>(tile + {at})"
    if access.typed or access.scalar:
        return f"tile[{at}]"
    return f"memory[{at}]"


def _contained(access: Access, value: str) -> str:
    """Elements moved to where their containers have them."""
    slot = access.part.container
    if slot.width == slot.bits:
        return value
    mask = sum(((1 << slot.width) - 1) << slot.bits * i for i in range(access.run))
    shift = f" << {slot.shift}" if slot.shift else ""
    inside = f"{value} & {mask:#0{access.run * 2 + 2}x}u"
    return f"({inside}){shift}" if shift else inside


def _store(access: Access, held: str, at: str) -> list[str]:
    part, target = access.part, _unit(access, "", at)
    if part.container.width != part.container.bits:
        raise Error(
            f"{part.name} is {part.dtype} in containers; only loads are written"
        )
    if access.run == part.elements:
        return [f"{target} = {held};"]
    value = f"{held} >> {access.bits} * e"
    return [f"{target} = static_cast<{access.unit}>({value});"]


# ── a fragment's functions, with what they say about it ─────────────────────


def fragment_piece(op: Instruction, part: Fragment, direction: str) -> Piece:
    """Functions that load (or store) one operand, row- and column-major.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> fragment_piece(op, op.a, "load").name
    'load_a_m16k16_f16'
    """
    name = f"{direction}_{function_tag(op, part)}"
    write = load if direction == "load" else store
    texts = [_about(part)]
    needs: list[str] = []
    for order in ("row", "col"):
        text, needed = write(part, order, f"{name}_{order}_major")
        texts.append(_memory(Access(part, order), direction) + text)
        needs += needed
    return Piece(name, "\n".join(texts), tuple(dict.fromkeys(needs)))


def metadata_pieces(op: Instruction) -> list[Piece]:
    """Functions that load the metadata of one tile, or of a tile per selector.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k64", a="s4", sp="sp::ordered_metadata")
    >>> [piece.name for piece in metadata_pieces(op)]
    ['load_metadata_m16k64_s4', 'load_metadata_m16k64_s4_tiles']
    """
    part = op.metadata
    name = f"load_{function_tag(op, part)}"
    found = [_metadata_piece(part, name)]
    if part.tiles > 1:
        found.append(_metadata_piece(part.shared, f"{name}_tiles", part.tiles))
    return found


def _metadata_piece(part: Metadata, name: str, tiles: int = 1) -> Piece:
    access = Access(part, "row")
    text, needs = load(part, "row", name)
    rows, chunks = part.shape
    said = (
        f"Metadata: {rows} x {chunks} codes of 4 bits, one per row and chunk of "
        f"{part.granularity.chunk} columns of A ({part.granularity}), from row-major "
        f"memory, two codes to a byte. stride: codes from one row to the next, "
        f"{_multiple(access)}."
    )
    if tiles > 1:
        said += (
            f" All lanes load: the word serves {tiles} tiles that lie side by side "
            f"along k, and tile s is read with selector s."
        )
    elif part.selectors:
        said += " Lanes that the selector leaves unread hold 0."
    comments = [*comment(said), *_formula(part)]
    return Piece(name, "\n".join(comments) + "\n" + text, needs)


def function_tag(op: Instruction, part: Fragment) -> str:
    """What a fragment's functions are named after: operand, shape and type.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k32", a="e4m3", b="e2m1", kind="f8f6f4", d="f32")
    >>> function_tag(op, op.a), function_tag(op, op.b)
    ('a_m16k32_e4m3', 'b_k32n8_e2m1_bytes')
    """
    if isinstance(part, Metadata):
        m, _, k = op.shape
        return f"metadata_m{m}k{k}_{op.types['a']}"
    of = f"{part.dtype}"
    if part.container.bits != part.dtype.bits:
        of += "_bytes"
    letter = part.name.lower()
    if len(part.layout.data) > 2:  # several small matrices
        words = [op.family, op.values["shape"], op.values.get("num", "")]
        words += [op.values.get("trans", "") or op.values.get(f"{letter}layout", "")]
        if op.family == "movmatrix":
            words = [op.family, op.values["shape"]]
        return "_".join([letter, *filter(None, words), of])
    if part.name in _DIMENSIONS:
        sides = zip(_DIMENSIONS[part.name], part.shape, strict=True)
        shape = "".join(f"{side}{size}" for side, size in sides)
    else:
        shape = "x".join(map(str, part.shape))
    return f"{letter}_{shape}_{of}"


def comment(text: str) -> list[str]:
    """Prose as comment lines.

    >>> comment("Who holds what?")
    ['// Who holds what?']
    """
    lines = textwrap.wrap(
        text, WIDTH - 3, break_long_words=False, break_on_hyphens=False
    )
    return [f"// {line}" for line in lines]


def _about(part: Fragment) -> str:
    """The operand, its layout line, and the manual's formula."""
    size = " x ".join(map(str, part.shape[-2:]))
    several = part.layout.sizes.get("matrix", 1)
    what = f"{several} matrices of {size}" if several > 1 else size
    each = f", {part.elements} elements in each" if part.elements > 1 else ""
    count = f"{part.registers} register{'s' * (part.registers > 1)}"
    said = f"{part.name}: {what} {part.dtype} in {count}{each}."
    if part.container.bits != part.dtype.bits:
        slot = part.container
        high = slot.shift + slot.width - 1
        said += (
            f" Memory holds one element per byte, in its low bits; registers want it "
            f"in bits {high}:{slot.shift} of a byte."
        )
    return "\n".join([*comment(said), *_formula(part)]) + "\n"


def _formula(part: Fragment) -> list[str]:
    """The layout's line, then the manual's formula for element i."""
    found = notation.formula(part.layout, part.letter)
    lines = [str(part.layout)]
    lines += [f"{name} = {text}" for name, text in found.definitions]
    for name, cases in found.cases:
        if name in part.layout.data and part.layout.sizes[name] == 1:
            continue
        width = max(len(case.expression) for case in cases)
        for number, (text, condition) in enumerate(cases):
            head = " " * (len(name) + 3) if number else f"{name} = "
            line = f"{head}{text:<{width}}  {condition}".rstrip()
            if len(line) > WIDTH - 5:
                lines.append(f"{head}{text}")
                line = " " * (len(head) + 4) + condition
            lines.append(line)
    return [f"//   {line}" for line in lines]


def _memory(access: Access, direction: str) -> str:
    """What a function expects of memory, in a comment."""
    way = "from" if direction == "load" else "to"
    line = {"row": "row", "col": "column"}[access.order]
    packing = {4: " Two elements to a byte.", 1: " Eight elements to a byte."}
    said = (
        f"{direction.capitalize()} {access.part.name} {way} {line}-major memory."
        f"{packing.get(access.bits, '')} stride: elements from one {line} to the next"
    )
    if access.run > 1:
        size = access.run * access.bits // 8
        said += f", {_multiple(access)}; each begins on a multiple of {size} bytes"
    if access.matrices:
        said += "; matrix_stride: elements from one matrix to the next"
    return "\n".join(comment(said + ".")) + "\n"


def _multiple(access: Access) -> str:
    return f"a multiple of {access.run}"
