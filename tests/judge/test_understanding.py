"""The host's code is clean only if all of it is understood."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from fragmenta.frontends.judge.held import free, hold
from fragmenta.frontends.judge.marking import Seen, marked, never_changed
from fragmenta.frontends.judge.understanding import not_understood
from fragmenta.frontends.judge.values import whole_numbers
from tests.judge.candidates import CHEATS, HONEST

HEAD = """
import functools, math
import numpy as np
from fragmenta import ptx

k = ptx.RawKernel("text", "f")
"""
CALL = """
def candidate(x, y):
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
    z = ptx.empty(x.shape, np.float32)
    {host}
    k((-(-x.size // 64),), (64,), (x, y, z, {given}))
    return {made}
"""


def said(before: str = "", host: str = "pass", given: str = "x.size", made: str = "z"):
    text = HEAD + before + CALL.format(host=host, given=given, made=made)
    return not_understood(text, [True, True])


COUNTERS = {
    "a list that grows": ("S = []\n", "(S.append(1), len(S))[1]"),
    "a slice that grows": (
        "S = []\ndef g():\n    S[len(S):] = [1]\n    return len(S)\n",
        "g()",
    ),
    "keys": ("D = {}\ndef g():\n    D[len(D)] = 1\n    return len(D)\n", "g()"),
    "an entry": ("S = [0]\ndef g():\n    S[0] = S[0] + 1\n    return S[0]\n", "g()"),
    "a default": ("def g(c=[0]):\n    c[0] += 1\n    return c[0]\n", "g()"),
    "a class": ("class C:\n    n = 0\ndef g():\n    C.n += 1\n    return C.n\n", "g()"),
    "an object": (
        "class A:\n    def __init__(self):\n        self.n = 0\n"
        "    def __call__(self):\n        self.n = self.n + 1\n"
        "        return self.n\na = A()\n",
        "a()",
    ),
    "a closure": (
        "def make():\n    c = [0]\n    def f():\n        c[0] = c[0] + 1\n"
        "        return c[0]\n    return f\ng = make()\n",
        "g()",
    ),
    "a global": (
        "n = 0\ndef g():\n    global n\n    n = n + 1\n    return n\n",
        "g()",
    ),
    "an array": ("N = np.zeros(1)\ndef g():\n    N[0] = N[0] + 1\n", "(g(), 1)[1]"),
    "hits of a cache": (
        "@functools.cache\ndef f(n):\n    return n\n",
        "f(3) + f.cache_info().hits",
    ),
    "an iterator": ("it = iter(range(9))\n", "next(it)"),
    "a generator": ("def c():\n    yield 1\nit = c()\n", "next(it)"),
    "a function": ("def g():\n    g.n = 1\n    return 1\n", "g()"),
}


@pytest.mark.parametrize("name", COUNTERS)
def test_what_changes_from_call_to_call_is_seen(name: str) -> None:
    before, given = COUNTERS[name]
    assert said(before, given=given)


@pytest.mark.parametrize(
    "host",
    [
        "z = np.exp(x)",
        "z[:] = x + y",
        "x = x * 2",
        "n = x.max()",
        "n = 1 if x[0] > 0 else 2",
        "n = {float(x[0]): 1}.get(3)",
        "x = np.sort(x)",
        "x.sort()",
        "n = int(x[0]) >> 3",
        "t = f'{x[0]}'",
        "for v in x.tolist(): pass",
        "z[0] = x[0].item() + 1",
        "n = np.uint16(x.size)",
        "k((1,), (1,), (x,)).hazards",
        "k.kernel.loaded.renew({})",
        "t = globals()",
        "t = getattr(x, 'sum')()",
        "import os; os.getpid()",
        "from os import *",
        "n = missing",
        "with open('f') as f: pass",
    ],
)
def test_what_the_host_must_not_do_is_not_understood(host: str) -> None:
    assert said(host=host)


@pytest.mark.parametrize(
    ("before", "host", "made"),
    [
        ("", "pass", "z"),
        ("", "x = np.pad(x, (0, 3))", "z[: y.size].copy()"),
        ("", "t = np.cos(np.arange(x.size) / 3).astype(np.float32)", "z"),
        ("D = {}\n", "t = D.setdefault(x.size, np.zeros(x.size, np.float32))", "z"),
        ("", "n = min(8, math.ceil(x.size / 64)) + len(x.shape)", "z.reshape(x.shape)"),
        ("", "a, b = map(np.ascontiguousarray, (x, y))", "z"),
        (
            "@functools.lru_cache\ndef made(n):\n    return ptx.RawKernel('t', n)\n",
            "made('f')",
            "z",
        ),
    ],
)
def test_what_hosts_usually_do_is_understood(before: str, host: str, made: str) -> None:
    assert said(before, host, made=made) == []


def test_what_is_kept_must_not_be_returned_or_hold_inputs() -> None:
    kept = "D = {}\n"
    assert said(kept, "z = D.setdefault(x.size, np.zeros(x.size))")
    assert said(kept, "t = D.setdefault(x.size, x.copy())")
    assert said(kept, "t = D.setdefault(x.tobytes(), 1)")


def test_a_text_for_a_size_is_not_understood() -> None:
    assert said(host="f = ptx.RawKernel('#define N %d' % x.size, 'f')")


def test_only_known_functions_are_called() -> None:
    box = "BOX = []\n@BOX.append\ndef g(n): return n\n"
    assert any("BOX[0]" in each for each in said(box, given="BOX[0](x.size)"))
    own = "class own:\n    jit = print\n@own.jit\ndef g(n): return n\n"
    assert any("own.jit" in each for each in said(own, given="x.size"))
    pair = "import collections\nP = collections.namedtuple('P', 'a b')\n"
    assert said(pair, "p = P(x.size, 2)", given="p.a") == []


@pytest.mark.parametrize(
    "given",
    [
        "n - n * math.isclose(n, 5000)",
        "int(n - math.exp(-((n - 5000) / 100) ** 2))",
        "n - n * str(n).count('5000')",
        "n - n * (n / 5000).is_integer()",
        "n - n * range(n).count(5000)",
        "n - math.gcd(n, 5000)",
        "int(n - np.exp(-float(n)))",
        "n - n * (not n ^ 5000)",
        "x.ctypes.data ^ 64",
    ],
)
def test_sizes_are_only_computed_with_known_arithmetic(given: str) -> None:
    assert said(host="n = x.size", given=given)


def test_ordinary_arithmetic_of_sizes_is_understood() -> None:
    for given in (
        "math.ceil(n / 64)",
        "1 / math.sqrt(n)",
        "int(math.log2(n))",
        "max(1, n % 7 - 2)",
        "np.float32(1 / n)",
    ):
        assert said(host="n = x.size", given=given) == []


@pytest.mark.parametrize("name", HONEST)
def test_honest_hosts_are_understood(name: str) -> None:
    libraries = "a traceback", "its own source", "time of the", "two sizes of blocks"
    found = not_understood(HONEST[name].text, [True] * 3)
    assert bool(found) == name.startswith(libraries), found


@pytest.mark.parametrize("name", CHEATS)
def test_cheats_of_the_host_are_not_understood(name: str) -> None:
    by_sizes_alone = (
        *("a fixed number of blocks", "zeros for large sizes", "another form"),
        "not in place, but the reference is",
    )
    found = not_understood(CHEATS[name].text, [True] * 3)
    assert bool(found) == (name not in by_sizes_alone), found


# ── choices without a branch ────────────────────────────────────────────────


def never(body: str, *sizes: int) -> list[str]:
    """What never changed, if a function is called with these sizes."""
    tree = ast.parse(f"def f(n):\n    return {body}\n")
    marks, seen = marked(tree), Seen()
    names: dict[str, object] = {"__saw__": seen}
    exec(compile(tree, "f.py", "exec"), names)
    for each in sizes:
        names["f"](each)  # type: ignore[operator]
    return [why for _, why in never_changed(marks, seen.told())]


@pytest.mark.parametrize(
    "body",
    [
        "1 - n // 5000",
        "n >> 13",
        "(n > 5000) * 3",
        "min(n, 5000)",
        "(1.0, 0.5)[n > 5000]",
        "{True: 1, False: 2}[n > 5000]",
        "int(n / 5000)",
        "(n - 1).bit_length() // 13",
        "len(range(0, n, 5000))",
        "[0] * 9000 and [*range(n)][:5000]",
        "len(str(n)) // 4",
        "[1 for _ in range(n // 5000)]",
    ],
)
def test_a_step_that_no_size_passed_is_named(body: str) -> None:
    assert never(body, 300, 251)
    assert not never(body, 300, 251, 60_000)


def test_ordinary_arithmetic_is_not_named() -> None:
    for body in ("-(-n // 64)", "n % 4 * 3", "max(1, n) + 2 * n", "[0, 1][n % 2]"):
        assert never(body, 1, 300, 251) == []


# ── inputs ──────────────────────────────────────────────────────────────────


def test_whole_numbers_are_repeated_and_reach_their_ends() -> None:
    given = hold([np.arange(64), np.zeros(64, np.int8), np.ones(3, np.int64)])
    index, small, few = free(whole_numbers(given, "repeated", 1))  # type: ignore[misc]
    assert len(np.unique(index)) < 32
    assert set(index) <= set(range(64))
    assert not small.any()
    assert (few == 1).all()
    index, small, _ = free(whole_numbers(given, "widest", 1))  # type: ignore[misc]
    assert index.max() > 255
    assert small.min() == -128
