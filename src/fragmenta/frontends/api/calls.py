"""How an instruction is called: its own arguments, in words, and kind errors.

A method such as ``Mma.execute(a, b, c, *, metadata=None, selector=0, …)`` takes what
any instruction of its unit takes.  One instruction takes less, and its list of PTX
operands says what: an operand that it does not have falls away, and one that it cannot
do without has no default.  ``op.help()`` shows the call of that instruction, and an
error about a wrong call shows the same line.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, wraps
from inspect import Parameter, Signature
from textwrap import wrap
from typing import Concatenate, NoReturn, ParamSpec, TypeVar

from fragmenta.errors import BadCall, Error, one_of
from fragmenta.errors import nearest as nearest_word
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.operand_lists import lists, values_of
from fragmenta.reference.isa.table import read

Given = ParamSpec("Given")
Op = TypeVar("Op", bound=Instruction)
Made = TypeVar("Made")

# What each argument is, by the unit that takes it.  A name in braces is that fragment,
# or the legal values of that operand.
ARGUMENTS = """
unit    | name                | what
any     | target              | the GPU, such as "sm_90a"; targets round differently
any     | gpu                 | the GPU to use; by default that of this machine
tile    | A                   | A, {m} x {k}; a sparse one pruned or Compressed
tile    | B                   | B, {k} x {n}
tile    | C                   | C, {m} x {n}; zeros if it is left out
tile    | scale_a             | the scales of A, {m} x {scales}
tile    | scale_b             | the scales of B, {scales} x {n}
whole   | A                   | A of any size; a sparse one pruned or Compressed
whole   | B                   | B of any size
whole   | C                   | C of any size; zeros if it is left out
whole   | row                 | the row of the element of D
whole   | col                 | the column of the element of D
whole   | scale_a             | the scales of A, {scales} in a row for every {k} of k
whole   | scale_b             | the scales of B, {scales} in a column for every {k} of k
mma     | a                   | registers of A, {A}
mma     | b                   | registers of B, {B}
mma     | c                   | registers of C, {C}
mma     | metadata            | registers of the metadata, {metadata}: op.metadata.pack
mma     | selector            | {selector}: which lanes hold the metadata
mma     | scale_a             | registers of the scales of A, {scale_A}
mma     | scale_b             | registers of the scales of B, {scale_B}
mma     | byte_a              | {byte_a}: which byte of a register holds the scales of A
mma     | byte_b              | {byte_b}: which byte of a register holds the scales of B
mma     | thread_a            | {thread_a}: which lanes hold the scales of A
mma     | thread_b            | {thread_b}: which lanes hold the scales of B
wgmma   | d                   | registers of D, {C}
wgmma   | a                   | registers of A, {A}, or a descriptor
wgmma   | b                   | a descriptor of B
wgmma   | smem                | shared memory, uint8 (…, bytes)
wgmma   | metadata            | registers of the metadata, {metadata}: op.metadata.pack
wgmma   | selector            | {selector}: which lanes hold the metadata
wgmma   | scale_d             | 0 or 1: whether the old D is added
wgmma   | imm_scale_a             | {imm_scale_a}: -1 negates A
wgmma   | imm_scale_b             | {imm_scale_b}: -1 negates B
wgmma   | trans_a             | {trans_a}: 1 if m is contiguous in memory, not k
wgmma   | trans_b             | {trans_b}: 1 if n is contiguous in memory, not k
tcgen05 | tmem                | tensor memory, uint32 (…, {pair}128, 512)
tcgen05 | a                   | a descriptor of A, or a TensorAddress
tcgen05 | b                   | a descriptor of B
tcgen05 | smem                | shared memory, uint8 (…, {pair}bytes)
tcgen05 | d                   | the address of D in tensor memory
tcgen05 | enable_input_d      | 0 or 1: whether the old D is added
tcgen05 | scale_input_d       | s, 0 to 15: the old D is multiplied by 2**-s
tcgen05 | disable_output_lane | words; a lane whose bit is 1 is not written
tcgen05 | scale_a             | the address of the scales of A in tensor memory
tcgen05 | scale_b             | the address of the scales of B in tensor memory
tcgen05 | metadata            | the address of the metadata in tensor memory
tcgen05 | zero_column_mask    | a ZeroColumnMask: columns of B to take as 0
matrix  | image               | shared memory, uint8 (…, bytes)
matrix  | addresses           | the address of each lane, (…, 32)
matrix  | registers           | registers, {A}
"""
_ARGUMENTS = {(line["unit"], line["name"]): line["what"] for line in read(ARGUMENTS)}
METHODS = ("execute", "__call__", "explain", "on_device")
"""The methods whose arguments depend on the instruction."""
WIDTH = 80
_OPERANDS = {
    "metadata",
    "selector",
    "scale_a",
    "imm_scale_a",
    "imm_scale_b",
    "scale_b",
    "byte_a",
    "byte_b",
    "thread_a",
    "thread_b",
    "scale_d",
    "trans_a",
    "trans_b",
    "scale_input_d",
    "disable_output_lane",
    "zero_column_mask",
}
"""Operands that only some instructions have."""


# ── the call of one instruction ─────────────────────────────────────────────


def signature(op: Instruction, name: str) -> Signature:
    """How a method is called with this very instruction.

    >>> import fragmenta as fm
    >>> print(signature(fm.mma("m16n8k64", a="s8", sp="sp"), "execute"))
    (a, b, c, *, metadata, selector=0, target=None)
    """
    every = [{each.name for each in operands} for operands in lists(op)]
    some, always = set().union(*every), set(every[0]).intersection(*every)
    taken = []
    for each in parameters(_kind(op), name):
        if each.name not in _OPERANDS:
            taken.append(each)
        elif each.name in some:
            needed = each.default is None and each.name in always
            taken.append(each.replace(default=Parameter.empty) if needed else each)
    return Signature(taken)


def _kind(op: Instruction) -> type:
    """The class of an instruction, as something that a cache can keep."""
    return type(op)


@lru_cache
def parameters(kind: type, name: str) -> tuple[Parameter, ...]:
    """What a method of a class takes, without types, which make the line long.

    ``on_device`` takes what ``execute`` takes, and more.

    >>> import fragmenta as fm
    >>> [each.name for each in parameters(fm.LdMatrix, "on_device")]
    ['image', 'addresses', 'gpu']
    """
    _, *found = inspect.signature(getattr(kind, name)).parameters.values()
    plain = [each.replace(annotation=Parameter.empty) for each in found]
    if name == "execute" or not _is_open(plain):
        return tuple(plain)
    more = [each for each in plain if each.kind is Parameter.KEYWORD_ONLY]
    taken = parameters(kind, "execute")
    return (*taken, *more) if not _is_open(taken) else tuple(plain)


def _is_open(listed: Iterable[Parameter]) -> bool:
    """Whether any number of operands is taken."""
    return any(each.kind is Parameter.VAR_POSITIONAL for each in listed)


def call_line(op: Instruction, name: str = "execute") -> str:
    """The call of a method as it is written; empty if it only says why it cannot.

    >>> import fragmenta as fm
    >>> call_line(fm.wgmma("m64n8k32", a="s8"))
    'op.execute(d, a, b, *, smem, scale_d=1, target=None)'
    >>> call_line(fm.find("wgmma.fence"))
    ''
    """
    how = signature(op, name)
    return "" if _is_open(how.parameters.values()) else _written(name, how)


def _written(name: str, how: Signature) -> str:
    return f"op{how}" if name == "__call__" else f"op.{name}{how}"


# ── words ───────────────────────────────────────────────────────────────────


def help_text(op: Instruction, name: str = "execute") -> str:
    """The call of a method, and what each of its arguments is.

    >>> import fragmenta as fm
    >>> print(help_text(fm.find("ldmatrix.m8n8.x4.b16")))
    op.execute(image, addresses)
    <BLANKLINE>
        image      shared memory, uint8 (…, bytes)
        addresses  the address of each lane, (…, 32)
    >>> help_text(fm.find("movmatrix"), "excute")
    Traceback (most recent call last):
    fragmenta.errors.Error: there is help for execute, __call__, explain and \
