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


def user_frames() -> list[Frame]:
    """The line of the user's program that called, and that of a library in between.

    Front ends, PyTorch and this package are left out.  A library that is installed,
    such as one of kernels, comes second.

    >>> [each.function for each in user_frames()]
    ['<module>']
    """
    found: list[Frame] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        installed = "-packages/" in file
        if not is_library(file) and not (installed and found):
            text = linecache.getline(file, frame.f_lineno).strip()
            made = Frame(file, frame.f_lineno, frame.f_code.co_name, text)
            found.insert(0, made)
            if not installed:
                break
        frame = frame.f_back
    return found


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
    "-packages/helion/",
    "-packages/tilelang/",
)


def origin(kernel: str) -> str:
    """Which lines of the user's program a launch comes from, in words.

    >>> print(origin("add"))
    launched by <doctest fragmenta.launch.frames.origin[0]>:1, in <module>
        print(origin("add"))
    """
    ways = ("launched by", "through")
    lines = [f"{way} {frame}" for way, frame in zip(ways, user_frames(), strict=False)]
    lines += [f"{kernel} computes {each}" for each in ORIGINS.get(kernel, ())]
    return "\n".join(lines)
