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
