"""Builds a ``tcgen05.mma`` from words: its mnemonic, shape and types.

The mnemonic of ``tcgen05.mma`` has no shape and no types: they are in a number, the
instruction descriptor.  Words are easier to remember.  They are those of the mnemonic
and, after them, the shape and the types in the order of other families: D, A, B, and
the type of scales.  What is left out is absent or usual: one CTA, a dense A, B of the
type of A, D of f32 or s32, no block scales.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from fragmenta.errors import UnknownInstruction, nearest, one_of
from fragmenta.reference.isa.families import FORMS
from fragmenta.reference.isa.instruction import Instruction, Shape
from fragmenta.reference.isa.instruction_descriptor import InstructionDescriptor
from fragmenta.reference.isa.tcgen05_shapes import OF_KIND, WIDE_K

_SHAPE = re.compile(r"m\d+n\d+(k\d+)?", re.ASCII)
SCALES = ("ue8m0", "ue4m3")
"""The types of scales."""
TYPES = frozenset(
    word for row in OF_KIND.values() for word in (*row.operands, *row.results, *SCALES)
)
"""Every type that an operand of a ``tcgen05.mma`` may have."""
_USUAL = ("f32", "s32")
# Qualifiers that are absent unless they are named; every row has one value of some.
_OPTIONAL = ("lut", "ashift", "collector", "collector_b")


def built(words: Sequence[str]) -> list[Instruction]:
    """The instructions that words with a shape mean; none without a shape.

    >>> [str(op) for op in built("tcgen05 m128n256k16 f32 f16".split())]
    ['tcgen05.mma.cta_group::1.kind::f16 0x08400010']
    >>> [str(op) for op in built("tcgen05 mma sp m256n64k64 s8".split())]
    ['tcgen05.mma.sp.cta_group::2.kind::i8 0x101004a4']
    """
    shapes = [word for word in words if _SHAPE.fullmatch(word)]
    if not words or words[0] != "tcgen05" or len(shapes) != 1:
        return []
    size = Shape.parse(shapes[0])
    types = [word for word in words if word in TYPES]
    rest = [word for word in words if word not in (*types, *shapes)]
    mnemonics = list(_mnemonics(rest, types))
    if not mnemonics:
        raise _strange(words, rest)
    found, reasons = list[Instruction](), list[UnknownInstruction]()
    for op in mnemonics:
        for descriptor in _descriptors(op, size, types, reasons):
            try:
                found.append(op.with_descriptor(descriptor.encode()))
            except UnknownInstruction as error:
                reasons.append(error)
    if not found:
        raise reasons[0] if reasons else _no_types(size, types)
    return _usual(found, words)


def _mnemonics(rest: Sequence[str], types: Sequence[str]) -> Iterator[Instruction]:
    """The mnemonics with these words and, but for kinds and groups, no others."""
    for form in FORMS:
        if form.multiplies != "tensor memory":
            continue
        fixed = form.name.split(".")
        if any(word in fixed and word not in rest for word in ("ws", "sp")):
            continue
        for row in form.rows:
            for values in row.combinations():
                op = Instruction(form, row, values)
                spelled = op.mnemonic.lower().split(".")
                if all(word in spelled for word in rest) and _plain(op, rest, types):
                    yield op


def _plain(op: Instruction, rest: Sequence[str], types: Sequence[str]) -> bool:
    if any(op.values.get(n) and op.values[n] not in rest for n in _OPTIONAL):
        return False
    size = op.values["scale_vec"].lower()
    if op.kind != "mxf4nvf4":
        return not size or size in rest
    sizes = ("scale_vec::2x", "scale_vec::4x", "block16", "block32")
    if any(each in rest for each in sizes):
        return size in rest
    return size == ("scale_vec::2x" if "ue8m0" in types else "scale_vec::4x")


def _descriptors(
    op: Instruction,
    size: Shape,
    types: Sequence[str],
    reasons: list[UnknownInstruction],
) -> Iterator[InstructionDescriptor]:
    """The descriptors of a mnemonic that have all of the types, in their order."""
    kind = op.kind or ""
    if kind not in OF_KIND:
        return
    row = OF_KIND[kind]
    four = op.values["scale_vec"] in ("scale_vec::4X", "block16")
    usual = "ue4m3" if kind == "mxf4nvf4" and four else "ue8m0"
    scales = ("",) if op.values["block_scale"] == "" else (usual, *SCALES)
    wide = size.k == WIDE_K
    for d, a, b, scale in dict.fromkeys(
        product(row.results, row.operands, row.operands, scales)
    ):
        spoken = iter((d, a, b, scale))
        if not all(word in spoken for word in types):
            continue
        if (b != a and b not in types) or scale not in ("", usual, *types):
            continue
        try:
            found = InstructionDescriptor(
                kind, size.m, size.n, a, b, d, scale, sparse=op.sparse, wide=wide
            )
        except UnknownInstruction as error:
            reasons.append(error)
            continue
        if size.k in (0, found.k):
            yield found
            continue
        sparse = " with a sparse A" * op.sparse
        wrong = f"kind {kind} has k {found.k}{sparse}; given {size}"
        reasons.append(UnknownInstruction(wrong))


def _usual(found: list[Instruction], words: Sequence[str]) -> list[Instruction]:
    """Those with what is usual, where the words leave a choice."""

    def one_cta(op: Instruction) -> bool:
        return op.cta_group == 1 or "cta_group::2" in words

    def unscaled(op: Instruction) -> bool:
        return not op.scale_vec or bool(_scaled(words))

    def plain_result(op: Instruction) -> bool:
        return op.values["d"] in (*_USUAL, *words)

    def alike(op: Instruction) -> bool:
        named = sum(word in TYPES for word in words)
        return op.values["b"] == op.values["a"] or named >= 3

    for usual in (one_cta, unscaled, plain_result, alike):
        found = [op for op in found if usual(op)] or found
    return list(dict.fromkeys(found))


def _scaled(words: Iterable[str]) -> list[str]:
    marks = ("kind::", "scale_vec::", "block", *SCALES)
    return [word for word in words if word.startswith(marks)]


def _strange(words: Sequence[str], rest: Sequence[str]) -> UnknownInstruction:
    """Which of the words no mnemonic has."""
    known = {"tcgen05", "mma", "ws", "sp"}
    for form in FORMS:
        if form.multiplies == "tensor memory":
            for row in form.rows:
                known |= {v.lower() for vs in row.allowed.values() for v in vs if v}
    for word in rest:
        if word not in known:
            hint = nearest(word, known | TYPES)
            return UnknownInstruction(f"tcgen05.mma has no {word}{hint}")
    return UnknownInstruction(
        f"no tcgen05.mma has {one_of(rest, 'and')} together; given {'.'.join(words)}"
    )


def _no_types(size: Shape, types: Sequence[str]) -> UnknownInstruction:
    return UnknownInstruction(
        f"no tcgen05.mma {size} has the types {one_of(types, 'and')} in this order; "
        "the order is D, A, B, and then that of scales"
    )
