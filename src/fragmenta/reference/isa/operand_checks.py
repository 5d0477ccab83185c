"""Checks that the operands of a PTX statement fit its instruction.

:mod:`fragmenta.reference.isa.operand_lists` says which operands there are.  Here is what may stand for
each of them: names, numbers, constants among registers.  ptxas is the judge of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from fragmenta.errors import BadOperands, one_of, shortened
from fragmenta.reference.isa.instruction import Instruction, Operand
from fragmenta.reference.isa.operand_lists import (
    BRACKETS,
    columns,
    form_of,
    has_sinks,
    has_variables,
    is_vector,
    is_written,
    lists,
    registers,
    slots,
    syntax,
    values_of,
    word,
    writes_all,
)
from fragmenta.reference.isa.statement import (
    OperandText,
    Unreadable,
    integer,
    kind_of,
    listed,
)
from fragmenta.reference.isa.table import read

# Constants in the braces of what is read: alone, or beside a register at least.
CONSTANTS = """
class | beside         | alone
.f32  | 0f             | 0f
.s32  | integer        | integer
.f64  | 0d 0f decimal  | 0d 0f decimal
.b32  | integer        |
"""
_CONSTANTS = {line["class"]: line for line in read(CONSTANTS)}
_SPELLED = {
    "0f": "0f and 8 hexadecimal digits",
    "0d": "0d and 16 hexadecimal digits",
    "decimal": "numbers with a point",
    "integer": "integers of 64 bits",
}
_WIDTHS = {
    ".pred": "1",
    "stride": "32",
    "tensor": "32",
    "number": "32",
    "columns": "32",
}
_HALVES = (".b16", ".u16", ".s16")


def check(
    op: Instruction,
    text: str,
    *,
    guard: str = "",
    declared: Mapping[str, str] | None = None,
) -> None:
    """Refuse a text that is not a list of operands of the instruction.

    ``declared`` gives the type of each register, such as ``{"%f0": ".f32"}``;
    without it, what a name holds is unknown and every type is possible.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="tf32", sp="sp")
    >>> d = "{%f0, %f1, %f2, %f3}"
    >>> check(op, f"{d}, {{%r0,%r1,%r2,%r3}}, {{%r4,%r5,%r6,%r7}}, {d}, %r8, 0x1")
    >>> check(op, f"{d}, {{%r0,%r1,%r2,%r3}}, {{%r4,%r5,%r6,%r7}}, {d}, %r8, 0x2")
    Traceback (most recent call last):
    ...
    fragmenta.errors.BadOperands: mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32: \
