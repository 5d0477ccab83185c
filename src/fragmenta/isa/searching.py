"""Which instructions do these words abbreviate?

An abbreviation is some of the qualifiers of a mnemonic, in their order.
"""

from __future__ import annotations

import re
from functools import cache

from fragmenta.errors import BadOperands, UnknownInstruction, nearest, one_of, shortened
from fragmenta.isa.families import FORMS, catalogue, uncovered
from fragmenta.isa.instruction import Instruction
from fragmenta.isa.reading import check_text, instruction
from fragmenta.isa.refusals import ambiguous, nearest_shape, told
from fragmenta.isa.table import Form
from fragmenta.isa.wording import built

# Words that make another instruction of one, not named unless they are meant.
_VARIANTS = ("red", "spcompress")


def find(text: str) -> Instruction:
    """The one instruction that a mnemonic or an abbreviation of it means.

    An abbreviation is some of the qualifiers, in their order.  A qualifier
    that may be left out is taken to be absent unless it is named.  A ``tcgen05.mma``
    is also found by its shape and types, which its instruction descriptor has.

    >>> str(find("mma.m16n8k64.s4.s4"))
    'mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32'
    >>> str(find("tcgen05.m128n256k16.f32.f16"))
    'tcgen05.mma.cta_group::1.kind::f16 0x08400010'
    """
    try:
        return instruction(text)
    except BadOperands:
        raise
    except UnknownInstruction as unknown:
        candidates = built(_words(text)) or search(text)
        if len(candidates) == 1:
            return candidates[0]
        if not candidates:
            raise _no_such_abbreviation(text, unknown) from None
        raise ambiguous(repr(text), candidates) from None


def search(text: str) -> list[Instruction]:
    """Instructions whose qualifiers include these, in this order.

    If any of them leaves every optional qualifier out, only those count.

    >>> [str(op) for op in search("movmatrix")]
    ['movmatrix.sync.aligned.m8n8.trans.b16']
    """
    wanted = _words(text)
    if not wanted or len(wanted) > _most_words():
        return []
    found = [
        op
        for form in FORMS
        for row, words in zip(form.rows, _row_words(form), strict=True)
        if words.issuperset(wanted)  # cheap, before anything is spelled
        for op in (Instruction(form, row, values) for values in row.combinations())
        if _is_abbreviation(wanted, op.mnemonic)
    ]
    unique = list({op.mnemonic: op for op in found}.values())
    exact = [op for op in unique if op.mnemonic.split(".")[0] == wanted[0]]
    unique = exact or unique
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
    everything = frozenset[str]().union(
        *(w for form in FORMS for w in _row_words(form))
    )
    strange = next((word for word in words if word not in everything), None)
    if strange is not None:
        hint = nearest_shape(strange, everything) or nearest(strange, everything)
        return UnknownInstruction(f"no instruction has {told(strange)}{hint}")
    near = [str(op) for op in _without_one(words)[:3]]
    hint = f"; without one of them there are {one_of(near, 'and')}" if near else ""
    return UnknownInstruction(
        f"no instruction has {one_of(words, 'and')} in this order{hint}"
    )


def _without_one(words: list[str]) -> list[Instruction]:
    """The instructions that fit when the first word in the way is left out."""
    for i in range(len(words)):
        found = search(".".join(words[:i] + words[i + 1 :]))
        if found:
            return found
    return []


@cache
def _most_words() -> int:
    """How many words the longest mnemonic has."""
    return max(str(op).count(".") for op in catalogue()) + 1


def _words(text: str) -> list[str]:
    check_text(text)
    return [word for word in re.split(r"[.;\s]+", text.strip().lower()) if word]


@cache
def _row_words(form: Form) -> tuple[frozenset[str], ...]:
    """For each row of a form, every word that a mnemonic of it can have."""
    fixed = re.findall(r"[\w:]+", re.sub(r"\{\w+\}", "", form.spellings[0]))
    return tuple(
        frozenset(fixed).union(
            word
            for values in row.allowed.values()
            for value in values
            for word in value.lower().split(".")
        )
        for row in form.rows
    )


def _is_abbreviation(wanted: list[str], mnemonic: str) -> bool:
    tokens = iter(mnemonic.lower().split("."))
    return all(word in tokens for word in wanted)


def _extra_options(op: Instruction, wanted: list[str]) -> bool:
    """Whether it carries a qualifier that could be left out and was not named."""
    if op.sparse and not any(word.startswith("sp") for word in wanted):
        return True
    if op.kind and not any(word.startswith("kind::") for word in wanted):
        return True
    if any(word in op.mnemonic.split(".") and word not in wanted for word in _VARIANTS):
        return True
    optional = [op.values[n] for n, vs in op.row.allowed.items() if "" in vs]
    return any(value and value not in wanted for value in optional)
