"""Expressions for which element a place holds, and for where an element is.

Each digit of a coordinate is a digit of the place.  So a coordinate is a sum of parts
of the place, and an axis of the place is a sum of parts of the coordinates.  Both sums
are written here, for CUDA C++, for Python and NumPy, and as the PTX manual does::

    row  = (lane >> 2) + 8 * (reg & 1)              which element is held?
    lane = ((col >> 1) & 3) + 4 * (row & 7)         where is an element?

Parts are shifts and masks where sizes are powers of two; otherwise they are quotients
and remainders.  A digit that is an XOR of bits adds one of them; the sum is then XORed
with the others (:class:`XorSum`)::

    address = offset ^ ((offset >> 3) & 112)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fragmenta.base.arrays.checks import is_whole
from fragmenta.errors import LayoutError, nearest, one_of

if TYPE_CHECKING:
    from fragmenta.reference.registers.layout import Digits, Layout
    from fragmenta.reference.registers.tensor_fragment import Window

Direction = Literal["where", "holds"]
Language = Literal["cuda", "python"]
Name = str | int


# ── one digit, one sum ──────────────────────────────────────────────────────


class Style(NamedTuple):
    """How a language writes arithmetic."""

    divide: str
    both: str
    """Between two conditions."""
    mask: str
    """The format of masks."""
    weight_first: bool
    """``8 * x``, not ``(x * 8)``; a sum of one term has no brackets around it."""
    number: str
    """How a whole number is declared."""
    truth: str
    """How what is true or false is declared."""


STYLES = {
    "cuda": Style("/", "&&", "d", True, "int {} = {};", "bool {} = {};"),
    "python": Style("//", "&", "d", True, "{} = {}", "{} = {}"),
}
MANUAL = Style("/", "and", "#x", False, "{} = {}", "{} = {}")


class DigitRun(NamedTuple):
    """Consecutive digits of one variable that are consecutive in the result, too."""

    source: str
    stride: int
    size: int
    weight: int


class XorSum(NamedTuple):
    """The sum of some runs, XORed with other runs."""

    added: tuple[DigitRun, ...]
    flipped: tuple[DigitRun, ...] = ()

    def of(self, values: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
        """The value; the variables may be numbers, arrays or traced values.

        >>> swizzle = XorSum((DigitRun("A", 1, 1024, 1),), (DigitRun("A", 128, 8, 16),))
        >>> [swizzle.of({"A": line * 128}, {"A": 1024}) for line in range(3)]
        [0, 144, 288]
        """
        total: Any = 0
        for run in self.added:
            value = values[run.source]
            if run.stride > 1:
                value = value // run.stride
            if run.stride * run.size < sizes[run.source]:
                value = value % run.size
            total = value * run.weight + total
        return total ^ self.flips(values) if self.flipped else total

    def flips(self, values: Mapping[str, Any]) -> Any:
        """What the sum is XORed with."""
        total: Any = 0
        for run in self.flipped:
            value, left = values[run.source], _left(run)
            value = value << left if left > 0 else value >> -left
            total = (value & _mask(run)) ^ total
        return total


def _left(run: DigitRun) -> int:
    """By how many bits a run of bits moves to the left."""
    return run.weight.bit_length() - run.stride.bit_length()


def _mask(run: DigitRun) -> int:
    """The bits of the result in which a run of bits is."""
    return (run.size - 1) * run.weight


def part_of(name: str, stride: int, size: int, whole: int, style: Style) -> str:
    """One digit of a variable that has ``whole`` values.

    >>> part_of("lane", 4, 8, 32, MANUAL), part_of("lane", 2, 2, 32, STYLES["cuda"])
    ('(lane >> 2)', '((lane >> 1) & 1)')
    >>> part_of("col", 3, 4, 24, STYLES["python"]), part_of("col", 1, 3, 24, MANUAL)
    ('((col // 3) & 3)', '(col % 3)')
    """
    value = name
    if stride > 1:
        power = stride.bit_length() - 1
        exact = stride == 1 << power
        value += f" >> {power}" if exact else f" {style.divide} {stride}"
    if stride * size < whole:
        value = value if stride == 1 else f"({value})"
        value += f" % {size}" if size & (size - 1) else f" & {size - 1:{style.mask}}"
    return value if value == name else f"({value})"


def weighted(value: str, weight: int, style: Style) -> str:
    """A term of a sum.

    >>> weighted("lane", 8, MANUAL), weighted("lane", 8, STYLES["cuda"])
    ('(lane * 8)', '8 * lane')
    """
    if weight == 1:
        return value
    return f"{weight} * {value}" if style.weight_first else f"({value} * {weight})"


def total(
    runs: Iterable[DigitRun],
    sources: Mapping[str, tuple[Name, int]],
    style: Style,
    added: int = 0,
    flipped: Iterable[DigitRun] = (),
) -> str:
    """The sum of runs; ``sources`` has the name and the size of each variable.

    >>> runs, flipped = [DigitRun("A", 1, 1024, 1)], [DigitRun("A", 128, 8, 16)]
    >>> total(runs, {"A": ("at", 1024)}, STYLES["cuda"], flipped=flipped)
    'at ^ ((at >> 3) & 112)'
    """
    terms, constant = [], 0
    for run in runs:
        name, whole = sources[run.source]
        if isinstance(name, str):
            part = part_of(name, run.stride, run.size, whole, style)
            terms.append(weighted(part, run.weight, style))
        else:
            constant += name // run.stride % run.size * run.weight
    flips = [run for run in flipped if isinstance(sources[run.source][0], str)]
    fixed = XorSum((), tuple(run for run in flipped if run not in flips))
    same = fixed.flips({run.source: sources[run.source][0] for run in fixed.flipped})
    if not flips and not (terms and same):
        return _sum(terms, (constant ^ same) + added, style)
    # What is added does not change the bits that are XORed.
    bits = [_sum(terms, constant, style)] if terms or constant else []
    bits = [text if text.isidentifier() else f"({text})" for text in bits]
    bits += [flip(str(sources[run.source][0]), run, style) for run in flips]
    text = " ^ ".join([*bits, str(same)] if same else bits)
    return f"({text}) {'-' if added < 0 else '+'} {abs(added)}" if added else text


def _sum(terms: list[str], added: int, style: Style) -> str:
    if not terms:
        return str(added)
    if added:
        return f"{' + '.join(terms)} {'-' if added < 0 else '+'} {abs(added)}"
    if len(terms) == 1 and terms[0].startswith("(") and style.weight_first:
        return terms[0][1:-1]
    return " + ".join(terms)


def flip(name: str, run: DigitRun, style: Style) -> str:
    """Bits of a variable, moved to where they are XORed.

    >>> flip("lane", DigitRun("L", 4, 8, 1), MANUAL)
    '((lane >> 2) & 0x7)'
    """
    left = _left(run)
    shifted = f"({name} {'<<' if left > 0 else '>>'} {abs(left)})" if left else name
    return f"({shifted} & {_mask(run):{style.mask}})"


def joined(runs: Iterable[DigitRun]) -> list[DigitRun]:
    """The same runs; those that continue the one before them are one."""
    found: list[DigitRun] = []
    for run in runs:
        _append(found, run)
    return found


def terms(layout: Layout, coordinate: str, run: int = 1) -> XorSum:
    """A coordinate by axes; ``run`` leaves out the digits of E below it.

    Of an XOR, the bit that continues the sum is added.

    >>> from fragmenta.reference.registers.layout import Layout
    >>> terms(Layout.parse("address = A0 A1^A2 A2", A=8), "address")
    XorSum(added=(DigitRun(source='A', stride=1, size=8, weight=1),), \
flipped=(DigitRun(source='A', stride=4, size=2, weight=2),))
    """
    found: list[DigitRun] = []
    flipped: list[DigitRun] = []
    weight = 1
    for each in dict(layout.coordinates)[coordinate]:
        if each.xor or each.axis != "E" or each.stride >= run:
            bits = [DigitRun(t.axis, t.stride, t.size, weight) for t in each.terms]
            follows = [bit for bit in bits if found and _continues(found[-1], bit)]
            first = follows[0] if follows else bits[0]
            _append(found, first)
            for bit in bits:
                if bit != first:
                    _append(flipped, bit)
        weight *= each.size
    return XorSum(tuple(found), tuple(flipped))


def _continues(last: DigitRun, run: DigitRun) -> bool:
    """Whether a run begins where the last one ends, in its variable and in the sum."""
    return (run.source, run.stride, run.weight) == (
        last.source,
        last.stride * last.size,
        last.weight * last.size,
    )


def _append(runs: list[DigitRun], run: DigitRun) -> None:
    """Add a run to a list, as part of the last one if it continues that."""
    if runs and _continues(runs[-1], run):
        runs[-1] = runs[-1]._replace(size=runs[-1].size * run.size)
    else:
        runs.append(run)


def held(layout: Layout, coordinate: str, run: int = 1) -> list[DigitRun]:
    """A coordinate by axes, as a sum; one with XORs has none, and is refused."""
    found = terms(layout, coordinate, run)
    if found.flipped:
        raise LayoutError(f"{layout}: {coordinate} has XORs, so it is no sum of digits")
    return list(found.added)


def placed(layout: Layout, axis: str, scale: int = 1) -> XorSum:
    """An axis by coordinates."""
    if layout.has_xor and scale & (scale - 1):
        raise LayoutError(f"{layout}: an XOR cannot count steps of {scale}")
    return XorSum(
        *(
            tuple(run._replace(weight=run.weight * scale) for run in runs)
            for runs in terms(layout.inverse(), axis)
        )
    )


# The outermost axis first; other letters, such as those of tiles, before them.
_ORDER = "PWLTCRE"


def coordinate(
    layout: Layout,
    name: str,
    names: Mapping[str, Name],
    style: Style = STYLES["cuda"],
    *,
    run: int = 1,
    added: int = 0,
) -> str:
    """One coordinate as an expression over the axes, which ``names`` names."""
    found = terms(layout, name, run)
    return _over_axes(layout, found.added, names, style, added, found.flipped)


def _over_axes(
    layout: Layout,
    runs: Iterable[DigitRun],
    names: Mapping[str, Name],
    style: Style,
    added: int = 0,
    flipped: Iterable[DigitRun] = (),
) -> str:
    sources = {axis: (names.get(axis, axis), size) for axis, size in layout.axes}
    ordered = sorted(runs, key=lambda each: _ORDER.find(each.source))
    return total(ordered, sources, style, added, flipped)


# ── every coordinate, or every axis ─────────────────────────────────────────


class Storage(NamedTuple):
    """What the layout of an operand does not say."""

    bits: int
    """The bits from one element of a register to the next."""
    shift: int
    """The bits below an element in its container."""
    windows: Mapping[str, Window] = {}
    """The part of each coordinate that the operand has, if not all of it."""
    skipped: int = 0
    """Columns from the address to the first cell."""


_WIDTH = 80
_TERM = re.compile(r"(?<= [+-] )|(?<= && )|(?<=\) & )(?=\()")


class Expressions(dict[str, str]):
    """The expression of each result by its name; ``str()`` gives statements.

    An expression that becomes part of a larger one needs brackets around it.

    >>> from fragmenta.reference.registers.layout import Layout
    >>> layout = Layout.parse("row = L2 L3 L4 R1  col = R0 L0 L1", L=32, R=4)
    >>> layout.to_cuda("holds")["col"]
    '2 * (lane & 3) + (reg & 1)'
    >>> print(layout.to_cuda("holds"))
    int row = (lane >> 2) + 8 * (reg >> 1);
    int col = 2 * (lane & 3) + (reg & 1);
    """

    def __init__(
        self, found: Mapping[str, str], language: Language, held: str = ""
    ) -> None:
        super().__init__(found)
        self.language = language
        self.held = held
        """The result that is true or false: whether the place holds an element."""

    def __str__(self) -> str:
        style = STYLES[self.language]
        lines = [
            (style.truth if name == self.held else style.number).format(
                name, _folded(name, text, self.language)
            )
            for name, text in self.items()
        ]
        return "\n".join(lines).replace(" \n", "\n")

    __repr__ = __str__


def _folded(name: str, text: str, language: Language) -> str:
    """The expression on several lines if it is too long for one."""
    if len(name) + len(text) + len("bool  = ;") <= _WIDTH:
        return text
    lines = [""]
    for term in _TERM.split(text):
        if lines[-1] and len(lines[-1]) + len(term) > _WIDTH - len("    ;"):
            lines[-1] = lines[-1].rstrip()
            lines.append("")
        lines[-1] += term
    body = "\n    ".join(["", *lines])
    return f"({body}\n)" if language == "python" else body


def write(
    layout: Layout,
    direction: Direction,
    language: Language,
    names: Mapping[str, Name],
    part: Storage | None = None,
) -> Expressions:
    """All expressions of one direction; see :meth:`Layout.to_cuda`."""
    for given, allowed in ((direction, ("where", "holds")), (language, tuple(STYLES))):
        if given not in allowed:
            near = nearest(str(given), allowed)
            raise LayoutError(f"expected {one_of(allowed)}; given {given!r}{near}")
    widest = max([*layout.sizes.values(), *layout.place_shape])
    if language == "cuda" and widest > 1 << 31:
        raise LayoutError(
            f"an int of CUDA has values up to {(1 << 31) - 1}; this layout has {widest}"
            f" values of one name; language='python' has no such limit"
        )
    called = _Names(layout, direction, language, part).with_names(names)
    find = _where if direction == "where" else _holds
    found = find(layout, called, STYLES[language], part or Storage(0, 0))
    return Expressions(found, language, str(called.more.get("held", "")))


def _where(
    layout: Layout, called: _Names, style: Style, part: Storage
) -> dict[str, str]:
    sources = _sources(layout, called, style, part)
    whole = _split(layout, part)
    found = {}
    for axis in called.axes:
        added = part.skipped if axis == "C" else 0
        at = placed(whole, axis)
        text = total(at.added, sources, style, added, at.flipped)
        found[str(called.axes[axis])] = text
    if "bit" in called.more:
        at = placed(whole, "E", part.bits)
        found[str(called.more["bit"])] = total(
            at.added, sources, style, part.shift, at.flipped
        )
    return found


def _holds(
    layout: Layout, called: _Names, style: Style, part: Storage
) -> dict[str, str]:
    names, whole = dict(called.axes), _split(layout, part)
    column = names.get("C", 0)
    if isinstance(column, int):
        names["C"] = column - part.skipped
    elif part.skipped:
        names["C"] = f"({column} - {part.skipped})"
    found, tests = {}, []
    for name, size in layout.sizes.items():
        window = part.windows.get(name)
        if window is None:
            text = coordinate(whole, name, names, style)
        elif window.parts:
            low, high = (held(whole, f"{name}{sign}") for sign in "%/")
            inner = _over_axes(whole, low, names, style)
            tests.append(_test(inner, "<", window.part))
            apart = [each._replace(weight=each.weight * window.part) for each in high]
            text = _over_axes(whole, [*low, *apart], names, style)
            if window.size < size // window.padded * window.part:
                tests.append(_test(text, "<", window.size))
        else:
            # The tests come before the subtraction: variables may be unsigned.
            first, last = window.first, window.first + window.size
            inner = coordinate(whole, name, names, style)
            tests += [_test(inner, ">=", first)] if first else []
            tests += [_test(inner, "<", last)] if last < size else []
            text = coordinate(whole, name, names, style, added=-first)
        found[str(called.coordinates[name])] = text
    if "held" in called.more:
        found[str(called.more["held"])] = f" {style.both} ".join(tests)
    return found


def _test(text: str, sign: str, value: int) -> str:
    whole = text if text.isidentifier() else f"({text})"
    return f"({whole} {sign} {value})"


def _split(layout: Layout, part: Storage) -> Layout:
    """The layout, with a coordinate that is padded in parts as two coordinates."""
    coordinates: list[tuple[str, Digits]] = []
    for name, digits in layout.coordinates:
        window = part.windows.get(name)
        if not (window and window.parts):
            coordinates.append((name, digits))
            continue
        below, weight = 0, 1
        while weight < window.padded:
            weight *= digits[below].size
            below += 1
        coordinates += [(f"{name}%", digits[:below]), (f"{name}/", digits[below:])]
    return replace(layout, coordinates=tuple(coordinates))


def _sources(
    layout: Layout, called: _Names, style: Style, part: Storage
) -> dict[str, tuple[Name, int]]:
    """What each coordinate of the layout is, written with those of the operand."""
    found: dict[str, tuple[Name, int]] = {}
    for name, size in layout.sizes.items():
        window, given = part.windows.get(name), called.coordinates[name]
        if not window:
            found[name] = (given, size)
        elif isinstance(given, int):
            at = int(window.at(given))
            found[name] = (at, size)
            found |= {f"{name}%": (at % (window.padded or size), size)}
            found |= {f"{name}/": (at // (window.padded or size), size)}
        elif window.parts:
            low, high = f"({given} % {window.part})", f"{style.divide} {window.part}"
            found[f"{name}%"] = (low, window.padded)
            found[f"{name}/"] = (f"({given} {high})", size // window.padded)
        else:
            text = f"({given} + {window.first})" if window.first else given
            found[name] = (text, size)
    return found


def _partial(layout: Layout, part: Storage) -> bool:
    """Whether some cells hold no element of the operand."""
    return any(
        window.size < layout.sizes[name] for name, window in part.windows.items()
    )


# ── names ───────────────────────────────────────────────────────────────────

_AXES = {
    "P": "cta",
    "W": "warp",
    "L": "lane",
    "T": "lane",
    "C": "column",
    "R": "register",
    "E": "element",
}
_RESERVED = {"register": "reg"}
"""What CUDA C++ does not allow as a name, and what is written instead."""
_KEYWORDS = (
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char class "
    "compl const constexpr continue decltype default delete do double else enum "
    "explicit export extern false float for friend goto if inline int long mutable "
    "namespace new noexcept not not_eq nullptr operator or or_eq private protected "
    "public register return short signed sizeof static struct switch template this "
    "throw true try typedef typeid typename union unsigned using virtual void volatile "
    "while xor xor_eq"
)
_MEMBER = re.compile(r"[A-Za-z_]\w*((\.|->)[A-Za-z_]\w*|\[\d+\])*", re.ASCII)


class _Names:
    """The variable of each axis and of each coordinate."""

    def __init__(
        self, layout: Layout, direction: str, language: str, part: Storage | None
    ) -> None:
        self.layout, self.direction, self.language = layout, direction, language
        axes = [axis for axis, _ in layout.axes]
        plain = part is None or dict(layout.axes).get("E", 1) > 1 or part.shift > 0
        listed = [axis for axis in axes if plain or axis != "E"]
        both = {*axes, *layout.sizes} >= {"L", "T"}
        words = {name: self._word(name, both) for name in (*listed, *layout.sizes)}
        self.axes: dict[str, Name] = {axis: words[axis] for axis in listed}
        taken = set(self.axes.values())
        self.coordinates: dict[str, Name] = {
            name: f"to_{words[name]}" if words[name] in taken else words[name]
            for name in layout.sizes
        }
        self.more: dict[str, Name] = {}
        if part and direction == "where" and plain:
            self.more["bit"] = "bit"
        if part and direction == "holds" and _partial(layout, part):
            self.more["held"] = "held"
        self.skipped = part.skipped if part else 0
        self.windows: Mapping[str, Window] = part.windows if part else {}

    def _word(self, name: str, both: bool) -> str:
        word = "tensor_lane" if both and name == "T" else _AXES.get(name, name)
        return _RESERVED.get(word, word) if self.language == "cuda" else word

    def with_names(self, names: Mapping[str, Name]) -> _Names:
        """These variables, with the names that are given for some of them."""
        kinds = (self.coordinates, self.more, self.axes)
        known = {key: (of, key) for of in kinds for key in of}
        known = {str(of[key]): (of, key) for of, key in known.values()} | known
        for axis in self.axes:
            known.setdefault(_AXES.get(axis, axis), (self.axes, axis))
        renamed: dict[tuple[int, str], str] = {}
        for key, name in names.items():
            if key not in known:
                every = [str(name) for of in kinds for name in of.values()]
                raise LayoutError(
                    f"the variables are {one_of(every, 'and')}; given a name for "
                    f"{key!r}{nearest(key, known)}"
                )
            of, which = known[key]
            if (other := renamed.setdefault((id(of), which), key)) != key:
                raise LayoutError(
                    f"{other} and {key} are one variable; it is given the names "
                    f"{names[other]!r} and {name!r}"
                )
            of[which] = self._checked(of, which, name)
        for of in kinds:
            for which, name in of.items():
                self._checked(of, which, name)
        self._check_distinct([name for of in kinds for name in of.values()])
        return self

    def _checked(self, of: Mapping[str, Name], which: str, name: Name) -> Name:
        """A name that the language allows, or a number in place of an input."""
        given = of is (self.coordinates if self.direction == "where" else self.axes)
        if given and is_whole(name):
            return self._constant(which, int(name))
        words = isinstance(name, str) and bool(_MEMBER.fullmatch(name))
        if words and not given:
            words = str(name).isidentifier()
        reserved = iskeyword(str(name))
        if self.language == "cuda":
            reserved = name in _KEYWORDS.split()
        if not words or reserved:
            also = ", a member of one, or a number" if given else ""
            raise LayoutError(
                f"{which} is called {name!r}, which is no name of a variable; give "
                f"{which}= an identifier{also}"
            )
        return name

    def _constant(self, which: str, value: int) -> int:
        first, size = 0, dict(self.layout.axes).get(which, 0)
        if self.direction == "where":
            window = self.windows.get(which)
            size = window.size if window else self.layout.sizes[which]
        elif which == "C":
            first = self.skipped
        if not first <= value < first + size:
            raise LayoutError(
                f"{which} {value} is out of range; it is {first} to {first + size - 1}"
            )
        return value

    def _check_distinct(self, names: list[Name]) -> None:
        texts = [name for name in names if isinstance(name, str)]
        for name in texts:
            if texts.count(name) > 1:
                raise LayoutError(
                    f"two variables are called {name}; give one of them another name"
                )