f (selector) is 0 or 1; given 0x2
    """
    fitting(op, text, guard=guard, declared=declared)


def fitting(
    op: Instruction,
    text: str,
    *,
    guard: str = "",
    declared: Mapping[str, str] | None = None,
) -> tuple[Operand, ...]:
    """The list of operands that a text is; :func:`check` says what it refuses.

    >>> import fragmenta as fm
    >>> op = fm.instruction("tcgen05.mma.cta_group::1.kind::f16")
    >>> [each.name for each in fitting(op, "[%r0], [%r1], %rd1, %r2, %p0, 3")][1:]
    ['a', 'b', 'idesc', 'enable_input_d', 'scale_input_d']
    """
    refusals = []
    for operands in lists(op):
        try:
            _check(op, operands, _read(op, operands, text), guard, declared)
        except BadOperands as refusal:
            refusals.append((_likeness(operands, text), refusal))
        else:
            return operands
    raise max(refusals, key=lambda pair: pair[0])[1] from None


def _likeness(operands: tuple[Operand, ...], text: str) -> tuple[int, int]:
    """How many brackets and braces are as in this list, for the better message."""
    try:
        given = listed(text)
    except Unreadable:
        return 0, 0
    forms = [form_of(slot) for slot in slots(operands)]
    pairs = zip(given, forms, strict=False)
    alike = sum(1 if each.form == form else -1 for each, form in pairs)
    return alike, -abs(len(given) - len(forms))


def _read(
    op: Instruction, operands: tuple[Operand, ...], text: str
) -> list[OperandText]:
    try:
        return listed(text)
    except Unreadable as why:
        raise BadOperands(
            f"{op}: {shortened(text)} is not a list of operands, {why}; "
            f"{syntax(op, operands)}"
        ) from None


# ── what was given ──────────────────────────────────────────────────────────


def _check(
    op: Instruction,
    operands: tuple[Operand, ...],
    given: list[OperandText],
    guard: str,
    declared: Mapping[str, str] | None,
) -> None:
    expected = slots(operands)
    least = len(expected) - (operands[-1:] != () and operands[-1].ptx == "stride")
    if not least <= len(given) <= len(expected):
        raise BadOperands(_miscounted(op, operands, expected, given))
    widths = {guard: ("1", "the guard")} if guard else {}
    results: list[str] = []
    for slot, written in zip(expected, given, strict=False):
        if len(slot) > 1:
            _check_pair(op, slot, written)
            _check_pair_declared(op, written, declared)
            continue
        _check_one(op, slot[0], written)
        if writes_all(op) and is_written(op, slot[0]):
            results += written.items
            if len({*results}) < len(results):
                _refuse(op, slot[0], "registers that differ", written)
        _check_names(op, slot[0], written, widths)
        if declared is not None:
            _check_declared(op, slot[0], written, declared)
    if declared is not None and guard and declared.get(guard) != ".pred":
        raise BadOperands(f"{op}: the guard {guard} is not declared as a .pred")


def _miscounted(
    op: Instruction,
    operands: tuple[Operand, ...],
    expected: list[tuple[Operand, ...]],
    given: list[OperandText],
) -> str:
    if len(given) < len(expected):
        missing = [word(op, each) for slot in expected[len(given) :] for each in slot]
        wrong = (
            f"{one_of(missing, 'and')} {'is' if len(missing) == 1 else 'are'} missing"
        )
    else:
        more = len(given) - len(expected)
        wrong = f"{more} too many, from {shortened(str(given[len(expected)]))} on"
    count = f"{len(given)} operand{'s' * (len(given) != 1)}"
    return f"{op}: given {count}, {wrong}; {syntax(op, operands)}"


def _refuse(op: Instruction, operand: Operand, is_: str, written: object) -> NoReturn:
    given = str(written)
    given = given if len(given) <= 200 else shortened(given, 200)
    raise BadOperands(f"{op}: {word(op, operand)} is {is_}; given {given}")


def _check_one(op: Instruction, operand: Operand, written: OperandText) -> None:
    """Whether what was written can be this operand at all."""
    if operand.ptx in BRACKETS:
        _check_address(op, operand, written)
    elif is_vector(operand):
        _check_vector(op, operand, written)
    elif not _scalar(op, operand, written):
        _refuse(op, operand, _allowed(op, operand), written)


def _scalar(op: Instruction, operand: Operand, written: OperandText) -> bool:
    """Whether one register, predicate or constant can be this operand."""
    item, kind = written.items[0], kind_of(written.items[0])
    if written.form == "vector":  # ptxas takes one register in braces as that register
        braces = operand.ptx == ".b32" and op.moves != "transpose"
        return braces and len(written.items) == 1 and _is_register(item)
    if written.form == "address":
        return False
    if item == "_":
        return False
    value = integer(item)
    if operand.ptx == ".pred":
        return kind == "name" or integer(item.removeprefix("!")) in (0, 1)
    if operand.values:
        return value in operand.values or _is_placeholder(item)
    if operand.ptx == "integer":
        return (value is not None and value >= 0) or _is_placeholder(item)
    constant = value is not None and _takes(op, operand, value)
    if operand.ptx == "constant":
        return constant or _is_placeholder(item)
    return constant or _is_register(item)


def _takes(op: Instruction, operand: Operand, value: int) -> bool:
    """Whether a constant may stand where a register could."""
    if operand.ptx == "columns":
        return value in columns(op)
    if operand.name == "idesc" and value < 0:  # as compilers write the top bit
        value += 1 << 32
    bits = {".b16": 16, "number": 32}.get(operand.ptx, 0)
    anything = operand.ptx in (".b64", "stride", "constant")
    return anything or 0 <= value < (1 << bits if bits else 0)


def _allowed(op: Instruction, operand: Operand) -> str:
    """What one scalar operand may be, for a message."""
    if operand.values:
        return values_of(operand)
    if operand.ptx == "columns":
        some = "a multiple of 32" if op.values["exclusive"] else one_of(columns(op))
        return f"{some} as a constant, or a 32-bit register"
    return {
        ".pred": "a predicate, which ! may negate, or 0 or 1",
        ".b64": "a descriptor: a 64-bit register or integer",
        "stride": "a 32-bit register or an integer",
        "integer": "an integer constant, 0 or more",
        "constant": "an integer constant",
        "number": "a 32-bit register or an integer of 32 bits",
        ".b16": "a 16-bit register or an integer of 16 bits",
    }.get(operand.ptx, "one 32-bit register")


def _is_register(item: str) -> bool:
    return kind_of(item) == "name" and item != "_" and not item.startswith("!")


def _is_placeholder(item: str) -> bool:
    """Whether it is ``%5``, for which inline assembly puts its operand 5."""
    return item.startswith("%") and item[1:].isdecimal()


def _check_address(op: Instruction, operand: Operand, written: OperandText) -> None:
    first, *offsets = written.items
    fits = written.form == "address" and _is_register(first) and "." not in first
    if not fits or len(offsets) > 1 or any(integer(each) is None for each in offsets):
        allowed = "[register], [variable], or one of them + an integer"
        if operand.ptx == "tensor":
            allowed = "an address in tensor memory: [register] or [register + integer]"
        _refuse(op, operand, allowed, written)


def _check_pair(
    op: Instruction, slot: tuple[Operand, ...], written: OperandText
) -> None:
    """{byte-id, thread-id}: constants in range, or 16-bit registers."""
    names = "{" + ", ".join(word(op, each) for each in slot) + "}"
    if written.form != "vector" or len(written.items) != len(slot):
        raise BadOperands(f"{op}: here stands {names}; given {written}")
    for operand, item in zip(slot, written.items, strict=True):
        if integer(item) not in operand.values and not _is_register(item):
            _refuse(op, operand, f"{one_of(operand.values)} or a register", item)


def _check_pair_declared(
    op: Instruction, written: OperandText, declared: Mapping[str, str] | None
) -> None:
    for name in _names(written) if declared is not None else ():
        of = declared.get(name) if declared else None
        if of not in _HALVES:
            raise BadOperands(
                f"{op}: {name} of {written} is in {one_of(_HALVES)}; given "
                f"{of or 'no declaration'}"
            )


# ── vectors ─────────────────────────────────────────────────────────────────


def _check_vector(op: Instruction, operand: Operand, written: OperandText) -> None:
    """Registers in braces: how many, and what else may stand among them."""
    is_ = f"{operand.count} register{'s' * (operand.count > 1)} in braces"
    if written.form == "scalar" and _is_register(written.items[0]):
        if not has_variables(op, operand):
            _refuse(op, operand, is_, written)
        return
    if written.form != "vector":
        _refuse(op, operand, is_, written)
    if len(written.items) != operand.count:
        count = len(written.items)
        _refuse(op, operand, is_, f"{count}, {written}")
    others = [item for item in written.items if not _is_register(item)]
    alone = len(others) == len(written.items)
    for item in others:
        if item == "_":
            _check_sink(op, operand, alone, written)
        else:
            _check_constant(op, operand, item, alone)


def _check_sink(
    op: Instruction, operand: Operand, alone: bool, written: OperandText
) -> None:
    if not is_written(op, operand):
        _refuse(op, operand, "read, so that _ cannot stand in it", written)
    if writes_all(op):
        _refuse(op, operand, "registers, among which _ cannot stand", written)
    if not has_sinks(op):
        _refuse(op, operand, "read and written, so that _ cannot stand in it", written)
    if alone:
        _refuse(op, operand, "at least one register besides _", written)


def _check_constant(op: Instruction, operand: Operand, item: str, alone: bool) -> None:
    """A constant among registers, or without any."""
    if is_written(op, operand):
        _refuse(op, operand, "written, so that it is registers", item)
    if op.unit == "wmma" and op.multiplies and operand.ptx == ".b32":
        _refuse(op, operand, "registers", item)
    kinds = _CONSTANTS[operand.ptx]["alone" if alone else "beside"].split()
    if _constant_kind(item) in kinds:
        return
    if not kinds:
        _refuse(op, operand, "at least one register besides constants", item)
    spelled = one_of(_SPELLED[kind] for kind in kinds)
    _refuse(op, operand, f"registers; constants among them are {spelled}", item)


def _constant_kind(item: str) -> str:
    if integer(item) is not None:
        return "integer"
    if kind_of(item) != "float":
        return ""
    return item[:2].lower() if item[:2].lower() in ("0f", "0d") else "decimal"


# ── registers ───────────────────────────────────────────────────────────────


def _check_names(
    op: Instruction,
    operand: Operand,
    written: OperandText,
    widths: dict[str, tuple[str, str]],
) -> None:
    """No register is a predicate here and a number there, or 32 and 64 bits wide."""
    if operand.ptx in ("address", "immediate", "integer", "constant"):
        return
    width = _WIDTHS.get(operand.ptx, operand.ptx[-2:])
    for name in _names(written):
        here = (width, word(op, operand))
        before = widths.setdefault(name, here)
        if before[0] != width:
            raise BadOperands(
                f"{op}: {name} cannot be {before[1]}, {_wide(before[0])}, and "
                f"{here[1]}, {_wide(width)}"
            )


def _wide(bits: str) -> str:
    return "a predicate" if bits == "1" else f"{bits} bits"


def _names(written: OperandText) -> list[str]:
    items = [item.lstrip("!") for item in written.items]
    return [item for item in items if _is_register(item)]


def _check_declared(
    op: Instruction, operand: Operand, written: OperandText, declared: Mapping[str, str]
) -> None:
    if operand.ptx in ("immediate", "integer", "constant"):
        return
    allowed = registers(op, operand)
    if is_vector(operand) and written.form == "scalar":
        allowed = [f".v{operand.count} {each}" for each in allowed]
    found = set()
    for name in _names(written):
        if name not in declared:
            raise BadOperands(f"{op}: {name} of {word(op, operand)} is not declared")
        if declared[name] not in allowed:
            _refuse(op, operand, f"in {one_of(allowed)}", f"{name}, {declared[name]}")
        found.add({".u32": ".s32"}.get(declared[name], declared[name]))
    if len(found - {".b32", ".b64"}) > 1:
        _refuse(op, operand, "in registers of one type", one_of(sorted(found), "and"))
