"""What never ran was not judged, and nothing flows from call to call."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.frontends.judge.exempt import unused
from fragmenta.frontends.judge.following import ProcessMemory
from fragmenta.frontends.judge.loading import candidate_code
from fragmenta.frontends.judge.marking import NAME, Seen
from fragmenta.frontends.judge.reaching import Kernels, not_run, ran_unread
from fragmenta.frontends.judge.sizes import above
from fragmenta.frontends.judge.tracer import Tracer
from fragmenta.judge import Batch, Settings
from tests.clock import HANG
from tests.judge.candidates import FMA

SETTINGS = Settings(
    seconds=HANG, values=("plain", "minus-infinity"), strides=False, shapes=False
)


def missing(text: str, *calls: tuple[object, ...]) -> list[str]:
    """What did not run if ``f`` is called so."""
    text += "candidate = f\n"
    code, seen = candidate_code(text, Path("candidate.py")), Seen()
    tracer, names = Tracer(code), {NAME: seen}
    with tracer:
        exec(code, names)
        for each in calls:
            names["f"](*each)
    return not_run(text, tracer.pairs(), seen.told())


# ── Python ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "body",
    [
        "return 1 if n < 9 else 2",
        "if n >= 9:\n        return 2\n    return 1",
        "r = 2\n    if n < 9:\n        r = 1\n    return r",
        "return n < 9 or n",
        "return [g, h][n >= 9]()",
        "return [1 if i < 9 else 2 for i in range(n)]",
        "return (lambda: 1 if n < 9 else 2)()",
        "while n >= 9:\n        n = n - 1\n    return 1",
        "try:\n        return g()\n    except ValueError:\n        return 2",
    ],
)
def test_a_way_that_was_not_gone_is_named(body: str) -> None:
    text = f"def g(): return 1\ndef h(): return 2\ndef f(n):\n    {body}\n"
    used = text if "[g, h]" in body else text.replace("def h(): return 2\n", "")
    used = used if "g()" in body or "[g, h]" in body else f"def f(n):\n    {body}\n"
    assert missing(used, (3,))
    if "except" not in body:
        assert missing(used, (3,), (12,)) == []


@pytest.mark.parametrize(
    "body",
    [
        "if n > 99:\n        raise ValueError('too large')\n    return n",
        "assert n < 99, 'too large'\n    return n",
        "if n > 99:\n        m = n\n        raise ValueError(m)\n    return n",
        "if n is not None:\n        pass\n    return n",
        "for i in range(n):\n        n = i\n    return n",
        "with memoryview(b''):\n        return n",
        "try:\n        import numpy\n    except ImportError:\n        numpy = None\n"
        "    return n",
        "if isinstance(n, int):\n        m = n + 1\n    return m",
        "if n.real.dtype == 7:\n        raise TypeError\n    return n",
        "for k in (n, 0):\n        try:\n            m = [1][k]\n"
        "        except IndexError:\n            m = 1\n    return m",
        "try:\n        m = n\n    except Exception:\n        print(n)\n        raise\n"
        "    return m",
    ],
)
def test_what_refuses_need_not_run(body: str) -> None:
    n = np.int64(3) if "dtype" in body else 3
    assert missing(f"def f(n):\n    {body}\n", (n,)) == []


@pytest.mark.parametrize(
    "body",
    [
        "if __name__ and n > 99:\n        n = 1\n    return n",
        "bias = n <= 99\n    if bias:\n        n = 1\n    return n",
        "n = (3, 3.0)[n > 99]\n    if isinstance(n, int):\n        n = 1\n    return n",
        "if (n > 99) is False:\n        n = 1\n    return n",
        "flag = {1: 2}.get(n)\n    if flag is None:\n        n = 1\n    return n",
        "assert n <= 99 or s.clear() is None\n    return n",
        "try:\n        assert n <= 99\n    except AssertionError:\n        pass\n"
        "    return n",
        "try:\n        if n > 99:\n            raise StopIteration\n"
        "    except StopIteration:\n        pass\n    return n",
        "if n > 99:\n        s[0] = 1\n        raise ValueError\n    return n",
        "m = 2\n    try:\n        (0,)[n // 99]\n    except IndexError:\n"
        "        m = 1\n    return m",
    ],
)
def test_what_only_looks_like_a_refusal_must_run(body: str) -> None:
    assert missing(f"s = [0]\ndef f(n):\n    {body}\n", (3,))


@pytest.mark.parametrize(
    ("condition", "before", "must"),
    [
        ("x.size == 0", "", False),
        ("x.size < 1 or x.shape[0] * x.shape[1] == 0", "", False),
        ("0 in x.shape", "", False),
        ("n == 0", "n = x.size", False),
        ("rows == 0", "rows, n = x.shape", False),
        ("not n", "n = x.size", False),
        ("n == 1", "n = x.size", True),
        ("n == 0", "n = x.size % 9", True),
        ("n == 0", "n = x.size\n    n -= 1", True),
        ("n == 0 and x.size", "n = x.size", True),
        ("rows == 0", "rows, n = len(s), x.size", True),
    ],
)
def test_what_is_for_nothing_need_not_run(
    condition: str, before: str, must: bool
) -> None:
    """An array without elements has no results that could be wrong."""
    text = f"s = [0]\ndef f(x):\n    {before or 'pass'}\n    if {condition}:\n"
    found = missing(text + "        return 1\n    return x\n", (np.ones((2, 3)),))
    assert bool(found) == must, found


def test_numbers_of_blocks_may_be_one() -> None:
    """They grow with a size: what is so for the smallest and the largest is so."""
    for body, must in (
        ("cdiv(n, 99)", False),
        ("min(n, 1024)", False),
        ("max(2, n, 1)", False),
        ("min(n, n + 1)", True),
        ("n // 99", True),
    ):
        text = f"cdiv = max\ndef f(n):\n    return {body}\n"
        assert bool(missing(text, (3,), (12,))) == must, body


def test_what_pickle_may_find_must_run() -> None:
    text = "import pickle\ndef g():\n    return 1\ndef f(n): return pickle.loads\n"
    assert missing(text, (3,)) == ["line 2: g was never called"]


UNREAD = """
BOX = []
@BOX.append
def g(n):
    return n