on_device; given 'excute' (did you mean execute?)
    """
    if not isinstance(name, str) or name not in METHODS:
        have, hint = one_of(METHODS, "and"), nearest_word(str(name), METHODS)
        raise Error(f"there is help for {have}; given {name!r}{hint}")
    about = arguments(op, name)
    wide = max(map(len, about), default=0)
    rows = [f"    {each:{wide}}  {text}" for each, text in about.items()]
    line = wrap(call_line(op, name), WIDTH, subsequent_indent=" " * 4)
    return "\n".join([*line, "", *rows])


def arguments(op: Instruction, name: str = "execute") -> dict[str, str]:
    """What each argument of a call is.

    >>> import fragmenta as fm
    >>> arguments(fm.mma("m16n8k64", a="s8", sp="sp"))["a"]
    'registers of A, uint32 (…, 32, 4)'
    """
    how = signature(op, name).parameters
    unit = {"wmma": "mma"}.get(op.unit, op.unit)
    if "A" in how:  # matrices, not registers
        unit = "whole" if "row" in how else "tile"
    facts, found = _Facts(op), {}
    for each in how:
        text = _ARGUMENTS.get((unit, each)) or _ARGUMENTS.get(("any", each), "")
        found[each] = text.format_map(facts)
    return found


class _Facts(dict[str, str]):
    """What stands in the braces of ``ARGUMENTS``, looked up when it is needed."""

    def __init__(self, op: Instruction) -> None:
        self.op = op

    def __missing__(self, name: str) -> str:
        op = self.op
        if name == "pair":
            return "2, " if op.cta_group == 2 else ""
        if name in op.fragments:
            part = op.fragments[name]
            return f"uint{part.register_bits} (…, {part.lanes}, {part.registers})"
        values = {each.name: each for one in lists(op) for each in one if each.values}
        if name in values:
            return values_of(values[name])
        if "shape" not in op.values:
            return "…"
        return str(op.scale_vec if name == "scales" else getattr(op.shape, name))


# ── wrong calls ─────────────────────────────────────────────────────────────


def checked(
    method: Callable[Concatenate[Op, Given], Made],
) -> Callable[Concatenate[Op, Given], Made]:
    """Decorate a method: an error about its arguments shows the right call.

    >>> import fragmenta as fm
    >>> fm.find("ldmatrix.m8n8.x1.b16").execute(1, adresses=2)
    Traceback (most recent call last):
    fragmenta.errors.BadCall: ldmatrix.sync.aligned.m8n8.x1.b16 takes no adresses \
