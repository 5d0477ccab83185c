"""Finds instructions by abbreviations and by words.

An abbreviation is some of the qualifiers of a mnemonic, in their order.  Words as people
say them, such as fp8, sparse, Hopper or HMMA.16816, are understood, too.
"""

from __future__ import annotations

import re
from functools import cache

from fragmenta.base.arrays.checks import check_flags
from fragmenta.errors import BadOperands, UnknownInstruction, nearest, one_of, shortened
from fragmenta.reference.isa.families import FORMS, of_row, uncovered
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.matching import (
    RESULTS,
    VARIANTS,
    fitting,
    narrowed,
    row_words,
)
from fragmenta.reference.isa.mnemonic_errors import (
    ambiguous,
    difference,
    nearest_shape,
    quoted,
)
from fragmenta.reference.isa.reading import check_text
from fragmenta.reference.isa.reading import instruction as mnemonic
from fragmenta.reference.isa.sass import written_as
from fragmenta.reference.isa.synonyms import (
    from_disassembly,
    has_synonym,
    meaning,
    vocabulary,
)
from fragmenta.reference.isa.tcgen05_shapes import OF_KIND
from fragmenta.reference.isa.tcgen05_words import built
from fragmenta.reference.registers.dtype import DTYPES

FAR = 1 << 20
"""How unlike a shape is to none."""


def instruction(text: str | Instruction, *, idesc: int | None = None) -> Instruction:
    """The instruction that a mnemonic, or words, mean; an instruction is itself.

    A text in several words that is no mnemonic with operands is read as :func:`find`
    does.

    >>> str(instruction("mma m16n8k16 bf16"))
    'mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32'
    """
    try:
        return mnemonic(text, idesc=idesc)
    except BadOperands:
        raise
    except UnknownInstruction:
        if idesc is None and isinstance(text, str) and _in_words(text):
            return find(text)
        raise


def _in_words(text: str) -> bool:
    """Whether a text is some words, and not a mnemonic or a statement."""
    if re.search(r"[{}\[\]%;,]", text) or "sync" in re.split(r"[.\s]+", text):
        return False
    return len(text.split()) > 1


def find(text: str) -> Instruction:
    """The one instruction that a mnemonic or an abbreviation of it means.

    An abbreviation is some of the qualifiers, in their order.  A qualifier
    that may be left out is taken to be absent unless it is named.  If only
    ``sync.aligned`` is left out of one mnemonic, that one is meant.  A ``tcgen05.mma``
    is also found by its shape and types, which its instruction descriptor has.

    Words as people say them are understood, too, in any order: types (fp8, nvfp4,
    int4, half), sparsity (sparse, 2:4), architectures (Hopper, sm_90a), shapes
    (16x8x16, 16816) and the names of machine instructions.

    >>> str(find("mma.m16n8k64.s4.s4"))
    'mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32'
    >>> str(find("tcgen05.m128n256k16.f32.f16"))
    'tcgen05.mma.cta_group::1.kind::f16 0x08400010'
    >>> str(find("sparse int8 16x8x64"))
    'mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32'
    >>> str(find("HMMA.16816.F32.BF16"))
    'mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32'
    """
    try:
        return mnemonic(text)
    except BadOperands:
        raise
    except UnknownInstruction as unknown:
        words = _words(text)
        candidates = ([] if has_synonym(words) else built(words)) or search(text)
        complete = [op for op in candidates if _spelled(op) == words]
        if len(candidates) == 1 or len(complete) == 1:
            return (complete or candidates)[0]
        if not candidates:
            raise _no_such_abbreviation(text, unknown) from None
        alike = [op for op in candidates if _of_one_type(op)]
        if len(alike) == 1:  # as mma(a="s4"), whose B is of the type of A
            return alike[0]
        raise ambiguous(repr(text), candidates) from None


def _of_one_type(op: Instruction) -> bool:
    """Whether A and B have the same type."""
    return op.multiplies and op.types.get("a") == op.types.get("b")


def _spelled(op: Instruction) -> list[str]:
    """All qualifiers of an instruction but those that every one of its family has."""
    return [w for w in op.mnemonic.lower().split(".") if w not in ("sync", "aligned")]


def search(text: str, *, every: bool = False) -> list[Instruction]:
    """Instructions whose qualifiers include these, in this order.

    If any of them leaves every optional qualifier out, only those count; with
    ``every``, all of them.  Words as people say them may stand in any order, as for
    :func:`find`.

    >>> [str(op) for op in search("movmatrix")]
    ['movmatrix.sync.aligned.m8n8.trans.b16']
    >>> [str(op) for op in search("hopper binary wgmma 64x8x256")]
    ['wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc']
    >>> len(search("nvfp4 hopper"))
    0
    """
    check_flags(every=every)
    wanted = _words(text)
    if not wanted or len(wanted) > _most_words():
        return []
    if has_synonym(wanted):
        return _machine(text, wanted, every) or fitting(wanted, every=every)
    found = _abbreviated(wanted, every)
    apart = len(text.split()) > 1  # words, and not a mnemonic
    return found or (fitting(wanted, every=every) if apart else [])


def _machine(text: str, wanted: list[str], every: bool) -> list[Instruction]:
    """The instructions that are one machine instruction of exactly this name.

    The first word of a name alone, such as HMMA, is a word like others.
    """
    first = meaning(text.strip().lower().partition(".")[0])
    alone = len(wanted) < 2 and "." not in text.strip().rstrip(".")
    if first is None or not first.families or alone:
        return []
    found = written_as(text)
    return found if every else narrowed(found, wanted)


