"""What a kernel computes must be seen to matter; what is not seen is not judged."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.frontends.judge.marking import Seen, marked, never_changed
from fragmenta.frontends.judge.reaching import Kernels
from fragmenta.frontends.judge.roots import Argument
from fragmenta.frontends.judge.unrolling import of_functions
from fragmenta.values.counters.asking import with_results
from tests.judge.test_understanding import said as not_understood

SIZES = (300, 77)
M = 1 << 20


def said(body: str, before: str = "", given: dict[int, int] | None = None) -> list[str]:
    """What is told of a kernel that was launched for some sizes.

    ``m`` is the same for all sizes, unless it is given for each of them.
    """
    kernel = ptx.RawKernel(
        f'{before}\nextern "C" __global__ void f(const float *x, float *z, int n, int m) {{'
        f"\nint i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;\n{body} }}",
        "f",
    ).kernel
    seen = Kernels()
    for size in SIZES:
        x = np.random.default_rng(size).normal(0, 3, size).astype(np.float32)
        x[:9] = 0, -0.0, np.inf, -np.inf, np.nan, 1e-30, 1e30, -1e9, 0.5
        m = (given or {}).get(size, M)
        with with_results():
            arguments = (x, np.zeros_like(x), size, m)
            result = kernel.launch(-(-size // 64), 64, arguments, counters=True)
        assert result.counters is not None
        row = [Argument(pointer=True)] * 2 + [Argument(size), Argument(m)]
        seen.add("digest", kernel.loaded, "f", result.counters, row, f"n={size}")
    return seen.one_way(floats=True)


UNSEEN = {
    "a bump that is lost": "float d = x[i] - 17.3f; z[i] = x[i] + 1e-13f / (d * d + 1e-13f);",
    "a factor that is lost": "float d = x[i] - 17.3f; z[i] = x[i] * (1.0f + 1e-13f / (d * d + 1e-13f));",
    "a bump of a function": "float d = (x[i] - 17.3f) * 1e5f; z[i] = x[i] + __expf(-d * d);",
    "two conditions": "float a = x[i] > 0.5f, b = x[i] < 0.500001f; z[i] = x[i] + a * b;",
    "a largest number": "z[i] = x[i] + fmaxf(0.0f, 1.0f - fabsf(x[i] - 17.3f) * 1e6f);",
    "places that are divided": "z[i] = x[(i >> 9) / 3 + i];",
    "a limit that is a number": "if (i < m) z[i] = x[i];",
    "a place by a number": "z[i] = x[i + i / m];",
    "the rest of a number": "z[i] = x[i % m];",
    "a smooth bump": "float d = x[i] - 17.3f; z[i] = x[i] + 1e-12f / (d * d);",
    "a largest number beside another zero": "float w = 0; if (threadIdx.x > n) w = x[i]; "
    "z[i] = x[i] + fmaxf(w, 1.0f - fabsf(x[i] - 17.3f) * 1e6f);",
    "an early infinity": "float y = x[i] * x[i] + 2, r = 1; if (__float_as_int(y) < (int)0xbf800001) "
    "r = 3; z[i] = r;",
    "a place as a float": "float t = i * 1e-6f; z[i] = x[i] + t * t;",
    "a size as a float": "float t = n * 1e-6f; z[i] = x[i] + t * t;",
    "an aligned address": "z[i] = ((const float *)((size_t)x & ~(size_t)15))[i];",
    "lanes that are together": "z[i] = x[i] * __popc(__activemask());",
    "a register of a GPU": 'unsigned r; asm("mov.u32 %0, %%nsmid;" : "=r"(r)); z[i] = x[i] * r;',
}


@pytest.mark.parametrize("name", UNSEEN)
def test_what_was_not_seen_to_matter_is_told(name: str) -> None:
    assert said(UNSEEN[name])


@pytest.mark.parametrize(
    "body",
    [
        "z[i] = x[i] * 2.0f + 1.0f;",
        "z[i] = fmaxf(x[i], 0.0f);",
        "z[i] = x[i] / (1.0f + expf(-x[i]));",
        "z[i] = tanhf(x[i]) * 2.0f;",
        "z[i] = x[n - 1 - i] / n;",
        "if (((size_t)x & 15) == 0) z[i] = x[i]; else z[i] = x[i] * 1.0f;",
        "__shared__ float s[64]; s[threadIdx.x] = x[i]; z[i] = s[threadIdx.x] * 3;",
        "float s = 0; for (int k = threadIdx.x & 31; k < n; k += 32) s += x[k]; z[i] = s;",
        "int r = i / 16, c = i % 16; z[r * 16 + c] = x[i];",
        # an element that is behind the end in all launches
        "float w = 0; if (threadIdx.x > n) w = x[i]; z[i] = w / (1.0f + fabsf(x[i]));",
        # a loop that makes one step
        "float s = 0;\n#pragma unroll 1\nfor (int k = threadIdx.x / 64; k < n; k += 512)"
        " s = fmaf(x[i], x[k], s); z[i] = s;",
        "z[i] = log1pf(expf(x[i]));",
        # a negation
        "((unsigned *)z)[i] = ((const unsigned *)x)[i] ^ 0x80000000u;",
    ],
)
def test_ordinary_kernels_are_seen_to_matter(body: str) -> None:
    assert said(body) == []


def inlined(body: str) -> set[str]:
    """The instructions that are known as those of a function of CUDA."""
    kernel = ptx.RawKernel(
        'extern "C" __global__ void f(const float *x, float *z) {'
        f" float v = x[threadIdx.x]; z[threadIdx.x] = {body}; }}",
        "f",
    ).kernel
    function = kernel.loaded.module.functions["f"]
    return {function.instructions[each].mnemonic for each in of_functions(function)}


@pytest.mark.parametrize(
    "body", ["expm1f(v)", "v > 0 ? v : 1.7f * expm1f(v)", "expm1f(v * v) + expm1f(v)"]
)
def test_functions_of_cuda_are_known_where_they_are_inlined(body: str) -> None:
    assert {"setp.ge.f32", "selp.b32", "selp.f32"} <= inlined(body)


def test_what_is_nearly_such_a_function_is_not_known() -> None:
    scaled = "rintf(v * 1.4426950f) >= 25.0f ? 2.0f * v : v"
    assert not inlined(scaled)
    assert not inlined("expf(v) - 1.0f")


def test_a_small_part_of_such_a_function_never_mattered() -> None:
    assert said("z[i] = x[i] > 0 ? x[i] : 1.7f * expm1f(x[i]);") == []


def test_a_counter_may_make_one_step() -> None:
    counted = 'int k; asm volatile("shr.u32 %0, %1, 8;" : "=r"(k) : "r"(m));'
    loop = "\n#pragma unroll 1\nfor (; k > 0; k--) s *= 1.5f;"
    body = f"float s = x[i]; {counted}{loop} z[i] = s;"
    assert said(body, given={300: 511, 77: 5}) == []


def versions(bodies: Sequence[str], text: str = "") -> list[str]:
    """What is told of a kernel of which one version got small numbers, the next others."""
    seen = Kernels()
    for number, body in enumerate(bodies):
        kernel = ptx.RawKernel(
            'extern "C" __global__ void f(const float *x, float *z, int n, int m) {'
            f"\nint i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;\n{body} }}",
            "f",
        ).kernel
        for size in SIZES:
            x = np.random.default_rng(size).normal(0, 3, size).astype(np.float32)
            x = x if number else x * np.float32(1e-6)
            with with_results():
                given = (x, np.zeros_like(x), size, 1)
                result = kernel.launch(-(-size // 64), 64, given, counters=True)
            assert result.counters is not None
            row = [Argument(pointer=True)] * 2 + [Argument(size), Argument(1)]
            seen.add(f"{number}", kernel.loaded, "f", result.counters, row, f"n={size}")
    return seen.one_way(floats=True, text=text)


SQUARE = "z[i] = fmaf(x[i], x[i], 1.5f);"
TRITON = "@triton.jit\ndef f(x, z, n):\n    pass\n"


@pytest.mark.parametrize("text", ["", TRITON])
def test_what_one_version_shows_counts_for_another(text: str) -> None:
    assert versions([SQUARE], text)
    assert versions([SQUARE, SQUARE], text) == []


@pytest.mark.parametrize(
    "other",
    ["z[i] = fmaf(x[i], x[i], 2.5f);", "z[i] = fmaf(x[i], x[i], 1.5f) * x[i];"],
)
def test_a_version_with_other_arithmetic_shows_nothing(other: str) -> None:
    assert versions([SQUARE, other], TRITON)


def test_if_a_text_can_choose_numbers_must_come_the_same_way() -> None:
    one = "z[i] = fmaf(x[i], x[i], 1.5f);"
    two = "z[i] = fmaf(x[i], ((const float *)z)[i], 1.5f);"
    assert versions([one, two], TRITON.replace("pass", "if n: pass"))


def test_a_size_is_no_fixed_number() -> None:
    limit = UNSEEN["a limit that is a number"]
    assert said(limit, given={300: 300, 77: 77}) == []


# ── the host ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "given",
    [
        "np.float32(1 + (x.size / 1e6) ** 9)",
        "1.0 + math.sqrt(x.size)",
        "(x.size / 1e6) * (x.size / 1e6)",
        "int(x.size ** 0.999999)",
        "int((x.size / 3e5) + 1e17 - 1e17)",
        "x.size + 500000 % 7 - 500000",
    ],
)
def test_floats_of_sizes_are_only_factors(given: str) -> None:
    assert not_understood(given=given)


def sums(body: str) -> list[str]:
    """What is told of sums, if a function is called with some sizes."""
    tree = ast.parse(
        f"LARGE = 500000\ndef f(n):\n    t = n\n    {body}\n    return t\n"
    )
    marks, seen = marked(tree), Seen()
    names: dict[str, object] = {"__saw__": seen}
    exec(compile(tree, "f.py", "exec"), names)
    for size in (300, 251, 7):
        names["f"](size)  # type: ignore[operator]
    return [why for _, why in never_changed(marks, seen.told())]


@pytest.mark.parametrize(
    "body",
    ["t = n / 3 + 1e17", "t += 1e17 - 0.5; t -= 1e17", "t = LARGE + n", "t += LARGE"],
)
def test_sums_in_which_a_number_is_lost_are_named(body: str) -> None:
    assert sums(body)


def test_ordinary_sums_are_not_named() -> None:
    assert sums("t = (n + 63) // 64 + n - 1; t += 5; t = [1] + [t]") == []
