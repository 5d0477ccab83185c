"""Launches with numerics: reports, births, blame, and targets beside each other."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fragmenta import ptx
from fragmenta.commands import app
from fragmenta.engine.planes.elements import split
from fragmenta.errors import BadCall, KernelFault
from fragmenta.inspect.evidence.testing import launcher
from fragmenta.launch.kernel import Kernel
from fragmenta.values.numerics.code.layout import Birth
from fragmenta.values.numerics.report import Numerics
from fragmenta.values.numerics.seconds import best_format
from tests.ptx.recordings import every_launch
from tests.thinning import some

HEAD = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry f(.param .u64 x, .param .u64 y, .param .u32 n)
{
    .reg .b32 %r<12>; .reg .b64 %rd<8>; .reg .f32 %f<16>; .reg .pred %p<4>;
    .reg .b16 %h<8>;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u32 %r4, [n];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
    mov.u32 %r2, 0; mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000;
"""
LOOP = """
again:
    ld.global.f32 %f3, [%rd4];
    {body}
    add.s64 %rd4, %rd4, 128; add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, %r4; @%p1 bra again;
    st.global.f32 [%rd5], %f1; ret;
}}"""
NAIVE = "add.rn.f32 %f1, %f1, %f3;"
KAHAN = """sub.rn.f32 %f4, %f3, %f2; add.rn.f32 %f5, %f1, %f4;
    sub.rn.f32 %f6, %f5, %f1; sub.rn.f32 %f2, %f6, %f4; mov.f32 %f1, %f5;"""
ONE = """
    ld.global.f32 %f3, [%rd4];
    {body}
    st.global.f32 [%rd5], %f1; ret;
}}"""


def kernel(text: str, body: str) -> Kernel:
    """A kernel with some instructions of its own."""
    return ptx.parse(HEAD + text.format(body=body)).kernels["f"]


def launched(
    made: Kernel, x: Any, **options: Any
) -> tuple[Numerics, np.ndarray[Any, Any]]:
    """What a launch lost, and what it left; its bits are those without numerics."""
    x = np.asarray(x, np.float32)
    y, plain = np.zeros(32, np.float32), np.zeros(32, np.float32)
    count = x.size // 32
    result = made.launch(1, 32, [x.copy(), y, count], numerics=True, **options)
    made.launch(1, 32, [x.copy(), plain, count], watch=False)
    assert y.tobytes() == plain.tobytes()
    assert result.numerics is not None
    return result.numerics, y


def numbers(count: int, seed: int = 0) -> Any:
    """Numbers of different sizes."""
    random = np.random.default_rng(seed)
    sizes = np.exp2(random.integers(-12, 12, (count, 32)))
    return (random.standard_normal((count, 32)) * sizes).astype(np.float32)


def exact_sums(x: Any) -> list[Fraction]:
    """The sums of columns."""
    return [sum(map(Fraction, map(float, column)), Fraction()) for column in x.T]


@pytest.mark.parametrize("body", [NAIVE, KAHAN], ids=["naive", "Kahan"])
def test_the_error_of_a_sum_is_that_of_fractions(body: str) -> None:
    x = numbers(100)
    found, y = launched(kernel(LOOP, body), x)
    errors = [
        float(Fraction(float(v)) - e) for v, e in zip(y, exact_sums(x), strict=True)
    ]
    np.testing.assert_allclose(found["y"].error, errors, rtol=1e-9, atol=1e-300)
    assert found.clean
    first = found.instructions[0]
    assert first.mnemonic.startswith(("add", "sub"))
    assert first.worst_ulp <= 0.5


def test_products_and_quotients_are_exact_to_many_bits() -> None:
    body = "mul.rn.f32 %f4, %f3, %f3; fma.rn.f32 %f5, %f4, %f3, %f3; "
    body += "div.rn.f32 %f6, %f5, %f4; sub.rn.f32 %f1, %f6, %f3;"
    x = numbers(1)
    found, y = launched(kernel(ONE, body), x)
    for value, error, given in zip(y, found["y"].error, x[0], strict=True):
        v = Fraction(float(given))
        exact = (v**3 + v) / v**2 - v
        assert error == pytest.approx(float(Fraction(float(value)) - exact), rel=1e-9)


