"""Finds what the explorer shows for an instruction that it does not have.

A ``tcgen05.mma`` has matrices only with a descriptor, and the explorer has some of
them.  Qualifiers such as ``collector::a::fill`` change no layout, so it leaves them
out.  A ``tcgen05.commit`` has no fragments, so there is nothing to draw.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fragmenta.isa.families import catalogue
from fragmenta.isa.instruction import Instruction
from fragmenta.isa.table import extras


class Held:
    """The instructions of the explorer, by name and by kind."""

    def __init__(self, ops: Iterable[Instruction]) -> None:
        self.known = {str(op): op for op in ops}
        self._kinds: dict[tuple[str, ...], list[Instruction]] = {}
        for op in self.known.values():
            if op.tensor_memory:
                self._kinds.setdefault(_kind(op), []).append(op)

    def like(self, op: Instruction) -> Instruction | None:
        """The instruction itself, or one that the explorer has in its place.

        In place of a ``tcgen05.mma``, it is one with the same kind and group and, if
        possible, the same M.
        """
        if str(op) in self.known:
            return self.known[str(op)]
        alike = self._kinds.get(_kind(op), [])
        shape = op.values.get("shape", "").partition("n")[0]
        same = [each for each in alike if each.values["shape"].startswith(f"{shape}n")]
        return next(iter([*same, *alike]), None)


def _kind(op: Instruction) -> tuple[str, ...]:
    return (op.family, op.values.get("cta_group", ""), op.values.get("kind", ""))


def others(ops: Sequence[Instruction]) -> dict[str, int]:
    """For names that the explorer does not have: the number of what it shows, or -1."""
    held = Held(ops)
    number = {name: at for at, name in enumerate(held.known)}
    found = {}
    for op in catalogue():
        if str(op) not in held.known:
            shown = held.like(op)
            found[str(op)] = number[str(shown)] if shown else -1
    return found


def implied() -> list[str]:
    """Roundings that mean the same as none.

    >>> implied()
    ['rn']
    """
    _, defaults = extras("rounding")
    return [key.partition("=")[2] for key, value in defaults.items() if not value]
