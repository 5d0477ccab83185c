"""Checks of one instruction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fragmenta.ptx import rules
from fragmenta.ptx.checking import mnemonics, requirements, tensor
from fragmenta.ptx.checking.context import Context
from fragmenta.ptx.checking.operands import (
    BadOperand,
    findings,
    predicate_among,
    quoted,
)
from fragmenta.ptx.checking.places import LineSpan
from fragmenta.ptx.checking.problem import Problem
from fragmenta.ptx.checking.registers import fits
from fragmenta.ptx.host_functions import missing
from fragmenta.ptx.module import (
    Instruction,
    Not,
    Operand,
    OperandGroup,
    Register,
    Sink,
    Symbol,
    Variable,
    Vector,
    demangled,
)
from fragmenta.ptx.opcodes.table import Match
from fragmenta.ptx.opcodes.tensor import TENSOR
from fragmenta.ptx.rules import ERROR, WARNING
from fragmenta.reference.isa.instruction import Instruction as Tensor
from fragmenta.reference.isa.target import Version


def wrong_with(of: Instruction, context: Context) -> Iterator[Problem]:
    """All problems of an instruction, except those of names."""
    guard = of.guard.of if isinstance(of.guard, Not) else of.guard
    if guard is not None and guard.type not in ("pred", ""):
        message = f"a guard is a predicate; {guard.name} is declared as .{guard.type}"
        place = context.places.guard(of)
        yield context.problem(of, rules.REGISTER, message, place=place)
    if of.opcode in TENSOR:
        yield from _tensor(of, context)
    else:
        yield from _ordinary(of, context)


def _place(of: Instruction, context: Context, operand: int | None) -> LineSpan | None:
    return None if operand is None else context.places.operand(of, operand)


# ── Tensor Cores ────────────────────────────────────────────────────────────


def _tensor(of: Instruction, context: Context) -> Iterator[Problem]:
    op = tensor.named(of.mnemonic)
    if isinstance(op, tensor.Remark):
        yield _remarked(of, context, op)
        return
    given, manual = of.mnemonic.split("."), str(op).split(".")
    if given != manual and sorted(given) == sorted(manual):
        if context.first(of.mnemonic):
            yield _reordered(of, context, str(op))
    elif "aligned" in manual and "aligned" not in given:
        message = f"{of.mnemonic} lacks .aligned"
        yield context.problem(of, rules.TENSOR, message, severity=WARNING)
    if of.operands or context.declared:  # not a mnemonic alone
        yield from _tensor_operands(of, op, context)
    whole = tensor.described(op, of)
    if isinstance(whole, tensor.Remark):
        yield _remarked(of, context, whole)
        whole = op
    for each in tensor.remarks(whole, context.targets, context.version):
        problem = _remarked(of, context, each)
        if problem.severity == ERROR or context.first(each):
            yield problem


def _tensor_operands(
    of: Instruction, op: Tensor, context: Context
) -> Iterator[Problem]:
    _, text = context.places.statement(of)
    written = context.places.operands_text(text)
    found = tensor.fit(op, of, written, context.declared)
    if isinstance(found, tensor.Remark):
        yield _remarked(of, context, found)
        return
    lacks = tensor.unsupported(op, found, context.targets)
    if lacks:
        yield _remarked(of, context, lacks)
    among = tensor.predicate(of)
    if among:
        said = predicate_among(among)
        yield context.problem(of, said.rule, said.message, severity=said.severity)


def _remarked(of: Instruction, context: Context, remark: tensor.Remark) -> Problem:
    """What the catalogue says about an instruction, as a problem."""
    place = _place(of, context, remark.operand)
    return context.problem(
        of, remark.rule, remark.message, remark.hint, place, remark.severity
    )


def _reordered(of: Instruction, context: Context, manual: str) -> Problem:
    """The problem for modifiers in another order than the manual's."""
    message = f"ptxas takes {of.mnemonic}, but the manual has another order"
    hint = f"the manual has {manual}"
    return context.problem(of, rules.MODIFIER_ORDER, message, hint)


# ── all others ──────────────────────────────────────────────────────────────