def test_a_nan_is_followed_from_its_birth() -> None:
    body = "mul.f32 %f4, %f3, 0f7F000000; sub.f32 %f5, %f4, %f4; add.f32 %f1, %f5, %f3;"
    x = np.ones(32, np.float32)
    x[7] = 1e9
    found, y = launched(kernel(ONE, body), x)
    assert np.flatnonzero(np.isnan(y)).tolist() == [7]
    (way,) = found.births
    kinds = [each.kind for each in way.moments]
    assert kinds == [Birth.OVERFLOW, Birth.INVALID, Birth.PASSED]
    assert way.born.instruction.opcode == "mul"
    assert way.born.thread.thread == (7, 0, 0)
    assert way.outputs["argument 1 (y)"][0] == 1
    assert found.problems[0].rule == "nan"
    assert found.problems[0].severity == "error"
    text = str(found)
    assert "overflow: 1e+09 x 1.70141e+38 = inf" in text
    assert "inf - inf = NaN" in text
    assert max(map(len, text.splitlines())) <= 80
    # The exact value is known all the same.
    assert found["y"].exact[7] == 1e9


def test_a_nan_that_reaches_no_array_is_a_note() -> None:
    body = "sqrt.rn.f32 %f4, %f3; setp.ge.f32 %p2, %f3, 0f00000000; "
    body += "selp.f32 %f1, %f4, %f3, %p2;"
    found, _ = launched(kernel(ONE, body), -np.ones(32))
    assert found.clean
    assert [each.born.instruction.opcode for each in found.notes] == ["sqrt"]
    assert {each.severity for each in found.problems} == {"info"}


def test_an_input_that_is_nan_is_named() -> None:
    x = np.ones(32, np.float32)
    x[3] = np.nan
    found, _ = launched(kernel(ONE, "add.f32 %f1, %f3, %f3;"), x)
    (way,) = found.births
    assert way.born.kind == Birth.GIVEN
    assert "x (argument 0) had 1 NaN before the launch, the first x[3]" in str(found)


def test_unwritten_words_are_named() -> None:
    x, y = ptx.empty(32), np.zeros(32, np.float32)
    x[:30] = 1
    made = kernel(ONE, "add.f32 %f1, %f3, %f3;")
    result = made.launch(1, 32, [x, y, 1], numerics=True, watch="report")
    assert result.numerics is not None
    assert result.numerics.births[0].born.unwritten
    assert {each.rule for each in result.problems} == {"uninitialised"}


def test_a_birth_may_stop_the_launch() -> None:
    made = kernel(ONE, "rcp.rn.f32 %f1, %f3;")
    with pytest.raises(KernelFault, match="divided by zero: rcp\\(0\\) = inf") as fault:
        launched(made, np.zeros(32), nan="raise")
    assert fault.value.kind == "infinity"
    with pytest.raises(BadCall, match="needs numerics=True"):
        made.launch(1, 32, [np.zeros(32, np.float32)] * 2 + [1], nan="raise")


def test_a_branch_that_depends_on_rounding() -> None:
    body = "add.f32 %f4, %f3, 0f4B800000; sub.f32 %f4, %f4, 0f4B800000; "
    body += (
        "setp.gt.f32 %p2, %f4, 0f00000000; selp.f32 %f1, 0f3F800000, 0f00000000, %p2;"
    )
    found, _ = launched(kernel(ONE, body), np.full(32, 0.5))
    (site,) = found.branches
    assert site.instruction.opcode == "setp"
    assert site.counts["other_way"] == 32
    assert "other-branch" in {each.rule for each in found.problems}


