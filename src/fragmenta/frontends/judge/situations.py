"""Inputs that are situations: pairs of special numbers, other distributions, constants.

Each row of an input is a situation of its own, so a few calls show many of them.  What
is wrong there is no reproach, but it is no pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from fragmenta.frontends.judge.held import dtype_of, elements, leaves
from fragmenta.frontends.judge.values import (
    FEWEST,
    ROWS,
    WHOLE,
    is_float,
    put,
    reach_of,
)
from fragmenta.frontends.judge.wire import Tree, dump, load

Values = NDArray[np.float64]
PAIRS, MIXED, SAME, CONSTANTS = "pairs", "mixed rows", "same inputs", "constants"
EXACT, MANY = "whole numbers", "many situations"
SITUATIONS = (PAIRS, MIXED, SAME)
"""Kinds that need no more than the inputs."""
NO_REPROACH = (*WHOLE, *ROWS, *SITUATIONS, CONSTANTS, EXACT)
"""Kinds that nobody asked for: what is wrong there is no reproach."""
MOST = 24
"""Constants of one candidate that are tried."""
MEAN = 1000.0
LONG, MOST_LONG = 64, 512
"""How many of the whole numbers have 13 bits: one of so many, and so many at most."""
_EQUAL = "equal"
_FINITE = (0.0, -0.0, 2.0**40, 2.0**-100, _EQUAL)
_ALL = (*_FINITE, np.nan, np.inf, -np.inf)


def rows_of(values: Values) -> Values:
    """The rows of an array: along its last axis, or some elements by some.

    >>> rows_of(np.zeros((2, 3, 5))).shape, rows_of(np.zeros(20)).shape
    ((6, 5), (2, 8))
    """
    flat = values.reshape(-1)
    long = max(1, values.shape[-1] if values.ndim > 1 else min(FEWEST, flat.size))
    return flat[: flat.size // long * long].reshape(-1, long)


def situated(
    inputs: Tree, kind: str, seed: int, constants: Sequence[float] = ()
) -> Tree:
    """The inputs in such a situation; the same ones if it is none for them.

    >>> from fragmenta.frontends.judge.held import free, hold
    >>> given = hold([np.ones(3, np.float32), np.zeros(3, np.float32)])
    >>> free(situated(given, "same inputs", 0))[1]
    array([1., 1., 1.], dtype=float32)
    """
    made = load(dump(inputs))
    random = np.random.default_rng(seed)
    floats = [leaf for leaf in leaves(made) if is_float(leaf) and elements(leaf).size]
    if kind in (PAIRS, SAME) and len(floats) < 2:
        return made
    bases = [elements(leaf).astype(np.float64) for leaf in floats]
    news = [each.copy() for each in bases]
    with np.errstate(all="ignore"):
        if kind == PAIRS:
            _pairs(news, [reach_of(each) for each in floats])
        elif kind == SAME:
            _same(floats, news)
        for number, (leaf, new) in enumerate(zip(floats, news, strict=True)):
            if kind == MIXED:
                _mixed(rows_of(new), number, random)
            elif kind == CONSTANTS:
                dtype = dtype_of(str(leaf["type"]))
                _constants(rows_of(new), variants(constants, dtype), random)
            put(leaf, bases[number], new)
    return made


def whole_floats(inputs: Tree, seed: int, most: int = 3, long: int = -1) -> Tree:
    """The inputs as small whole numbers that are not zero, whose sums are exact.

    Some of the input of this number have 13 bits, which formats for matrices lose.

    >>> from fragmenta.frontends.judge.held import free, hold
    >>> [made] = free(whole_floats(hold([np.ones(99, np.float32)]), 0, long=0))
    >>> made.min(), made.max() > 4096, sorted(set(made))[:3] == [1, 2, 3]
    (np.float32(1.0), np.True_, True)
    """
    made = load(dump(inputs))
    random = np.random.default_rng(seed)
    floats = [leaf for leaf in leaves(made) if is_float(leaf) and elements(leaf).size]
    for number, leaf in enumerate(floats):
        base = elements(leaf).astype(np.float64)
        top = most if base.min() < 0 else max(2, most)
        new: Values = random.choice([-1.0, 1.0], base.size)
        new *= random.integers(1, top + 1, base.size)
        if number == long:
            count = min(MOST_LONG, max(1, new.size // LONG))
            places = random.choice(new.size, count, replace=False)
            new[places] = 2 * random.integers(2048, 4096, count) + 1
        put(leaf, base, new.reshape(base.shape))
    return made


def many(inputs: Tree, seed: int) -> Tree:
    """The inputs with some of all: NaN, infinities, zeros, large and small numbers.

    >>> from fragmenta.frontends.judge.held import free, hold
    >>> [made] = free(many(hold([np.ones(999, np.float32)]), 0))
    >>> bool(np.isnan(made).any() and np.isinf(made).any() and (made == 1).any())
    True
    """
    made = load(dump(inputs))
    random = np.random.default_rng(seed)
    for leaf in leaves(made):
        if not is_float(leaf):
            continue
        base, reach = elements(leaf).astype(np.float64), reach_of(leaf)
        new = base.reshape(-1).copy()
        given = [np.nan, np.inf, -np.inf, -0.0, 0.0]
        given += [2.0 ** (each * reach) for each in (40, 20, -20, -60, -100)]
        places = random.integers(0, max(1, new.size), new.size // 16)
        new[places] = random.choice(given, places.size)
        put(leaf, base, new.reshape(base.shape))
    return made


def with_whole(inputs: Tree, constants: Sequence[int], inside: bool) -> Tree:
    """The inputs with such whole numbers and their neighbours among others.

    ``inside``: only those between the smallest and the largest number that was there.

    >>> from fragmenta.frontends.judge.held import free, hold
    >>> free(with_whole(hold([np.arange(9)]), [70], False))
    [array([70,  1,  2,  3, 71,  5,  6,  7, 69])]
    """
    made = load(dump(inputs))
    near = [each + by for by in (0, 1, -1) for each in constants]
    for leaf in leaves(made):
        values = elements(leaf).copy()
        if values.dtype.kind not in "iu" or values.size < FEWEST:
            continue
        ends = np.iinfo(values.dtype)
        low, high = (values.min(), values.max()) if inside else (ends.min, ends.max)
        given = [each for each in near if low <= each <= high]
        some = values.reshape(-1)[::4]
        some[: len(given)] = given[: some.size]
        leaf["data"] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return made


# ── pairs ───────────────────────────────────────────────────────────────────


def _pairs(inputs: Sequence[Values], reaches: Sequence[float]) -> None:
    """Special numbers at the same place of two inputs, in each row another pair.

    Pairs without NaN and infinity have rows of their own, whose sums show them.
    """
    finite = [*product(_FINITE, repeat=2)]
    every = [each for each in product(_ALL, repeat=2) if each not in finite]
    count = min(len(rows_of(each)) for each in inputs)
    tame = max(1, count * 2 // 5)
    for pairs, first, rows in ((finite, 0, tame), (every, tame, count - tame)):
        for number, pair in enumerate(pairs if rows > 0 else ()):
            row, again = first + number % rows, number // rows
            _place(inputs, reaches, row, 7 * number + again, pair)


def _place(
    inputs: Sequence[Values],
    reaches: Sequence[float],
    row: int,
    column: int,
    pair: tuple[object, ...],
) -> None:
    ordinary = 0.0
    for number, (values, reach) in enumerate(zip(inputs, reaches, strict=True)):
        rows = rows_of(values)
        at = row, column % rows.shape[1]
        special = pair[number % 2]
        if special is _EQUAL:
            rows[at] = ordinary or rows[at]
        else:
            assert isinstance(special, float)
            large = np.isfinite(special) and special != 0
            rows[at] = special**reach if large else special
        ordinary = rows[at]


def _same(floats: Sequence[dict[str, Tree]], news: Sequence[Values]) -> None:
    """Inputs of one form are equal to the first of them."""
    first: dict[str, Values] = {}
    for leaf, new in zip(floats, news, strict=True):
        new[...] = first.setdefault(f"{leaf['type']} {leaf['shape']}", new)


# ── rows ────────────────────────────────────────────────────────────────────


def _far(row: Values, number: int, random: np.random.Generator) -> None:
    """The mean is far from zero, and the spread is small."""
    row += MEAN * (-1.0 if number % 2 else 1.0)


def _runs(row: Values, number: int, random: np.random.Generator) -> None:
    """Long runs of one number."""
    long = 2 << number % 8
    row[:] = np.repeat(row[::long], long)[: row.size]


def _ties(row: Values, number: int, random: np.random.Generator) -> None:
    """A few numbers again and again."""
    row[:] = random.choice(row[:4], row.size)


def _largest_again(row: Values, number: int, random: np.random.Generator) -> None:
    """A half of the row is its largest number."""
    row[random.random(row.size) < 0.5] = row.max()


def _one(row: Values, number: int, random: np.random.Generator) -> None:
    row[:] = row[0]


def _small(row: Values, number: int, random: np.random.Generator) -> None:
    row *= 2.0**-12


def _ordinary(row: Values, number: int, random: np.random.Generator) -> None:
    pass


_ROWS: tuple[Callable[[Values, int, np.random.Generator], None], ...] = (
    _far,
    _runs,
    _ties,
    _ordinary,
    _largest_again,
    _one,
    _small,
)


def _mixed(rows: Values, input_: int, random: np.random.Generator) -> None:
    for number, row in enumerate(rows):
        # Of two inputs, each situation of one meets each of the other.
        kind = number + input_ * (number // len(_ROWS))
        _ROWS[kind % len(_ROWS)](row, number // len(_ROWS), random)


# ── constants ───────────────────────────────────────────────────────────────


def variants(constants: Sequence[float], dtype: np.dtype[np.generic]) -> Values:
    """Constants with their neighbours in a format, and what is around them.

    >>> variants([1.0], np.dtype(np.float16)).tolist()
    [1.0, 1.0009765625, 0.99951171875, -1.0, 1.5]
    """
    found: dict[float, None] = {}
    given = np.array([*dict.fromkeys(constants)], np.float64)
    near = given.astype(dtype)
    ends = [np.array(each, dtype) for each in (np.inf, -np.inf)]
    rows = [given, *(np.nextafter(near, each).astype(np.float64) for each in ends)]
    rows += [-given, 1.5 * given]
    for each in np.concatenate(rows):
        found[float(each)] = None
    ordered = np.sort(np.concatenate([given, -given]))
    between = (ordered[1:] + ordered[:-1]) / 2 if given.size > 1 else ordered[:0]
    found |= dict.fromkeys(between.tolist())
    return np.array([each for each in found if np.isfinite(each)])


def _constants(rows: Values, given: Values, random: np.random.Generator) -> None:
    """In each row some: one of them, or one everywhere, or beside zeros, or many."""
    if not given.size:
        return
    order = random.permutation(given)
    for number, row in enumerate(rows):
        style, value = number % 4, order[number // 4 % order.size]
        at = int(random.integers(row.size))
        if style == 3:
            places = random.integers(0, row.size, max(1, row.size // 8))
            row[places] = random.choice(given, places.size)
        elif style == 2:
            row[:] = 0.0
            row[at] = value
        elif style == 1:
            row[:] = value
        else:
            row[at] = value
