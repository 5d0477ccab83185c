"""Words that people use for types, kinds and targets, in the words of PTX.

Mnemonics say ``e4m3``, ``kind::mxf4nvf4`` and ``sm_90a``; people say fp8, nvfp4 and
Hopper, and disassemblers say ``HMMA.16816.F32``.  The tables here say
what each such word means in the words of PTX.  Shapes are also read as ``16x8x16`` and ``16816``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import UnsupportedTarget, nearest, one_of, shortened
from fragmenta.reference.isa.families import FORMS
from fragmenta.reference.isa.table import read
from fragmenta.reference.isa.target import (
    TARGETS,
    check_target,
    most_capable,
    targets_by_word,
)

# ``types``: those of A and B; of D, where A and B have none of them.
# ``has``: words of the mnemonic; "/" parts those of which one is enough, and "!" stands
# before one that is not there.  ``sparsity``: the pattern of A.
TYPES = """
said                      | types     | has                                         | sparsity
fp64 float64 double       | f64       |                                             |
fp32 float32 float single | f32       |                                             |
tfloat32 tensorfloat32    | tf32      |                                             |
fp16 float16 half         | f16       |                                             |
bfloat16 bfloat           | bf16      |                                             |
fp8 float8                | e4m3 e5m2 |                                             |
fp6 float6                | e2m3 e3m2 |                                             |
fp4 float4                | e2m1      |                                             |
e4m3fn float8_e4m3fn      | e4m3      |                                             |
fp8_e4m3                  | e4m3      |                                             |
fp8_e5m2 float8_e5m2      | e5m2      |                                             |
e2m1fn float4_e2m1fn      | e2m1      |                                             |
int32                     | s32       |                                             |
int8                      | s8        |                                             |
uint8                     | u8        |                                             |
int4                      | s4        |                                             |
uint4                     | u4        |                                             |
binary int1 uint1 bit     | b1        |                                             |
mxfp8                     | e4m3 e5m2 | kind::mxf8f6f4                              |
mxfp6                     | e2m3 e3m2 | kind::mxf8f6f4                              |
mxfp4                     | e2m1      | kind::mxf4                                  |
nvfp4                     | e2m1      | kind::mxf4nvf4 scale_vec::4x/block16 !ue8m0 |
sparse structured         |           | sp/sp::ordered_metadata                     |
dense                     |           | !sp !sp::ordered_metadata                   |
1:2                       |           | sp/sp::ordered_metadata                     | 1:2
2:4                       |           | sp/sp::ordered_metadata                     | 2:4
4:8                       |           | sp/sp::ordered_metadata                     | 4:8
"""

# Names of machine instructions, as disassemblers and profilers print them.  Each means
# the instructions of PTX that are one such instruction on some target, with the sparse
# ones of their families.
SASS = """
said    | families                   | types                    | has
hmma    | mma wmma.mma               | f16 bf16 tf32            |
imma    | mma wmma.mma               | s8 u8 s4 u4              |
bmma    | mma wmma.mma               | b1                       |
dmma    | mma wmma.mma               | f64                      |
qmma    | mma                        | e4m3 e5m2 e3m2 e2m3 e2m1 | !kind::mxf4 !kind::mxf4nvf4
omma    | mma                        | e2m1                     | kind::mxf4/kind::mxf4nvf4
hgmma   | wgmma                      | f16 bf16 tf32            |
igmma   | wgmma                      | s8 u8                    |
bgmma   | wgmma                      | b1                       |
qgmma   | wgmma                      | e4m3 e5m2                |
utchmma | tcgen05.mma tcgen05.mma.ws | f16 bf16 tf32            |
utcimma | tcgen05.mma tcgen05.mma.ws | s8 u8                    |
utcqmma | tcgen05.mma tcgen05.mma.ws | e4m3 e5m2 e3m2 e2m3 e2m1 | !kind::mxf4 !kind::mxf4nvf4
utcomma | tcgen05.mma tcgen05.mma.ws | e2m1                     | kind::mxf4/kind::mxf4nvf4
gmma    | wgmma                      |                          |
umma    | tcgen05.mma tcgen05.mma.ws |                          |
ldsm    | ldmatrix                   |                          |
stsm    | stmatrix                   |                          |
movm    | movmatrix                  |                          |
ldtm    | tcgen05.ld                 |                          |
sttm    | tcgen05.st                 |                          |
utccp   | tcgen05.cp                 |                          |
utcbar  | tcgen05                    |                          | commit
utcatomsws | tcgen05                 |                          | alloc/dealloc
sf      |                            |                          | block_scale
sat     |                            |                          | satfinite
e8      |                            |                          | ue8m0
4x      |                            |                          | scale_vec::4x/block16
1cta    |                            |                          | cta_group::1
2cta    |                            |                          | cta_group::2
"""

#: SASS names that call A f16 by saying no other type.
UNNAMED_F16 = ("hmma", "hgmma")


_SIZES = re.compile(r"m?(\d{1,3})xn?(\d{1,3})(?:xk?(\d{1,3}))?", re.ASCII)


@dataclass(frozen=True)
class Meaning:
    """What one word means: conditions that an instruction fulfils."""

    word: str
    types: tuple[str, ...] = ()
    has: tuple[tuple[str, ...], ...] = ()
    """Of each of these, the mnemonic has one word."""
    lacks: tuple[str, ...] = ()
    sparsity: str = ""
    families: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The word, and what it means in the words of PTX.

        >>> print(meaning("nvfp4"))
        nvfp4 (e2m1, kind::mxf4nvf4, scale_vec::4x or block16, no ue8m0)
        >>> print(meaning("turing"))
        turing (sm_75)
        """
        parts = [one_of(self.families), one_of(self.types), *map(one_of, self.has)]
        parts += [f"no {each}" for each in self.lacks]
        parts += [self.sparsity, one_of(self.targets), one_of(self.shapes)]
        return f"{self.word} ({', '.join(part for part in parts if part)})"


