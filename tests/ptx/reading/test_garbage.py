"""Any text is read, or raises the one error."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fragmenta.errors import PtxSyntaxError
from fragmenta.ptx.module import Module
from fragmenta.ptx.reading import parse
from tests.ptx.reading.texts import HEADER, inside, stored

TEXT = r""".reg .b32 .f32 .pred .v4 .align .shared .param .global .func .entry .section
.loc .file .pragma .branchtargets .callprototype .attribute .extern .visible .ptr .alias
mov add bra call ret ld st %r1 %r2 %p1 %tid .x .b0 x L WARP_SZ _ generic { } [ ] ( ) < > ,
; : :: . @ ! | - + * / % ? ~ & && << = "s" " // /* */ # 0 1 017 09 0x1F 0f3F800000
0d3FF0000000000000 0b1 1.5 1e9 99999999999999999999 .5 1e999 é $ \ """
WORDS = [*TEXT.split(), "\n", "\t", "\0"]
FILES = ["inline.ptx", "mixed.ptx", "saxpy_debug.ptx"]


def read(text):
    """Read a text that may be wrong, and check the error if it is."""
    try:
        assert isinstance(parse(text), Module)
        return
    except PtxSyntaxError as caught:
        error = caught
    lines = text.rstrip("\0").split("\n")
    assert 1 <= error.line <= len(lines)
    assert 1 <= error.column <= len(lines[error.line - 1]) + 1
    assert re.match(r"PTX, line \d+, column \d+: found ", str(error))
    assert len(str(error).splitlines()) == 3


@pytest.mark.long
@given(st.text())
@settings(max_examples=100, deadline=None)
def test_any_text(text):
    read(text)
    read(HEADER + text)
    read(inside(text))


@given(st.lists(st.sampled_from(WORDS), max_size=25), st.sampled_from(["", " "]))
@settings(max_examples=300, deadline=None)
def test_any_words(words, between):
    read(inside(between.join(words)))
    read(HEADER + between.join(words))


@given(st.sampled_from(FILES), st.data())
@settings(max_examples=60, deadline=None)
def test_any_change_of_a_file(name, data):
    text = stored(name)
    at = data.draw(st.integers(0, len(text)))
    out = data.draw(st.integers(0, 3))
    new = data.draw(st.sampled_from(WORDS))
    read(text[:at] + new + text[at + out :])


@pytest.mark.parametrize("name", FILES)
def test_any_first_part_of_a_file(name):
    text = stored(name)
    for end in range(0, len(text), 151):
        read(text[:end])


@pytest.mark.parametrize("bracket", ["(", "{", "[", "-", "!", "1?", "1+(", "@"])
def test_deep_nesting(bracket):
    read(inside("mov.b32 %r1, " + bracket * 10_000))
    read(inside(bracket * 10_000))
    read(HEADER + ".global .u32 x" + "[1]" * 200 + " = " + bracket * 10_000)
