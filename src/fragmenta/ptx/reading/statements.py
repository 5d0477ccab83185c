"""Reads the body of a function.

One regular expression takes an instruction whose operands have frequent forms.  All
else is read word by word: declarations, labels, blocks, calls, and mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from fragmenta.ptx.module import (
    Address,
    Function,
    Instruction,
    Label,
    Location,
    Not,
    Operand,
    Register,
    Symbol,
    Variable,
)
from fragmenta.ptx.reading import declarations, operands
from fragmenta.ptx.reading.headers import pragma, signature
from fragmenta.ptx.reading.lexer import MNEMONIC, NAME, Cursor
from fragmenta.ptx.reading.scopes import BlockScope, FunctionScope

_INSTRUCTION = re.compile(
    rf"""\s*+(?:(?P<guard>@!?{NAME})\s++)?
    (?P<mnemonic>[a-z]\w*+(?:\.\w++(?:::\w++)*+(?::\d++)?+)*+)\s*+
    (?P<operands>[^;:@"]*+);""",
    re.VERBOSE | re.ASCII,
)
_PIECE = re.compile(r"((?:\{[^{}]*+\}|[^{},]++)++)(?:,|$)", re.ASCII)
_LABEL = re.compile(rf"\s*+({NAME})\s*+:(?!:)", re.ASCII)
_LOC = re.compile(
    rf"""\s*+\.loc\s+(\d+)\s+(\d+)\s+(\d+)
    (?:\s*,\s*function_name\s+{NAME}(?:\s*\+\s*\d+)?
    \s*,\s*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?(?![\w,])""",
    re.VERBOSE | re.ASCII,
)
_WHOLE_NAME = re.compile(NAME, re.ASCII)
_IN_BODY = (
    ".reg",
    ".shared",
    ".local",
    ".param",
    ".global",
    ".const",
    ".pragma",
    ".loc",
    ".branchtargets",
    ".calltargets",
    ".callprototype",
)


def _pieces(text: str) -> list[str]:
    """The operands of a text with braces; one that has no form if they do not match."""
    found = _PIECE.findall(text)
    complete = sum(map(len, found)) + len(found) - 1 == len(text)
    return found if complete else [""]


class Body:
    """Reads the body of one function, from after its opening brace."""

    def __init__(
        self,
        cursor: Cursor,
        outer: Mapping[str, object],
        files: Mapping[int, str],
        given: tuple[Variable, ...] = (),
    ):
        self.cursor, self.files = cursor, files
        self.names = FunctionScope(outer)
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.variables: dict[str, Variable] = {}
        self.tables: dict[str, tuple[Symbol | Label, ...]] = {}
        self.prototypes: dict[str, Function] = {}
        self.pragmas: list[str] = []
        self.source: Location | None = None
        self.locations: dict[tuple[int, ...], Location] = {}
        self.mnemonics: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.pending: list[tuple[int, BlockScope]] = []
        """Instructions that have unknown names, and the block they stand in."""
        self.pending_tables: list[tuple[str, tuple[str, ...], BlockScope]] = []
        for variable in given:
            if not self.names.add_parameter(variable):
                cursor.text.fail(cursor.at, f"a second parameter '{variable.name}'")

    def read(self) -> None:
        """Take everything up to the closing brace, and that."""
        cursor, at = self.cursor, self.cursor.at
        while True:
            found = _INSTRUCTION.match(cursor.clean, at)
            if found is not None and self.quick(found):
                at = found.end()
                continue
            cursor.jump(at)
            if not self.statement():
                break
            at = cursor.at
        self.settle()

    def quick(self, found: re.Match[str]) -> bool:
        """Add an instruction of a frequent form; False if it has another form."""
        names = self.names
        names.open = False
        sign, mnemonic, text = found.groups()
        guard: Register | Not | None = None
        if sign:
            guard = names.register(sign.lstrip("@!"))
            if guard is None:
                return False
            guard = Not(guard) if sign[1] == "!" else guard
        taken = self.quick_operands(mnemonic, text)
        if taken is None:
            return False
        at = found.start("guard") if sign else found.start("mnemonic")
        self.add(mnemonic, taken, guard, at)
        return True

    def quick_operands(self, mnemonic: str, text: str) -> tuple[Operand, ...] | None:
        """The operands of an instruction, if all of them have frequent forms."""
        names, taken = self.names, []
        if not text:
            return ()
        if mnemonic[:3] == "bra":  # what a branch names can only be a label
            name = _WHOLE_NAME.fullmatch(text.rstrip())
            return (names.unknown(name[0]),) if name else None
        # Outside of braces, a comma ends an operand; "[a, b]" is read word by word.
        words = text.split(",") if "{" not in text else _pieces(text)
        known = names.scope.known
        for word in map(str.strip, words):
            operand = known.get(word) or operands.quick(names, word)
            if operand is None:
                return None
            taken.append(operand)
        return tuple(taken)

    def add(
        self,
        mnemonic: str,
        taken: tuple[Operand, ...],
        guard: Register | Not | None,
        at: int,
    ) -> None:
        """Add an instruction that begins at an offset."""
        words = self.mnemonics.get(mnemonic)
        if words is None:
            opcode, *qualifiers = mnemonic.split(".")
            words = self.mnemonics[mnemonic] = (opcode, tuple(qualifiers))
        if self.names.open:
            self.pending.append((len(self.instructions), self.names.scope))
        line, column = self.cursor.text.place(at)
        self.instructions.append(
            Instruction(*words, taken, guard, line, column, self.source)
        )

    # ── word by word ────────────────────────────────────────────────────────

    def statement(self) -> bool:
        """Take one statement; False if it was the end of the function."""
        cursor = self.cursor
        if cursor.kind == "directive":
            self.directive()
        elif cursor.kind == "name":
            label = _LABEL.match(cursor.clean, cursor.at)
            if label is None:
                self.instruction()
            else:
                self.label(label)
        elif cursor.accept("{"):
            self.names.enter()
        elif cursor.word == "}":
            inner = self.names.leave()
            cursor.step()
            return inner
        elif cursor.word == "@":
            self.instruction()
        else:
            cursor.fail("an instruction", "a label", "a directive", "'{'", "'}'")
        return True

    def instruction(self) -> None:
        """Take an instruction with operands of any form."""
        cursor, names, at = self.cursor, self.names, self.cursor.at
        names.open = False
        guard = operands.guard(cursor, names) if cursor.accept("@") else None
        found = MNEMONIC.match(cursor.clean, cursor.at)
        if found is None:
            cursor.fail("an instruction")
        cursor.jump(found.end())
        mnemonic = "".join(found[0].split())
        opcode = mnemonic.partition(".")[0]
        taken: list[Operand] = []
        if cursor.word != ";":
            taken.append(self.operand(opcode))
            while cursor.accept(","):
                taken.append(self.operand(opcode))
        cursor.expect(";", "','" if taken else "an operand")
        self.add(mnemonic, tuple(taken), guard, at)

    def operand(self, opcode: str) -> Operand:
        """Take one operand of an instruction."""
        cursor, names = self.cursor, self.names
        if opcode == "call" and cursor.word == "(":
            return operands.group(cursor, names)
        if opcode == "bra":
            return names.unknown(cursor.name("a label"))
        bare = cursor.word != "["
        taken = operands.operand(cursor, names)
        if opcode != "mov" or not bare or not isinstance(taken, Address):
            return taken
        # The address of a[1] itself, not what is stored there.
        return Symbol(cast("Symbol", taken.base).name, taken.offset)

    def label(self, found: re.Match[str]) -> None:
        """Take a label, or the table that it names."""
        cursor, at = self.cursor, self.cursor.at
        name = found[1]
        cursor.jump(found.end())
        if cursor.word in (".branchtargets", ".calltargets"):
            self.table(name, at)
        elif cursor.word == ".callprototype":
            cursor.step()
            made = signature(cursor, name)
            cursor.expect(";")
            self.prototypes[self.symbol(name, at).name] = made
        else:
            label = self.names.add_label(name)
            if label is None:
                cursor.text.fail(at, f"a second '{name}' in the same block")
            self.labels[label.name] = len(self.instructions)

    def symbol(self, name: str, at: int) -> Symbol:
        """Declare a variable or a table."""
        symbol = self.names.add_symbol(name)
        if symbol is None:
            self.cursor.text.fail(at, f"a second '{name}' in the same block")
        return symbol

    def table(self, name: str, at: int) -> None:
        """Take the names after ``.branchtargets`` or ``.calltargets``."""
        cursor = self.cursor
        cursor.step()
        found: list[str] = []
        for target, count, _ in declarations.register_names(cursor, "a target"):
            found += (
                [target]
                if count is None
                else declarations.numbered(cursor, target, count)
            )
        unique = self.symbol(name, at).name
        self.pending_tables.append((unique, tuple(found), self.names.scope))

    def directive(self) -> None:
        """Take a directive that stands in a function."""
        cursor = self.cursor
        word = cursor.word
        if word == ".loc":
            self.loc()
        elif word == ".reg":
            cursor.step()
            self.registers()
        elif word[1:] in declarations.SPACES:
            cursor.step()
            self.declare(word[1:])
        elif word == ".pragma":
            self.pragmas += pragma(cursor)
        else:
            cursor.fail(*_IN_BODY)

    def loc(self) -> None:
        """Take ``.loc``: where the next instructions come from.

        Inside of inline assembly LLVM adds one to the line for each line of the
        assembly, as if that were the source: the place before it counts.
        """
        cursor = self.cursor
        found = _LOC.match(cursor.clean, cursor.at)
        if found is None:
            cursor.text.fail(
                cursor.at, "'.loc'", ["'.loc' with a file, a line and a column"]
            )
        if self.source is not None and cursor.text.in_inline_assembly(cursor.at):
            cursor.jump(found.end())
            return
        numbers = [int((digits or "0")[:9]) for digits in found.groups()]
        inner, outer = tuple(numbers[:3]), tuple(numbers[3:])
        caller = None
        if found[4] is not None:
            # A caller that was itself inlined came before.
            caller = self.locations.get(outer) or self._location(outer, None)
        self.source = self._location(inner, caller)
        self.locations[inner] = self.source
        cursor.jump(found.end())

    def _location(self, numbers: tuple[int, ...], caller: Location | None) -> Location:
        file, line, column = numbers
        return Location(self.files.get(file, str(file)), line, column, caller)

    def registers(self) -> None:
        """Take the declaration of registers."""
        cursor = self.cursor
        of = declarations.head(cursor, "reg")
        kind = (of.type, of.lanes)
        for name, count, at in declarations.register_names(cursor):
            if not self.names.add_register(name, kind, count):
                cursor.text.fail(at, f"a second register '{name}' in the same block")

    def declare(self, space: str) -> None:
        """Take the declaration of variables."""
        cursor = self.cursor
        of = declarations.head(cursor, space)
        for variable, at in declarations.variables(cursor, of):
            symbol = self.symbol(variable.name, at)
            made = replace(variable, name=symbol.name)
            self.variables[symbol.name] = self.names.variables[symbol.name] = made

    # ── the end ─────────────────────────────────────────────────────────────

    def settle(self) -> None:
        """Replace unknown names by the labels of the blocks they stand in."""
        names = self.names
        for index, scope in self.pending:
            given = self.instructions[index]
            branch = given.opcode == "bra"
            taken = tuple(
                operands.settled(names, each, scope, branch) for each in given.operands
            )
            self.instructions[index] = replace(given, operands=taken)
        for unique, targets, scope in self.pending_tables:
            self.tables[unique] = tuple(
                names.label(target, scope) or Symbol(target) for target in targets
            )
