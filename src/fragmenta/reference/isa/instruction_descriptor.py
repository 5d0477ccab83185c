"""The 32-bit instruction descriptor of ``tcgen05.mma``.

The mnemonic of ``tcgen05.mma`` has a kind, but no shape and no types.  They are in a
register, the instruction descriptor.  Its fields differ with the kind; there are three
tables.  The code of a type depends on the table, too: e2m1 is 5 for f8f6f4 and
mxf8f6f4, but 1 for mxf4 and mxf4nvf4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from itertools import pairwise
from typing import Any, NamedTuple

from fragmenta.base.arrays.checks import is_whole
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import UnknownInstruction, nearest, one_of, shortened
from fragmenta.reference.isa.table import read
from fragmenta.reference.isa.tcgen05_shapes import (
    OF_KIND,
    WIDE_K,
    sizes,
    transposed_step,
)

# The fields, lowest first.  A value is stored divided by its unit.  ``kinds`` names the
# kinds that may set a field; the others need 0.
_PLAIN = """
field       | low | bits | unit | kinds
selector    | 0   | 2    | 1    | f16 tf32
sparse      | 2   | 1    | 1    | all
saturate    | 3   | 1    | 1    | i8
d           | 4   | 2    | type | all
a           | 7   | 3    | type | all
b           | 10  | 3    | type | all
negate_a    | 13  | 1    | 1    | f16 tf32 f8f6f4
negate_b    | 14  | 1    | 1    | f16 tf32 f8f6f4
transpose_a | 15  | 1    | 1    | all
transpose_b | 16  | 1    | 1    | all
n           | 17  | 6    | 8    | all
m           | 24  | 5    | 16   | all
max_shift   | 30  | 2    | 1    | all
"""
_SCALED = """
field       | low | bits | unit | kinds
sparse      | 2   | 1    | 1    | all
scale_b_id  | 4   | 2    | 1    | all
a           | 7   | 3    | type | all
b           | 10  | 3    | type | all
negate_a    | 13  | 1    | 1    | all
negate_b    | 14  | 1    | 1    | all
transpose_a | 15  | 1    | 1    | all
transpose_b | 16  | 1    | 1    | all
n           | 17  | 6    | 8    | all
scale       | 23  | 1    | type | all
m           | 27  | 2    | 128  | all
scale_a_id  | 29  | 2    | 1    | all
"""
_NARROW = """
field       | low | bits | unit | kinds
sparse      | 2   | 1    | 1    | all
scale_b_id  | 4   | 2    | 1    | all
a           | 7   | 3    | type | all
b           | 10  | 2    | type | all
negate_a    | 13  | 1    | 1    | all
negate_b    | 14  | 1    | 1    | all
n           | 17  | 6    | 8    | all
scale       | 23  | 1    | type | all
m           | 27  | 2    | 128  | all
scale_a_id  | 29  | 2    | 1    | all
wide        | 31  | 1    | 1    | all
"""
TABLES = {
    "f16": _PLAIN,
    "tf32": _PLAIN,
    "f8f6f4": _PLAIN,
    "i8": _PLAIN,
    "mxf8f6f4": _SCALED,
    "mxf4": _NARROW,
    "mxf4nvf4": _NARROW,
}

# The codes of types, by field and kind.
_TYPES = """
field | kinds              | codes
d     | f16 f8f6f4         | f16=0 f32=1
d     | tf32               | f32=1
d     | i8                 | s32=2
ab    | f16                | f16=0 bf16=1
ab    | tf32               | tf32=2
ab    | f8f6f4 mxf8f6f4    | e4m3=0 e5m2=1 e2m3=3 e3m2=4 e2m1=5
ab    | i8                 | u8=0 s8=1
ab    | mxf4 mxf4nvf4      | e2m1=1
scale | mxf8f6f4 mxf4      | ue8m0=1
scale | mxf4nvf4           | ue4m3=0 ue8m0=1
"""

# Bits 24 and 23 of mxf4nvf4 are 2 for them.  Their encoding is not the one of ue4m3, and
# no source says it.
UE5M3 = (
    "scales of ue5m3 (sm_107, PTX 9.4) are known by their spelling only: no source says "
    "which of their bytes are NaN, and no sm_107 has run them"
)

# Read once: a descriptor asks for its fields several times.
_LINES = {kind: read(table) for kind, table in TABLES.items()}
_TYPE_LINES = read(_TYPES)

_MEANINGS = {
    "selector": "sparsity selector: the column of metadata",
    "sparse": "A is sparse",
    "saturate": "clamp integers",
    "d": "type of D",
    "a": "type of A",
    "b": "type of B",
    "negate_a": "negate A",
    "negate_b": "negate B",
    "transpose_a": "A is M-major",
    "transpose_b": "B is N-major",
    "n": "N, in eights",
    "m": "M",
    "max_shift": "most columns by which B may be shifted",
    "scale_b_id": "first byte of the scales of B",
    "scale_a_id": "first byte of the scales of A",
    "scale": "type of scales",
    "wide": "K is 96",
}

_FLAGS = (
    "sparse",
    "saturate",
    "negate_a",
    "negate_b",
    "transpose_a",
    "transpose_b",
    "wide",
)
_SHIFTS = (0, 8, 16, 32)


class Field(NamedTuple):
    """One field of a descriptor: its bits, its value, and what that says."""

    name: str
    low: int
    high: int
    code: int
    value: Any
    meaning: str

    def __str__(self) -> str:
        where = f"{self.high}:{self.low}" if self.high > self.low else f"{self.low}"
        return f"{where:>6}  {self.name:<12} {self.code:>3}  {self.text}"

    @property
    def text(self) -> str:
        """The value in words."""
        shown = ("no", "yes")[self.value] if self.name in _FLAGS else self.value
        return f"{self.meaning}: {shown}"


def type_codes(name: str, kind: str) -> dict[str, int]:
    """The code of each type in a field of the descriptor of a kind.

    >>> type_codes("a", "mxf4"), type_codes("d", "i8")
    ({'e2m1': 1}, {'s32': 2})
    """
    field = "ab" if name in ("a", "b") else name
    for line in _TYPE_LINES:
        if line["field"] == field and kind in line["kinds"].split():
            pairs = (word.split("=") for word in line["codes"].split())
            return {word: int(code) for word, code in pairs}
    return {}


def check_kind(kind: object) -> str:
    """The name of a kind, with or without ``kind::``.

    >>> check_kind("kind::f16")
    'f16'
    """
    name = str(kind).removeprefix(".").removeprefix("kind::")
    if name == "ti16":
        raise UnknownInstruction(
            "kind ti16 (sm_107) is known by its spelling only: no source says how its "
            "numbers are stored and added"
        )
    if name not in TABLES:
        raise UnknownInstruction(
            f"no kind {name}{nearest(name, TABLES)}; tcgen05.mma has "
            f"{one_of(TABLES, 'and')}"
        )
    return name


@dataclass(frozen=True)
class InstructionDescriptor:
    """The shape, the types and the options of one ``tcgen05.mma``.

    ``m`` is that of the pair if two CTAs multiply together.  The types and sizes have to
    fit the kind; with which ``cta_group`` they go, :meth:`check` says.

    >>> d = InstructionDescriptor("f16", m=128, n=256, a="f16", b="f16", d="f32")
    >>> hex(d.encode())
    '0x8400010'
    >>> InstructionDescriptor.decode(0x08400010, kind="f16") == d
    True
    >>> d.shape
    'm128n256k16'
    """

    kind: str
    m: int
    n: int
    a: str
    b: str
    d: str
    scale: str = ""
    """The type of block scales: ue8m0 or ue4m3."""
    sparse: bool = False
    selector: int = 0
    saturate: bool = False
    negate_a: bool = False
    negate_b: bool = False
    transpose_a: bool = False
    transpose_b: bool = False
    max_shift: int = 0
    """Only for ``.ws``: 0, 8, 16 or 32 columns."""
    scale_a_id: int = 0
    scale_b_id: int = 0
    wide: bool = False
    """Whether K is 96 (mxf4 and mxf4nvf4 on sm_103a)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", check_kind(self.kind))
        for name in _FLAGS:
            self._settle(name, bool, (False, True))
        for name in ("selector", "scale_a_id", "scale_b_id"):
            self._settle(name, int, range(4))
        self._settle("max_shift", int, _SHIFTS)
        self._check_fields()
        self._check_sizes()
        self._check_ids()
        self._check_majors()

    def _settle(self, name: str, to: type, allowed: Iterable[int]) -> None:
        given = getattr(self, name)
        if not (is_whole(given) or isinstance(given, bool)) or given not in allowed:
            raise UnknownInstruction(
                f"{name} is {one_of(map(str, allowed))}; given {given!r}"
            )
        object.__setattr__(self, name, to(given))

    # ── the shape ───────────────────────────────────────────────────────────

    @property
    def k(self) -> int:
        """K, which follows from the kind, from sparsity and from ``wide``."""
        return WIDE_K if self.wide else OF_KIND[self.kind].k[self.sparse]

    @property
    def shape(self) -> str:
        """The shape as other instructions write it."""
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def values(self) -> dict[str, str]:
        """What the mnemonics of other families say as qualifiers."""
        found = {"shape": self.shape, "d": self.d, "a": self.a, "b": self.b}
        if self.scale:
            found["stype"] = self.scale
        if self.saturate:
            found["satfinite"] = "satfinite"
        return found

    # ── the word ────────────────────────────────────────────────────────────

    def encode(self) -> int:
        """The 32-bit word.

        >>> fp4 = InstructionDescriptor("mxf4", 128, 256, "e2m1", "e2m1", "f32", "ue8m0")
        >>> hex(fp4.encode())
        '0x8c00480'
        """
        word = 0
        for each in self.fields():
            word |= each.code << each.low
        return word

    def fields(self) -> list[Field]:
        """The fields of the word, lowest first.

        >>> fp8 = InstructionDescriptor("f8f6f4", 64, 8, "e2m1", "e5m2", "f16")
        >>> print(fp8.fields()[4])
           9:7  a              5  type of A: e2m1
        """
        found = []
        for line in _LINES[self.kind]:
            name, low, bits = line["field"], int(line["low"]), int(line["bits"])
            value = getattr(self, name)
            if line["unit"] == "type":
                code = type_codes(name, self.kind)[value]
            elif name == "max_shift":
                code = _SHIFTS.index(value)
            else:
                code = int(value) // int(line["unit"])
            high = low + bits - 1
            found.append(Field(name, low, high, code, value, _MEANINGS[name]))
        return found

    @classmethod
    def decode(cls, word: int, *, kind: str) -> InstructionDescriptor:
        """What a word says for a kind; a word that says nothing is refused.

        >>> InstructionDescriptor.decode(0x08C00280, kind="mxf4")
        Traceback (most recent call last):
        fragmenta.errors.UnknownInstruction: 0x08c00280 is no descriptor of mxf4: type of \
A has code 5 (bits 9:7); it is 1 for e2m1; 5 is e2m1 in f8f6f4 and mxf8f6f4
        """
        kind = check_kind(kind)
        if not is_whole(word) or not 0 <= word < 1 << 32:
            raise UnknownInstruction(
                "an instruction descriptor is a whole number of 32 bits; given "
                f"{shortened(word) if isinstance(word, str) else repr(word)}"
            )
        left, values = int(word), dict[str, Any]()
        for line in _LINES[kind]:
            name, low, bits = line["field"], int(line["low"]), int(line["bits"])
            code = left >> low & (1 << bits) - 1
            left &= ~((1 << bits) - 1 << low)
            values[name] = _value(int(word), kind, line, code)
        if left:
            raise UnknownInstruction(_unused(int(word), left, kind))
        values.setdefault("d", "f32")
        return cls(kind, **values)

    def __str__(self) -> str:
        sparse = " sparse" if self.sparse else ""
        return f"{self.shape} {self.a} x {self.b} -> {self.d}{sparse}"

    # ── does it fit? ────────────────────────────────────────────────────────

    def check(self, group: int, *, ws: bool, sparse: bool) -> None:
        """Refuse a descriptor that does not fit the mnemonic.

        >>> d = InstructionDescriptor("f16", m=256, n=64, a="f16", b="f16", d="f32")
        >>> d.check(1, ws=False, sparse=False)
        Traceback (most recent call last):
        fragmenta.errors.UnknownInstruction: kind f16 with cta_group::1 has no M = 256; \
it has 64 and 128; M = 256 is in cta_group::2
        """
        if sparse != self.sparse:
            has = "is sparse" if sparse else "is dense"
            raise UnknownInstruction(
                f"the mnemonic {has}, and bit 2 of the descriptor says the opposite; "
                "the hardware goes by the descriptor"
            )
        if self.max_shift and not ws:
            raise UnknownInstruction("max_shift is only for .ws; without it, it is 0")
        self._check_m(group, ws)
        self._check_n(group, ws)

    def _sizes(self, group: int, ws: bool) -> dict[int, tuple[int, ...]]:
        return sizes(self.kind, group, ws=ws, sparse=self.sparse, wide=self.wide)

    def _check_m(self, group: int, ws: bool) -> None:
        have = self._sizes(group, ws)
        if self.m in have:
            return
        what = f"kind {self.kind}{' .ws' * ws} with cta_group::{group}"
        what += " and K = 96" * self.wide + " and a sparse A" * self.sparse
        has = f"; it has {one_of(have, 'and')}" if have else ""
        elsewhere = [
            f"cta_group::{g}{' with .ws' * w}"
            for g, w in ((1, False), (2, False), (1, True))
            if self.m in self._sizes(g, w)
        ]
        where = f"; M = {self.m} is in {one_of(elsewhere, 'and')}" if elsewhere else ""
        raise UnknownInstruction(f"{what} has no M = {self.m}{has}{where}")

    def _check_n(self, group: int, ws: bool) -> None:
        have = self._sizes(group, ws)[self.m]
        narrow = self.transpose_b and _bits(self.b) == 8
        step = transposed_step(group)
        if narrow:
            have = tuple(n for n in have if n % step == 0)
        if self.n in have:
            return
        near = min(have, key=lambda n: abs(n - self.n))
        steps = {b - a for a, b in pairwise(have)}
        listed = (
            f"{have[0]} to {have[-1]} in steps of {steps.pop()}"
            if len(steps) == 1 and len(have) > 3
            else one_of(have, "and")
        )
        why = ""
        if narrow and self.n % step:
            why = f"; an N-major B of 8-bit elements needs a multiple of {step}"
        elif not ws and self.n % (8 * group) == 0 and 8 <= self.n <= 256:
            why = (
                "; sources disagree about smaller steps, and only a GPU could tell: "
                "these are the ones that all sources allow"
            )
        raise UnknownInstruction(
            f"kind {self.kind}{' .ws' * ws} with cta_group::{group} and M = {self.m} "
            f"has no N = {self.n}; it has {listed}; nearest: {near}{why}"
        )

    def _check_fields(self) -> None:
        """Refuse values of fields that the kind does not have."""
        have = {line["field"]: line for line in _LINES[self.kind]}
        for name in ("a", "b", "d", "scale"):
            codes = type_codes(name, self.kind)
            given = getattr(self, name)
            if name == "d" and not codes:
                codes = dict.fromkeys(OF_KIND[self.kind].results, 0)
            if not codes and not given:
                continue
            if name == "scale" and given == "ue5m3" and self.kind == "mxf4nvf4":
                raise UnknownInstruction(UE5M3)
            if given not in codes:
                allowed = one_of(codes) or "none"
                raise UnknownInstruction(
                    f"{_MEANINGS[name]} of kind {self.kind} is {allowed}; given "
                    f"{given or 'none'}{nearest(str(given), codes)}"
                )
        for each in fields(self):
            line = have.get(each.name)
            known = line and (line["kinds"] == "all" or self.kind in line["kinds"])
            if known or not isinstance(each.default, int) or each.name not in _MEANINGS:
                continue
            if getattr(self, each.name):
                raise UnknownInstruction(f"kind {self.kind} has no {each.name}")
        self._check_pair_of_types()

    def _check_pair_of_types(self) -> None:
        if self.kind == "f16" and self.a != self.b:
            raise UnknownInstruction(
                f"kind f16 with A of {self.a} and B of {self.b}: the manual does not "
                "forbid it, other sources do, and only a GPU could tell; use one type"
            )
        if self.kind == "f16" and self.d == "f16" and self.a != "f16":
            raise UnknownInstruction(
                f"D of f16 needs A and B of f16; given {self.a}; D of {self.a} is f32"
            )

    def _check_sizes(self) -> None:
        forms = ((1, False), (2, False), (1, True))
        heights = sorted({m for g, ws in forms for m in sizes(self.kind, g, ws=ws)})
        for name, allowed, words in (
            ("m", heights, one_of(heights)),
            ("n", range(8, 257, 8), "a multiple of 8 from 8 to 256"),
        ):
            given = getattr(self, name)
            if not is_whole(given) or given not in allowed:
                raise UnknownInstruction(
                    f"{name} of kind {self.kind} is {words}; given {given!r}"
                )
            object.__setattr__(self, name, int(given))
        if self.wide and self.sparse:
            raise UnknownInstruction("K = 96 is dense")

    def _check_ids(self) -> None:
        if self.selector > 1:
            raise UnknownInstruction(
                f"selector {self.selector}: the manual allows 0 to 3 and refers to "
                "figures; every program uses 0 and 1, and only a GPU could tell more"
            )
        if self.selector and not self.sparse:
            raise UnknownInstruction("a dense instruction has no sparsity selector")
        if TABLES[self.kind] is _NARROW:
            for name in ("scale_a_id", "scale_b_id"):
                if getattr(self, name) not in (0, 2):
                    raise UnknownInstruction(
                        f"{name} of kind {self.kind} is 0 or 2; given "
                        f"{getattr(self, name)}"
                    )

    def _check_majors(self) -> None:
        for name in ("a", "b"):
            of = getattr(self, name)
            if getattr(self, f"transpose_{name}") and _bits(of) < 8:
                raise UnknownInstruction(
                    f"{name.upper()} of {of} is always K-major; transpose_{name} is 0"
                )


