"""Inputs that separate: for which two programs leave different bits.

All memory with a name gets new numbers, the same under the same name.  Sums in another
order, with another rounding or with fewer bits differ where numbers are of different
magnitudes, where they cancel, and where they lie at the cut of an accumulator.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import Array
from fragmenta.inspect.sameness.calls import Program
from fragmenta.inspect.sameness.following import runs
from fragmenta.inspect.sameness.naming import Root

Random = np.random.Generator
Numbers = NDArray[np.float64]
FEW = 8
"""Elements of an array that are shown."""
NamedPair: TypeAlias = tuple[tuple[str, Array], tuple[str, Array]]
"""An array of each program, with its name."""


@dataclass(frozen=True, eq=False)
class Witness:
    """An input for which an element differs."""

    inputs: dict[str, Array]
    """The numbers of each label."""
    output: tuple[str, str]
    """The names of the arrays."""
    element: tuple[int, ...]
    first: Array
    """The value of the element in the first program, and in the second."""
    second: Array
    count: int
    """How many elements differ."""
    total: int

    def given(self, found: bool) -> list[str]:
        """The inputs in words: all of them if they are few, else where they are."""
        few = all(each.size <= FEW for each in self.inputs.values())
        if few:
            return [
                f"{name} = [{', '.join(_shown(each) for each in numbers.reshape(-1))}]"
                for name, numbers in self.inputs.items()
            ]
        return (
            ["the inputs: .witness.inputs, --json, --witness FILE.npz"] if found else []
        )

    def to_dict(self) -> dict[str, object]:
        """All of it in plain types; inputs as ``fragmenta serve`` takes them."""
        values = {
            name: [_shown(each), f"{int(each.view(f'u{each.itemsize}')[()]):#x}"]
            for name, each in zip(("first", "second"), _pair(self), strict=True)
        }
        return {
            "output": list(self.output),
            "element": list(self.element),
            **{name: shown for name, (shown, _) in values.items()},
            **{f"{name}_bits": bits for name, (_, bits) in values.items()},
            "count": self.count,
            "total": self.total,
            "inputs": {
                name: {
                    "type": _type_name(each),
                    "shape": list(each.shape),
                    "data": b64encode(each.tobytes()).decode(),
                }
                for name, each in self.inputs.items()
            },
        }

    def __str__(self) -> str:
        index = ", ".join(map(str, self.element))
        one, two = (each[()] for each in (self.first, self.second))
        bits = [f"{int(each.view(f'u{each.itemsize}')[()]):#x}" for each in _pair(self)]
        names = (
            self.output[0]
            if self.output[0] == self.output[1]
            else "/".join(self.output)
        )
        return (
            f"{names}[{index}]: {one} ({bits[0]}) and {two} ({bits[1]}); "
            f"{self.count} of {self.total} elements differ"
        )


def _shown(number: Array) -> str:
    """A number; of a NaN, its bits."""
    value = np.asarray(number)
    if value.dtype.kind in "iub":
        return str(value[()])
    wide = float(value.astype(np.float64))
    bits = f"{int(value.view(f'u{value.itemsize}')[()]):#x}"
    return f"nan ({bits})" if np.isnan(wide) else str(value[()])


def _type_name(array: Array) -> str:
    """The type of an array, as ``--arg`` and ``fragmenta serve`` name it."""
    kind = array.dtype
    if kind.kind in "iu":
        return f"{kind.kind}{8 * kind.itemsize}"
    names = {"bfloat16": "bf16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
    return names.get(kind.name, f"f{8 * kind.itemsize}")


def _pair(of: Witness) -> tuple[Array, Array]:
    return np.asarray(of.first), np.asarray(of.second)


def _normal(random: Random, count: int) -> Numbers:
    return random.standard_normal(count)


def _wide(random: Random, count: int) -> Numbers:
    """Magnitudes that differ by up to 2**24."""
    return random.standard_normal(count) * np.exp2(random.integers(-12, 13, count))


def _few(random: Random, count: int) -> Numbers:
    """A few large numbers among small ones: what is small is cut off."""
    large = random.random(count) < 0.1
    return random.standard_normal(count) * np.where(large, 64.0, 2.0**-6)


def _cancelling(random: Random, count: int) -> Numbers:
    """Large numbers in pairs of opposite sign, with small ones between them."""
    sign = np.where(np.arange(count) % 2, -1.0, 1.0)
    large: Numbers = sign * (32.0 + random.integers(0, 4, count))
    return large + random.standard_normal(count)


def _positive(random: Random, count: int) -> Numbers:
    return random.random(count) + 2.0**-8


def _holes(random: Random, count: int) -> Numbers:
    """Some NaN: a maximum drops them, and a comparison does not."""
    some = random.random(count) < random.choice([0.03, 0.3])
    return np.where(some, np.nan, random.standard_normal(count))


def _ends(random: Random, count: int) -> Numbers:
    """Some infinities."""
    some = random.choice([np.inf, -np.inf, *[0.0] * 30], count)
    return some + random.standard_normal(count)


def _zeros(random: Random, count: int) -> Numbers:
    """Zeros of both signs, and nothing above them, or nothing below."""
    return random.choice([0.0, -0.0, random.choice([-1.0, 1.0])], count)


_KINDS: tuple[Callable[[Random, int], Numbers], ...] = (
    _normal,
    _wide,
    _few,
    _cancelling,
    _positive,
)
"""In turn: sums part with one of these."""
_SPECIAL = (_holes, _zeros, _ends, _holes)
"""Afterwards: choices part with these."""


def inputs(
    both: list[Root], random: Random, make: Callable[[Random, int], Numbers]
) -> dict[str, Array]:
    """New numbers for every label, as long as its longest array."""
    found: dict[str, Array] = {}
    longest: dict[str, tuple[int, Root]] = {}
    for each in both:
        if each.bits:
            count = each.first + each.size * 8 // each.bits
            if count > longest.get(each.label, (0, each))[0]:
                longest[each.label] = count, each
    for label, (count, root) in longest.items():
        with np.errstate(over="ignore"):
            exact = make(random, count)
            numbers = exact.astype(_float(root))
        held = np.isfinite(numbers) | ~np.isfinite(exact)
        found[label] = np.where(held, numbers, 1).astype(_float(root))
    return found


def _float(root: Root) -> np.dtype[np.generic]:
    """The type of floats in some memory."""
    assert root.floats is not None
    return root.floats


def put(given: dict[str, Array], into: list[Root]) -> None:
    """Put numbers into memory, by the names of its elements."""
    for each in into:
        if each.label in given and (each.bits or not _float_array(given[each.label])):
            numbers = given[each.label]
            count = each.size // numbers.itemsize
            part = numbers[each.first : each.first + count]
            whole = each.array.ravel(order="K").view(f"u{part.itemsize}")
            whole[: part.size] = part.view(f"u{part.itemsize}")


def tries(both: list[Root], count: int, seed: int) -> Iterator[dict[str, Array]]:
    """Inputs that are likely to separate: so many ordinary ones, then special ones."""
    random = np.random.default_rng(seed)
    for number in range(count):
        yield inputs(both, random, _KINDS[number % len(_KINDS)])
    for number in range(min(count, 2 * len(_SPECIAL))):
        yield inputs(both, random, _SPECIAL[number % len(_SPECIAL)])


def _float_array(numbers: Array) -> bool:
    return numbers.dtype.kind not in "iub"


def given_inputs(both: list[Root], *, whole: bool = False) -> dict[str, Array]:
    """The numbers that memory holds now, by label; ``whole``: whole numbers, too."""
    found: dict[str, Array] = {}
    for each in both:
        if not each.bits and not whole:
            continue
        flat = each.array.ravel(order="K").copy()
        if each.bits:
            flat = flat.view(_float(each))
        if each.first:  # the label has elements before these
            flat = np.concatenate([np.zeros(each.first, flat.dtype), flat])
        if flat.size > found.get(each.label, flat[:0]).size:
            found[each.label] = flat
    return found


def separates(
    given: dict[str, Array],
    programs: tuple[Program, Program],
    memory: tuple[list[Root], list[Root]],
    pairs: list[NamedPair],
) -> Witness | None:
    """Whether results differ for these inputs; ``pairs`` are the arrays to compare."""
    found = []
    for number, (program, roots) in enumerate(zip(programs, memory, strict=True)):
        before = [each.array.copy() for each in roots]
        try:
            put(given, roots)
            found.append(runs(program, roots, [each[number][1] for each in pairs]))
        finally:
            for each, old in zip(roots, before, strict=True):
                each.array[...] = old
    if found[0] is None or found[1] is None:
        return None
    names = [(one[0], two[0]) for one, two in pairs]
    left = [
        ((x, one), (y, two))
        for (x, y), one, two in zip(names, found[0], found[1], strict=True)
    ]
    return witnessed(given, left)


def witnessed(given: dict[str, Array], pairs: list[NamedPair]) -> Witness | None:
    """The first element that differs among results, if one does."""
    for (x, one), (y, two) in pairs:
        made = difference(one, two)
        if made is not None:
            index, count = made
            first, second, total = one[index], two[index], common(one, two)
            return Witness(given, (x, y), index, first, second, count, total)
    return None


def common(one: Array, two: Array) -> int:
    """How many elements two arrays have in common."""
    return int(np.prod(shared_shape(one, two)))


def shared_shape(one: Array, two: Array) -> tuple[int, ...]:
    """The part that both arrays have: the first of all axes may be shorter."""
    return tuple(min(x, y) for x, y in zip(one.shape, two.shape, strict=True))


def difference(one: Array, two: Array) -> tuple[tuple[int, ...], int] | None:
    """The first element whose bits differ, and how many do."""
    part = tuple(slice(n) for n in shared_shape(one, two))
    apart = bits(one[part]) != bits(two[part])
    if not apart.any():
        return None
    index = tuple(int(each) for each in np.argwhere(apart)[0])
    return index, int(apart.sum())


def bits(array: Array) -> Array:
    """The raw bits of elements."""
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")
