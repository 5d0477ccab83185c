"""Finds what the explorer shows for an instruction that it does not have.

A ``tcgen05.mma`` has matrices only with a descriptor, and the explorer has every shape
with some of the types.  Qualifiers such as ``collector::a::fill`` change no layout, so
it leaves them out.  A ``tcgen05.commit`` has no fragments, so there is nothing to draw.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fragmenta.reference.isa.families import catalogue
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.table import extras

# Without a descriptor, an instruction is drawn with this N: all of it can be seen.
_USUAL_N = 64


class ExplorerInstructions:
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
        possible, the same M, N and types.
        """
        if str(op) in self.known:
            return self.known[str(op)]
        m, n = op.shape[:2] if "shape" in op.values else (0, _USUAL_N)

        def far(other: Instruction) -> tuple[bool, int, int]:
            types = sum(
                other.values.get(name) != op.values.get(name)
                for name in ("a", "b", "d")
            )
            return other.shape.m != m, abs(other.shape.n - n), types

        return min(self._kinds.get(_kind(op), []), key=far, default=None)


def _kind(op: Instruction) -> tuple[str, ...]:
    return (op.family, op.values.get("cta_group", ""), op.values.get("kind", ""))


def others(ops: Sequence[Instruction]) -> dict[str, int]:
    """For names that the explorer does not have: the number of what it shows, or -1."""
    held = ExplorerInstructions(ops)
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
