"""The values of inputs that are tried: ordinary ones, and those that break kernels.

An input keeps its zeros if it has many, such as a triangle, and stays positive if it
is: then the task says so.  Whole numbers, such as labels, stay numbers that the task
has: they are repeated.  Those of 8 bits are tried with all their values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import Array
from fragmenta.errors import BadCall, nearest, one_of
from fragmenta.frontends.judge.held import dtype_of, elements, leaves
from fragmenta.frontends.judge.wire import Tree, dump, load

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


def _signs(x: Values, random: np.random.Generator, reach: float) -> Values:
    """Every other element has the other sign, also of inputs that are positive."""
    turned: Values = x * random.choice([-1.0, 1.0], x.shape)
    return turned


SIGNS = "both signs"
ROWS: dict[str, Callable[..., Values]] = {
    SIGNS: _signs,
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
INFINITE = ("infinity", "minus-infinity")
"""Kinds without NaN: a limit in place of one is no reproach."""
SPECIAL = ("nan", *INFINITE, "minus-zero")
EQUAL = ("zeros", "ones", "equal")
"""Kinds in which all elements are the same: a copy cannot be told from another."""
FLAGS = ("other", "turned")
WHOLE = ("repeated", "widest", "high words", *FLAGS)
"""Kinds for whole numbers: some of them again and again; all that 8 bits can be, or
numbers of two bytes, and zero; those whose high bits are not those of signs; other
masks, few numbers and flags, and these the other way round."""
WIDE, HIGHEST = 1 << 15, 1 << 40
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

    Signs and zeros are kept.  Floats of 16 bits are there several times; what is the
    same stays the same, so that copies are still found.
    """
    random = np.random.default_rng(seed)
    values = elements(leaf)
    if is_float(leaf) and values.dtype.itemsize == 2:
        made = _other_mantissas(values, seed)
    elif is_float(leaf):
        by = random.uniform(0.5, 1.0, values.shape)
        made = (values.astype(np.float64) * by).astype(values.dtype)
    else:
        made = random.permutation(values.reshape(-1)).reshape(values.shape)
    return np.ascontiguousarray(made).reshape(-1).view(np.uint8)


def _other_mantissas(values: Array, seed: int) -> Array:
    """Normal floats of 16 bits with some bits of their mantissas turned over."""
    codes = values.view(np.uint16)
    digits = 7 if values.dtype.name == "bfloat16" else 10
    exponents = codes & 0x7FFF & ~np.uint16((1 << digits) - 1)
    normal = (exponents != 0) & np.isfinite(values)
    bits = 1 + (seed * 0b1001101 + 0b101101) % ((1 << digits) - 1)
    turned = np.where(normal, codes ^ bits, codes)
    return turned.astype(np.uint16).view(values.dtype)


def changed(inputs: Tree, kind: str, seed: int) -> Tree:
    """The inputs with other values.

    >>> from fragmenta.frontends.judge.held import hold, free
    >>> free(changed(hold([np.ones(2, np.float32), 3]), "zeros", 0))
    [array([0., 0.], dtype=float32), 3]
    """
    made = load(dump(inputs))
    random = np.random.default_rng(seed)
    for leaf in leaves(made):
        if is_float(leaf):
            base = elements(leaf).astype(np.float64)
            new = {**VALUES, **ROWS}[kind](base, random, reach_of(leaf))
            put(leaf, base, new, signed=kind == SIGNS)
    return made


def reach_of(leaf: dict[str, Tree]) -> float:
    """How far the exponents of a held array reach, compared with float32."""
    return _REACH.get(str(leaf["type"]), 0.1)


def put(leaf: dict[str, Tree], base: Values, new: Values, signed: bool = False) -> None:
    """Give a held array new values; many zeros stay, and what is positive does.

    With ``signed``, only zeros do.

    >>> from fragmenta.frontends.judge.held import hold
    >>> leaf = hold(np.ones(2, np.float32))
    >>> put(leaf, np.ones(2), np.array([-3.0, 2.0]))
    >>> elements(leaf)
    array([3., 2.], dtype=float32)
    """
    zero = base == 0
    if MANY_ZEROS < zero.mean() < 1:
        new = np.where(zero, 0.0, new)
    if base.size and base.min() >= 0 and not signed:
        new = np.abs(new)
    with np.errstate(over="ignore", under="ignore"):
        typed = new.astype(dtype_of(str(leaf["type"])))
    leaf["data"] = np.ascontiguousarray(typed).reshape(-1).view(np.uint8)


def whole_numbers(inputs: Tree, kind: str, seed: int) -> Tree:
    """The inputs with other whole numbers; floats are kept.

    >>> from fragmenta.frontends.judge.held import hold, free
    >>> [made] = free(whole_numbers(hold([np.arange(64)]), "repeated", 0))
    >>> bool(len(np.unique(made)) < 40 and made.max() < 64)
    True
    """
    made = load(dump(inputs))
    random = np.random.default_rng(seed)
    if kind in FLAGS and isinstance(made, list):
        made = [_other_number(each, kind) for each in made]
    for leaf in leaves(made):
        values = elements(leaf)
        new = _other_numbers(values, kind, random) if values.size else None
        if new is not None:
            typed = np.ascontiguousarray(new.astype(values.dtype))
            leaf["data"] = typed.reshape(-1).view(np.uint8)
    return made


def _other_number(value: Tree, kind: str) -> Tree:
    """Another whole number or flag."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1 if kind == "other" else max(0, value - 1)
    return value


def _other_numbers(
    values: Array, kind: str, random: np.random.Generator
) -> Array | None:
    """Other elements of an array of whole numbers or flags; None for other arrays."""
    if values.dtype.kind == "b" and kind in ("other", "turned"):
        flags = ~values if kind == "other" else np.roll(values.reshape(-1), 1)
        made = flags.reshape(-1, values.shape[-1] if values.ndim else 1)
        made[0 : len(made) // 4] = kind == "other"
        made[len(made) // 4 : len(made) // 2] = kind != "other"
        return made.reshape(values.shape)
    if values.dtype.kind not in "iu":
        return None
    if values.size < FEWEST:
        flat = values.reshape(-1)
        turned = {"turned": flat[::-1], "other": np.roll(flat, 1)}.get(kind)
        return None if turned is None else turned.reshape(values.shape)
    if kind == "repeated":
        some = random.choice(values.reshape(-1), values.size // 4)
        return random.choice(some, values.shape)
    low = -1 if values.min() < 0 else 0
    if kind == "high words" and values.dtype.itemsize in (4, 8):
        most = HIGHEST if values.dtype.itemsize == 8 else 1 << 30
        return random.integers(low * most, most, values.shape)
    if kind == "widest" and values.dtype.itemsize == 1:
        ends = np.iinfo(values.dtype)
        new = random.integers(ends.min, ends.max + 1, values.shape)
        new.reshape(-1)[:: new.size // 4] = ends.min
        return new
    if kind == "widest":
        new = random.integers(low * WIDE, WIDE, values.shape)
        step = max(1, new.size // 5)
        new.reshape(-1)[int(random.integers(step)) :: step] = 0
        return new
    return None
