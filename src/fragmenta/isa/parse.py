"""Which instruction does this text mean?

Full mnemonics are read qualifier by qualifier against the family's spelling,
then against its rows, so that the first thing wrong can be named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache

from fragmenta.errors import (
    AmbiguousInstruction,
    BadOperands,
    Error,
    UnknownInstruction,
    nearest,
    one_of,
    shortened,
)
from fragmenta.isa import families
from fragmenta.isa.families import uncovered
from fragmenta.isa.instruction import Instruction
from fragmenta.isa.operands import check
from fragmenta.isa.reading import Reading, readings
from fragmenta.isa.refusals import (
    contradiction,
    describe,
    misspelled,
    nearest_shape,
    told,
)
from fragmenta.isa.statement import MOST, split
from fragmenta.isa.table import Form, Row
from fragmenta.isa.tables import mma as mma_table
from fragmenta.isa.tables import mma_sp
from fragmenta.isa.tables import wgmma as wgmma_table
from fragmenta.isa.tables import wmma as wmma_table

FORMS, FAMILIES = families.FORMS, families.FAMILIES


def instruction(text: str | Instruction) -> Instruction:
    """The instruction that a PTX mnemonic names; an instruction is its own name.

    A whole statement may be given: a label, a guard, operands, comments and the
    semicolon.  Operands have to fit the instruction, as :mod:`fragmenta.isa.operands`
    says; with the mnemonic alone, nothing is said about them.

    >>> op = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> op.shape
    Shape(m=16, n=8, k=16)
    >>> instruction("mma.sync.aligned.m16n8k64.row.col.f32.tf32.tf32.f32")
    Traceback (most recent call last):
    ...
    fragmenta.errors.UnknownInstruction: mma m16n8k64 with .tf32 as the type of A does \
