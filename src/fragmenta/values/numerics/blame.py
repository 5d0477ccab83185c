"""Splits the error of an output among groups of instructions, by running it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import BadCall, nearest
from fragmenta.ptx.families import CONVERSIONS, FUSED, PRODUCTS, SUMS, UPDATES
from fragmenta.ptx.opcodes.kinds import opcodes_of

if TYPE_CHECKING:
    from fragmenta.values.numerics.report import Numerics, OutputErrors, Site

MOST = 8
"""Lines or instructions with a part of their own."""
WAYS = ("kind", "line", "instruction")
INPUTS = "quantised inputs"
_PRODUCTS = opcodes_of("multiplies")
_KINDS = {
    **dict.fromkeys(CONVERSIONS, "conversions"),
    **dict.fromkeys(SUMS | FUSED, "sums"),
    **dict.fromkeys(PRODUCTS, "products"),
    **dict.fromkeys(("div", "rcp", "sqrt", "rsqrt"), "divisions and roots"),
    **dict.fromkeys(UPDATES, "atomic operations"),
}


@dataclass(frozen=True, eq=False)
class ErrorShare:
    """The part of an error that a group of instructions makes."""

    name: str
    error: NDArray[np.float64]
    """Of each element, with its sign."""
    norm: float
    """Its size, relative to the exact values."""
    left: float
    """The size of the error that would be left without it."""


@dataclass(frozen=True, eq=False)
class Blame:
    """The error of an output, split."""

    output: str
    total: float
    """The size of the error, relative to the exact values."""
    parts: list[ErrorShare]
    """The largest first."""
    rest: float
    """What the sum of all parts leaves of the error, relative to it."""

    def __getitem__(self, name: str) -> ErrorShare:
        for each in self.parts:
            if each.name == name:
                return each
        names = [each.name for each in self.parts]
        raise BadCall(f"no part {name}{nearest(name, names)}")

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain types, without elements."""
        return {
            "output": self.output,
            "total": self.total,
            "rest": self.rest,
            "parts": [
                {"name": each.name, "error": each.norm, "left": each.left}
                for each in self.parts
            ],
        }

    def __str__(self) -> str:
        wide = max((len(each.name) for each in self.parts), default=0)
        lines = [f"error of {self.output}: {self.total:.3g} of its exact values"]
        lines += [
            f"  {each.name:<{wide}}  {each.norm:9.3g}   without it {each.left:.3g}"
            for each in self.parts
        ]
        return "\n".join([*lines, f"  all parts together leave {self.rest:.1%}"])


def blame(
    found: Numerics, output: OutputErrors, by: str, inputs: Mapping[str, Any]
) -> Blame:
    """Split the error of an output."""
    if by not in WAYS:
        raise BadCall(f"by is kind, line or instruction; given {by}{nearest(by, WAYS)}")
    if found.again is None:
        raise BadCall(
            "blame runs a launch again, and this one ran in another process; use "
            "kernel.launch(numerics=True) in this one"
        )
    names = {_input(found, name): np.asarray(each) for name, each in inputs.items()}
    groups = _groups(found, by)
    error = output.seconds.error
    good = np.isfinite(error)
    parts = {}
    for name, sites in groups.items():
        parts[name] = _part(found, output, frozenset(sites), {})
    if names:
        every = _error(found, output, None, names)
        parts[INPUTS] = every - np.nan_to_num(error)
        error, good = every, good & np.isfinite(every)
    exact = float(np.linalg.norm(output.seconds.exact[good])) or 1.0
    total = float(np.linalg.norm(error[good]))
    made = [
        ErrorShare(
            name,
            output._shaped(part),
            float(np.linalg.norm(part[good])) / exact,
            float(np.linalg.norm((error - part)[good])) / exact,
        )
        for name, part in parts.items()
    ]
    made.sort(key=lambda each: -each.norm)
    rest = error - sum(parts.values(), np.zeros(error.shape))
    left = float(np.linalg.norm(rest[good])) / total if total else 0.0
    return Blame(output.shown, total / exact, made, left)