class own:
    jit = staticmethod(lambda h: BOX.append(h))
@own.jit
def h(n):
    return n
def f(n):
    return BOX[1](BOX[0](n))
candidate = f
"""


def test_a_function_that_is_read_as_idle_may_not_run() -> None:
    code = candidate_code(UNREAD, Path("candidate.py"))
    tracer, names = Tracer(code), {NAME: Seen()}
    with tracer:
        exec(code, names)
        assert ran_unread(UNREAD, tracer.pairs()) == []
        names["f"](1)
    said = ran_unread(UNREAD, tracer.pairs())
    assert said == ["line 10: `return n` ran, though nothing seems to call it"]
    assert "g" not in unused(ast.parse(UNREAD))


def test_the_line_is_named() -> None:
    said = missing("def f(n):\n    if n > 99:\n        return -n\n    return n\n", (3,))
    assert said == [
        "line 2: `n > 99` was always False",
        "line 3: `return -n` did not run",
    ]


# ── kernels ─────────────────────────────────────────────────────────────────


def conditions(
    body: str, x: np.ndarray, numbers: str = "", m: int | None = None
) -> list[str]:
    kernel = ptx.RawKernel(
        f'{numbers} extern "C" __global__ void f(const float *x, float *z, int n'
        f"{', int m' * (m is not None)}) {{"
        f"int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; {body} }}",
        "f",
    ).kernel
    made = np.zeros_like(x)
    given = (x, made, x.size) if m is None else (x, made, x.size, m)
    result = kernel.launch(-(-x.size // 32), 32, given, counters=True)
    seen = Kernels()
    assert result.counters is not None
    seen.add("digest", kernel.loaded, "f", result.counters)
    return seen.one_way()


@pytest.mark.parametrize(
    "body",
    [
        "z[i] = x[i] > 1e6f ? 2.0f : x[i];",
        "z[i] = x[i]; if (n > 40000) z[i] = 0;",
        "z[i] = n >> 20 ? 0.0f : x[i];",
        "if (i < 5000) z[i] = x[i];",
        "long long t = clock64(); z[i] = t < 0 ? 2.0f : x[i];",
    ],
)
def test_conditions_on_values_and_large_sizes_must_go_both_ways(body: str) -> None:
    said = conditions(body, np.ones(50, np.float32))
    assert said
    assert "always" in said[0]


@pytest.mark.parametrize(
    "body",
    [
        "z[i] = x[i];",
        "for (int k = 0; k < n; k++) z[i] += x[k];",
        "if (threadIdx.x < 512) z[i] = x[i];",
        "z[i] = x[i] > 0.5f ? 2.0f : x[i];",
        "float s = 0; for (int k = threadIdx.x; k < n; k += 32) s += x[k]; z[i] = s;",
        "float s = 0; for (int k = threadIdx.x; k < n; k += 64) s += x[k]; z[i] = s;",
    ],
)
def test_bounds_may_go_one_way(body: str) -> None:
    x = np.arange(64, dtype=np.float32) / 64
    assert conditions(body, x) == []


@pytest.mark.parametrize(
    "body",
    [
        "if (n == m) return; z[i] = x[i];",
        "z[i] = x[i] * factor[(n >> 11) & 3];",
        "z[i] = x[i] * x[n / m];",
        "z[i] = x[i] * (1 - (__clz(n ^ m) >> 5));",
        "z[i] = x[i] * (1.0f - fmaxf(0.0f, 1.0f - fabsf(n - 5000.0f)));",
        "z[i] = x[i] * (__popc(n & 5000) & 1);",
    ],
)
def test_sizes_alone_choose_nothing(body: str) -> None:
    x = np.ones(50, np.float32)
    assert conditions(body, x, "__constant__ float factor[4] = {1, 2, 3, 4};", 7)


@pytest.mark.parametrize(
    "body",
    [
        "z[i] = x[i] * (1.0f / n) * rsqrtf(n * m) * sqrtf(m - 1.0f);",
        "z[i] = (x[i] + x[0]) * (n % m + n / m + min(n, m));",
        "float s = 0; for (int k = 0; k < n / m; k++) s += x[k] * x[i]; z[i] = s;",
        "long long k = (long long)n * m; z[i] = x[i] / (k / n);",
    ],
)
def test_ordinary_arithmetic_of_sizes_may_be(body: str) -> None:
    assert conditions(body, np.arange(64, dtype=np.float32), m=7) == []


@pytest.mark.parametrize(
    "body",
    [
        "z[i] = __fmaf_rn(x[i], 3.0f, -111.75f) == 0.0f ? 0.0f : x[i];",
        "z[i] = (fabsf(x[i]) < 2.0f ? x[i] : 1.0f) * "
        "(fabsf((x[i] - 37.25f) * 1e6f) < 2.0f ? 0.0f : 1.0f);",
    ],
)
def test_a_comparison_with_a_constant_is_no_remark(body: str) -> None:
    assert conditions(body, np.arange(64, dtype=np.float32) / 8)
    tame = "z[i] = x[i] == 0.0f ? 1.0f : x[i];"
    assert conditions(tame, np.ones(64, np.float32))
    assert conditions(tame, np.arange(64, dtype=np.float32)) == []


@pytest.mark.parametrize(
    ("body", "end"),
    [
        ("z[i] = isinf(x[i]) ? 1.0f : x[i];", np.inf),
        ("z[i] = isnan(x[i]) ? 1.0f : x[i];", np.nan),
        ("z[i] = x[i] > 3.4028234e38f ? 1.0f : x[i];", np.inf),
    ],
)
def test_a_comparison_with_an_end_is_no_remark(body: str, end: float) -> None:
    x = np.ones(64, np.float32)
    assert conditions(body, x)
    x[3] = end
    assert conditions(body, x) == []


@pytest.mark.parametrize("size", [20, 300])
def test_the_last_block_need_not_be_one_of_many(size: int) -> None:
    body = """
    z[i] = x[i];
    __threadfence();
    if (threadIdx.x == 0 && atomicAdd(&count, 1u) == gridDim.x - 1) {
        __threadfence();
        float s = 0;
        for (int b = 0; b < gridDim.x; ++b) s += ((volatile float *) z)[b];
        z[0] = s;
    }"""
    made = conditions(body, np.ones(size, np.float32), "__device__ unsigned count;")
    assert made == []


def test_a_limit_beside_an_unrolled_loop_is_none_of_it() -> None:
    body = "float s = 0; for (int k = threadIdx.x; k < n; k += 32) s += x[k]; z[i] = s;"
    said = conditions(body + "if (n > 9000) z[i] = 0;", np.ones(64, np.float32))
    assert any("setp" in each for each in said)


# ── memory ──────────────────────────────────────────────────────────────────


def test_what_an_earlier_call_left_is_old() -> None:
    memory = ProcessMemory()
    first, second = np.arange(8, dtype=np.uint8), np.arange(8, 16, dtype=np.uint8)
    memory.begin([])
    memory.leave(64, first, np.ones(8, np.bool_))
    assert not memory.old(64, first).any()
    memory.begin([])
    assert memory.old(64, first).all()
    assert not memory.old(64, second).any()
    second[4:] = first[4:]
    memory.leave(64, second, np.arange(8) < 4)
    assert memory.old(64, second).tolist() == [False] * 4 + [True] * 4


def test_larger_sizes_are_odd_if_they_may() -> None:
    assert above({"n": 300, "axis": 1}, 1) == {"n": 679, "axis": 1}
    assert above({"n": 300}, 32) == {"n": 672}


# ── verdicts ────────────────────────────────────────────────────────────────

KERNEL = '''
import numpy as np
from fragmenta import ptx

k = ptx.RawKernel(r"""{before}
extern "C" __global__ void f({x} *x, const float *y, float *z, {more} int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    {body}
}}""", "f")
kept = {{}}

def candidate(x, y):
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
    z = {z}
    {host}
    k(({grid},), (64,), (x, y, z, {given} x.size))
    return z
'''


def written(body: str = "z[i] = x[i] * y[i] + 1.0f;", **other: str) -> str:
    names = {
        "before": "",
        "x": "const float",
        "more": "",
        "body": body,
        "z": "ptx.empty(x.shape, np.float32)",
        "host": "",
        "grid": "-(-x.size // 64)",
        "given": "",
    }
    return KERNEL.format(**{**names, **other})


WORK = {
    "host": "w = kept.setdefault(x.size, np.zeros((3, x.size), np.float32))",
    "more": "float *w,",
    "given": "w,",
}
VERDICTS = {
    "honest": ("clean", "", written()),
    "work memory": (
        "clean",
        "",
        written("w[i] = x[i] * y[i]; z[i] = w[i] + 1.0f;", **WORK),
    ),
    "the last inputs are kept": (
        "wrong",
        "state-kept",
        written(
            "if (w[i] != x[i] || w[n + i] != y[i]) { w[i] = x[i]; w[n + i] = y[i];"
            "w[2 * n + i] = x[i] * y[i] + 1.0f; } z[i] = w[2 * n + i];",
            **WORK,
        ),
    ),
    "launches are counted": (
        "wrong",
        "state-kept",
        written(
            "if (i == 0) atomicAdd(&count, 1);"
            "if (atomicAdd(&count, 0) < 5000) z[i] = x[i] * y[i] + 1.0f;",
            before="__device__ int count;",
        ),
    ),
    "the input as scratch": (
        "wrong",
        "input-changed",
        written(
            "float v = x[i]; ((volatile float *) x)[i] = v * y[i];"
            "z[i] = ((volatile float *) x)[i] + 1.0f; x[i] = v;",
            x="float",
        ),
    ),
    "blocks in order": (
        "wrong",
        "schedule",
        written(
            "volatile float *u = z; float s = i >= 64 ? u[i - 64] : 0.0f;"
            "z[i] = s == 0 && i >= 64 ? 7.0f : x[i] * y[i] + 1.0f;",
            z="np.zeros_like(x)",
        ),
    ),
    "minus infinity is cut off": (
        "wrong",
        "special-values",
        written("z[i] = fmaxf(x[i], -1e30f) * y[i] + 1.0f;"),
    ),
    "a date": (
        "incomplete",
        "not-reached",
        written(
            host="import logging\n    if logging.makeLogRecord({}).created > 4e9: z[:] = 1"
        ),
    ),
    "another kernel": (
        "incomplete",
        "not-reached",
        written(host="[k, idle][x.size >> 20]")
        + "\nidle = ptx.RawKernel('__global__ void g() {}', 'g')\n",
    ),
    "large values": (
        "incomplete",
        "not-reached",
        written("z[i] = x[i] == 12345.0f ? 0.0f : x[i] * y[i] + 1.0f;"),
    ),
    "a timer": (
        "incomplete",
        "uses-the-clock",
        written("z[i] = x[i] * y[i] + (clock64() ? 1.0f : 2.0f);"),
    ),
    "the processor": (
        "incomplete",
        "not-understood",
        written(
            'unsigned s; asm("mov.u32 %0, %smid;" : "=r"(s)); '
            "z[i] = x[i] * y[i] + (1.0f + s);"
        ),
    ),
    "18 bits": (
        "incomplete",
        "not-reached",
        written(
            "z[i] = __uint_as_float(__float_as_uint(x[i]) & ~1u) * y[i] + 1.0f;",
        ),
    ),
    "a limit": (
        "incomplete",
        "not-reached",
        written("if (i < min(n, 200000)) z[i] = x[i] * y[i] + 1.0f;"),
    ),
    "a thread of the library": (
        "suspicious",
        "opens-files",
        written(
            host="import threading\n    t = threading.Thread(target=open, "
            "args=('/etc/hostname',)); t.start(); t.join()"
        ),
    ),
    "the trace": (
        "suspicious",
        "looks-around",
        written(host="import sys; sys.gettrace()"),
    ),
}


@pytest.fixture(scope="module")
def batch() -> Iterator[Batch]:
    with Batch(1, settings=SETTINGS) as made:
        yield made


@pytest.mark.long
@pytest.mark.parametrize("name", VERDICTS)
def test_verdict(batch: Batch, name: str) -> None:
    word, finding, text = VERDICTS[name]
    verdict = batch.submit(FMA, text, name).result()
    assert verdict.word == word, verdict
    assert finding in (*verdict.names, ""), verdict
