"""Finds the instructions that fit words as people say them.

Words of people and of PTX may be mixed, in any order.  Types keep theirs: D, A, B, C.
What a word means is in :mod:`fragmenta.reference.isa.synonyms`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product

from fragmenta.base.arrays.once import once_of
from fragmenta.errors import UnknownInstruction
from fragmenta.reference.isa.families import FORMS, of_row
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.synonyms import UNNAMED_F16, Meaning, meaning
from fragmenta.reference.isa.table import Form, Row
from fragmenta.reference.isa.target import expand
from fragmenta.reference.isa.tcgen05_shapes import OF_KIND
from fragmenta.reference.isa.tcgen05_words import TYPES, built
from fragmenta.reference.registers.dtype import DTYPES, dtype
from fragmenta.reference.registers.granularity import granularity

VARIANTS = ("red", "spcompress")
"""Qualifiers that select another instruction; they count only if they are given."""
RESULTS = ("f32", "s32")
"""The types that only D and C have."""
# Qualifiers that are absent unless they are named; every row has one value of some.
_ABSENT = ("lut", "ashift", "collector", "collector_b")


class Query:
    """Words, apart: what people's words mean, types of PTX, other words of PTX."""

    def __init__(self, words: Sequence[str]) -> None:
        pairs = [(word, meaning(word)) for word in words]
        self.plain = [word for word, found in pairs if found is None]
        self.types = [word for word in self.plain if word in DTYPES]
        self.others = [word for word in self.plain if word not in DTYPES]
        self.meanings = [_named(found, self.types) for _, found in pairs if found]
        self.spoken = [m for m in self.meanings if m.types and not m.families]
        self.machine = [m for m in self.meanings if m.types and m.families]

    @property
    def words(self) -> set[str]:
        """Every word of PTX that is given or implied."""
        meant = {word for m in self.meanings for each in m.has for word in each}
        return meant | set(self.plain)

    def says(self, beginning: str) -> bool:
        """Whether a word that is given or implied begins so."""
        return any(word.startswith(beginning) for word in self.words)


def _named(found: Meaning, types: Sequence[str]) -> Meaning:
    """A word that means several types, next to one of them, means that one.

    SASS does not say f16 of A: HMMA.16816.F32.
    """
    named = tuple(each for each in found.types if each in types)
    if found.word in UNNAMED_F16 and types:
        named = tuple(each for each in named if each != "f16") or ("f16",)
    return replace(found, types=named) if named else found


def fitting(words: Sequence[str], *, every: bool = False) -> list[Instruction]:
    """The instructions that all of the words fit, in the order of the tables.

    Sparse ones, and optional qualifiers, count only if they are given, or if nothing
    else fits; with ``every``, always.

    >>> [str(op) for op in fitting(["mma", "int8", "16x8x32"])]
    ['mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32']
    >>> [str(op) for op in fitting(["blackwell", "nvfp4", "tcgen05", "128x256x64"])]
    ['tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X 0x08400480']
    """
    query = Query(words)
    shapes = [shape for m in query.meanings for shape in m.shapes]
    shapes += [word for word in query.others if _is_shape(word)]
    if shapes and _of_tensor_memory(query):
        return _built(query, shapes)
    found: dict[str, Instruction] = {}
    for form in FORMS:
        if not all(form.name in m.families for m in query.meanings if m.families):
            continue
        for number, known in enumerate(row_words(form)):
            if _may_fit(form.rows[number], known, query):
                for op in of_row(form, number):
                    if op.mnemonic not in found and _fits(op, query):
                        found[op.mnemonic] = op
    begins = [m for m in found if m.split(".")[0] in query.others]
    meant = [found[name] for name in begins or found]
    return meant if every else _narrow(meant, query)


def narrowed(found: list[Instruction], words: Sequence[str]) -> list[Instruction]:
    """Those of several instructions that are meant, if the words leave a choice.

    >>> import fragmenta as fm
    >>> ops = fm.search("mma.m16n8k32.s8.s8", every=True)
    >>> [str(op) for op in narrowed(ops, ["mma", "m16n8k32", "s8", "s8"])]
    ['mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32']
    """
    return _narrow(found, _query(tuple(words)))


def fits(op: Instruction, words: Sequence[str]) -> bool:
    """Whether all of the words fit one instruction.

    >>> import fragmenta as fm
    >>> fits(fm.find("mma.m16n8k32.f32.e4m3.e4m3"), ["fp8", "ada"])
    True
    """
    return _fits(op, _query(tuple(words)))


@once_of(64)
def _query(words: tuple[str, ...]) -> Query:
    return Query(words)


def _is_shape(word: str) -> bool:
    return word[:1] == "m" and "n" in word and word[1:2].isdecimal()


@cache
def row_words(form: Form) -> tuple[frozenset[str], ...]:
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


def _may_fit(row: Row, words: frozenset[str], query: Query) -> bool:
    """Whether some instruction of a row may fit: cheap, before any is spelled."""
    if not words.issuperset(query.others):
        return False
    targets, types = expand(row.targets), _multiplied(row)
    for m in query.meanings:
        if m.shapes and words.isdisjoint(m.shapes):
            return False
        if m.targets and not any(each in targets for each in m.targets):
            return False
        if any(words.isdisjoint(each) for each in m.has):
            return False
    meant = {t for m in (*query.spoken, *query.machine) for t in m.types}
    return not types or meant <= {*RESULTS} or bool(meant & types)


def _multiplied(row: Row) -> set[str]:
    """The types that A may have in a row; none if it does not multiply."""
    kinds = [kind.removeprefix("kind::") for kind in row.allowed.get("kind", ())]
    types = {t for kind in kinds if kind in OF_KIND for t in OF_KIND[kind].operands}
    return {*row.allowed.get("a", types)}


