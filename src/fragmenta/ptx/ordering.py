"""The instructions that can synchronise threads through a word in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fragmenta.ptx.module import Function, Instruction


class Role(NamedTuple):
    """How an instruction can take part in synchronisation."""

    fence: bool = False
    publishes: bool = False
    releases: bool = False
    """Whether it publishes without a fence before it."""
    acquires: bool = False
    cta: bool = False
    """Whether its scope is the block."""


_STRONG = frozenset({"relaxed", "volatile", "mmio", "acquire", "release", "acq_rel"})
_ORDERED = frozenset({"acquire", "release", "acq_rel"})
_NOT_SHARED = frozenset({"local", "param", "param::entry", "param::func", "const"})


def role(instruction: Instruction) -> Role | None:
    """How an instruction can synchronise; None if it cannot."""
    words = set(instruction.qualifiers)
    opcode, cta = instruction.opcode, "cta" in words
    if opcode == "membar":
        return None if "proxy" in words else Role(fence=True, cta=cta)
    if opcode == "fence":
        if words & {"proxy", "mbarrier_init"}:
            return None
        return Role(fence=True, cta=cta)
    if words & _NOT_SHARED or any(each.startswith("mbarrier") for each in words):
        return None
    releases = bool(words & {"release", "acq_rel"})
    if opcode in ("atom", "red") and "async" not in words:
        return Role(
            publishes=True, releases=releases, acquires=opcode == "atom", cta=cta
        )
    if opcode in ("ld", "st") and words & _STRONG and "async" not in words:
        stores = opcode == "st"
        return Role(publishes=stores, releases=releases, acquires=not stores, cta=cta)
    return None


def orders(functions: Iterable[Function]) -> bool:
    """Whether functions have a fence, or any access that is ordered by itself."""
    for function in functions:
        for each in function.instructions:
            found = role(each)
            if found and (found.fence or _ORDERED & set(each.qualifiers)):
                return True
    return False


def synchronises(function: Function, ordered: bool | None = None) -> set[int]:
    """The numbers of the instructions of a function that can synchronise.

    Without a fence nothing that is relaxed can.  ``ordered`` says whether there is one
    anywhere in the program; by default only the function itself is looked at.
    """
    if not (orders((function,)) if ordered is None else ordered):
        return set()
    return {
        number
        for number, each in enumerate(function.instructions)
        if role(each) is not None
    }
