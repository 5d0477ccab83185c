"""Reads a whole PTX file."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from os import PathLike
from pathlib import Path

from fragmenta.errors import BadCall
from fragmenta.ptx.module import Function, Module, Variable
from fragmenta.ptx.reading import declarations
from fragmenta.ptx.reading.headers import pragma, signature
from fragmenta.ptx.reading.lexer import Cursor, PtxText
from fragmenta.ptx.reading.statements import Body

_VERSION = re.compile(r"\s*\.version\s+(\d{1,4})\.(\d{1,4})(?!\w)", re.ASCII)
_FILE = re.compile(r'\.file\s+(\d{1,9})\s+"([^"]*)"', re.ASCII)
_BRACE = re.compile(r'\.source_begin\b.*?\.source_end\b|"[^"]*"|[{}]', re.DOTALL)
_SECTION = re.compile(
    r"\.section\s+\.?[\w.]+|\.nv_intermediate_source_section", re.ASCII
)
_IN_MODULE = (
    ".entry",
    ".func",
    ".global",
    ".const",
    ".shared",
    ".visible",
    ".extern",
    ".weak",
    ".common",
    ".file",
    ".section",
    ".alias",
    ".pragma",
)


def parse(text: str, name: str = "") -> Module:
    """Read PTX text.

    ``name`` is the name of the file, for error messages.  A mistake in the text is a
    :class:`~fragmenta.errors.PtxSyntaxError`.  Opcodes are not looked up, and names
    that are not declared are kept as they are.

    >>> module = parse('''
    ... .version 8.0
    ... .target sm_90a
    ... .address_size 64
    ... .visible .entry double_it(.param .u64 data) {
    ...     .reg .b64 %rd<2>; .reg .f32 %f<2>;
    ...     ld.param.u64 %rd1, [data];
    ...     ld.global.f32 %f1, [%rd1+4];
    ...     add.f32 %f1, %f1, %f1;
    ...     st.global.f32 [%rd1+4], %f1;
    ...     ret;
    ... }
    ... ''')
    >>> kernel = module.functions["double_it"]
    >>> [each.mnemonic for each in kernel.instructions][1:3]
    ['ld.global.f32', 'add.f32']
    >>> kernel.instructions[1].operands[1].offset
    4
    """
    return Reader(text, name).read()


def load(path: str | PathLike[str]) -> Module:
    """Read a PTX file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "empty.ptx")
    ...     _ = path.write_text(".version 9.0 .target sm_100a")
    ...     module = load(path)
    >>> module.target, module.version, Path(module.name).name
    ('sm_100a', (9, 0), 'empty.ptx')
    """
    if not isinstance(path, str | os.PathLike) or "\0" in str(path):
        raise BadCall(f"path is the name of a PTX file; given {path!r}")
    data = Path(path).read_bytes()
    return parse(data.decode("utf-8-sig", errors="replace"), str(path))


class Reader:
    """Reads one module."""

    def __init__(self, text: str, name: str):
        # NVRTC's text ends with the zero byte of a C string.
        self.text = PtxText(text.rstrip("\0"), name)
        self.cursor = Cursor(self.text)
        self.functions: dict[str, Function] = {}
        self.variables: dict[str, Variable] = {}
        self.outer: dict[str, object] = {}
        self.aliases: dict[str, str] = {}
        self.pragmas: list[str] = []
        self.files: dict[int, str] = {}
        for number, file in _FILE.findall(self.text.clean):  # they stand at the end
            self.files[int(number)] = file

    def read(self) -> Module:
        """Take the whole text."""
        cursor = self.cursor
        version = self.version()
        target, *options = self.target()
        address_size = 32
        if cursor.accept(".address_size"):
            address_size = self.address_size()
        while cursor.kind != "end":
            self.declaration()
        return Module(
            version,
            target,
            tuple(options),
            address_size,
            self.functions,
            self.variables,
            self.aliases,
            self.files,
            self.text.raw,
            self.text.name,
            tuple(self.pragmas),
        )

    def version(self) -> tuple[int, int]:
        """Take ``.version 8.0``."""
        cursor = self.cursor
        found = _VERSION.match(cursor.clean)
        if found is None:
            if cursor.accept(".version"):
                cursor.fail("a version such as 8.0")
            cursor.fail("'.version', with which a PTX file begins")
        cursor.jump(found.end())
        return int(found[1]), int(found[2])

    def target(self) -> list[str]:
        """Take ``.target sm_90a, debug``."""
        cursor = self.cursor
        cursor.expect(".target")
        words = [cursor.name("a target such as sm_90")]
        while cursor.accept(","):
            words.append(cursor.name("an option of '.target'"))
        return words

    def address_size(self) -> int:
        """Take the number after ``.address_size``."""
        at, size = self.cursor.at, self.cursor.number("32 or 64")
        if size not in (32, 64):
            self.text.fail(at, f"'{size}'", ["32", "64"])
        return size

    def declaration(self) -> None:
        """Take one thing that stands in the module."""
        cursor = self.cursor
        linkage = ""
        if cursor.word[1:] in declarations.LINKAGES and cursor.kind == "directive":
            linkage = cursor.step()[1:]
        word = cursor.word
        if cursor.kind == "directive" and word in (".entry", ".func"):
            cursor.step()
            self.function(linkage, word == ".entry")
        elif cursor.kind == "directive" and word[1:] in (*declarations.SPACES, "tex"):
            cursor.step()
            self.declare(word[1:], linkage)
        elif linkage:
            cursor.fail(
                ".entry", ".func", *(f".{each}" for each in declarations.SPACES)
            )
        else:
            self.other()

    def other(self) -> None:
        """Take a directive that declares neither a function nor a variable."""
        cursor = self.cursor
        word = cursor.word
        if word in (".section", ".nv_intermediate_source_section"):
            self.section()
        elif word == ".file":
            self.file()
        elif word == ".alias":
            cursor.step()
            alias = cursor.name("the name of a function")
            cursor.expect(",")
            self.aliases[alias] = cursor.name("the name of a function")
            cursor.expect(";")
        elif word == ".pragma":
            self.pragmas += pragma(cursor)
        else:
            cursor.fail(*_IN_MODULE)

    def declare(self, space: str, linkage: str) -> None:
        """Take the declaration of variables."""
        cursor = self.cursor
        of = declarations.head(cursor, space, linkage)
        for variable, at in declarations.variables(cursor, of):
            name = variable.name
            before = self.variables.get(name)
            if name in self.functions:
                self.text.fail(at, f"a variable '{name}', which is a function")
            if before is not None and "extern" not in (before.linkage, linkage):
                self.text.fail(
                    at, f"a second '{name}'; the first is in line {before.line}"
                )
            if before is None or before.linkage == "extern":
                self.variables[name] = self.outer[name] = variable

    def function(self, linkage: str, kernel: bool) -> None:
        """Take a function: its head, and its body if it has one."""
        cursor, at = self.cursor, self.cursor.at
        made = replace(signature(cursor, kernel=kernel), linkage=linkage)
        name = made.name
        before = self.functions.get(name)
        if name in self.variables:
            self.text.fail(at, f"a function '{name}', which is a variable")
        self.outer[name] = made
        if cursor.accept(";"):
            self.functions.setdefault(name, made)
            return
        if before is not None and not before.declared_only:
            self.text.fail(at, f"a second '{name}'; the first is in line {before.line}")
        cursor.expect("{", "';'", "a directive such as .maxntid")
        self.functions[name] = self.defined(made)

    def defined(self, made: Function) -> Function:
        """Take the body of a function."""
        body = Body(
            self.cursor, self.outer, self.files, (*made.returns, *made.parameters)
        )
        body.read()
        directives = dict(made.directives)
        if body.pragmas:
            directives["pragma"] = (*directives.get("pragma", ()), *body.pragmas)
        return replace(
            made,
            instructions=tuple(body.instructions),
            labels=body.labels,
            registers=tuple(body.names.registers),
            variables=body.variables,
            tables=body.tables,
            prototypes=body.prototypes,
            directives=directives,
            declared_only=False,
        )

    def file(self) -> None:
        """Take ``.file 1 "kernel.cu"``, which was read before."""
        cursor = self.cursor
        cursor.step()
        cursor.number("the number of a file")
        cursor.string()
        while cursor.accept(","):  # the time and the size of the file
            cursor.number()

    def section(self) -> None:
        """Take a section of debugging data, of which nothing is kept.

        cuTile's compiler writes its own form of the program into one.
        """
        cursor = self.cursor
        found = _SECTION.match(cursor.clean, cursor.at)
        if found is None:
            cursor.step()
            cursor.fail("the name of a section")
        cursor.jump(found.end())
        opened = cursor.at
        if cursor.word != "{":
            cursor.fail("'{'")
        depth = 0
        for brace in _BRACE.finditer(cursor.clean, opened):
            depth += {"{": 1, "}": -1}.get(brace[0], 0)
            if not depth:
                cursor.jump(brace.end())
                return
        self.text.fail(opened, "'{' that is not closed", ["'}'"])