def _ordinary(of: Instruction, context: Context) -> Iterator[Problem]:
    said = mnemonics.reading(of.mnemonic)
    if said.rule is not None:
        if said.refuses or context.first(said.message):
            at = None if said.at is None else context.places.qualifier(of, said.at)
            yield context.problem(
                of, said.rule, said.message, said.hint, at, said.severity
            )
        return
    if not said.matches:
        return
    if not said.ordered and context.first(of.mnemonic):
        yield _reordered(of, context, mnemonics.spelled(said.matches[0].syntax))
    if of.opcode == "call":
        yield from _call(of, context)
    elif of.operands or context.declared:  # not a mnemonic alone
        yield from _operands(of, nearest_line(of, said.matches), context)


def nearest_line(of: Instruction, matches: Sequence[Match]) -> Match:
    """The line of the table that the operands of an instruction fit best."""
    return min(matches, key=lambda each: _weight(findings(of, each)))


def _weight(found: list[BadOperand]) -> int:
    """How far a line is from what was written: operands that miss count most."""
    return sum(100 if each.rule == rules.OPERAND_COUNT else 1 for each in found)


def _operands(of: Instruction, match: Match, context: Context) -> Iterator[Problem]:
    found = findings(of, match)
    for each in found:
        place = _place(of, context, each.operand)
        yield context.problem(
            of, each.rule, each.message, each.hint, place, each.severity
        )
    if not found:
        yield from _lacks(of, match, context)


def _lacks(of: Instruction, match: Match, context: Context) -> Iterator[Problem]:
    """The first version or target that the instruction lacks."""
    version = context.version
    for need in requirements.needs(of, match):
        if need.ptx and version and version < need.ptx:
            have = Version(*version)
            message = f"{need.what} needs PTX {need.ptx}; the file has {have}"
            yield context.problem(of, rules.VERSION, message)
            return
        for target in context.targets:
            if need.targets is not None and target not in need.targets:
                message = f"{target} does not have {need.what}"
                hint = f"it needs {requirements.listed(need.text)}"
                yield context.problem(of, rules.TARGET, message, hint)
                return


def _call(of: Instruction, context: Context) -> Iterator[Problem]:
    """Whether a call gives its function as many arguments as that takes."""
    groups = [each for each in of.operands if isinstance(each, OperandGroup)]
    named = [each for each in of.operands if isinstance(each, Symbol)]
    if not context.declared or not named:
        return
    name = context.module.aliases.get(named[0].name, named[0].name)
    called = context.module.functions.get(name)
    if called is None:
        return
    if called.kernel:
        message = f"{called.shown} is a kernel, which cannot be called"
        yield context.problem(of, rules.OPERAND, message)
        return
    why = missing(name) if called.declared_only else ""
    if why and context.first(("missing", name)):
        yield context.problem(of, rules.UNSUPPORTED, why)
    first = bool(groups) and of.operands[0] is groups[0]
    given = len(groups[-1].items) if len(groups) > first else 0
    results = len(groups[0].items) if first else 0
    takes, returns = len(called.parameters), len(called.returns)
    if (given, results) != (takes, returns):
        message = (
            f"{called.shown} has {takes} parameters, {returns} results; the call has "
            f"{given} and {results}"
        )
        yield context.problem(of, rules.OPERAND_COUNT, message)
        return
    formals = [*(called.returns if first else ()), *called.parameters]
    actuals = [item for group in groups for item in group.items]
    for formal, actual in zip(formals, actuals, strict=True):
        if not _passes(formal, actual):
            kind = f".v{formal.elements} " * (formal.elements != 1) + f".{formal.type}"
            message = f"{demangled(formal.name)} of {called.shown} is a {kind} register"
            message += f"; given {quoted(actual)}"
            yield context.problem(of, rules.REGISTER, message)


def _passes(formal: Variable, actual: Operand) -> bool:
    """Whether a call can give or get an operand as a parameter that is a register."""
    if formal.space != "reg" or isinstance(actual, Sink):
        return True
    items = actual.items if isinstance(actual, Vector) else (actual,)
    return len(items) == (formal.elements or 1) and all(
        not isinstance(each, Register) or fits(each.type, formal.type) for each in items
    )
