"""Tiles of single instructions: fragmenta, MMA-Sim, and NumPy in f32.

Both get the bits of the elements, in their own formats.  MMA-Sim has two doors.  The
one that it documents takes one tile.  Inside of it is a function of vectors, which
takes a batch: for each element of the result a row of A and a column of B.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import judge
import numpy as np
from numpy.typing import NDArray
from survey import Row, survey

from fragmenta.reference.arithmetic import multiply
from fragmenta.reference.registers.dtype import dtype
from peers.cases import MATRICES, MMASIM, NUMPY, Case
from tests.arithmetic.inputs import operands


@cache
def row(of: str) -> Row:
    """The instruction, as the comparison with MMA-Sim names it."""
    found = {each.id: each for each in survey(judge.known)[0]}
    return found[of]


def inputs(case: Case, whole: bool) -> tuple[Any, Any, Any, dict[str, Any]]:
    """The bits of A, B and C, and the scales."""
    how, rng = row(case.of).model, np.random.default_rng(0)
    kind = "near"
    a, b, c, more = operands(rng, how, kind, case.sizes["tiles"], 16, 8)
    if whole:  # zeros but for one element of each row of A
        at = rng.integers(0, a.shape[-1], a.shape[:-1])
        kept = np.arange(a.shape[-1]) == at[..., None]
        a, c = np.where(kept, a, 0).astype(a.dtype), np.zeros_like(c)
    return a, b, c, more


def prepare(
    case: Case, tool: str, whole: bool
) -> tuple[Callable[[], object], Callable[[], NDArray[Any]]]:
    """What is to be timed, and the result afterwards."""
    a, b, c, more = inputs(case, whole)
    how = row(case.of).model
    if tool == NUMPY:
        x, y, z = _values(case, (a, b, c), more, np.float32)
        return lambda: x @ y + z, lambda: (x @ y + z).view(np.uint32)
    if tool not in (MMASIM, MATRICES):
        return kept(lambda: multiply(a, b, c, how, **more))
    asked, scales = judge.Judge(row(case.of)), tuple(more.values())
    if tool == MMASIM:
        given = [each.contiguous() for each in asked.vectors(a, b, c, scales)]
        return (
            lambda: asked.instruction.dpa(*given),
            lambda: asked.batch(a, b, c, scales),
        )

    def one_by_one() -> NDArray[Any]:
        return np.stack(
            [
                asked.matrix(a[i], b[i], c[i], tuple(each[i] for each in scales))
                for i in range(len(a))
            ]
        )

    return kept(one_by_one)


def kept(call: Callable[[], Any]) -> tuple[Callable[[], object], Callable[[], Any]]:
    """A call, and what it returned last."""
    last = []

    def run() -> None:
        last[:] = [call()]

    return run, lambda: last[0]


def _values(case: Case, bits: Any, more: dict[str, Any], of: Any) -> list[Any]:
    """The numbers of A, B and C, with the scales in them."""
    how = row(case.of).instructions[0]
    found = []
    for name, each in zip("abd", bits, strict=True):
        kind = dtype(how.values[name])
        stored = each.astype(np.uint8) if kind.bits < 8 else each
        found.append(stored.view(kind.storage).astype(of))
    if more:
        scale = dtype(row(case.of).model.scale).storage
        left, right = (each.view(scale).astype(of) for each in more.values())
        found[0] *= left.repeat(found[0].shape[-1] // left.shape[-1], -1)
        found[1] *= right.repeat(found[1].shape[-2] // right.shape[-2], -2)
    return found


def exact(case: Case, whole: bool) -> NDArray[np.float64]:
    """The result in f64."""
    a, b, c, more = inputs(case, whole)
    x, y, z = _values(case, (a, b, c), more, np.float64)
    return np.asarray(x @ y + z)
