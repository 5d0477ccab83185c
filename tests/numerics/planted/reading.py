"""Reads the report of a launch with ``numerics=True`` in the words of the table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.numerics.planted.running import Line

KINDS = {
    "cancellation": "cancellation",
    "absorption": "absorption",
    "saturation": "saturation",
    "underflow": "underflow",
    "other-branch": "branch",
}
"""Kinds by the rules of problems; births of NaN and infinities are read from their ways."""


def findings(result: Any, *, notes: bool = True) -> list[tuple[str, Line]]:
    """What a launch says about its numbers: kinds and source lines.

    With ``notes=False``, only what is a warning or an error.
    """
    found = [*_births(result.numerics)]
    for each in result.numerics.problems:
        if each.rule in KINDS and (notes or each.severity != "info"):
            found += [(KINDS[each.rule], line) for line in _lines(each)]
    if result.numerics.instructions:
        found += [("error", line) for line in _lines(result.numerics.instructions[0])]
    return [*dict.fromkeys(found)]


def _births(numerics: Any) -> Iterator[tuple[str, Line]]:
    """Where what is not finite in an output was born, and where it became a NaN."""
    for way in numerics.births:
        for moment in dict.fromkeys((way.born, way.cause)):
            kind = "unwritten" if moment.unwritten else _kind(moment)
            for line in _lines(moment):
                yield kind, line


def _kind(moment: Any) -> str:
    return "nan" if np.isnan(moment.value) else "inf"


def _lines(place: Any) -> Iterator[Line]:
    """The line of the source and those that call it, without folders; else of the PTX."""
    if place.source is None:
        yield Line("", place.line)
        return
    for frame in place.source.frames:
        yield Line(frame.file.rpartition("/")[2], frame.line)


def error_map(result: Any, array: NDArray[Any]) -> NDArray[Any]:
    """The error of each element of an output, as reported."""
    left = array.astype(np.float64).reshape(-1)
    for output in result.numerics.outputs.values():
        if np.array_equal(output.values.reshape(-1), left, equal_nan=True):
            return np.asarray(output.error)
    raise AssertionError("no output has the values of the array")
