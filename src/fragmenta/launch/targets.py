"""Compares a launch on several targets: where do results part, and where first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fragmenta.engine.simt.naming import array, place
from fragmenta.errors import BadCall
from fragmenta.ptx.module import Instruction
from fragmenta.reference.isa.target import check_target

if TYPE_CHECKING:
    from fragmenta.launch.kernel import Kernel
    from fragmenta.values.numerics.report import Numerics, OutputErrors


@dataclass(frozen=True)
class Apart:
    """An array whose bits two targets disagree on."""

    name: str
    elements: int
    """How many elements differ."""
    of: int
    first: str
    """The first of them."""
    values: tuple[float, float]
    """The values of that element."""
    exact: float
    largest: float
    """The largest difference."""


@dataclass(frozen=True)
class Parting:
    """Where the results of two targets part."""

    targets: tuple[str, str]
    arrays: tuple[Apart, ...]
    first: Instruction | None
    """The first instruction in the text whose results differ."""
    text: str
    differing: int
    """How many instructions have results that differ."""

    @property
    def same(self) -> bool:
        """Whether all arrays have the same bits."""
        return not self.arrays

    def __str__(self) -> str:
        one, other = self.targets
        if self.same:
            return f"{one} and {other}: the same bits"
        lines = [f"{one} and {other}"]
        if self.first is not None:
            lines.append(f"  part at {place(self.first)}, {self.first.mnemonic}")
            lines.append(f"      {self.text}"[:80])
        for each in self.arrays:
            a, b = each.values
            count = f"{each.elements:,} of {each.of:,} elements"
            lines.append(f"  {array(each.name)}: {count} differ")
            lines.append(
                f"      {each.first} is {a:.9g} and {b:.9g}, exactly {each.exact:.9g}"
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class Comparison:
    """A launch on several targets."""

    numerics: dict[str, Numerics]
    """What each target lost."""
    partings: tuple[Parting, ...]
    """The first target beside each of the others."""

    @property
    def same(self) -> bool:
        """Whether all targets leave the same bits."""
        return all(each.same for each in self.partings)

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.partings))


def compare(
    kernel: Kernel,
    grid: Any,
    block: Any,
    arguments: Sequence[Any],
    targets: Sequence[str],
    **options: Any,
) -> Comparison:
    """Launch a kernel with the arithmetic of several targets, on copies of its arrays.

    The sum of the bits of all results of each instruction is compared: the first
    instruction in the text whose sums differ is where they part.
    """
    names = [check_target(each) for each in targets]
    if len(names) < 2:
        raise BadCall("compare takes two targets or more")
    found, sums = {}, {}
    for name in names:
        given = [_copied(each) for each in arguments]
        result = kernel.launch(
            grid, block, given, target=name, numerics=True, **options
        )
        assert result.numerics is not None
        found[name] = result.numerics
        sums[name] = {
            (each.function, each.index): (each.digest, each)
            for each in result.numerics.instructions
        }
    first = names[0]
    partings = []
    for other in names[1:]:
        keys = sorted(
            key
            for key in sums[first].keys() & sums[other].keys()
            if sums[first][key][0] != sums[other][key][0]
        )
        site = sums[first][keys[0]][1] if keys else None
        partings.append(
            Parting(
                (first, other),
                tuple(_apart(found[first], found[other])),
                None if site is None else site.instruction,
                "" if site is None else site.text,
                len(keys),
            )
        )
    return Comparison(found, tuple(partings))


def _copied(argument: Any) -> Any:
    """A copy of an array; other arguments are as they are."""
    for name in ("copy", "clone"):
        method = getattr(argument, name, None)
        if method is not None and not isinstance(argument, bytes | bytearray):
            return method()
    return argument


def _apart(one: Numerics, other: Numerics) -> list[Apart]:
    """The arrays that differ."""
    made = []
    for name, output in one.outputs.items():
        there = other.outputs.get(name)
        if there is not None:
            made += _difference(name, output, there)
    return made


def _difference(name: str, one: OutputErrors, other: OutputErrors) -> list[Apart]:
    x, y = one.seconds.values, other.seconds.values
    apart = ~((x == y) | (np.isnan(x) & np.isnan(y)))
    if not apart.any():
        return []
    first = int(np.argmax(apart))
    with np.errstate(invalid="ignore"):
        sizes = np.abs(x - y)[apart]
    return [
        Apart(
            name,
            int(apart.sum()),
            x.size,
            one.at(first),
            (float(x[first]), float(y[first])),
            float(one.seconds.exact[first]),
            float(np.nanmax(sizes)) if np.isfinite(sizes).any() else float("inf"),
        )
    ]
