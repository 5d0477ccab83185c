"""All ways to round to a code, with and without a zero point; what only looks alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx

HEAD = """extern "C" __global__ void k(float *y, unsigned char *codes, const float *x,
                             float s, int z, float zf)
{
    int t = threadIdx.x;
    float v = x[t] / s;
"""
RANDOM = np.random.default_rng(7)
BOTH = RANDOM.uniform(-2, 2, 64).astype(np.float32)
ABOVE = np.abs(BOTH)


def found(body: str, x: Any, scale: float, zero: int = 64) -> list[Any]:
    """What is reported of a kernel, but for what is only told; and its source."""
    kernel = ptx.RawKernel(HEAD + body + "\n}", "k")
    y, codes = np.zeros(64, np.float32), np.zeros(64, np.uint8)
    step = np.float32(scale)
    given = [y, codes, x, step, np.int32(zero), np.float32(zero)]
    made = kernel(1, 64, given, numerics=True).numerics
    return [each for each in made.problems if each.severity != "info"]


def line(body: str, problem: Any) -> str:
    """The line of the source that a problem is at."""
    return (HEAD + body).splitlines()[problem.source.line - 1]


def check(body: str, x: Any, right: float, zero: int = 64) -> Any:
    """Silent with a scale at which all numbers fit; an error with half of it."""
    assert not found(body, x, right, zero)
    (problem,) = found(body, x, right / 2, zero)
    assert (problem.rule, problem.severity) == ("output-error", "error")
    return problem


WAYS = (
    "rintf(v)",
    "roundf(v)",
    "floorf(v + 0.5f)",
    "ceilf(v - 0.5f)",
    "floorf(fmaf(x[t], 1 / s, 0.5f))",
    "truncf(v + copysignf(0.5f, v))",
    "truncf(v + (v > 0 ? 0.5f : -0.5f))",
    "(float)__float2int_rn(v)",
    "(float)lroundf(v)",
    "(float)lrintf(v)",
    "(float)llrintf(v)",
)


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_round_in_float(way: str) -> None:
    cast = "signed char b = (signed char)fminf(fmaxf(q, -127.0f), 127.0f);"
    check(f"float q = {way};\n{cast}\ny[t] = b * s;", BOTH, 2 / 127)


@pytest.mark.parametrize("way", ["roundf(v)", "lroundf(v)", "llrintf(v)", "v"])
def test_ways_to_round_to_integers(way: str) -> None:
    start = "float h = v > 0 ? 0.5f : -0.5f;\n" if way == "v" else ""
    way = "v + h" if way == "v" else way
    body = f"{start}int q = (int)({way});\nq = min(max(q, -127), 127);\ny[t] = q * s;"
    check(body, BOTH, 2 / 127)


def test_what_is_kept_in_a_range_before_it_is_rounded() -> None:
    body = "int q = (int)roundf(fminf(fmaxf(v, -127.f), 127.f));\ny[t] = q * s;"
    check(body, BOTH, 2 / 127)


def test_what_was_added_to_round_is_no_error() -> None:
    """The integer stands for the number, not for its sum with a half."""
    body = "float q = floorf(v + 0.5f);\n"
    body += "signed char b = (signed char)fminf(fmaxf(q, -127.0f), 127.0f);\ny[t] = b;"
    kernel = ptx.RawKernel(HEAD + body + "\n}", "k")
    x = np.linspace(-100.3, 100.3, 64, dtype=np.float32)
    y, codes = np.zeros(64, np.float32), np.zeros(64, np.uint8)
    given = [y, codes, x, np.float32(1), np.int32(0), np.float32(0)]
    made = kernel(1, 64, given, numerics=True).numerics
    assert np.allclose(made["y"].exact, x, atol=1e-5)


UNSIGNED = {
    "byte": "unsigned char c = (unsigned char)fminf(fmaxf(rintf(v), 0.f), 255.f);",
    "int, byte": "unsigned char c = (int)fminf(fmaxf(rintf(v), 0.f), 255.f);",
    "stored": "int c = (int)fminf(fmaxf(rintf(v), 0.f), 255.f); codes[t] = c;\n"
    "c = codes[t];",
    "one bound": "unsigned c = min(__float2uint_rn(v), 255u);",
}


@pytest.mark.parametrize("way", UNSIGNED)
def test_unsigned_bytes(way: str) -> None:
    check(UNSIGNED[way] + "\ny[t] = c * s;", ABOVE, 2 / 255)


INTS = "int c = min(max(__float2int_rn(v) + {z}, 0), 255);\n"
FLOATS = "float q = fminf(fmaxf(rintf(v) + {z}, 0.f), 255.f);\n"
SHIFTED = {
    "constant": INTS.format(z=64) + "y[t] = (c - 64) * s;",
    "given": INTS.format(z="z") + "y[t] = (c - z) * s;",
    "apart": INTS.format(z="z") + "y[t] = c * s - z * s;",
    "float after": INTS.format(z="z") + "y[t] = ((float)c - zf) * s;",
    "float": FLOATS.format(z="zf") + "y[t] = (q - zf) * s;",
    "float of int": FLOATS.format(z="z") + "y[t] = ((int)q - z) * s;",
    "computed": "float d = rintf(-x[0] * 0 + 64);\n"
    + FLOATS.format(z="d")
    + "y[t] = (q - d) * s;",
    "byte": FLOATS.format(z="z") + "codes[t] = (unsigned char)q;\n"
    "y[t] = ((int)codes[t] - z) * s;",
    "shared": "__shared__ unsigned char sh[64];\n"
    + INTS.format(z="z")
    + "sh[t] = c;\n__syncthreads();\ny[t] = (sh[t] - z) * s;",
    "wraps": "codes[t] = (unsigned char)(__float2int_rn(v) + z);\n"
    "y[t] = (codes[t] - z) * s;",
}


@pytest.mark.parametrize("way", SHIFTED)
def test_zero_points_that_are_added_after_rounding(way: str) -> None:
    check(SHIFTED[way], ABOVE, 2 / 190)


def test_a_range_that_is_too_short() -> None:
    body = SHIFTED["byte"]
    x = RANDOM.uniform(-1, 2.9, 64).astype(np.float32)
    assert not found(body, x, 4 / 255)
    (problem,) = found(body.replace("255.f", "127.f"), x, 4 / 255)
    assert problem.rule == "output-error"


# ── sums of codes ───────────────────────────────────────────────────────────

CODE = "__float2int_rn(fminf(fmaxf({v}, -127.0f), 127.0f))"
A, B = CODE.format(v="v"), CODE.format(v="x[63 - t] / s")
WRAPS = {
    "registers": f"int a = {A};\nint b = {B};\nsigned char w = a + b;\ny[t] = w * s;",
    "used twice": f"int a = {A};\nint b = {B};\nint w = a + b;\n"
    "signed char c = w;\ny[t] = c * s + (w > 999);",
    "bytes": "__shared__ signed char a[64], b[64];\n"
    f"a[t] = {A};\nb[t] = {B};\n__syncthreads();\nsigned char w = a[t] + b[t];\n"
    "y[t] = w * s;",
}


@pytest.mark.parametrize("way", WRAPS)
@pytest.mark.parametrize("whole", [False, True])
def test_sums_of_codes_wrap_where_they_are_added(way: str, whole: bool) -> None:
    """Also those of integers, which rounding leaves as they are."""
    body, x = WRAPS[way], BOTH.copy()
    x[0] = -2  # just the least code, which a byte without a sign has as 129
    x = np.rint(x * 63) / np.float32(63) if whole else x
    assert not found(body, x, 4 / 127)
    problem = found(body, x, 2 / 127)[0]
    assert problem.rule == "output-error"
    assert "= a" in line(body, problem) or "char c" in line(body, problem)


def test_a_wrap_on_the_way_is_undone() -> None:
    body = f"signed char w = {A} + {B} - {B};\ny[t] = w * s;"
    assert not found(body, BOTH, 2 / 127)


# ── what only looks alike ───────────────────────────────────────────────────

MEANT = {
    "exponent": "int e = min(max(__float2int_rn(v) + 127, 0), 255);\n"
    "y[t] = __int_as_float(e << 23);",
    "power": "float e = fminf(fmaxf(roundf(v), -127.f), 127.f);\ny[t] = exp2f(e);",
    "stored exponent": "int e = __float2int_rn(v) + 127;\ncodes[t] = e;\n"
    "y[t] = exp2f((float)(codes[t] - 127));",
    "reduction": "float n = floorf(v + 0.5f);\nfloat r = v - n;\n"
    "int e = min(max((int)n, -127), 127);\ny[t] = r + (e & 1);",
    "magic": "float n = v + 12582912.f;\n"
    "int e = min(max(__float_as_int(n) - 0x4b400000, -127), 127);\n"
    "y[t] = __int_as_float((e + 127) << 23);",
    "place": "int i = min(max((int)(v + 0.5f), 0), 15);\ny[t] = x[i];",
    "between": "float i = floorf(v - 0.5f), f = v - 0.5f - i;\n"
    "int j = min(max((int)i, 0), 15);\ny[t] = x[j] * (1 - f) + x[j + 1] * f;",
    "nearest": "int i = (int)floorf(v + 0.5f);\nfloat f = v - i;\n"
    "i = min(max(i, 0), 15);\ny[t] = x[i] + f;",
    "hash": "unsigned h = __float2int_rn(v) * 2654435761u;\nh = (h ^ h >> 13) & 255;\n"
    "y[t] = h * (1.0f / 256);",
    "bytes": "unsigned h = codes[t] * 1664525u + 1013904223u;\n"
    "y[t] = (h & 255) * (1.0f / 256);",
    "grid": "int cell = (int)rintf(v * 64) & 255;\ny[t] = x[cell & 63];",
    "address": "int i = __float2int_rn(v) & 63;\ny[t] = x[i];",
    "functions": "y[t] = expf(v * 1e-3f) + sinf(v) + exp2f(v * 1e-3f) + cosf(v);",
}


@pytest.mark.parametrize("way", MEANT)
@pytest.mark.parametrize("size", [0.004, 0.5])
def test_what_is_meant(way: str, size: float) -> None:
    assert not found(MEANT[way], BOTH, size)


COLOURS = {
    "rounded": "unsigned char c = (unsigned char)(255.f * __saturatef(x[t]) + 0.5f);",
    "cut": "unsigned char c = (unsigned char)(255.99f * __saturatef(x[t]));",
}


@pytest.mark.parametrize("way", COLOURS)
def test_colours(way: str) -> None:
    assert not found(COLOURS[way] + "\ncodes[t] = c;\ny[t] = c;", BOTH, 1)


# ── codes that are floats ───────────────────────────────────────────────────

FOUR = """#include <cuda_fp4.h>
extern "C" __global__ void k(float *y, const float *x, float s)
{
    int t = threadIdx.x;
    __nv_fp4_e2m1 q(x[t] / s);
    y[t] = float(q) * s;
}"""


def test_what_four_bits_explain() -> None:
    """Codes have no room for a source: it is not the conversion back, which is exact."""
    kernel = ptx.RawKernel(FOUR, "k", target="sm_100a")
    y = np.zeros(64, np.float32)
    right = kernel(1, 64, [y, ABOVE, np.float32(0.5)], numerics=True).numerics
    assert not [each for each in right.problems if each.severity != "info"]
    wrong = kernel(1, 64, [y, ABOVE, np.float32(0.1)], numerics=True).numerics
    (problem,) = [each for each in wrong.problems if each.rule == "output-error"]
    assert "e2m1 explains" in problem.message
    assert "cvt.rn.satfinite.e2m1x2" in problem.text