def meaning(word: str) -> Meaning | None:
    """What a word means, in any case; None for the words of PTX and for others.

    >>> meaning("FP8").types
    ('e4m3', 'e5m2')
    >>> meaning("16816").shapes, meaning("16x8x16").shapes
    (('m16n8k16',), ('m16n8k16',))
    >>> meaning("e4m3") is None
    True
    """
    lower = word.lower()
    if lower in _table():
        return _table()[lower]
    if lower in TARGETS:
        return Meaning(lower, targets=(lower,))
    sizes = _SIZES.fullmatch(lower)
    if sizes and lower not in _tiles():
        shape = "".join(x + n for x, n in zip("mnk", sizes.groups(), strict=True) if n)
        return Meaning(lower, shapes=(shape,))
    shapes = _digits().get(lower, ())
    return Meaning(lower, shapes=shapes) if shapes else None


def has_synonym(words: Iterable[str]) -> bool:
    """Whether any of the words is a synonym, not a word of PTX.

    >>> has_synonym(["mma", "fp8"]), has_synonym(["mma", "e4m3"])
    (True, False)
    """
    return any(meaning(word) is not None for word in words)


def vocabulary() -> tuple[str, ...]:
    """Every word of the table, for hints.

    >>> "nvfp4" in vocabulary()
    True
    """
    return tuple(_table())


# ── targets ─────────────────────────────────────────────────────────────────


def architectures() -> tuple[str, ...]:
    """Every word that means targets.

    >>> architectures()[:3]
    ('volta', 'v100', 'xavier')
    """
    return tuple(word for word, found in _table().items() if found.targets)


def meant_targets(text: str) -> tuple[str, ...]:
    """The targets that a word means, in any case; the name of one means that one.

    >>> meant_targets("Hopper"), meant_targets("sm_90")
    (('sm_90', 'sm_90a'), ('sm_90',))
    >>> meant_targets("hoper")
    Traceback (most recent call last):
    ...
    fragmenta.errors.UnsupportedTarget: no target 'hoper' (did you mean hopper?); \
the targets are sm_70 to sm_121f, and words such as volta, turing, ampere, ada, \
hopper, h100, blackwell and b200
    """
    word = str(text).strip().lower()
    found = meaning(word)
    if found is not None and found.targets:
        return found.targets
    if word.startswith("sm_"):
        return (check_target(word),)
    first, *_, last = TARGETS
    near = nearest(word, (*architectures(), *TARGETS))
    some = "volta, turing, ampere, ada, hopper, h100, blackwell and b200"
    raise UnsupportedTarget(
        f"no target {shortened(str(text))}{near}; the targets are {first} to {last}, "
        f"and words such as {some}"
    )


def named_targets(text: str) -> tuple[str, ...]:
    """One target of each architecture that a word means: that with most instructions.

    >>> named_targets("hopper"), named_targets("sm_90"), named_targets("ada")
    (('sm_90a',), ('sm_90',), ('sm_89',))
    >>> named_targets("ampere")
    ('sm_80', 'sm_86', 'sm_87', 'sm_88')
    """
    return most_capable(meant_targets(text))


