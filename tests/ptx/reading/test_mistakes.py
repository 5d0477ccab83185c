"""A mistake is one error, with its place, what was found and what may stand there."""

import pickle

import pytest

import fragmenta as fm
from fragmenta.errors import PtxSyntaxError
from fragmenta.ptx.reading import load, parse
from tests.ptx.reading.texts import FIRST_LINE, HEADER, beside, inside


def mistake(text, name=""):
    with pytest.raises(PtxSyntaxError) as caught:
        parse(text, name)
    return caught.value


def test_the_whole_message():
    error = mistake(HEADER + ".entry k {\n\tadd.s32 %r1, %r2 %r3;\n}", "wrong.ptx")
    assert str(error) == (
        "wrong.ptx, line 5, column 19: found '%r3'; here may stand ',' or ';'\n"
        "     5 |  add.s32 %r1, %r2 %r3;\n"
        "       |                   ^"
    )
    assert (error.line, error.column, error.file) == (5, 19, "wrong.ptx")
    assert isinstance(error, fm.Error)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.line) == (str(error), 5)


@pytest.mark.parametrize(
    "statement, column, words",
    [
        ("add.s32 %r1, %r2, %r3", None, "found 'ret'; here may stand ',' or ';'"),
        ("mov.u32 %r1, 1,;", 16, "found ';'; here may stand a register, a constant"),
        ("mov.u32 %r1, 1;;", 16, "found ';'; here may stand an instruction, a label"),
        ("mov.u32 %r1, ;", 14, "found ';'"),
        ("mov.b64 %rd1, {%r1, %r2;", 24, "found ';'; here may stand ',' or '}'"),
        ("mov.b64 %rd1, {%r1, {%r2}};", 21, "found '{'; here may stand a register"),
        ("mov.b64 {}, %rd1;", 10, "found '}'"),
        ("ld.global.u32 %r1, [%rd1;", 25, "found ';'; here may stand '+', ',' or ']'"),
        ("ld.global.u32 %r1, [4+%rd1];", 23, "found '%rd1'; here may stand a constant"),
        ("ld.global.u32 %r1, [%rd1+%rd2];", 26, "found '%rd2'"),
        ("ld.global.u32 %r1, [%tid.x];", 21, "found '%tid'; here may stand a register"),
        ("add..s32 %r1, %r1, %r1;", 4, "found '.'"),
        ("add. s32 %r1, %r1, %r1;", 4, "found '.'"),
        ("@1 mov.u32 %r1, 1;", 2, "found '1'; here may stand a predicate"),
        ("@%p1 %r1;", 6, "found '%r1'; here may stand an instruction"),
        ("call (%r1) next (%r2);", 12, "found 'next'; here may stand ',' or ';'"),
        ("bra 5;", 5, "found '5'; here may stand a label"),
        (".regg .b32 %x;", 1, "did you mean .reg?"),
        (
            ".reg .b23 %x;",
            6,
            "found '.b23'; here may stand a type such as .b32 or .f32",
        ),
        (".reg .b32 5;", 11, "found '5'; here may stand the name of a register"),
        (".reg .b32 %x<4;", 15, "found ';'; here may stand '>'"),
        (".reg .b32 %x %y;", 14, "found '%y'; here may stand ',', '<' or ';'"),
        (".reg .b32 %x; .reg .f32 %x;", 25, "found a second register '%x'"),
        (".reg .b32 %x<4>, %x3;", 18, "found a second register '%x3'"),
        (".shared .u32 s; .shared .u32 s;", 30, "found a second 's' in the same block"),
        ("L: L: ret;", 4, "found a second 'L' in the same block"),
        (
            ".shared .align 3 .b8 s[4];",
            16,
            "the alignment 3; here may stand a power of",
        ),
        (".shared .b8 s[-4];", 15, "an array of -4 elements"),
        (".pragma nounroll;", 9, "found 'nounroll'; here may stand a text in"),
        (".loc 1 2", 1, "a file, a line and a column"),
        (".L1: ret;", 1, "found '.L1'"),
        (".visible .shared .u32 x;", 1, "found '.visible'"),
        ("ts: .branchtargets 1;", 20, "found '1'; here may stand a target"),
        ("mov.u32 \\ %r1, 1;", 9, "found '\\'"),
        ("mov.u32 %r1, größe;", 16, "found 'ö'"),
    ],
)
def test_in_functions(statement, column, words):
    error = mistake(inside(statement))
    assert words in str(error)
    assert error.line == FIRST_LINE + (column is None)
    assert error.column == (column or 1)


@pytest.mark.parametrize(
    "declaration, words",
    [
        (".foo;", "found '.foo'; here may stand .entry, .func"),
        (".entyr k () { ret; }", "did you mean .entry?"),
        (";", "found ';'"),
        (".visible .weak .global .u32 x;", "found '.weak'; here may stand .entry"),
        (".entry k () .maxntdi 4 { ret; }", "did you mean .maxntid?"),
        (".entry k () .maxntid 4; { ret; }", "found '{'"),
        (".entry k (.param .u64 p,) { ret; }", "found ')'; here may stand '.param'"),
        (".entry k (.u64 p) { ret; }", "found '.u64'; here may stand '.param'"),
        (".func f {ret;} .func f {ret;}", "a second 'f'; the first is in line 5"),
        (".global .u32 a;", "a second 'a'; the first is in line 4"),
        (".func a { ret; }", "a function 'a', which is a variable"),
        (".global .u32 quiet;", "a variable 'quiet', which is a function"),
        (".func f (.param .b32 x, .param .b32 x) { ret; }", "a second parameter 'x'"),
        (".section .debug_str { .b8 1", "found '{' that is not closed"),
        (".section { }", "the name of a section"),
        (".entry k () { ret;", "found the end of the text"),
        ("/* open", "found a comment that is not closed; here may stand */"),
        ('.file 1 "open', "here may stand a text in"),
        (".alias a b;", "found 'b'; here may stand ','"),
        (".address_size 64", "found '.address_size'"),
    ],
)
def test_in_modules(declaration, words):
    text = beside(declaration)
    if "end of the text" in words or "not closed" in words:
        text = text[: text.index(declaration) + len(declaration)]
    assert words in str(mistake(text))


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "found the end of the text; here may stand '.version'"),
        ("hello", "found 'hello'; here may stand '.version'"),
        (".version eight", "found 'eight'; here may stand a version such as 8.0"),
        (".version 8.0 .entry k { }", "found '.entry'; here may stand '.target'"),
        (
            ".version 8.0 .target 90",
            "found '90'; here may stand a target such as sm_90",
        ),
        (
            ".version 8.0 .target sm_90 .address_size 16",
            "found '16'; here may stand 32",
        ),
    ],
)
def test_headers(text, words):
    assert words in str(mistake(text))


def test_long_lines_are_cut():
    error = mistake(inside("mov.b32 %r1, " + "1 + " * 1000 + "? ;"))
    assert len(str(error)) < 400
    line, caret = str(error).splitlines()[1:]
    assert line[caret.index("^")] == "?"


def test_the_name_of_the_file(tmp_path):
    path = tmp_path / "broken.ptx"
    path.write_bytes(b"\xef\xbb\xbf.version 8.0\n.target \xff")
    with pytest.raises(PtxSyntaxError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}, line 2, column 9: found")
