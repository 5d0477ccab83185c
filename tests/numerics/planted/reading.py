"""Reads the report of a launch with ``numerics=True`` in the words of the table."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from tests.numerics.planted.running import Line


def findings(result: Any) -> list[tuple[str, Line]]:
    """What is wrong with the numbers of a launch: kinds and source lines."""
    raise NotImplementedError


def error_map(result: Any, array: NDArray[Any]) -> NDArray[Any]:
    """The error of each element of an output, as reported."""
    raise NotImplementedError
