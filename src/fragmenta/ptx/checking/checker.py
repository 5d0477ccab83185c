"""What is wrong with a PTX module?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fragmenta.errors import nearest
from fragmenta.isa.target import TARGETS, Version, check_target
from fragmenta.ptx.checking import memory, mnemonics, requirements, tensor
from fragmenta.ptx.checking.divergence import Divergence
from fragmenta.ptx.checking.effects import Effects, effects
from fragmenta.ptx.checking.flow import blocks
from fragmenta.ptx.checking.operands import Finding, findings, predicate_among
from fragmenta.ptx.checking.places import Place, Places
from fragmenta.ptx.checking.problem import ERROR, INFO, WARNING, Problem
from fragmenta.ptx.checking.reaching import unwritten
from fragmenta.ptx.module import (
    Address,
    Function,
    Group,
    Instruction,
    Label,
    Module,
    Not,
    Operand,
    Register,
    Symbol,
    Variable,
    Vector,
)
from fragmenta.ptx.opcodes.tensor import TENSOR


_SPACES = ("global", "shared", "local", "const", "param")
#: What is said about a register that is read too early.
_WHEN = {
    "never": "is never written",
    "later": "is written only later",
    "maybe": "is not written on every way to here",
}


def check(module: Module, target: str | None = None) -> list[Problem]:
    """Everything that is wrong with a module, or worth knowing, in the order of the text.

    With ``target``, also whether this target can run it.

    >>> from fragmenta.ptx.reading import parse
    >>> module = parse('''
    ... .version 8.0
    ... .target sm_90a
    ... .entry f() {
    ...     .reg .b32 %r<2>; .reg .f32 %f<2>;
    ...     mov.b32 %r1, 0;
    ...     mov.f32 %f1, 0f00000000;
    ...     add.s32 %r1, %r1, %f1;
    ...     ret;
    ... }
    ... ''')
    >>> for problem in check(module):
    ...     print(problem)
    8:23: error: b of add.s32 is a .s32 register; %f1 is declared as .f32
    """
    if target is not None:
        check_target(target)
    return Checker(module, target).problems()


class Checker:
    """Checks one module."""

    def __init__(self, module: Module, target: str | None, declared: bool = True):
        self.module = module
        self.declared = declared
        """Whether the registers are declared; not so in a single instruction."""
        self.places = Places(module.text)
        self.targets = tuple(
            each for each in dict.fromkeys((module.target, target)) if each in TARGETS
        )
        self.version: tuple[int, int] | None = module.version if declared else None
        self.wanted = target
        self._good: set[object] = set()
        """What was found to be right before, as operands without names."""

    def problems(self) -> list[Problem]:
        """Everything, in the order of the text."""
        found = list(self._target())
        for function in self.module.functions.values():
            if not function.declared_only:
                found += FunctionChecker(self, function).problems()
        return sorted(found, key=lambda each: (each.line, each.column))

    def problem(
        self,
        rule: str,
        severity: str,
        place: Place,
        message: str,
        hint: str = "",
        function: str = "",
        instruction: Instruction | None = None,
    ) -> Problem:
        """A problem at a place of the text."""
        return Problem(
            rule,
            severity,
            place.line,
            place.column,
            self.places.line(place.line),
            message,
            hint,
            function,
            instruction.source if instruction else None,
            place.length,
        )

    def _target(self) -> Iterator[Problem]:
        """Whether the version has the file's target, and that can run on the wanted one."""
        target, version = self.module.target, self.module.version
        found = re.search(r"\.target\s+([\w, ]+)", self.places.clean)
        at = self.places.of(found.start(1), len(target)) if found else Place(1, 1, 1)
        if not self.declared:
            return
        if target not in TARGETS:
            old = re.fullmatch(r"sm_[1-6]\d", target)  # before the Tensor Cores
            if not old:
                message = f"no target {target}{nearest(target, TARGETS)}"
                yield self.problem("target", WARNING, at, message)
            return
        if version < TARGETS[target]:
            yield self.problem(
                "version",
                ERROR,
                at,
                f"{target} needs PTX {TARGETS[target]}; the file has {Version(*version)}",
            )
        if self.wanted and not runs_on(target, self.wanted):
            yield self.problem(
                "target",
                ERROR,
                at,
                f"PTX for {target} cannot be assembled for {self.wanted}",
            )