(did you mean addresses?); the call is op.execute(image, addresses)
    """
    name = method.__name__

    @wraps(method)
    def made(self: Op, /, *operands: Given.args, **options: Given.kwargs) -> Made:
        try:
            return method(self, *operands, **options)
        except Error as why:  # the function knows best why an operand is wrong
            own = signature(self, name)
            listed = own.parameters.values()
            given = options.keys()
            needed = {
                each.name
                for each in listed
                if each.kind is Parameter.KEYWORD_ONLY
                and each.default is Parameter.empty
            }
            if _is_open(listed) or own.parameters.keys() >= given >= needed:
                raise
            raise type(why)(f"{why}; the call is {_written(name, own)}") from None
        except TypeError:
            check_call(self, name, operands, options)
            raise

    return made


def check_call(
    op: Instruction,
    name: str,
    operands: tuple[object, ...],
    options: Mapping[str, object],
) -> None:
    """Refuse a call that the method itself could not take.

    >>> import fragmenta as fm
    >>> check_call(fm.find("movmatrix"), "execute", (), {})
    Traceback (most recent call last):
    fragmenta.errors.BadCall: movmatrix.sync.aligned.m8n8.trans.b16 needs registers; \
the call is op.execute(registers)
    """
    own, every = signature(op, name), parameters(_kind(op), name)

    def refuse(why: str) -> NoReturn:
        raise BadCall(f"{op} {why}; the call is {_written(name, own)}") from None

    if _is_open(every):
        return
    known = {each.name: each.default for each in every}
    listed = own.parameters.values()
    places = [p.name for p in listed if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
    if len(operands) > len(places):
        count = f"{len(places)} operand{'s' * (len(places) != 1)}"
        refuse(f"takes {count}; given {len(operands)}")
    for given in options:
        if given in places[: len(operands)]:
            refuse(f"is given {given} twice")
        if given not in known:
            refuse(f"takes no {given}{nearest_word(given, own.parameters)}")
    have = {*places[: len(operands)], *options}
    none = Parameter.empty
    missing = [
        each
        for each, how in own.parameters.items()
        if each not in have and how.default is none and known[each] is none
    ]
    if missing:
        refuse(f"needs {one_of(missing, 'and')}")
