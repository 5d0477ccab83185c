"""What a kernel computes must be seen to matter; what is not seen is not judged."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.counters.asking import with_results
from fragmenta.judge.marking import Seen, marked, never_changed
from fragmenta.judge.reaching import Kernels
from fragmenta.judge.roots import Argument
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
    ],
)
def test_ordinary_kernels_are_seen_to_matter(body: str) -> None:
    assert said(body) == []


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