def runs_on(written: str, target: str) -> bool:
    """Whether PTX for one target can be assembled for another.

    >>> runs_on("sm_80", "sm_90a"), runs_on("sm_90a", "sm_100a"), runs_on("sm_100f", "sm_103a")
    (True, False, True)
    """
    if written == target:
        return True
    numbers = [int(each[3:].rstrip("af")) for each in (written, target)]
    if written.endswith("a"):
        return False
    if written.endswith("f"):
        same = numbers[0] // 10 == numbers[1] // 10
        return same and numbers[0] <= numbers[1] and target[-1] in "af"
    return numbers[0] <= numbers[1]


class FunctionChecker:
    """Checks one function."""

    def __init__(self, checker: Checker, function: Function):
        self.checker, self.function = checker, function
        self.module, self.places = checker.module, checker.places
        self.said: set[object] = set()
        """What need not be said again in this function."""
        self.known = {
            *self.module.variables, *self.module.functions, *self.module.aliases,
            *function.variables, *function.tables, *function.prototypes,
            *(each.name for each in (*function.parameters, *function.returns)),
        }  # fmt: skip

    def problems(self) -> Iterator[Problem]:
        """Everything about the function."""
        good = self.checker._good
        for each in self.function.instructions:
            key = tensor.signature(each)
            if key in good:
                if self.checker.declared:
                    yield from self._names(each)
                continue
            found = list(self._instruction(each))
            yield from found
            if self.checker.declared:
                yield from self._names(each)
            if not found:
                good.add(key)
        if self.checker.declared and self.function.instructions:
            yield from self._flow()
            yield from self._shared()

    def _make(
        self,
        of: Instruction,
        rule: str,
        severity: str,
        message: str,
        hint: str = "",
        place: Place | None = None,
    ) -> Problem:
        place = place or self.places.whole(of)
        return self.checker.problem(
            rule, severity, place, message, hint, self.function.name, of
        )

    def _first(self, remark: object) -> bool:
        """Whether something is to be said for the first time in this function."""
        known = remark in self.said
        self.said.add(remark)
        return not known

    # ── one instruction ─────────────────────────────────────────────────────

    def _instruction(self, of: Instruction) -> Iterator[Problem]:
        guard = of.guard.of if isinstance(of.guard, Not) else of.guard
        if guard is not None and guard.type not in ("pred", ""):
            yield self._make(
                of,
                "register",
                ERROR,
                f"a guard is a predicate; {guard.name} is declared as .{guard.type}",
                place=self.places.guard(of),
            )
        if of.opcode in TENSOR:
            yield from self._tensor(of)
        else:
            yield from self._ordinary(of)

    def _tensor(self, of: Instruction) -> Iterator[Problem]:
        op = tensor.named(of.mnemonic)
        if isinstance(op, tensor.Remark):
            yield self._make(of, *op[:4])
            return
        given, manual = of.mnemonic.split("."), str(op).split(".")
        if (
            given != manual
            and sorted(given) == sorted(manual)
            and self._first(of.mnemonic)
        ):
            yield self._make(of, "modifier-order", INFO, *_ordered(of, str(op)))
        if of.operands or self.checker.declared:  # not a mnemonic alone
            _, text = self.places.statement(of)
            written = self.places.operands_text(text)
            wrong = tensor.unfit(op, of, written, self.checker.declared)
            among = tensor.predicate(of)
            if among and not wrong:
                yield self._make(
                    of,
                    *predicate_among(among)[:1],
                    WARNING,
                    predicate_among(among).message,
                )
            if wrong:
                place = None
                if wrong.operand is not None:
                    place = self.places.operand(of, wrong.operand)
                yield self._make(of, *wrong[:4], place)
        for each in tensor.remarks(op, self.checker.targets, self.checker.version):
            if each.severity == ERROR or self._first(each):
                yield self._make(of, *each[:4])

    def _ordinary(self, of: Instruction) -> Iterator[Problem]:
        said = mnemonics.reading(of.mnemonic)
        if said.rule:
            place = None if said.at is None else self.places.qualifier(of, said.at)
            yield self._make(
                of, said.rule, said.severity, said.message, said.hint, place
            )
            return
        if not said.matches:
            return
        if not said.ordered and self._first(of.mnemonic):
            near = mnemonics.spelled(said.matches[0].syntax)
            yield self._make(of, "modifier-order", INFO, *_ordered(of, near))
        if of.opcode == "call":
            yield from self._call(of)
            return
        if not of.operands and not self.checker.declared:
            return  # a mnemonic alone
        tried = [findings(of, match) for match in said.matches]
        best = min(range(len(tried)), key=lambda i: _weight(tried[i]))
        for wrong in tried[best]:
            place = None
            if wrong.operand is not None:
                place = self.places.operand(of, wrong.operand)
            yield self._make(
                of, wrong.rule, wrong.severity, wrong.message, wrong.hint, place
            )
        if not tried[best]:
            yield from self._needs(of, best)

    def _needs(self, of: Instruction, best: int) -> Iterator[Problem]:
        """The first version or target that the instruction lacks."""
        match = mnemonics.reading(of.mnemonic).matches[best]
        for need in requirements.needs(of, match):
            version = self.checker.version
            if need.ptx and version and version < need.ptx:
                message = f"{need.what} needs PTX {need.ptx}; the file has {Version(*version)}"
                yield self._make(of, "version", ERROR, message)
                return
            for target in self.checker.targets:
                if need.targets is not None and target not in need.targets:
                    message = f"{target} does not have {need.what}"
                    hint = f"it needs {requirements.told(need.text)}"
                    yield self._make(of, "target", ERROR, message, hint)
                    return

    def _call(self, of: Instruction) -> Iterator[Problem]:
        """Whether a call gives its function as many arguments as that takes."""
        groups = [each for each in of.operands if isinstance(each, Group)]
        named = [each for each in of.operands if isinstance(each, Symbol)]
        if not self.checker.declared or not named:
            return
        name = self.module.aliases.get(named[0].name, named[0].name)
        called = self.module.functions.get(name)
        if called is None:
            return
        first = bool(groups) and of.operands[0] is groups[0]
        given = len(groups[-1].items) if len(groups) > first else 0
        results = len(groups[0].items) if first else 0
        takes, returns = len(called.parameters), len(called.returns)
        if (given, results) != (takes, returns):
            yield self._make(
                of,
                "operand-count",
                ERROR,
                f"{name} takes {takes} and returns {returns}; the call gives {given} and "
                f"takes {results}",
            )

    # ── names ───────────────────────────────────────────────────────────────

    def _names(self, of: Instruction) -> Iterator[Problem]:
        """Registers, variables and labels that do not exist."""
        if isinstance(of.guard, Register | Not):
            guard = of.guard.of if isinstance(of.guard, Not) else of.guard
            if not guard.type:
                yield self._undeclared(of, guard.name, self.places.guard(of))
        for number, operand in enumerate(of.operands):
            for each in _parts(operand):
                if isinstance(each, Register):
                    if not each.type:
                        place = self.places.operand(of, number)
                        yield self._undeclared(of, each.name, place)
                elif isinstance(each, Label):
                    if each.name not in self.function.labels:
                        yield self._no_label(of, each, number)
                elif each.name not in self.known:
                    yield self._undeclared(
                        of, each.name, self.places.operand(of, number)
                    )
        yield from self._spaces(of)

    def _undeclared(self, of: Instruction, name: str, place: Place) -> Problem:
        have = [each.name for each in self.function.registers if each.type]
        hint = nearest(name, [*have, *self.known])
        return self._make(
            of, "undeclared", ERROR, f"{name} is not declared{hint}", place=place
        )

    def _no_label(self, of: Instruction, label: Label, number: int) -> Problem:
        hint = nearest(label.text, self.function.labels)
        return self._make(
            of,
            "label",
            ERROR,
            f"there is no label {label.text}{hint}",
            place=self.places.operand(of, number),
        )

    def _spaces(self, of: Instruction) -> Iterator[Problem]:
        """Whether variables are in the state spaces that the instruction names."""
        said = [word.partition("::")[0] for word in of.qualifiers]
        named = [word for word in said if word in _SPACES]
        if not named and of.opcode in ("ld", "st", "atom", "red"):
            named = ["generic"]
        places = [
            (number, each.base)
            for number, each in enumerate(of.operands)
            if isinstance(each, Address)
        ]
        for (number, base), wanted in zip(places, named, strict=False):
            variable = self._variable(base.name) if isinstance(base, Symbol) else None
            if variable is None or variable.space not in _SPACES:
                continue
            generic = wanted == "generic" and variable.space not in ("param", "const")
            if not generic and wanted != variable.space:
                yield self._make(
                    of,
                    "state-space",
                    ERROR,
                    f"{variable.name} is in .{variable.space}; the address is {wanted}"
                    if wanted == "generic"
                    else f"{variable.name} is in .{variable.space}, not in .{wanted}",
                    place=self.places.operand(of, number),
                )

    def _variable(self, name: str) -> Variable | None:
        given = (*self.function.parameters, *self.function.returns)
        found = {each.name: each for each in given}.get(name)
        return (
            found
            or self.function.variables.get(name)
            or self.module.variables.get(name)
        )

    # ── the function as a whole ─────────────────────────────────────────────

    def _flow(self) -> Iterator[Problem]:
        code = self.function.instructions
        made = blocks(self.function)
        effect: list[Effects] = [effects(each) for each in code]
        for index, register, when in unwritten(made, effect):
            yield self._make(
                code[index],
                "uninitialised",
                INFO if when == "maybe" or code[index].opcode == "selp" else WARNING,
                f"{register.name} is read, but {_WHEN[when]}",
            )
        told_of: set[int] = set()
        for index, branch in Divergence(self.function, effect).partial(made):
            if index in told_of:
                continue
            told_of.add(index)
            why = (
                "its guard differs between threads of a warp"
                if index == branch
                else f"the branch in line {code[branch].line} splits the warp"
            )
            yield self._make(
                code[index],
                "aligned",
                WARNING,
                f"all threads of a warp must run {code[index].mnemonic} together, but {why}",
            )

    def _shared(self) -> Iterator[Problem]:
        function, checker = self.function, self.checker
        if not function.kernel:
            return
        used = memory.shared_bytes(self.module, function)
        for target in checker.targets:
            allowed = memory.limits(target)
            if allowed is not None and used > allowed[0]:
                yield checker.problem(
                    "shared-memory",
                    ERROR,
                    Place(function.line or 1, 1, 1),
                    f"{function.name} has {used:,} bytes of static shared memory; {target} "
                    f"allows {allowed[0]:,}",
                    f"dynamic shared memory (.extern .shared) may have {allowed[1]:,} bytes",
                    function.name,
                )
                return


def _ordered(of: Instruction, manual: str) -> tuple[str, str]:
    """What is said about modifiers in another order than the manual's."""
    message = f"ptxas takes {of.mnemonic}, but the manual has another order"
    return message, f"the manual has {manual}"


def _weight(found: list[Finding]) -> int:
    """How far a line is from what was written: operands that miss count most."""
    return sum(100 if each.rule == "operand-count" else 1 for each in found)


def _parts(operand: Operand) -> Iterator[Register | Symbol | Label]:
    """The names in an operand."""
    if isinstance(operand, Register | Symbol | Label):
        yield operand
    elif isinstance(operand, Address):
        if not isinstance(operand.base, int):
            yield operand.base
        for each in operand.items:
            yield from _parts(each)
    elif isinstance(operand, Vector | Group):
        for each in operand.items:
            yield from _parts(each)
    else:
        for name in ("of", "first", "second"):
            inner = getattr(operand, name, None)
            if inner is not None:
                yield from _parts(inner)
