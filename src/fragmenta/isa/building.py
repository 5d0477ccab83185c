"""Which instruction has these qualifiers?  Built by keyword, not from text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fragmenta.errors import UnknownInstruction, nearest, one_of
from fragmenta.isa.instruction import Instruction
from fragmenta.isa.reading import select
from fragmenta.isa.refusals import ambiguous, describe
from fragmenta.isa.table import Form
from fragmenta.isa.tables import mma as mma_table
from fragmenta.isa.tables import mma_sp
from fragmenta.isa.tables import wgmma as wgmma_table
from fragmenta.isa.tables import wmma as wmma_table


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


def wmma_mma(shape: str, a: str, **qualifiers: str) -> Instruction:
    """A ``wmma.mma`` by its qualifiers; public as ``fragmenta.wmma.mma``.

    A and B have one type; ``c`` defaults to ``d``; the layouts default to row
    and col.

    >>> from fragmenta import wmma
    >>> str(wmma.mma("m8n8k32", a="s4"))
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
    _check_names(forms, given)
    fitting = _fitting(forms, given)
    if not fitting:
        select(forms[-1], given, given)  # names what contradicts what
    plain = [op for op in fitting if not _unasked(op, given)] or fitting
    if len(plain) == 1:
        return plain[0]
    raise ambiguous(describe(forms[0].name, given), plain)


def _check_names(forms: tuple[Form, ...], given: Mapping[str, str]) -> None:
    """Refuse qualifiers that no row of these forms has."""
    known = {name for form in forms for row in form.rows for name in row.allowed}
    for name in given:
        if name not in known:
            raise UnknownInstruction(
                f"{forms[0].name} has no qualifier {name}{nearest(name, known)}; "
                f"it has {one_of(sorted(known), 'and')}"
            )


def _fitting(forms: tuple[Form, ...], given: Mapping[str, str]) -> list[Instruction]:
    """Every instruction that has all of the given qualifiers."""
    found: dict[str, Instruction] = {}
    for form in forms:
        for row in form.rows:
            if not all(row.takes(name, value) for name, value in given.items()):
                continue
            settled = {name: row.settle(name, value) for name, value in given.items()}
            for values in row.combinations():
                if settled.items() <= {**dict.fromkeys(settled, ""), **values}.items():
                    op = Instruction(form, row, values)
                    found.setdefault(op.mnemonic, op)
    return list(found.values())


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