@pytest.mark.parametrize(
    ("way", "large", "x", "severity"),
    [
        ("rni", "0f4A800000", 0.5 + 2.0**-10, "info"),  # 2**22 + 0.5
        ("rni", "0f4B800000", 1 - 2.0**-10, "warning"),  # 2**24
        ("rmi", "0f4A800000", 1 - 2.0**-10, "warning"),  # 2**22 + 1
    ],
)
def test_either_of_two_integers_that_are_as_near(
    way: str, large: str, x: float, severity: str
) -> None:
    body = f"add.f32 %f4, %f3, {large}; cvt.{way}.s32.f32 %r5, %f4; "
    body += "cvt.rn.f32.s32 %f1, %r5;"
    found, _ = launched(kernel(ONE, body), np.full(32, x))
    (said,) = [each for each in found.problems if each.rule == "other-branch"]
    assert (said.severity, said.count) == (severity, 32)


def test_absorption_cancellation_and_underflow_are_counted() -> None:
    body = "add.f32 %f4, %f3, 0f4E000000; mul.f32 %f5, %f3, 0f00000001; "
    body += "mul.ftz.f32 %f6, %f3, 0f00400000; sub.f32 %f1, %f4, 0f4E000000;"
    found, _ = launched(kernel(ONE, body), np.full(32, 0.3))
    counts = {each.mnemonic: each.counts for each in found.instructions}
    assert counts["add.f32"]["absorbed"] == 32
    assert counts["sub.f32"]["cancelled"] == 32
    assert counts["mul.f32"]["underflows"] == 32


def test_bits_of_floats_keep_exact_values() -> None:
    """A new sign, a new exponent, halves of words; other changes are counted."""
    body = (
        "div.rn.f32 %f4, %f3, 0f40400000; mov.b32 %r5, %f4; xor.b32 %r5, %r5, {sign};"
    )
    body += "add.s32 %r5, %r5, 0x01000000; {last} mov.b32 %f1, %r5;"
    signed = body.replace("{sign}", "0x80000000").replace("{last}", "")
    found, y = launched(kernel(ONE, signed), np.ones(32))
    assert found["y"].exact == pytest.approx(np.full(32, -4 / 3), rel=1e-15)
    assert not found.restarts
    cut = body.replace("{sign}", "0x80000000").replace(
        "{last}", "add.s32 %r5, %r5, 77;"
    )
    found, y = launched(kernel(ONE, cut), np.ones(32))
    assert found["y"].exact.tolist() == y.tolist()
    assert [each.counts["restarted"] for each in found.restarts] == [32]


DOUBLE = """
    cvt.f64.f32 %d1, %f3; div.rn.f64 %d1, %d1, 0d4008000000000000;
    mov.b64 {%r5, %r6}, %d1; add.s32 %r6, %r6, 0x00500000; {more}
    mov.b64 %d2, {%r5, %r6}; add.f64 %d2, %d2, 0d3FF0000000000000;
    cvt.rn.f32.f64 %f1, %d2;"""


def test_exponents_of_doubles_keep_exact_values() -> None:
    """The upper word of an f64 has its sign and exponent."""
    wide = HEAD.replace(".reg .pred", ".reg .f64 %d<4>; .reg .pred")
    text = wide + ONE.replace("{body}", DOUBLE).replace("}}", "}")
    x = np.full(32, 5, np.float32)
    for more, exact, lost in (
        ("xor.b32 %r6, %r6, 0x80000000;", 1 - 32 * 5 / 3, []),
        ("add.s32 %r6, %r6, 1;", None, [32]),
    ):
        made = ptx.parse(text.replace("{more}", more)).kernels["f"]
        found, _ = launched(made, x)
        assert [each.counts["restarted"] for each in found.restarts] == lost
        if exact is not None:
            assert found["y"].exact == pytest.approx(np.full(32, exact), rel=1e-15)
            assert np.abs(found["y"].error).max() > 0


def test_a_choice_by_sign_keeps_exact_values() -> None:
    body = "div.rn.f32 %f4, %f3, 0f40400000; sub.f32 %f5, %f3, 0f40000000; "
    body += "slct.f32.f32 %f1, %f4, %f3, %f5;"
    x = np.arange(32, dtype=np.float32)
    found, _ = launched(kernel(ONE, body), x)
    exact = np.where(x >= 2, x.astype(np.float64) / 3, x)
    assert found["y"].exact == pytest.approx(exact, rel=1e-15)
    assert not found.restarts


