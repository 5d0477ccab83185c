"""Expressions: values, and what is refused."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from fragmenta.errors import Error
from fragmenta.inspect.debugging.debugger import Debugger
from fragmenta.inspect.debugging.expressions import evaluate, parse
from fragmenta.inspect.debugging.values import element
from tests.debugging import kernels


@pytest.fixture(scope="module")
def at() -> Debugger:
    """After the store of warp 0 to shared memory."""
    made = Debugger(kernels.race())
    made.break_at("xor")
    made.run()
    return made


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("%r1[3]", ["0x3"]),
        ("%r1[3] + 1", ["4"]),
        ("%r1[0] - 1", ["-1"]),  # integers have no end
        ("%r1[0:3] * 2 == 2", ["0", "1", "0"]),
        ("%f2[3] as b32", ["0x40c00000"]),
        ("%f2[1:3] as u16", ["(0, 16384)", "(0, 16512)"]),
        ("%f1[1] * 0.1", ["0.1"]),  # in the type of the register
        ("tile[5]", ["10"]),
        ("tile[%laneid][4:6]", ["8", "10"]),
        ("shared[0x404] as f32", ["2"]),
        ("shared[0x400:0x408] as f32", ["0", "2"]),
        ("(shared[%r4] as f32)[7]", ["14"]),
        ("%tid.x[9] + %ntid.x[0]", ["73"]),
        ("data[2:4]", ["2", "3"]),
        ("tile[40]", ["0?"]),  # of the warp that has not stored yet
        ("-7 / 2", ["-3"]),
        ("-7 % 4", ["-3"]),
        ("1 << 4 | 3 ^ 1", ["18"]),
        ("2 + 3 * 4 == 14 && !0", ["1"]),
        ("~0xff & 0xfff", ["3840"]),
    ],
)
def test_values(at: Debugger, text: str, wanted: list[str]) -> None:
    assert at.evaluate(text).texts == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a register, a number or a name is missing at the end"),
        ("%r1[32]", "lanes are 0 to 31; given 32"),
        ("%r9", r"no register %r9 \(did you mean"),
        ("%r5", "%r5 was not written before step"),
        ("tila", r"no register, variable or memory tila \(did you mean tile\?\)"),
        ("tile[64]", "tile has elements 0 to 0x3f; given 0x40"),
        ("shared[0x100000]", "shared has bytes"),
        ("%r1 as f31", r"no type f31 \(did you mean f3?2?"),
        ("%r1 as f64", "f64 has 8 bytes"),
        ("1 << 65", "a shift is by 0 to 64 bits"),
        ("1 / 0", "divided by 0"),
        ("%f1 & 1", "& takes integers"),
        ("(1", r"\) is missing at the end"),
        ("1 2", "an operator is missing"),
        ("(" * 99, "nested too deeply"),
        ("-" * 99 + "1", "nested too deeply"),
        ("1 +" * 400 + "1", "at most 500 characters"),
        ("__import__('os').system('true')", "an operator is missing"),
        ("%r1 + %r1[0:3]", "same lanes"),
        ("shared[%f1]", "one whole number"),
        ("5[0]", "only registers and memory have an index"),
    ],
)
def test_what_is_refused(at: Debugger, text: str, words: str) -> None:
    with pytest.raises(Error, match=words):
        at.evaluate(text)


def test_any_text_is_a_value_or_an_error(at: Debugger) -> None:
    parts = ["%r1", "%f1", "tile", "shared", "[", "]", "(", ")", "1", "0x", "as", "f16"]
    parts += [":", "+", "-", "%", "<<", "1e999", ".", "@", "é", " ", "\0", "&&", "!"]
    choose = np.random.default_rng(3)
    for _ in range(1500):
        text = "".join(choose.choice(parts, int(choose.integers(1, 9))))
        with contextlib.suppress(Error):
            evaluate(text, at.names)


def test_names_are_read_to_their_end() -> None:
    assert str(parse("%r5%r6")) == str(parse("%r5 % r6"))
    assert element("e4m3x4").size == 4
