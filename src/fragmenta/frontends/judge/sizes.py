"""The sizes of inputs that are tried: the given ones, made smaller, and odd ones.

A task has its sizes as numbers with names at the top of its file, as in KernelBench.
Other sizes are other numbers.  Small ones, such as strides and axes, are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

SMALL = 16
"""Numbers up to this one are not sizes, or not worth changing."""
LEAST = 8
"""A size is not made smaller than this."""

MAIN, OTHER, GIVEN, SECRET = "main", "other", "given", "secret"
"""Sets of cases: the given sizes made smaller, other sizes, the given sizes as they are
if they were made smaller, and inputs that only kernels get."""
ABOVE = "above"
"""Sizes above the given ones, if these are small."""

Sizes = dict[str, int]


def scaled(given: Mapping[str, int], fits: Callable[[Sizes], bool]) -> Sizes:
    """The given sizes, halved until they fit.

    >>> scaled({"N": 4096, "axis": 1}, lambda sizes: sizes["N"] <= 100)
    {'N': 64, 'axis': 1}
    """
    sizes = dict(given)
    while not fits(sizes):
        largest = max(sizes.values(), default=0)
        smaller = {
            name: max(LEAST, each // 2)
            if each > SMALL and 2 * each >= largest
            else each
            for name, each in sizes.items()
        }
        if smaller == sizes:
            return sizes
        sizes = smaller
    return sizes


def above(given: Mapping[str, int], step: int) -> Sizes:
    """Larger sizes: multiples of ``step``, or odd if it is 1.

    >>> above({"N": 64, "axis": 1}, 1), above({"N": 64, "axis": 1}, 16)
    ({'N': 151, 'axis': 1}, {'N': 144, 'axis': 1})
    """
    made = {}
    for name, each in given.items():
        new = (9 * each // 4) // step * step
        made[name] = (
            each if each <= SMALL else max(each + step, new | (7 * (step == 1)))
        )
    return made


def moved(sizes: Mapping[str, int], least: Mapping[str, int], seed: int) -> Sizes:
    """Odd sizes somewhat smaller, which nobody knows before; above the least ones.

    >>> made = moved({"N": 151, "axis": 1}, {"N": 64, "axis": 1}, 3)
    >>> 64 < made["N"] <= 151, made["N"] % 2, made["axis"]
    (True, 1, 1)
    """
    random = np.random.default_rng(seed)
    made = {}
    for name, each in sizes.items():
        less = 2 * int(random.integers(0, each // 10 + 1))
        apart = each > SMALL and each - less > least[name]
        made[name] = each - less if apart else each
    return made


def few(given: Mapping[str, int], size: int) -> Sizes:
    """Very small sizes.

    >>> few({"N": 64, "axis": 1}, 7)
    {'N': 7, 'axis': 1}
    """
    return {name: each if each <= SMALL else size for name, each in given.items()}


def many(given: Mapping[str, int], times: int) -> Sizes:
    """The largest size many times larger, and odd.

    >>> many({"N": 64, "axis": 1}, 10)
    {'N': 643, 'axis': 1}
    """
    made = dict(given)
    if made:
        name = max(made, key=lambda each: made[each])
        made[name] = made[name] * times | 3
    return made


def odd(given: Mapping[str, int], seed: int, step: int) -> Sizes:
    """Other sizes, somewhat smaller; multiples of ``step``, plus one if it is 1.

    >>> odd({"N": 64, "axis": 1}, 0, 1)["N"] % 2
    1
    """
    random = np.random.default_rng(seed)
    made = {}
    for name, each in given.items():
        if each <= SMALL:
            made[name] = each
        else:
            new = int(random.integers(each // 2 + 1, each))
            made[name] = new | 1 if step == 1 else max(step, new // step * step)
    return made
