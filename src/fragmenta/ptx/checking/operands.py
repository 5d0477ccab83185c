"""Checks the operands of an instruction against a line of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fragmenta.errors import one_of
from fragmenta.ptx import families, rules
from fragmenta.ptx.checking import registers
from fragmenta.ptx.module import (
    Address,
    Immediate,
    Instruction,
    Label,
    Negative,
    Not,
    Operand,
    Pair,
    Register,
    RegisterPart,
    Sink,
    Special,
    Symbol,
    Vector,
)
from fragmenta.ptx.opcodes import TABLE
from fragmenta.ptx.opcodes.table import Match, Slot
from fragmenta.ptx.rules import ERROR, WARNING, Rule


class BadOperand(NamedTuple):
    """What is wrong with one operand."""

    rule: Rule
    message: str
    hint: str = ""
    operand: int | None = None
    """Its number; None for the whole instruction."""
    severity: str = ""
    """If not as the rule says."""

    @property
    def refuses(self) -> bool:
        """Whether it is an error."""
        return (self.severity or self.rule.severity) == ERROR


#: Opcodes that take registers wider than their type.
_WIDER = families.LOADS | families.STORES | families.CONVERSIONS
#: Opcodes whose result may be left out as ``_``.
_SINKS = families.COMPARISONS | families.FETCHES | families.MBARRIERS | {"lop3"}
#: Video instructions: ptxas lets a constant stand for their result.
_VIDEO = frozenset(each for each in TABLE.lines if each[0] == "v") - {"vote"}
_LOGIC = families.MOVES | {"and", "or", "xor", "not", "vote"}
#: Opcodes that take the address of a variable in the place of a register.
_ADDRESSES = families.MOVES | {"cvta", "mapa", "getctarank"}
#: Operands that are there if, and only if, a modifier is.
_TIED = {"policy": "L2__cache_hint", "mask": "multicast__cluster"}


def findings(of: Instruction, match: Match) -> list[BadOperand]:
    """Everything that is wrong with the operands, seen from one line of the table."""
    slots = _slots(of, match)
    if isinstance(slots, BadOperand):
        return [slots]
    found = []
    for number, (slot, operand) in enumerate(zip(slots, of.operands, strict=True)):
        wrong = _one(of, match, slot, operand)
        if wrong:
            found.append(wrong._replace(operand=number))
    return found or list(_together(of, match))


def _slots(of: Instruction, match: Match) -> list[Slot] | BadOperand:
    """One slot for each operand that was written, or that the number is wrong."""
    there: list[Slot] = []
    free = 0
    for slot in match.syntax.operands:
        tied = _TIED.get(slot.name) if slot.optional else None
        if slot.hidden or (tied and not match.qualifiers.get(tied)):
            continue
        there.append(slot)
        free += slot.optional and not tied
    given = len(of.operands)
    lax = _passes(of, match)
    if lax and given == len(there) + lax:
        return BadOperand(
            rules.OPERAND_COUNT, _miscounted(of, there, free), severity=WARNING
        )
    if not len(there) - free <= given <= len(there):
        return BadOperand(rules.OPERAND_COUNT, _miscounted(of, there, free))
    out = len(there) - given
    slots = []
    for slot in reversed(there):  # the last operands that may be left out are
        if out and slot.optional and slot.name not in _TIED:
            out -= 1
        else:
            slots.append(slot)
    return slots[::-1]


def _passes(of: Instruction, match: Match) -> int:
    """How many operands too many or too few ptxas lets pass; 0 for none.

    It ignores a fourth one of ``atom.exch``, and lets the barrier of an asynchronous
    store be left out.
    """
    if of.is_fetch and "exch" in of.qualifiers:
        return 1
    waits = any(slot.name == "mbar" for slot in match.syntax.operands)
    return -1 if of.is_write and waits and not match.qualifiers.get("vec") else 0


def _miscounted(of: Instruction, slots: list[Slot], free: int) -> str:
    most, given = len(slots), len(of.operands)
    takes = str(most) if not free else f"{most - free} to {most}"
    names = ", ".join(
        f"{{{each.name}}}" if each.optional else each.name for each in slots
    )
    plural = "s" * (most != 1)
    return (
        f"{of.mnemonic} takes {takes} operand{plural}{f' ({names})' if names else ''}; "
        f"given {given}"
    )


def _one(
    of: Instruction, match: Match, slot: Slot, operand: Operand
) -> BadOperand | None:
    """What is wrong with one operand."""
    if slot.address:
        return _address(of, match, slot, operand)
    special = _KINDS.get(slot.type)
    if special:
        return special(of, match, slot, operand)
    if slot.name == "sink":
        return None if isinstance(operand, Sink) else _no(slot, "_", operand)
    if isinstance(operand, Pair):
        return _pair(of, match, slot, operand)
    kind = match.syntax.type_of(slot, match.qualifiers)
    count = _count(match.qualifiers, slot)
    if count:
        return _vector(of, slot, operand, kind, count)
    if isinstance(operand, Vector):
        return _braced(of, slot, operand, kind)
    return _scalar(of, slot, operand, kind)


def _count(qualifiers: Mapping[str, str], slot: Slot) -> int:
    """How many registers in braces an operand has; 0 for none."""
    word = qualifiers.get(slot.vector, slot.vector).lstrip("v")
    return int(word) if word.isdecimal() else 0


def _no(slot: Slot, allowed: str, operand: Operand) -> BadOperand:
    return BadOperand(
        rules.OPERAND, f"{slot.name} is {allowed}; given {quoted(operand)}"
    )


# ── registers and constants ─────────────────────────────────────────────────


def _scalar(
    of: Instruction, slot: Slot, operand: Operand, kind: str
) -> BadOperand | None:
    wider = of.opcode in _WIDER
    if isinstance(operand, Register):
        if operand.vector and of.opcode in _VIDEO:
            return _no(slot, "no element of a vector register", operand)
        if registers.fits(operand.type, kind, wider):
            return None
        if operand.type == "f16x2" and kind == "pred" and of.opcode in _LOGIC:
            return None  # ptxas lets it pass
        if of.opcode == "multimem" and kind[0] == "e":  # fp8 in registers of any kind
            return None
        return _wrong_register(of, slot, operand, kind)
    if isinstance(operand, RegisterPart | Negative):
        return _selected(of, slot, operand)
    if isinstance(operand, Not):
        if kind == "pred" and not slot.result:
            return None
        return _no(slot, f"a .{kind} register", operand)
    if slot.result:
        if isinstance(operand, Sink) and of.opcode in _SINKS:
            return None
        wrong = _no(slot, f"written, so that it is a .{kind} register", operand)
        lax = of.opcode in _VIDEO and isinstance(operand, Immediate)
        return wrong._replace(severity=WARNING) if lax else wrong
    if isinstance(operand, Immediate) and of.opcode != "stackrestore":
        return _constant(slot, operand, kind)
    if isinstance(operand, Special):
        return _special(of, slot, operand, kind)
    if isinstance(operand, Symbol) and of.opcode in _ADDRESSES:
        return None
    return _no(slot, f"a .{kind} register" if kind else "a register", operand)


def _bits(kind: str) -> str:
    """The ``.b`` type of the same size."""
    return f"b{8 * registers.size(kind)}"


def _wrong_register(
    of: Instruction, slot: Slot, operand: Register | Special, kind: str
) -> BadOperand:
    hint, have = "", _type(operand)
    same = registers.size(have) == registers.size(kind)
    if "pred" not in (kind, have) and same:
        hint = f"mov.{_bits(kind)} moves its bits into a .{kind} register"
    return BadOperand(
        rules.REGISTER,
        f"{slot.name} of {of.mnemonic} is a .{kind} register; {operand.name} is "
        f"declared as .{have}",
        hint,
    )


def _constant(slot: Slot, operand: Immediate, kind: str) -> BadOperand | None:
    if not registers.constant_fits(operand.form, kind):
        return BadOperand(
            rules.CONSTANT,
            f"{slot.name} is of type .{kind}; given {registers.described(operand)}",
            "a constant is written as 0f3F800000 or 1.0"
            if kind in ("f32", "f64")
            else "",
        )
    return _in_range(slot, operand)


def _in_range(slot: Slot, operand: Operand) -> BadOperand | None:
    if not slot.values or not isinstance(operand, Immediate):
        return None
    if any(_allows(each, int(operand.value)) for each in slot.values):
        return None
    return BadOperand(
        rules.CONSTANT, f"{slot.name} is {one_of(slot.values)}; given {operand.value}"
    )


def _allows(values: str, number: int) -> bool:
    """Whether ``4``, ``0..15`` or ``24..256/8`` has a number."""
    bounds, _, step = values.partition("/")
    first, _, last = bounds.partition("..")
    return int(first) <= number <= int(last or first) and number % int(step or 1) == 0


def _special(
    of: Instruction, slot: Slot, operand: Special, kind: str
) -> BadOperand | None:
    have = registers.special_type(operand)
    if not (of.is_move or of.is_conversion) or registers.kind(kind) in ("f", "packed"):
        hint = (
            f"read it with mov.{have.replace('u', 'b')} first" if have != "pred" else ""
        )
        return BadOperand(
            rules.OPERAND,
            f"{of.mnemonic} does not take the special register {operand.name}",
            hint,
        )
    if kind in ("u16", "b16", "s16") or registers.fits(have, kind, of.is_conversion):
        return None
    return BadOperand(
        rules.REGISTER,
        f"{slot.name} of {of.mnemonic} is of type .{kind}; {operand.name} is .{have}",
    )


def _selected(
    of: Instruction, slot: Slot, operand: RegisterPart | Negative
) -> BadOperand | None:
    """A part of a register or a minus sign, which video instructions take."""
    inner = operand.of if isinstance(operand, Negative) else operand
    minus = isinstance(operand, Negative) and not slot.negatable
    part = isinstance(inner, RegisterPart) and inner.which not in slot.selectors
    if not minus and not part:
        return None
    name = quoted(inner if part else operand)
    return BadOperand(rules.OPERAND, f"{slot.name} of {of.mnemonic} cannot be {name}")


# ── several registers ───────────────────────────────────────────────────────


def _braced(
    of: Instruction, slot: Slot, operand: Vector, kind: str
) -> BadOperand | None:
    """Braces where the line has none: one register in them, or mov."""
    if of.is_move:
        return _packed(of, slot, operand, kind)
    if len(operand.items) == 1 and of.opcode in _WIDER:
        return _scalar(of, slot, operand.items[0], kind)
    return _no(slot, f"one .{kind} register", operand)


def _packed(
    of: Instruction, slot: Slot, operand: Vector, kind: str
) -> BadOperand | None:
    """What ``mov`` packs into one register, or unpacks from it."""
    count, total = len(operand.items), registers.size(kind) if kind else 0
    if registers.kind(kind) != "b" and count > 1:
        return BadOperand(
            rules.OPERAND, f"{of.mnemonic} takes no braces; mov.b{8 * total} does"
        )
    sizes = {registers.size(kind) for kind in map(_type, operand.items) if kind}
    for each in operand.items:
        if isinstance(each, Register) and each.type == "pred":
            return predicate_among(each)
        if slot.result and isinstance(each, Immediate):
            return _no(slot, "written, so that it is registers", each)
    if len(sizes) > 1:
        return BadOperand(
            rules.REGISTER, f"{slot.name} has registers of different sizes in braces"
        )
    if sizes and total and sizes.pop() * count != total:
        return BadOperand(
            rules.REGISTER,
            f"{slot.name} has {count} registers, which are not {8 * total} bits",
        )
    return None


def _vector(
    of: Instruction, slot: Slot, operand: Operand, kind: str, count: int
) -> BadOperand | None:
    if not isinstance(operand, Vector) or len(operand.items) != count:
        wrong = _no(slot, f"{count} registers in braces", operand)
        # ptxas takes one register or constant in mov, and puts bytes of it anywhere.
        lax = of.is_move and not slot.result and not isinstance(operand, Vector)
        lax = lax and _scalar(of, slot, operand, kind) is None
        return wrong._replace(severity=WARNING) if lax else wrong
    if operand.name and of.opcode == "multimem":
        return _no(slot, f"{count} registers in braces", operand)
    if isinstance(operand.items[0], Special) and operand.name:  # %tid, all of it
        return _special(of, slot, operand.items[0], kind)
    items = [each for each in operand.items if not isinstance(each, Sink)]
    if not items:
        return _no(slot, "at least one register besides _", operand)
    if len(items) < count and not slot.result:
        return _no(slot, "read, so that _ cannot stand in it", operand)
    return _elements(of, slot, items, kind)


def _elements(
    of: Instruction, slot: Slot, items: Sequence[Operand], kind: str
) -> BadOperand | None:
    """Registers in braces have one size, and at least one has the right kind.

    Special registers that are read are registers like others.
    """
    have = [
        each for each in items if isinstance(each, Register | Special) and _type(each)
    ]
    predicates = [
        each for each in have if isinstance(each, Register) and each.type == "pred"
    ]
    if predicates and len(predicates) < len(have):
        return predicate_among(predicates[0])
    if len({registers.size(_type(each)) for each in have}) > 1:
        return BadOperand(
            rules.REGISTER, f"{slot.name} has registers of different sizes in braces"
        )
    wider = of.opcode in _WIDER
    wrong = [
        each for each in have if not registers.fits(_type(each), kind, wider, True)
    ]
    if wrong and len(wrong) == len(items):
        return _wrong_register(of, slot, wrong[0], kind)
    constants = [each for each in items if isinstance(each, Immediate)]
    read = [each for each in items if isinstance(each, Special)]
    if read and (slot.result or constants):
        what = "registers without constants" if constants else "registers"
        return _no(slot, f".{kind} {what}", read[0])
    if len(constants) == len(items) or (of.is_move and have):
        beside = _type(have[0]) if have else kind
        found = (_scalar(of, slot, each, beside) for each in constants)
        unfit = next((each for each in found if each), None)
        if unfit:
            return unfit
    for each in items:
        if isinstance(each, Immediate) and not slot.result:
            continue
        if not isinstance(each, Register | RegisterPart | Special):
            return _no(slot, f".{kind} registers", each)
    return None


def _type(operand: Operand) -> str:
    """The type of a register, also of a special one; nothing for other operands."""
    if isinstance(operand, Special):
        return registers.special_type(operand)
    return operand.type if isinstance(operand, Register) else ""


def predicate_among(register: Register) -> BadOperand:
    """A predicate in braces beside registers: ptxas lets it pass, PTX does not."""
    return BadOperand(
        rules.REGISTER,
        f"{register.name} is a predicate among registers",
        severity=WARNING,
    )


def _pair(
    of: Instruction, match: Match, slot: Slot, operand: Pair
) -> BadOperand | None:
    """``%p|%q`` and ``%d|%p``."""
    if "|" not in slot.name:
        return _no(slot, "one operand", operand)
    kind = match.syntax.type_of(slot, match.qualifiers)
    kinds = ("pred", "pred") if slot.name == "p|q" else (kind, "pred")
    for each, type_ in zip((operand.first, operand.second), kinds, strict=True):
        if isinstance(each, Sink):
            continue
        if not isinstance(each, Register) or not registers.fits(each.type, type_):
            return _no(slot, f"a .{kinds[0]} and a .{kinds[1]} register", operand)
    if of.opcode == "elect" and isinstance(operand.second, Sink):
        return _no(slot, "a register or _, and a predicate", operand)
    if of.is_shuffle and isinstance(operand.first, Sink):
        return _no(slot, "a register, and a predicate or _", operand)
    return None


# ── operands of a special kind ──────────────────────────────────────────────


def _address(
    of: Instruction, match: Match, slot: Slot, operand: Operand
) -> BadOperand | None:
    if not isinstance(operand, Address):
        wrong = f"{slot.name} is an address in [ ]; given {quoted(operand)}"
        lax = "bulk" in of.qualifiers and isinstance(operand, Register)
        return BadOperand(rules.OPERAND, wrong, severity=WARNING if lax else "")
    base = operand.base
    if isinstance(base, int) and "local" not in of.qualifiers and of.opcode != "fence":
        return BadOperand(
            rules.OPERAND, "an address that is a constant is for .local only"
        )
    if isinstance(base, Register) and not registers.is_address(base.type):
        return BadOperand(
            rules.REGISTER,
            f"an address is in an integer register; {base.name} is .{base.type}",
            severity=WARNING if slot.type == "tensor" else "",
        )
    if slot.type == "tensor":
        return _coordinates(match, slot, operand)
    if operand.items and of.opcode not in ("tex", "tld4"):
        return _no(slot, "an address without coordinates", operand)
    return None


def _coordinates(match: Match, slot: Slot, operand: Address) -> BadOperand | None:
    count = _dimension(match)
    given = operand.items[0] if operand.items else None
    if not isinstance(given, Vector) or len(given.items) != count:
        return _no(slot, f"[tensor map, {{{count} coordinates}}]", operand)
    for each in given.items:
        if isinstance(each, Register) and not registers.fits(each.type, "b32"):
            if each.type == "pred":
                return predicate_among(each)
            wrong = f"coordinates have 32 bits; {each.name} is .{each.type}"
            return BadOperand(rules.REGISTER, wrong)
    return None


def _dimension(match: Match) -> int:
    """How many coordinates a copy has."""
    if "gather4" in match.syntax.text or "scatter4" in match.syntax.text:
        return 5  # a column, and four rows
    return int(match.qualifiers["dim"][0])


def _offsets(
    of: Instruction, match: Match, slot: Slot, operand: Operand
) -> BadOperand | None:
    mode = match.qualifiers.get("mode", "")
    count = _dimension(match) - 2 if mode == "im2col" else 2
    if not isinstance(operand, Vector) or len(operand.items) != count:
        return _no(slot, f"{count} registers of 16 bits in braces", operand)
    return _elements(of, slot, operand.items, "b16")


def _immediate(
    of: Instruction, match: Match, slot: Slot, operand: Operand
) -> BadOperand | None:
    if not isinstance(operand, Immediate) or operand.form != "int":
        return _no(slot, "an integer constant", operand)
    return _in_range(slot, operand)


def _label(
    of: Instruction, match: Match, slot: Slot, operand: Operand
) -> BadOperand | None:
    return None if isinstance(operand, Label) else _no(slot, "a label", operand)


def _targets(
    of: Instruction, match: Match, slot: Slot, operand: Operand
) -> BadOperand | None:
    if isinstance(operand, Symbol | Label):
        return None
    return _no(slot, "the name of a list of .branchtargets", operand)


def _pointer(
    of: Instruction, match: Match, slot: Slot, operand: Operand
) -> BadOperand | None:
    if isinstance(operand, Register):
        if any(registers.fits(operand.type, each) for each in ("u32", "u64")):
            return None
        return _wrong_register(of, slot, operand, "u64")
    return None if isinstance(operand, Immediate) else _no(slot, "a register", operand)


def _ignored(
    of: Instruction, match: Match, slot: Slot, operand: Operand
) -> BadOperand | None:
    """The fourth operand of cp.async: a size, or a predicate."""
    if isinstance(operand, Not):
        return None
    if isinstance(operand, Register) and operand.type == "pred":
        return None
    return _scalar(of, slot, operand, "u32")


_Check = Callable[[Instruction, Match, Slot, Operand], BadOperand | None]
_KINDS: dict[str, _Check] = {
    "imm": _immediate,
    "label": _label,
    "targets": _targets,
    "address": _pointer,
    "src": _ignored,
    "im2col": _offsets,
}


# ── the instruction as a whole ──────────────────────────────────────────────


def _together(of: Instruction, match: Match) -> Iterator[BadOperand]:
    """Problems of several operands together."""
    found = match.qualifiers
    if of.is_move and not found.get("vec"):
        yield from _both_vectors(of)
    space = found.get("space", "")
    everywhere = space in ("", "global")
    if found.get("L2__cache_hint") and not everywhere and not of.is_copy:
        yield BadOperand(rules.MODIFIERS, f".L2::cache_hint does not go with .{space}")
    bits = bits_at_once(of, match)
    wide = everywhere and of.opcode != "ldu" and "async" not in of.qualifiers
    wide = wide and found.get("type") != "b128"
    if bits > (256 if wide else 128):
        most = 256 if wide else 128
        yield BadOperand(
            rules.MODIFIERS, f"{of.mnemonic} has {bits} bits; at most {most}"
        )
    if of.is_barrier and "cluster" not in of.qualifiers:
        yield from _threads(of)


def _both_vectors(of: Instruction) -> Iterator[BadOperand]:
    """``mov`` without ``.v2`` or ``.v4`` packs or unpacks one register."""
    if all(isinstance(each, Vector) for each in of.operands):
        yield BadOperand(
            rules.OPERAND,
            f"{of.mnemonic} has a vector on both sides",
            "mov.v2 and mov.v4 move a vector",
        )


def bits_at_once(of: Instruction, match: Match) -> int:
    """How many bits a vector that is loaded or stored has; 0 without a vector."""
    slot = next((each for each in match.syntax.operands if each.vector), None)
    if slot is None or not (of.is_load or of.is_store):
        return 0
    kind = match.syntax.type_of(slot, match.qualifiers)
    return 8 * _count(match.qualifiers, slot) * registers.size(kind)


def _threads(of: Instruction) -> Iterator[BadOperand]:
    """The number of threads at a barrier is a multiple of a warp."""
    number, count = (2, 4) if of.votes else (1, 2)
    given = of.operands[number] if len(of.operands) == count else None
    if not isinstance(given, Immediate):
        return
    threads = int(given.value)
    if threads % 32 or (not threads and "arrive" in of.qualifiers):
        yield BadOperand(
            rules.CONSTANT,
            f"a barrier counts warps, multiples of 32 threads; given {given.value}",
            operand=number,
        )


def quoted(operand: Operand) -> str:
    """An operand as a message quotes it."""
    if isinstance(operand, Register | Special | Symbol):
        return operand.name
    if isinstance(operand, Immediate):
        return str(operand.value)
    if isinstance(operand, Not):
        return f"!{operand.of.name}"
    if isinstance(operand, Label):
        return operand.text
    if isinstance(operand, Sink):
        return "_"
    if isinstance(operand, Vector):
        return operand.name or "{" + ", ".join(map(quoted, operand.items)) + "}"
    if isinstance(operand, RegisterPart):
        return f"{quoted(operand.of)}.{operand.which}"
    if isinstance(operand, Negative):
        return f"-{quoted(operand.of)}"
    if isinstance(operand, Pair):
        return f"{quoted(operand.first)}|{quoted(operand.second)}"
    if isinstance(operand, Address):
        base = operand.base if isinstance(operand.base, int) else quoted(operand.base)
        return f"[{base}]"
    return type(operand).__name__.lower()
