"""What a reference says about single elements: which follow which, and their signs.

A reference is called with some elements replaced.  So it is seen where NaN must stay
NaN, and where the sign of a zero is that of the input.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fragmenta.frontends.judge.held import elements, leaves
from fragmenta.frontends.judge.values import is_float
from fragmenta.frontends.judge.wire import Tree, dump, load

Values = NDArray[np.float64]
Evaluate = Callable[[Tree], list[Values]]
TRIED = 3
"""Elements of each input that are tried."""
STEP = 2.0**-12
"""How small a number is that stands for a zero."""


def replaced(
    inputs: Tree, where: Callable[[Values], NDArray[np.bool_]], by: float
) -> Tree:
    """Inputs with another number in some places.

    >>> from fragmenta.frontends.judge.held import free, hold
    >>> free(replaced(hold([np.array([np.nan, 1], np.float32)]), np.isnan, 2))
    [array([2., 1.], dtype=float32)]
    """
    made = load(dump(inputs))
    for leaf in leaves(made):
        if is_float(leaf):
            values = elements(leaf).copy()
            values[where(values.astype(np.float64))] = by
            leaf["data"] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return made


def is_elementwise(inputs: Tree, evaluate: Evaluate) -> bool:
    """Whether each result comes from the elements at its own place alone.

    >>> from fragmenta.frontends.judge.held import free, hold
    >>> given = hold([np.arange(5, dtype=np.float32)])
    >>> is_elementwise(given, lambda held: [2 * free(held)[0]])
    True
    >>> is_elementwise(given, lambda held: [np.cumsum(free(held)[0])])
    False
    """
    random = np.random.default_rng(5)
    floats = [n for n, leaf in enumerate(leaves(inputs)) if is_float(leaf)]
    follows = False
    for number in floats:
        shape = elements(leaves(inputs)[number]).shape
        for at in random.integers(0, max(1, int(np.prod(shape))), TRIED):
            one, other = (
                evaluate(_with_one(inputs, number, int(at), by)) for by in (0.375, 1.75)
            )
            for a, b in zip(one, other, strict=True):
                apart = np.flatnonzero(~_alike(a, b))
                if a.shape != shape or not {*apart.tolist()} <= {int(at)}:
                    return False
                follows = follows or bool(apart.size)
    return follows


def _with_one(inputs: Tree, number: int, at: int, by: float) -> Tree:
    made = load(dump(inputs))
    leaf = leaves(made)[number]
    values = elements(leaf).copy().reshape(-1)
    values[at : at + 1] = by
    leaf["data"] = values.view(np.uint8)
    return made


def _alike(one: Values, other: Values) -> NDArray[np.bool_]:
    return np.asarray((one == other) | (np.isnan(one) & np.isnan(other)))


def keeps_nan(inputs: Tree, evaluate: Evaluate) -> list[NDArray[np.bool_]]:
    """Which results follow the elements that are NaN, so that they are NaN, too.

    A maximum does not follow a small one of many elements: there NaN may be lost.

    >>> from fragmenta.frontends.judge.held import free, hold
    >>> given = hold([np.array([np.nan, 3], np.float32)])
    >>> keeps_nan(given, lambda held: [free(held)[0] + 1])
    [array([ True, False])]
    >>> keeps_nan(given, lambda held: [free(held)[0].max()])
    [array(False)]
    """
    one, other = (evaluate(replaced(inputs, np.isnan, by)) for by in (0.125, 0.0625))
    return [np.asarray(~_alike(a, b)) for a, b in zip(one, other, strict=True)]


def follows_signs(inputs: Tree, evaluate: Evaluate) -> list[NDArray[np.bool_]]:
    """Which results have the sign of the inputs, or the other one, around zero.

    >>> from fragmenta.frontends.judge.held import free, hold
    >>> given = hold([np.array([0, 3], np.float32)])
    >>> follows_signs(given, lambda held: [-free(held)[0]])
    [array([ True, False])]
    >>> follows_signs(given, lambda held: [np.maximum(free(held)[0], 0)])
    [array([False, False])]
    """
    one, other = (
        evaluate(replaced(inputs, lambda x: x == 0, by)) for by in (STEP, -STEP)
    )
    return [a * b < 0 for a, b in zip(one, other, strict=True)]
