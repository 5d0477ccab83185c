"""The values of inputs that are tried: ordinary ones, and those that break kernels.

An input keeps its zeros if it has many, such as a triangle, and stays positive if it
is: then the task says so.  Whole numbers, such as labels, stay numbers that the task
has: they are repeated.  Those of 8 bits are tried with all their values.
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
FEWEST = 8
"""Whole numbers that are changed are at least so many; fewer may be sizes."""
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


_LIMITS = np.array([1e-18, 1e-9, 1e-4, 0.0, 1.0, 2.0, 1e4, 1e9, 1e18])
"""Values whose squares are still in the range of float32."""


def _extremes(x: Values, random: np.random.Generator, reach: float) -> Values:
    """A half of the elements are very large or small, with any sign."""
    signs = random.choice([-1.0, 1.0], x.shape)
    chosen = random.choice(_LIMITS, x.shape)
    with np.errstate(divide="ignore"):
        powers = np.where(chosen > 0, np.abs(chosen) ** reach, 0.0)
    return np.where(random.random(x.shape) < 0.5, signs * powers, x)


def _equal(x: Values, random: np.random.Generator, reach: float) -> Values:
    """All elements are the same number, which nobody knows before."""
    return np.full_like(x, np.random.default_rng().uniform(0.25, 4.0))


def _halves(x: Values, random: np.random.Generator, reach: float) -> Values:
    """Halves of whole numbers: roundings to whole numbers have ties there."""
    return random.integers(-20, 21, x.shape) / 2.0


def _spread(x: Values, random: np.random.Generator, reach: float) -> Values:
    """Numbers of all exponents around 0, with any sign."""
    signs = random.choice([-1.0, 1.0], x.shape)
    return signs * np.exp2(random.uniform(-30 * reach, 30 * reach, x.shape))


def _subnormal(x: Values, random: np.random.Generator, reach: float) -> Values:
    """Some elements are below the smallest normal number."""
    small = x * 2.0 ** (-14 if reach < 1 else -128)
    return np.where(random.random(x.shape) < 0.25, small, x)


def _in_rows(change: Callable[[Values, float], None]) -> Callable[..., Values]:
    """Values that are changed in rows: along the last axis, or some by some."""

    def changed_rows(x: Values, random: np.random.Generator, reach: float) -> Values:
        made = x.copy()
        long = made.shape[-1] if made.ndim > 1 else FEWEST
        flat = made.reshape(-1)
        change(
            flat[: flat.size // max(1, long) * long].reshape(-1, max(1, long)), reach
        )
        return made

    return changed_rows


def _special_rows(rows: Values, reach: float) -> None:
    """Whole rows of one special value, and rows in which one follows another."""
    lone = (-np.inf, np.inf, np.nan, -(2.0 ** (120 * reach)))
    for number, row in enumerate(rows):
        kind = number % 7
        if kind < len(lone):
            row[:] = lone[kind]
        elif kind < 6:
            row[row.size // 3] = 0.0
            row[2 * row.size // 3] = (np.nan, np.inf)[kind - 4]


def _close_rows(rows: Values, reach: float) -> None:
    """Sorted rows with neighbours side by side, and the largest far apart."""
    next_ = 1 + 2.0 ** (-23 if reach == 1 else -10)
    fits = [each for each in _DISTANCES if each < rows.shape[1]]
    for number, row in enumerate(rows):
        row.sort()
        if row.size > 1:
            row[-1] = row[-2] * next_ if row[-2] > 0 else row[-1]
        if number % 4 == 1:
            row[:] = row[::-1].copy()
        elif number % 8 == 4:
            _largest_first(row)
        elif number % 4 > 1 and fits:
            distance = fits[number // 4 * 2 % len(fits) - number % 2]
            at = (number * 7) % (row.size - distance)
            row[[at + distance, -2]] = row[[-2, at + distance]]
            row[[at, -1]] = row[[-1, at]]


def _largest_first(row: Values) -> None:
    """A sorted row, its largest elements first, as many as whole blocks have.

    Threads that go through a row in steps of a block then have larger numbers one after
    another, so that each of them has the largest one until there.
    """
    blocks = 1 << (row.size.bit_length() - 1)
    row[:] = np.roll(row, blocks)


def _ends_of_rows(rows: Values, reach: float) -> None:
    """Only the ends of rows, and a place between them, are not zero."""
    for number, row in enumerate(rows):
        kept = [0, number * 5 % row.size, row.size - 1]
        some = row[kept] + 0.25
        row[:] = 0.0
        row[kept] = some


_DISTANCES = (1024, 32, 256, 64, 1, 128, 512, 2048)
"""How far apart two threads may be that look at neighbours."""
ROWS: dict[str, Callable[..., Values]] = {
    "special rows": _in_rows(_special_rows),
    "close rows": _in_rows(_close_rows),
    "ends of rows": _in_rows(_ends_of_rows),
}
"""Several situations in one case; what is wrong there is no reproach."""
VALUES: dict[str, Callable[[Values, np.random.Generator, float], Values]] = {
    PLAIN: lambda x, _, __: x,
    "zeros": lambda x, _, __: np.zeros_like(x),
    "ones": lambda x, _, __: np.ones_like(x),
    "equal": _equal,
    "large": _scaled(40),
    "tiny": _scaled(-100),
    "cancelling": _cancelling,
    "outliers": _outliers,
    "nan": _some(np.nan),
    "infinity": _some(np.inf),
    "minus-infinity": _some(-np.inf),
    "minus-zero": _some(-0.0),
    "extreme": _extremes,
    "halves": _halves,
    "spread": _spread,
    "subnormal": _subnormal,
}
"""Ways to change the values of an input."""
ELEMENTWISE = ("halves", "spread", "subnormal")
"""Kinds for references whose results come from elements at their own places alone."""
EXTREME = "extreme"
SPECIAL = ("nan", "infinity", "minus-infinity", "minus-zero")
EQUAL = ("zeros", "ones", "equal")
"""Kinds in which all elements are the same: a copy cannot be told from another."""
WHOLE = ("repeated", "widest")
"""Kinds for whole numbers: some of them again and again; all that 8 bits can be, or
numbers of two bytes."""
WIDE = 1 << 15
STATE = "other weights and scalars"
"""The kind of a case in which what is no array is other than the task gives it."""
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


def moved(leaf: dict[str, Tree], seed: int) -> NDArray[np.uint8]:
    """The bytes of an input with other values: floats are scaled, others exchanged.

    Signs and zeros are kept.
    """
    random = np.random.default_rng(seed)
    values = elements(leaf)
    if is_float(leaf):
        by = random.uniform(0.5, 1.0, values.shape)
        made = (values.astype(np.float64) * by).astype(values.dtype)
    else:
        made = random.permutation(values.reshape(-1)).reshape(values.shape)
    return np.ascontiguousarray(made).reshape(-1).view(np.uint8)


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
            new = {**VALUES, **ROWS}[kind](base, random, reach)
            zero = base == 0
            if MANY_ZEROS < zero.mean() < 1:
                new = np.where(zero, 0.0, new)
            if base.size and base.min() >= 0:
                new = np.abs(new)
            with np.errstate(over="ignore", under="ignore"):
                typed = new.astype(dtype_of(str(leaf["type"])))
            leaf["data"] = np.ascontiguousarray(typed).reshape(-1).view(np.uint8)
    return made


def whole_numbers(inputs: Tree, kind: str, seed: int) -> Tree:
    """The inputs with other whole numbers; floats are kept.

    >>> from fragmenta.judge.held import hold, free
    >>> [made] = free(whole_numbers(hold([np.arange(64)]), "repeated", 0))
    >>> bool(len(np.unique(made)) < 40 and made.max() < 64)
    True
    """
    made = load(dump(inputs))
    random = np.random.default_rng(seed)
    for leaf in leaves(made):
        values = elements(leaf)
        if values.dtype.kind not in "iu" or values.size < FEWEST:
            continue
        if kind == "repeated":
            some = random.choice(values.reshape(-1), values.size // 4)
            new = random.choice(some, values.shape)
        elif values.dtype.itemsize == 1:
            ends = np.iinfo(values.dtype)
            new = random.integers(ends.min, ends.max + 1, values.shape)
            new.reshape(-1)[:: new.size // 4] = ends.min
        else:
            low = -WIDE if values.min() < 0 else 0
            new = random.integers(low, WIDE, values.shape)
        typed = np.ascontiguousarray(new.astype(values.dtype))
        leaf["data"] = typed.reshape(-1).view(np.uint8)
    return made
