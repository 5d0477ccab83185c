"""Kernels to be checked: one statement in a kernel, and the files of the tests."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from pathlib import Path

from fragmenta.ptx.checking.problem import Problem
from fragmenta.ptx.checking.texts import check_text

TESTS = Path(__file__).parents[1]

HEAD = """\
.version {version}
.target {target}
.address_size 64
.global .align 16 .b8 array[64];
.const .align 16 .b8 table[64];
.func (.param .b32 result) twice(.param .b32 given)
{{
    .reg .b32 %r<2>;
    ld.param.b32 %r1, [given];
    st.param.b32 [result], %r1;
    ret;
}}
.visible .entry kernel(.param .u64 data, .param .align 64 .b8 map[128])
{{
    .reg .pred %p<4>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .u32 %u<5>;
    .reg .s32 %s<5>; .reg .f32 %f<9>; .reg .b64 %rd<9>; .reg .f64 %d<5>;
    .reg .b128 %q<3>; .shared .align 128 .b8 tile[1024]; .local .align 16 .b8 own[64];
"""
TAIL = """
DONE:
    ret;
}
"""


def kernel(statement: str, target: str = "sm_90a", version: str = "8.8") -> str:
    """A kernel with one statement, whose marks « and » are left out."""
    bare = statement.replace("«", "").replace("»", "")
    return HEAD.format(target=target, version=version) + bare + TAIL


def line_of(statement: str) -> int:
    """The line of a mark, in the kernel of a statement."""
    before = HEAD.format(target="", version="") + statement[: statement.index("«")]
    return before.count("\n") + 1


def column_of(statement: str) -> int:
    """The column of a mark in its line."""
    return (
        statement.index("«") - (statement.rfind("\n", 0, statement.index("«")) + 1) + 1
    )


def length_of(statement: str) -> int:
    """How long what is marked is."""
    return statement.index("»") - statement.index("«") - 1


def errors(text: str, target: str | None = None) -> list[Problem]:
    """The errors of a text."""
    return [each for each in check_text(text, target) if each.severity == "error"]


def files() -> Iterator[tuple[str, str]]:
    """The PTX files of the tests, with their names; ptxas takes all of them."""
    folders = (TESTS / "files", TESTS / "corpus")
    for path in sorted(each for folder in folders for each in folder.glob("*.ptx*")):
        data = path.read_bytes()
        if path.suffix == ".xz":
            data = lzma.decompress(data)
        yield path.name, data.decode()
