"""A kernel that was compiled before starts from the cache, if it may."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fragmenta.engine.simt import compiling, library
from tests.clock import HANG
from tests.simt.kernels import kernel, run

#: A kernel of a thousand instructions.
LONG = "mov.u32 %r1, %t;\n" + "\n".join(
    f"{('add', 'xor', 'mul.lo', 'sub')[i % 4]}.{'b' if i % 4 == 1 else 'u'}32 "
    f"%r{i % 9 + 1}, %r{(i * 7) % 9 + 1}, {i};"
    for i in range(1000)
)

SCRIPT = """
import numpy as np
from tests.simt.kernels import *
from tests.simt.test_cache import LONG
from fragmenta.base.jit import compiler
from fragmenta.engine.simt import compiling
made = []
for module, name in ((compiling, "make"), (compiler, "_optimized")):
    def counted(*given, real=getattr(module, name)):
        made.append(real)
        return real(*given)
    setattr(module, name, counted)
out = np.zeros(32, np.uint32)
run(kernel(LONG + "st.global.u32 [%mine], %r1;"), out)
print(out.sum(), len(made))
"""


def started(cache: Path) -> tuple[int, int]:
    """A process that launches the long kernel: its result, and what it compiled."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={
            **os.environ,
            "FRAGMENTA_CACHE": str(cache),
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG,
    )
    total, compiled = done.stdout.split()
    return int(total), int(compiled)


@pytest.mark.long
def test_another_process_uses_what_was_compiled(tmp_path: Path) -> None:
    first, new = started(tmp_path)
    kept = sorted(tmp_path.iterdir())
    second, again = started(tmp_path)
    assert first == second
    assert sorted(tmp_path.iterdir()) == kept
    assert new > 0
    assert again == 0


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("FRAGMENTA_CACHE", str(tmp_path))
    monkeypatch.setattr(library, "_KEPT", {})
    return tmp_path


def result() -> list[int]:
    out = np.zeros(32, np.uint32)
    run(kernel("mul.lo.u32 %r1, %t, 3; st.global.u32 [%mine], %r1;"), out)
    return out.tolist()


WANT = [3 * n for n in range(32)]


@pytest.mark.long
def test_entries_that_are_damaged_are_ignored(cache: Path) -> None:
    assert result() == WANT
    files = sorted(cache.iterdir())
    assert files
    for number, file in enumerate(files):
        data = file.read_bytes()
        damaged = [data[:-1], b"", data[:100] + b"x" + data[101:], b"\0" * len(data)]
        file.write_bytes(damaged[number % 4])
    library._KEPT.clear()
    assert result() == WANT


def test_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAGMENTA_CACHE", "")
    assert result() == WANT


def test_the_second_launch_compiles_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    before = compiling.make
    monkeypatch.setattr(
        compiling, "make", lambda *given: made.append("kernel") or before(*given)
    )
    assert result() == result() == WANT
    assert made == ["kernel"]


def test_a_change_of_the_text_is_another_kernel(cache: Path) -> None:
    out = np.zeros(1, np.uint32)
    for number in (1, 2):
        run(kernel(f"st.global.u32 [%out], {number};"), out, threads=1)
        assert out[0] == number