def named_target(
    text: str,
    have: Iterable[str] = TARGETS,
    same: Callable[[str], object] | None = None,
) -> str:
    """The one target that a word means, of those in ``have``.

    If it means several, and ``same`` gives the same for all of them, it is the first.

    >>> named_target("h100")
    'sm_90a'
    >>> named_target("blackwell", ["sm_80", "sm_120a", "sm_120f"])
    'sm_120a'
    >>> named_target("ampere")
    Traceback (most recent call last):
    ...
    fragmenta.errors.UnsupportedTarget: ampere is sm_80, sm_86, sm_87 or sm_88; name \
one of them
    """
    every, known = named_targets(text), set(have)
    found = [each for each in every if each in known] or list(every[:1])
    if len(found) > 1 and not (same and len({same(each) for each in found}) == 1):
        raise UnsupportedTarget(f"{text} is {one_of(found)}; name one of them")
    return found[0]


# ── machine instructions ────────────────────────────────────────────────────


def from_disassembly(text: str) -> str:
    """The text, with a line of a disassembler made shorter and plainer.

    Its operands are left out, and its modifiers become words of PTX.

    >>> from_disassembly("HMMA.16816.F32 R4, R8, R12, R4 ;")
    'HMMA.16816.F32'
    >>> from_disassembly("LDSM.16.MT88.4")
    'LDSM.m8n8.b16.trans.x4'
    """
    text = re.split(r"(?<!\s)\s+(?=U?R(?:\d+|Z)\b)", text, maxsplit=1)[0]
    for pattern, plain in _MODIFIERS:
        text = re.sub(pattern, plain, text, flags=re.IGNORECASE)
    return text


# Modifiers of SASS that no word of PTX is the same as.
_MODIFIERS = (
    (r"^(LDSM|STSM|MOVM)\.16\.M88", r"\1.m8n8.b16"),
    (r"^(LDSM|STSM|MOVM)\.16\.MT88", r"\1.m8n8.b16.trans"),
    (r"^((?:LDSM|STSM)\.[\w.]*)\.([124])$", r"\1.x\2"),
    (r"^((?:LDSM|STSM)\.m8n8\.b16(?:\.trans)?)$", r"\1.x1"),
    (r"^(UTCCP|UTCBAR|UTCATOMSWS)(\.2CTA)?\.[\w.]*$", r"\1\2"),
    (r"^(HMMA\.\S*)\.STEP\d$", r"\1"),
)


_EMPTY = dict.fromkeys(("types", "has", "sparsity", "families"), "")


@cache
def _table() -> dict[str, Meaning]:
    found = {}
    for row in (*read(TYPES), *read(SASS)):
        line = {**_EMPTY, **row}
        has = [word for word in line["has"].split() if not word.startswith("!")]
        lacks = [word[1:] for word in line["has"].split() if word.startswith("!")]
        families = line["families"].split()
        sparse = [f"{each}.sp" for each in families if f"{each}.sp" in _families()]
        for word in line["said"].split():
            found[word] = Meaning(
                word,
                types=tuple(line["types"].split()),
                has=tuple(tuple(each.split("/")) for each in has),
                lacks=tuple(lacks),
                sparsity=line["sparsity"],
                families=(*families, *sparse),
            )
    return found | {
        word: Meaning(word, targets=have) for word, have in targets_by_word().items()
    }


@cache
def _families() -> frozenset[str]:
    return frozenset(form.name for form in FORMS)


@cache
def _tiles() -> frozenset[str]:
    """The words of PTX that look like shapes, such as ``32x32b`` of ``tcgen05.ld``."""
    return frozenset(
        word.lower()
        for form in FORMS
        for name in form.fields()
        for value in form.vocabulary(name)
        for word in value.split(".")
        if re.match(r"\d+x", word)
    )


@cache
def _digits() -> dict[str, tuple[str, ...]]:
    """The shapes by their digits, as disassemblers write them: 16816."""
    shapes = dict.fromkeys(s for form in FORMS for s in form.vocabulary("shape") if s)
    found: dict[str, tuple[str, ...]] = {}
    for shape in shapes:
        sizes = re.findall(r"\d+", shape)
        if len(sizes) == 3:
            key = "".join(sizes)
            found[key] = (*found.get(key, ()), shape)
    return found