@pytest.mark.parametrize("fused", [True, False], ids=["by ptxas", "in PTX"])
def test_contractions_are_compared_with_two_roundings(fused: bool) -> None:
    body = "mul.f32 %f4, %f3, %f3; add.f32 %f1, %f4, %f3;"
    body = body if fused else "fma.rn.f32 %f1, %f3, %f3, %f3;"
    x = numbers(1, seed=7)
    found, y = launched(kernel(ONE, body), x)
    apart = np.abs(x[0] * x[0] + x[0] - y)
    (site,) = found.contractions
    assert site.fused == fused
    assert site.counts["contracted"] == np.count_nonzero(apart)
    assert site.contraction_ulp == (apart / np.spacing(np.abs(y))).max() > 0
    said = f"{np.count_nonzero(apart)} of 32 are others than with a product"
    assert said in " ".join(str(found).split())
    apart = "mul.rn.f32 %f4, %f3, %f3; add.rn.f32 %f1, %f4, %f3;"
    assert not launched(kernel(ONE, apart), x)[0].contractions


def test_contractions_of_halves() -> None:
    body = (
        "cvt.rn.f16.f32 %h1, %f3; fma.rn.f16 %h2, %h1, %h1, %h1; cvt.f32.f16 %f1, %h2;"
    )
    x = numbers(1, seed=8) / 64
    found, y = launched(kernel(ONE, body), x)
    half = x[0].astype(np.float16)
    separate = (half * half + half).astype(np.float32)
    (site,) = found.contractions
    assert site.counts["contracted"] == np.count_nonzero(separate != y) > 0


def test_rounding_by_a_large_constant_is_meant() -> None:
    body = "mul.f32 %f4, %f3, 0f3FB8AA3B; add.rn.f32 %f5, %f4, 0f4B400000; "
    body += "sub.f32 %f5, %f5, 0f4B400000; sub.f32 %f1, %f4, %f5;"
    found, y = launched(kernel(ONE, body), numbers(1, seed=3) / 64)
    assert np.abs(y).max() <= 0.5
    assert np.abs(found["y"].error).max() < 1e-5


def test_atomic_sums_are_exact() -> None:
    made = kernel(ONE, "red.global.add.f32 [%rd2], %f3; mov.f32 %f1, %f3;")
    x = numbers(1, seed=5)
    y = np.zeros(33, np.float32)
    text = (HEAD + ONE.format(body="red.global.add.f32 [%rd2], %f3;")).replace(
        "st.global.f32 [%rd5], %f1; ", ""
    )
    made = ptx.parse(text).kernels["f"]
    result = made.launch(1, 32, [x, y, 1], numerics=True)
    assert result.numerics is not None
    exact = sum(map(Fraction, map(float, x[0])), Fraction())
    assert result.numerics["y"].error[0] == pytest.approx(
        float(Fraction(float(y[0])) - exact), rel=1e-9
    )


def test_blame_is_split_without_a_rest() -> None:
    body = "ex2.approx.ftz.f32 %f4, %f3; cvt.rn.f16.f32 %h1, %f4; cvt.f32.f16 %f5, %h1;"
    body += "add.f32 %f1, %f1, %f5;"
    made = kernel(LOOP, body)
    x = np.random.default_rng(1).uniform(-1, 1, (50, 32)).astype(np.float32)
    found, y = launched(made, x)
    split = found.blame(y)
    assert split.parts[0].name == "conversions"
    assert split.rest < 0.01
    assert split["conversions"].left < 0.1 * split.total
    total = sum(part.error for part in split.parts)
    np.testing.assert_allclose(total, found["y"].error, rtol=1e-3, atol=1e-12)
    (said,) = found.advice()
    assert "wider format" in said
    with pytest.raises(BadCall, match="by is kind"):
        found.blame(by="colour")
    exact = x.astype(np.float64) + 2.0**-30
    quantised = found.blame(inputs={"x": exact})
    assert quantised["quantised inputs"].norm > 0


