"""PTX around what a test is about, and the files that compilers wrote."""

from __future__ import annotations

import lzma
from pathlib import Path

from fragmenta.ptx.module import Function, Instruction, Module
from fragmenta.ptx.reading import parse

FILES = Path(__file__).parent.parent / "files"
HEADER = ".version 8.5\n.target sm_90a\n.address_size 64\n"
AROUND = """.global .u32 a[8]; .global .texref picture;
.func quiet () { ret; }
.func (.reg .u32 o) next (.reg .u32 i) { add.u32 o, i, 1; ret; }
.entry kernel (.param .u64 given) {
.reg .pred %p<3>; .reg .b16 %rs<3>; .reg .b32 %r<5>; .reg .b64 %rd<4>;
.reg .f32 %f<3>; .reg .f64 %fd<3>; .reg .v4 .f32 %v; .reg .v4 .u32 %u;
"""
FIRST_LINE = (HEADER + AROUND).count("\n") + 1
"""The line of the first statement in :func:`inside`."""


def inside(statements: str) -> str:
    """A module whose kernel has these statements."""
    return f"{HEADER}{AROUND}{statements}\nret;\n}}\n"


def beside(declarations: str) -> str:
    """A module with these declarations before a kernel."""
    return (
        f"{HEADER}.global .u32 a[8]; .func quiet () {{ ret; }}\n{declarations}\n"
        ".entry kernel () { ret; }\n"
    )


def kernel(statements: str) -> Function:
    """The kernel of these statements; a ``ret`` is added."""
    return parse(inside(statements)).functions["kernel"]


def one(statement: str) -> Instruction:
    """One instruction."""
    (found, _) = kernel(statement).instructions
    return found


def stored(name: str) -> str:
    """The text of a file under ``files``."""
    path = FILES / name
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes()).decode()
    return path.read_text(encoding="utf-8")


def loaded(name: str) -> Module:
    """The module of a file under ``files``."""
    return parse(stored(name), name)