def _abbreviated(wanted: list[str], every: bool) -> list[Instruction]:
    found = [
        op
        for form in FORMS
        for number, words in enumerate(row_words(form))
        if words.issuperset(wanted)  # cheap, before anything is spelled
        for op in of_row(form, number)
        if _is_abbreviation(wanted, op.mnemonic)
    ]
    first: dict[str, Instruction] = {}
    for op in found:  # rows may overlap; the first one counts
        first.setdefault(op.mnemonic, op)
    unique = list(first.values())
    exact = [op for op in unique if op.mnemonic.split(".")[0] == wanted[0]]
    unique = exact or unique
    if every:
        return unique
    plain = [op for op in unique if not _extra_options(op, wanted)]
    return plain or unique


def _no_such_abbreviation(text: str, unknown: UnknownInstruction) -> UnknownInstruction:
    """What is wrong with words that are not a mnemonic and abbreviate none."""
    words = _words(text)
    if "sync" in words or not words or uncovered(words):
        return unknown  # a full mnemonic: its own error is the better one
    if len(words) > _most_words():
        return UnknownInstruction(
            f"no instruction has more than {_most_words()} qualifiers; given "
            f"{len(words):,}: {shortened(text)}"
        )
    everything = frozenset[str]().union(*(w for form in FORMS for w in row_words(form)))
    known = everything.union(vocabulary())
    strange = [w for w in words if w not in everything and not has_synonym([w])]
    if strange:
        hint = nearest_shape(strange[0], everything) or nearest(strange[0], known)
        return UnknownInstruction(f"no instruction has {quoted(strange[0])}{hint}")
    near = [str(op) for op in _nearly(words)[:3]]
    hint = f"; without one of them there are {one_of(near, 'and')}" if near else ""
    meant = [str(meaning(word) or word) for word in words]
    order = " together" if has_synonym(words) else " in this order"
    return UnknownInstruction(f"no instruction has {one_of(meant, 'and')}{order}{hint}")


def _nearly(words: list[str]) -> list[Instruction]:
    """The instructions that fit without one of the words, the nearest first.

    Near is what has the types that are given, then what fits without a word that says
    little, such as an architecture, then what has a similar shape.
    """
    shape = next((each for word in words for each in _shapes(word)), "")
    between = " " if has_synonym(words) else "."
    found: dict[Instruction, tuple[int, int, int]] = {}
    for i, word in enumerate(words):
        said_so = meaning(word)
        instead = ["sparse"] if said_so and said_so.sparsity else []
        try:
            near = search(between.join([*words[:i], *instead, *words[i + 1 :]]))
        except UnknownInstruction:  # a shape of tcgen05.mma that does not exist
            continue
        weight = _weight(word)
        for op in near:
            has = op.values.get("shape", "")
            unlike = difference(shape, has) if has else FAR
            distance = _missing(op, words), weight, unlike
            found[op] = min(distance, found.get(op, distance))
    least = min((each[:2] for each in found.values()), default=(0, 0))
    best = [op for op, distance in found.items() if distance[:2] == least]
    return sorted(best, key=found.__getitem__)


def _shapes(word: str) -> tuple[str, ...]:
    found = meaning(word)
    if found is None:
        return (word,) if re.match(r"m\d+n\d+", word) else ()
    return found.shapes


def _missing(op: Instruction, words: list[str]) -> int:
    """How many of the given types an instruction does not multiply."""
    have = {*op.mnemonic.lower().split("."), *op.values.values()}
    if op.tensor_memory and op.kind in OF_KIND:
        have.update(OF_KIND[op.kind].operands, OF_KIND[op.kind].results)
    wanted = [{word} for word in words if word in DTYPES and word not in RESULTS]
    wanted += [{*m.types} for word in words if (m := meaning(word)) and m.types]
    return sum(not have & types for types in wanted)


def _weight(word: str) -> int:
    """How much of what is meant a word says: a place, a type, a shape, a family."""
    if _shapes(word):
        return 2
    found = meaning(word)
    if found is None:
        return 3 if any(form.name.split(".")[0] == word for form in FORMS) else 1
    return 3 if found.families else int(bool(found.types))


@cache
def _most_words() -> int:
    """How many words the longest mnemonic has."""
    return max(form.most_words() for form in FORMS)


def _words(text: str) -> list[str]:
    check_text(text)
    spelled = from_disassembly(text.strip()).lower()
    return [word for word in re.split(r"[.;\s]+", spelled) if word]


def _is_abbreviation(wanted: list[str], mnemonic: str) -> bool:
    tokens = iter(mnemonic.lower().split("."))
    return all(word in tokens for word in wanted)


def _extra_options(op: Instruction, wanted: list[str]) -> bool:
    """Whether it carries a qualifier that could be left out and was not named."""
    if op.sparse and not any(word.startswith("sp") for word in wanted):
        return True
    if op.kind and not any(word.startswith("kind::") for word in wanted):
        return True
    if any(word in op.mnemonic.split(".") and word not in wanted for word in VARIANTS):
        return True
    optional = [op.values[n] for n, vs in op.row.allowed.items() if "" in vs]
    return any(value and value not in wanted for value in optional)