@pytest.mark.long
def test_targets_part_at_the_first_instruction_that_differs() -> None:
    launch = next(each for each in every_launch() if "mma" in each.identity)
    row, made = launch.row, launch.file.kernel(launch.row)
    given = launch.make_arguments()
    targets = ("sm_80", "sm_90a", "sm_90")
    compared = made.compare(
        row.grid, row.block, given, targets=targets, shared=row.shared
    )
    hopper, older = compared.partings
    assert hopper.targets == ("sm_80", "sm_90a")
    if not hopper.same:
        assert hopper.first is not None
        assert hopper.first.opcode in ("mma", "wmma")
        assert "part at" in str(compared)
    assert hopper.arrays == older.arrays
    with pytest.raises(BadCall, match="two targets"):
        made.compare(row.grid, row.block, given, targets=["sm_80"])


def test_the_report_is_plain_data_too() -> None:
    found, _ = launched(kernel(LOOP, NAIVE), numbers(20))
    told = json.loads(found.to_json())
    (output,) = told["outputs"]
    assert output["format"] == "f32"
    assert told["instructions"][0]["instruction"] == "add.rn.f32"
    assert math.isclose(told["instructions"][0]["share"], 1)
    picture = found["y"].to_svg("relative")
    assert picture.startswith("<svg")
    assert picture.count("<rect") == 32
    assert "<svg" in found._repr_html_()
    with pytest.raises(BadCall, match="no map of colours"):
        found["y"].to_svg("colours")
    with pytest.raises(BadCall, match="wrote no floats to z"):
        found["z"]


def test_numerics_is_not_asked_of_a_cluster_of_machines() -> None:
    made = kernel(ONE, "add.f32 %f1, %f3, %f3;")
    with pytest.raises(BadCall, match="one machine"):
        made.launch(1, 32, [0, 0, 1], numerics=True, client=object())


def test_second_values_that_are_bits_of_something_else_have_no_format() -> None:
    """Those of halves may look like signalling NaN, which no sum or product takes."""
    held = np.full(64, 1e30, np.float32).view(np.uint8)
    numbers = np.full((64, 2), 0x7FF4_0000_0000_0000, np.uint64)
    planes = split(numbers, 32, 4).view(np.uint8)
    assert best_format(held, planes, 0) == ""


RECORDED = some(every_launch(), 72, 5)


@pytest.mark.long
@pytest.mark.parametrize("launch", RECORDED, ids=[each.identity for each in RECORDED])
def test_recorded_launches_keep_their_bits_and_no_nan_is_invented(launch: Any) -> None:
    from fragmenta.inspect.evidence.launches import replay_one

    found = replay_one(launch.file, launch.row, watch=False, numerics=True)
    assert not found.lines
    assert found.numerics is not None
    for way in found.numerics.births:  # what is reported is in an array
        assert sum(count for count, _ in way.outputs.values()) > 0
    for output in found.numerics.outputs.values():
        named = sum(
            way.outputs.get(output.name, (0, ""))[0] for way in found.numerics.births
        )
        assert named <= output.nan + output.infinite


def test_the_command_reports_what_is_lost(tmp_path: Path) -> None:
    file, found = tmp_path / "k.ptx", tmp_path / "k.sarif"
    file.write_text(HEAD + ONE.format(body="rcp.rn.f32 %f1, %f3;"))
    words = ["launch", str(file), "--block", "32", "--arg", "zeros:f32:32"]
    words += ["--arg", "ones:f32:32", "--arg", "u32:1", "--numerics"]
    said = CliRunner().invoke(app, [*words, "--sarif", str(found)])
    assert said.exit_code == 0  # an infinity is a warning
    assert "division by zero: rcp(0) = inf" in said.output
    (result,) = json.loads(found.read_text())["runs"][0]["results"]
    assert result["ruleId"] == "infinity"
    told = CliRunner().invoke(app, [*words, "--json"])
    numerics = json.loads(told.stdout)["numerics"]
    assert numerics["births"][0]["way"][0]["kind"] == "division"
    assert [each["rule"] for each in numerics["problems"]] == ["infinity"]