def _input(found: Numerics, name: str) -> str:
    """The whole name of an argument."""
    for key in found.shapes:
        if name == key or f"({name})" in key:
            return key
    raise BadCall(f"no argument {name}{nearest(name, found.shapes)}")


def _part(
    found: Numerics,
    output: OutputErrors,
    sites: frozenset[int],
    inputs: Mapping[str, Any],
) -> NDArray[np.float64]:
    """The error that some sites make: second values have all others' errors."""
    return np.nan_to_num(_error(found, output, sites, inputs))


def _error(
    found: Numerics,
    output: OutputErrors,
    sites: frozenset[int] | None,
    inputs: Mapping[str, Any],
) -> NDArray[np.float64]:
    assert found.again is not None
    made = found.again(sites, inputs)
    for each in made.arrays:
        if each.segment.name == output.name and each.held is not None:
            return each.held.whole().error
    return np.zeros(output.held.size)


def _groups(found: Numerics, by: str) -> dict[str, list[int]]:
    """The sites of each group; those that add no error are in none."""
    adding = [each for each in found.instructions if each.added > 0]
    if by == "kind":
        named = {each.number: _kind(found, each) for each in adding}
    elif by == "line":
        named = {each.number: each.place for each in adding}
    else:
        named = {each.number: f"{each.place} {each.mnemonic}" for each in adding}
    groups: dict[str, list[int]] = {}
    for each in adding:
        groups.setdefault(named[each.number], []).append(each.number)
    if by == "kind" or len(groups) <= MOST:
        return groups
    kept = dict(list(groups.items())[:MOST])
    others = [n for name, sites in groups.items() if name not in kept for n in sites]
    return {**kept, "all others": others}


def _kind(found: Numerics, site: Site) -> str:
    """What an instruction is in a kernel."""
    opcode = site.instruction.opcode
    if opcode in _PRODUCTS:
        return "Tensor Core"
    products = [
        each.index
        for each in found.instructions
        if each.instruction.opcode in _PRODUCTS and each.function == site.function
    ]
    if products:
        if site.index < min(products):
            return "before the products"
        loops = _in_loop(found, site, max(products))
        return "promotions" if loops else "epilogue"
    if "approx" in site.instruction.qualifiers or opcode in ("ex2", "lg2", "tanh"):
        return "approximations"
    return _KINDS.get(opcode, "others")


def _in_loop(found: Numerics, site: Site, last: int) -> bool:
    """Whether an instruction is executed as often as products are."""
    if site.index <= last:
        return True
    products = [
        each.executions
        for each in found.instructions
        if each.instruction.opcode in _PRODUCTS
    ]
    return site.executions > 1 and site.executions >= max(products)


def advice(found: Numerics, output: OutputErrors) -> list[str]:
    """What would help most: the lines whose errors matter, measured."""
    split = blame(found, output, "line", {})
    said = [] if found.promotion is None else [str(found.promotion)]
    for each in split.parts[:3]:
        if not split.total or each.left > 0.7 * split.total or not each.norm:
            continue
        sites = [e for e in found.instructions if e.place == each.name]
        first = max(sites, key=lambda e: e.share, default=None)
        if first is None:
            continue
        said.append(
            f"{each.name}: if {_better(first)}, the error of {split.output} "
            f"would be {each.left:.3g} instead of {split.total:.3g}"
        )
    return said


def _better(site: Site) -> str:
    """What an exact instruction would be."""
    opcode, words = site.instruction.opcode, site.instruction.qualifiers
    if opcode in _PRODUCTS:
        return "its products were added in more bits, or promoted more often"
    if site.instruction.is_conversion:
        return "numbers were kept in a wider format"
    if "approx" in words:
        return "the function were not approximated"
    if opcode in SUMS | FUSED | UPDATES:
        return "the sum were kept in more bits, or compensated"
    return f"{opcode} were computed in more bits"
