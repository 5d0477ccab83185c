"""Constants are computed as ptxas computes them.

All results here are those of ptxas 13.0, read from its cubins.
"""

import pytest

from fragmenta.errors import PtxSyntaxError
from fragmenta.ptx.reading import parse
from tests.ptx.reading.texts import beside, one

VALUES = {
    "017": 15,
    "0b101": 5,
    "0B101U": 5,
    "0XfF": 255,
    "12U": 12,
    "+ 3": 3,
    "0xFFFFFFFFFFFFFFFF": 2**64 - 1,
    "18446744073709551615": 2**64 - 1,
    "1+2*3": 7,
    "(1+2)*3": 9,
    "3 - 1 - 1": 1,
    "100 / 7 * 7": 98,
    "- -5": 5,
    "-7 / 2": -3,
    "7 / -2": -3,
    "-7 % 3": 0,
    "7 % -3": 7,
    "-1 % 10": 5,
    "(.s64)-1 >> 3": -1,
    "(.u64)-1 >> 60": 15,
    "-1 >> 1": -1,
    "-1U >> 60": 15,
    "(.s64)0xFFFFFFFFFFFFFFFF >> 60": -1,
    "(.u64)(-1) / 3": 0x5555555555555555,
    "-1 / 2U": 2**63 - 1,
    "0x8000000000000000 >> 1": 2**62,
    "1 << 63 >> 63": -1,
    "1 << 64": 1,
    "1 << 65": 2,
    "1 << -1": -(2**63),
    "0xFFFFFFFFFFFFFFFF + 1": 0,
    "-1 < 1U": 0,
    "-1 < 1": 1,
    "-5 > 0x8000000000000000": 1,
    "2 > 1 > 0": 1,
    "1|2^3&4": 3,
    "5 & 3 == 3": 1,
    "1 == 1 == 1": 1,
    "1 && 2 || 0": 1,
    "0 || 0": 0,
    "!5": 0,
    "~5": -6,
    "~-1": 0,
    "010 + 0b11": 11,
    "WARP_SZ*2+1": 65,
    "1 < 2 ? 3 : 4": 3,
    "1 ? 0 ? 5 : 6 : 4": 6,
    "1.0 == 1.0": 1,
    "(1.0 < 2.0) + 1": 2,
    "-0x8000000000000000 / -1": 0,
}
FLOATS = {
    "1.5e-3": 1.5e-3,
    "1.": 1.0,
    ".5": 0.5,
    "1e3": 1000.0,
    "1.0E+3": 1000.0,
    "-1.0": -1.0,
    "1.0+2.0*3.0": 7.0,
    "1.0 / 4.0": 0.25,
    "-0d3FF8000000000000": -1.5,
    "1.0+0d3FF8000000000000": 2.5,
    "1.0 - (2.0)": -1.0,
    "1.0 / -0.0": float("-inf"),
}


@pytest.mark.parametrize("text", VALUES)
def test_integers(text):
    value = one(f"mov.u64 %rd1, {text};").operands[1]
    assert value.form == "int"
    assert value.value == VALUES[text]
    assert value.bits == VALUES[text] % 2**64


@pytest.mark.parametrize("text", FLOATS)
def test_floats(text):
    value = one(f"mov.f64 %fd1, {text};").operands[1]
    assert (value.form, value.value) == ("f64", FLOATS[text])


def test_zero_by_zero_is_no_number():
    value = one("mov.f64 %fd1, 0.0/0.0;").operands[1].value
    assert value != value  # noqa: PLR0124


