"""How is an instruction called from Python?

A function such as ``execute(op, a, b, c, *, metadata=None, selector=0, …)`` takes what
any instruction of its unit takes.  One instruction takes less, and its list of PTX
operands says what: an operand that it does not have falls away, and one that it cannot
do without has no default.  So ``help(op.execute)`` shows the call of that instruction,
and an error shows the same line.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from inspect import Parameter, Signature
from typing import Any, NoReturn

from fragmenta.errors import BadCall, Error, one_of
from fragmenta.errors import nearest as nearest_word
from fragmenta.isa.instruction import Instruction
from fragmenta.isa.table import read
from fragmenta.isa.taking import lists, values_of

Function = Callable[..., Any]

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
wgmma   | scale_a             | {scale_a}: -1 negates A
wgmma   | scale_b             | {scale_b}: -1 negates B
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
move    | image               | shared memory, uint8 (…, bytes)
move    | addresses           | the address of each lane, (…, 32)
move    | registers           | registers, {A}
"""
_ARGUMENTS = {(line["unit"], line["name"]): line["what"] for line in read(ARGUMENTS)}
_UNITS = {"wmma": "mma", "ldmatrix": "move", "stmatrix": "move", "movmatrix": "move"}
_OPERANDS = {
    "metadata", "selector", "scale_a", "scale_b", "byte_a", "byte_b", "thread_a",
    "thread_b", "scale_d", "trans_a", "trans_b", "scale_input_d",
    "disable_output_lane", "zero_column_mask",
}  # fmt: skip
"""Operands that only some instructions have."""


# ── the call ────────────────────────────────────────────────────────────────


def signature(op: Instruction, function: Function) -> Signature:
    """How a function is called with an instruction, which itself is left out.

    >>> import fragmenta as fm
    >>> from fragmenta.execution.mma import execute
    >>> print(signature(fm.mma("m16n8k64", a="s8", sp="sp"), execute))
    (a, b, c, *, metadata, selector=0, target=None)
    """
    every = [{each.name for each in operands} for operands in lists(op)]
    some, always = set().union(*every), set(every[0]).intersection(*every)
    taken = []
    for each in _parameters(function):
        if each.name not in _OPERANDS:
            taken.append(each)
        elif each.name in some and not _is_sign(op, each):
            needed = each.default is None and each.name in always
            taken.append(each.replace(default=Parameter.empty) if needed else each)
    return Signature(taken)


def _is_sign(op: Instruction, each: Parameter) -> bool:
    """Whether ``wgmma`` has a sign of this name, and the function means a matrix."""
    return op.warpgroup and each.default is None and each.name.startswith("scale_")


@lru_cache
def _parameters(function: Function) -> tuple[Parameter, ...]:
    """The parameters without ``op`` and without types, which make the line long."""
    found = inspect.signature(function).parameters.values()
    plain = [each.replace(annotation=Parameter.empty) for each in found]
    return tuple(each for each in plain if each.name != "op")


def call_line(method: Function) -> str:
    """The call of a method of an instruction as it is written; empty if it has none.

    >>> import fragmenta as fm
    >>> call_line(fm.wgmma("m64n8k32", a="s8").execute)
    'op.execute(d, a, b, *, smem, scale_d=1, target=None)'
    """
    how = inspect.signature(method)
    return "" if _is_open(how) else _written(method.__name__, how)


def _written(name: str, how: Signature) -> str:
    return f"op{how}" if name == "__call__" else f"op.{name}{how}"


# ── the method ──────────────────────────────────────────────────────────────


def method(op: Instruction, function: Function, name: str) -> Function:
    """A function of an instruction as its method: how it is called, and its help.

    A function with ``*operands`` takes what ``execute`` takes.  If ``execute`` itself is
    one, this instruction cannot be executed, and the function says why.

    >>> import fragmenta as fm
    >>> from fragmenta.execution.mma import execute
    >>> made = method(fm.mma("m16n8k16", a="f16", d="f32"), execute, "execute")
    >>> inspect.signature(made)
    <Signature (self, a, b, c, *, target=None)>
    """
    like, own = function, signature(op, function)
    if _is_open(own):
        like = inspect.unwrap(op.execute) if name != "execute" else function
        if _is_open(signature(op, like)):
            return function
        own = _joined(signature(op, like), own)
    listed = own.parameters.values()
    places = [each for each in listed if each.kind is Parameter.POSITIONAL_OR_KEYWORD]
    named = [each for each in listed if each.kind is Parameter.KEYWORD_ONLY]
    most = len(places)
    least = sum(each.default is Parameter.empty for each in places)
    known = {each.name for each in named}
    needed = {each.name for each in named if each.default is Parameter.empty}

    def made(self: Instruction, *operands: Any, **options: Any) -> Any:
        fits = least <= len(operands) <= most and needed <= options.keys() <= known
        if fits:
            return function(self, *operands, **options)
        _check_call(self, like, name, own, operands, options)
        try:
            return function(self, *operands, **options)
        except Error as why:  # it knows best why an operand is missing or needless
            if own.parameters.keys() >= options.keys() >= needed:
                raise
            raise type(why)(f"{why}; the call is {_written(name, own)}") from None

    made.__wrapped__ = function  # type: ignore[attr-defined]
    return dressed(made, name, own, _help(op, function, own))


