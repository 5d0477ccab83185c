"""Instructions built by keyword instead of read from text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from fragmenta.base.arrays.checks import check_flags, is_among, is_whole
from fragmenta.errors import UnknownInstruction, nearest, one_of
from fragmenta.reference.isa.instruction import Instruction, Shape
from fragmenta.reference.isa.instruction_descriptor import (
    InstructionDescriptor,
    check_kind,
)
from fragmenta.reference.isa.mnemonic_errors import ambiguous, describe
from fragmenta.reference.isa.reading import instruction, select
from fragmenta.reference.isa.synonyms import meaning
from fragmenta.reference.isa.table import Form
from fragmenta.reference.isa.tables import mma as mma_table
from fragmenta.reference.isa.tables import mma_sp
from fragmenta.reference.isa.tables import wgmma as wgmma_table
from fragmenta.reference.isa.tables import wmma as wmma_table
from fragmenta.reference.isa.tcgen05_shapes import OF_KIND, WIDE_K


def mma(
    shape: str,
    a: str,
    b: str | None = None,
    *,
    sp: bool | str = False,
    **qualifiers: str,
) -> Instruction:
    """An ``mma`` or, with ``sp=``, an ``mma.sp`` by its qualifiers.

    ``sp`` is True, ``"sp"`` or ``"sp::ordered_metadata"``.  Types and shapes may be
    words as people say them, such as int4 and 16x8x64.  ``b`` defaults to ``a``; ``c`` to ``d``; what is not given must be the
    only choice, or have a default in the mnemonic.

    >>> str(mma("m16n8k64", a="s4", b="u4"))
    'mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32'
    >>> str(mma("16x8x64", a="int4"))
    'mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32'
    >>> str(mma("m16n8k32", a="f16", d="f32", sp="sp::ordered_metadata"))
    'mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32'
    """
    word = _sparse(sp, mma_sp.FORM.vocabulary("sp"))
    form = mma_sp.FORM if word else mma_table.FORM
    check_words(b=b)
    return build((form,), shape=shape, a=a, b=b or a, sp=word, **qualifiers)


def check_words(**given: object) -> None:
    """Refuse qualifiers that are no text; None stands for one that is not given.

    >>> check_words(a=32)
    Traceback (most recent call last):
    fragmenta.errors.UnknownInstruction: a is a text, such as 'f16'; given int
    """
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            such = _SUCH.get(name, "f16")
            kind = type(value).__name__
            raise UnknownInstruction(
                f"{name} is a text, such as {such!r}; given {kind}"
            )


_SUCH = {
    "shape": "m16n8k16",
    "kind": "mxf4",
    "scale": "ue8m0",
    "collector": "collector::a::fill",
    "sp": "sp",
}


def _sparse(given: object, words: Iterable[str]) -> str:
    """The word of a sparse form, True for the first; empty for a dense one."""
    have = list(words)
    if given is None or given is False or (isinstance(given, str) and not given):
        return ""
    word = have[0] if given is True else given
    if not isinstance(word, str) or word.removeprefix(".") not in have:
        every = one_of(["True", *map(repr, have)])
        raise UnknownInstruction(f"sp is {every}; given {given!r}")
    return word


def in_ptx(name: str, word: str) -> str:
    """A type or a shape as people say it, in the words of PTX.

    >>> in_ptx("a", "int4"), in_ptx("shape", "16x8x16"), in_ptx("d", "f32")
    ('s4', 'm16n8k16', 'f32')
    >>> in_ptx("a", "fp8")
    Traceback (most recent call last):
    fragmenta.errors.UnknownInstruction: a may be e4m3 or e5m2; given 'fp8'
    """
    found = meaning(word)
    if found is None or found.has or found.lacks:
        return word
    meant = found.shapes if name == "shape" else found.types if name in "abcd" else ()
    if len(meant) > 1:
        raise UnknownInstruction(f"{name} may be {one_of(meant)}; given {word!r}")
    return meant[0] if meant else word


def wgmma(
    shape: str,
    a: str,
    b: str | None = None,
    *,
    sp: bool | str = False,
    **qualifiers: str,
) -> Instruction:
    """A ``wgmma.mma_async``, or ``.sp`` with ``sp=True``, by its qualifiers.

    >>> str(wgmma("m64n256k64", a="e4m3", d="f32", sp=True))
    'wgmma.mma_async.sp.sync.aligned.m64n256k64.f32.e4m3.e4m3'
    """
    form = wgmma_table.SPARSE if _sparse(sp, ("sp",)) else wgmma_table.DENSE
    check_words(b=b)
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


def tcgen05(
    shape: str,
    a: str,
    b: str | None = None,
    d: str | None = None,
    *,
    kind: str | None = None,
    cta_group: int = 1,
    sp: bool | str = False,
    ws: bool = False,
    scale: str | None = None,
    scale_vec: int | str | None = None,
    collector: str = "",
    ashift: bool = False,
    **options: Any,
) -> Instruction:
    """A ``tcgen05.mma`` by its shape and types, with its instruction descriptor.

    M of ``shape`` is that of the pair with ``cta_group=2``.  ``kind`` follows from the
    type of A, unless the instruction has block scales: then it is ``mxf8f6f4``,
    ``mxf4`` or ``mxf4nvf4``.  ``scale`` is the type of the scales, ``scale_vec`` is 1,
    2, 4, ``"block16"`` or ``"block32"``.  ``options`` are the other fields of
    :class:`~fragmenta.reference.isa.instruction_descriptor.InstructionDescriptor`, such as
    ``transpose_b=True``.

    >>> op = tcgen05("m128n256k16", kind="f16", a="f16", d="f32", cta_group=1)
    >>> print(op, op.layout_letter)
    tcgen05.mma.cta_group::1.kind::f16 0x08400010 D
    >>> print(tcgen05("m256n64k64", a="e2m1", kind="mxf4nvf4", cta_group=2))
    tcgen05.mma.cta_group::2.kind::mxf4nvf4.block_scale.scale_vec::4X 0x10100480
    """
    check_words(shape=shape, a=a, b=b, d=d, kind=kind, scale=scale, collector=collector)
    check_flags(ws=ws, ashift=ashift)
    if scale_vec is not None and not (
        isinstance(scale_vec, str) or is_whole(scale_vec)
    ):
        raise UnknownInstruction(
            f"scale_vec is 1, 2, 4, 'block16' or 'block32'; given {scale_vec!r}"
        )
    shape, a = shape and in_ptx("shape", shape), a and in_ptx("a", a)
    b, d = b and in_ptx("b", b), d and in_ptx("d", d)
    name = check_kind(kind or _kind_of(a, scale, scale_vec))
    size = Shape.parse(shape)
    sparse = bool(_sparse(sp, ("sp",)))
    if not is_among(cta_group, (1, 2)):
        raise UnknownInstruction(f"cta_group is 1 or 2; given {cta_group!r}")
    scaled = name.startswith("mx")
    size_word = _scale_size(name, scale, scale_vec)
    if scaled:
        options["scale"] = scale or _scale_type(name, size_word)
    elif scale or scale_vec:
        raise UnknownInstruction(
            f"kind {name} has no block scales; mxf8f6f4, mxf4 and mxf4nvf4 have them"
        )
    found = _descriptor(name, size, a, b or a, d, sparse, options)
    words = ["tcgen05.mma" + ".ws" * bool(ws) + ".sp" * sparse]
    words += [f"cta_group::{cta_group}", f"kind::{name}"]
    words += ["block_scale", size_word] if scaled else []
    words += ["ashift" * bool(ashift), collector]
    op = instruction(".".join(word for word in words if word))
    return op.with_descriptor(found.encode())


def _kind_of(a: str, scale: object, scale_vec: object) -> str:
    """The kind without block scales that has this type."""
    if scale or scale_vec:
        kinds = [kind for kind in OF_KIND if kind.startswith("mx")]
        raise UnknownInstruction(f"with scales, kind is {one_of(kinds)}; none is given")
    for kind, row in OF_KIND.items():
        if str(a).removeprefix(".") in row.operands:
            return kind
    every = dict.fromkeys(of for row in OF_KIND.values() for of in row.operands)
    raise UnknownInstruction(
        f"no tcgen05.mma has A of {a}{nearest(str(a), every)}; there are "
        f"{one_of(every, 'and')}"
    )


def _scale_size(kind: str, scale: object, given: int | str | None) -> str:
    """The word for the size of blocks: the shortest one that says it."""
    if not kind.startswith("mx"):
        return ""
    if given is None:
        two = scale == "ue8m0"
        return f"scale_vec::{2 if two else 4}X" if kind == "mxf4nvf4" else ""
    text = str(given).removeprefix(".").removeprefix("scale_vec::")
    if text in ("block16", "block32"):
        return text
    return f"scale_vec::{text.rstrip('X')}X"


def _scale_type(kind: str, size: str) -> str:
    four = kind == "mxf4nvf4" and size in ("scale_vec::4X", "block16")
    return "ue4m3" if four else "ue8m0"


def _descriptor(
    kind: str,
    size: Shape,
    a: str,
    b: str,
    d: str | None,
    sparse: bool,
    options: dict[str, Any],
) -> InstructionDescriptor:
    """The instruction descriptor of these words; k has to be the one of the kind."""
    dense = OF_KIND[kind].k[sparse]
    wide = size.k == WIDE_K and kind in ("mxf4", "mxf4nvf4")
    if size.k not in (0, dense) and not wide:
        raise UnknownInstruction(
            f"kind {kind} has k {dense}{' with a sparse A' * sparse}; given {size}"
        )
    result = d or ("s32" if kind == "i8" else "f32")
    words = {"a": a, "b": b, "d": result, **options}
    for name, word in words.items():
        if isinstance(word, str):
            words[name] = word.strip().lstrip(".")
    known = {each.name for each in fields(InstructionDescriptor)}
    for name in words:
        if name not in known:
            raise UnknownInstruction(
                f"tcgen05.mma has no {name}{nearest(name, known)}; it has "
                f"{one_of(sorted(known), 'and')}"
            )
    return InstructionDescriptor(
        kind, size.m, size.n, **words, sparse=sparse, wide=wide
    )


def build(forms: Iterable[Form], **given: str) -> Instruction:
    """The one instruction with these qualifiers.

    Optional qualifiers that are not given are absent; layouts default to
    row and col; otherwise several choices are an error that lists them.
    """
    forms = tuple(forms)
    check_words(**given)
    given = {
        name: _qualifier(name, in_ptx(name, value))
        for name, value in given.items()
        if value
    }
    _check_names(forms, given)
    fitting = _fitting(forms, given)
    if not fitting:
        select(forms[-1], given, given)  # names what contradicts what
    plain = [op for op in fitting if not _not_given(op, given)] or fitting
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


def _not_given(op: Instruction, given: Mapping[str, str]) -> bool:
    """Whether it chose a non-default where nothing was given."""
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
