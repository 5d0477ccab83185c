"""Do whole kernels leave every byte in memory that a GPU leaves?

The recordings hold the PTX and what an H200 did with it; the sources are in the corpus
beside this file.
"""

from functools import cache
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from tests.ptx import recordings

LAUNCHES = recordings.every_launch()


@cache
def kernels(source: str, text: int) -> Any:
    """The kernels of a text.  Entries that change a global are launched once in each."""
    return ptx.parse(recordings.texts(source)[text]).kernels


def first_difference(got: np.ndarray, want: np.ndarray) -> str:
    """Where two arrays differ, in words; empty if they do not."""
    size = want.dtype.itemsize
    pair = [np.frombuffer(a.tobytes(), f"u{size}") for a in (got, want)]
    wrong = np.flatnonzero(pair[0] != pair[1])
    if not len(wrong):
        return ""
    at = wrong[0]
    place = tuple(map(int, np.unravel_index(at, want.shape)))
    return (
        f"{len(wrong)} of {want.size} differ; the first at {place}: "
        f"{pair[0][at]:#x} ({got.flat[at]}), the GPU has {pair[1][at]:#x} ({want.flat[at]})"
    )


@pytest.mark.parametrize("launch", LAUNCHES, ids=[each.identity for each in LAUNCHES])
def test_a_launch_leaves_the_bytes_of_the_gpu(launch: recordings.Launch) -> None:
    arguments = launch.make_arguments()
    kernel = kernels(launch.source, launch.text)[launch.entry]
    # The engine takes a struct as bytes.
    given = [a.tobytes() if isinstance(a, np.void) else a for a in arguments]
    sizes = launch.grid, launch.block
    result = kernel.launch(*sizes, given, shared=launch.shared, target="sm_90a")
    assert result.output == launch.printed
    found = {
        f"argument {i}": first_difference(got, want)
        for i, (got, want) in enumerate(zip(arguments, launch.expected(), strict=True))
        if isinstance(want, np.ndarray)
    }
    wrong = {place: text for place, text in found.items() if text}
    assert not wrong


def test_a_wrong_byte_is_seen() -> None:
    right = np.arange(12, dtype=np.float16).reshape(3, 4)
    wrong = right.copy()
    wrong[1, 2] = -0.0
    wrong[2, 3] = 7
    assert first_difference(right, right) == ""
    assert "2 of 12 differ; the first at (1, 2): 0x8000" in first_difference(
        wrong, right
    )
