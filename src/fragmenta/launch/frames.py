"""Says which lines of the user's program a launch comes from."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import FrameType
from typing import NamedTuple


class Frame(NamedTuple):
    """A line of a Python program."""

    file: str
    line: int
    function: str
    text: str

    def __str__(self) -> str:
        code = f"\n    {self.text}" if self.text else ""
        return f"{_short(self.file)}:{self.line}, in {self.function}{code}"


def _short(file: str) -> str:
    """A path from the current folder, if the file is below it."""
    here = Path.cwd()
    path = Path(file)
    return str(path.relative_to(here)) if path.is_relative_to(here) else file


ORIGINS: dict[str, tuple[Frame, ...]] = {}
"""The lines of the user that each of Inductor's kernels computes."""


def user_frame() -> Frame | None:
    """The line that called, outside of front ends, of PyTorch and of this package.

    >>> user_frame().function
    '<module>'
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not is_library(file):
            text = linecache.getline(file, frame.f_lineno).strip()
            return Frame(file, frame.f_lineno, frame.f_code.co_name, text)
        frame = frame.f_back
    return None


def is_library(file: str) -> bool:
    """Whether a file is one of a front end, of PyTorch, or of this package."""
    if file.startswith((_OWN, "<frozen")) or file == "<string>":
        return True
    return any(each in file for each in ("/torchinductor_", *_LIBRARIES))


_OWN = f"{Path(__file__).parents[1]}/"
_LIBRARIES = (
    "-packages/triton/",
    "-packages/torch/",
    "-packages/numba",
    "-packages/warp/",
)


def origin(kernel: str) -> str:
    """Which lines of the user's program a launch comes from, in words.

    >>> print(origin("add"))
    launched by <doctest fragmenta.launch.frames.origin[0]>:1, in <module>
        print(origin("add"))
    """
    lines = []
    frame = user_frame()
    if frame is not None:
        lines.append(f"launched by {frame}")
    lines += [f"{kernel} computes {each}" for each in ORIGINS.get(kernel, ())]
    return "\n".join(lines)