@pytest.mark.parametrize(
    "text, words",
    [
        ("1/0", "a division by zero"),
        ("1 % 0", "a division by zero"),
        ("09", "octal"),
        ("12u", "'u'"),
        ("1.0f", "'f'"),
        ("0f3F80", "'f3F80'"),
        ("-0f3F800000", "in an expression"),
        ("0x1FFFFFFFFFFFFFFFF", "at most 64 bits"),
        ("99999999999999999999999", "at most 64 bits"),
        ("1" * 5000, "at most 64 bits"),
        ("1 ? 2", "':'"),
        ("1.5 ? 1 : 2", "a float beside '?'"),
        ("2.5 > 1", "between a float and a whole number"),
        ("1.0 % 2.0", "'%' between floats"),
        ("!0.0", "'!' before a float"),
        ("(.s64) 1.5", "the cast .s64 of a float"),
        ("(.u32) 1", "'.u32'; here may stand .s64 or .u64"),
        ("(1", "')'"),
        ("(" * 500 + "1", "nested more than 100 deep"),
        ("1 +", "a constant"),
    ],
)
def test_what_is_no_constant(text, words):
    with pytest.raises(PtxSyntaxError) as caught:
        one(f"mov.u64 %rd1, {text};")
    assert words in str(caught.value)


INITIAL = [
    ("u64", "", "1+2*3", "0700000000000000"),
    ("u8", "", "300", "2c"),
    ("s8", "", "-1", "ff"),
    ("b128", "", "1", "01" + "00" * 15),
    ("b32", "", "1.0", "0000803f"),
    ("b64", "", "1.0", "000000000000f03f"),
    ("b16", "", "0.1", "9a99"),
    ("b8", "", "0.1", "9a"),
    ("f32", "", "-1.0", "000080bf"),
    ("f32", "", "1e-50", "00000000"),
    ("f32", "", "1e50", "0000807f"),
    ("f32", "", "0f7FC00001", "0100c07f"),
    ("f32", "", "0d3FF8000000000000", "0000c03f"),
    ("f64", "", "0d3FF8000000000000", "000000000000f83f"),
    ("f64", "", "0f3F800000", "0000803f00000000"),
    ("u32", "[4]", "{1,2}", "0100000002000000"),
    ("u32", "[]", "{1,2,3}", "010000000200000003000000"),
    ("u32", "[2]", "{}", ""),
    ("u32", "[2][2]", "{{1,2},{3,4}}", "01000000020000000300000004000000"),
    ("u32", "[2][2]", "{{1},{3}}", "0100000003000000"),
    ("u32", "[2][2][2]", "{{{1},{2}},{{3}}}", "010000000200000003000000"),
    ("v2 .f32", "[2]", "{{1.0,2.0},{3.0,4.0}}", "0000803f000000400000404000008040"),
    ("v4 .b8", "", "{1,2,3,4}", "01020304"),
    ("u32", "", "WARP_SZ", "20000000"),
]


@pytest.mark.parametrize("kind, size, value, expected", INITIAL)
def test_initial_values(kind, size, value, expected):
    module = parse(beside(f".global .{kind} x{size} = {value};"))
    found = module.variables["x"]
    assert found.initial is not None
    assert found.initial.hex() == expected
    assert len(found.initial) <= found.size


@pytest.mark.parametrize(
    "declaration",
    [
        "u32 x[2][2] = {1,2,3,4}",
        "u32 x = {5}",
        "u32 x[1] = 1",
        "u32 x[2] = {1,2,3}",
        "u32 x[2] = {1,2,}",
        "u32 x = 1.0",
        "f32 x = 1",
        "s32 x = 0fBF800000",
        "f16 x = 1.0",
        "v4 .f32 x = {1.0,2.0}",
        "v2 .f32 x[2] = {1.0,2.0,3.0,4.0}",
        "u16 x = a",
        "f64 x = a",
        "u64 x = 4+a",
        "u64 x = generic(a+4)",
        "u8 x = 0xff0(a)",
        "u8 x = 0xffff(a)",
        "b8 x = 0xff00(a)+1",
    ],
)
def test_what_is_no_initial_value(declaration):
    with pytest.raises(PtxSyntaxError):
        parse(beside(f".global .{declaration};"))


def test_unknown_size_counts_rows():
    module = parse(beside(".global .u32 x[][2] = {{1},{2}};"))
    assert module.variables["x"].elements == 4