def test_the_fixture_of_pytest_takes_numerics() -> None:
    cpu = launcher("cpu")
    x, y = np.zeros(32, np.float32), np.ones(32, np.float32)
    text = HEAD + ONE.format(body="lg2.approx.f32 %f1, %f3;")
    cpu.launch(text, "f", 1, 32, [x, y, 1], numerics=True)
    last = getattr(cpu, "last", None)
    assert last is not None
    assert last.numerics.births[0].born.kind == Birth.DIVISION


def test_a_result_that_is_zero_exactly_has_no_digit_that_is_right() -> None:
    body = "add.f32 %f4, %f3, 0f4B800000; sub.f32 %f5, %f4, 0f4B800000; "
    body += "sub.f32 %f1, %f5, %f3;"
    found, y = launched(kernel(ONE, body), np.full(32, 0.75))
    assert (y == -0.75).all()
    last = max(found.instructions, key=lambda each: each.index)
    assert (last.worst_relative, last.amplification) == (math.inf, 0.0)
    assert "no digit is right" in str(found)
    assert "1e+300" not in found.to_json() + str(found)


@pytest.mark.parametrize("word, sign", [("max", 1), ("min", -1), ("max", -1)])
def test_the_largest_may_be_another_operand(word: str, sign: int) -> None:
    """One is 9/8 ulp beyond 1.5 exactly, and 1.5 as it is rounded; the other 1 ulp."""

    def written(number: float) -> str:
        return f"0f{np.float32(number).view(np.uint32):08X}"

    body = f"mov.f32 %f4, {written(sign * 3 * 2.0**-26)}; add.f32 %f5, %f3, %f4; "
    body += "add.f32 %f5, %f5, %f4; add.f32 %f5, %f5, %f4; "
    body += f"{word}.f32 %f1, %f5, {written(1.5 + sign * 2.0**-23)};"
    found, y = launched(kernel(ONE, body), np.full(32, 1.5))
    (site,) = [each for each in found.instructions if each.mnemonic == f"{word}.f32"]
    if (word, sign) == ("max", -1):  # 1.5, and exactly the other operand
        assert (y == 1.5).all()
    else:
        assert (y == np.float32(1.5 + sign * 2.0**-23)).all()
    assert site in found.branches
    assert site.counts["other_way"] == 32
    assert site.other is not None
    assert site.other.exact_operands[0] == 1.5 + sign * 9 * 2.0**-26
    (said,) = [each for each in found.problems if each.rule == "other-branch"]
    assert (said.severity, said.count) == ("info", 32)
    assert said.message == "exact values would choose another operand, 32 times"


def test_the_largest_of_equal_operands_is_no_decision() -> None:
    body = "add.f32 %f4, %f3, 0f32000000; max.f32 %f1, %f4, %f3;"
    found, y = launched(kernel(ONE, body), np.full(32, 1.5))
    assert (y == 1.5).all()
    assert found["y"].error.all()
    assert not found.branches


@pytest.mark.parametrize(
    ("body", "severity"),
    [
        ("mul.f32 %f4, %f3, %f3; sqrt.rn.f32 %f1, %f4;", "error"),
        ("mul.f32 %f1, %f3, %f3;", "warning"),
        (
            "mul.f32 %f4, %f3, %f3; mov.f32 %f5, 0f7F800000;"
            "setp.eq.f32 %p1, %f4, %f5; lg2.approx.f32 %f1, %f4;"
            "@%p1 fma.rn.f32 %f1, %f4, %f5, %f5;",
            "error",
        ),
    ],
    ids=["root", "square", "logarithm"],
)
def test_an_infinity_is_an_error_where_the_exact_value_is_finite(
    body: str, severity: str
) -> None:
    found, _ = launched(kernel(ONE, body), np.linspace(1e19, 1e20, 32))
    (said,) = [each for each in found.problems if each.rule == "infinity"]
    assert said.severity == severity
