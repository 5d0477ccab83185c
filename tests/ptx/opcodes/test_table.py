"""How the notation of the table is read."""

import pytest
from llvmlite import ir

from fragmenta.base.jit.trace import I32, Value
from fragmenta.ptx.opcodes import bits
from fragmenta.ptx.opcodes.table import TABLE, declare
from tests.ptx.opcodes.judging import forms, lines, mnemonics


@pytest.fixture
def line():
    """A line of an opcode that does not exist, while a test runs."""

    def make(text, **more):
        declare(text, **more)
        return TABLE.lines["none"][-1]

    yield make
    TABLE.lines.drop("none")


def test_selectors_and_signs(line):
    made = line("none.u32 d{.dsel}, {-}a{.asel}, {c:b32}", words={"asel": "b0 h1"})
    d, a, c = made.operands
    assert (d.selector, d.selectors) == ("dsel", ())
    assert (a.name, a.selector, a.selectors, a.negatable) == (
        "a",
        "asel",
        ("b0", "h1"),
        True,
    )
    assert (c.name, c.type, c.optional, c.selector) == ("c", "b32", True, "")


def test_clauses_and_shared_words(line):
    made = line(
        "none.x{.sat} d ; ptx = 8.0 ; target = sm_90 sm_80a", words={"x": "p q"}
    )
    assert (made.since, made.targets) == ("8.0", "sm_90 sm_80a")
    assert [name for name, _ in mnemonics(made)] == [
        "none.p",
        "none.p.sat",
        "none.q",
        "none.q.sat",
    ]
    assert TABLE.find("none.q").qualifiers == {"x": "q", "sat": ""}


def test_a_line_explains_a_name_itself(line):
    made = line("none.x d ; x = r", words={"x": "p q"})
    assert [name for name, _ in mnemonics(made)] == ["none.r"]


def test_optional_operands_are_there_and_not(line):
    made = line("none.u32 d, a, {b}")
    assert [len(form.slots) for form in forms(made)] == [3, 2]


def test_an_operand_that_is_no_operand(line):
    with pytest.raises(ValueError, match=r"an operand is written as 'a-b'"):
        line("none d, a-b")


def test_every_mnemonic_is_found_on_its_own_line():
    """No line hides another one."""
    modules = ("comparison", "fields", "integer", "logic", "moving", "video")
    for each in (line for module in modules for line in lines(module)):
        for mnemonic, qualifiers in mnemonics(each):
            found = TABLE.find(mnemonic)
            assert found.syntax is each, mnemonic
            assert found.qualifiers == qualifiers


def test_constants_are_known():
    function = ir.Function(ir.Module(), ir.FunctionType(I32, [I32]), "f")
    builder = ir.IRBuilder(function.append_basic_block())
    given = Value(builder, function.args[0])
    several = given.in_all_lanes(8)
    assert bits.known(given) is bits.known(several) is None
    assert bits.known(several.lift(-1)) == 0xFFFFFFFF
    assert bits.known(Value(builder, ir.Constant(several.type, [9] * 8))) == 9
    assert bits.known(Value(builder, ir.Constant(several.type, [9] * 7 + [8]))) is None
