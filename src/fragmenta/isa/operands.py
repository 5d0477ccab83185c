"""Do these operands fit the instruction?

What an instruction takes is its list of operands (:attr:`Instruction.operands`),
the list that statements are written from.  The tables here add what the list
leaves open: what the manual calls each operand, which registers may hold it, and
which constants may stand among them.  ptxas is the judge of all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn

from fragmenta.errors import BadOperands, one_of, shortened
from fragmenta.isa.instruction import Instruction, Operand
from fragmenta.isa.statement import Unreadable, Written, integer, kind_of, listed
from fragmenta.isa.table import read
from fragmenta.isa.tables.wgmma import operands_from

# The manual's word for an operand, where it is not ours.
WORDS = """
family | operand  | word
mma    | metadata | e
mma    | selector | f
mma    | scale_a  | scale-a-data
mma    | scale_b  | scale-b-data
mma    | byte_a   | byte-id-a
mma    | byte_b   | byte-id-b
mma    | thread_a | thread-id-a
mma    | thread_b | thread-id-b
wgmma  | metadata | sp-meta
wgmma  | selector | sp-sel
wgmma  | scale_d  | scale-d
wgmma  | scale_a  | imm-scale-a
wgmma  | scale_b  | imm-scale-b
wgmma  | trans_a  | imm-trans-a
wgmma  | trans_b  | imm-trans-b
"""
_WORDS = {(line["family"], line["operand"]): line["word"] for line in read(WORDS)}

# Which declared registers an operand takes: the first line that fits it, empty
# cells fit all.  ``elements`` is the type in the registers.
REGISTERS = """
class     | family                        | elements            | registers
.f32      |                               |                     | .f32 .b32
.s32      |                               |                     | .s32 .u32 .b32
.f64      | wmma.mma wmma.load wmma.store |                     | .f64 .b64
.f64      |                               |                     | .f64 .b64 .u64 .s64
.b64      |                               |                     | .b64 .u64 .s64
.pred     |                               |                     | .pred
stride    |                               |                     | .b32 .u32 .s32
address   |                               |                     | .b32 .u32 .s32 .b64 .u64 .s64
.b32      | wgmma wgmma.sp                | bf16 tf32 e4m3 e5m2 | .b32 .f16x2
.b32      |                               | bf16 tf32           | .b32
.b32      |                               | f16                 | .b32 .f16x2
.b32      | wmma.mma wmma.load            |                     | .b32 .u32 .s32
.b32      |                               |                     | .b32 .u32 .s32 .f32 .f16x2
"""
_REGISTERS = read(REGISTERS)

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
#: Families that take a vector variable (``.reg .v4 .b32 v``) for braces.
_VARIABLES = ("mma", "mma.sp", "wgmma", "wgmma.sp", "ldmatrix", "stmatrix")
_HALVES = (".b16", ".u16", ".s16")
_LOADS = ("mma", "mma.sp", "wmma.mma", "ldmatrix", "movmatrix")


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
    refusals = []
    for operands in lists(op):
        try:
            _check(op, operands, _read(op, operands, text), guard, declared)
        except BadOperands as refusal:
            refusals.append((_braced_alike(operands, text), refusal))
        else:
            return
    raise max(refusals, key=lambda pair: pair[0])[1] from None


def lists(op: Instruction) -> list[tuple[Operand, ...]]:
    """The lists of operands: two for wgmma, whose A has two places.

    >>> import fragmenta as fm
    >>> [len(each) for each in lists(fm.wgmma("m64n8k16", a="f16", d="f32"))]
    [8, 7]
    """
    if op.warpgroup:
        return [operands_from(op, registers=each) for each in (False, True)]
    return list(op.form.lists(op)) if op.form.lists else [op.operands]


def _braced_alike(operands: tuple[Operand, ...], text: str) -> bool:
    """Whether A is in braces here as it is there, for the better message."""
    try:
        given = listed(text)
    except Unreadable:
        return False
    if len(given) < 2 or len(operands) < 2:
        return True
    return (given[1].form == "vector") == _is_vector(operands[1])


def _read(op: Instruction, operands: tuple[Operand, ...], text: str) -> list[Written]:
    try:
        return listed(text)
    except Unreadable as why:
        raise BadOperands(
            f"{op}: {shortened(text)} is not a list of operands, {why}; "
            f"{syntax(op, operands)}"
        ) from None


# ── what an instruction takes ───────────────────────────────────────────────


def word(op: Instruction, operand: Operand) -> str:
    """The manual's name of an operand.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="tf32", sp="sp")
    >>> [word(op, each) for each in op.operands]
    ['d', 'a', 'b', 'c', 'e (metadata)', 'f (selector)']
    """
    if operand.ptx == ".b64":
        return f"{operand.name}-desc"
    found = _WORDS.get((op.family.split(".")[0], operand.name), operand.name)
    plain = operand.name in ("metadata", "selector")
    return f"{found} ({operand.name})" if plain else found


def syntax(op: Instruction, operands: Iterable[Operand] | None = None) -> str:
    """What may stand behind the mnemonic, for a message.

    >>> import fragmenta as fm
    >>> print(syntax(fm.find("ldmatrix.m8n8.x4.b16")))
    its operands are {d: 4 x .b32}, [address]
    """
    operands = op.operands if operands is None else tuple(operands)
    if not operands:
        return "it has no operands"
    texts = [
        "{" + ", ".join(_described(op, each) for each in slot) + "}"
        if len(slot) > 1 or _is_vector(slot[0])
        else _described(op, slot[0])
        for slot in _slots(operands)
    ]
    return f"its operands are {', '.join(texts)}"


def _described(op: Instruction, operand: Operand) -> str:
    name = word(op, operand)
    if operand.values:
        return f"{name}: {one_of(operand.values)}"
    if operand.ptx == "address":
        return f"[{name}]"
    if operand.ptx in ("stride", "integer"):
        return f"{name}: {'a number' if operand.ptx == 'integer' else 'if any'}"
    count = f"{operand.count} x " if operand.vector else ""
    return f"{name}: {count}{operand.ptx}"


def _is_vector(operand: Operand) -> bool:
    """Whether it is registers in braces."""
    return operand.vector and operand.ptx.startswith(".")


def _slots(operands: Iterable[Operand]) -> list[tuple[Operand, ...]]:
    """One for each operand as it is written: {byte, thread} share their braces."""
    slots: list[tuple[Operand, ...]] = []
    for each in operands:
        if each.name.startswith("thread_"):
            slots[-1] = (*slots[-1], each)
        else:
            slots.append((each,))
    return slots


def destination(op: Instruction) -> str:
    """The operand whose registers are written; empty if it is memory.

    >>> import fragmenta as fm
    >>> destination(fm.find("wmma.load.b.col.m8n8k32.s4")), destination(
    ...     fm.find("stmatrix.m8n8.x1.b16"))
    ('b', '')
    """
    if op.family == "wmma.load":
        return op.values["operand"]
    return "d" if op.warpgroup or op.family in _LOADS else ""


# ── what was given ──────────────────────────────────────────────────────────


def _check(
    op: Instruction,
    operands: tuple[Operand, ...],
    given: list[Written],
    guard: str,
    declared: Mapping[str, str] | None,
) -> None:
    slots = _slots(operands)
    least = len(slots) - (operands[-1:] != () and operands[-1].ptx == "stride")
    if not least <= len(given) <= len(slots):
        raise BadOperands(_miscounted(op, operands, slots, given))
    widths = {guard: ("1", "the guard")} if guard else {}
    for slot, written in zip(slots, given, strict=False):
        if len(slot) > 1:
            _check_pair(op, slot, written)
            _check_pair_declared(op, written, declared)
            continue
        _check_one(op, slot[0], written)
        _check_names(op, slot[0], written, widths)
        if declared is not None:
            _check_declared(op, slot[0], written, declared)
    if declared is not None and guard and declared.get(guard) != ".pred":
        raise BadOperands(f"{op}: the guard {guard} is not declared as a .pred")


def _miscounted(
    op: Instruction,
    operands: tuple[Operand, ...],
    slots: list[tuple[Operand, ...]],
    given: list[Written],
) -> str:
    if len(given) < len(slots):
        missing = [word(op, each) for slot in slots[len(given) :] for each in slot]
        wrong = (
            f"{one_of(missing, 'and')} {'is' if len(missing) == 1 else 'are'} missing"
        )
    else:
        more = len(given) - len(slots)
        wrong = f"{more} too many, from {shortened(str(given[len(slots)]))} on"
    count = f"{len(given)} operand{'s' * (len(given) != 1)}"
    return f"{op}: given {count}, {wrong}; {syntax(op, operands)}"


def _refuse(op: Instruction, operand: Operand, is_: str, written: object) -> NoReturn:
    given = str(written)
    given = given if len(given) <= 200 else shortened(given, 200)
    raise BadOperands(f"{op}: {word(op, operand)} is {is_}; given {given}")


def _check_one(op: Instruction, operand: Operand, written: Written) -> None:
    """Whether what was written can be this operand at all."""
    if operand.ptx == "address":
        _check_address(op, operand, written)
    elif _is_vector(operand):
        _check_vector(op, operand, written)
    elif not _scalar(op, operand, written):
        _refuse(op, operand, _allowed(operand), written)


def _scalar(op: Instruction, operand: Operand, written: Written) -> bool:
    """Whether one register, predicate or constant can be this operand."""
    item, kind = written.items[0], kind_of(written.items[0])
    if written.form == "vector":  # ptxas takes one register in braces as that register
        braces = operand.ptx == ".b32" and op.family != "movmatrix"
        return braces and len(written.items) == 1 and _is_register(item)
    if written.form == "address" or item == "_":
        return False
    value = integer(item)
    if operand.ptx == ".pred":
        return kind == "name" or integer(item.removeprefix("!")) in (0, 1)
    if operand.values:
        return value in operand.values or _is_placeholder(item)
    if operand.ptx == "integer":
        return (value is not None and value >= 0) or _is_placeholder(item)
    constant = value is not None and operand.ptx in (".b64", "stride")
    return constant or _is_register(item)


def _allowed(operand: Operand) -> str:
    """What one scalar operand may be, for a message."""
    if operand.values:
        return one_of(operand.values)
    return {
        ".pred": "a predicate, which ! may negate, or 0 or 1",
        ".b64": "a descriptor: a 64-bit register or integer",
        "stride": "a 32-bit register or an integer",
        "integer": "an integer constant, 0 or more",
    }.get(operand.ptx, "one 32-bit register")


def _is_register(item: str) -> bool:
    return kind_of(item) == "name" and item != "_" and not item.startswith("!")


def _is_placeholder(item: str) -> bool:
    """Whether it is ``%5``, for which inline assembly puts its operand 5."""
    return item.startswith("%") and item[1:].isdecimal()


def _check_address(op: Instruction, operand: Operand, written: Written) -> None:
    first, *offsets = written.items
    fits = written.form == "address" and _is_register(first) and "." not in first
    if not fits or len(offsets) > 1 or any(integer(each) is None for each in offsets):
        allowed = "[register], [variable], or one of them + an integer"
        _refuse(op, operand, allowed, written)


def _check_pair(op: Instruction, slot: tuple[Operand, ...], written: Written) -> None:
    """{byte-id, thread-id}: constants in range, or 16-bit registers."""
    names = "{" + ", ".join(word(op, each) for each in slot) + "}"
    if written.form != "vector" or len(written.items) != len(slot):
        raise BadOperands(f"{op}: here stands {names}; given {written}")
    for operand, item in zip(slot, written.items, strict=True):
        if integer(item) not in operand.values and not _is_register(item):
            _refuse(op, operand, f"{one_of(operand.values)} or a register", item)


def _check_pair_declared(
    op: Instruction, written: Written, declared: Mapping[str, str] | None
) -> None:
    for name in _names(written) if declared is not None else ():
        of = declared.get(name) if declared else None
        if of not in _HALVES:
            raise BadOperands(
                f"{op}: {name} of {written} is in {one_of(_HALVES)}; given "
                f"{of or 'no declaration'}"
            )


# ── vectors ─────────────────────────────────────────────────────────────────


def _check_vector(op: Instruction, operand: Operand, written: Written) -> None:
    """Registers in braces: how many, and what else may stand among them."""
    is_ = f"{operand.count} register{'s' * (operand.count > 1)} in braces"
    if written.form == "scalar" and _is_register(written.items[0]):
        if not _has_variables(op, operand):
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


def _has_variables(op: Instruction, operand: Operand) -> bool:
    """Whether a vector variable can stand for the braces."""
    bits = 64 if operand.ptx == ".f64" else 32
    fits = operand.count in (2, 4) and operand.count * bits <= 128
    accumulates = op.warpgroup and operand.name == "d"
    return fits and op.family in _VARIABLES and not accumulates


def _check_sink(
    op: Instruction, operand: Operand, alone: bool, written: Written
) -> None:
    if operand.name != destination(op):
        _refuse(op, operand, "read, so that _ cannot stand in it", written)
    if not has_sinks(op):
        _refuse(op, operand, "read and written, so that _ cannot stand in it", written)
    if alone:
        _refuse(op, operand, "at least one register besides _", written)


def has_sinks(op: Instruction) -> bool:
    """Whether ``_`` can stand in what is written: not where it is also read.

    The tf32 of wmma takes two steps, the second of which reads D.

    >>> import fragmenta as fm
    >>> has_sinks(fm.mma("m16n8k8", a="tf32")), has_sinks(fm.wgmma("m64n8k8", a="tf32"))
    (True, False)
    """
    in_two_steps = op.family == "wmma.mma" and op.values["a"] == "tf32"
    return not (op.warpgroup or in_two_steps)


def _check_constant(op: Instruction, operand: Operand, item: str, alone: bool) -> None:
    """A constant among registers, or without any."""
    if operand.name == destination(op):
        _refuse(op, operand, "written, so that it is registers", item)
    if op.family == "wmma.mma" and operand.ptx == ".b32":
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
    written: Written,
    widths: dict[str, tuple[str, str]],
) -> None:
    """No register is a predicate here and a number there, or 32 and 64 bits wide."""
    if operand.ptx in ("address", "immediate", "integer"):
        return
    width = {".pred": "1", "stride": "32"}.get(operand.ptx, operand.ptx[-2:])
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


def _names(written: Written) -> list[str]:
    items = [item.lstrip("!") for item in written.items]
    return [item for item in items if _is_register(item)]


def _check_declared(
    op: Instruction, operand: Operand, written: Written, declared: Mapping[str, str]
) -> None:
    if operand.ptx in ("immediate", "integer"):
        return
    allowed = registers(op, operand)
    if _is_vector(operand) and written.form == "scalar":
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


def registers(op: Instruction, operand: Operand) -> list[str]:
    """The types of registers that an operand takes.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> [registers(op, each) for each in op.operands[:2]]
    [['.f32', '.b32'], ['.b32', '.f16x2']]
    """
    elements = op.values.get(operand.name) or op.values.get("type", "")
    for line in _REGISTERS:
        families, types = line["family"].split(), line["elements"].split()
        if (
            line["class"] == operand.ptx
            and (not families or op.family in families)
            and (not types or elements in types)
        ):
            return line["registers"].split()
    raise AssertionError(f"no line for {operand}")