def _fits(op: Instruction, query: Query) -> bool:
    words = op.mnemonic.lower().split(".")
    for m in query.meanings:
        if m.families and op.family not in m.families:
            return False
        if not all(any(word in words for word in each) for each in m.has):
            return False
        if any(word in words for word in m.lacks):
            return False
        if m.targets and not any(each in op.requires.targets for each in m.targets):
            return False
        if m.shapes and op.values.get("shape") not in m.shapes:
            return False
    if not all(word in words for word in query.others):
        return False
    return _types_fit(op, query, words) and _sparsity_fits(op, query)


def _types_fit(op: Instruction, query: Query, words: Sequence[str]) -> bool:
    a, b, d = _types(op)
    if query.types and not _in_order(op, query, words, a, d):
        return False
    if not all(a & {*m.types} and b & {*m.types} for m in query.machine):
        return False
    if not all((a | b | d) & {*m.types} for m in query.spoken):
        return False
    multiplied = {t for m in query.spoken for t in m.types} - {*RESULTS}
    allowed = multiplied | {*query.types}
    return not multiplied or bool(a & allowed and b & allowed)


def _in_order(
    op: Instruction, query: Query, words: Sequence[str], a: set[str], d: set[str]
) -> bool:
    """Whether it has the types of PTX that are given, in their order.

    ``a`` and ``d`` are the types that its A and its D may have.
    """
    if op.tensor_memory:  # the descriptor says them
        return {*query.types} <= a | d
    if any(m.word in UNNAMED_F16 for m in query.machine):
        return query.types[0] in d  # and then that of A
    spelled = iter(words)
    return all(word in spelled for word in query.types)


def _types(op: Instruction) -> tuple[set[str], set[str], set[str]]:
    """The types of A, of B, and of D and C: those that a descriptor may say, too."""
    if op.tensor_memory and op.idesc is None:
        if op.kind not in OF_KIND:
            return set(), set(), set()
        row = OF_KIND[op.kind]
        return {*row.operands}, {*row.operands}, {*row.results}
    moved = op.values.get("type", "")
    a, b = ({op.values.get(name) or moved} for name in "ab")
    return a, b, {op.values.get(name, "") for name in "dc"}


def _sparsity_fits(op: Instruction, query: Query) -> bool:
    patterns = [m.sparsity for m in query.meanings if m.sparsity]
    if not patterns:
        return True
    wanted = {t for m in (*query.spoken, *query.machine) for t in m.types}
    types = [t for t in _types(op)[0] if not wanted or t in wanted]
    sparsities = [str(granularity(dtype(each), op.kind)) for each in types]
    return all(any(text.startswith(p) for text in sparsities) for p in patterns)


def _narrow(found: list[Instruction], query: Query) -> list[Instruction]:
    """What is meant where the words leave a choice."""
    found = [op for op in found if op.multiplies] or found
    if "ws" not in query.words:
        found = [op for op in found if not op.ws] or found
    if not query.says("sp"):
        found = [op for op in found if not op.sparse] or found
    elif "sp::ordered_metadata" not in query.plain:  # as mma.sp in short does not
        found = [op for op in found if not _ordered(op)] or found
    plain = {op for op in found if not _extra(op, query)}
    families = {op.family for op in plain}
    return [op for op in found if op in plain or op.family not in families]


def _ordered(op: Instruction) -> bool:
    return op.values.get("sp") == "sp::ordered_metadata"


def _extra(op: Instruction, query: Query) -> bool:
    """Whether it has an optional qualifier that was not given."""
    given, tokens = query.words, op.mnemonic.lower().split(".")
    if op.unit == "mma" and op.kind and not query.says("kind::"):
        return True
    if any(word in tokens and word not in given for word in VARIANTS):
        return True
    optional = [op.values[n] for n, values in op.row.allowed.items() if "" in values]
    optional += [op.values.get(name, "") for name in _ABSENT]
    return any(value and value.lower() not in given for value in optional)


def _of_tensor_memory(query: Query) -> bool:
    return "tcgen05" in query.others or any(
        m.families and all(name.startswith("tcgen05") for name in m.families)
        for m in query.meanings
    )


def _built(query: Query, shapes: Sequence[str]) -> list[Instruction]:
    """The ``tcgen05.mma`` with a descriptor that says this shape and these types."""
    rest = [w for w in query.others if w != "tcgen05" and not _is_shape(w)]
    choices = [each for m in query.meanings for each in m.has]
    results = sorted(query.spoken, key=lambda m: m.types[0] not in RESULTS)
    types = [m.types for m in results if not {*m.types} & {*query.types}]
    if not (types or any(word in TYPES for word in query.types)):
        types = [m.types for m in query.machine]
    found: dict[Instruction, None] = {}
    why: list[UnknownInstruction] = []
    for of in product(*types):
        for has in product(*choices):  # where several words say the same, the first
            words = ["tcgen05", *rest, *has, *shapes, *query.types, *of]
            try:
                found.update(dict.fromkeys(built(words)))
                break
            except UnknownInstruction as error:
                why.append(error)
    if not found and why:
        raise why[0]
    return [op for op in found if _as_meant(op, query)]


def _as_meant(op: Instruction, query: Query) -> bool:
    for m in query.meanings:
        if m.families and op.family not in m.families:
            return False
        if m.targets and not any(each in op.requires.targets for each in m.targets):
            return False
    machine = all(op.values["a"] in m.types for m in query.machine)
    return machine and _sparsity_fits(op, query)
