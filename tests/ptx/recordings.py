"""The recordings of the corpus.

There is one file for each source of the corpus, in the format of
:mod:`fragmenta.inspect.evidence.launches`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from fragmenta.inspect.evidence import launches
from fragmenta.inspect.evidence.arguments import Argument
from fragmenta.inspect.evidence.launches import Launches, RecordedLaunch

FOLDER = Path(__file__).parent.parent / "golden" / "launches"


class Launch(NamedTuple):
    """One recorded launch, and the source it is of."""

    source: str
    """The stem of the source file."""
    row: RecordedLaunch

    @property
    def file(self) -> Launches:
        return load(self.source)

    @property
    def identity(self) -> str:
        """A name that no other launch has."""
        return f"{self.file.texts[self.row.text][0]}-{self.row.name}"

    def make_arguments(self) -> list[Argument]:
        """Arrays and scalars as they were before the launch."""
        return self.file.arguments(self.row)

    def expected(self) -> list[Argument]:
        """Arrays and scalars as the GPU left them."""
        return self.file.expected(self.row)


def sources() -> list[str]:
    """The source files that have a recording."""
    return sorted(path.stem for path in FOLDER.glob("*.npz"))


@cache
def load(source: str) -> Launches:
    """The recording of a source."""
    return launches.load(FOLDER / f"{source}.npz")


def of_source(source: str) -> list[Launch]:
    """The recorded launches of a source."""
    return [Launch(source, row) for row in load(source).launches]


def every_launch() -> list[Launch]:
    """All recorded launches."""
    return [launch for source in sources() for launch in of_source(source)]