def dressed(made: Function, name: str, how: Signature, text: str) -> Function:
    """The function with the name, the signature and the help of a method."""
    made.__name__, made.__qualname__ = name, f"Instruction.{name}"
    made.__module__, made.__doc__ = Instruction.__module__, text
    itself = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    made.__signature__ = how.replace(  # type: ignore[attr-defined]
        parameters=[itself, *how.parameters.values()]
    )
    return made


def general(name: str, functions: tuple[Function, ...], text: str) -> Function:
    """The method of the class, whose instructions take what any of the functions takes.

    >>> from fragmenta.execution.mma import call
    >>> inspect.signature(general("__call__", (call,), ""))
    <Signature (self, A, B, C=None, *, scale_a=None, scale_b=None, target=None)>
    """

    def made(self: Instruction, *operands: Any, **options: Any) -> Any:
        return getattr(self, name)(*operands, **options)

    listed = list(_parameters(functions[0]))
    if len(functions) > 1:
        each = {p.name: p for f in functions for p in reversed(_parameters(f))}
        named = [p for p in each.values() if p.kind is Parameter.KEYWORD_ONLY]
        # Only some instructions need it, so that the others leave it out.
        free = [p.replace(default=None) for p in named if p.default is Parameter.empty]
        named = [p for p in named if p.default is not Parameter.empty] + free
        named.sort(key=lambda p: (p.name == "target", p.name))
        listed = [Parameter("operands", Parameter.VAR_POSITIONAL), *named]
    return dressed(made, name, Signature(listed), text)


def _is_open(how: Signature) -> bool:
    """Whether it takes any number of operands."""
    kinds = [each.kind for each in how.parameters.values()]
    return Parameter.VAR_POSITIONAL in kinds


def _joined(own: Signature, more: Signature) -> Signature:
    """The arguments with those that a second function names besides."""
    listed = more.parameters.values()
    named = [each for each in listed if each.kind is Parameter.KEYWORD_ONLY]
    return own.replace(parameters=[*own.parameters.values(), *named])


# ── what is wrong with a call ───────────────────────────────────────────────


def _check_call(
    op: Instruction,
    function: Function,
    name: str,
    own: Signature,
    operands: tuple[Any, ...],
    options: Mapping[str, Any],
) -> None:
    """Refuse a call that the function itself could not take."""

    def refuse(why: str) -> NoReturn:
        raise BadCall(f"{op} {why}; the call is {_written(name, own)}")

    every = {each.name: each.default for each in _parameters(function)}
    listed = own.parameters.values()
    places = [p.name for p in listed if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
    if len(operands) > len(places):
        count = f"{len(places)} operand{'s' * (len(places) != 1)}"
        refuse(f"takes {count}; given {len(operands)}")
    for given in options:
        if given in places[: len(operands)]:
            refuse(f"is given {given} twice")
        if given not in own.parameters and given not in every:
            refuse(f"takes no {given}{nearest_word(given, own.parameters)}")
    have = {*places[: len(operands)], *options}
    missing = [n for n in own.parameters if n not in have and _is_needed(own, every, n)]
    if missing:
        refuse(f"needs {one_of(missing, 'and')}")


def _is_needed(own: Signature, every: Mapping[str, Any], name: str) -> bool:
    """Whether an argument has no default, not even in the function."""
    none = Parameter.empty
    return own.parameters[name].default is none and every.get(name, none) is none


# ── help ────────────────────────────────────────────────────────────────────


def arguments(op: Instruction, how: Signature) -> dict[str, str]:
    """What each argument of a call is.

    >>> import fragmenta as fm
    >>> from fragmenta.execution.mma import execute
    >>> op = fm.mma("m16n8k64", a="s8", sp="sp")
    >>> arguments(op, signature(op, execute))["a"]
    'registers of A, uint32 (…, 32, 4)'
    """
    family = op.family.split(".")[0]
    unit = _UNITS.get(family, family)
    if "A" in how.parameters:  # matrices, not registers
        unit = "whole" if "row" in how.parameters else "tile"
    facts, found = _Facts(op), {}
    for name in how.parameters:
        text = _ARGUMENTS.get((unit, name)) or _ARGUMENTS.get(("any", name), "")
        found[name] = text.format_map(facts)
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


def _help(op: Instruction, function: Function, how: Signature) -> str:
    """What ``help`` shows of a method: the arguments, then what the function does."""
    about = arguments(op, how)
    wide = max(map(len, about), default=0)
    rows = [f"    {name:{wide}}  {text}" for name, text in about.items()]
    first, _, rest = inspect.getdoc(function).partition("\n")  # type: ignore[union-attr]
    return "\n".join([first, "", f"{op}::", "", *rows, rest])
