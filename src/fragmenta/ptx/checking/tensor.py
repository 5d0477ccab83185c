"""Checks Tensor Core instructions against the catalogue.

The catalogue of :mod:`fragmenta.reference.isa` decides.  The messages are those of
:func:`fragmenta.instruction` for the same mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from fragmenta.errors import BadOperands, UnknownInstruction, one_of
from fragmenta.ptx import rules
from fragmenta.ptx.checking.registers import kind
from fragmenta.ptx.module import (
    Address,
    Immediate,
    Instruction,
    Not,
    Operand,
    Pair,
    Register,
    RegisterPart,
    Sink,
    Symbol,
    Vector,
)
from fragmenta.ptx.rules import WARNING, Rule
from fragmenta.reference.isa import operand_checks, operand_lists
from fragmenta.reference.isa.families import catalogue
from fragmenta.reference.isa.instruction import Instruction as Tensor
from fragmenta.reference.isa.instruction import Operand as Taken
from fragmenta.reference.isa.reading import instruction
from fragmenta.reference.isa.target import TARGETS, expand
from fragmenta.reference.isa.unsupported import why_not
from fragmenta.reference.registers.dtype import DTYPES

_TYPES = frozenset(DTYPES) | frozenset(("b8", "b16", "b8x16"))


_ADDRESS = "[%address]"
_FLOAT = re.compile(r"\b0[fd][0-9A-F]{8,16}\b")


class Remark(NamedTuple):
    """What the catalogue says about an instruction."""

    rule: Rule
    message: str
    hint: str = ""
    operand: int | None = None
    """The number of the operand that is wrong."""
    severity: str = ""
    """If not as the rule says."""


@cache
def named(mnemonic: str) -> Tensor | Remark:
    """The instruction of a mnemonic, or why there is none.

    As for other instructions, ptxas takes most modifiers in any order.

    >>> named("movmatrix.sync.aligned.m8n8.b16.trans")
    <movmatrix.sync.aligned.m8n8.trans.b16>
    """
    try:
        return instruction(mnemonic)
    except UnknownInstruction as why:
        whole = f"{mnemonic}.aligned" if _may_lack_aligned(mnemonic) else mnemonic
        found = _in_any_order().get(_unordered(whole))
        if found is not None:
            return found
        message, _, hint = str(why).partition("; ")
        return Remark(rules.TENSOR, message, hint)


def _may_lack_aligned(mnemonic: str) -> bool:
    """Whether ptxas lets an instruction pass without ``.aligned``."""
    names = ("wgmma.fence", "wgmma.commit_group", "wgmma.wait_group")
    return mnemonic.startswith(names) and "aligned" not in mnemonic


@cache
def _in_any_order() -> Mapping[Hashable, Tensor]:
    """All but those that are read in any order in the first place."""
    return {_unordered(str(op)): op for op in catalogue() if not op.form.any_order}


def _unordered(mnemonic: str) -> tuple[object, ...]:
    """A mnemonic without the order of its modifiers.

    Types keep their order, and so do layouts; ``.rn`` is the same as nothing.
    """
    words = mnemonic.split(".")
    name = 2 if words[0] in ("wgmma", "wmma") else 1
    rest = [word for word in words[name:] if word != "rn"]
    layouts = tuple(word for word in rest if word in ("row", "col"))
    types = tuple(word for word in rest if word in _TYPES)
    others = sorted(word for word in rest if word not in (*layouts, *types))
    return (*words[:name], layouts, types, *others)


def fit(
    op: Tensor, of: Instruction, text: str, declared: bool
) -> tuple[Taken, ...] | Remark:
    """Which operands these are, which were written as ``text``; or what is wrong."""
    if not text and not op.operands:
        return ()
    guard = of.guard.of if isinstance(of.guard, Not) else of.guard
    name = guard.name if guard else ""
    names = {each.name: _declared(each) for each in _registers(of)}
    names[_ADDRESS.strip("[]")] = ".b64"
    types = names if declared else None
    # What is not plain in the text, such as 4*16, is plain in what was read of it; the
    # message quotes the text, if that can be read as it is.
    why: BadOperands | None = None
    any_address = all(each.ptx != "tensor" for each in op.operands)
    simple = [
        _plain(
            _as_bits(each, number > 0 or not operand_lists.destination(op)), any_address
        )
        for number, each in enumerate(of.operands)
    ]
    lax = [_FLOAT.sub("0f00000000", each) for each in simple]
    for given in (", ".join(simple), ", ".join(lax), text):
        try:
            return operand_checks.fitting(op, given, guard=name, declared=types)
        except BadOperands as refusal:
            if why is None or "is not a list of operands" not in str(refusal):
                why = refusal
    message, _, hint = str(why).partition("; its operands")
    hint = f"its operands{hint}" if hint else ""
    return Remark(rules.TENSOR, message, hint, _wrong_one(op, message))


def described(op: Tensor, of: Instruction) -> Tensor | Remark:
    """The instruction with its instruction descriptor, if that is a constant.

    ptxas takes every descriptor; hardware does not.
    """
    if not op.tensor_memory or not of.operands:
        return op
    number = [each.name for each in op.operands].index("idesc")
    given = of.operands[number]
    if not isinstance(given, Immediate):
        return op
    try:
        return op.with_descriptor(int(given.value) & 0xFFFF_FFFF)
    except UnknownInstruction as why:
        message, _, hint = str(why).partition("; ")
        return Remark(rules.TENSOR, f"idesc: {message}", hint, number, severity=WARNING)


def unsupported(
    op: Tensor, given: Iterable[Taken], targets: Iterable[str]
) -> Remark | None:
    """An operand that a target does not take, though it has the instruction."""
    for number, each in enumerate(given):
        lacks = [t for t in targets if each.targets and t not in expand(each.targets)]
        if lacks:
            name = operand_lists.word(op, each)
            have = one_of(expand(each.targets), "and")
            message = f"{lacks[0]} does not have {name} of {op}"
            return Remark(rules.TARGET, message, f"{have} have it", number)
    return None


def spelled(of: Instruction) -> str:
    """The operands of an instruction in words of PTX, without the text of its file."""
    return ", ".join(_plain(each, any_address=False) for each in of.operands)


def _wrong_one(op: Tensor, message: str) -> int | None:
    """The number of the operand that a message is about."""
    for each in operand_lists.lists(op):
        number = -1
        for operand in each:
            number += not operand.name.startswith("thread_")  # in the braces before
            if message.startswith(f"{op}: {operand_lists.word(op, operand)} is "):
                return number
    return None


def _as_bits(each: Operand, read: bool) -> Operand:
    """Registers in braces, as ptxas takes them: beside a ``.b`` one, all are ``.b``.

    Constants are so too, where the operand is read.
    """
    if not isinstance(each, Vector):
        return each
    bits = [
        item
        for item in each.items
        if isinstance(item, Register) and item.type in ("b32", "b64")
    ]
    if not bits or len({item.type for item in bits}) > 1:
        return each
    same = [
        (read and isinstance(item, Immediate))
        or (
            isinstance(item, Register)
            and item.type[-2:] in ("ed", "x2", bits[0].type[-2:])
        )
        for item in each.items
    ]
    return Vector((bits[0],) * len(each.items)) if all(same) else each


def predicate(of: Instruction) -> Register | None:
    """A predicate that stands in braces among other registers."""
    for each in of.operands:
        if isinstance(each, Vector):
            for item in each.items:
                if isinstance(item, Register) and item.type == "pred":
                    return item
    return None


def _plain(each: Operand, any_address: bool = True) -> str:
    """An operand as it is written most simply; an address may be of any size."""
    if isinstance(each, Immediate):
        if each.form == "int":
            return str(each.value)
        return f"0f{each.bits:08X}" if each.form == "f32" else f"0d{each.bits:016X}"
    if isinstance(each, Not):
        return f"!{each.of.name}"
    if isinstance(each, Vector):
        return "{" + ", ".join(map(_plain, each.items)) + "}"
    if isinstance(each, Address):
        base = each.base
        whole = isinstance(base, Register) and kind(base.type or "b64") in ("b", "i")
        if whole and any_address:
            return _ADDRESS  # of any size, as ptxas takes it
        name = base if isinstance(base, int) else base.name
        return f"[{name}+{each.offset}]" if each.offset else f"[{name}]"
    if isinstance(each, RegisterPart):
        return f"{each.of.name}.{each.which}"
    return "_" if isinstance(each, Sink) else getattr(each, "name", "?")


def _declared(of: Register | Symbol) -> str:
    if isinstance(of, Symbol):  # its address
        return ".b64"
    return f".{of.type}"


def _registers(of: Instruction) -> Iterator[Register | Symbol]:
    """All registers of an instruction, and the variables whose address it takes."""
    stack: list[Operand] = list(of.operands)
    if of.guard is not None:
        stack.append(of.guard)
    while stack:
        each = stack.pop()
        if isinstance(each, Register | Symbol):
            if not isinstance(each, Register) or each.type:
                yield each
        elif isinstance(each, Not | RegisterPart):
            stack.append(each.of)
        elif isinstance(each, Vector):
            stack += each.items
        elif isinstance(each, Pair):
            stack += (each.first, each.second)
        elif isinstance(each, Address) and not isinstance(each.base, int):
            stack.append(each.base)


def signature(of: Instruction) -> tuple[object, ...]:
    """What decides whether the operands fit: types and constants, but no names.

    Many instructions of a kernel differ in the names of their registers only.
    """
    guard = None if of.guard is None else _shape(of.guard)
    return (of.mnemonic, guard, *map(_shape, of.operands))


def _shape(each: Operand) -> object:
    if isinstance(each, Register):
        return each.type, bool(each.vector)
    if isinstance(each, Vector):
        return bool(each.name), *map(_shape, each.items)
    if isinstance(each, Immediate):
        return "=", each.form, each.value
    if isinstance(each, Not):
        return "!", each.of.type
    if isinstance(each, Address):
        base = each.base
        return (
            "[]",
            base.type if isinstance(base, Register) else type(base),
            *map(_shape, each.items),
        )
    return type(each) if isinstance(each, Sink) else each


def remarks(
    op: Tensor, targets: Iterable[str], version: tuple[int, int] | None
) -> Iterator[Remark]:
    """What the targets and the version of a file say about an instruction."""
    for target in targets:
        if target not in TARGETS:
            continue
        if not op.supported_on(target):
            yield Remark(
                rules.TARGET,
                f"{target} does not have {op}",
                "; ".join(
                    filter(None, (f"it needs {op.requires}", why_not(op, target)))
                ),
            )
            return
        if version is not None and version < op.requires.ptx_on(target):
            yield Remark(
                rules.VERSION,
                f"{op} needs PTX {op.requires.ptx_on(target)}; the file has "
                f"{version[0]}.{version[1]}",
            )
            return
        instead = op.expanded_to(target)
        if instead:
            yield Remark(
                rules.EXPANDED,
                f"on {target} the assembler makes {instead} of {op}",
            )
    yield from _deprecated(op, targets)


def _deprecated(op: Tensor, targets: Iterable[str]) -> Iterator[Remark]:
    new = any(int(each[3:].rstrip("af")) >= 90 for each in targets if each in TARGETS)
    for note in op.notes:
        if "deprecates" in note:
            if new:
                yield Remark(rules.DEPRECATED, note)
        elif "advises" in note:
            yield Remark(rules.DEPRECATED, note)