not exist; .tf32 has m16n8k4 and m16n8k8, and in mma.sp m16n8k8 and m16n8k16; \
nearest: mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32
    """
    if isinstance(text, Instruction):
        return text
    _check_text(text)
    guard, mnemonic, operands = split(text)
    op = _named(mnemonic)
    if operands:
        check(op, operands, guard=guard)
    return op


@lru_cache(maxsize=4096)
def _named(mnemonic: str) -> Instruction:
    found = readings(mnemonic)
    if not found[0].complete:
        whole = "sync" in mnemonic or uncovered(mnemonic.split("."))
        hint = "" if whole else "; find() takes names in short"
        raise UnknownInstruction(misspelled(mnemonic, found) + hint)
    return _choose(found[0])


def catalogue(
    family: str | None = None, *, form: Form | None = None
) -> Iterator[Instruction]:
    """Every instruction, in table order; optionally of one family.

    >>> sum(1 for op in catalogue("movmatrix"))
    1
    """
    if family is not None and family not in FAMILIES:
        raise UnknownInstruction(
            f"no family {family}{nearest(str(family), FAMILIES)}; there are "
            f"{one_of(FAMILIES, 'and')}"
        )
    return _combinations(family, FORMS if form is None else (form,))


def _combinations(family: str | None, forms: Iterable[Form]) -> Iterator[Instruction]:
    seen: set[str] = set()
    for each in forms:
        if family is not None and each.name != family:
            continue
        for row in each.rows:
            for values in row.combinations():
                op = Instruction(each, row, values)
                if op.mnemonic not in seen:  # rows may overlap; the first rules
                    seen.add(op.mnemonic)
                    yield op


def find(text: str) -> Instruction:
    """The one instruction that a mnemonic or an abbreviation of it means.

    An abbreviation is some of the qualifiers, in their order.  A qualifier
    that may be left out is taken to be absent unless it is named.

    >>> str(find("mma.m16n8k64.s4.s4"))
    'mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32'
    """
    try:
        return instruction(text)
    except BadOperands:
        raise
    except UnknownInstruction as unknown:
        candidates = search(text)
        if len(candidates) == 1:
            return candidates[0]
        if not candidates:
            raise _no_such_abbreviation(text, unknown) from None
        shown = [f"  {op}" for op in candidates[:12]]
        more = len(candidates) - len(shown)
        tail = f"\n  … and {more} more" if more else ""
        raise AmbiguousInstruction(
            f"{text!r} fits {len(candidates)} instructions:\n" + "\n".join(shown) + tail
        ) from None


def _no_such_abbreviation(text: str, unknown: UnknownInstruction) -> Error:
    """What is wrong with words that are not a mnemonic and fit none."""
    words = _words(text)
    if "sync" in words or not words or uncovered(words):
        return unknown  # a full mnemonic: its own error is the better one
    if len(words) > _most_words():
        return UnknownInstruction(
            f"no instruction has more than {_most_words()} qualifiers; given "
            f"{len(words):,}: {shortened(text)}"
        )
    known = [word for word in words if any(_has(form, word) for form in FORMS)]
    strange = [word for word in words if word not in known]
    if strange:
        everything = {value for form in FORMS for value in _vocabulary(form)}
        hint = nearest_shape(strange[0], everything) or nearest(strange[0], everything)
        return UnknownInstruction(f"no instruction has {told(strange[0])}{hint}")
    longest = max(
        (words[:i] + words[i + 1 :] for i in range(len(words))),
        key=lambda fewer: bool(search(".".join(fewer))),
    )
    near = [str(op) for op in search(".".join(longest))[:3]]
    hint = f"; without one of them there are {one_of(near, 'and')}" if near else ""
    return UnknownInstruction(
        f"no instruction has {one_of(words, 'and')} in this order{hint}"
    )


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


@cache
def _most_words() -> int:
    """How many words the longest mnemonic has."""
    return max(str(op).count(".") for op in catalogue()) + 1


def _words(text: str) -> list[str]:
    _check_text(text)
    return [word for word in re.split(r"[.;\s]+", text.strip().lower()) if word]


@cache
def _row_words(form: Form) -> tuple[frozenset[str], ...]:
    """Of each row, every word that can stand in one of its mnemonics."""
    fixed = re.findall(r"[\w:]+", re.sub(r"\{\w+\}", "", form.spellings[0]))
    values = ([v for each in row.allowed.values() for v in each] for row in form.rows)
    return tuple(
        frozenset(fixed).union(*(value.lower().split(".") for value in listed))
        for listed in values
    )


@cache
def _vocabulary(form: Form) -> frozenset[str]:
    """Every word that can stand in a mnemonic of a form."""
    return frozenset().union(*_row_words(form))


def _has(form: Form, word: str) -> bool:
    return word in _vocabulary(form)


def _is_abbreviation(wanted: list[str], mnemonic: str) -> bool:
    tokens = iter(mnemonic.lower().split("."))
    return all(word in tokens for word in wanted)


def _extra_options(op: Instruction, wanted: list[str]) -> bool:
    """Whether it carries a qualifier that could be left out and was not named."""
    if op.sparse and not any(word.startswith("sp") for word in wanted):
        return True
    if op.kind and not any(word.startswith("kind::") for word in wanted):
        return True
    optional = [op.values[n] for n, vs in op.row.allowed.items() if "" in vs]
    return any(value and value not in wanted for value in optional)


# ── construction by keyword ─────────────────────────────────────────────────


def mma(shape: str, a: str, b: str | None = None, **qualifiers: str) -> Instruction:
    """An ``mma`` or, with ``sp=``, an ``mma.sp`` by its qualifiers.

    ``b`` defaults to ``a``; ``c`` to ``d``; what is not given must be the
    only choice, or have a default in the mnemonic.

    >>> str(mma("m16n8k64", a="s4", b="u4"))
    'mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32'
    >>> str(mma("m16n8k32", a="f16", d="f32", sp="sp::ordered_metadata"))
    'mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32'
    """
    sparse = _sparse(qualifiers.get("sp"), mma_sp.FORM.vocabulary("sp"))
    form = mma_sp.FORM if sparse else mma_table.FORM
    return build((form,), shape=shape, a=a, b=b or a, **qualifiers)


def _sparse(given: object, words: Iterable[str]) -> bool:
    """Whether a sparse form is wanted: by one of these words, or not at all."""
    if not given:
        return False
    if not isinstance(given, str) or given.removeprefix(".") not in words:
        raise UnknownInstruction(f"sp is {one_of(map(repr, words))}; given {given!r}")
    return True


def wgmma(shape: str, a: str, b: str | None = None, **qualifiers: str) -> Instruction:
    """A ``wgmma.mma_async``, or ``.sp`` with ``sp="sp"``, by its qualifiers.

    >>> str(wgmma("m64n256k64", a="e4m3", d="f32", sp="sp"))
    'wgmma.mma_async.sp.sync.aligned.m64n256k64.f32.e4m3.e4m3'
    """
    sparse = _sparse(qualifiers.pop("sp", ""), ("sp",))
    form = wgmma_table.SPARSE if sparse else wgmma_table.DENSE
    return build((form,), shape=shape, a=a, b=b or a, **qualifiers)


def wmma(shape: str, a: str, **qualifiers: str) -> Instruction:
    """A ``wmma.mma`` by its qualifiers.

    >>> str(wmma("m8n8k32", a="s4"))
    'wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32'
    """
    forms = (wmma_table.MMA_F16, wmma_table.MMA)
    return build(forms, shape=shape, a=a, **qualifiers)


def build(forms: Iterable[Form], **given: str) -> Instruction:
    """The one instruction with these qualifiers.

    Optional qualifiers that are not given are absent; layouts default to
    row and col; otherwise several choices are an error that lists them.
    """
    forms = tuple(forms)
    given = {name: _qualifier(name, value) for name, value in given.items() if value}
    known = {name for form in forms for row in form.rows for name in row.allowed}
    for name in given:
        if name not in known:
            raise UnknownInstruction(
                f"{forms[0].name} has no qualifier {name}{nearest(name, known)}; "
                f"it has {one_of(sorted(known), 'and')}"
            )
    for form in forms:
        order = sorted(given, key=_importance)
        if _select(form, given, order, strict=form is forms[-1]):
            break
    found: dict[str, Instruction] = {}
    for form in forms:
        for row in form.rows:
            if all(row.takes(n, v) for n, v in given.items()):
                for values in row.combinations():
                    op = Instruction(form, row, values)
                    if all(
                        values.get(n, "") == row.settle(n, v) for n, v in given.items()
                    ):
                        found.setdefault(op.mnemonic, op)
    candidates = list(found.values())
    plain = [op for op in candidates if not _unasked(op, given)]
    candidates = plain or candidates
    if len(candidates) == 1:
        return candidates[0]
    shown = "\n".join(f"  {op}" for op in candidates[:12])
    raise AmbiguousInstruction(
        f"{describe(forms[0].name, given)} fits {len(candidates)} instructions; "
        f"say more:\n{shown}"
    )


def _unasked(op: Instruction, given: Mapping[str, str]) -> bool:
    """Whether it chose a non-default where nothing was asked for."""
    if op.kind and "kind" not in given:
        return True
    defaults = {"alayout": "row", "blayout": "col", "c": op.values.get("d", "")}
    for name, allowed in op.row.allowed.items():
        value = op.values[name]
        if name in given or (len(allowed) == 1 and name != "c"):
            continue
        if "" in allowed and value:
            return True
        if name in defaults and value != defaults[name]:
            return True
    return False


def _qualifier(name: str, value: str) -> str:
    """Tolerate dots, bare kinds, counts and bit operations."""
    if isinstance(value, type):
        raise UnknownInstruction(
            f"{name} is a word of PTX, such as s8 or f16; given {value!r}"
        )
    text = str(value).strip().lstrip(".")
    prefix = {"kind": "kind::", "scale_vec": "scale_vec::"}.get(name, "")
    if prefix and not text.startswith(prefix):
        text = prefix + text
    if name == "bitop" and not text.endswith(".popc"):
        text += ".popc"
    return text


# ── reading a mnemonic ──────────────────────────────────────────────────────


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise UnknownInstruction(f"an instruction is named by text; given {text!r}")
    if len(text) > MOST:
        raise UnknownInstruction(
            f"an instruction has at most {MOST:,} characters; given {shortened(text)}"
        )


def _choose(reading: Reading) -> Instruction:
    """The row that a well-spelled mnemonic names, or the first contradiction."""
    order = sorted(reading.form.fields(reading.spelling), key=_importance)
    row = _select(reading.form, reading.values, order, strict=True)
    assert row is not None
    values = {
        name: row.settle(name, reading.values.get(name, allowed[0]))
        for name, allowed in row.allowed.items()
    }
    return Instruction(reading.form, row, values)


def _importance(name: str) -> int:
    """Shape and multiplicands first: they are what one is looking for."""
    first = ("sp", "shape", "kind", "a", "b", "type", "operand", "num")
    return first.index(name) if name in first else len(first)


def _select(
    form: Form, values: Mapping[str, str], order: list[str], *, strict: bool
) -> Row | None:
    rows = list(form.rows)
    for position, name in enumerate(order):
        value = values.get(name, "")
        left = [row for row in rows if row.takes(name, value)]
        if not left:
            if not strict:
                return None
            before = {n: values.get(n, "") for n in order[:position]}
            raise UnknownInstruction(
                contradiction(form, rows, before, name, value, values)
            )
        rows = left
    return rows[0]
