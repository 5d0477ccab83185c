"""Outputs that are wrong are warnings and errors; right counterparts are silent."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.errors import BadCall
from fragmenta.values.numerics.judging import Limits, Loss
from tests.asking import ask
from tests.numerics.test_numerics import LOOP, kernel
from tests.numerics.test_numerics import launched as ptx_launched

SOURCE = Path(__file__).with_name("judged.cu")
RANDOM = np.random.default_rng(0)
POSITIVE = RANDOM.random((32, 256)).astype(np.float32)
MIXED = RANDOM.standard_normal((32, 256)).astype(np.float32)
LARGE = POSITIVE.copy()
LARGE[:, 0] = 2.0**25
ONE = np.ascontiguousarray(POSITIVE[:, 0]) + np.float32(1)


def zeros() -> np.ndarray:
    return np.zeros(32, np.float32)


def weights() -> np.ndarray:
    return np.ones(32, ml_dtypes.bfloat16)


ARGUMENTS = {
    "half_sum": lambda: [zeros(), (POSITIVE * 4).astype(np.float16), 256],
    "float_sum": lambda: [zeros(), (POSITIVE * 4).astype(np.float16), 256],
    "lost_steps": lambda: [np.ones(32, np.float32), np.float32(2e-8), 1000],
    "kept_steps": lambda: [np.ones(32, np.float32), np.float32(2e-8), 1000],
    "bf16_weights": lambda: [weights(), ONE, np.float32(2.0**-10), 40],
    "f32_weights": lambda: [weights(), ONE, np.float32(2.0**-10), 40],
    "flushed": lambda: [zeros(), ONE * np.float32(1e-19)],
    "unflushed": lambda: [zeros(), ONE * np.float32(1e-19)],
    "hidden_infinity": lambda: [zeros(), ONE * np.float32(300)],
    "no_infinity": lambda: [zeros(), ONE * np.float32(300)],
    "hidden_nan": lambda: [zeros(), ONE * np.float32(300)],
    "no_nan": lambda: [zeros(), ONE * np.float32(300)],
    "dot": lambda: [zeros(), MIXED, MIXED[0].copy(), 256],
    "kahan": lambda: [zeros(), LARGE, 256],
    "neumaier": lambda: [zeros(), LARGE, 256],
    "compensated_dot": lambda: [zeros(), MIXED, MIXED[1].copy(), 256],
    "roots": lambda: [zeros(), ONE],
    "fake_quantised": list,
    "quantised_dot": list,
    "rounded": lambda: [zeros(), ONE],
}


@pytest.fixture(scope="module")
def kernels():
    code = SOURCE.read_text()
    return {name: ptx.RawKernel(code, name, path=str(SOURCE)) for name in ARGUMENTS}


SIZES = np.exp2(np.arange(32) % 7 - 3).astype(np.float32)
ROWS = np.ascontiguousarray(MIXED[:, :32] * SIZES[:, None])
SCALES = (np.abs(ROWS).max(1) / 127).astype(np.float32)


@pytest.mark.parametrize("name", ["fake_quantised", "quantised_dot"])
@pytest.mark.parametrize("wrong", [0, 1])
def test_a_scale_of_the_wrong_axis_is_seen(kernels, name, wrong) -> None:
    """Integers stand for the numbers that were rounded, and cut off."""
    alone = name == "quantised_dot"
    y = np.zeros(32 if alone else (32, 32), np.float32)
    given = [y, ROWS.copy(), SCALES.copy(), wrong]
    found = kernels[name](1 if alone else 32, 32, given, numerics=True).numerics
    exact = ROWS.astype(np.float64) @ np.arange(1, 33) if alone else ROWS
    assert np.allclose(found["y"].exact, exact, rtol=1e-5, atol=1e-5)
    assert np.allclose(found["y"].error, y - exact, rtol=1e-3, atol=1e-4)
    assert (("error", "output-error") in told(found)) is bool(wrong)
    assert wrong or not told(found)


def launched(kernels, name):
    return kernels[name](1, 32, ARGUMENTS[name](), numerics=True).numerics


def told(found):
    """What is no note: severities and rules."""
    return {(e.severity, e.rule) for e in found.problems if e.severity != "info"}


def line(quoted: str) -> int:
    lines = SOURCE.read_text().splitlines()
    (found,) = (n for n, text in enumerate(lines, 1) if quoted in text)
    return found


@pytest.mark.parametrize(
    "name, severity, rule, quoted",
    [
        ("half_sum", "warning", "output-error", "total = __hadd"),
        ("lost_steps", "warning", "absorption", "value += step"),
        ("bf16_weights", "warning", "output-error", "value = __float2bfloat16_rn("),
        ("flushed", "error", "output-error", 'asm("mul.ftz.f32'),
        ("hidden_infinity", "error", "output-error", ""),
        ("hidden_infinity", "warning", "infinity", "__half square"),
        ("hidden_nan", "error", "output-error", ""),
        ("hidden_nan", "warning", "nan", "float square = __half2float("),
    ],
)
def test_a_wrong_output_is_told(kernels, name, severity, rule, quoted) -> None:
    found = launched(kernels, name)
    problems = [e for e in found.problems if (e.severity, e.rule) == (severity, rule)]
    assert problems
    if quoted:
        assert {each.source.line for each in problems} == {line(quoted)}


@pytest.mark.parametrize(
    "name",
    [
        "float_sum",
        "kept_steps",
        "f32_weights",
        "unflushed",
        "no_infinity",
        "no_nan",
        "dot",
        "kahan",
        "neumaier",
        "compensated_dot",
    ],
)
def test_the_right_counterpart_is_silent(kernels, name) -> None:
    assert not told(launched(kernels, name))


@pytest.mark.parametrize("name", ["kahan", "neumaier", "compensated_dot"])
def test_a_compensation_is_not_accused(kernels, name) -> None:
    found = launched(kernels, name)
    assert not [e for e in found.problems if e.rule in ("cancellation", "absorption")]
    assert "no digit is right" not in str(found)
    assert "that no output misses" in str(found)


def test_an_output_without_numbers_has_no_errors(kernels) -> None:
    text = str(launched(kernels, "roots"))
    assert "32 of 32 are NaN, born at" in text
    assert f"{SOURCE.name}:{line('sqrtf')}" in text
    assert "0 ulp" not in text
    assert "bits lost" not in text


def test_the_verdict_is_in_the_text_and_in_json(kernels) -> None:
    found = launched(kernels, "bf16_weights")
    assert "warning: w[" in str(found)
    assert "bf16 explains 0.016" in " ".join(str(found).split())
    judged = found.to_dict()["outputs"][0]["judged"]
    assert judged["severity"] == "warning"
    assert judged["error"] > judged["explained"]


def test_limits_can_be_set(kernels) -> None:
    found = launched(kernels, "bf16_weights")
    assert told(found.within(0.5)) == set()
    assert told(found.within(1e-3, 0.01)) == {("error", "output-error")}
    with pytest.raises(BadCall, match="warning is a relative error"):
        found.within(-1)


def test_where_floats_become_integers_is_said(kernels) -> None:
    found = launched(kernels, "rounded")
    assert [each.instruction.opcode for each in found.integers] == ["cvt"]
    assert "floats become integers" in str(found)


@pytest.mark.parametrize(
    "size, limits, severity",
    [
        (1e-4, Limits(), "warning"),
        (5e-5, Limits(), ""),
        (0.11, Limits(), "error"),
        (0.11, Limits(0.2), ""),
        (0.3, Limits(0.2), "error"),
        (0.01, Limits(1e-3, 0.005), "error"),
    ],
)
def test_the_scale(size: float, limits: Limits, severity: str) -> None:
    assert Loss(size, 6.1e-5, 0, -1, 0.0).severity(limits) == severity


def test_the_command_takes_a_tolerance() -> None:
    launch = ["launch", str(SOURCE), "half_sum", "--block", "32"]
    launch += [
        "--arg",
        "zeros:f32:32",
        "--arg",
        "full:f16:32x256:3",
        "--arg",
        "i32:256",
    ]
    assert ask(*launch, "--tolerance", "1e-3").exit_code == 2
    assert ask(*launch, "--numerics", "--tolerance", "x").exit_code == 2
    strict = ask(*launch, "--numerics", "--tolerance", "0,0")
    loose = ask(*launch, "--numerics", "--tolerance", "2,3")
    assert "the limit is" not in loose.output
    assert (strict.exit_code, loose.exit_code) in ((0, 0), (1, 0))


STEPS = """
.version 8.0 .target sm_80 .address_size 64
.visible .entry steps(.param .u64 d, .param .u32 given)
{
    .reg .b32 %a, %i, %t; .reg .f32 %c<4>; .reg .pred %p; .reg .b64 %d, %w;
    ld.param.u64 %d, [d]; ld.param.u32 %a, [given];
    mov.u32 %i, 0; mov.f32 %c0, 0f00000000; mov.f32 %c1, 0f00000000;
    mov.f32 %c2, 0f00000000; mov.f32 %c3, 0f00000000;
ROUND:
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
        {%c0, %c1, %c2, %c3}, {%a, %a, %a, %a}, {%a, %a}, {%c0, %c1, %c2, %c3};
    add.u32 %i, %i, 1;
    setp.lt.u32 %p, %i, 1000;
    @%p bra ROUND;
    mov.u32 %t, %tid.x;
    mad.wide.u32 %w, %t, 4, %d;
    st.global.f32 [%w], %c0;
    ret;
}"""


def test_products_may_cut_off_in_every_step() -> None:
    kernel = ptx.parse(STEPS).kernels["steps"]
    out = np.zeros(32, np.float32)
    third = int(np.float16(1 / 3).view(np.uint16)) * 0x10001
    result = kernel.launch(1, 32, [out, third], numerics=True)
    (told,) = result.numerics.outputs.values()
    off = np.abs(told.error / told.values).max()
    assert 2.0**-14 < off < 2.0**-12
    assert not result.numerics.problems


SHARES = """add.f32 %f4, %f3, 0f1E3CE508; sin.approx.f32 %f1, %f4;"""


def test_a_sum_is_accused_of_its_own_part_alone() -> None:
    """All addends vanish on the line, and another instruction of it is wrong."""
    x = np.linspace(90, 100, 128)
    found, _ = ptx_launched(kernel(LOOP, SHARES), x)
    assert max(each.ulp for each in found.losses.values()) > 8
    (said,) = [each for each in found.problems if each.rule == "absorption"]
    assert said.severity == "info"
