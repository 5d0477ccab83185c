"""Checks that all names in an instruction exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from fragmenta.errors import nearest
from fragmenta.ptx import rules
from fragmenta.ptx.checking.context import Context
from fragmenta.ptx.checking.places import LineSpan
from fragmenta.ptx.checking.problem import Problem
from fragmenta.ptx.module import (
    Address,
    Function,
    Instruction,
    Label,
    Not,
    Operand,
    OperandGroup,
    Register,
    Symbol,
    Variable,
    Vector,
)

_SPACES = ("global", "shared", "local", "const", "param")


class VisibleNames:
    """The names that the instructions of a function may use."""

    def __init__(self, context: Context, function: Function):
        self.context, self.function = context, function
        module = context.module
        given = {each.name: each for each in (*function.parameters, *function.returns)}
        # They are not merged: a module may have thousands, and as many functions.
        self._variables = (given, function.variables, module.variables)
        self._tables: tuple[Mapping[str, object], ...] = (
            *self._variables,
            module.functions,
            module.aliases,
            function.tables,
            function.prototypes,
        )

    def wrong_with(self, of: Instruction) -> Iterator[Problem]:
        """Registers, variables and labels that do not exist, or are elsewhere."""
        places = self.context.places
        guard = of.guard.of if isinstance(of.guard, Not) else of.guard
        if guard is not None and not guard.type:
            yield self._undeclared(of, guard.name, places.guard(of))
        for number, operand in enumerate(of.operands):
            for each in _parts(operand):
                if self._exists(each):
                    continue
                place = places.operand(of, number)
                if isinstance(each, Label):
                    yield self._no_label(of, each, place)
                else:
                    yield self._undeclared(of, each.name, place)
        yield from self._spaces(of)

    def _exists(self, each: Register | Symbol | Label) -> bool:
        if isinstance(each, Register):
            return bool(each.type)
        if isinstance(each, Label):
            return each.name in self.function.labels
        return any(each.name in table for table in self._tables)

    def _undeclared(self, of: Instruction, name: str, place: LineSpan) -> Problem:
        have = [each.name for each in self.function.registers if each.type]
        known = chain(have, *self._tables)
        message = f"{name} is not declared{nearest(name, known)}"
        return self.context.problem(of, rules.UNDECLARED, message, place=place)

    def _no_label(self, of: Instruction, label: Label, place: LineSpan) -> Problem:
        hint = nearest(label.text, self.function.labels)
        message = f"there is no label {label.text}{hint}"
        return self.context.problem(of, rules.LABEL, message, place=place)

    def _spaces(self, of: Instruction) -> Iterator[Problem]:
        """Whether variables are in the state spaces that the instruction names."""
        said = [word.partition("::")[0] for word in of.qualifiers]
        named = [word for word in said if word in _SPACES]
        if not named and of.is_access:
            named = ["generic"]
        addresses = (
            (number, each.base)
            for number, each in enumerate(of.operands)
            if isinstance(each, Address)
        )
        for (number, base), wanted in zip(addresses, named, strict=False):
            name = getattr(base, "name", "")
            tables = (table for table in self._variables if name in table)
            variable = next(tables, {}).get(name)
            if variable is not None and not _reaches(wanted, variable):
                where = "in any space" if wanted == "generic" else f"in .{wanted}"
                message = (
                    f"{variable.name} is in .{variable.space}; an address {where} "
                )
                message += "is wanted"
                place = self.context.places.operand(of, number)
                yield self.context.problem(of, rules.STATE_SPACE, message, place=place)


def _reaches(space: str, variable: Variable) -> bool:
    """Whether an address in a state space can be that of a variable."""
    if variable.space not in _SPACES:
        return True
    if space == "generic":
        return variable.space not in ("param", "const")
    return space == variable.space


def _parts(operand: Operand) -> Iterator[Register | Symbol | Label]:
    """The names in an operand."""
    if isinstance(operand, Register | Symbol | Label):
        yield operand
    elif isinstance(operand, Address):
        if not isinstance(operand.base, int):
            yield operand.base
        for each in operand.items:
            yield from _parts(each)
    elif isinstance(operand, Vector | OperandGroup):
        for each in operand.items:
            yield from _parts(each)
    else:
        for name in ("of", "first", "second"):
            inner = getattr(operand, name, None)
            if inner is not None:
                yield from _parts(inner)
