"""Faults: the errors with which a unit ends a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fragmenta.engine.simt.layout import Fault
from fragmenta.errors import Error
from fragmenta.ptx import rules
from fragmenta.ptx.rules import Rule

if TYPE_CHECKING:
    from fragmenta.engine.units.blocks import Warp
    from fragmenta.engine.units.events import Event


class Stop(Error):
    """An error that ends the kernel, at an instruction of a warp."""

    def __init__(
        self, rule: Rule, site: int, warp: Warp, lanes: int, message: str
    ) -> None:
        super().__init__(message)
        self.rule, self.site, self.warp, self.lanes = rule, site, warp, lanes


class WrongAddress(Error):
    """An address that cannot be accessed: the fault that a load or store has."""

    def __init__(self, kind: Fault, address: int, size: int, lanes: int) -> None:
        super().__init__(f"{kind.name.lower()} at {address:#x}")
        self.kind, self.address, self.size, self.lanes = kind, address, size, lanes


class CopyFault(Error):
    """A copy that hardware refuses, or that has no defined result.

    ``rule`` is the row of what is wrong.
    """

    def __init__(self, rule: Rule, message: str) -> None:
        super().__init__(rule, message)  # both, for pickling
        self.rule = rule

    def __str__(self) -> str:
        return str(self.args[1])


def stopped(error: Error, event: Event, warp: Warp, lanes: int) -> Stop:
    """The end of the kernel because of a wrong copy or tensor map."""
    rule = error.rule if isinstance(error, CopyFault) else rules.BAD_TENSOR_MAP
    return Stop(rule, event.site, warp, lanes, str(error))
