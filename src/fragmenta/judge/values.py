"""The values of inputs that are tried: ordinary ones, and those that break kernels.

An input keeps its zeros if it has many, such as a triangle, and stays positive if it
is: then the task says so.  Whole numbers, such as labels, are not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import BadCall, nearest, one_of
from fragmenta.judge.held import dtype_of, elements, leaves
from fragmenta.judge.wire import Tree, dump, load

Values = NDArray[np.float64]
PLAIN = "plain"
MANY_ZEROS = 0.2
"""The share of zeros from which on they are a part of the task."""


def _scaled(by: int) -> Callable[[Values, np.random.Generator, float], Values]:
    return lambda x, _, reach: x * 2.0 ** (by * reach)


def _cancelling(x: Values, random: np.random.Generator, reach: float) -> Values:
    """Each second element is nearly the negative of the one before it."""
    flat = x.reshape(-1).copy()
    pairs = flat.size // 2
    flat[1 : 2 * pairs : 2] = -flat[: 2 * pairs : 2] * (1 + 2.0**-9)
    return flat.reshape(x.shape)


def _some(value: float) -> Callable[[Values, np.random.Generator, float], Values]:
    """A few elements have this value."""

    def change(x: Values, random: np.random.Generator, reach: float) -> Values:
        flat = x.reshape(-1).copy()
        count = max(1, flat.size // 97)
        flat[random.integers(0, max(1, flat.size), count)] = value
        return flat.reshape(x.shape)

    return change


def _outliers(x: Values, random: np.random.Generator, reach: float) -> Values:
    flat = x.reshape(-1).copy()
    places = random.integers(0, max(1, flat.size), max(1, flat.size // 61))
    flat[places] *= 2.0 ** (14 * reach)
    return flat.reshape(x.shape)


VALUES: dict[str, Callable[[Values, np.random.Generator, float], Values]] = {
    PLAIN: lambda x, _, __: x,
    "zeros": lambda x, _, __: np.zeros_like(x),
    "ones": lambda x, _, __: np.ones_like(x),
    "equal": lambda x, _, __: np.full_like(x, 0.7),
    "large": _scaled(40),
    "tiny": _scaled(-100),
    "cancelling": _cancelling,
    "outliers": _outliers,
    "nan": _some(np.nan),
    "infinity": _some(np.inf),
}
"""Ways to change the values of an input."""
SPECIAL = ("nan", "infinity")
_REACH = {"float32": 1.0, "float64": 1.0, "bfloat16": 1.0, "float16": 0.12}
"""How far the exponents of a type reach, compared with float32."""


def check_values(given: Sequence[str]) -> tuple[str, ...]:
    """The kinds of values that are tried.

    >>> check_values(["nan"])
    ('nan',)
    """
    for each in given:
        if each not in VALUES:
            known = one_of(VALUES, "and")
            raise BadCall(
                f"no values {each!r}{nearest(each, VALUES)}; there are {known}"
            )
    return tuple(given)


def is_float(leaf: dict[str, Tree]) -> bool:
    """Whether a held array has floats."""
    return str(leaf["type"]).startswith(("float", "bfloat"))


def changed(inputs: Tree, kind: str, seed: int) -> Tree:
    """The inputs with other values.

    >>> from fragmenta.judge.held import hold, free
    >>> free(changed(hold([np.ones(2, np.float32), 3]), "zeros", 0))
    [array([0., 0.], dtype=float32), 3]
    """
    made = load(dump(inputs))
    random = np.random.default_rng(seed)
    for leaf in leaves(made):
        if is_float(leaf):
            base = elements(leaf).astype(np.float64)
            reach = _REACH.get(str(leaf["type"]), 0.1)
            new = VALUES[kind](base, random, reach)
            zero = base == 0
            if MANY_ZEROS < zero.mean() < 1:
                new = np.where(zero, 0.0, new)
            if base.size and base.min() >= 0:
                new = np.abs(new)
            with np.errstate(over="ignore", under="ignore"):
                typed = new.astype(dtype_of(str(leaf["type"])))
            leaf["data"] = np.ascontiguousarray(typed).reshape(-1).view(np.uint8)
    return made
