"""The time of reading PTX.

A reader is slow if it looks at every character in Python.  The limits are seconds of a
core, for a kernel as Triton writes it and for large files; they are also set against
splitting the text into words with one regular expression.
"""

from __future__ import annotations

import lzma
import re
import time
from pathlib import Path

import pytest
from timing import least

from fragmenta.ptx.reading import parse

FILES = Path(__file__).resolve().parent.parent / "tests" / "ptx" / "files"
LARGE = 2_000_000
WORD = re.compile(r"[%$\w.:]+|\S")

# name: the file, how many bytes (0: the file itself), seconds that it may take
CASES: dict[str, tuple[str, int, float]] = {
    "a Triton kernel": ("triton_matmul_100.ptx.xz", 0, 0.05),
    "2 MB of Triton kernels": ("triton_matmul_100.ptx.xz", LARGE, 5),
    "2 MB of nvcc kernels": ("hopper_gemm.ptx.xz", LARGE, 5),
}


def text(name: str, size: int) -> str:
    """A file, or one in which its kernel stands as often as needed."""
    once = lzma.decompress((FILES / name).read_bytes()).decode()
    start, end = once.index(".visible .entry"), once.rindex("\n}") + 2
    found = re.search(r"\.entry (\w+)", once)
    assert found is not None
    head, kernel, tail = once[:start], once[start:end], once[end:]
    copies = max(1, -(-size // len(kernel)))
    many = (
        kernel.replace(f".entry {found[1]}", f".entry copy{i}") for i in range(copies)
    )
    return head + "\n".join(many) + tail


@pytest.mark.parametrize("name", CASES)
def test_reading(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    file, size, limit = CASES[name]
    given = text(file, size)
    rounds = 2 if size else 15
    words = least(lambda: WORD.findall(given), rounds, time.process_time)
    taken = least(lambda: parse(given), rounds, time.process_time)
    read = sum(len(f.instructions) for f in parse(given).functions.values())
    with capsys.disabled():
        print(
            f"\n{name}: {read:,} instructions in {1e3 * taken:.0f} ms, "
            f"{1e6 * taken / read:.1f} µs each, {taken / words:.1f} times the words",
            end="",
        )
    assert taken <= limit
