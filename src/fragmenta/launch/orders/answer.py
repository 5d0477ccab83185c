"""The answer of ``launch(orders=...)``: whether an order hangs or races, and which.

An :class:`Orders` has the verdict, the numbers of what was covered, and the stories.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.engine.simt.naming import KernelNames, counted
from fragmenta.engine.units.findings import Finding, Launched
from fragmenta.errors import one_of
from fragmenta.launch.orders.order_words import (
    HangReport,
    OrderLine,
    OrderWords,
    site_of,
)
from fragmenta.ptx.checking.problem import wrapped
from fragmenta.watch.orders.verdict import Coverage

HANGS = "hangs"
"""The verdict if an order hangs."""
_WORST = (Coverage.ALL, Coverage.PATH, Coverage.INCOMPLETE)


@dataclass(frozen=True, repr=False)
class Orders:
    """All orders in which the threads of a launch can synchronise, and what they show.

    >>> Orders("all orders", orders=2, states=9)
    <Orders: no order hangs: 2 orders cover all, in 9 states>
    """

    coverage: str
    """How much it is about: ``all orders``, ``this path only`` or ``incomplete``."""
    reasons: tuple[str, ...] = ()
    """Why it is not about all orders."""
    orders: int = 0
    """How many orders were run; all others differ from one of them only in the order of
    events that do not affect each other."""
    states: int = 0
    """How many different states they visit."""
    hang: HangReport | None = field(default=None, repr=False)
    launched: Launched | None = field(default=None, repr=False)
    found: tuple[tuple[Launched, Finding], ...] = field(default=(), repr=False)
    """Hangs, races and misuse that the launch did not show, before they are words."""
    together: tuple[str, ...] = ()
    """Places where lanes that diverged waited with one instruction.  They are taken to
    do so in every order."""
    wrong: bool = False
    """Whether some order hangs, races or misuses a barrier."""

    @property
    def verdict(self) -> str:
        """``hangs`` if an order does, however many there are; else the coverage."""
        return HANGS if self.hangs else self.coverage

    @property
    def hangs(self) -> bool:
        """Whether some order hangs."""
        return self.hang is not None

    @property
    def clean(self) -> bool:
        """Whether no order hangs, races, or misuses a barrier."""
        return not self.wrong

    @property
    def story(self) -> str:
        """The shortest order that hangs, step by step; nothing if none does."""
        return "" if self.hang is None else "\n".join(self.hang.lines())

    @property
    def summary(self) -> str:
        """The answer in one line."""
        covered = f"{counted(self.orders, 'order')} in {counted(self.states, 'state')}"
        if self.hang is not None:
            steps = counted(len(self.hang.steps), "step")
            looked = f"{covered} {'was' if self.orders == 1 else 'were'} looked at"
            if self.coverage != Coverage.ALL.value:
                looked += f" ({self.coverage})"
            return f"an order hangs, after {steps}; {looked}"
        start = "no order hangs"
        if self.coverage == Coverage.ALL.value:
            orders = counted(self.orders, "order")
            cover = "covers" if self.orders == 1 else "cover"
            states = counted(self.states, "state")
            return f"{start}: {orders} {cover} all, in {states}{self._but}"
        looked = f"{start} of those that were looked at ({self.coverage})"
        return f"{looked}: {covered}{self._but}"

    @property
    def _but(self) -> str:
        return "; but some have other errors" if self.wrong else ""

    def text(self, width: int = 80) -> str:
        """The answer in lines that fit: the verdict, the reasons, the story."""
        lines = [wrapped(self.summary, width, "  ")]
        lines += [wrapped(f"- {each}", width, "  ") for each in self.reasons]
        if self.together:
            where = one_of(self.together, "and")
            said = f"- lanes that waited together at {where} do so in every order here"
            lines.append(wrapped(said, width, "  "))
        if self.hang is not None:
            lines += [wrapped(f"  {each}", width, "   ") for each in self.hang.lines()]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain values, for JSON."""
        made: dict[str, Any] = {
            "summary": self.summary,
            "verdict": self.verdict,
            "coverage": self.coverage,
            "reasons": list(self.reasons),
            "orders": self.orders,
            "states": self.states,
            "together": list(self.together),
            "hangs": self.hangs,
            "clean": self.clean,
            "steps": [],
            "waiting": [],
        }
        if self.hang is not None and self.launched is not None:
            names = KernelNames(self.launched.module(), self.launched.compiled)
            made["steps"] = [_step(names, each) for each in self.hang.steps]
            made["waiting"] = self.hang.waiting
        return made

    def __str__(self) -> str:
        return self.summary

    def __repr__(self) -> str:
        return f"<Orders: {self.summary}>"


def _step(names: KernelNames, told: OrderLine) -> dict[str, Any]:
    at = names.instruction(told.site)
    return {
        "step": told.number,
        "who": told.who,
        "does": told.does,
        "line": at.line if at else 0,
        "source": str(at.source) if at and at.source else None,
    }


def worst(several: Sequence[Coverage]) -> Coverage:
    """What can be said of all parts together."""
    return max(several, key=_WORST.index, default=Coverage.ALL)


__all__ = ["HangReport", "OrderWords", "Orders", "site_of", "worst"]