def _bits(of: str) -> int:
    narrow = {"e2m3": 6, "e3m2": 6, "e2m1": 4, "f16": 16, "bf16": 16, "tf32": 32}
    return narrow.get(of, 8)


def _value(word: int, kind: str, line: Mapping[str, str], code: int) -> Any:
    """What the code of a field means; one without meaning is refused."""
    name, low, bits = line["field"], int(line["low"]), int(line["bits"])
    where = f"bits {low + bits - 1}:{low}" if bits > 1 else f"bit {low}"
    if line["unit"] == "type":
        for of, known in type_codes(name, kind).items():
            if known == code:
                return of
        codes = type_codes(name, kind)
        legal = one_of(f"{c} for {of}" for of, c in codes.items())
        raise UnknownInstruction(
            f"{word:#010x} is no descriptor of {kind}: {_MEANINGS[name]} has code "
            f"{code} ({where}); it is {legal}{_elsewhere(name, kind, code)}"
        )
    if code and line["kinds"] != "all" and kind not in line["kinds"].split():
        raise UnknownInstruction(
            f"{word:#010x} is no descriptor of {kind}: {where} ({_MEANINGS[name]}) "
            "must be 0"
        )
    if name == "max_shift":
        return _SHIFTS[code]
    return code * int(line["unit"])


def _elsewhere(name: str, kind: str, code: int) -> str:
    """What the code of e2m1 means in the other table; people mix them up."""
    if name not in ("a", "b"):
        return ""
    if TABLES[kind] is _NARROW and code == 5:
        return "; 5 is e2m1 in f8f6f4 and mxf8f6f4"
    return ""


def _unused(word: int, left: int, kind: str) -> str:
    wrong = [bit for bit in range(32) if left >> bit & 1]
    if kind == "mxf4nvf4" and wrong == [24] and not word >> 23 & 1:
        return f"{word:#010x} is not covered: {UE5M3}"
    later = {29: "f8f6f4", 31: "mxf8f6f4", 26: "mxf8f6f4", 3: "mxf4", 24: "mxf4"}
    hint = ""
    if any(later.get(bit, "").startswith(kind[:4]) for bit in wrong):
        hint = "; on sm_107 some of these bits have a meaning, which is not covered"
    return (
        f"{word:#010x} is no descriptor of {kind}: bit {one_of(wrong, 'and')} must be 0"
        + hint
    )
