"""CUDA functions that move a fragment between registers and memory.

They are written from the digits of the fragment's
:class:`~fragmenta.reference.registers.layout.Layout` alone.
Elements of a register that are neighbours in memory move together, as one
word; others one by one.  Elements narrower than a byte are packed in memory,
the first in the lowest bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.cuda.source.formatting import legal_values, signature, template
from fragmenta.errors import BadCall
from fragmenta.reference.isa.instruction import register_class
from fragmenta.reference.registers import expressions
from fragmenta.reference.registers.fragment import Fragment
from fragmenta.reference.registers.layout import Layout

#: C type and asm constraint of each PTX register class.
REGISTERS = {
    ".b16": ("unsigned short", "h"),
    ".b32": ("unsigned", "r"),
    ".s32": ("int", "r"),
    ".f32": ("float", "f"),
    ".f64": ("double", "d"),
    ".b64": ("unsigned long long", "l"),
}

#: What each place axis is called in the generated code.
NAMES = {
    "P": "cta",
    "W": "warp",
    "L": "lane",
    "T": "tensor_lane",
    "C": "column",
    "R": "r",
    "E": "e",
}

_UNITS = {8: "unsigned char", 16: "unsigned short", 32: "unsigned"}


# ── a coordinate as a C expression ──────────────────────────────────────────


def expression(layout: Layout, coordinate: str, *, run: int = 1) -> str:
    """One coordinate as C, over ``warp``, ``lane``, ``r`` and ``e``.

    In tensor memory it is over ``cta``, ``tensor_lane``, ``column`` and ``e``.

    ``run`` elements that are read together share the expression of the
    first: the digits of ``e`` below it are left out.

    >>> import fragmenta as fm
    >>> a = fm.mma("m16n8k16", a="f16", d="f32").a
    >>> expression(a.layout, "row"), expression(a.layout, "col")
    ('(lane >> 2) + 8 * (r & 1)', '2 * (lane & 3) + 8 * (r >> 1) + e')
    """
    return expressions.coordinate(layout, coordinate, NAMES, run=run)


def summand(layout: Layout, coordinate: str) -> str:
    """The same as a term of a sum, in parentheses where ``&`` or ``>>`` needs them.

    >>> import fragmenta as fm
    >>> summand(fm.tcgen05("m32n64k16", a="f16", ws=True).d.layout, "row")
    '(tensor_lane & 31)'
    """
    text = expression(layout, coordinate)
    bare = " + " not in text and (" & " in text or " >> " in text)
    return f"({text})" if bare else text


# ── one function ────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class FragmentAccess:
    """How a fragment is moved to or from a matrix in row or column order.

    ``order`` is ``row`` or ``col``: which of them is contiguous.
    """

    part: Fragment
    order: str

    @cached_property
    def directions(self) -> tuple[str, str]:
        """The two coordinates: the strided one, then the contiguous one."""
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
        """Whether the operand is a single register, not a fragment array."""
        return self.part.name not in tuple("ABCD")

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
    access = FragmentAccess(part, order)
    return _function(access, name, "load"), _needs(access)


def store(part: Fragment, order: str, name: str) -> tuple[str, tuple[str, ...]]:
    """A function that stores a fragment, and the helpers it needs.

    >>> import fragmenta as fm
    >>> d = fm.mma("m16n8k16", a="f16", d="f16").d
    >>> print(store(d, "row", "store_d")[0].splitlines()[-3].strip())
    *reinterpret_cast<unsigned*>(tile + row * stride + col) = d[r];
    """
    access = FragmentAccess(part, order)
    if access.run * access.bits < 8:
        raise BadCall(
            f"{part.name} is {part.dtype}, packed in memory: two lanes would write to "
            f"one byte of a {order}-major matrix; store the other order"
        )
    return _function(access, name, "store"), _needs(access)


def _needs(access: FragmentAccess) -> tuple[str, ...]:
    needs = ["lane_id"]
    if "W" in dict(access.part.layout.axes):
        needs.append("warp_id")
    if access.run * access.bits < 8:
        needs.append("nibble" if access.bits == 4 else "bit")
    return tuple(needs)


def _function(access: FragmentAccess, name: str, direction: str) -> str:
    body = [*_checks(access), *_view(access, direction), *_loops(access, direction)]
    indented = "\n".join(f"    {line}" for line in body)
    head = template(_template(access))
    result = "unsigned" if access.scalar else "void"
    opening = signature(
        f"__device__ __forceinline__ {result} {name}", _parameters(access, direction)
    )
    return f"{head}{opening}\n{{\n{indented}\n}}\n"


def _template(access: FragmentAccess) -> list[str]:
    names = ["typename Element"] if not (access.packed or access.typed) else []
    if access.scalar and not access.packed:
        names = []  # scales are bytes
    return names + [f"int {each.parameter}" for each in selectors(access.part)]


def _parameters(access: FragmentAccess, direction: str) -> list[str]:
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


def _checks(access: FragmentAccess) -> list[str]:
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
    """A template parameter that chooses the places which hold data."""

    parameter: str
    legal: list[int]
    value: str
    """As C: the parameter's value for which this place holds data."""
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


def _loops(access: FragmentAccess, direction: str) -> list[str]:
    """The loops over the registers, and over the units of each if there are several."""
    part = access.part
    held = "word" if access.scalar else f"{part.letter}[r]"
    lines = [f"int {name} = {text};" for name, text in access.coordinates.items()]
    several = access.run < part.elements
    at = access.offset
    if several or access.matrices:  # too long for an index
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


def _view(access: FragmentAccess, direction: str) -> list[str]:
    """Memory as bits, where elements are moved one by one."""
    if access.typed or access.packed or access.scalar or access.run > 1:
        return []
    kind = f"{'const ' if direction == 'load' else ''}{access.unit}*"
    return [f"{kind} memory = reinterpret_cast<{kind}>(tile);"]


def _load(access: FragmentAccess, held: str, at: str) -> list[str]:
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


def _unit(access: FragmentAccess, const: str, at: str) -> str:
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


def _contained(access: FragmentAccess, value: str) -> str:
    """The elements shifted and masked as their containers hold them."""
    slot = access.part.container
    if slot.width == slot.bits:
        return value
    mask = sum(((1 << slot.width) - 1) << slot.bits * i for i in range(access.run))
    shift = f" << {slot.shift}" if slot.shift else ""
    inside = f"{value} & {mask:#0{access.run * 2 + 2}x}u"
    return f"({inside}){shift}" if shift else inside


def _store(access: FragmentAccess, held: str, at: str) -> list[str]:
    part, target = access.part, _unit(access, "", at)
    if part.container.width != part.container.bits:
        raise BadCall(
            f"{part.name} is {part.dtype} in containers; only loads are written"
        )
    if access.run == part.elements:
        return [f"{target} = {held};"]
    value = f"{held} >> {access.bits} * e"
    return [f"{target} = static_cast<{access.unit}>({value});"]
